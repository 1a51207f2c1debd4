"""The environments that `.ci/parties` makes, and the programs of other people that run in them.

Everything listens on loopback at ports that the system chose, and ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
PARTIES: Final = ROOT / ".parties"
NODE: Final = PARTIES / "node"
EVERYTHING: Final = NODE / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
# Environment -> the list it is made from. `.ci/parties` leaves a copy of the list if it has made one.
LISTS: Final = {"py1": HERE / "py1.txt", "py2": HERE / "py2.txt", "node": HERE / "package.json",
                "tools": HERE / "tools.txt", "library": HERE / "library.txt", "servers": HERE / "servers.json",
                "conformance": HERE / "conformance.json", "bridges": HERE / "bridges.json",
                "gosdk": HERE / "servers/gosdk/main.go",
                "services": HERE / "services.json", "models": HERE / "models.json", "llama": HERE / "llama.txt",
                "strict": HERE / "servers/strict/main.go",
                "web": HERE / "web.txt", "webnode": HERE / "webnode.json",
                "readings": HERE / "servers/readings/main.go"}  # fmt: skip

# For a config: the operator's port is any that is free.
ADMIN: Final = "admin: {listen: 127.0.0.1:0}\n"

# How long a party may take for all that one test asks of it, in seconds.
PATIENCE: Final = 600


def needs(*names: str) -> None:
    """Skips a test whose environments are not made of these lists; on CI, which has to have them, the test fails."""
    if missing := [name for name in names if not _is_made(name)]:
        how = f"no .parties/{' and .parties/'.join(missing)} here: run .ci/parties"
        if os.environ.get("CI") == "true":
            pytest.fail(how)
        pytest.skip(how)


def _is_made(name: str) -> bool:
    stamp = PARTIES / f"{name}.stamp"
    return stamp.is_file() and stamp.read_bytes() == LISTS[name].read_bytes()


def python(name: str) -> str:
    """The interpreter of an environment."""
    return str(PARTIES / name / "bin" / "python")


GO_SDK: Final = [str(PARTIES / "gosdk" / "gosdk")]
SCHEMA: Final = HERE / "servers" / "book.json"
SERVERS: Final = {
    "go": [*GO_SDK, "serve", str(SCHEMA)],
    "py2": [python("py2"), str(HERE / "servers" / "python.py")],
    "node": ["node", str(HERE / "servers" / "typescript.mjs"), str(NODE)],
    "trips": [python("py1"), str(HERE / "servers" / "trips.py")],
    "resumable": [python("py1"), str(HERE / "servers" / "resumable.py")],
    "ledger": [str(PARTIES / "strict" / "ledger")],
    "llama": [python("llama"), str(HERE / "servers" / "llama.py")],
    "web": [python("web"), str(HERE / "servers" / "readings.py")],
    "webnode": ["node", str(HERE / "servers" / "readings.cjs"), str(PARTIES / "webnode")],
    "readings": [str(PARTIES / "readings" / "readings")],
    "everything": ["node", "--require", str(HERE / "servers" / "loopback.cjs"), str(EVERYTHING), "streamableHttp"],
}
CLIENTS: Final = {
    "mcp2-modern": [python("py2"), str(HERE / "clients" / "py2.py"), "auto"],
    "mcp2-legacy": [python("py2"), str(HERE / "clients" / "py2.py"), "legacy"],
    "mcp1": [python("py1"), str(HERE / "clients" / "py1.py"), "py1"],
    "fastmcp": [python("py2"), str(HERE / "clients" / "py2.py"), "fastmcp"],
    "ts1": ["node", str(HERE / "clients" / "typescript.mjs"), str(NODE), "ts1"],
    "ts2": ["node", str(HERE / "clients" / "typescript.mjs"), str(NODE), "ts2"],
}


@contextlib.contextmanager
def running(words: list[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A program with a pipe to its standard input, which is closed at the end; then it is waited for, or killed."""
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@contextlib.contextmanager
def servers(*names: str) -> Iterator[dict[str, int]]:
    """Servers of `SERVERS`, started together: the ports of all that they serve."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(running(SERVERS[name], stderr=subprocess.DEVNULL)) for name in names]
        ports: dict[str, int] = {}
        for process in started:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"{process.args!r} ended before it served"
            ports |= json.loads(line)
        yield ports


@contextlib.contextmanager
def proxy(config: Path) -> Iterator[int]:
    """`toolcall-proxy serve` with a config file: its port. The log lies beside the file."""
    log = config.parent / "log.jsonl"
    words = [sys.executable, "-m", "proxy", "serve", str(config), "--listen", "127.0.0.1:0"]
    with log.open("w") as lines, running(words, stderr=lines, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on "), log.read_text()
        try:
            yield int(line.rsplit(":", 1)[1])
        finally:
            process.kill()


def asked(words: list[str], *arguments: Any) -> Any:
    """Returns what a client prints, for arguments that are given as JSON."""
    done = subprocess.run(
        [*words, *map(json.dumps, arguments)], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert 0 == done.returncode, done.stderr[-4000:]
    return json.loads(done.stdout)

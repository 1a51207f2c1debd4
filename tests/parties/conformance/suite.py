"""Runs the conformance suite: scenarios of servers in several ways, scenarios of clients with the proxy in between."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.parties.environment import ADMIN, EVERYTHING, PARTIES, ROOT, proxy, python, running
from tests.ports import hold_port

HERE: Final = Path(__file__).parent
SUITE: Final = PARTIES / "conformance" / "node_modules"
REVISIONS: Final = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
BETWEEN: Final = "client-between"
_STDIO: Final = [python("py2"), str(HERE / "stdio_server.py")]
_CLIENT: Final = [python("py2"), str(HERE / "everything_client.py")]
# Way -> its upstreams and the rest of its route; {url} is the server at a port.
WAYS: Final = {
    "url": ("s: {{url: '{url}'}}", "upstream: s"),
    "command": (f"s: {{{{command: {json.dumps(_STDIO)}}}}}", "upstream: s"),
    "stdio": (
        f"s: {{{{command: {json.dumps([sys.executable, '-m', 'proxy', 'stdio', '--', *_STDIO])}, cwd: {ROOT}}}}}",
        "upstream: s",
    ),
    "servers": (
        f"s: {{{{url: '{{url}}'}}}}\n  other: {{{{command: {json.dumps(['node', str(EVERYTHING), 'stdio'])}}}}}",
        "servers: {s: s, other: other}, mcp: {prefix: clash}",
    ),
}
_RESOURCE: Final = "`resource: rewrite` puts the route's URL in place of the server's, by design"
# Whole scenarios and checks of clients -> why they need not pass through the proxy. None of them is a MUST.
EXCEPTIONS: Final = {
    "resource-parameter-matches-prm": _RESOURCE,
    "auth/resource-mismatch": _RESOURCE,
    "auth/2025-03-26-oauth-metadata-backcompat": "the server repeats its own issuer to the client (RFC 9207)",
    "sep-2243-client-omit-null": "a null at an optional key of a tool that may write is refused (docs/repair.md)",
}
# Revision -> scenarios of servers that the suite of every change runs: a few for the transport, a few for calls.
SAMPLE: Final = {
    "2025-11-25": ["server-session-lifecycle", "server-sse-polling", "tools-call-sampling", "resources-subscribe"],
    "2026-07-28": ["server-stateless", "http-header-validation", "tools-call-with-progress", "prompts-get-with-args"],
}
# Milliseconds for one scenario: the suite runs those of clients side by side, each with a proxy and a client to start.
_PATIENCE: Final = "180000"
# How bad a status is; the worst one of a check counts.
_RANK: Final = {"INFO": 0, "SUCCESS": 0, "SKIPPED": 1, "WARNING": 2, "FAILURE": 3}

# (scenario, check) -> its status
Checks = dict[tuple[str, str], str]


def run_suite(kind: str, folder: Path, revision: str, *words: str, scenarios: Sequence[str] = ()) -> Checks:
    """Runs scenarios of servers or clients at a revision, all unless they are named, and gives what they found."""
    node = next((str(path) for path in SUITE.glob("node-linux-*/bin/node")), "node")
    index = SUITE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    command = [node, str(index), kind, "--spec-version", revision, "--timeout", _PATIENCE, "-o", str(folder), *words]
    for which in [["--scenario", name] for name in scenarios] or [["--suite", "all"]]:
        words_of_run = [*command, *which]
        subprocess.run(words_of_run, cwd=ROOT, check=False, capture_output=True, timeout=1800, stdin=subprocess.DEVNULL)
    found: Checks = {}
    for path in folder.rglob("checks.json"):
        name = re.sub(r"-20\d\d-\d\d-\d\dT.*$", "", path.parent.relative_to(folder).as_posix()).removeprefix("server-")
        for check in json.loads(path.read_text(encoding="utf-8")):
            key = name, check["id"]
            if key not in found or _RANK[found[key]] < _RANK[check["status"]]:
                found[key] = check["status"]
    return found


@contextlib.contextmanager
def serving_directly() -> Iterator[int]:
    """The suite's server at a port."""
    port = hold_port()
    words = [python("py2"), str(HERE / "everything_server.py"), "--port", str(port), "--log-level", "ERROR"]
    with running(words, stderr=subprocess.DEVNULL) as process:
        try:
            _await_listener(port)
            yield port
        finally:
            process.kill()


def _await_listener(port: int) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.05)


def write_config(way: str, url: str, folder: Path) -> Path:
    """The config of a way."""
    upstreams, route = WAYS[way]
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yaml"
    written = upstreams.format(url=url)
    config.write_text(
        f"version: 1\n{ADMIN}upstreams:\n  {written}\nroutes:\n  - {{path: /mcp, protocol: mcp, {route}}}\n"
    )
    return config


def run_servers(
    folder: Path, revisions: Sequence[str], ways: Sequence[str], sample: Mapping[str, Sequence[str]] = {}
) -> dict[str, dict[str, Checks]]:
    """The scenarios of servers, all or those in `sample`: way (also `direct`) -> revision -> checks."""
    found: dict[str, dict[str, Checks]] = {}
    with serving_directly() as direct:
        url = f"http://localhost:{direct}"
        for way in ("direct", *ways):
            with contextlib.ExitStack() as kept:
                at = folder / way
                port = direct if way == "direct" else kept.enter_context(proxy(write_config(way, url, at)))
                words = ("--url", f"http://localhost:{port}/mcp")
                found[way] = {
                    revision: run_suite("server", at / revision, revision, *words, scenarios=sample.get(revision, ()))
                    for revision in revisions
                }
    return found


def run_clients(folder: Path, revision: str) -> dict[str, dict[str, Checks]]:
    """The scenarios of clients, directly and with the proxy in between."""
    between = [sys.executable, "-m", "tests.parties.conformance.between"]
    return {
        way: {revision: run_suite("client", folder / way / revision, revision, "--command", shlex.join(words))}
        for way, words in (("client", _CLIENT), (BETWEEN, [*between, *_CLIENT]))
    }


def count(checks: Mapping[tuple[str, str], str]) -> str:
    """Returns how many checks have which status."""
    counted = Counter(checks.values())
    return f"{counted['SUCCESS']:4d} passed {counted['WARNING']:2d} warnings {counted['FAILURE']:2d} failed"


def compare(found: Mapping[str, Mapping[str, Checks]]) -> list[str]:
    """Prints one line for each way and revision, and gives the checks that the proxy makes worse."""
    (base, direct), *others = found.items()
    worse: list[str] = []
    for way, revisions in found.items():
        for revision, checks in revisions.items():
            sys.stdout.write(f"{way:14} {revision}  {count(checks)}\n")
    sys.stdout.flush()
    for way, revisions in others:
        for revision, checks in revisions.items():
            for key, status in direct[revision].items():
                now = checks.get(key, "absent")
                excused = way == BETWEEN and not EXCEPTIONS.keys().isdisjoint(key)
                if status == "SUCCESS" and _RANK.get(now, 3) > 0 and not excused:
                    worse.append(f"{way} {revision} {key[0]} {key[1]}: {now}, {base} {status}")
    return worse

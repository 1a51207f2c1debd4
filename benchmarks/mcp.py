"""The cost of the proxy for a `tools/call`: direct, through this proxy, and through fastmcp's proxy, in turn.

Each round makes the same calls everywhere, one right after the other over one kept connection. So the figures are
pairs, and a machine that is slow for a moment is slow for all. The server is the low-level one of the Python SDK
(tests/parties/servers/python.py), the calls are of revision 2026-07-28. `added` is the median of the rounds' paired
differences to direct, `CPU` the processor time of the proxy's own process. This proxy at an earlier commit takes part
if `python -m benchmarks.proxies --install` has fetched it.

    bash .ci/parties && python -m benchmarks.mcp
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import machine
from benchmarks.peers.cast import PARENT, Command, environment, parent_tree
from benchmarks.peers.running import running

ROOT: Final = Path(__file__).parent.parent
PYTHON: Final = ROOT / ".parties" / "py2" / "bin" / "python"
SERVER: Final = ROOT / "tests" / "parties" / "servers" / "python.py"
PEER: Final = Path(__file__).parent / "peers" / "fastmcp_proxy.py"
OURS, THEIRS, DIRECT = "toolcall-proxy", "fastmcp proxy", "direct"
CACHE: Final = Path.home() / ".cache" / "toolcall-proxy-bench"

CONFIG: Final = """\
version: 1
listen: 127.0.0.1:{port}
admin: off
telemetry: {{log: {{level: error}}}}
upstreams: {{server: {{url: "http://127.0.0.1:{server}"}}}}
routes: [{{path: /mcp, upstream: server, protocol: mcp}}]
"""
BOOK: Final[dict[str, Any]] = {
    "title": "Emma", "copies": 3, "price": 0.5, "gift": True, "size": "small", "tags": ["a", "b"],
    "place": {"city": "Bath", "floor": 2},
}  # fmt: skip
KINDS: Final = {
    "clean": BOOK,
    "repaired": {**BOOK, "copies": "3", "gift": "true", "tags": '["a", "b"]'},
    "refused": {**BOOK, "copies": "several"},
}
_VERSION: Final = "2026-07-28"
_META: Final = {
    "io.modelcontextprotocol/protocolVersion": _VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}


@dataclass
class Found:
    """Per turn: the median call in milliseconds, and the proxy's CPU per call in microseconds."""

    calls: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class Connection:
    """One connection that is kept. Reads answers with a length, or chunks."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, arguments: dict[str, Any], number: int) -> bytes:
        """The body of the answer to one `tools/call`; of another status than 200 nothing."""
        params = {"name": "book", "arguments": arguments, "_meta": _META}
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Type: application/json\r\nMCP-Protocol-Version: {_VERSION}\r\nMcp-Method: tools/call\r\n"
            f"Mcp-Name: book\r\nX-Conversation-Id: c{number}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        held = b""
        while not _whole(held):
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the connection was closed")
            held += data
        assert held.startswith(b"HTTP/1.1 200"), held
        return held.partition(b"\r\n\r\n")[2]

    def close(self) -> None:
        """Ends it."""
        self._socket.close()


def _whole(held: bytes) -> bool:
    head, end, body = held.partition(b"\r\n\r\n")
    if not end:
        return False
    fields = head.lower()
    if b"\r\ntransfer-encoding: chunked" in fields:
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= int(fields.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])


# --- who takes part ---------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def server(core: int | None) -> Iterator[int]:
    """The server behind the proxies: its port."""
    process = subprocess.Popen(
        [PYTHON, SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=machine.pinned(core),  # noqa: PLW1509 - there are no threads here
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["low"]
    finally:
        process.stdin.close()
        process.wait()


def wait_ready(port: int) -> None:
    """Waits until a good call is answered with the tool's own text."""
    for _ in range(600):
        with contextlib.suppress(OSError, AssertionError, ValueError):
            connection = Connection(port)
            try:
                if b"Emma" in connection.call(BOOK, 0):
                    return
            finally:
                connection.close()
        time.sleep(0.05)
    raise SystemExit(f"nobody serves on {port}")


def turn(port: int, pid: int | None, kind: str, calls: int, found: Found, base: int) -> None:
    """So many calls, one after the other."""
    connection, times = Connection(port), []
    used = 0.0 if pid is None else machine.cpu_seconds(pid)
    for number in range(calls):
        began = time.perf_counter()
        connection.call(KINDS[kind], base + number)
        times.append((time.perf_counter() - began) * 1e3)
    used = 0.0 if pid is None else machine.cpu_seconds(pid) - used
    connection.close()
    found.calls.append(statistics.median(times))
    found.cpu.append(used / calls * 1e6)


def _command(who: str, folder: Path, port: int, upstream: int) -> Command:
    if who == THEIRS:
        return Command([str(PYTHON), str(PEER), str(port), f"http://127.0.0.1:{upstream}/mcp"])
    config = folder / f"{port}.yaml"
    config.write_text(CONFIG.format(port=port, server=upstream))
    words = ["-m", "proxy", "serve", str(config)]
    if who == OURS:
        return Command([sys.executable, *words])
    tree = parent_tree(CACHE)
    return Command([str(environment(CACHE, "parent")), *words], {"PYTHONPATH": str(tree)}, folder=tree)


def measure(rounds: int, calls: int) -> dict[tuple[str, str], Found]:
    """Everything, by (who, kind of call). Refused and repaired calls are measured only for ours."""
    cores = machine.cores()
    near, far = (None, None) if cores is None else cores
    found: dict[tuple[str, str], Found] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        upstream = stack.enter_context(server(near))
        players: list[tuple[str, int, int | None]] = [(DIRECT, upstream, None)]
        for who in (OURS, PARENT, THEIRS) if parent_tree(CACHE).is_dir() else (OURS, THEIRS):
            port = machine.free_port()
            process = stack.enter_context(running(_command(who, folder, port, upstream), far, folder / f"{port}.log"))
            wait_ready(port)
            players.append((who, port, process.pid))
        for number in range(rounds + 1):
            for who, port, pid in players:
                for kind in KINDS if who in (OURS, PARENT) else ("clean",):
                    # The first round warms up and is thrown away.
                    into = found.setdefault((who, kind), Found()) if number else Found()
                    turn(port, pid, kind, calls, into, number * calls)
    return found


def show(found: dict[tuple[str, str], Found]) -> None:
    """Prints medians, and the medians of the rounds' differences and ratios."""
    direct = found[DIRECT, "clean"].calls
    added = {key: [one - base for one, base in zip(each.calls, direct, strict=True)] for key, each in found.items()}
    print(f"{'':26}{'call ms':>9}{'added ms':>10}{'x direct':>10}{'CPU us':>9}")
    for (who, kind), each in found.items():
        ratio = statistics.median(one / base for one, base in zip(each.calls, direct, strict=True))
        words = who if who in (DIRECT, THEIRS) else f"{who}, {kind}"
        row = (statistics.median(each.calls), statistics.median(added[who, kind]), ratio, statistics.median(each.cpu))
        print(f"{words:26}{row[0]:9.3f}{row[1]:10.3f}{row[2]:10.2f}{row[3]:9.0f}")
    pairs = zip(added[THEIRS, "clean"], added[OURS, "clean"], strict=True)
    ratios = [theirs / ours for theirs, ours in pairs if ours > 0]
    cpu = _compare_cpu(found, THEIRS, OURS)
    if (PARENT, "clean") in found:
        print(f"goal: CPU of a clean call at most 1.0 of {PARENT}: {_compare_cpu(found, OURS, PARENT):.2f}")
    if ratios:
        print(
            f"fastmcp's proxy adds {statistics.median(ratios):.1f} x what this one adds, and takes {cpu:.1f} x its CPU"
        )


def _compare_cpu(found: dict[tuple[str, str], Found], one: str, other: str) -> float:
    """One player's CPU of a clean call in the other's: the median of the rounds' ratios."""
    pairs = zip(found[one, "clean"].cpu, found[other, "clean"].cpu, strict=True)
    return statistics.median(mine / max(yours, 1e-9) for mine, yours in pairs)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=150, help="calls in a turn")
    options = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit("no .parties/py2 here: run .ci/parties")
    show(measure(options.rounds, options.calls))


if __name__ == "__main__":
    main()

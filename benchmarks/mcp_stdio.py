"""The cost of the proxy for a `tools/call` of a server that speaks stdio, beside mcp-proxy and fastmcp's proxy.

    stdio   a client that starts commands: the server itself, and `toolcall-proxy stdio -- server`
    HTTP    a client of Streamable HTTP with a session: `toolcall-proxy serve --mcp -- server`, mcp-proxy, fastmcp's

The server is a script without any SDK (tests/extensions/mcp/stdio_server.py): the proxies are what is measured. All
make the same calls in turn, one after the other; `CPU` is the processor time of the proxy's own process for a call,
without the server's. Figures are medians of the rounds.

    bash .ci/parties && python -m benchmarks.mcp_stdio
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks import machine
from benchmarks.mcp import Found
from benchmarks.peers.cast import Command
from benchmarks.peers.running import running

ROOT: Final = Path(__file__).parent.parent
SERVER: Final = [sys.executable, str(ROOT / "tests" / "extensions" / "mcp" / "stdio_server.py")]
PY1: Final = ROOT / ".parties" / "py1" / "bin"
PY2: Final = ROOT / ".parties" / "py2" / "bin" / "python"
PEER: Final = Path(__file__).parent / "peers" / "fastmcp_proxy.py"
_INITIALIZE: Final[dict[str, Any]] = {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
}  # fmt: skip


def message(method: str, params: dict[str, Any], number: int | None) -> bytes:
    """A JSON-RPC message as bytes."""
    own = {} if number is None else {"id": number}
    return json.dumps({"jsonrpc": "2.0", **own, "method": method, "params": params}).encode()


class Client(Protocol):
    """A client with a session."""

    def ask(self, text: bytes) -> bytes:
        """The answer to a message, b'' for a notification."""

    def renew(self) -> None:
        """Drops a connection that may have been idle for too long."""


def begin(client: Client) -> None:
    """Begins the session and lists the tools."""
    client.ask(message("initialize", _INITIALIZE, 0))
    client.ask(message("notifications/initialized", {}, None))
    client.ask(message("tools/list", {}, 1))


class Lines:
    """A client that has started a command."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ask(self, text: bytes) -> bytes:
        """The next line that is an answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(text + b"\n")
        self._process.stdin.flush()
        return self._process.stdout.readline() if b'"id"' in text else b""

    def renew(self) -> None:
        """Pipes stay."""


class Posts:
    """A client of Streamable HTTP."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._session: dict[str, str] = {}

    def ask(self, text: bytes) -> bytes:
        """The body of the answer."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self._http.request("POST", "/mcp", text, headers | self._session)
        answer = self._http.getresponse()
        body = answer.read()
        if answer.status not in (200, 202):
            raise ConnectionError(f"{answer.status}: {body[:200]!r}")
        if found := answer.headers.get("Mcp-Session-Id"):
            self._session = {"Mcp-Session-Id": found, "MCP-Protocol-Version": "2025-06-18"}
        return body

    def renew(self) -> None:
        """The next message opens another one."""
        self._http.close()


def own_cpu(pid: int) -> float:
    """The CPU time of one process, without those it has started."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def turn(client: Client, pid: int, calls: int, found: Found) -> None:
    """So many calls, one after the other."""
    client.renew()
    times, before = [], own_cpu(pid)
    for number in range(2, calls + 2):
        text = message("tools/call", {"name": "echo", "arguments": {"a": number}}, number)
        began = time.perf_counter()
        answer = client.ask(text)
        times.append((time.perf_counter() - began) * 1e3)
        if str(number).encode() not in answer or b'"isError":true' in answer:
            raise SystemExit(f"a wrong answer: {answer[:300]!r}")
    found.calls.append(statistics.median(times))
    found.cpu.append((own_cpu(pid) - before) / calls * 1e6)


def connect(port: int, log: Path) -> Client:
    """A client of a proxy that is just starting, with its session begun."""
    for _ in range(600):
        with contextlib.suppress(OSError, http.client.HTTPException):
            client = Posts(port)
            begin(client)
            return client
        time.sleep(0.1)
    raise SystemExit(f"nobody serves on {port}: {log.read_text()[-500:]}")


@contextlib.contextmanager
def players(folder: Path) -> Iterator[list[tuple[str, Client, int]]]:
    """Everybody who takes part: name, client, and the process that is measured."""
    ours = [sys.executable, "-m", "proxy"]
    mcp_proxy = [str(PY1 / "mcp-proxy"), "--log-level", "ERROR", "--port"]
    started: list[tuple[str, Callable[[str], list[str]]]] = [
        (
            "HTTP, toolcall-proxy",
            lambda port: [*ours, "serve", "--listen", f"127.0.0.1:{port}", "--mcp", "--", *SERVER],
        ),
        ("HTTP, mcp-proxy", lambda port: [*mcp_proxy, port, "--", *SERVER]),
        ("HTTP, fastmcp proxy", lambda port: [str(PY2), str(PEER), port, *SERVER]),
    ]
    with contextlib.ExitStack() as stack:
        found: list[tuple[str, Client, int]] = []
        for name, words in (("stdio, direct", SERVER), ("stdio, toolcall-proxy", [*ours, "stdio", "--", *SERVER])):
            process = stack.enter_context(
                subprocess.Popen(
                    words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
                )
            )
            assert process.stdin is not None
            stack.callback(process.stdin.close)
            lines = Lines(process)
            begin(lines)
            found.append((name, lines, process.pid))
        for name, make in started:
            port, log = machine.free_port(), folder / f"{name}.log"
            server = stack.enter_context(running(Command(make(str(port))), None, log))
            found.append((name, connect(port, log), server.pid))
        yield found


def measure(rounds: int, calls: int) -> dict[str, Found]:
    """Everything, by name."""
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as name, players(Path(name)) as all_players:
        for number in range(rounds + 1):
            for who, client, pid in all_players:
                # The first round warms up and is thrown away.
                turn(client, pid, calls, found.setdefault(who, Found()) if number else Found())
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=150, help="calls in a turn")
    options = parser.parse_args()
    if not PY1.exists() or not PY2.exists():
        raise SystemExit("no .parties/py1 and .parties/py2 here: run .ci/parties")
    found = measure(options.rounds, options.calls)
    direct = found["stdio, direct"].calls
    print(f"{'':26}{'call ms':>9}{'x direct':>10}{'CPU us':>9}")
    for who, each in found.items():
        ratio = statistics.median(one / base for one, base in zip(each.calls, direct, strict=True))
        print(f"{who:26}{statistics.median(each.calls):9.3f}{ratio:10.2f}{statistics.median(each.cpu):9.0f}")


if __name__ == "__main__":
    main()

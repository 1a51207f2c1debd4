"""The memory of a session: thousands of clients of an old revision, each with its session and its open stream.

Every client begins a session, lists the tools, makes a call and keeps its GET stream open; the server is a script in
this process. Memory is the proportional set size of the proxy's process before and after. With `--joined` the route
has two servers, so that each session of a client is a session with both.

    python -m benchmarks.mcp_sessions --sessions 2000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import resource
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from benchmarks import machine

ROOT: Final = Path(__file__).parent.parent
TOOLS: Final = [
    {"name": f"tool_{number}", "description": "Does a thing.",
     "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    for number in range(20)
]  # fmt: skip
# Clients that begin at the same time.
_TOGETHER: Final = 20


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    return head[0], fields, await reader.readexactly(int(fields.get("content-length", "0")))


class Server:
    """An MCP server of old revisions: sessions, streams, and an echo."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                start, _, body = await _read(reader)
                if start.startswith("GET"):
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                    )
                    await reader.read()
                    break
                writer.write(self._answer(json.loads(body) if body else {}))
                await writer.drain()
        writer.close()

    def _answer(self, message: dict[str, Any]) -> bytes:
        more = ""
        match message.get("method"):
            case "initialize":
                more = f"Mcp-Session-Id: {next(self._numbers):032x}\r\n"
                told: Any = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "s"},
                }
            case "tools/list":
                told = {"tools": TOOLS}
            case "tools/call":
                told = {"content": [{"type": "text", "text": json.dumps(message["params"].get("arguments"))}]}
            case _:
                return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": told}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


async def _post(port: int, message: object, session: str) -> tuple[dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(message).encode()
    own = f"Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-06-18\r\n" if session else ""
    writer.write(
        f"POST /mcp HTTP/1.1\r\nHost: x\r\nAccept: application/json, text/event-stream\r\n"
        f"Content-Type: application/json\r\n{own}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    start, fields, answer = await _read(reader)
    writer.close()
    if " 20" not in start:
        raise SystemExit(f"{start}: {answer[:300]!r}")
    return fields, answer


async def begin(port: int, tool: str) -> asyncio.StreamWriter:
    """One client: its session, a call, and its stream, which stays open."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
    fields, _ = await _post(port, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, "")
    session = fields["mcp-session-id"]
    await _post(port, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    await _post(port, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, session)
    params = {"name": tool, "arguments": {"a": 1}}
    _, answer = await _post(port, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}, session)
    if b"isError" in answer:
        raise SystemExit(f"a wrong answer: {answer[:300]!r}")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /mcp HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n"
    writer.write(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    return writer


@contextlib.asynccontextmanager
async def proxy(config: Path) -> AsyncIterator[tuple[int, int]]:
    """The proxy: its port and its process id."""
    words = ["-m", "proxy", "serve", str(config), "--listen", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        yield int((await process.stdout.readline()).decode().rsplit(":", 1)[1]), process.pid
    finally:
        process.kill()
        await process.wait()


async def measure(sessions: int, *, joined: bool) -> None:
    """Opens the sessions and prints what they cost."""
    server = await asyncio.start_server(Server().serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    route, tool = ("servers: {a: tools, b: tools}", "a_tool_1") if joined else ("upstream: tools", "tool_1")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        config.write_text(
            "version: 1\nadmin: off\ntelemetry: {log: {level: error}}\n"
            f"upstreams: {{tools: {{url: 'http://127.0.0.1:{port}', pool: {{connections: {4 * sessions}}}}}}}\n"
            f"routes: [{{path: /mcp, protocol: mcp, {route}}}]\n"
        )
        async with proxy(config) as (front, pid):
            held = [await begin(front, tool)]
            before = machine.memory(pid)
            while len(held) < sessions:
                count = min(_TOGETHER, sessions - len(held))
                held += await asyncio.gather(*(begin(front, tool) for _ in range(count)))
            after = machine.memory(pid)
            used = machine.cpu_seconds(pid)
            print(f"{'two servers' if joined else 'one server':12} {len(held)} sessions with an open stream each:")
            each = (after - before) * 1024 / len(held)
            print(f"  {before:.1f} MB before, {after:.1f} MB after, {each:.1f} KB a session,")
            print(f"  {used / len(held) * 1e3:.2f} ms CPU for begin, list, call and stream of one")
            for writer in held:
                writer.close()
    server.close()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--joined", action="store_true", help="the route has two servers")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(measure(options.sessions, joined=options.joined))


if __name__ == "__main__":
    main()

"""Raw HTTP on loopback for the tests: a scripted upstream that records what reached it, and a client that writes
bytes and reads one answer. Neither uses aiohttp, so that what they see is what is on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.steady import run_others

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter, "Seen"], Awaitable[None]]


@dataclass(frozen=True)
class Seen:
    """One message as it was on the wire. `start` is the request or status line; header names are lower case."""

    start: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return next((value for key, value in self.headers if key == name), None)

    def names(self) -> set[str]:
        """All header names."""
        return {key for key, _ in self.headers}

    @property
    def status(self) -> int:
        """The status code of an answer."""
        return int(self.start.split(" ")[1])


async def read_message(reader: asyncio.StreamReader, *, bodiless: bool = False) -> Seen:
    """Reads one HTTP/1.1 message with its body. Raises IncompleteReadError when the connection ends before."""
    head = await reader.readuntil(b"\r\n\r\n")
    start, *lines = head.decode("latin-1").split("\r\n")[:-2]
    headers = tuple((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
    found = Seen(start, headers, b"")
    if bodiless:
        return found
    if found.header("transfer-encoding") == "chunked":
        return Seen(start, headers, await _chunks(reader))
    if (length := found.header("content-length")) is not None:
        return Seen(start, headers, await reader.readexactly(int(length)))
    if start.startswith("HTTP/") and found.status not in (100, 204, 304):
        return Seen(start, headers, await reader.read())
    return found


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body


def answer(status: str, body: bytes, *headers: str) -> bytes:
    """The bytes of an answer with its Content-Length."""
    head = "".join(f"{line}\r\n" for line in (*headers, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


JSON_TYPE = "Content-Type: application/json"


def replies(*answers: bytes) -> Script:
    """A script that writes the given answers in turn, the last one for all further requests."""
    left = list(answers)

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    return script


@dataclass
class Tool:
    """A scripted upstream: where it listens and what reached it.

    `connected` and `arrived` are set with the first connection and request, `gone` when a client has left.
    """

    script: Script
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    connected: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Runs the script for each request of one connection."""
        self.connections += 1
        self.writers.append(writer)
        self.connected.set()
        try:
            while True:
                seen = await read_message(reader)
                self.seen.append(seen)
                self.arrived.set()
                await self.script(reader, writer, seen)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        except RuntimeError:  # uvloop raises it if a script writes to a connection that `end` dropped
            if not writer.transport.is_closing():
                raise
            self.gone.set()
        finally:
            writer.close()

    def end(self) -> None:
        """Drops all connections."""
        for writer in self.writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def tool(script: Script) -> AsyncIterator[Tool]:
    """A scripted upstream on a free loopback port."""
    upstream = Tool(script)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        upstream.end()
        await server.wait_closed()
        await asyncio.sleep(0)


async def exchange(port: int, *parts: bytes) -> Seen:
    """Writes bytes to a loopback port and reads one answer, skipping none; the connection is then closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(300):
            return await read_message(reader)
    finally:
        writer.close()


async def exchange_together(port: int, requests: Sequence[bytes]) -> list[Seen]:
    """Sends requests at once, each on its own connection that is open before, and reads the answer to each. Even on a
    busy machine, all of them arrive before the first is answered."""
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in requests]
    await run_others()  # the server has taken all connections
    try:
        for (_, writer), request in zip(streams, requests, strict=True):
            writer.write(request)
        async with asyncio.timeout(300):
            return [await read_message(reader) for reader, _ in streams]
    finally:
        for _, writer in streams:
            writer.close()


def post(path: str, body: bytes, *headers: str, content_type: str | None = "application/json") -> bytes:
    """The bytes of a POST."""
    typed = (f"Content-Type: {content_type}",) if content_type is not None else ()
    head = "".join(f"{line}\r\n" for line in ("Host: tools.test", *typed, *headers, f"Content-Length: {len(body)}"))
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


@contextlib.asynccontextmanager
async def tls_tool(context: ssl.SSLContext, script: Script) -> AsyncIterator[Tool]:
    """A tool behind TLS, on a free port."""
    upstream = Tool(script)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ssl.SSLError):
            await upstream.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        upstream.end()
        await server.wait_closed()
        await asyncio.sleep(0.01)

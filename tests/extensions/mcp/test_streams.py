"""Streams on MCP routes: events arrive when they are sent, and what becomes of a call whose client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.extensions.mcp.server.exchange import Exchange
from tests.extensions.mcp.conversation import BOTH
from tests.extensions.mcp.server import ADD, as_json, call, chunk, modern, modern_headers, result
from tests.serving.kernel import PROXYS_SHARE, bytes_read, find_far_end, needs_tcp_info, received, send_buffer
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, post, tool
from tests.steady import fill, pass_time, run_others, until

ROUTE = "  - {path: /mcp, upstream: tools, protocol: mcp}"
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n"
    b"Cache-Control: no-cache, no-transform\r\nTransfer-Encoding: chunked\r\n\r\n"
)
GOOD = call("add", {"a": 1, "b": 1})


@dataclass
class Stage:
    """A script whose streams are played by the test: `begun` is set when one is open, `write` adds to it, `left` is set
    when the other side has gone."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    head: bytes = HEAD
    writer: asyncio.StreamWriter | None = None

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        if b'"tools/list"' in seen.body:
            writer.write(as_json(result(json.loads(seen.body), {"tools": [ADD]})))
            return
        self.writer = writer
        writer.write(self.head)
        self.begun.set()
        await reader.read(1)
        self.left.set()
        raise ConnectionError

    def write(self, data: bytes) -> None:
        """Adds to the stream."""
        assert self.writer is not None
        self.writer.write(data)


class Client:
    """A client that reads its answer piece by piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def asks(cls, port: int, request: bytes) -> Client:
        """Sends a request."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        return cls(reader, writer)

    async def head(self) -> str:
        """The head of the answer."""
        async with asyncio.timeout(300):
            return (await self.reader.readuntil(b"\r\n\r\n")).decode()

    async def piece(self) -> bytes:
        """The next chunk; b'' at the end."""
        async with asyncio.timeout(300):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    def leaves(self) -> None:
        """Goes."""
        self.writer.transport.abort()


def legacy() -> bytes:
    return post("/mcp", json.dumps(GOOD).encode(), BOTH, "Mcp-Session-Id: s")


def stateless() -> bytes:
    return post("/mcp", json.dumps(modern(GOOD)).encode(), BOTH, *modern_headers(GOOD))


async def test_events_arrive_when_they_are_sent_with_ids_comments_and_empty_data() -> None:
    events = [
        b"id: e1\ndata: \n\n",
        b": still here\r\n\r\n",
        b'event: message\ndata: {"jsonrpc":"2.0"}\n\n',
        b"retry: 5\n\n",
    ]
    stage = Stage()
    async with tool(stage) as upstream, proxied(ROUTE, upstream.url) as proxy:
        client = await Client.asks(proxy.port, legacy())
        head = await client.head()
        for event in events:
            stage.write(chunk(event))
            assert event == await client.piece()
        stage.write(chunk(b""))

        assert b"" == await client.piece()
        assert "X-Accel-Buffering: no" in head
        assert "Cache-Control: no-cache, no-transform" in head
        client.leaves()


async def test_a_stream_may_be_silent_for_longer_than_the_upstreams_timeout() -> None:
    stage = Stage()
    more = {"upstreams": "{tools: {url: URL, timeouts: {idle: 50s}}}"}
    async with tool(stage) as upstream:
        keys = {name: value.replace("URL", upstream.url) for name, value in more.items()}
        async with proxied(ROUTE, upstream.url, **keys) as proxy:
            client = await Client.asks(proxy.port, b"GET /mcp HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
            await client.head()
            pass_time(60)
            await run_others()
            stage.write(chunk(b": hello\n\n"))

            assert b": hello\n\n" == await client.piece()
            client.leaves()


@needs_tcp_info
async def test_a_client_that_does_not_read_is_not_read_ahead_for() -> None:
    stage = Stage()
    async with tool(stage) as upstream, proxied(ROUTE, upstream.url) as proxy:
        client = await Client.asks(proxy.port, legacy())
        await client.head()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of the read side
        assert stage.writer is not None
        await fill(stage.writer, chunk(b"data: " + b"x" * 65_536 + b"\n\n"))
        with find_far_end(stage.writer) as proxys:
            held = bytes_read(proxys) - received(client.writer)
        client.leaves()

    assert 0 < held <= PROXYS_SHARE + send_buffer()


async def _when_the_client_leaves(request: Callable[[], bytes], *, before_the_head: bool) -> tuple[bool, int]:
    """Returns whether the upstream's connection is closed with the client's, and how many calls it saw."""
    stage = Stage(head=b"" if before_the_head else HEAD)
    async with tool(stage) as upstream, proxied(ROUTE, upstream.url) as proxy:
        client = await Client.asks(proxy.port, request())
        await stage.begun.wait()
        if not before_the_head:
            await client.head()
        client.leaves()
        await until(lambda: "client_gone" in [line["outcome"] for line in proxy.lines()])
        await run_others()
        left = stage.left.is_set()
        calls = len([seen for seen in upstream.seen if b"tools/call" in seen.body])
        if not left:  # the tool finishes in peace, and its answer is read to the end
            exchange = proxy.serving.listed.of("mcp")
            assert isinstance(exchange, Exchange)
            assert 1 == len(exchange._detached._tasks)
            stage.write((HEAD if before_the_head else b"") + chunk(b"data: {}\n\n") + chunk(b""))
            await until(lambda: not exchange._detached._tasks)
            assert not stage.left.is_set()
        return left, calls


async def test_leaving_cancels_a_call_since_2026_07_28() -> None:
    assert (True, 1) == await _when_the_client_leaves(stateless, before_the_head=True)
    assert (True, 1) == await _when_the_client_leaves(stateless, before_the_head=False)


async def test_leaving_cancels_nothing_in_older_revisions() -> None:
    assert (False, 1) == await _when_the_client_leaves(legacy, before_the_head=True)
    assert (False, 1) == await _when_the_client_leaves(legacy, before_the_head=False)


async def test_a_stream_of_notifications_ends_with_its_client() -> None:
    stage = Stage()
    async with tool(stage) as upstream, proxied(ROUTE, upstream.url) as proxy:
        client = await Client.asks(proxy.port, b"GET /mcp HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
        await client.head()
        client.leaves()
        async with asyncio.timeout(300):
            assert await stage.left.wait()


async def test_a_call_without_a_client_ends_with_the_proxy() -> None:
    stage = Stage(head=b"")
    async with tool(stage) as upstream:
        async with proxied(ROUTE, upstream.url) as proxy:
            client = await Client.asks(proxy.port, legacy())
            await stage.begun.wait()
            client.leaves()
            await until(lambda: "client_gone" in [line["outcome"] for line in proxy.lines()])
            assert not stage.left.is_set()
        async with asyncio.timeout(300):
            await stage.left.wait()

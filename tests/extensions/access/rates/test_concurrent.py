"""The number of calls that may be under way at once, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from proxy.upstream.faults import EndingStream
from tests.extensions.access.rates.test_rates import ANN, BOB, BODY, HASHES, OK, SCHEMA, statuses
from tests.hooks.samples import TOLD
from tests.serving.proxied import Proxied, code, proxied_by, told
from tests.serving.test_clocks import Clocks
from tests.serving.wire import Seen, post, tool
from tests.steady import until

# The head of a streamed answer and its first event.
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"


@dataclass
class Held:
    """A tool that answers when it is let go. `streams`: the head of its answer comes at once."""

    streams: bool = False
    arrived: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        if self.streams:
            writer.write(STREAM)
            await writer.drain()
        self.arrived.release()
        await self.let_go.wait()
        writer.write(b"0\r\n\r\n" if self.streams else OK)
        await writer.drain()


@contextlib.asynccontextmanager
async def bounded(limits: str, held: Held, more: str = "") -> AsyncIterator[Proxied]:
    """The app with one route of these `limits`."""
    route = f"  - {{path: /weather, upstream: tools, tool: weather, schema: {SCHEMA}, limits: {{{limits}}}{more}}}"
    async with tool(held) as server, proxied_by(Clocks(), route, server.url) as proxy:
        yield proxy


async def test_one_call_more_than_may_be_under_way_is_refused_at_once() -> None:
    held = Held()
    async with bounded("concurrent: {calls: 2}", held) as proxy:
        under_way = [asyncio.create_task(proxy.post("/weather", BODY)) for _ in range(2)]
        for _ in under_way:
            await held.arrived.acquire()
        seen = await proxy.post("/weather", BODY)
        held.let_go.set()
        delivered = [found.status for found in await asyncio.gather(*under_way)]
        later = await statuses(proxy, 2)

    assert ((429, "TOO_MANY_CALLS_AT_ONCE"), None) == (code(seen), seen.header("retry-after"))
    assert (
        "Tool 'weather' was not called: at most 2 calls from this caller can pass at once, and so many are under "
        "way.\n\nMake the same call again when one of the others has been answered."
    ) == told(seen)["content"]
    assert ([200, 200], [200, 200]) == (delivered, later)


async def test_each_caller_has_their_own_places() -> None:
    held = Held()
    async with bounded("concurrent: {calls: 1}", held, f", auth: {{bearer: {{{HASHES}}}}}") as proxy:
        under_way = [asyncio.create_task(proxy.post("/weather", BODY, who)) for who in (ANN, BOB)]
        for _ in under_way:
            await held.arrived.acquire()
        refused = await statuses(proxy, 1, ANN)
        held.let_go.set()
        delivered = [found.status for found in await asyncio.gather(*under_way)]

    assert ([429], [200, 200]) == (refused, delivered)


async def test_a_call_is_under_way_until_its_stream_has_ended() -> None:
    held = Held(streams=True)
    async with bounded("concurrent: {calls: 1, by: tool}", held) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", BODY))
        await reader.readuntil(b"data: 1")
        refused = await statuses(proxy, 1)
        held.let_go.set()
        await reader.readuntil(b"0\r\n\r\n")
        later = await statuses(proxy, 1)
        writer.close()

    assert ([429], [200]) == (refused, later)


async def test_a_client_that_goes_away_leaves_its_place() -> None:
    held = Held(streams=True)
    async with bounded("concurrent: {calls: 1, by: tool}", held) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", BODY))
        await reader.readuntil(b"data: 1")
        writer.close()
        await until(lambda: bool(proxy.lines()))
        held.let_go.set()
        later = await statuses(proxy, 1)

    assert [200] == later


async def _stream_until_gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    writer.write(STREAM)
    await writer.drain()
    await reader.readexactly(1)


@pytest.mark.parametrize("point", ["after_answer", "after_outcome"])
async def test_a_client_that_goes_away_while_a_hook_looks_at_its_answer_leaves_its_place(point: str) -> None:
    limits = "limits: {concurrent: {calls: 1}}"
    route = f"  - {{path: /weather, upstream: tools, tool: weather, schema: {SCHEMA}, {limits}}}"
    hooks = f"[{{use: 'tests.hooks.samples:WaitsAt', settings: {{point: {point}}}, timeout: 10m}}]"
    async with (
        asyncio.timeout(300),
        tool(_stream_until_gone) as server,
        proxied_by(Clocks(), route, server.url, hooks=hooks) as proxy,
    ):
        for _ in range(2):
            TOLD.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(post("/weather", BODY))
            await until(lambda: bool(TOLD))
            assert [("waits", point, None)] == TOLD
            writer.transport.abort()
            await server.gone.wait()
            server.gone.clear()


async def test_a_streamed_answer_that_nobody_closes_gives_its_place_back() -> None:
    async def read() -> AsyncIterator[bytes]:
        yield b""

    ended: list[bool] = []
    stream = EndingStream(read(), lambda: ended.append(True))
    del stream
    assert [True] == ended


async def test_a_call_that_its_rate_refuses_keeps_no_place() -> None:
    held = Held()
    held.let_go.set()
    async with bounded("concurrent: {calls: 1}, rate: {calls: 1}", held) as proxy:
        first = await statuses(proxy, 1)
        refused = [code(await proxy.post("/weather", BODY)) for _ in range(2)]

    assert ([200], [(429, "CALL_RATE_EXCEEDED")] * 2) == (first, refused)

"""Clients and upstreams that are slow, huge, gone or greedy: each costs the others nothing, and no memory."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import struct
import zlib
from collections.abc import AsyncIterator

import pytest

from proxy.server.connection import Connection
from tests.serving.kernel import PROXYS_SHARE, bytes_read, needs_tcp_info, received, send_buffer
from tests.serving.proxied import FREE, RELAY, WEATHER, Proxied, code, proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, read_message, replies, tool
from tests.steady import fill, pass_time, run_others, until, until_still

pytestmark = pytest.mark.large

OK = answer("200 OK", b"{}", JSON_TYPE)
CALL = post("/weather", b'{"lat": 1}')
HASTY = "{host: 127.0.0.1, port: 0, timeouts: {head: 100ms, idle: 300ms, send: 300ms}}"


@contextlib.asynccontextmanager
async def client(proxy: Proxied) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()


def connections(proxy: Proxied) -> list[Connection]:
    return list(proxy.serving.ports[0].listener._open)


# --- time -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("begun", [b"P", b"POST /weather HTTP/1.1\r\nHost: h\r\nX: y"])
async def test_a_head_that_does_not_end_is_408_and_closes_the_connection(begun: bytes) -> None:
    async with proxied(WEATHER, listen=HASTY) as proxy, client(proxy) as (reader, writer):
        writer.write(begun)
        async with asyncio.timeout(300):
            seen = await read_message(reader)
            end = await reader.read()

    assert ((408, "BAD_REQUEST"), "close", b"") == (code(seen), seen.header("connection"), end)


async def test_a_head_that_trickles_in_does_not_win_time() -> None:
    async with proxied(WEATHER, listen=HASTY) as proxy, client(proxy) as (reader, writer):
        trickling = asyncio.create_task(trickle(writer))
        async with asyncio.timeout(300):
            seen = await read_message(reader)
        trickling.cancel()

    assert (408, "BAD_REQUEST") == code(seen)


async def trickle(writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET /weather HTTP/1.1\r\nX: ")
    with contextlib.suppress(ConnectionError):
        while True:
            writer.write(b"y")
            await writer.drain()
            await asyncio.sleep(0.02)


async def test_the_second_head_on_a_connection_has_its_own_time() -> None:
    async with (
        tool(replies(OK)) as server,
        proxied(WEATHER, server.url, listen=HASTY.replace("100ms", "100s").replace("300ms", "1h")) as proxy,
        client(proxy) as (reader, writer),
    ):
        writer.write(CALL)
        first = await read_message(reader)
        pass_time(150)  # longer than a head may take: nothing has begun
        await run_others()
        writer.write(CALL[:20])
        await run_others()
        writer.write(CALL[20:] + CALL[:20])
        second = await read_message(reader)
        await run_others()
        pass_time(150)
        third = await read_message(reader)

    assert [200, 200, 408] == [first.status, second.status, third.status]


async def test_an_idle_connection_is_closed_without_a_word() -> None:
    async with (
        tool(replies(OK)) as server,
        proxied(WEATHER, server.url, listen=HASTY) as proxy,
        client(proxy) as (unused, _),
        client(proxy) as (used, writer),
    ):
        writer.write(CALL)
        await read_message(used)
        async with asyncio.timeout(300):
            assert (b"", b"") == (await used.read(), await unused.read())


async def test_a_client_that_does_not_read_its_answer_is_cut_off_and_the_upstream_with_it() -> None:
    async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b"data: " + b"x" * 65536 + b"\n\n")
            await writer.drain()

    async with (
        tool(endless) as server,
        proxied(RELAY, server.url, listen=HASTY) as proxy,
        client(proxy) as (_, writer),
    ):
        writer.write(b"GET /relay HTTP/1.1\r\nHost: h\r\n\r\n")
        async with asyncio.timeout(300):
            await server.gone.wait()
            await proxy.serving.handler.idle()

    assert ["client_gone"] == [line["outcome"] for line in proxy.lines()]


# --- size -------------------------------------------------------------------------------------------------------------
async def test_a_head_without_end_is_431_and_the_answer_arrives() -> None:
    async with proxied(WEATHER) as proxy, client(proxy) as (reader, writer):
        writer.write(b"GET /weather HTTP/1.1\r\nX: ")
        sending = asyncio.create_task(flood(writer))
        async with asyncio.timeout(300):
            seen = await read_message(reader)
        sending.cancel()

    assert (431, "HEADERS_TOO_LARGE") == code(seen)


async def flood(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        for _ in range(64):
            writer.write(b"y" * 16_384)
            await writer.drain()


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
@pytest.mark.parametrize("layers", [1, 2])
async def test_a_bomb_is_refused_and_never_forwarded(pack: object, layers: int) -> None:
    bomb = b"[" + b" " * 20_000_000
    for _ in range(layers):
        bomb = pack(bomb)  # type: ignore[operator]
    coding = "gzip" if pack is gzip.compress else "deflate"
    async with tool(replies(OK)) as server, proxied(FREE, server.url) as proxy:
        seen = await proxy.post("/free", bomb, f"Content-Encoding: {', '.join([coding] * layers)}")

    assert ((413, "BODY_TOO_LARGE") if layers == 1 else (415, "UNSUPPORTED_MEDIA_TYPE"), []) == (
        code(seen),
        server.seen,
    )


async def test_a_refused_upload_gets_its_answer_although_it_is_still_being_sent() -> None:
    size = 8_000_000
    head = f"POST /free HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    async with proxied(FREE) as proxy, client(proxy) as (reader, writer):
        writer.write(head.encode() + b" " * size)
        async with asyncio.timeout(300):
            seen = await read_message(reader)

    assert ((413, "BODY_TOO_LARGE"), "close") == (code(seen), seen.header("connection"))


# --- Expect -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("spelt", ["100-continue", "100-Continue", " 100-CONTINUE "])
async def test_expect_is_met_however_it_is_spelt(spelt: str) -> None:
    head = CALL.split(b"\r\n\r\n")[0] + f"\r\nExpect:{spelt}\r\n\r\n".encode()
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy, client(proxy) as (reader, writer):
        writer.write(head)
        interim = await reader.readuntil(b"\r\n\r\n")
        writer.write(b'{"lat": 1}')
        seen = await read_message(reader)

    assert (b"HTTP/1.1 100 Continue\r\n\r\n", 200) == (interim, seen.status)


async def test_a_client_that_does_not_wait_for_100_is_served_too() -> None:
    request = CALL.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy, client(proxy) as (reader, writer):
        writer.write(request + CALL)
        statuses = [(await read_message(reader)).status for _ in range(3)]

    assert [100, 200, 200] == statuses


@pytest.mark.parametrize("expected", ["100-continue, 100-continue", "nothing", "100-continue;q=1", ""])
async def test_any_other_expectation_is_417_and_the_body_stays_away(expected: str) -> None:
    head = CALL.split(b"\r\n\r\n")[0] + f"\r\nExpect: {expected}\r\n\r\n".encode()
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await exchange(proxy.port, head)

    assert ((417, "EXPECTATION_FAILED"), "close", []) == (code(seen), seen.header("connection"), server.seen)


# --- one connection, many requests ------------------------------------------------------------------------------------
async def test_two_requests_in_one_packet_are_two_calls_each_validated_by_itself() -> None:
    packet = CALL + post("/weather", b'{"lat": "north"}') + post("/weather", b'{"lat": "2"}')
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy, client(proxy) as (reader, writer):
        writer.write(packet)
        statuses = [(await read_message(reader)).status for _ in range(3)]

    assert [200, 400, 200] == statuses
    assert [b'{"lat": 1}', b'{"lat":2}'] == [seen.body for seen in server.seen]


async def test_the_next_request_waits_until_the_one_before_is_answered() -> None:
    go_on = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await go_on.wait()
        writer.write(OK)

    async with tool(slow) as server, proxied(WEATHER, server.url) as proxy, client(proxy) as (reader, writer):
        writer.write(CALL * 3)
        await server.arrived.wait()
        await run_others()
        at_first = len(server.seen)
        go_on.set()
        statuses = [(await read_message(reader)).status for _ in range(3)]

    assert (1, [200, 200, 200], 3) == (at_first, statuses, len(server.seen))


@pytest.mark.parametrize(("packets", "statuses"), [(1, [400]), (2, [200, 400])])
async def test_never_reads_a_request_after_a_malformed_one(packets: int, statuses: list[int]) -> None:
    """aiohttp's parser drops a good request that came in the same packet: it is not forwarded, and its client gets a
    400."""
    malformed = b"GET / HTTP/1.1\r\nHost : x\r\n\r\n" + CALL
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy, client(proxy) as (reader, writer):
        writer.write(CALL + malformed if packets == 1 else CALL)
        seen = [await read_message(reader)]
        if packets == 2:
            writer.write(malformed)
            seen.append(await read_message(reader))
        end = await reader.read()

    assert (statuses, b"") == ([one.status for one in seen], end)
    assert statuses.count(200) == len(server.seen)


async def test_behind_a_malformed_request_the_good_one_before_it_is_answered_first() -> None:
    go_on = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await go_on.wait()
        writer.write(OK)

    async with tool(slow) as server, proxied(WEATHER, server.url) as proxy, client(proxy) as (reader, writer):
        writer.write(CALL)
        await server.arrived.wait()
        writer.write(b"GET / HTTP/1.1\r\nHost : x\r\n\r\n")
        await run_others()
        go_on.set()
        first, second, end = await read_message(reader), await read_message(reader), await reader.read()

    assert (200, (400, "BAD_REQUEST"), b"") == (first.status, code(second), end)


@needs_tcp_info
async def test_a_flood_of_requests_on_one_connection_waits_in_the_clients_memory() -> None:
    async def never(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await reader.read()
        raise ConnectionResetError

    async with tool(never) as server, proxied(WEATHER, server.url) as proxy, client(proxy) as (_, writer):
        await fill(writer, CALL * 500)
        (connection,) = connections(proxy)
        assert connection.link is not None
        waiting, reads, read = connection.queued, connection.link.is_reading(), bytes_read(connection.link)
        writer.transport.abort()

    assert (True, False) == (0 < waiting <= 32, reads)
    assert 0 < read <= PROXYS_SHARE
    assert 1 == len(server.seen)


async def test_a_connection_is_good_for_hundreds_of_calls() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy, client(proxy) as (reader, writer):
        statuses = set()
        for number in range(300):
            writer.write(post("/weather", b'{"lat": %d}' % number))
            statuses.add((await read_message(reader)).status)
        held = len(connections(proxy))

    assert ({200}, 300, 1) == (statuses, len(server.seen), held)
    assert 1 == server.connections


# --- back-pressure ----------------------------------------------------------------------------------------------------
async def test_a_slow_reader_does_not_fill_memory_with_its_answer() -> None:
    produced = 0

    async def large(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        nonlocal produced
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 500000000\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            produced += 65536

    async with tool(large) as server, proxied(RELAY, server.url) as proxy, client(proxy) as (reader, writer):
        writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        writer.write(b"GET /relay HTTP/1.1\r\nHost: h\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await until_still(lambda: produced)
        (connection,) = connections(proxy)
        assert connection.transport is not None
        waiting = connection.transport.get_write_buffer_size()
        writer.transport.abort()
        await server.gone.wait()

    # The kernel's buffers on both sides are not ours; only the write buffer is.
    assert waiting <= 512 * 1024
    assert produced < 50_000_000


@needs_tcp_info
async def test_a_slow_upstream_does_not_fill_memory_with_an_upload() -> None:
    ending, ends = asyncio.Event(), list[asyncio.StreamWriter]()

    async def unread(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(writer)
        await ending.wait()
        writer.close()

    server = await asyncio.start_server(unread, "127.0.0.1", 0, limit=1024)
    port = server.sockets[0].getsockname()[1]
    async with proxied(RELAY, f"http://127.0.0.1:{port}") as proxy, client(proxy) as (_, writer):
        writer.write(b"PUT /relay HTTP/1.1\r\nHost: h\r\nContent-Length: 500000000\r\n\r\n")
        await fill(writer, b"x" * 65536)
        (connection,) = connections(proxy)
        assert connection.link is not None
        reads, held = connection.link.is_reading(), bytes_read(connection.link) - received(ends[0])
        reset(writer)
        async with asyncio.timeout(300):  # although nothing is read from the client any more
            await proxy.serving.handler.idle()
        ending.set()
        await until(ends[0].transport.is_closing)
    server.close()

    assert not reads
    assert 0 < held <= PROXYS_SHARE + send_buffer()
    assert ["client_gone"] == [line["outcome"] for line in proxy.lines()]


def reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection without a goodbye, whatever is still on its way."""
    no_goodbye = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_goodbye)
    writer.transport.abort()


# --- gone -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hard", [False, True], ids=["closed", "reset"])
async def test_a_client_that_leaves_a_stream_takes_the_upstreams_with_it(hard: bool) -> None:
    async def events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await reader.read()
        raise ConnectionResetError

    async with tool(events) as server, proxied(RELAY, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET /relay HTTP/1.1\r\nHost: h\r\n\r\n")
        await reader.readuntil(b"data: 1\n\n")
        if hard:
            reset(writer)
        else:
            writer.close()
        async with asyncio.timeout(300):
            await server.gone.wait()
            await proxy.serving.handler.idle()

    assert ["client_gone"] == [line["outcome"] for line in proxy.lines()]


async def test_an_upload_that_is_given_up_reaches_nobody_as_a_whole() -> None:
    async with tool(replies(OK)) as server, proxied(RELAY + WEATHER, server.url) as proxy:
        for path in ("/relay", "/weather"):
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(post(path, b'{"lat": 1}')[:-4])
            await writer.drain()
            await run_others()
            writer.close()
            await writer.wait_closed()
        await proxy.serving.handler.idle()
        await run_others()

    assert [] == server.seen


async def test_events_of_a_passthrough_route_are_cut_when_the_upstream_falls_silent_too_long() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await reader.read()
        raise ConnectionResetError

    async with tool(silent) as server:
        upstreams = f"{{tools: {{url: '{server.url}', timeouts: {{idle: 1200s}}}}}}"
        async with proxied(RELAY, upstreams=upstreams) as proxy, client(proxy) as (reader, writer):
            writer.write(b"GET /relay HTTP/1.1\r\nHost: h\r\n\r\n")
            await reader.readuntil(b"data: 1\n\n")
            for event in (b"data: 2\n\n", b"data: 3\n\n"):  # only silence counts, not the length of the stream
                pass_time(700)
                await run_others()
                server.writers[0].write(event)
                await reader.readuntil(event)
            pass_time(1200)
            async with asyncio.timeout(300):
                with contextlib.suppress(ConnectionError):
                    assert b"0\r\n\r\n" not in await reader.read()
                await server.gone.wait()
                await proxy.serving.handler.idle()

    assert [("upstream_error", "http_response_timeout")] == [
        (line["outcome"], line["error.type"]) for line in proxy.lines()
    ]

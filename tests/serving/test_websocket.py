"""WebSockets through a passthrough route: both ways, to the end of either side, and never past a reader."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from tests.serving.kernel import PROXYS_SHARE, bytes_read, needs_tcp_info, received, send_buffer
from tests.serving.proxied import FREE, Proxied, code, proxied
from tests.serving.test_bounds import MOST, watched
from tests.serving.wire import Script, Seen, Tool, answer, exchange, read_message, replies, tool
from tests.steady import fill

ROUTE = "  - {path: /socket, methods: [GET, POST], upstream: tools, passthrough: true}\n"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
PROOF = base64.b64encode(hashlib.sha1((KEY + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()  # noqa: S324
TAKEN = (
    f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Accept: {PROOF}\r\nSec-WebSocket-Protocol: chat\r\n\r\n"
).encode()


def handshake(*more: str) -> bytes:
    lines = ("GET /socket?room=1 HTTP/1.1", "Host: h", "Upgrade: websocket", "Connection: keep-alive, Upgrade")
    return "\r\n".join((*lines, f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13", *more, "", "")).encode()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    """Agrees, sends back what comes, and ends after `bye`."""
    writer.write(TAKEN + b"hello ")
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
        if data.endswith(b"bye"):
            break
    raise ConnectionResetError


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def connected(
    script: Script, *more: str, behind: bytes = b"", **keys: str
) -> AsyncIterator[tuple[Client, Tool, Proxied]]:
    async with tool(script) as server, proxied(ROUTE, server.url, **keys) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(handshake(*more) + behind)
        try:
            yield (reader, writer), server, proxy
        finally:
            writer.close()


async def test_bytes_go_both_ways_and_the_end_arrives_behind_the_last_of_them() -> None:
    async with connected(echo, "Sec-WebSocket-Protocol: chat", "X-Mine: 1") as ((reader, writer), server, proxy):
        head = await reader.readuntil(b"\r\n\r\n")
        first = await reader.readexactly(6)
        writer.write(b"\x81\x00\xff one")
        second = await reader.readexactly(7)
        writer.write(b"bye")
        last = await reader.read()
        await proxy.serving.handler.idle()

    fields = head.decode().lower()
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert all(line in fields for line in ("upgrade: websocket", "connection: upgrade", PROOF.lower(), "x-request-id"))
    assert (b"hello ", b"\x81\x00\xff one", b"bye") == (first, second, last)
    seen = server.seen[0]
    assert ("GET /socket?room=1 HTTP/1.1", "websocket", KEY, "chat", "1") == (
        seen.start,
        *(seen.header(name) for name in ("upgrade", "sec-websocket-key", "sec-websocket-protocol", "x-mine")),
    )
    (line,) = proxy.lines()
    assert (101, "passthrough", 10, 16) == tuple(
        line[key]
        for key in (
            "http.response.status_code",
            "outcome",
            "http.request.body.size",
            "http.response.body.size",
        )
    )


async def test_keeps_bytes_that_follow_the_handshake_at_once() -> None:
    async with connected(echo, behind=b"early bye") as ((reader, _), _, _):
        await reader.readuntil(b"\r\n\r\n")
        assert b"hello early bye" == await reader.read()


async def test_a_client_that_leaves_ends_the_upstreams_side() -> None:
    async with connected(echo) as ((reader, writer), server, proxy):
        await reader.readuntil(b"hello ")
        writer.close()
        async with asyncio.timeout(300):
            await server.gone.wait()
            await proxy.serving.handler.idle()

    assert ["client_gone"] == [line["outcome"] for line in proxy.lines()]


async def test_an_upstream_that_breaks_off_breaks_off_at_the_client() -> None:
    async def breaks(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(TAKEN)
        await writer.drain()
        await asyncio.sleep(0.05)
        hard = struct.pack("ii", 1, 0)  # a reset, not an end
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, hard)
        raise ConnectionResetError

    async with connected(breaks) as ((reader, _), _, proxy):
        await reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"" == await reader.read()
        await proxy.serving.handler.idle()

    assert ["upstream_error"] == [line["outcome"] for line in proxy.lines()]


async def test_a_silent_upstream_is_given_up_after_its_idle_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(TAKEN)
        await reader.read()
        raise ConnectionResetError

    async with tool(silent) as server:
        keys = {"upstreams": f"{{tools: {{url: '{server.url}', timeouts: {{idle: 100ms}}}}}}"}
        async with proxied(ROUTE, **keys) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(handshake())
            await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(300):
                with contextlib.suppress(ConnectionError):
                    assert b"" == await reader.read()
                await server.gone.wait()
            writer.close()


async def test_an_upstream_may_say_no_and_the_connection_stays_open() -> None:
    no = answer("403 Forbidden", b"no", "Content-Type: text/plain")
    async with connected(replies(no)) as ((reader, writer), server, _):
        first = await read_message(reader)
        writer.write(b"POST /socket HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi")
        second = await read_message(reader)

    assert [(403, b"no")] * 2 == [(first.status, first.body), (second.status, second.body)]
    assert [b"", b"hi"] == [seen.body for seen in server.seen]


async def test_a_request_behind_a_handshake_that_is_refused_is_a_request() -> None:
    behind = b"POST /socket HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"
    async with connected(replies(answer("403 No", b"")), behind=behind) as ((reader, _), server, _):
        assert [403, 403] == [(await read_message(reader)).status for _ in range(2)]

    assert ["GET /socket?room=1 HTTP/1.1", "POST /socket HTTP/1.1"] == [seen.start for seen in server.seen]


@pytest.mark.parametrize("proof", ["", "Sec-WebSocket-Accept: wrong\r\n", f"Sec-WebSocket-Accept: {PROOF}\r\n" * 2])
async def test_an_upstream_that_switches_without_proof_is_not_believed(proof: str) -> None:
    taken = f"HTTP/1.1 101 Sure\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{proof}\r\n".encode()
    async with connected(replies(taken)) as ((reader, _), _, _):
        seen = await read_message(reader)

    assert (502, "UPSTREAM_BAD_ANSWER") == code(seen)
    assert "toolcall-proxy; error=http_upgrade_failed" == seen.header("proxy-status")


async def test_a_route_may_take_none() -> None:
    routes = ROUTE.replace("passthrough: true", "passthrough: true, websocket: off")
    async with tool(replies(answer("426 Upgrade Required", b""))) as server, proxied(routes, server.url) as proxy:
        seen = await exchange(proxy.port, handshake())

    assert (426, True) == (seen.status, {"upgrade", "connection"}.isdisjoint(server.seen[0].names()))


@pytest.mark.parametrize("taken_out", ["Upgrade: websocket\r\n", "Connection: keep-alive, Upgrade\r\n", KEY])
async def test_half_a_handshake_is_an_ordinary_request(taken_out: str) -> None:
    cut = handshake().replace(taken_out.encode(), b"").replace(b"Sec-WebSocket-Key: \r\n", b"")
    async with tool(replies(answer("400 No", b""))) as server, proxied(ROUTE, server.url) as proxy:
        await exchange(proxy.port, cut)

    assert "upgrade" not in server.seen[0].names()


async def test_a_word_that_only_looks_like_websocket_is_none_with_a_body_or_without() -> None:
    said = handshake("Content-Length: 5").replace(b": websocket", ": websoc\N{KELVIN SIGN}et".encode()) + b"hello"
    async with tool(replies(answer("400 No", b""))) as server, proxied(ROUTE, server.url) as proxy:
        await exchange(proxy.port, said)

    assert (b"hello", True) == (server.seen[0].body, "upgrade" not in server.seen[0].names())


async def test_a_page_of_another_origin_gets_no_socket() -> None:
    async with tool(echo) as server, proxied(ROUTE, server.url) as proxy:
        seen = await exchange(proxy.port, handshake("Origin: https://evil.test"))

    assert ((403, "ORIGIN_NOT_ALLOWED"), []) == (code(seen), server.seen)


@pytest.mark.large
@needs_tcp_info
async def test_neither_side_is_read_faster_than_the_other_one_reads() -> None:
    async def unread(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(TAKEN)
        await asyncio.Event().wait()

    async with connected(unread) as ((reader, writer), server, proxy):
        await reader.readuntil(b"\r\n\r\n")
        await fill(writer, b"x" * 65536)
        (connection,) = proxy.serving.ports[0].listener.connections
        assert connection.transport is not None
        reads = connection.transport.is_reading()
        held = bytes_read(connection.transport) - received(server.writers[0])
        writer.transport.abort()

    assert not reads
    assert 0 < held <= PROXYS_SHARE + send_buffer()


async def test_a_stopping_proxy_ends_its_sockets() -> None:
    async with connected(echo) as ((reader, _), server, proxy):
        await reader.readuntil(b"hello ")
        async with asyncio.timeout(300):
            await proxy.serving.stop(grace=0.05)
            assert await server.gone.wait()
            assert b"" == await reader.read()


@pytest.mark.large
async def test_a_flood_of_small_frames_on_many_sockets_keeps_no_call_waiting() -> None:
    frame, each, sockets = b"\x81\x81\x00\x00\x00\x00x", 2_000, 40

    async def flood(port: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(handshake())
        await reader.readuntil(b"hello ")
        for _ in range(each):
            writer.write(frame)
        back = await reader.readexactly(each * len(frame))
        writer.close()
        return back.count(frame)

    async with tool(echo) as server, tool(replies(answer("200 OK", b"{}"))) as other:
        upstreams = f'{{tools: {{url: "{server.url}"}}, other: {{url: "{other.url}"}}}}'
        routes = ROUTE + FREE.replace("upstream: tools", "upstream: other")
        async with proxied(routes, upstreams=upstreams) as proxy, watched() as holds:
            flooding = asyncio.gather(*[flood(proxy.port) for _ in range(sockets)])
            statuses = {200}
            while not flooding.done():
                statuses |= {(await proxy.post("/free", b"{}")).status, (await proxy.ask_admin("/livez")).status}
            echoed = await flooding

    assert holds.longest < MOST
    assert ([each] * sockets, {200}) == (echoed, statuses)

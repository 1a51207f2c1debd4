"""The promises of every `Upstream`, over real sockets: one suite, each implementation is one line in `MAKERS`."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from proxy.core.model.codes import OVERLOADED, UPSTREAM_BAD_ANSWER, UPSTREAM_TIMEOUT, UPSTREAM_UNAVAILABLE
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    Document,
    Executed,
    Headers,
    Rung,
    ToolCall,
    UpstreamFault,
    UpstreamReply,
)
from proxy.core.tool_errors.circuit_breaker import BreakerPolicy, ConcurrencyPolicy, GuardPolicy
from proxy.interfaces import Upstream, UpstreamRequest
from proxy.upstream import ReplyBroken, UpstreamGuard, UpstreamSettings
from proxy.upstream.http1 import Http1Upstream
from tests.serving.wire import JSON_TYPE, Script, Seen, answer, replies, tool
from tests.steady import pass_time, run_others


def guarded(settings: UpstreamSettings) -> Upstream:
    """With a guard in front that lets all of it through."""
    policy = GuardPolicy(BreakerPolicy(failures=1000), ConcurrencyPolicy(1000))
    return UpstreamGuard(Http1Upstream(settings), settings.name, policy, asyncio.get_running_loop().time)


MAKERS: dict[str, Callable[[UpstreamSettings], Upstream]] = {
    "http1": Http1Upstream,
    "guarded": guarded,
}

CHECKED = CheckedCall(
    ToolCall("weather", Document(b"{}", {}), "call-1", Conversation("c", Rung.HEADER)), b"{}", {}
)  # fmt: skip


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[[UpstreamSettings], Upstream]:
    return MAKERS[request.param]


Make = Callable[[UpstreamSettings], Upstream]


@contextlib.asynccontextmanager
async def opened(make: Make, settings: UpstreamSettings) -> AsyncIterator[Upstream]:
    upstream = make(settings)
    try:
        yield upstream
    finally:
        await upstream.close()


def settings(url: str, **changes: object) -> UpstreamSettings:
    return UpstreamSettings("weather", url, **changes)  # type: ignore[arg-type]


def request(
    body: bytes = b"{}", target: str = "/api", method: str = "POST", headers: Headers = (), timeout: float = 5.0
) -> UpstreamRequest:
    return UpstreamRequest("weather", method, target, headers, body, timeout)


async def whole(reply: UpstreamReply | UpstreamFault) -> bytes:
    assert isinstance(reply, UpstreamReply)
    if isinstance(reply.body, bytes):
        return reply.body
    return b"".join([chunk async for chunk in reply.body])


# --- what is sent ---------------------------------------------------------------------------------------------------
async def test_the_bytes_of_the_body_and_the_headers_arrive_as_given_and_nothing_is_added(make: Make) -> None:
    body = b'{"lat": 48.850,  "note":"\xc3\xa9"}'
    headers = (("content-type", "application/json"), ("x-tenant", "a"), ("x-tenant", "b"))
    async with tool(replies(answer("200 OK", b"{}"))) as server, opened(make, settings(server.url)) as upstream:
        await upstream.send(CHECKED, request(body, "/api/weather?q=a%2Fb&empty=", headers=headers))

    (seen,) = server.seen
    assert "POST /api/weather?q=a%2Fb&empty= HTTP/1.1" == seen.start
    assert body == seen.body
    expected = {
        ("host", f"127.0.0.1:{server.port}"),
        ("content-length", str(len(body))),
        ("content-type", "application/json"),
        ("x-tenant", "a"),
        ("x-tenant", "b"),
    }
    assert expected == set(seen.headers)


async def test_an_empty_body_is_sent_with_its_length(make: Make) -> None:
    async with tool(replies(answer("200 OK", b"{}"))) as server, opened(make, settings(server.url)) as upstream:
        await upstream.send(CHECKED, request(b""))

    assert {("host", f"127.0.0.1:{server.port}"), ("content-length", "0")} == set(server.seen[0].headers)


async def test_the_url_may_have_a_path_prefix(make: Make) -> None:
    async with (
        tool(replies(answer("200 OK", b"{}"))) as server,
        opened(make, settings(server.url + "/v1/")) as upstream,
    ):
        await upstream.send(CHECKED, request(target="/api"))

    assert "POST /v1/api HTTP/1.1" == server.seen[0].start


async def test_a_large_body_arrives_whole(make: Make) -> None:
    body = bytes(range(256)) * 12_000
    async with tool(replies(answer("200 OK", b"{}"))) as server, opened(make, settings(server.url)) as upstream:
        await upstream.send(CHECKED, request(body))

    assert body == server.seen[0].body


async def test_a_relayed_body_is_streamed(make: Make) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one,"
        yield b"two"

    async with tool(replies(answer("200 OK", b"done"))) as server, opened(make, settings(server.url)) as upstream:
        reply = await upstream.relay(request(b"", method="PUT"), parts())

    assert b"done" == await whole(reply)
    assert (b"one,two", "chunked") == (server.seen[0].body, server.seen[0].header("transfer-encoding"))


async def test_an_upload_may_take_longer_than_an_answer(make: Make) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(6):
            pass_time(5)
            await run_others()
            yield b"x"

    async with tool(replies(answer("200 OK", b"done"))) as server, opened(make, settings(server.url)) as upstream:
        reply = await upstream.relay(request(b"", timeout=20), slowly())

    assert (b"done", b"xxxxxx") == (await whole(reply), server.seen[0].body)


async def test_raises_the_error_of_an_uploads_iterator_and_sends_no_part(make: Make) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"x"
        raise LookupError("the client has gone")

    async with tool(replies(answer("200 OK", b"done"))) as server, opened(make, settings(server.url)) as upstream:
        with pytest.raises(LookupError, match="the client has gone"):
            await upstream.relay(request(b""), breaking())

    assert [] == server.seen


async def test_a_unix_socket_can_be_used(make: Make, tmp_path: object) -> None:
    path = f"{tmp_path}/tool.sock"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("200 OK", b"unix"))
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    async with opened(make, settings("http://tools.test", socket=path)) as upstream:
        reply = await upstream.send(CHECKED, request(b"", method="GET"))
    server.close()
    await server.wait_closed()

    assert b"unix" == await whole(reply)


# --- what comes back ------------------------------------------------------------------------------------------------
async def test_status_headers_and_body_come_back_as_they_are(make: Make) -> None:
    reply_bytes = answer("418 Teapot", b'{"t":1.10}', JSON_TYPE, "X-Rate: 1", "X-Rate: 2")
    async with tool(replies(reply_bytes)) as server, opened(make, settings(server.url)) as upstream:
        reply = await upstream.send(CHECKED, request())

    headers = (
        ("Content-Type", "application/json"),
        ("X-Rate", "1"),
        ("X-Rate", "2"),
        ("Content-Length", "10"),
    )
    assert UpstreamReply(418, headers, b'{"t":1.10}') == reply


async def test_a_chunked_answer_that_fits_comes_back_whole(make: Make) -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with tool(replies(raw)) as server, opened(make, settings(server.url)) as upstream:
        reply = await upstream.send(CHECKED, request())

    assert isinstance(reply, UpstreamReply)
    assert b"abcde" == reply.body


async def test_a_compressed_answer_is_not_decoded(make: Make) -> None:
    packed = gzip.compress(b"{}")
    async with (
        tool(replies(answer("200 OK", packed, "Content-Encoding: gzip"))) as server,
        opened(make, settings(server.url)) as upstream,
    ):
        reply = await upstream.send(CHECKED, request())

    assert packed == await whole(reply)


async def test_a_redirect_is_not_followed(make: Make) -> None:
    async with (
        tool(replies(answer("307 Temporary Redirect", b"", "Location: /other"))) as server,
        opened(make, settings(server.url)) as upstream,
    ):
        reply = await upstream.send(CHECKED, request())

    assert isinstance(reply, UpstreamReply)
    assert (307, 1) == (reply.status, len(server.seen))
    assert ("Location", "/other") in reply.headers


async def test_a_cookie_set_for_one_request_is_not_sent_with_the_next(make: Make) -> None:
    first = answer("200 OK", b"{}", "Set-Cookie: session=alice; Path=/")
    async with tool(replies(first)) as server, opened(make, settings(f"http://localhost:{server.port}")) as upstream:
        await upstream.send(CHECKED, request())
        await upstream.send(CHECKED, request())

    assert [None, None] == [seen.header("cookie") for seen in server.seen]


async def test_a_connection_is_used_again(make: Make) -> None:
    async with tool(replies(answer("200 OK", b"{}"))) as server, opened(make, settings(server.url)) as upstream:
        for _ in range(3):
            await whole(await upstream.send(CHECKED, request()))

    assert (3, 1) == (len(server.seen), server.connections)


async def test_an_answer_longer_than_the_buffer_is_streamed(make: Make) -> None:
    body = b"x" * 5000
    async with (
        tool(replies(answer("200 OK", body))) as server,
        opened(make, settings(server.url, buffer=1000)) as upstream,
    ):
        reply = await upstream.send(CHECKED, request())
        assert isinstance(reply, UpstreamReply)
        assert not isinstance(reply.body, bytes)
        assert body == await whole(reply)


async def test_a_chunked_answer_that_outgrows_the_buffer_is_streamed_from_its_beginning(make: Make) -> None:
    chunk = b"1f4\r\n" + b"y" * 500 + b"\r\n"
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 4 + b"0\r\n\r\n"
    async with tool(replies(raw)) as server, opened(make, settings(server.url, buffer=1000)) as upstream:
        reply = await upstream.send(CHECKED, request())
        assert isinstance(reply, UpstreamReply)
        assert not isinstance(reply.body, bytes)
        assert b"y" * 2000 == await whole(reply)


async def test_server_sent_events_arrive_one_by_one_however_long_it_takes(make: Make) -> None:
    next_event = asyncio.Event()

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await writer.drain()
        await next_event.wait()
        writer.write(b"data: 2\n\n")
        await writer.drain()
        writer.close()

    async with tool(script) as server, opened(make, settings(server.url)) as upstream:
        reply = await upstream.send(CHECKED, request(timeout=200))
        assert isinstance(reply, UpstreamReply)
        assert not isinstance(reply.body, bytes)
        events = aiter(reply.body)
        assert b"data: 1\n\n" == await anext(events)
        pass_time(300)  # longer than the timeout of the answer
        await run_others()
        next_event.set()
        assert b"data: 2\n\n" == await anext(events)
        assert b"" == b"".join([rest async for rest in events])


# --- what goes wrong ------------------------------------------------------------------------------------------------
async def fault_from(make: Make, script: Script, within: float = 300.0, **changes: object) -> UpstreamFault:
    async with tool(script) as server, opened(make, settings(server.url, **changes)) as upstream:
        fault = await upstream.send(CHECKED, request(timeout=within))
    assert isinstance(fault, UpstreamFault)
    return fault


async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
    await reader.read()
    raise ConnectionResetError


async def test_an_upstream_that_says_nothing_times_out_and_may_have_run(make: Make) -> None:
    fault = await fault_from(make, hang, within=1.0)

    message = "upstream 'weather': no complete answer in time"
    assert UpstreamFault(UPSTREAM_TIMEOUT, "http_response_timeout", Executed.UNKNOWN, message) == fault


async def test_an_answer_that_stalls_in_its_body_times_out(make: Make) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await hang(reader, writer, seen)

    fault = await fault_from(make, script, within=1.0)

    assert "http_response_timeout" == fault.token


async def test_a_refused_connection_was_never_sent(make: Make) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        async with opened(make, settings(url)) as upstream:
            fault = await upstream.send(CHECKED, request())

    message = "upstream 'weather': the connection was refused"
    assert UpstreamFault(UPSTREAM_UNAVAILABLE, "connection_refused", Executed.NO, message) == fault


async def test_an_unknown_name_was_never_sent(make: Make) -> None:
    async with opened(make, settings("http://no-such-tool.invalid")) as upstream:
        fault = await upstream.send(CHECKED, request())

    message = "upstream 'weather': its name is unknown"
    assert UpstreamFault(UPSTREAM_UNAVAILABLE, "dns_error", Executed.NO, message) == fault


async def test_a_connection_that_cannot_be_made_in_time_was_never_sent(make: Make) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        with contextlib.ExitStack() as fillers:
            for _ in range(4):  # the backlog is full: further connections stay unanswered
                filler = fillers.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(address)
            url = f"http://127.0.0.1:{address[1]}"
            async with opened(make, settings(url, connect_timeout=0.2)) as upstream:
                fault = await upstream.send(CHECKED, request())

    message = "upstream 'weather': no connection was made in time"
    assert UpstreamFault(UPSTREAM_TIMEOUT, "connection_timeout", Executed.NO, message) == fault


async def test_tls_towards_a_plain_server_fails_before_anything_is_sent(make: Make) -> None:
    async with tool(hang) as server, opened(make, settings(f"https://127.0.0.1:{server.port}")) as upstream:

        async def plain_answer() -> None:
            await server.connected.wait()
            server.writers[0].write(b"this is no TLS at all, and never will be\r\n\r\n")

        nudge = asyncio.create_task(plain_answer())
        fault = await upstream.send(CHECKED, request())
        await nudge

    assert isinstance(fault, UpstreamFault)
    assert (UPSTREAM_UNAVAILABLE, "tls_protocol_error", Executed.NO) == (fault.code, fault.token, fault.executed)


async def test_a_connection_closed_without_an_answer_may_have_run_and_a_post_is_not_sent_again(make: Make) -> None:
    async def cut(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.close()

    async with tool(cut) as server, opened(make, settings(server.url)) as upstream:
        fault = await upstream.send(CHECKED, request())

    message = "upstream 'weather': it closed the connection unanswered"
    assert UpstreamFault(UPSTREAM_BAD_ANSWER, "connection_terminated", Executed.UNKNOWN, message) == fault
    assert 1 == len(server.seen)


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
async def test_nothing_is_sent_a_second_time_on_a_reused_connection_that_breaks(make: Make, method: str) -> None:
    async def once(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        if len(server.seen) == 1:
            writer.write(answer("200 OK", b"{}"))
        else:
            writer.close()

    async with tool(once) as server, opened(make, settings(server.url)) as upstream:
        await whole(await upstream.send(CHECKED, request(method=method)))
        fault = await upstream.send(CHECKED, request(method=method))

    assert isinstance(fault, UpstreamFault)
    assert ("connection_terminated", 2) == (fault.token, len(server.seen))


async def test_an_answer_that_breaks_off_is_a_bad_answer(make: Make) -> None:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await writer.drain()
        writer.close()

    fault = await fault_from(make, script)

    message = "upstream 'weather': its answer broke off"
    assert UpstreamFault(UPSTREAM_BAD_ANSWER, "http_response_incomplete", Executed.UNKNOWN, message) == fault


@pytest.mark.parametrize(
    "garbage",
    [b"220 mail.test ESMTP ready\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x00\x01\x02\x03\r\n\r\n"],
)
async def test_garbage_is_a_bad_answer(make: Make, garbage: bytes) -> None:
    fault = await fault_from(make, replies(garbage))

    message = "upstream 'weather': its answer is not valid HTTP"
    assert UpstreamFault(UPSTREAM_BAD_ANSWER, "http_protocol_error", Executed.UNKNOWN, message) == fault


async def test_an_unasked_protocol_switch_is_a_bad_answer(make: Make) -> None:
    fault = await fault_from(
        make, replies(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
    )

    assert (UPSTREAM_BAD_ANSWER, "http_protocol_error") == (fault.code, fault.token)


async def test_a_reset_connection_may_have_run(make: Make) -> None:
    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()

    fault = await fault_from(make, reset)

    assert (UPSTREAM_BAD_ANSWER, "connection_terminated", Executed.UNKNOWN) == (
        fault.code,
        fault.token,
        fault.executed,
    )


async def test_when_all_connections_are_busy_the_call_is_refused_unsent(make: Make) -> None:
    async with (
        tool(hang) as server,
        opened(make, settings(server.url, connections=1, connect_timeout=1.0)) as upstream,
    ):
        first = asyncio.create_task(upstream.send(CHECKED, request()))
        await server.arrived.wait()
        fault = await upstream.send(CHECKED, request())
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    message = "upstream 'weather': every connection to it is busy"
    assert UpstreamFault(OVERLOADED, "connection_limit_reached", Executed.NO, message) == fault


async def test_cancelling_the_caller_closes_the_request(make: Make) -> None:
    async with tool(hang) as server, opened(make, settings(server.url)) as upstream:
        sending = asyncio.create_task(upstream.send(CHECKED, request()))
        await server.arrived.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        async with asyncio.timeout(300):
            await server.gone.wait()


async def test_a_stream_that_breaks_off_says_so(make: Make) -> None:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + b"z" * 3000)
        await writer.drain()
        writer.close()

    async with tool(script) as server, opened(make, settings(server.url, buffer=1000)) as upstream:
        reply = await upstream.send(CHECKED, request())
        with pytest.raises(ReplyBroken) as broken:
            await whole(reply)

    message = "upstream 'weather': its answer broke off"
    assert (
        UpstreamFault(UPSTREAM_BAD_ANSWER, "http_response_incomplete", Executed.UNKNOWN, message) == broken.value.fault
    )


async def test_a_stream_that_falls_silent_says_so(make: Make) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await hang(reader, writer, seen)

    async with tool(script) as server, opened(make, settings(server.url, idle_timeout=1.0)) as upstream:
        reply = await upstream.send(CHECKED, request())
        with pytest.raises(ReplyBroken) as broken:
            await whole(reply)

    assert "http_response_timeout" == broken.value.fault.token


async def test_a_stream_that_is_given_up_closes_the_connection(make: Make) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await hang(reader, writer, seen)

    async with tool(script) as server, opened(make, settings(server.url)) as upstream:
        reply = await upstream.send(CHECKED, request())
        assert isinstance(reply, UpstreamReply)
        await reply.body.aclose()  # type: ignore[union-attr]
        async with asyncio.timeout(300):
            await server.gone.wait()

"""Requests that are not calls: bodies that stream both ways with back-pressure, early answers, tunnels, unix
sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from proxy.core.model.codes import BAD_REQUEST, UPSTREAM_BAD_ANSWER, UPSTREAM_TIMEOUT
from proxy.core.model.values import Executed, Headers, UpstreamFault, UpstreamReply
from proxy.interfaces import UpstreamRequest
from proxy.upstream import ReplyBroken, UpstreamSettings
from proxy.upstream.http1 import AnswerStream, Http1Upstream, Tunnel
from tests.serving.wire import Script, Seen, answer, replies, tool
from tests.steady import pass_time, run_others, until_still

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]


def request(method: str = "PUT", headers: Headers = (), timeout: float = 5.0, target: str = "/f") -> UpstreamRequest:
    return UpstreamRequest("files", method, target, headers, b"", timeout)


@contextlib.asynccontextmanager
async def before(script: Script, **changes: object) -> AsyncIterator[Http1Upstream]:
    async with tool(script) as server:
        upstream = Http1Upstream(UpstreamSettings("files", server.url, **changes))  # type: ignore[arg-type]
        try:
            yield upstream
        finally:
            await upstream.close()


@contextlib.asynccontextmanager
async def before_raw(serve: Serve, **changes: object) -> AsyncIterator[Http1Upstream]:
    """In front of a server that is handed the bare connection, with small buffers."""
    writers = []

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)  # type: ignore[misc]

    server = await asyncio.start_server(run, "127.0.0.1", 0, limit=4096)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    upstream = Http1Upstream(UpstreamSettings("files", url, **changes))  # type: ignore[arg-type]
    try:
        yield upstream
    finally:
        await upstream.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()
        await asyncio.sleep(0)


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def streamed(reply: UpstreamReply | UpstreamFault) -> AnswerStream:
    assert isinstance(reply, UpstreamReply), reply
    assert isinstance(reply.body, AnswerStream)
    return reply.body


async def test_an_uploaded_body_arrives_piece_by_piece_without_the_empty_ones() -> None:
    seen = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        seen.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(answer("201 Created", b""))

    async with before_raw(record) as upstream:
        reply = await upstream.relay(request(), pieces(b"one", b"", b"three"))

    assert UpstreamReply(201, (("Content-Length", "0"),), b"") == reply
    assert b"3\r\none\r\n5\r\nthree\r\n0\r\n\r\n" == seen[1]


async def test_a_connection_is_used_again_after_an_upload() -> None:
    async with tool(replies(answer("200 OK", b""))) as server:
        upstream = Http1Upstream(UpstreamSettings("files", server.url))
        for turn in range(5):
            assert isinstance(await upstream.relay(request(), pieces(b"%d" % turn)), UpstreamReply)
        await upstream.close()

    assert (1, [b"0", b"1", b"2", b"3", b"4"]) == (server.connections, [seen.body for seen in server.seen])


async def test_an_upload_reads_from_the_client_no_faster_than_the_upstream_does() -> None:
    go_on, given = asyncio.Event(), 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal given
        for _ in range(400):
            given += 1
            yield b"x" * 65_536

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await go_on.wait()
        while not (await reader.read(1_000_000)).endswith(b"\r\n0\r\n\r\n"):
            pass
        writer.write(answer("200 OK", b"done"))

    async with before_raw(slow) as upstream:
        relaying = asyncio.create_task(upstream.relay(request(timeout=20.0), body()))
        await until_still(lambda: given)
        held = given
        go_on.set()
        reply = await relaying

    assert isinstance(reply, UpstreamReply)
    assert held < 200  # what the kernel's buffers and one write buffer take
    assert 400 == given


async def test_the_time_for_the_answer_begins_when_the_upload_has_ended() -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(6):
            pass_time(2)
            await asyncio.sleep(0)
            yield b"x"

    async with before(replies(answer("200 OK", b"done"))) as upstream:
        reply = await upstream.relay(request(timeout=5), slowly())

    assert isinstance(reply, UpstreamReply)


async def test_an_upload_that_is_not_answered_in_time_times_out() -> None:
    async def deaf(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with before_raw(deaf) as upstream:
        fault = await upstream.relay(request(timeout=0.1), pieces(b"x"))

    assert isinstance(fault, UpstreamFault)
    assert (UPSTREAM_TIMEOUT, "http_response_timeout", Executed.UNKNOWN) == (fault.code, fault.token, fault.executed)


async def test_an_upstream_that_stops_reading_an_upload_times_out() -> None:
    async def deaf(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536

    async with before_raw(deaf, idle_timeout=0.1) as upstream:
        fault = await upstream.relay(request(timeout=5.0), endless())

    assert isinstance(fault, UpstreamFault)
    assert (UPSTREAM_TIMEOUT, "http_response_timeout") == (fault.code, fault.token)


async def test_an_early_answer_ends_the_upload() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(0)
                yield b"x" * 1000
        finally:
            closed.set()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("413 Content Too Large", b"no"))
        await reader.read()

    async with before_raw(refuse) as upstream:
        reply = await upstream.relay(request(), endless())
        async with asyncio.timeout(300):
            await closed.wait()

    assert UpstreamReply(413, (("Content-Length", "2"),), b"no") == reply


async def test_an_answer_may_stream_while_the_upload_still_runs() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            line = await reader.readline()
            data = await reader.readexactly(int(line, 16) + 2)
            writer.write(line + data)
            if line == b"0\r\n":
                return

    turns: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        while piece := await turns.get():
            yield piece

    async with before_raw(echo) as upstream:
        turns.put_nowait(b"one")
        answered = streamed(await upstream.relay(request(), body()))
        found = [await anext(answered)]
        turns.put_nowait(b"two")
        found.append(await anext(answered))
        turns.put_nowait(b"")
        found += [piece async for piece in answered]

    assert [b"one", b"two"] == found


async def test_raises_an_error_of_the_body_before_the_answer_and_ends_the_connection() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise ConnectionResetError("the client has left")

    gone = asyncio.Event()

    async def record(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        assert b"0\r\n\r\n" not in await reader.read()  # it must not look like a whole body
        gone.set()

    async with before_raw(record) as upstream:
        with pytest.raises(ConnectionResetError, match="the client has left"):
            await upstream.relay(request(), broken())
        async with asyncio.timeout(300):
            await gone.wait()


async def test_an_error_of_the_body_during_the_answer_breaks_the_answer() -> None:
    leave = asyncio.Event()

    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        await leave.wait()
        raise ConnectionResetError("the client has left")

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
        await reader.read()

    async with before_raw(begin) as upstream:
        answered = streamed(await upstream.relay(request(), broken()))
        leave.set()
        assert b"hello" == await anext(answered)
        with pytest.raises(ReplyBroken) as raised:
            await anext(answered)

    assert (BAD_REQUEST, "http_request_error") == (raised.value.fault.code, raised.value.fault.token)


async def test_cancelling_an_upload_closes_the_connection_and_ends_the_body() -> None:
    begun, ended, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        try:
            yield b"x"
            begun.set()
            await asyncio.sleep(300)
        finally:
            ended.set()

    async def record(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()
        gone.set()

    async with before_raw(record) as upstream:
        relaying = asyncio.create_task(upstream.relay(request(), body()))
        await begun.wait()
        relaying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await relaying
        async with asyncio.timeout(300):
            await ended.wait()
            await gone.wait()


async def test_a_relayed_answer_is_handed_on_as_it_comes_however_small() -> None:
    second = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
        await second.wait()
        writer.write(b"two")

    async with before(slow) as upstream:
        answered = streamed(await upstream.relay(request("GET", timeout=5), None))
        found = [await anext(answered)]
        pass_time(6)  # longer than the time for the head
        await run_others()
        second.set()
        found.append(await anext(answered))

    assert [b"one", b"two"] == found


async def test_a_slow_reader_slows_the_upstream() -> None:
    sent = 0

    async def large(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 26214400\r\n\r\n")
        for _ in range(400):
            writer.write(b"x" * 65_536)
            await writer.drain()
            sent += 1

    async with before(large) as upstream:
        answered = streamed(await upstream.relay(request("GET"), None))
        await anext(answered)
        await until_still(lambda: sent)
        held = sent
        total = sum([len(piece) async for piece in answered])

    assert held < 200  # what the kernel's buffers take
    assert total > 26_000_000
    assert 400 == sent


@pytest.mark.parametrize("spelling", ["unix:{path}", "http+unix://{quoted}/v1"])
async def test_a_url_can_name_a_unix_socket(tmp_path: Path, spelling: str) -> None:
    path = tmp_path / "tool.sock"
    seen = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer("200 OK", b"unix"))
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    url = spelling.format(path=path, quoted=str(path).replace("/", "%2F"))
    upstream = Http1Upstream(UpstreamSettings("files", url))
    reply = await upstream.relay(request("GET"), None)
    await upstream.close()
    server.close()
    await server.wait_closed()

    assert UpstreamReply(200, (("Content-Length", "4"),), b"unix") == reply
    prefix = b"/v1" if "v1" in spelling else b""
    assert b"GET %b/f HTTP/1.1\r\nhost: localhost\r\n\r\n" % prefix == seen[0]


async def test_a_unix_socket_that_is_not_there_was_never_sent_to(tmp_path: Path) -> None:
    upstream = Http1Upstream(UpstreamSettings("files", f"unix:{tmp_path}/none.sock"))
    fault = await upstream.relay(request("GET"), None)
    await upstream.close()

    assert isinstance(fault, UpstreamFault)
    assert ("connection_refused", Executed.NO) == (fault.token, fault.executed)


async def test_a_head_request_is_answered_without_a_body_and_keeps_its_connection() -> None:
    async with tool(replies(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")) as server:
        upstream = Http1Upstream(UpstreamSettings("files", server.url))
        found = [await upstream.relay(request("HEAD"), None) for _ in range(3)]
        await upstream.close()

    assert [UpstreamReply(200, (("Content-Length", "5000"),), b"")] * 3 == found
    assert 1 == server.connections


async def test_a_request_that_cannot_be_written_is_not_sent() -> None:
    async with before(replies(answer("200 OK", b""))) as upstream:
        fault = await upstream.relay(request(target="/a b"), None)

    message = "upstream 'files': the request cannot be written as HTTP"
    assert UpstreamFault(BAD_REQUEST, "http_request_error", Executed.NO, message) == fault


# --- upgrades ---------------------------------------------------------------------------------------------------------
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
)
ASKED = (("upgrade", "websocket"), ("sec-websocket-key", "k"))


async def test_an_upgrade_that_is_agreed_to_is_a_tunnel_both_ways() -> None:
    seen = []

    async def socket_echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(SWITCH + b"\x81\x05hello")
        writer.write(b"again:" + await reader.readexactly(4))
        writer.close()

    async with before_raw(socket_echo) as upstream:
        reply = await upstream.relay(request("GET", ASKED), None)
        assert isinstance(reply, UpstreamReply)
        assert isinstance(reply.body, Tunnel)
        await reply.body.send(b"\x81\x02hi")
        found = b"".join([piece async for piece in reply.body])

    assert (101, b"\x81\x05helloagain:\x81\x02hi") == (reply.status, found)
    assert ("Sec-WebSocket-Accept", "x") in reply.headers
    assert seen[0].endswith(b"\r\nsec-websocket-key: k\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")


async def test_an_upgrade_that_is_declined_is_an_answer_like_any_other() -> None:
    async with before(replies(answer("426 Upgrade Required", b"no"))) as upstream:
        assert UpstreamReply(426, (("Content-Length", "2"),), b"no") == await upstream.relay(
            request("GET", ASKED), None
        )


async def test_a_tunnel_that_the_upstream_leaves_cannot_be_sent_to() -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCH)
        writer.close()

    async with before_raw(leave) as upstream:
        reply = await upstream.relay(request("GET", ASKED), None)
        assert isinstance(reply, UpstreamReply)
        assert isinstance(reply.body, Tunnel)
        assert [] == [piece async for piece in reply.body]
        with pytest.raises(ReplyBroken) as broken:
            await reply.body.send(b"hi")

    assert UPSTREAM_BAD_ANSWER == broken.value.fault.code


async def test_opens_another_connection_while_an_upload_runs_behind_its_early_answer() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(seen)
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        while piece := await reader.read(4096):
            seen[number] += piece

    rest = asyncio.Event()

    async def upload() -> AsyncIterator[bytes]:
        yield b"AAAA"
        await rest.wait()
        yield b"BBBB"

    async with before_raw(serve) as upstream:
        early = await upstream.relay(request(), upload())
        assert isinstance(early, UpstreamReply)
        if not isinstance(early.body, bytes):
            assert b"ok" == b"".join([piece async for piece in early.body])
        await run_others()
        other = await upstream.relay(request("POST", target="/checked"), None)
        rest.set()
        assert isinstance(other, UpstreamReply)

    assert 2 == len(seen)
    assert b"/checked" not in seen[0]
    assert b"/checked" in seen[1]

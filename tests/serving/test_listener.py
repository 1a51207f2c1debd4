"""The listener by itself, over real sockets: how answers are framed, when connections end, and who learns of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.server.connection import Connection
from proxy.server.http.body import read_whole, stream_body
from proxy.server.http.framing import Response, ResponseStream, make_date_row
from proxy.server.http.reading import FRAMING_PER_TURN, PIECE, check_aiohttp
from proxy.server.http.request_head import MAX_HEAD, BadRequest
from proxy.server.listener import Listener
from proxy.server.service import Handle, Timeouts
from tests.serving.wire import Seen, read_message
from tests.steady import pass_time, run_others, until

CHUNKED_HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
TYPED = ("Content-Type", "text/plain")


def refuse(why: BadRequest) -> Response:
    """The answer to what is not a request."""
    return Response(why.status or why.code.status, [TYPED], why.message.encode())


@contextlib.asynccontextmanager
async def listening(handle: Handle, timeouts: Timeouts | None = None) -> AsyncIterator[tuple[Listener, int]]:
    """A listener on a free loopback port."""
    listener = Listener(handle, refuse, timeouts)
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
    try:
        yield listener, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await listener.shutdown(0.05)


@contextlib.asynccontextmanager
async def client(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def everything(port: int, *packets: bytes) -> bytes:
    """All bytes that come back until the connection ends: the last request says that it is the last."""
    async with client(port) as (reader, writer):
        for packet in packets:
            writer.write(packet)
            await asyncio.sleep(0)
        async with asyncio.timeout(300):
            return await reader.read()


async def told(request: web.BaseRequest) -> Response:
    """Answers with what was asked: the line, and the body."""
    body = await read_whole(request, 1 << 20, 5.0)
    data = body.message.encode() if isinstance(body, BadRequest) else body
    return Response(
        200, [TYPED], f"{request.method} {request.raw_path} ".encode() + data, closes=isinstance(body, BadRequest)
    )


async def in_pieces(request: web.BaseRequest) -> ResponseStream:
    """Answers piece by piece: as many bytes as announced at `/length`, in chunks elsewhere."""
    stream = await begin(request, 200, 6 if request.raw_path == "/length" else None)
    await stream.write(b"abc")
    await stream.write(b"def")
    await stream.write_eof()
    return stream


async def begin(request: web.BaseRequest, status: int = 200, length: int | None = None) -> ResponseStream:
    """A stream whose head is out."""
    stream = ResponseStream(status, [TYPED], length)
    await stream.prepare(request)
    return stream


async def test_a_request_that_is_still_unread_when_the_listener_shuts_down_is_answered() -> None:
    async with listening(told) as (listener, port), client(port) as (reader, writer):
        writer.write(GET)
        await read_message(reader)
        writer.write(GET)  # it goes out now, and the listener has had no turn to read it
        ending = asyncio.create_task(listener.shutdown(300))
        seen, end = await read_message(reader), await reader.read()
        writer.close()  # until then the listener reads on, for a while
        await ending

    assert ("HTTP/1.1 200 OK", "close", b"") == (seen.start, seen.header("connection"), end)


async def test_a_client_in_the_middle_of_a_head_is_waited_for_before_its_connection_is_closed() -> None:
    async with listening(told) as (listener, port), client(port) as (reader, writer):
        writer.write(GET)
        await read_message(reader)
        writer.write(GET[:10])
        await run_others()
        waiting = asyncio.create_task(listener.await_requests(0.0, 300.0))
        await run_others()
        before = waiting.done()
        writer.write(GET[10:])
        await read_message(reader)
        async with asyncio.timeout(300):
            await waiting

    assert not before


async def test_a_body_in_a_separate_packet_starts_no_time_limit_for_a_head() -> None:
    head, _, body = BODIES["length"].partition(b"\r\n\r\n")
    async with listening(told, Timeouts(head=100, idle=6000)) as (_, port), client(port) as (reader, writer):
        answers = list[Seen]()
        for _turn in range(2):
            writer.write(head + b"\r\n\r\n")
            await run_others()
            writer.write(body)
            answers.append(await read_message(reader))
            pass_time(300)  # three times what a head may take
            await run_others()

    assert [("HTTP/1.1 200 OK", b"POST / abcdef")] * 2 == [(seen.start, seen.body) for seen in answers]


@pytest.mark.parametrize("cut", range(5))
async def test_a_head_that_begins_behind_a_blank_line_in_two_pieces_has_its_time(cut: int) -> None:
    whole = GET + b"GET /i HT"
    end = len(GET) - 4 + cut
    async with listening(told, Timeouts(head=100, idle=6000)) as (_, port), client(port) as (reader, writer):
        writer.write(whole[:end])
        await run_others()
        writer.write(whole[end:])
        seen = [await read_message(reader)]
        await run_others()
        pass_time(200)
        async with asyncio.timeout(300):
            seen.append(await read_message(reader))

    assert [200, 408] == [each.status for each in seen]


async def test_the_time_of_a_head_that_waits_behind_a_call_begins_with_the_answer() -> None:
    connections, answered = list[Connection](), asyncio.Event()

    async def slow(request: web.BaseRequest) -> Response:
        assert isinstance(request.protocol, Connection)
        connections.append(request.protocol)
        await answered.wait()
        return await told(request)

    async with listening(slow) as (_, port), client(port) as (reader, writer):
        writer.write(GET + b"GET /i HT")
        await until(lambda: bool(connections))
        begun = connections[0].head_since
        answered.set()
        await read_message(reader)
        await until(lambda: connections[0].request is None)

    assert begun is not None
    assert begun < connections[0].idle_since == connections[0].head_since


# --- sizes ------------------------------------------------------------------------------------------------------------
async def test_a_head_has_a_limit_as_a_whole_however_small_its_fields() -> None:
    fields = [b"X-%d: " % number + b"a" * 1000 + b"\r\n" for number in range(120)]
    async with listening(told) as (_, port), client(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n")
        for field in fields:
            writer.write(field)
            await asyncio.sleep(0)
        seen = await read_message(reader)

    assert (431, "close") == (seen.status, seen.header("connection"))
    assert f"The head is longer than {MAX_HEAD} bytes." == seen.body.decode()


@pytest.mark.parametrize("framing", [b"1;" + b"x" * 100_000, b"0\r\n" + b"X: " + b"x" * 10_000 + b"\r\n"])
async def test_chunk_extensions_and_trailers_have_a_limit(framing: bytes) -> None:
    """Fields of a trailer are bounded one by one too; many of them are not."""
    async with listening(told) as (_, port), client(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await asyncio.sleep(0.02)
        writer.write(framing)
        for _turn in range(12):
            await asyncio.sleep(0.01)
            writer.write(b"X: " + b"x" * 10_000 + b"\r\n" if framing[:1] == b"0" else b"x" * 10_000)
        seen = await read_message(reader)

    assert b"The body broke off or is not framed as HTTP wants it." in seen.body


@pytest.mark.parametrize(("count", "size"), [(12_000, 1), (100_000, 20), (40, 60_000)])
async def test_accepts_a_whole_body_in_chunks_of_usual_sizes(count: int, size: int) -> None:
    count = min(count, (1 << 20) // size)
    chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
    async with listening(told) as (_, port), client(port) as (reader, writer):
        writer.write(CHUNKED_HEAD + chunk * count + b"0\r\n\r\n")
        seen = await read_message(reader)

    assert ("HTTP/1.1 200 OK", b"POST / " + b"x" * (count * size)) == (seen.start, seen.body)


@pytest.mark.parametrize("at_once", [True, False])
async def test_refuses_a_whole_body_in_too_many_small_chunks(at_once: bool) -> None:
    async with listening(told) as (_, port), client(port) as (reader, writer):
        writer.write(CHUNKED_HEAD)
        for _turn in range(1 if at_once else 40):
            writer.write(b"1\r\nx\r\n" * (40_000 if at_once else 1_000))
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        seen = await read_message(reader)

    assert b"POST / The body comes in too many small chunks. Send larger chunks." == seen.body


async def test_accepts_a_chunked_body_behind_a_large_body_in_the_same_bytes() -> None:
    size = 200_000
    async with listening(told) as (_, port), client(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\nx" % size)
        await run_others()
        writer.write(b"x" * (size - 1) + CHUNKED_HEAD + b"1\r\ny\r\n")
        first = await read_message(reader)
        writer.write(b"1\r\ny\r\n0\r\n\r\n")
        second = await read_message(reader)

    assert size == len(first.body) - len(b"POST / ")
    assert b"POST / yy" == second.body


async def test_parses_a_bounded_number_of_chunks_in_each_turn_of_the_loop() -> None:
    pieces: list[int] = []

    async def streamed(request: web.BaseRequest) -> Response:
        pieces.extend([len(piece) async for piece in stream_body(request, 5.0)])
        return Response(200, [TYPED], b"")

    async with listening(streamed) as (_, port), client(port) as (reader, writer):
        writer.write(CHUNKED_HEAD + b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n" + GET)
        first, second = await read_message(reader), await read_message(reader)

    assert (200, 200, 40_000) == (first.status, second.status, sum(pieces))
    assert 2 * FRAMING_PER_TURN // 5 >= max(pieces[1:])  # the reader may be a turn behind


SHORT_POST = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz"


@pytest.mark.parametrize(
    "before", [GET * 4000, GET * 40, CHUNKED_HEAD + b"0\r\n\r\n", SHORT_POST], ids=["many", "some", "chunked", "whole"]
)
@pytest.mark.parametrize("unsent", [0, 10], ids=["at once", "in the middle of a head"])
async def test_bounds_the_framing_of_a_request_that_comes_behind_others(before: bytes, unsent: int) -> None:
    content: list[int] = [0]

    async def streamed(request: web.BaseRequest) -> Response:
        pieces = [len(piece) async for piece in stream_body(request, 5.0)]
        return Response(200, [TYPED], b"%d" % sum(pieces))

    async def watch(listener: Listener) -> None:
        while True:
            served = [one for one in listener.connections if isinstance(one, Connection) and one.chunked]
            content.extend(one.body.total_bytes for one in served if one.body is not None)
            await asyncio.sleep(0)

    sent = before + CHUNKED_HEAD + b"1\r\nx\r\n" * 40_000 + b"0\r\n\r\n"
    split = len(before + CHUNKED_HEAD) - unsent
    async with listening(streamed) as (listener, port), client(port) as (reader, writer):
        watcher = asyncio.create_task(watch(listener))
        if unsent:
            writer.write(sent[:split])
            for _ in range(before.count(b"HTTP/1.1")):
                await read_message(reader)
            writer.write(sent[split:])
        else:
            writer.write(sent)
            for _ in range(before.count(b"HTTP/1.1")):
                await read_message(reader)
        seen = await read_message(reader)
        watcher.cancel()

    assert (200, b"40000") == (seen.status, seen.body)
    grown = [after - since for since, after in pairwise(content)]
    assert (FRAMING_PER_TURN + PIECE) // 5 >= max(grown)  # the parser itself may hold a piece


# --- whether the connection continues
# -----------------------------------------------------------------------------------
KINDS = {"whole": told, "length": in_pieces, "chunks": in_pieces}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("minor", "wish", "goes_on", "says"),
    [
        (1, None, True, None),
        (1, "keep-alive", True, None),
        (1, "close", False, "close"),
        (1, "keep-alive, close", False, "close"),
        (0, None, False, None),
        (0, "keep-alive", True, "keep-alive"),
        (0, "close", False, None),
        (0, "keep-alive, close", False, None),
    ],
)
async def test_a_connection_stays_open_as_its_version_and_its_client_ask(
    kind: str, minor: int, wish: str | None, goes_on: bool, says: str | None
) -> None:
    field = f"Connection: {wish}\r\n" if wish else ""
    request = f"GET /{kind} HTTP/1.{minor}\r\nHost: h\r\n{field}\r\n".encode()
    if kind == "chunks" and minor == 0:  # it knows no chunks: the body ends where the connection does
        goes_on, says = False, None
    async with listening(KINDS[kind]) as (listener, port), client(port) as (reader, writer):
        writer.write(request)
        first = await read_message(reader)
        if goes_on:
            writer.write(request)
        more = await reader.read(1)  # the next answer, or the end: nothing can come behind that
        left = len(listener.connections)

    framing = {name for name in ("content-length", "transfer-encoding") if first.header(name)}
    expected = {"transfer-encoding"} if kind == "chunks" else {"content-length"}
    assert (f"HTTP/1.{minor} 200 OK", says) == (first.start, first.header("connection"))
    assert framing == (set() if kind == "chunks" and minor == 0 else expected)
    assert first.body == (b"abcdef" if kind != "whole" else b"GET /whole ")
    assert (b"H" if goes_on else b"", int(goes_on)) == (more, left)


@pytest.mark.parametrize("kind", ["whole", "pieces"])
@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("HEAD", 404)])
async def test_an_answer_without_a_body_gets_none_and_the_next_answer_follows(
    kind: str, method: str, status: int
) -> None:
    async def bare(request: web.BaseRequest) -> web.StreamResponse:
        if request.raw_path == "/last":
            return Response(200, [TYPED], b"last")
        if kind == "whole":
            return Response(status, [TYPED], b"abc")
        stream = await begin(request, status, 3)
        await stream.write(b"abc")
        await stream.write_eof()
        return stream

    async with listening(bare) as (_, port), client(port) as (reader, writer):
        writer.write(f"{method} / HTTP/1.1\r\nHost: h\r\n\r\nGET /last HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        first = await read_message(reader, bodiless=True)
        last = await read_message(reader)

    length = "3" if method == "HEAD" and kind == "whole" else None
    assert (status, length, None) == (first.status, first.header("content-length"), first.header("transfer-encoding"))
    assert b"last" == last.body


async def test_no_more_goes_out_than_was_announced_since_it_would_be_read_as_another_answer() -> None:
    async def generous(request: web.BaseRequest) -> ResponseStream:
        stream = await begin(request, 200, 4)
        await stream.write(b"abc")
        await stream.write(b"def")
        await stream.write_eof()
        return stream

    async with listening(generous) as (_, port):
        assert (await everything(port, LAST)).endswith(b"\r\n\r\nabcd")


def test_the_date_is_that_of_the_second() -> None:
    first, same = make_date_row(0), make_date_row(0)

    assert ("Date: Thu, 01 Jan 1970 00:00:00 GMT", True) == (first, same is first)
    assert "Date: Sun, 22 Nov 2026 01:49:10 GMT" == make_date_row(1795312150)


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x7fb", "a\x1bb"])
@pytest.mark.parametrize("name", ["X-Mine", "X-\r\nMine"])
async def test_a_field_with_a_control_character_never_goes_out(name: str, value: str) -> None:
    async def careless(_request: web.BaseRequest) -> Response:
        return Response(200, [(name, value)], b"")

    async with listening(careless) as (_, port):
        got = await everything(port, LAST)

    assert got.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"Evil" not in got


async def test_returns_a_header_that_is_no_ascii_unchanged() -> None:
    async def echo(request: web.BaseRequest) -> Response:
        return Response(200, [("X-Said", request.headers["x-said"])], b"")

    async with listening(echo) as (_, port):
        got = await everything(port, LAST[:-2] + b"X-Said: caf\xc3\xa9 \xe9\r\n\r\n")

    assert b"X-Said: caf\xc3\xa9 \xe9\r\n" in got


# --- bodies that come in ----------------------------------------------------------------------------------------------
BODIES = {
    "length": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabcdef",
    "chunks": b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;x=y\r\nab\r\n4\r\ncdef\r\n0\r\nX-T: 1\r\n\r\n",
    "none": GET,
}
BOTH = BODIES["chunks"] + BODIES["length"] + GET + BODIES["chunks"] + LAST


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, len(BOTH)), max_size=8))
async def test_the_packets_in_which_requests_come_make_no_difference(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(BOTH)]
    async with listening(told) as (_, port):
        got = await everything(port, *[BOTH[start:end] for start, end in pairwise(edges)])

    bodies = [part.partition(b"\r\n\r\n")[2] for part in got.split(b"HTTP/1.")[1:]]
    assert [b"POST / abcdef", b"POST / abcdef", b"GET / ", b"POST / abcdef", b"GET / "] == bodies


@pytest.mark.parametrize("kind", ["length", "chunks"])
async def test_the_reader_of_a_body_learns_that_it_broke_off(kind: str) -> None:
    broken = BODIES["chunks"].replace(b"4\r\n", b"ZZ\r\n") if kind == "chunks" else BODIES["length"][:-1]
    told_of = asyncio.Queue[object]()

    async def reading(request: web.BaseRequest) -> Response:
        try:
            body = await read_whole(request, 100, 5.0)
            told_of.put_nowait(body)
        except asyncio.CancelledError:
            told_of.put_nowait("gone")
            raise
        return Response(400, [], b"")

    async with listening(reading) as (_, port), client(port) as (_, writer):
        writer.write(broken[:60])  # in one packet with the break, the parser would let no request out at all
        await run_others()
        writer.write(broken[60:])
        await run_others()
        writer.close()
        async with asyncio.timeout(300):
            found = await told_of.get()

    assert isinstance(found, BadRequest) if kind == "chunks" else found == "gone"


async def test_the_rest_of_an_upload_that_nobody_reads_is_thrown_away_and_the_connection_ends() -> None:
    async def short(_request: web.BaseRequest) -> Response:
        return Response(413, [TYPED], b"too much")

    async with listening(short) as (_, port), client(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 20000000\r\n\r\n" + b"x" * 8_000_000)
        seen = await read_message(reader)
        end = await reader.read()

    assert (413, "close", b"too much", b"") == (seen.status, seen.header("connection"), seen.body, end)


# --- clients that leave -----------------------------------------------------------------------------------------------
STAGES: dict[str, tuple[bytes, Sequence[str]]] = {
    "before a word": (b"", []),
    "in the head": (GET[:10], []),
    "in the body": (BODIES["length"][:-2], ["gone"]),
    "while it waits": (GET, ["gone"]),
    "in the answer": (b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n", ["gone"]),
    "with another request behind": (GET + GET, ["gone"]),
}


@pytest.mark.parametrize("stage", STAGES)
async def test_a_client_that_leaves_cancels_its_request_and_nothing_stays_behind(stage: str) -> None:
    sent, expected = STAGES[stage]
    outcomes = list[str]()

    async def patient(request: web.BaseRequest) -> web.StreamResponse:
        try:
            await read_whole(request, 100, 5.0)
            if request.raw_path == "/stream":
                stream = await begin(request)
                await stream.write(b"abc")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            outcomes.append("gone")
            raise
        return Response(200, [TYPED], b"")

    async with listening(patient) as (listener, port):
        async with client(port) as (_, writer):
            writer.write(sent)
            await run_others()
            before = len(listener.connections)
        await until(lambda: not listener.connections)
        await asyncio.sleep(0)

    assert (1, expected) == (before, outcomes)
    assert 1 == len(asyncio.all_tasks())


# --- handlers that fail -----------------------------------------------------------------------------------------------
async def test_answers_an_exception_and_keeps_the_connection() -> None:
    async def defect(_request: web.BaseRequest) -> Response:
        raise LookupError("secret")

    async with listening(defect) as (_, port), client(port) as (reader, writer):
        writer.write(GET + GET)
        seen = [await read_message(reader) for _ in range(2)]

    assert [500, 500] == [one.status for one in seen]
    assert b"secret" not in seen[0].body


@pytest.mark.parametrize("target", ["/length", "/chunks"])
async def test_half_an_answer_never_looks_like_a_whole_one(target: str) -> None:
    async def defect(request: web.BaseRequest) -> Response:
        stream = await begin(request, 200, 6 if target == "/length" else None)
        await stream.write(b"abc")
        raise LookupError

    async with listening(defect) as (_, port), client(port) as (reader, writer):
        writer.write(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await read_message(reader)


async def test_half_an_answer_to_an_old_client_ends_in_a_reset_since_its_end_is_that_of_the_connection() -> None:
    begun = asyncio.Event()

    async def endless(request: web.BaseRequest) -> ResponseStream:
        stream = await begin(request)
        await stream.write(b"abc")
        begun.set()
        await asyncio.sleep(10)
        return stream

    async with listening(endless) as (listener, port), client(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        await begun.wait()
        await listener.shutdown(0.05)
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_ends_the_connection_if_not_even_the_error_can_be_written() -> None:
    async def defect(_request: web.BaseRequest) -> Response:
        raise LookupError

    def no_answer(_why: BadRequest) -> Response:
        raise OSError

    listener = Listener(defect, no_answer)
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
    async with client(server.sockets[0].getsockname()[1]) as (reader, writer):
        writer.write(GET)
        async with asyncio.timeout(300):
            end = await reader.read()
    server.close()

    assert (b"", []) == (end, listener.connections)


# --- the end ----------------------------------------------------------------------------------------------------------
async def test_a_client_that_does_not_read_its_last_answer_cannot_keep_the_connection() -> None:
    async def large(request: web.BaseRequest) -> Response:
        assert request.transport is not None
        request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return Response(200, [TYPED], b"x" * 65_000, closes=True)  # less than what makes a transport wait

    with socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.setblocking(False)
        async with listening(large, Timeouts(send=100)) as (listener, port):
            await asyncio.get_running_loop().sock_connect(unread, ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(unread, GET)
            await run_others()
            before = len(listener.connections)
            for _ in range(3):  # a look finds that it closes, and one 100 seconds later that it still does
                pass_time(100)
                await run_others()
            await until(lambda: not listener.connections)

    assert 1 == before


async def test_the_last_answer_arrives_although_more_was_asked_behind_it() -> None:
    go_on = asyncio.Event()

    async def last(_request: web.BaseRequest) -> Response:
        await go_on.wait()
        return Response(200, [TYPED], b"x" * 200_000, closes=True)

    async with listening(last) as (_, port), client(port) as (reader, writer):
        writer.write(GET * 40_000)  # more than is read ahead
        await run_others()
        go_on.set()
        seen = await read_message(reader)

    assert ("close", 200_000) == (seen.header("connection"), len(seen.body))


async def test_shutting_down_closes_idle_connections_and_lets_the_others_answer() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.BaseRequest) -> Response:
        if request.raw_path == "/slow":
            begun.set()
            await go_on.wait()
        return Response(200, [TYPED], b"done")

    async with listening(slow) as (listener, port), client(port) as (idle, first), client(port) as (busy, second):
        first.write(GET)
        await read_message(idle)
        second.write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
        await begun.wait()
        ending = asyncio.create_task(listener.shutdown(300.0))
        end = await idle.read()
        first.close()
        go_on.set()
        seen = await read_message(busy)
        rest = await busy.read()
        second.close()  # until then the listener reads on, for a while
        async with asyncio.timeout(300):
            await ending
            while listener.connections:
                await asyncio.sleep(0)

    assert (b"", b"done", b"") == (end, seen.body, rest)


async def test_shutting_down_waits_for_nobody_without_end() -> None:
    outcomes, begun = list[str](), asyncio.Event()

    async def stuck(_request: web.BaseRequest) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            outcomes.append("cancelled")
            raise
        return Response(200, [], b"")

    async with listening(stuck) as (listener, port), client(port) as (reader, writer):
        writer.write(GET)
        await begun.wait()
        async with asyncio.timeout(300):
            await listener.shutdown(0.05)
            assert b"" == await reader.read()

    assert ["cancelled"] == outcomes


async def test_requests_on_an_old_connection_do_not_wait_for_the_idle_time_of_the_last_one() -> None:
    async with (
        listening(told, Timeouts(head=100, idle=100)) as (listener, port),
        client(port) as (reader, writer),
    ):
        seen = list[Seen]()
        for _ in range(4):  # longer together than a connection may be idle
            writer.write(GET)
            seen.append(await read_message(reader))
            pass_time(30)
            await run_others()
        assert not reader.at_eof()
        pass_time(100)
        async with asyncio.timeout(300):
            end = await reader.read()

    assert ([200] * 4, b"", []) == ([one.status for one in seen], end, listener.connections)


# --- the library ----------------------------------------------------------------------------------------------------
def test_another_minor_version_of_aiohttp_is_refused_by_name() -> None:
    check_aiohttp()
    with pytest.raises(ImportError, match=r"aiohttp 3\.13\.5 is installed, .* pip install \"aiohttp~=3\.14\.0\""):
        check_aiohttp("3.13.5")


def test_loads_the_client_of_aiohttp_at_its_first_use() -> None:
    code = """if True:
        import sys
        import proxy.server
        from aiohttp import web_exceptions
        import aiohttp
        assert aiohttp.__version__.startswith("3.")
        assert "aiohttp.client" not in sys.modules
        assert not hasattr(aiohttp, "nothing")
        assert aiohttp.ClientSession is aiohttp.client.ClientSession
        from aiohttp import TCPConnector, web
        assert set(aiohttp.__all__) <= set(dir(aiohttp))
    """
    subprocess.run([sys.executable, "-c", code], check=True)

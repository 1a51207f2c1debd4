"""The listener by itself, over real sockets: how answers are framed, when connections end, and who is told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.app.body import Unread, read_whole
from proxy.app.http1.answer import Answer, Dates
from proxy.app.http1.request import Request
from proxy.app.http1.terms import Handle, Patience, RefuseHead
from proxy.app.listener import Listener
from proxy.core.codes import ErrorCode
from tests.serving.wire import Seen, read_message

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
TYPED = ("Content-Type", "text/plain")


def refuse(code: ErrorCode, message: str, status: int | None = None) -> Answer:
    """The answer to what is no request."""
    return Answer(status or code.status, [TYPED], message.encode())


@contextlib.asynccontextmanager
async def listening(handle: Handle, patience: Patience | None = None) -> AsyncIterator[tuple[Listener, int]]:
    """A listener on a free loopback port."""
    listener = Listener(handle, refuse, patience)
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
    """All bytes that come back until the connection ends, or nothing more comes for a moment."""
    got = b""
    async with client(port) as (reader, writer):
        for packet in packets:
            writer.write(packet)
            await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while data := await asyncio.wait_for(reader.read(65536), 0.05):
                got += data
    return got


async def told(request: Request) -> Answer:
    """Answers with what was asked: the line, and the body."""
    body = await read_whole(request, 1 << 20, 5.0)
    data = body.message.encode() if isinstance(body, Unread) else body
    return Answer(200, [TYPED], f"{request.method} {request.target} ".encode() + data, closes=isinstance(body, Unread))


async def in_pieces(request: Request) -> None:
    """Answers piece by piece: as many bytes as announced at `/length`, in chunks elsewhere."""
    stream = request.begin(200, [TYPED], 6 if request.target == "/length" else None)
    await stream.write(b"abc")
    await stream.write(b"def")
    await stream.end()


# --- whether the connection goes on -----------------------------------------------------------------------------------
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
async def test_a_connection_goes_on_as_its_version_and_its_client_want_it(
    kind: str, minor: int, wish: str | None, goes_on: bool, says: str | None
) -> None:
    field = f"Connection: {wish}\r\n" if wish else ""
    request = f"GET /{kind} HTTP/1.{minor}\r\nHost: h\r\n{field}\r\n".encode()
    if kind == "chunks" and minor == 0:  # it knows no chunks: the body ends where the connection does
        goes_on, says = False, None
    async with listening(KINDS[kind]) as (listener, port), client(port) as (reader, writer):
        writer.write(request)
        first = await read_message(reader)
        writer.write(request)
        more = await reader.read(1)
        left = len(listener.connections)

    framing = {name for name in ("content-length", "transfer-encoding") if first.header(name)}
    expected = {"transfer-encoding"} if kind == "chunks" else {"content-length"}
    assert (f"HTTP/1.{minor} 200 OK", says) == (first.start, first.header("connection"))
    assert framing == (set() if kind == "chunks" and minor == 0 else expected)
    assert first.body == (b"abcdef" if kind != "whole" else b"GET /whole ")
    assert (b"H" if goes_on else b"", int(goes_on)) == (more, left)


@pytest.mark.parametrize("kind", ["whole", "pieces"])
@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304), ("HEAD", 404)])
async def test_what_has_no_body_gets_none_and_the_next_answer_follows(kind: str, method: str, status: int) -> None:
    async def bare(request: Request) -> Answer | None:
        if request.target == "/last":
            return Answer(200, [TYPED], b"last")
        if kind == "whole":
            return Answer(status, [TYPED], b"abc")
        stream = request.begin(status, [TYPED], 3)
        await stream.write(b"abc")
        await stream.end()
        return None

    async with listening(bare) as (_, port), client(port) as (reader, writer):
        writer.write(f"{method} / HTTP/1.1\r\nHost: h\r\n\r\nGET /last HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        first = await read_message(reader, bodiless=True)
        last = await read_message(reader)

    length = "3" if method == "HEAD" and kind == "whole" else None
    assert (status, length, None) == (first.status, first.header("content-length"), first.header("transfer-encoding"))
    assert b"last" == last.body


async def test_no_more_goes_out_than_was_announced_since_it_would_be_read_as_another_answer() -> None:
    async def generous(request: Request) -> None:
        stream = request.begin(200, [TYPED], 4)
        await stream.write(b"abc")
        await stream.write(b"def")
        await stream.end()

    async with listening(generous) as (_, port):
        assert (await everything(port, GET)).endswith(b"\r\n\r\nabcd")


async def test_the_date_is_that_of_the_second() -> None:
    now = [0.0]
    dates = Dates(lambda: now[0])
    first = dates.row()
    now[0] = 0.9
    same = dates.row()
    now[0] = 1795312150.4
    later = dates.row()

    assert ("Date: Thu, 01 Jan 1970 00:00:00 GMT", True) == (first, same is first)
    assert "Date: Sun, 22 Nov 2026 01:49:10 GMT" == later


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x7fb", "a\x1bb"])
@pytest.mark.parametrize("name", ["X-Mine", "X-\r\nMine"])
async def test_a_field_with_a_control_character_never_goes_out(name: str, value: str) -> None:
    async def careless(_request: Request) -> Answer:
        return Answer(200, [(name, value)], b"")

    async with listening(careless) as (_, port):
        got = await everything(port, GET)

    assert got.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"Evil" not in got


async def test_what_is_no_ascii_goes_out_as_it_came_in() -> None:
    async def echo(request: Request) -> Answer:
        return Answer(200, [("X-Said", request.headers.get("x-said") or "")], b"")

    async with listening(echo) as (_, port):
        got = await everything(port, b"GET / HTTP/1.1\r\nHost: h\r\nX-Said: caf\xc3\xa9 \xe9\r\n\r\n")

    assert b"X-Said: caf\xc3\xa9 \xe9\r\n" in got


# --- bodies that come in ----------------------------------------------------------------------------------------------
BODIES = {
    "length": b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabcdef",
    "chunks": b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;x=y\r\nab\r\n4\r\ncdef\r\n0\r\nX-T: 1\r\n\r\n",
    "none": GET,
}
BOTH = BODIES["chunks"] + BODIES["length"] + GET + b"GET / HTTP/1.1\r\nHost : h\r\n\r\n" + GET


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, len(BOTH)), max_size=8))
async def test_the_packets_in_which_requests_come_make_no_difference(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(BOTH)]
    async with listening(told) as (_, port):
        got = await everything(port, *[BOTH[start:end] for start, end in pairwise(edges)])

    bodies = [part.partition(b"\r\n\r\n")[2] for part in got.split(b"HTTP/1.")[1:]]
    assert [b"POST / abcdef", b"POST / abcdef", b"GET / ", b"A space stands before the colon of a header."] == bodies


@pytest.mark.parametrize("kind", ["length", "chunks"])
async def test_a_body_that_breaks_off_is_told_to_whoever_reads_it(kind: str) -> None:
    broken = BODIES["chunks"].replace(b"4\r\n", b"ZZ\r\n") if kind == "chunks" else BODIES["length"][:-1]
    told_of = asyncio.Queue[object]()

    async def reading(request: Request) -> Answer:
        try:
            body = await read_whole(request, 100, 5.0)
            told_of.put_nowait(body)
        except asyncio.CancelledError:
            told_of.put_nowait("gone")
            raise
        return Answer(400, [], b"")

    async with listening(reading) as (_, port), client(port) as (_, writer):
        writer.write(broken)
        await asyncio.sleep(0.02)
        writer.close()
        found = await told_of.get()

    assert isinstance(found, Unread) if kind == "chunks" else found == "gone"


async def test_the_rest_of_an_upload_that_nobody_reads_is_thrown_away_and_the_connection_ends() -> None:
    async def short(_request: Request) -> Answer:
        return Answer(413, [TYPED], b"too much")

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

    async def patient(request: Request) -> Answer | None:
        try:
            if request.upload is not None:
                await read_whole(request, 100, 5.0)
            if request.target == "/stream":
                stream = request.begin(200, [TYPED])
                await stream.write(b"abc")
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            outcomes.append("gone")
            raise
        return None

    async with listening(patient) as (listener, port):
        async with client(port) as (_, writer):
            writer.write(sent)
            await asyncio.sleep(0.03)
            before = len(listener.connections)
        async with asyncio.timeout(2):
            while listener.connections:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0)

    assert (1, expected) == (before, outcomes)
    assert 1 == len(asyncio.all_tasks())


# --- handlers that fail -----------------------------------------------------------------------------------------------
async def test_an_exception_is_answered_and_the_connection_goes_on() -> None:
    async def defect(_request: Request) -> Answer:
        raise LookupError("secret")

    async with listening(defect) as (_, port), client(port) as (reader, writer):
        writer.write(GET + GET)
        seen = [await read_message(reader) for _ in range(2)]

    assert [500, 500] == [one.status for one in seen]
    assert b"secret" not in seen[0].body


@pytest.mark.parametrize("target", ["/length", "/chunks"])
async def test_half_an_answer_never_looks_like_a_whole_one(target: str) -> None:
    async def defect(request: Request) -> Answer:
        stream = request.begin(200, [TYPED], 6 if target == "/length" else None)
        await stream.write(b"abc")
        raise LookupError

    async with listening(defect) as (_, port), client(port) as (reader, writer):
        writer.write(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await read_message(reader)


async def test_half_an_answer_to_an_old_client_ends_in_a_reset_since_its_end_is_that_of_the_connection() -> None:
    begun = asyncio.Event()

    async def endless(request: Request) -> None:
        await request.begin(200, [TYPED]).write(b"abc")
        begun.set()
        await asyncio.sleep(10)

    async with listening(endless) as (listener, port), client(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        await begun.wait()
        await listener.shutdown(0.05)
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_nobody_is_left_waiting_where_not_even_the_refusal_can_be_made() -> None:
    async def defect(_request: Request) -> Answer:
        raise LookupError

    def no_answer(_code: ErrorCode, _message: str, _status: int | None = None) -> Answer:
        raise OSError

    listener = Listener(defect, cast(RefuseHead, no_answer))
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
    async with client(server.sockets[0].getsockname()[1]) as (reader, writer):
        writer.write(GET)
        async with asyncio.timeout(2):
            end = await reader.read()
    server.close()

    assert (b"", []) == (end, listener.connections)


# --- the end ----------------------------------------------------------------------------------------------------------
async def test_a_client_that_does_not_read_its_last_answer_cannot_keep_the_connection() -> None:
    async def large(request: Request) -> Answer:
        assert request.connection.transport is not None
        request.connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return Answer(200, [TYPED], b"x" * 65_000, closes=True)  # less than what makes a transport wait

    with socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.setblocking(False)
        async with listening(large, Patience(send=0.1)) as (listener, port):
            await asyncio.get_running_loop().sock_connect(unread, ("127.0.0.1", port))
            await asyncio.get_running_loop().sock_sendall(unread, GET)
            await asyncio.sleep(0.05)
            before = len(listener.connections)
            async with asyncio.timeout(2):
                while listener.connections:
                    await asyncio.sleep(0.005)

    assert 1 == before


async def test_the_last_answer_arrives_although_more_was_asked_behind_it() -> None:
    async def last(_request: Request) -> Answer:
        await asyncio.sleep(0.05)
        return Answer(200, [TYPED], b"x" * 200_000, closes=True)

    async with listening(last) as (_, port), client(port) as (reader, writer):
        writer.write(GET * 40_000)  # more than is read ahead
        await asyncio.sleep(0.1)
        seen = await read_message(reader)

    assert ("close", 200_000) == (seen.header("connection"), len(seen.body))


async def test_shutting_down_closes_idle_connections_and_lets_the_others_answer() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Answer:
        if request.target == "/slow":
            begun.set()
            await go_on.wait()
        return Answer(200, [TYPED], b"done")

    async with listening(slow) as (listener, port), client(port) as (idle, first), client(port) as (busy, second):
        first.write(GET)
        await read_message(idle)
        second.write(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n" + GET)
        await begun.wait()
        ending = asyncio.create_task(listener.shutdown(5.0))
        end = await idle.read()
        go_on.set()
        seen = await read_message(busy)
        rest = await busy.read()
        await ending
        left = listener.connections

    assert (b"", b"done", b"", []) == (end, seen.body, rest, left)


async def test_shutting_down_waits_for_nobody_without_end() -> None:
    outcomes = list[str]()

    async def stuck(_request: Request) -> Answer:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            outcomes.append("cancelled")
            raise
        return Answer(200, [], b"")

    async with listening(stuck) as (listener, port), client(port) as (reader, writer):
        writer.write(GET)
        await asyncio.sleep(0.02)
        async with asyncio.timeout(2):
            await listener.shutdown(0.05)
            assert b"" == await reader.read()

    assert ["cancelled"] == outcomes


async def test_requests_on_an_old_connection_do_not_wait_for_the_idle_time_of_the_last_one() -> None:
    async with (
        listening(told, Patience(head=0.2, idle=0.2)) as (listener, port),
        client(port) as (reader, writer),
    ):
        seen = list[Seen]()
        for _ in range(4):  # longer together than a connection may be idle
            writer.write(GET)
            seen.append(await read_message(reader))
            await asyncio.sleep(0.08)
        async with asyncio.timeout(2):
            end = await reader.read()

    assert ([200] * 4, b"", []) == ([one.status for one in seen], end, listener.connections)

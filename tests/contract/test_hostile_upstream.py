"""Bounds on any upstream, over raw sockets: every bad answer becomes a fault that says what is known, ends its
connection, and does not affect the next call. Each strict implementation of `Upstream` is one line in `MAKERS`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from proxy.core.model.codes import UPSTREAM_BAD_ANSWER, UPSTREAM_TIMEOUT
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    Document,
    Executed,
    Rung,
    ToolCall,
    UpstreamFault,
    UpstreamReply,
)
from proxy.interfaces import Upstream, UpstreamRequest
from proxy.upstream import ReplyBroken, UpstreamSettings
from proxy.upstream.http1 import Http1Upstream
from tests.serving.wire import Script, Seen, Tool, answer, replies, tool
from tests.steady import run_others, until

MAKERS: dict[str, Callable[[UpstreamSettings], Upstream]] = {"http1": Http1Upstream}

CHECKED = CheckedCall(
    ToolCall("weather", Document(b"{}", {}), "call-1", Conversation("c", Rung.HEADER)), b"{}", {}
)  # fmt: skip
GOOD = answer("200 OK", b"good")

Make = Callable[[UpstreamSettings], Upstream]


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


@contextlib.asynccontextmanager
async def before(make: Make, script: Script, **changes: object) -> AsyncIterator[tuple[Tool, Upstream]]:
    async with tool(script) as server:
        upstream = make(UpstreamSettings("weather", server.url, **changes))  # type: ignore[arg-type]
        try:
            yield server, upstream
        finally:
            await upstream.close()


async def call(upstream: Upstream, body: bytes = b"{}", within: float = 300.0) -> UpstreamReply | UpstreamFault:
    return await upstream.send(CHECKED, UpstreamRequest("weather", "POST", "/api", (), body, within))


async def fault_of(upstream: Upstream, within: float = 300.0) -> UpstreamFault:
    got = await call(upstream, within=within)
    assert isinstance(got, UpstreamFault), got
    return got


def head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join((status, *lines, "", "")).encode("latin-1")


CHUNKED = head("Transfer-Encoding: chunked")

# The answer to the first request -> its error type of RFC 9209.
BAD = {
    "a mail server": (b"220 mail.test ESMTP ready\r\n\r\n", "http_protocol_error"),
    "another protocol": (head("Content-Length: 0", status="RTSP/1.0 200 OK"), "http_protocol_error"),
    "no version": (head("Content-Length: 0", status="HTTP 200 OK"), "http_protocol_error"),
    "HTTP/0.9": (head("Content-Length: 0", status="HTTP/0.9 200 OK"), "http_protocol_error"),
    "HTTP/2.0": (head("Content-Length: 0", status="HTTP/2.0 200 OK"), "http_protocol_error"),
    "a status of two digits": (head("Content-Length: 0", status="HTTP/1.1 20 OK"), "http_protocol_error"),
    "a status of four digits": (head("Content-Length: 0", status="HTTP/1.1 2000 OK"), "http_protocol_error"),
    "status 99": (head("Content-Length: 0", status="HTTP/1.1 099 OK"), "http_protocol_error"),
    "status 999": (head("Content-Length: 0", status="HTTP/1.1 999 OK"), "http_protocol_error"),
    "two spaces before the status": (head("Content-Length: 0", status="HTTP/1.1  200 OK"), "http_protocol_error"),
    "a NUL in the reason": (head("Content-Length: 0", status="HTTP/1.1 200 O\0K"), "http_protocol_error"),
    "line breaks first": (b"\r\n\r\n" + GOOD, "http_protocol_error"),
    "bare LF everywhere": (GOOD.replace(b"\r\n", b"\n"), "http_protocol_error"),
    "a bare LF between headers": (head("X: a\nContent-Length: 0"), "http_protocol_error"),
    "a bare CR in a header": (head("X: a\rb", "Content-Length: 0"), "http_protocol_error"),
    "a NUL in a header": (head("X: a\0b", "Content-Length: 0"), "http_protocol_error"),
    "a line folded": (head("X: a", " b", "Content-Length: 0"), "http_protocol_error"),
    "the length folded": (head("Content-Length:", " 4") + b"good", "http_protocol_error"),
    "a space before the colon": (head("Content-Length : 4") + b"good", "http_protocol_error"),
    "a header without colon": (head("X", "Content-Length: 0"), "http_protocol_error"),
    "a header without name": (head(": x", "Content-Length: 0"), "http_protocol_error"),
    "a length and chunks": (
        head("Content-Length: 4", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        "http_protocol_error",
    ),
    "chunks and a length": (
        head("Transfer-Encoding: chunked", "Content-Length: 4") + b"0\r\n\r\n",
        "http_protocol_error",
    ),
    "two lengths": (head("Content-Length: 4", "Content-Length: 5") + b"good", "http_protocol_error"),
    "a list of lengths": (head("Content-Length: 4, 4") + b"good", "http_protocol_error"),
    "a signed length": (head("Content-Length: +4") + b"good", "http_protocol_error"),
    "a negative length": (head("Content-Length: -1"), "http_protocol_error"),
    "a length in hex": (head("Content-Length: 0x4") + b"good", "http_protocol_error"),
    "an empty length": (head("Content-Length:") + b"good", "http_protocol_error"),
    "a length beyond 64 bits": (head(f"Content-Length: {2**64}") + b"good", "http_protocol_error"),
    "more than the length": (head("Content-Length: 4") + b"goods", "http_protocol_error"),
    "a line break too many": (GOOD + b"\r\n", "http_protocol_error"),
    "a second answer": (GOOD + GOOD, "http_protocol_error"),
    "a body of 204": (head(status="HTTP/1.1 204 No Content") + b"x", "http_protocol_error"),
    "a body of 304": (head("Content-Length: 1", status="HTTP/1.1 304 Not Modified") + b"x", "http_protocol_error"),
    "an unasked upgrade": (
        head("Upgrade: x", "Connection: upgrade", status="HTTP/1.1 101 Switching Protocols"),
        "http_protocol_error",
    ),
    "gzip as transfer coding": (head("Transfer-Encoding: gzip") + b"x", "http_response_transfer_coding"),
    "gzip and chunks": (head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", "http_response_transfer_coding"),
    "an unknown coding": (head("Transfer-Encoding: xchunked") + b"0\r\n\r\n", "http_response_transfer_coding"),
    "two codings": (
        head("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        "http_response_transfer_coding",
    ),
    "chunks of HTTP/1.0": (
        head("Transfer-Encoding: chunked", status="HTTP/1.0 200 OK") + b"0\r\n\r\n",
        "http_response_transfer_coding",
    ),
    "a chunk size with 0x": (CHUNKED + b"0x4\r\ngood\r\n0\r\n\r\n", "http_protocol_error"),
    "a negative chunk size": (CHUNKED + b"-4\r\ngood\r\n0\r\n\r\n", "http_protocol_error"),
    "an empty chunk size": (CHUNKED + b"\r\ngood\r\n0\r\n\r\n", "http_protocol_error"),
    "a chunk size with a space": (CHUNKED + b"4 \r\ngood\r\n0\r\n\r\n", "http_protocol_error"),
    "a chunk size beyond 64 bits": (CHUNKED + b"10000000000000004\r\ngood\r\n0\r\n\r\n", "http_protocol_error"),
    "a chunk longer than it says": (CHUNKED + b"3\r\ngood\r\n0\r\n\r\n", "http_protocol_error"),
    "chunks with bare LF": (CHUNKED + b"4\ngood\n0\n\n", "http_protocol_error"),
    "a chunk extension with LF": (CHUNKED + b"4;a\nb\r\ngood\r\n0\r\n\r\n", "http_protocol_error"),
    "more than the chunks": (CHUNKED + b"4\r\ngood\r\n0\r\n\r\nmore", "http_protocol_error"),
    "a line break after the chunks": (CHUNKED + b"4\r\ngood\r\n0\r\n\r\n\r\n", "http_protocol_error"),
    "an answer after the chunks": (CHUNKED + b"4\r\ngood\r\n0\r\n\r\n" + GOOD, "http_protocol_error"),
    "a length in the trailers": (CHUNKED + b"0\r\nContent-Length: 4\r\n\r\n", "http_protocol_error"),
    "a giant header": (head("X: " + "x" * 100_000, "Content-Length: 0"), "http_response_header_section_size"),
    "a giant reason": (head(status="HTTP/1.1 200 " + "x" * 100_000), "http_response_header_section_size"),
    "a thousand headers": (head(*["X: y"] * 1000), "http_response_header_section_size"),
    "a header without end": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "http_response_header_section_size"),
    "a trailer without end": (CHUNKED + b"0\r\nX: " + b"x" * 100_000, "http_response_header_section_size"),
    "an extension without end": (CHUNKED + b"4;a=" + b"x" * 100_000, "http_response_header_section_size"),
    "extensions longer than the body": (
        CHUNKED + (b"1;" + b"x" * 100 + b"\r\ng\r\n") * 1000,
        "http_response_header_section_size",
    ),
    "interim answers without end": (head(status="HTTP/1.1 102 Processing") * 1000, "http_protocol_error"),
}

# If the fault comes after a whole answer, the answer may be returned before the fault is seen.
SURPLUS = frozenset(
    [
        "more than the length",
        "a line break too many",
        "a second answer",
        "a body of 204",
        "a body of 304",
        "more than the chunks",
        "a line break after the chunks",
        "an answer after the chunks",
    ]
)


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_answer_is_a_fault_and_ends_its_connection(make: Make, case: str) -> None:
    bad, token = BAD[case]
    async with before(make, replies(bad, GOOD)) as (server, upstream):
        fault = await fault_of(upstream)
        async with asyncio.timeout(300):
            await server.gone.wait()
        then = await call(upstream)

    assert (UPSTREAM_BAD_ANSWER, token, Executed.UNKNOWN) == (fault.code, fault.token, fault.executed)
    assert UpstreamReply(200, (("Content-Length", "4"),), b"good") == then
    assert (2, 2) == (len(server.seen), server.connections)


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_answer_stays_bad_however_it_is_cut_into_packets(make: Make, case: str) -> None:
    bad, token = BAD[case]

    async def in_packets(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        size = 1 if len(bad) < 300 else 997
        for at in range(0, len(bad), size):
            writer.write(bad[at : at + size])
            await asyncio.sleep(0)
        writer.write(b"?" * 10)  # what follows may show the mistake
        await writer.drain()

    async with before(make, in_packets) as (_, upstream):
        got = await call(upstream)

    if case in SURPLUS and isinstance(got, UpstreamReply):
        assert got.body in (b"good", b"")
    else:
        assert isinstance(got, UpstreamFault)
        assert (UPSTREAM_BAD_ANSWER, token) == (got.code, got.token)


# --- answers that break off -------------------------------------------------------------------------------------------
WHOLE = {
    "a length": answer("200 OK", b"good", "X: y"),
    "chunks": head("Transfer-Encoding: chunked") + b"3\r\ngoo\r\n1\r\nd\r\n0\r\nX-T: 1\r\n\r\n",
    "an interim answer": head("Link: x", status="HTTP/1.1 103 Early Hints") + GOOD,
}


@pytest.mark.parametrize("kind", WHOLE)
async def test_an_answer_cut_at_any_byte_is_a_fault_and_never_an_answer(make: Make, kind: str) -> None:
    async def cut(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        writer.write(WHOLE[kind][: int(seen.body)])
        await writer.drain()
        writer.close()

    expected, found = [], []
    async with before(make, cut) as (_, upstream):
        for at in range(len(WHOLE[kind])):
            got = await call(upstream, str(at).encode())
            assert isinstance(got, UpstreamFault), at
            expected.append((at, "http_response_incomplete" if at else "connection_terminated"))
            found.append((at, got.token))

    assert expected == found


@pytest.mark.parametrize("kind", WHOLE)
async def test_an_answer_in_any_two_packets_is_the_same_answer(make: Make, kind: str) -> None:
    async def split(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        at = int(seen.body)
        writer.write(WHOLE[kind][:at])
        await asyncio.sleep(0.0005)
        writer.write(WHOLE[kind][at:])
        await writer.drain()

    async with before(make, split) as (server, upstream):
        for at in range(len(WHOLE[kind])):
            got = await call(upstream, str(at).encode())
            assert isinstance(got, UpstreamReply), at
            assert (200, b"good") == (got.status, got.body)

    assert 1 == server.connections


async def test_an_answer_byte_by_byte_is_the_same_answer(make: Make) -> None:
    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        for at in range(len(WHOLE["chunks"])):
            writer.write(WHOLE["chunks"][at : at + 1])
            await asyncio.sleep(0)

    async with before(make, drip) as (_, upstream):
        got = await call(upstream)

    assert UpstreamReply(200, (("Transfer-Encoding", "chunked"),), b"good") == got


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 2", WHOLE["a length"][:-2], WHOLE["chunks"][:-2]])
async def test_a_reset_is_a_fault_wherever_it_comes(make: Make, sent: bytes) -> None:
    async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(sent)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with before(make, reset) as (_, upstream):
        fault = await fault_of(upstream)

    token = "http_response_incomplete" if sent else "connection_terminated"
    assert (UPSTREAM_BAD_ANSWER, token, Executed.UNKNOWN) == (fault.code, fault.token, fault.executed)


async def test_an_answer_ended_by_the_connection_is_whole_at_a_clean_end_and_broken_at_a_reset(make: Make) -> None:
    async def ends(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\ngood")
        await writer.drain()
        await asyncio.sleep(0.01)
        if seen.body == b"reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            writer.transport.abort()
        writer.close()

    async with before(make, ends) as (_, upstream):
        clean, reset = await call(upstream, b"clean"), await call(upstream, b"reset")

    assert UpstreamReply(200, (), b"good") == clean
    assert isinstance(reset, UpstreamFault)
    assert "http_response_incomplete" == reset.token


# --- slowness ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["a length", "chunks"])
async def test_an_answer_that_drips_too_slowly_times_out(make: Make, kind: str) -> None:
    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        for at in range(len(WHOLE[kind])):
            if writer.is_closing():
                raise ConnectionResetError
            writer.write(WHOLE[kind][at : at + 1])
            await asyncio.sleep(0.1)

    async with before(make, drip) as (server, upstream):
        fault = await fault_of(upstream, within=1.0)
        async with asyncio.timeout(300):
            await server.gone.wait()

    assert (UPSTREAM_TIMEOUT, "http_response_timeout", Executed.UNKNOWN) == (fault.code, fault.token, fault.executed)


async def test_interim_answers_do_not_prolong_the_timeout(make: Make) -> None:
    async def busy(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        for _ in range(10):
            writer.write(head(status="HTTP/1.1 102 Processing"))
            await asyncio.sleep(0.25)

    async with before(make, busy) as (_, upstream):
        fault = await fault_of(upstream, within=1.0)

    assert "http_response_timeout" == fault.token


async def test_an_upstream_that_never_reads_times_out(make: Make) -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.transport.abort()

    done = asyncio.Event()
    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1)
    upstream = make(UpstreamSettings("weather", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    fault = await call(upstream, b"x" * 30_000_000, within=1.0)
    done.set()
    await upstream.close()
    server.close()
    await server.wait_closed()

    assert isinstance(fault, UpstreamFault)
    assert ("http_response_timeout", Executed.UNKNOWN) == (fault.token, fault.executed)


async def test_an_upstream_that_leaves_while_the_request_goes_out_is_not_waited_for(make: Make) -> None:
    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write_eof()
        await done.wait()
        writer.transport.abort()

    done = asyncio.Event()
    server = await asyncio.start_server(leaves, "127.0.0.1", 0, limit=1000)
    upstream = make(UpstreamSettings("weather", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    async with asyncio.timeout(300):
        fault = await call(upstream, b"x" * 30_000_000, within=20.0)
    done.set()
    await upstream.close()
    server.close()
    await server.wait_closed()

    assert isinstance(fault, UpstreamFault)
    assert ("connection_terminated", Executed.UNKNOWN) == (fault.token, fault.executed)


# --- connections that look alive --------------------------------------------------------------------------------------
class Raw:
    """An upstream of blocking sockets, in the test's own thread: between two calls nothing runs but the kernel."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.peers: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def answer(self, data: bytes = GOOD) -> None:
        """Reads one request from the newest connection, and answers."""
        self.peers[-1].settimeout(60)
        assert self.peers[-1].recv(10_000).startswith(b"POST ")
        self.peers[-1].sendall(data)

    def close(self) -> None:
        for peer in (*self.peers, self.listener):
            peer.close()


@pytest.fixture
def raw() -> Raw:
    return Raw()


async def exchanged(upstream: Upstream, raw: Raw, *, new: bool) -> UpstreamReply | UpstreamFault:
    """One call answered by hand, over a new connection or the one there is."""
    loop = asyncio.get_running_loop()
    calling = asyncio.create_task(call(upstream))
    if new:
        raw.listener.setblocking(False)
        async with asyncio.timeout(300):
            raw.peers.append((await loop.sock_accept(raw.listener))[0])
    await asyncio.sleep(0.02)
    await asyncio.to_thread(raw.answer)
    return await calling


def resets(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    peer.close()


def says_408(peer: socket.socket) -> None:
    peer.send(answer("408 Request Timeout", b"", "Connection: close"))
    peer.close()


ENDS: dict[str, Callable[[socket.socket], object]] = {
    "closes": socket.socket.close,
    "closes one way": lambda peer: peer.shutdown(socket.SHUT_WR),
    "resets": resets,
    "sends a byte": lambda peer: peer.send(b"?"),
    "sends an answer": lambda peer: peer.send(GOOD.replace(b"good", b"evil")),
    "says 408": says_408,
}


@pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])
@pytest.mark.parametrize("end", ENDS)
async def test_an_idle_connection_on_which_anything_happened_is_not_used_again(
    make: Make, raw: Raw, end: str, noticed: bool
) -> None:
    upstream = make(UpstreamSettings("weather", raw.url))
    try:
        await exchanged(upstream, raw, new=True)
        ENDS[end](raw.peers[0])
        if noticed:
            await run_others()
        got = await exchanged(upstream, raw, new=True)
    finally:
        await upstream.close()
        raw.close()

    assert UpstreamReply(200, (("Content-Length", "4"),), b"good") == got


async def test_an_idle_connection_that_is_silent_is_used_again(make: Make, raw: Raw) -> None:
    upstream = make(UpstreamSettings("weather", raw.url))
    try:
        await exchanged(upstream, raw, new=True)
        got = await exchanged(upstream, raw, new=False)
    finally:
        await upstream.close()
        raw.close()

    assert UpstreamReply(200, (("Content-Length", "4"),), b"good") == got


async def test_an_upstream_that_closes_one_way_after_its_answer_has_answered(make: Make) -> None:
    async def half(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(GOOD)
        writer.write_eof()

    async with before(make, half) as (server, upstream):
        got = [await call(upstream), await call(upstream)]

    assert [UpstreamReply(200, (("Content-Length", "4"),), b"good")] * 2 == got
    assert 2 == server.connections


async def test_an_early_answer_is_given_and_its_connection_not_used_again(make: Make) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("413 Content Too Large", b"no"))
        await writer.drain()
        await done.wait()  # and reads no further
        writer.transport.abort()

    connections: list[asyncio.StreamWriter] = []
    done = asyncio.Event()
    server = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1000)
    upstream = make(UpstreamSettings("weather", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    got = [await call(upstream, b"x" * 20_000_000) for _ in range(2)]
    done.set()
    await upstream.close()
    server.close()
    await server.wait_closed()

    assert [UpstreamReply(413, (("Content-Length", "2"),), b"no")] * 2 == got
    assert 2 == len(connections)


# --- many at once -----------------------------------------------------------------------------------------------------
async def test_parallel_calls_get_their_own_answers_over_no_more_connections_than_allowed(make: Make) -> None:
    async def echo(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        await asyncio.sleep(0.001 * (int(seen.body) % 7))
        writer.write(answer("200 OK", seen.body))
        await writer.drain()

    async def caller(name: int) -> list[bytes | object]:
        got = [await call(upstream, str(name * 100 + turn).encode()) for turn in range(10)]
        return [reply.body if isinstance(reply, UpstreamReply) else reply for reply in got]

    async with before(make, echo, connections=16) as (server, upstream):
        found = await asyncio.gather(*(caller(name) for name in range(32)))

    assert [[str(name * 100 + turn).encode() for turn in range(10)] for name in range(32)] == found
    assert 16 == server.connections


async def test_under_an_upstream_that_breaks_at_random_every_call_is_answered_and_none_runs_twice(make: Make) -> None:
    chance = random.Random(7)

    async def flaky(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        whole = answer("200 OK", seen.body)
        match chance.randrange(6):
            case 0:
                writer.close()
            case 1:
                writer.transport.abort()
            case 2:
                writer.write(whole[: chance.randrange(len(whole))])
                writer.close()
            case 3:
                writer.write(whole)
                writer.close()  # without saying so
            case _:
                writer.write(whole)
        await asyncio.sleep(0)

    async def caller(name: int) -> list[tuple[str, UpstreamReply | UpstreamFault]]:
        return [(key, await call(upstream, key.encode())) for key in (f"{name}-{turn}" for turn in range(15))]

    async with before(make, flaky, connections=8) as (server, upstream):
        outcomes = [pair for each in await asyncio.gather(*(caller(name) for name in range(20))) for pair in each]

    ran = [seen.body.decode() for seen in server.seen]
    answered = {key for key, got in outcomes if isinstance(got, UpstreamReply)}
    unsent = {key for key, got in outcomes if isinstance(got, UpstreamFault) and got.executed is Executed.NO}
    assert 300 == len(outcomes)
    assert sorted(set(ran)) == sorted(ran)
    assert answered <= set(ran)
    assert set() == unsent & set(ran)
    assert all(got.body == key.encode() for key, got in outcomes if isinstance(got, UpstreamReply))


async def test_an_upstream_killed_and_restarted_under_load_runs_no_call_twice_and_none_that_is_called_unsent(
    make: Make,
) -> None:
    async def work(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        await asyncio.sleep(0.002)
        if not writer.is_closing():
            writer.write(answer("200 OK", seen.body))

    outcomes: list[tuple[str, UpstreamReply | UpstreamFault]] = []
    moved = asyncio.Event()
    enough = False

    async def caller(name: int) -> None:
        for turn in itertools.count():
            if enough:
                return
            outcomes.append((f"{name}-{turn}", await call(upstream, f"{name}-{turn}".encode())))
            moved.set()
            await asyncio.sleep(0)

    async def until_outcomes(wanted: type[UpstreamReply | UpstreamFault], times: int) -> None:
        """Waits for so many further outcomes of a kind."""
        begun = len(outcomes)
        async with asyncio.timeout(300):
            while sum(isinstance(got, wanted) for _, got in outcomes[begun:]) < times:
                moved.clear()
                await moved.wait()

    life = Tool(work)
    server = await asyncio.start_server(life.serve, "127.0.0.1", 0)
    life.port = server.sockets[0].getsockname()[1]
    upstream = make(UpstreamSettings("weather", life.url, connections=8))
    callers = [asyncio.create_task(caller(name)) for name in range(12)]
    for _ in range(3):
        await until_outcomes(UpstreamReply, 100)
        server.close()
        life.end()
        await until_outcomes(UpstreamFault, 20)
        server = await asyncio.start_server(life.serve, "127.0.0.1", life.port)
    await until_outcomes(UpstreamReply, 100)
    enough = True
    await asyncio.gather(*callers)
    await upstream.close()
    server.close()
    life.end()
    await asyncio.sleep(0.01)

    ran = [seen.body.decode() for seen in life.seen]
    unsent = {key for key, got in outcomes if isinstance(got, UpstreamFault) and got.executed is Executed.NO}
    assert sorted(set(ran)) == sorted(ran)
    assert {key for key, got in outcomes if isinstance(got, UpstreamReply)} <= set(ran)
    assert set() == unsent & set(ran)


async def test_cancelling_many_callers_closes_their_connections_and_harms_no_others(make: Make) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        if json.loads(seen.body) % 2:
            await reader.read()
            raise ConnectionResetError
        await go_on.wait()
        writer.write(answer("200 OK", seen.body))

    go_on = asyncio.Event()
    async with before(make, slow, connections=8) as (server, upstream):
        tasks = [asyncio.create_task(call(upstream, str(name).encode())) for name in range(8)]
        await until(lambda: len(server.seen) == 8)
        for task in tasks[1::2]:
            task.cancel()
        go_on.set()
        got = await asyncio.gather(*tasks, return_exceptions=True)
        again = await asyncio.gather(*(call(upstream, b"0") for _ in range(8)))

    assert [str(name).encode() for name in range(0, 8, 2)] == [
        one.body for one in got if isinstance(one, UpstreamReply)
    ]
    assert 4 == sum(isinstance(one, asyncio.CancelledError) for one in got)
    assert [b"0"] * 8 == [one.body for one in again if isinstance(one, UpstreamReply)]


async def test_a_stream_that_turns_bad_gives_what_was_good_and_then_says_so(make: Make) -> None:
    good = b"5dc\r\n" + b"y" * 1500 + b"\r\n"

    async def turns(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(CHUNKED + good)
        await go_on.wait()
        writer.write(b"zz\r\n")
        await writer.drain()

    go_on = asyncio.Event()
    async with before(make, turns, buffer=1000) as (server, upstream):
        got = await call(upstream)
        assert isinstance(got, UpstreamReply)
        assert not isinstance(got.body, bytes)
        pieces = [await anext(aiter(got.body))]
        go_on.set()
        with pytest.raises(ReplyBroken) as broken:
            await anext(aiter(got.body))
        async with asyncio.timeout(300):
            await server.gone.wait()

    assert b"y" * 1500 == b"".join(pieces)
    assert (UPSTREAM_BAD_ANSWER, "http_protocol_error") == (broken.value.fault.code, broken.value.fault.token)

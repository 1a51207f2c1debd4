"""Which connection carries a call: used again, made, waited for, in turn; and when an idle one goes."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from proxy.core.model.codes import OVERLOADED
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
from proxy.interfaces import UpstreamRequest
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import AnswerLimits, Http1Upstream
from proxy.upstream.http1.client import Pool
from proxy.upstream.http1.connection import Alarm
from proxy.upstream.http1.dial import Dialer, read_origin
from proxy.upstream.http1.messages import AnswerReader, write_head
from tests.serving.wire import Script, Seen, Tool, answer, replies, tool
from tests.steady import pass_time, run_others

CHECKED = CheckedCall(
    ToolCall("weather", Document(b"{}", {}), "call-1", Conversation("c", Rung.HEADER)), b"{}", {}
)  # fmt: skip
GOOD = answer("200 OK", b"good")


@contextlib.asynccontextmanager
async def before(script: Script, **changes: object) -> AsyncIterator[tuple[Tool, Http1Upstream]]:
    async with tool(script) as server:
        upstream = Http1Upstream(UpstreamSettings("weather", server.url, **changes))  # type: ignore[arg-type]
        try:
            yield server, upstream
        finally:
            await upstream.close()


async def call(upstream: Http1Upstream, body: bytes = b"{}", within: float = 300.0) -> UpstreamReply | UpstreamFault:
    return await upstream.send(CHECKED, UpstreamRequest("weather", "POST", "/api", (), body, within))


async def bodies(upstream: Http1Upstream, count: int) -> list[object]:
    got = [await call(upstream) for _ in range(count)]
    return [reply.body if isinstance(reply, UpstreamReply) else reply for reply in got]


KEPT = {
    "a length": GOOD,
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\nX: y\r\n\r\n",
    "an interim answer": b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD,
    "HTTP/1.0 that stays": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\ngood",
    "a short idle time of its own": answer("200 OK", b"good", "Keep-Alive: timeout=5, max=100"),
}


@pytest.mark.parametrize("kind", KEPT)
async def test_a_hundred_calls_go_over_one_connection(kind: str) -> None:
    async with before(replies(KEPT[kind])) as (server, upstream):
        found = await bodies(upstream, 100)

    assert [b"good"] * 100 == found
    assert 1 == server.connections


CLOSED = {
    "Connection: close": answer("200 OK", b"good", "Connection: close"),
    "close among others": answer("200 OK", b"good", "Connection: x, Close"),
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\ngood",
    "no idle time": answer("200 OK", b"good", "Keep-Alive: timeout=0"),
}


@pytest.mark.parametrize("kind", CLOSED)
async def test_a_connection_that_ends_with_its_answer_is_not_used_again(kind: str) -> None:
    async with before(replies(CLOSED[kind])) as (server, upstream):
        found = await bodies(upstream, 3)

    assert [b"good"] * 3 == found
    assert 3 == server.connections


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_an_answer_without_body_keeps_its_connection(status: str) -> None:
    async with before(replies(f"HTTP/1.1 {status}\r\n\r\n".encode())) as (server, upstream):
        found = await bodies(upstream, 3)

    assert ([b""] * 3, 1) == (found, server.connections)


async def test_a_streamed_answer_read_to_its_end_gives_its_connection_back() -> None:
    async with before(replies(answer("200 OK", b"x" * 5000)), buffer=1000) as (server, upstream):
        for _ in range(3):
            reply = await call(upstream)
            assert isinstance(reply, UpstreamReply)
            assert not isinstance(reply.body, bytes)
            assert 5000 == sum([len(piece) async for piece in reply.body])

    assert 1 == server.connections


async def test_a_forgotten_stream_costs_its_connection_and_not_its_place() -> None:
    async with before(replies(answer("200 OK", b"x" * 5000)), buffer=1000, connections=1) as (server, upstream):
        for _ in range(3):
            assert isinstance(await call(upstream), UpstreamReply)

    assert 3 == server.connections


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with before(replies(GOOD), keepalive=0.05) as (server, upstream):
        await call(upstream)
        async with asyncio.timeout(300):
            await server.gone.wait()
        assert [b"good"] == await bodies(upstream, 1)

    assert 2 == server.connections


async def test_a_shorter_idle_time_of_the_upstream_counts() -> None:
    says_so = replies(answer("200 OK", b"good", "Keep-Alive: timeout=100"))
    async with before(says_so, keepalive=1000) as (server, upstream):
        await call(upstream)
        pass_time(80)
        await run_others()
        before_it = server.gone.is_set()
        pass_time(19)  # a second before the upstream would close it
        await run_others()

        assert (False, True) == (before_it, server.gone.is_set())
    assert 1 == server.connections


STREAM = b"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n"


async def relay(upstream: Http1Upstream) -> object:
    """The body of a relayed request's answer; the fault where there is none."""
    reply = await upstream.relay(UpstreamRequest("weather", "POST", "/api", (), b"{}", 300.0), None)
    if isinstance(reply, UpstreamFault) or isinstance(reply.body, bytes):
        return reply if isinstance(reply, UpstreamFault) else reply.body
    return b"".join([piece async for piece in reply.body])


async def test_a_request_that_meets_the_end_of_its_connection_is_lost_and_not_sent_again() -> None:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        if len(server.seen) == 2:
            writer.close()
        else:
            writer.write(STREAM)

    async with before(script) as (server, upstream):
        found = [await relay(upstream) for _ in range(3)]

    assert [b"good", b"good"] == [found[0], found[2]]
    assert isinstance(found[1], UpstreamFault)
    assert ("connection_terminated", Executed.UNKNOWN) == (found[1].token, found[1].executed)
    assert (3, 2) == (len(server.seen), server.connections)


async def test_a_connection_rests_after_a_stream_if_the_upstream_has_closed_one_there() -> None:
    """As llama.cpp does, which promises to keep it: what is sent before the end has come would be lost."""
    used: set[asyncio.StreamWriter] = set()
    closes = True

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        if closes and writer in used:
            writer.close()
            return
        used.add(writer)
        writer.write(STREAM)
        if len(used) == 1:
            writer.close()

    async with before(script) as (server, upstream):
        found = [await relay(upstream)]
        await run_others()  # the end has come, and was not met
        found += [await relay(upstream) for _ in range(3)]
        before_rest, closes = server.connections, False
        pass_time(0.1)
        await run_others()
        found += [await relay(upstream) for _ in range(3)]  # a connection has outlived its rest

    assert ([b"good"] * 7, 4, 4) == (found, before_rest, server.connections)


async def test_no_connection_rests_because_one_was_not_to_be_kept_behind_its_stream() -> None:
    """It is closed here, so its end says nothing of the upstream."""

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(STREAM.replace(b"=5", b"=0") if len(server.seen) == 1 else STREAM)

    async with before(script) as (server, upstream):
        found = [await relay(upstream) for _ in range(5)]

    assert ([b"good"] * 5, 2) == (found, server.connections)


async def test_a_request_that_cannot_be_sent_costs_no_connection() -> None:
    async with before(replies(GOOD)) as (server, upstream):
        await call(upstream)
        unsendable = UpstreamRequest("weather", "POST", "/api?city=Zürich", (), b"{}", 300.0)

        assert upstream.start(CHECKED, unsendable) is None
        assert isinstance(await upstream.send(CHECKED, unsendable), UpstreamFault)
        assert [b"good"] == await bodies(upstream, 1)
    assert 1 == server.connections


async def test_the_connection_used_last_is_used_next_so_that_the_others_can_go() -> None:
    together = asyncio.Barrier(4)

    async def all_at_once(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        if len(server.seen) <= 4:
            await together.wait()
        writer.write(GOOD)

    async with before(all_at_once, keepalive=100) as (server, upstream):
        await asyncio.gather(*(call(upstream) for _ in range(4)))
        for _ in range(6):
            await call(upstream)
            pass_time(20)
        await run_others()
        open_now = [writer for writer in server.writers if not writer.is_closing()]

    assert (4, 1) == (server.connections, len(open_now))


async def test_those_who_wait_for_a_connection_get_it_in_the_order_they_came() -> None:
    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await asyncio.sleep(0.005)
        writer.write(GOOD)

    async with before(slow, connections=1) as (server, upstream):
        await asyncio.gather(*(call(upstream, str(turn).encode()) for turn in range(20)))

    assert [str(turn).encode() for turn in range(20)] == [seen.body for seen in server.seen]
    assert 1 == server.connections


async def test_a_connection_that_ends_lets_the_next_in_line_make_one() -> None:
    async with before(replies(answer("200 OK", b"good", "Connection: close")), connections=2) as (server, upstream):
        got = await asyncio.gather(*(call(upstream) for _ in range(10)))

    assert [b"good"] * 10 == [one.body for one in got if isinstance(one, UpstreamReply)]
    assert 10 == server.connections


async def test_a_caller_that_stops_waiting_for_a_connection_delays_nobody() -> None:
    release = asyncio.Event()

    async def held(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await release.wait()
        writer.write(GOOD)

    async with before(held, connections=1) as (server, upstream):
        tasks = [asyncio.create_task(call(upstream, str(turn).encode())) for turn in range(6)]
        await server.arrived.wait()
        for task in tasks[1:5:2]:
            task.cancel()
        release.set()
        got = await asyncio.gather(*tasks, return_exceptions=True)

    assert [True, False, True, False, True, True] == [isinstance(one, UpstreamReply) for one in got]
    assert [b"0", b"2", b"4", b"5"] == [seen.body for seen in server.seen]


@pytest.mark.parametrize("free", ["the connection", "its place"])
async def test_a_connection_for_a_caller_who_left_goes_to_the_next(free: str) -> None:
    async with tool(replies(GOOD)) as server:
        dialer = Dialer(read_origin(server.url), None)
        pool = Pool(asyncio.get_running_loop(), dialer.dial, 1, 4.0)
        connection = await pool.take(1.0)
        second, third = (asyncio.create_task(pool.take(1.0)) for _ in range(2))
        head = write_head("POST", "/", "t", (), 0)
        connection.begin(AnswerReader("POST", AnswerLimits()), head, b"", 1000, asyncio.get_running_loop().time() + 5)
        await connection.wait_ready()
        if free == "the connection":
            pool.give_back(connection)
        else:
            connection.abort()
        second.cancel()  # it was served, and has not run since
        taken = await third
        await pool.close()

    assert second.cancelled()
    assert (free == "the connection") == (taken is connection)
    assert (0, 2 if free == "its place" else 1) == (pool.open, server.connections)


async def test_a_full_pool_refuses_unsent_after_the_time_to_connect_and_serves_again_later() -> None:
    release = asyncio.Event()

    async def held(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await release.wait()
        writer.write(GOOD)

    async with before(held, connections=2, connect_timeout=0.05) as (server, upstream):
        busy = [asyncio.create_task(call(upstream)) for _ in range(2)]
        await server.arrived.wait()
        refused = await asyncio.gather(*(call(upstream) for _ in range(5)))
        release.set()
        await asyncio.gather(*busy)
        then = await bodies(upstream, 2)

    message = "upstream 'weather': every connection to it is busy"
    assert [UpstreamFault(OVERLOADED, "connection_limit_reached", Executed.NO, message)] * 5 == refused
    assert [b"good"] * 2 == then


async def test_closing_ends_what_is_under_way_and_refuses_what_comes_after() -> None:
    async def never(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await asyncio.sleep(0)

    async with before(never, connections=1) as (server, upstream):
        running = asyncio.create_task(call(upstream))
        await server.arrived.wait()
        waiting = asyncio.create_task(call(upstream))
        await asyncio.sleep(0)
        await upstream.close()
        got = [await running, await waiting, await call(upstream)]

    executed = [one.executed for one in got if isinstance(one, UpstreamFault)]
    assert [Executed.UNKNOWN, Executed.NO, Executed.NO] == executed
    assert 1 == len(server.seen)


class Timers(asyncio.SelectorEventLoop):
    """A loop whose clock the test sets, and which counts the timers that it makes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made = 0

    def time(self) -> float:
        return self.now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        self.made += 1
        return super().call_at(when, callback, *args, context=context)

    def at(self, now: float) -> None:
        """Moves the clock and runs what is due."""
        self.now = now
        self.call_soon(self.stop)
        self.run_forever()


def test_a_busy_connection_makes_a_timer_now_and_then_and_not_for_each_call() -> None:
    with contextlib.closing(Timers()) as loop:
        rung: list[float] = []
        alarm = Alarm(loop, lambda: rung.append(loop.now))
        for turn in range(1000):  # ten seconds of calls, each allowed 30 s, with 4 s of idleness allowed in between
            loop.at(turn / 100)
            alarm.at(loop.now + 30)
            loop.at(turn / 100 + 0.005)
            alarm.at(loop.now + 4)
        assert [] == rung
        assert loop.made < 10
        loop.at(13.9)
        assert [] == rung
        loop.at(14.1)
        assert [14.1] == rung


def test_an_alarm_rings_once_at_the_time_set_last_and_not_when_it_is_off() -> None:
    with contextlib.closing(Timers()) as loop:
        rung: list[float] = []
        alarm = Alarm(loop, lambda: rung.append(loop.now))
        alarm.at(10)
        alarm.at(5)
        loop.at(5.1)
        alarm.at(20)
        alarm.at(math.inf)
        loop.at(30)
        alarm.at(40)
        alarm.off()
        loop.at(50)
        assert [5.1] == rung

"""The guard in front of an upstream: breaker, bound of concurrency, budget; around any `Upstream`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from proxy.core.model import codes
from proxy.core.model.values import CheckedCall, Executed, UpstreamFault, UpstreamReply
from proxy.core.tool_errors.backoff import BudgetPolicy
from proxy.core.tool_errors.circuit_breaker import BreakerPolicy, ConcurrencyPolicy, GuardPolicy
from proxy.interfaces import UpstreamRequest
from proxy.upstream import UpstreamGuard
from proxy.upstream.sending import ConcurrencyLimiter
from tests.upstream.scripted import CHECKED, Answer, Body, ScriptedUpstream, Time, request

OK = UpstreamReply(200, (), b"{}")
DOWN = UpstreamFault(codes.UPSTREAM_UNAVAILABLE, "connection_refused", Executed.NO, "upstream 'w': refused")
BREAKER = GuardPolicy(breaker=BreakerPolicy(failures=2, open_for=5.0))


def guarded(*answers: Answer, policy: GuardPolicy = BREAKER) -> tuple[UpstreamGuard, ScriptedUpstream, Time]:
    time = Time()
    inner = ScriptedUpstream(list(answers), time)
    return UpstreamGuard(inner, "w", policy, time.now), inner, time


# --- breaker ----------------------------------------------------------------------------------------------------------
async def test_a_breaker_opens_refuses_at_once_probes_and_heals() -> None:
    guard, inner, time = guarded(DOWN, DOWN, DOWN, OK)
    await guard.send(CHECKED, request())
    states = [guard.breaker_state]
    await guard.send(CHECKED, request())
    states.append(guard.breaker_state)
    time.at += 1.5
    shut = await guard.send(CHECKED, request())
    time.at += 3.5
    still_down = await guard.send(CHECKED, request())
    again_shut = await guard.send(CHECKED, request())
    time.at += 5
    healed = await guard.send(CHECKED, request())

    message = "upstream 'w': it failed repeatedly"
    assert UpstreamFault(codes.CIRCUIT_OPEN, "destination_unavailable", Executed.NO, message, 4) == shut
    assert UpstreamFault(codes.CIRCUIT_OPEN, "destination_unavailable", Executed.NO, message, 5) == again_shut
    assert (DOWN, OK, 4) == (still_down, healed, len(inner.sent))
    assert [0, 2, 0] == [*states, guard.breaker_state]


async def test_reports_each_change_of_a_breaker_once() -> None:
    told: list[tuple[str, str]] = []
    time = Time()
    guard = UpstreamGuard(
        ScriptedUpstream([DOWN, DOWN, OK], time), "w", BREAKER, time.now, lambda *change: told.append(change)
    )
    for _ in range(3):
        await guard.send(CHECKED, request())
    time.at += 5
    await guard.send(CHECKED, request())

    assert [("w", "open"), ("w", "half_open"), ("w", "closed")] == told


async def test_relayed_requests_count_and_are_refused_like_calls() -> None:
    guard, inner, _ = guarded(DOWN)
    for _ in range(2):
        await guard.relay(request(), None)
    shut = await guard.relay(request(), None)

    assert isinstance(shut, UpstreamFault)
    assert (codes.CIRCUIT_OPEN, 2) == (shut.code, len(inner.sent))


async def test_without_a_breaker_every_call_goes_through() -> None:
    guard, inner, _ = guarded(DOWN, policy=GuardPolicy())
    for _ in range(20):
        await guard.send(CHECKED, request())

    assert (20, None) == (len(inner.sent), guard.breaker_state)


class Slow(ScriptedUpstream):
    """Answers when the test opens its gate."""

    def __init__(self) -> None:
        super().__init__([OK], Time())
        self.gate = asyncio.Event()

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> Answer:
        answer = await super().send(checked, request)
        await self.gate.wait()
        return answer

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> Answer:  # noqa: ARG002
        return await self.send(CHECKED, request)


async def test_a_probe_that_is_cancelled_does_not_shut_the_breaker_for_ever() -> None:
    guard, inner, time = guarded(DOWN, DOWN, OK)
    for _ in range(2):
        await guard.send(CHECKED, request())
    time.at += 5
    slow = Slow()
    guard.unguarded = slow
    probe = asyncio.create_task(guard.send(CHECKED, request()))
    await asyncio.sleep(0)
    refused = await guard.send(CHECKED, request())
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    guard.unguarded = inner

    assert isinstance(refused, UpstreamFault)
    assert (OK, 0) == (await guard.send(CHECKED, request()), guard.breaker_state)


# --- concurrency ------------------------------------------------------------------------------------------------------
def bounded(limit: int, wait: float = 5.0, queue: int | None = None) -> tuple[UpstreamGuard, Slow]:
    slow = Slow()
    return UpstreamGuard(slow, "w", GuardPolicy(concurrency=ConcurrencyPolicy(limit, wait, queue)), slow.time.now), slow


async def started(*calls: asyncio.Task[Answer]) -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def call(guard: UpstreamGuard) -> asyncio.Task[Answer]:
    return asyncio.create_task(guard.send(CHECKED, request()))


async def test_further_calls_wait_their_turn_in_the_order_they_came() -> None:
    guard, slow = bounded(2)
    calls = [call(guard) for _ in range(4)]
    await started(*calls)
    assert 2 == len(slow.sent)
    slow.gate.set()

    assert [OK] * 4 == await asyncio.gather(*calls)
    assert 4 == len(slow.sent)


async def test_a_call_that_finds_the_queue_full_is_refused_at_once_and_did_not_run() -> None:
    guard, slow = bounded(1, queue=1)
    running, waiting = call(guard), call(guard)
    await started()
    refused = await call(guard)
    slow.gate.set()

    message = "upstream 'w': too many calls are under way"
    assert UpstreamFault(codes.OVERLOADED, "connection_limit_reached", Executed.NO, message, 1) == refused
    assert (OK, OK) == (await running, await waiting)


async def test_a_call_waits_no_longer_than_it_may() -> None:
    guard, slow = bounded(1, wait=0.01)
    running = call(guard)
    await started()
    refused = await call(guard)
    slow.gate.set()

    assert isinstance(refused, UpstreamFault)
    assert (codes.OVERLOADED, OK, 1) == (refused.code, await running, len(slow.sent))


async def test_a_caller_that_leaves_gives_its_place_to_the_next() -> None:
    guard, slow = bounded(1, queue=2)
    running, leaving, last = call(guard), call(guard), call(guard)
    await started()
    leaving.cancel()
    running.cancel()
    slow.gate.set()

    assert OK == await last
    assert OK == await guard.send(CHECKED, request())


async def test_a_streamed_answer_holds_its_place_until_it_ends_or_is_given_up() -> None:
    for read_to_the_end in (True, False):
        body = Body([b"a", b"b"])
        guard, _, _ = guarded(
            UpstreamReply(200, (), body), OK, policy=GuardPolicy(concurrency=ConcurrencyPolicy(1, 0.0, 0))
        )
        streaming = await guard.send(CHECKED, request())
        refused = await guard.send(CHECKED, request())
        assert isinstance(streaming, UpstreamReply)
        assert not isinstance(streaming.body, bytes)
        if read_to_the_end:
            assert b"ab" == b"".join([chunk async for chunk in streaming.body])
        else:
            await streaming.body.aclose()  # type: ignore[attr-defined]

        assert isinstance(refused, UpstreamFault)
        assert OK == await guard.send(CHECKED, request())
        assert body.closed is not read_to_the_end


async def test_the_time_spent_waiting_is_not_given_to_the_upstream() -> None:
    guard, slow = bounded(1)
    running, waiting = call(guard), call(guard)
    await started()
    slow.time.at = 3.0
    slow.gate.set()
    await asyncio.gather(running, waiting)

    assert [30.0, 27.0] == [sent.timeout for sent in slow.sent]


async def test_an_open_breaker_lets_nobody_wait() -> None:
    policy = GuardPolicy(BreakerPolicy(failures=1), ConcurrencyPolicy(1, wait=60.0, queue=2))
    slow = Slow()
    guard = UpstreamGuard(slow, "w", policy, slow.time.now)
    slow.answers = [DOWN]
    first, second, waiting = call(guard), call(guard), call(guard)
    await started()
    slow.gate.set()
    answers = await asyncio.gather(first, second, waiting)

    assert [codes.UPSTREAM_UNAVAILABLE, codes.CIRCUIT_OPEN, codes.CIRCUIT_OPEN] == [
        answer.code for answer in answers if isinstance(answer, UpstreamFault)
    ]
    assert 1 == len(slow.sent)


async def test_a_place_that_comes_together_with_the_end_of_the_wait_is_not_lost() -> None:
    limiter = ConcurrencyLimiter(1, 10)
    assert await limiter.acquire(1)
    waiting = asyncio.create_task(limiter.acquire(1))
    await asyncio.sleep(0)
    limiter.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert limiter.try_acquire()
    assert not limiter.try_acquire()


# --- budget -----------------------------------------------------------------------------------------------------------
async def test_the_budget_is_paid_by_requests_that_are_no_resends() -> None:
    guard, _, _ = guarded(OK, policy=GuardPolicy(budget=BudgetPolicy(0.5, 0)))
    assert not guard.grants_resend()
    for _ in range(4):
        await guard.send(CHECKED, request())

        await guard.send(CHECKED, replace(request(), resend=True))

    assert [True, True, False] == [guard.grants_resend() for _ in range(3)]


async def test_closing_the_guard_closes_the_upstream() -> None:
    guard, inner, _ = guarded(OK)
    await guard.close()

    assert inner.closed

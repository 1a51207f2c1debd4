"""The guard in front of an upstream: circuit breaker, concurrency limit and resend budget (contract section 7).

A request that the guard refuses was never sent, so its fault says `executed: no` and when to try again. The rules are
pure and stand in `core/tool_errors/circuit_breaker.py` and `backoff.py`; this file gives them the clock and waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Final

from proxy.core.contract.policy import ToolServer
from proxy.core.model.values import CheckedCall, UpstreamFault, UpstreamReply
from proxy.core.tool_errors.backoff import Budget
from proxy.core.tool_errors.circuit_breaker import (
    CALLED,
    SHOWN_AS,
    Breaker,
    Closed,
    GuardPolicy,
    admit,
    find_wait,
    has_failed,
    settle,
)
from proxy.interfaces import JoinsServers, StartedExchange, StartsExchanges, Upstream, UpstreamRequest
from proxy.upstream.faults import CIRCUIT_BROKEN, TOO_MANY_CALLS, EndingStream

Answer = UpstreamReply | UpstreamFault
Send = Callable[[UpstreamRequest], Awaitable[Answer]]

# Retry hint in seconds: when a slot is likely to be free again.
_SOON: Final = 1


class ConcurrencyLimiter:
    """Allows `limit` holders at a time, with at most `queue` more waiting. Belongs to one event loop."""

    def __init__(self, limit: int, queue: int) -> None:
        self._free = limit
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Takes a free slot without waiting; False where all are taken or others wait already."""
        if self._free <= 0 or self._waiting:
            return False
        self._free -= 1
        return True

    async def acquire(self, within: float) -> bool:
        """Takes a slot, waiting at most `within` seconds; False where none became free. Release what you took."""
        if self.try_acquire():
            return True
        if len(self._waiting) >= self._queue or within <= 0:
            return False
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(within):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the slot arrived just as the wait ended
                self.release()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def release(self) -> None:
        """Frees a slot: the longest waiting caller gets it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class UpstreamGuard:
    """Implements `GuardedUpstream` around another upstream. `now` is a monotonic clock in seconds; `changed` hears
    the upstream's name and the breaker's new state (one of `guard.CALLED`) whenever that becomes another one.

    A call keeps its slot until its answer has been read to the end; a relayed request until its answer begins.
    `unguarded` is the upstream without breaker and bound.
    """

    def __init__(
        self,
        inner: Upstream,
        name: str,
        policy: GuardPolicy,
        now: Callable[[], float],
        changed: Callable[[str, str], None] = lambda name, state: None,  # noqa: ARG005
    ) -> None:
        self.unguarded = inner
        self._changed = changed
        self._name = name
        self._policy = policy
        self._now = now
        self._breaker: Breaker = Closed(begun=now())
        self._budget = Budget.of(policy.budget, now())
        self._most_saved = policy.budget.saved
        bound = policy.concurrency
        self._has_no_limits = policy.breaker is None and bound is None
        self._starting = inner if self._has_no_limits and isinstance(inner, StartsExchanges) else None
        self._limiter = ConcurrencyLimiter(bound.limit, bound.most_waiting) if bound is not None else None

    @property
    def breaker_state(self) -> int | None:
        """0 closed, 1 half-open, 2 open; None without a breaker."""
        return SHOWN_AS[type(self._breaker)] if self._policy.breaker is not None else None

    def list_servers(self) -> tuple[ToolServer, ...]:
        """Implements `JoinsServers`: none where the upstream is a single server."""
        return self.unguarded.list_servers() if isinstance(self.unguarded, JoinsServers) else ()

    def grants_resend(self) -> bool:
        """Takes one resend out of the budget; False where there is none left."""
        drawn = self._budget.draw(self._now())
        if drawn is None:
            return False
        self._budget = drawn
        return True

    def send(self, checked: CheckedCall, request: UpstreamRequest) -> Coroutine[None, None, Answer]:
        """Sends a checked call once, unless the guard refuses it. An upstream without limits adds no coroutine."""
        if not request.resend and self._budget.tokens < self._most_saved:  # a full budget takes no more
            self._budget = self._budget.paid_in(self._now())
        if self._has_no_limits:
            return self.unguarded.send(checked, request)
        return self.guard(request, partial(self.unguarded.send, checked), keeps=True)

    def start(
        self, checked: CheckedCall, request: UpstreamRequest, on_ready: Callable[[], None]
    ) -> StartedExchange | None:
        """Sends a checked call at once; None where something has to be waited for."""
        started = None if self._starting is None else self._starting.start(checked, request, on_ready)
        if started is not None and self._budget.tokens < self._most_saved:
            self._budget = self._budget.paid_in(self._now())
        return started

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> Answer:
        """Sends what is not a call, unless the guard refuses it."""
        return await self.guard(request, lambda entered: self.unguarded.relay(entered, body))

    async def guard(self, request: UpstreamRequest, send: Send, *, keeps: bool = False) -> Answer:
        """Lets `send` send, unless the guard refuses it. A call `keeps` its slot until its answer has been read."""
        bound, held = self._policy.concurrency, self._limiter
        if bound is not None and held is not None and not held.try_acquire():
            if (refused := self._refuse()) is not None:  # an open circuit refuses at once
                return refused
            began = self._now()
            if not await held.acquire(min(bound.wait, request.timeout)):
                return TOO_MANY_CALLS.of(self._name, _SOON)
            request = replace(request, timeout=request.timeout - (self._now() - began))
        try:
            answer = await self._send_through_breaker(request, send)
            if keeps and held is not None and isinstance(answer, UpstreamReply) and not isinstance(answer.body, bytes):
                answer, held = replace(answer, body=EndingStream(answer.body, held.release)), None
            return answer
        finally:
            if held is not None:
                held.release()

    async def close(self) -> None:
        """Closes the upstream."""
        await self.unguarded.close()

    async def _send_through_breaker(self, request: UpstreamRequest, send: Send) -> Answer:
        """Sends what the breaker admits, and reports the result to the breaker."""
        policy = self._policy.breaker
        if policy is None:
            return await send(request)
        admitted = admit(self._breaker, self._now(), policy)
        if admitted is None:
            return self._refuse() or CIRCUIT_BROKEN.of(self._name, _SOON)
        epoch = admitted.epoch
        self._become(admitted)
        failed: bool | None = None
        try:
            answer = await send(request)
            failed = has_failed(answer)
            return answer
        finally:
            self._become(settle(self._breaker, epoch, failed, self._now(), policy))

    def _become(self, breaker: Breaker) -> None:
        before, self._breaker = self._breaker, breaker
        if type(before) is not type(breaker):
            self._changed(self._name, CALLED[type(breaker)])

    def _refuse(self) -> UpstreamFault | None:
        policy = self._policy.breaker
        wait = find_wait(self._breaker, self._now(), policy) if policy is not None else None
        return None if wait is None else CIRCUIT_BROKEN.of(self._name, wait)

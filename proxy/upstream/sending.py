"""Sends checked calls: through the guard of their upstream, and again if that is allowed (docs/upstream.md).

`send_with_backoff` is the loop over the sends of one call:

    send, and classify the answer
    stop unless there is a reason to resend, time for it, and room in the upstream's budget
    wait, and send the same bytes again

Every send carries the same payload and the same idempotency key, and all sends share one deadline. `UpstreamGuard`
is in front of each upstream with its circuit breaker, concurrency limit and resend budget. A request that it
refuses was never sent, so its fault says `executed: no` and when to try again. The rules are pure and are in
`core/tool_errors/backoff.py` and `backoff.py`; this file gives them the clock and waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Final

from proxy.call_record import CallRecord, Sent, Trace
from proxy.core.contract.policy import ResendPolicy, ToolPolicy, ToolServer
from proxy.core.model.values import CheckedCall, Executed, Failure, UpstreamFault, UpstreamReply, value_class
from proxy.core.tool_errors.backoff import (
    Budget,
    ResendDenied,
    add_idempotency_key,
    compute_pause,
    find_resend_reason,
    read_wait,
)
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
from proxy.core.tool_errors.classify import classify_answer, is_success, make_fault_failure
from proxy.driver import IN_TASK
from proxy.interfaces import (
    Clock,
    GuardedUpstream,
    JoinsServers,
    Services,
    StartedExchange,
    StartsExchanges,
    Upstream,
    UpstreamRequest,
)
from proxy.upstream.faults import CIRCUIT_BROKEN, TOO_MANY_CALLS, EndingStream, close_body

# Retry hint in seconds: when a slot is likely to be free again.
_SOON: Final = 1
_OF_NO_TOOL: Final = ResendPolicy()
Answer = UpstreamReply | UpstreamFault
Send = Callable[[UpstreamRequest], Awaitable[Answer]]


@value_class
class FailedSend:
    """A call that failed, and the tool's own error; `reply` is None where none came."""

    failure: Failure
    reply: UpstreamReply | None


async def send_with_backoff(
    checked: CheckedCall,
    request: UpstreamRequest,
    policy: ToolPolicy | None,
    services: Services,
    record: CallRecord,
) -> UpstreamReply | FailedSend:
    """Sends a call, repeatedly if that is allowed and useful. Returns the tool's answer, or why there is none. `policy`
    is that of the called tool. `record` has the state of the sends at any time. Cancelling the caller cancels the send.
    Nothing needs a task if the first send finds an idle connection and its answer is the last one."""
    rules = policy.resend if policy is not None else _OF_NO_TOOL
    clock, upstream, trace = services.clock, services.upstreams[request.upstream], record.trace
    # A corrected call continues where the first one ended.
    keyed, may_have_run, sent_before = False, False, record.sent
    if rules.key_header:
        headers, keyed = add_idempotency_key(request.headers, rules, services.pacing.fresh_key)
        request = replace(request, headers=headers)
    record.sending_since = started = clock.now()
    record.upstream, record.sent = request.upstream, True
    # A send that names itself in a trace has to be watched to its end.
    exchange = None if trace is not None or rules.deadline is not None else upstream.start(checked, request)
    if exchange is None:
        await IN_TASK
    due = started + (request.timeout if rules.deadline is None else rules.deadline)
    while True:
        if record.resends or rules.deadline is not None:  # the first send has the whole timeout
            request = replace(request, timeout=max(0.0, min(request.timeout, due - clock.now())))
        if exchange is None:
            answer = await trace_sends(partial(upstream.send, checked), trace, clock.now)(request)
        else:
            try:
                await exchange.ready
            except BaseException:
                exchange.abort()
                raise
            answer, exchange = exchange.take(), None
        if isinstance(answer, UpstreamFault) and may_have_run:
            answer = replace(answer, executed=Executed.UNKNOWN)  # an earlier send may have run
        if isinstance(answer, UpstreamReply) and is_success(answer):
            failure = None
            break
        failure = _classify(answer, checked, policy, clock)
        if failure is None or (reason := find_resend_reason(answer, failure, rules, keyed)) is None:
            break
        resent = len(record.resends)
        wait = compute_pause(rules, resent, services.pacing.chance(), read_wait(failure))
        record.resend_denied = _find_denial(rules, resent, due - clock.now() - wait, upstream)
        if record.resend_denied is not None:
            break
        await IN_TASK
        if isinstance(answer, UpstreamReply):
            await close_body(answer)
        may_have_run = may_have_run or isinstance(answer, UpstreamReply) or answer.executed is not Executed.NO
        record.resends, request = (*record.resends, reason), replace(request, resend=True)
        await services.pacing.sleep(wait)
    record.upstream_seconds, record.sending_since = clock.now() - started, 0.0
    if isinstance(answer, UpstreamFault):
        record.upstream_error, record.sent = answer.token, sent_before or answer.executed is not Executed.NO
        return FailedSend(make_fault_failure(answer, len(record.resends) + 1), None)
    record.upstream_status = answer.status
    return answer if failure is None else FailedSend(failure, answer)


def _classify(answer: Answer, checked: CheckedCall, policy: ToolPolicy | None, clock: Clock) -> Failure | None:
    """The failure that an answer without success reports; None if it reports no error of the call."""
    if isinstance(answer, UpstreamFault):
        return make_fault_failure(answer)
    if policy is None:
        return classify_answer(answer, clock.wall(), sent=checked.value)
    named = policy.operation.argument_names if policy.operation is not None else {}
    known = policy.check, checked.value, policy.feedback, named
    return classify_answer(answer, clock.wall(), *known, idempotent=policy.resend.idempotent)


def _find_denial(rules: ResendPolicy, resent: int, left: float, upstream: GuardedUpstream) -> ResendDenied | None:
    """Returns why no further resend may happen, or None. The budget comes last, because asking it spends from it."""
    if resent >= rules.max_resends:
        return ResendDenied.MAX
    if left <= 0:
        return ResendDenied.DEADLINE
    return None if upstream.grants_resend() else ResendDenied.BUDGET


# --- spans: each send, resends included, names itself in `traceparent` (W3C Trace Context section 3.4) ----------------
def write_traceparent(trace_id: str, span_id: str, flags: int) -> str:
    """The header of a request that a span sends."""
    return f"00-{trace_id}-{span_id}-{flags:02x}"


def trace_sends(send: Send, trace: Trace | None, now: Callable[[], float]) -> Send:
    """`send`, noting in `trace` (if any) what was sent and when. `now` is the monotonic clock in seconds."""
    if trace is None:
        return send
    # A `tracestate` without a valid parent is dropped (section 3.3).
    replaced = ("traceparent",) if trace.parent_id else ("traceparent", "tracestate")

    async def sending(request: UpstreamRequest) -> Answer:
        span_id, started = trace.fresh_id(), now()
        answer: Answer | None = None
        try:
            kept = tuple([field for field in request.headers if field[0] not in replaced])
            parent = ("traceparent", write_traceparent(trace.trace_id, span_id, trace.flags))
            answer = await send(replace(request, headers=(*kept, parent)))
            return answer
        finally:
            status = answer.status if isinstance(answer, UpstreamReply) else 0
            error = answer.token if isinstance(answer, UpstreamFault) else "" if answer is not None else "client_gone"
            trace.sent.append(
                Sent(span_id, request.method, request.upstream, started, now(), status, error, request.resend)
            )

    return sending


# --- the guard --------------------------------------------------------------------------------------------------------
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
    the upstream's name and the breaker's new state (one of `circuit_breaker.CALLED`) whenever that becomes another one.

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
        self._joined = inner if isinstance(inner, JoinsServers) else None
        self._limiter = ConcurrencyLimiter(bound.limit, bound.most_waiting) if bound is not None else None

    @property
    def breaker_state(self) -> int | None:
        """0 closed, 1 half-open, 2 open; None without a breaker."""
        return SHOWN_AS[type(self._breaker)] if self._policy.breaker is not None else None

    def list_servers(self) -> tuple[ToolServer, ...]:
        return () if self._joined is None else self._joined.list_servers()

    def grants_resend(self) -> bool:
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

    def start(self, checked: CheckedCall, request: UpstreamRequest) -> StartedExchange | None:
        """Sends a checked call at once; None if something has to be waited for."""
        started = None if self._starting is None else self._starting.start(checked, request)
        if started is not None and self._budget.tokens < self._most_saved:
            self._budget = self._budget.paid_in(self._now())
        return started

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> Answer:
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

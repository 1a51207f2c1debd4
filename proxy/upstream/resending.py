"""`send_with_backoff` sends one call to its tool, and sends it again where `core/tool_errors/backoff.py` allows it.

    send, and classify the answer
    stop unless there is a reason to resend, time for it, and room in the upstream's budget
    wait, and send the same bytes again

Every send carries the same payload and the same idempotency key, and all sends share one deadline.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from proxy.core.contract.policy import ResendPolicy, ToolPolicy
from proxy.core.model.fields import write_traceparent
from proxy.core.model.values import CheckedCall, Executed, Failure, UpstreamFault, UpstreamReply, value_class
from proxy.core.tool_errors.backoff import (
    ResendDenied,
    add_idempotency_key,
    compute_pause,
    find_resend_reason,
    read_wait,
)
from proxy.core.tool_errors.classify import classify_answer, is_success, make_fault_failure
from proxy.interfaces import (
    CallRecord,
    Clock,
    GuardedUpstream,
    Pacing,
    Sent,
    Services,
    StartedExchange,
    Trace,
    UpstreamRequest,
)
from proxy.upstream.faults import close_body

_OF_NO_TOOL: Final = ResendPolicy()
Answer = UpstreamReply | UpstreamFault
Send = Callable[[UpstreamRequest], Awaitable[Answer]]


@value_class
class FailedSend:
    """A call that failed, and the tool's own error; `reply` is None where none came."""

    failure: Failure
    reply: UpstreamReply | None


@dataclass(slots=True)
class FirstSend:
    """A call that has been sent without waiting. `request` went out at `started`, on the monotonic clock."""

    exchange: StartedExchange
    request: UpstreamRequest
    started: float

    def take_success(self, clock: Clock, record: CallRecord) -> UpstreamReply | None:
        """The tool's answer, where it is whole and a success; None where `send_with_backoff` has to look at it."""
        answer = self.exchange.take()
        if answer is None or not is_success(answer):
            return None
        record.upstream_seconds, record.upstream_status = clock.now() - self.started, answer.status
        return answer


def start_send(
    checked: CheckedCall,
    request: UpstreamRequest,
    policy: ToolPolicy | None,
    services: Services,
    record: CallRecord,
    on_ready: Callable[[], None],
) -> FirstSend | None:
    """Sends a call for the first time, without waiting; None where it is `send_with_backoff` that has to send it.
    `on_ready` is called once when there is something to look at."""
    rules = policy.resend if policy is not None else _OF_NO_TOOL
    if record.trace is not None or rules.key_header or rules.deadline is not None:
        return None
    started = services.clock.now()
    exchange = services.upstreams[request.upstream].start(checked, request, on_ready)
    if exchange is None:
        return None
    record.upstream = request.upstream
    return FirstSend(exchange, request, started)


async def send_with_backoff(
    checked: CheckedCall,
    request: UpstreamRequest,
    policy: ToolPolicy | None,
    services: Services,
    record: CallRecord,
    first: FirstSend | None = None,
) -> UpstreamReply | FailedSend:
    """The tool's answer, or what became of the call: sent again as long as that is allowed and of use. `policy` is the
    called tool's; `record` receives times, resends and errors; `first` is a send that has begun. Cancelling the caller
    cancels the request or the wait under way."""
    rules = policy.resend if policy is not None else _OF_NO_TOOL
    clock, upstream = services.clock, services.upstreams[request.upstream]
    request, keyed = _add_key(request, rules, services.pacing)
    may_have_run = False
    started, record.upstream = clock.now() if first is None else first.started, request.upstream
    due = started + (request.timeout if rules.deadline is None else rules.deadline)
    send: Send = partial(upstream.send, checked)
    send = send if record.trace is None else trace_sends(send, record.trace, clock.now)
    while True:
        if record.resends or rules.deadline is not None:  # the first send has the whole timeout
            request = _within(request, due - clock.now())
        answer = await (send(request) if first is None else first.exchange.wait())
        first = None
        if isinstance(answer, UpstreamFault) and may_have_run:
            answer = replace(answer, executed=Executed.UNKNOWN)  # an earlier send may have run
        failure = _classify(answer, checked, policy, clock)
        if failure is None or (reason := find_resend_reason(answer, failure, rules, keyed)) is None:
            break
        wait = compute_pause(rules, len(record.resends), services.pacing.chance(), read_wait(failure))
        record.resend_denied = _find_denial(rules, len(record.resends), due - clock.now() - wait, upstream)
        if record.resend_denied is not None:
            break
        if isinstance(answer, UpstreamReply):
            await close_body(answer)
        may_have_run = may_have_run or isinstance(answer, UpstreamReply) or answer.executed is not Executed.NO
        record.resends, request = (*record.resends, reason), replace(request, resend=True)
        await services.pacing.sleep(wait)
    record.upstream_seconds = clock.now() - started
    return _finish(answer, failure, record)


def _add_key(request: UpstreamRequest, rules: ResendPolicy, pacing: Pacing) -> tuple[UpstreamRequest, bool]:
    """The request, with an idempotency key where the tool takes one, and whether it has one."""
    if not rules.key_header:
        return request, False
    headers, keyed = add_idempotency_key(request.headers, rules, pacing.fresh_key)
    return replace(request, headers=headers), keyed


def _finish(answer: Answer, failure: Failure | None, record: CallRecord) -> UpstreamReply | FailedSend:
    """The result of a call that is not sent again."""
    if isinstance(answer, UpstreamFault):
        record.upstream_error = answer.token
        return FailedSend(make_fault_failure(answer, len(record.resends) + 1), None)
    record.upstream_status = answer.status
    return answer if failure is None else FailedSend(failure, answer)


def _within(request: UpstreamRequest, left: float) -> UpstreamRequest:
    """The request, with its timeout cut to the time that is left."""
    return request if left >= request.timeout else replace(request, timeout=max(left, 0.0))


def _classify(answer: Answer, checked: CheckedCall, policy: ToolPolicy | None, clock: Clock) -> Failure | None:
    """What an answer says went wrong; None for a success, and for what is no error of the call."""
    if isinstance(answer, UpstreamFault):
        return make_fault_failure(answer)
    if is_success(answer):
        return None
    if policy is None:
        return classify_answer(answer, clock.wall(), sent=checked.value)
    named = policy.operation.argument_names if policy.operation is not None else {}
    known = policy.check, checked.value, policy.feedback, named
    return classify_answer(answer, clock.wall(), *known, idempotent=policy.resend.idempotent)


def _find_denial(rules: ResendPolicy, resent: int, left: float, upstream: GuardedUpstream) -> ResendDenied | None:
    """Why no further resend may happen, or None. The budget comes last, because asking it spends from it."""
    if resent >= rules.max_resends:
        return ResendDenied.MAX
    if left <= 0:
        return ResendDenied.DEADLINE
    return None if upstream.grants_resend() else ResendDenied.BUDGET


# --- spans: each send, resends included, names itself in `traceparent` (W3C Trace Context section 3.4) ----------------
def trace_sends(send: Send, trace: Trace, now: Callable[[], float]) -> Send:
    """`send`, noting in `trace` what was sent and when. `now` is the monotonic clock in seconds."""
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

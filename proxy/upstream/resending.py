"""`send_with_backoff`: one call on its way to its tool, sent again where the rules of `core/backoff.py` allow it.

    send, and find out what the answer means
    is there a reason to send again? is it worth the time, and does the upstream's budget have room?
    wait, and send the same bytes again

The same payload with the same idempotency key goes out each time, and all sends share one deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from proxy.core.backoff import Denied, keyed_headers, pause, reason_to_resend, told_to_wait
from proxy.core.classify import classify, fault_failure
from proxy.core.model import CheckedCall, Executed, Failure, UpstreamFault, UpstreamReply
from proxy.core.policy import ResendPolicy, ToolPolicy
from proxy.interfaces import CallRecord, GuardedUpstream, Services, UpstreamRequest
from proxy.upstream.stream import close_body
from proxy.upstream.traced import Send, traced


@dataclass(frozen=True, slots=True)
class Failed:
    """A call that failed, and the tool's own error; `reply` is None where none came."""

    failure: Failure
    reply: UpstreamReply | None


async def send_with_backoff(
    checked: CheckedCall, request: UpstreamRequest, policy: ToolPolicy | None, services: Services, record: CallRecord
) -> UpstreamReply | Failed:
    """The tool's answer, or what became of the call: sent again as long as that is allowed and of use. Notes in
    `record` what was done.

    `policy` is that of the called tool. Cancelling the caller cancels the request under way, or the wait.
    """
    rules = policy.resend if policy is not None else ResendPolicy()
    clock, upstream = services.clock, services.upstreams[request.upstream]
    headers, keyed = keyed_headers(request.headers, rules, services.pacing.fresh_key)
    if headers is not request.headers:
        request = replace(request, headers=headers)
    started, record.upstream = clock.now(), request.upstream
    due = started + (request.timeout if rules.deadline is None else rules.deadline)
    send, may_have_run = _sender(upstream, checked, record, clock.now), False
    while True:
        first = not record.resends and rules.deadline is None  # all of its time is left to it
        answer = await send(request if first else _within(request, due - clock.now()))
        if isinstance(answer, UpstreamFault) and may_have_run:
            answer = replace(answer, executed=Executed.UNKNOWN)  # of all sends together
        failure = _meaning(answer, checked, policy, clock.wall)
        if failure is None or (reason := reason_to_resend(answer, failure, rules, keyed)) is None:
            break
        wait = pause(rules, len(record.resends), services.pacing.chance(), told_to_wait(failure))
        record.resend_denied = _denied(rules, len(record.resends), due - clock.now() - wait, upstream)
        if record.resend_denied is not None:
            break
        if isinstance(answer, UpstreamReply):
            await close_body(answer)
        may_have_run = may_have_run or not _is_unsent(answer)
        record.resends, request = (*record.resends, reason), replace(request, resend=True)
        await services.pacing.sleep(wait)
    record.upstream_seconds = clock.now() - started
    if isinstance(answer, UpstreamFault):
        record.upstream_error = answer.token
        return Failed(fault_failure(answer, len(record.resends) + 1), None)
    record.upstream_status = answer.status
    return answer if failure is None else Failed(failure, answer)


def _sender(upstream: GuardedUpstream, checked: CheckedCall, record: CallRecord, now: Callable[[], float]) -> Send:
    """How the call goes out: as a span of its trace, where there is one."""
    send: Send = partial(upstream.send, checked)
    return send if record.trace is None else traced(send, record.trace, now)


def _within(request: UpstreamRequest, left: float) -> UpstreamRequest:
    """The request with no more time than is left."""
    return request if left >= request.timeout else replace(request, timeout=max(left, 0.0))


def _meaning(
    answer: UpstreamReply | UpstreamFault,
    checked: CheckedCall,
    policy: ToolPolicy | None,
    wall: Callable[[], float],
) -> Failure | None:
    if isinstance(answer, UpstreamFault):
        return fault_failure(answer)
    if policy is None:
        return classify(answer, wall(), sent=checked.value)
    return classify(answer, wall(), policy.check, checked.value, policy.feedback)


def _denied(rules: ResendPolicy, resent: int, left: float, upstream: GuardedUpstream) -> Denied | None:
    """What stands against one more resend; the budget is asked last, because asking takes."""
    if resent >= rules.max_resends:
        return Denied.MAX
    if left <= 0:
        return Denied.DEADLINE
    return None if upstream.grants_resend() else Denied.BUDGET


def _is_unsent(answer: UpstreamReply | UpstreamFault) -> bool:
    return isinstance(answer, UpstreamFault) and answer.executed is Executed.NO

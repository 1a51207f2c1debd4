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
from typing import Final

from proxy.core.backoff import Denied, keyed_headers, pause, reason_to_resend, told_to_wait
from proxy.core.classify import classify, fault_failure, is_success
from proxy.core.model import CheckedCall, Executed, Failure, UpstreamFault, UpstreamReply
from proxy.core.policy import ResendPolicy, ToolPolicy
from proxy.interfaces import CallRecord, GuardedUpstream, Services, UpstreamRequest
from proxy.upstream.stream import close_body
from proxy.upstream.traced import traced

_OF_NO_TOOL: Final = ResendPolicy()


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
    rules = policy.resend if policy is not None else _OF_NO_TOOL
    clock, upstream = services.clock, services.upstreams[request.upstream]
    trace, keyed, may_have_run = record.trace, False, False
    if rules.key_header:
        headers, keyed = keyed_headers(request.headers, rules, services.pacing.fresh_key)
        request = replace(request, headers=headers)
    started, record.upstream = clock.now(), request.upstream
    due = started + (request.timeout if rules.deadline is None else rules.deadline)
    traced_send = None if trace is None else traced(partial(upstream.send, checked), trace, clock.now)
    while True:
        if record.resends or rules.deadline is not None:  # else all of its time is left to it
            request = _within(request, due - clock.now())
        answer = await (upstream.send(checked, request) if traced_send is None else traced_send(request))
        if isinstance(answer, UpstreamReply) and is_success(answer):
            record.upstream_seconds, record.upstream_status = clock.now() - started, answer.status
            return answer
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
    return _ended(answer, failure, record)


def _ended(
    answer: UpstreamReply | UpstreamFault, failure: Failure | None, record: CallRecord
) -> UpstreamReply | Failed:
    """What became of a call that nobody sends once more."""
    if isinstance(answer, UpstreamFault):
        record.upstream_error = answer.token
        return Failed(fault_failure(answer, len(record.resends) + 1), None)
    record.upstream_status = answer.status
    return answer if failure is None else Failed(failure, answer)


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

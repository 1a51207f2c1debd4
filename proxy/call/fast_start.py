"""Runs the stages of a call at once as far as none of them has to wait: `start_call`. Worth 15 % of a clean call, with
`server/http/fast_call.py`.

The stages are those of `run.py`, in its order. Where the call has gone out to its tool, `start_call` gives a
`SentCall`, whose answer can be delivered without a task; where a stage has to wait, or the call is refused, a
`WaitingCall`, which goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from proxy.call.context import ApprovedCall, CallContext, approve_call, open_context, record_call
from proxy.call.judging import Judged, judge_call
from proxy.call.outcome import deliver_now, has_failed_before
from proxy.call.run import conclude_call, follow_verdict, make_request, run_context, send_call
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import Delivered, Forward, Outcome, ToolCall, UpstreamReply
from proxy.interfaces import CallRecord, CallRoute, Services
from proxy.upstream.resending import FirstSend, start_send


def _do_nothing() -> None:
    pass


class WaitingCall:
    """A call whose next stage has to wait. `wait` gives the coroutine of its outcome; `abort` is called in its place
    where nobody wants the outcome any more."""

    __slots__ = ("abort", "wait")

    def __init__(
        self, wait: Callable[[], Coroutine[Any, Any, Outcome]], abort: Callable[[], object] = _do_nothing
    ) -> None:
        self.wait: Final = wait
        self.abort: Final = abort


class SentCall:
    """A call that has gone out to its tool."""

    __slots__ = ("_approved", "_context", "_first", "_tool")

    def __init__(self, context: CallContext, approved: ApprovedCall, tool: ToolPolicy | None, first: FirstSend) -> None:
        self._context: Final = context
        self._approved: Final = approved
        self._tool: Final = tool
        self._first: Final = first

    def deliver(self) -> Delivered | None:
        """The tool's answer, where it is a whole success and delivering it waits for nothing; else `wait` goes on.
        Called once, when the exchange is ready."""
        context, tool = self._context, self._tool
        reply = self._first.take_success(context.services.clock, context.record)
        if reply is None or (tool is not None and tool.answer is not None):
            return None
        return deliver_now(context, self._approved, reply, tool)

    def wait(self) -> Coroutine[Any, Any, Outcome]:
        """The outcome of the call, by the stages that wait."""
        return _send(self._context, self._approved, self._first)

    def abort(self) -> None:
        """Ends the exchange: the client has gone."""
        self._first.exchange.abort()


def start_call(
    call: ToolCall, call_route: CallRoute, services: Services, record: CallRecord, on_ready: Callable[[], None]
) -> SentCall | WaitingCall:
    """Runs a call until it has gone out, or until something has to wait. `on_ready` is called once when there is
    something for `SentCall.deliver`."""
    context = open_context(call, call_route, services, record)
    record_call(context)
    waits = services.hooks is not None or services.corrector is not None or services.limiter is not None
    if waits or call_route.calls is not None or has_failed_before(context):
        return WaitingCall(partial(run_context, context))
    policy, judge, started = context.policy, services.second_judge, services.clock.now()
    judged = judge_call(context)
    if (
        not isinstance(judged, Judged)
        or not isinstance(judged.decision, Forward)
        or policy is None
        or policy.cap.limit is not None
        or (judge is not None and judge.asks_first)
    ):
        abort = _do_nothing if isinstance(judged, Judged) else judged.close
        return WaitingCall(partial(_follow, context, judged, started), abort)
    seconds = services.clock.now() - started
    approved = approve_call(context, judged.decision.checked, judged.container_event, seconds)
    if judge is not None:
        judge.sample(record.route, approved.checked, policy)
    return _start_sending(context, approved, on_ready) or WaitingCall(partial(_send, context, approved))


def _start_sending(context: CallContext, approved: ApprovedCall, on_ready: Callable[[], None]) -> SentCall | None:
    """Sends an approved call, where it can go out at once."""
    request = make_request(context, approved)
    if isinstance(request, UpstreamReply):
        return None
    tool = context.call_route.tools.get(approved.checked.call.tool)
    first = start_send(approved.checked, request, tool, context.services, context.record, on_ready)
    return None if first is None else SentCall(context, approved, tool, first)


def _follow(
    context: CallContext, judged: Judged | Coroutine[Any, Any, Judged], started: float
) -> Coroutine[Any, Any, Outcome]:
    return conclude_call(context, follow_verdict(context, judged, started))


def _send(context: CallContext, approved: ApprovedCall, first: FirstSend | None = None) -> Coroutine[Any, Any, Outcome]:
    return conclude_call(context, send_call(context, approved, first))

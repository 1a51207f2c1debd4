"""What the operator's hooks may do to a call. Nothing here runs where none are configured.

On a report-only route a hook may still refuse or answer a call (it is the operator's own rule, not the schema's), but
the arguments stay the client's.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from proxy.call.context import ApprovedCall, CallContext, PendingFailure, record_delivery
from proxy.call.outcome import check_answer, deliver_answer
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import CheckedCall, Decision, Delivered, Failure, Outcome, Reject, ToolCall, UpstreamReply
from proxy.interfaces import Hooks
from proxy.upstream.faults import close_body


async def admit_call(hooks: Hooks, context: CallContext) -> CallContext | Delivered | PendingFailure:
    """The call as it is to be judged, or what hooks make of it before that."""
    match await hooks.before_decision(context.call, context.call_route, context.record):
        case ToolCall() as call:
            return context if call is context.call or context.report_only else replace(context, call=call)
        case UpstreamReply() as reply:
            calls = context.call_route.calls
            if calls is not None and (denied := calls.refuse_answer(context.call)) is not None:
                return PendingFailure(denied, "refused", context.opening)
            tool = None if context.policy is None else context.call_route.tools.get(context.policy.tool)
            unfit = (
                None if tool is None or tool.answer is None else check_answer(context, tool.answer, reply, own=False)
            )
            if unfit is not None:
                return PendingFailure(unfit, "refused", context.opening)
            record_delivery(context.record, "answered")
            return Delivered(reply)
        case Failure() as failure:
            return PendingFailure(failure, "refused", context.opening)


async def tell_decision(hooks: Hooks, context: CallContext, decision: Decision) -> Decision:
    """Passes the decision to the hooks. Returns the final decision: a refusal where a required hook failed."""
    failure = await hooks.after_decision(context.call, decision, context.call_route, context.record)
    return decision if failure is None or isinstance(decision, Reject) else Reject(failure)


async def replace_answer(
    hooks: Hooks, context: CallContext, checked: CheckedCall, reply: UpstreamReply
) -> UpstreamReply | Failure:
    """The answer as hooks leave it. One that takes another's place ends a stream that nobody reads any more."""
    found = await hooks.after_answer(checked, reply, context.call_route, context.record)
    if found is not reply:
        await close_body(reply)
    return found


async def deliver_by_hooks(
    hooks: Hooks, context: CallContext, approved: ApprovedCall, answer: UpstreamReply, tool: ToolPolicy | None
) -> Delivered | PendingFailure:
    """The tool's answer by way of the hooks, which may replace it: what goes on keeps what the tool promises."""
    shown = await replace_answer(hooks, context, approved.checked, answer)
    if isinstance(shown, Failure):
        return PendingFailure(shown, "tool_error", approved.repairs)
    promised = None if tool is None else tool.answer
    unfit = None if promised is None else check_answer(context, promised, shown, own=shown is answer)
    if unfit is not None:
        return PendingFailure(unfit, "tool_error", approved.repairs)
    return await deliver_answer(context, approved, shown, tool)


async def tell_outcome(hooks: Hooks, context: CallContext, run: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Lets the call run, and tells hooks what became of it; None where its client has gone. One that goes meanwhile
    leaves no answer open."""
    outcome: Outcome | None = None
    try:
        outcome = await run
    finally:
        try:
            await hooks.after_outcome(context.call, outcome, context.call_route, context.record)
        except BaseException:
            if isinstance(outcome, Delivered):
                await close_body(outcome.reply)
            raise
    return outcome

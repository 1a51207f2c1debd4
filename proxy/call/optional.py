"""The stages of a call that run only if the config requests them. They are the operator's hooks, the filters of
answers, the limits of its tool, and the correction of a failed call by a model.

On a report-only route a hook may still refuse or answer a call (it is the operator's own rule, not the schema's), but
the arguments stay the client's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Protocol

from proxy.call.context import (
    CallContext,
    PendingFailure,
    record_correction,
    record_delivery,
    record_hooks,
)
from proxy.call.outcome import check_answer, deliver_answer, hand_on_error, name_unshown
from proxy.core.contract import refusals
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import CheckedCall, Delivered, Failure, Outcome, ToolCall, UpstreamReply
from proxy.driver import IN_TASK
from proxy.interfaces import AnswerFilter, FailedCall, HookNotes, Hooks
from proxy.upstream.faults import EndingStream, close_body


class Send(Protocol):
    """Sends a call that may be sent."""

    async def __call__(self, context: CallContext, checked: CheckedCall) -> Delivered | PendingFailure: ...


# --- hooks ------------------------------------------------------------------------------------------------------------
async def admit_call(hooks: Hooks, context: CallContext) -> CallContext | Delivered | PendingFailure:
    """The call as it is to be judged, or what hooks make of it before that."""
    match await hooks.before_decision(context.call):
        case ToolCall() as call:
            return context if call is context.call or context.report_only else replace(context, call=call)
        case UpstreamReply() as reply:
            calls = context.call_route.calls
            denied = None if calls is None else calls.refuse_answer(context.call)
            tool = None if context.policy is None else context.call_route.tools.get(context.policy.tool)
            if denied is None and tool is not None and tool.answer is not None:
                denied = check_answer(context, tool.answer, reply, own=False)
            if denied is not None:
                return PendingFailure(denied, "refused", context.opening)
            record_delivery(context.record, "answered")
            return Delivered(reply)
        case Failure() as failure:
            return PendingFailure(failure, "refused", context.opening)


async def deliver_by_hooks(
    hooks: Hooks, context: CallContext, checked: CheckedCall, answer: UpstreamReply, tool: ToolPolicy | None
) -> Delivered | PendingFailure:
    """Runs the hooks on the tool's answer, which they may replace; a forwarded answer keeps the tool's promises."""
    shown = await hooks.after_answer(checked, answer)
    if shown is not answer and (isinstance(shown, Failure) or isinstance(shown.body, bytes)):
        await close_body(answer)  # a stream that nobody reads any more: another stream repeats it
    if isinstance(shown, Failure):
        return PendingFailure(shown, name_unshown(shown), context.record.repairs)
    promised = None if tool is None else tool.answer
    unfit = None if promised is None else check_answer(context, promised, shown, own=shown is answer)
    if unfit is not None:
        return PendingFailure(unfit, "tool_error", context.record.repairs)
    return await deliver_filtered(context, checked, shown, tool)


async def tell_outcome(hooks: Hooks, context: CallContext, run: Callable[[CallContext], Awaitable[Outcome]]) -> Outcome:
    """Lets the call run, and tells hooks what became of it; None if its client has gone. One that goes in the meantime
    leaves no answer open. Hooks are code of somebody else's, so they run in a task."""
    await IN_TASK
    outcome: Outcome | None = None
    try:
        outcome = await run(context)
    finally:
        try:
            await hooks.after_outcome(context.call, outcome)
        except BaseException:
            if isinstance(outcome, Delivered):
                await close_body(outcome.reply)
            raise
        finally:
            record_hooks(context.record, hooks.notes)
    return outcome


# --- filters of answers -----------------------------------------------------------------------------------------------
def list_filters(context: CallContext, tool: ToolPolicy | None) -> Sequence[AnswerFilter]:
    """The filters of the answers of a tool."""
    answers = context.services.answers
    return [each for each in answers if each.is_on(tool)] if answers and tool is not None else ()


async def deliver_filtered(
    context: CallContext,
    checked: CheckedCall,
    reply: UpstreamReply,
    tool: ToolPolicy | None,
    error: Failure | None = None,
) -> Delivered | PendingFailure:
    """The tool's answer by way of its filters. `error`: the answer is the tool's own error."""
    if tool is not None:
        for each in list_filters(context, tool):
            made = await each.filter(checked, reply, tool, context.call_route, context.record)
            if isinstance(made, Failure):
                return PendingFailure(made, name_unshown(made), context.record.repairs)
            reply = made
    if error is not None:
        return hand_on_error(context, checked, reply, error)
    return await deliver_answer(context, checked, reply, tool)


# --- limits -----------------------------------------------------------------------------------------------------------
async def send_within_cap(
    context: CallContext, checked: CheckedCall, policy: ToolPolicy, send: Send
) -> Delivered | PendingFailure:
    """Takes the call's slot of its cap, if it has one, and gives it back unless the call is delivered."""
    store, call = context.services.store, checked.call
    slot = refusals.make_reservation(call, policy)
    if slot is None:
        return await send(context, checked)
    await IN_TASK
    if await store.reserve(slot.key, slot.limit, slot.ttl) is None:
        return PendingFailure(refusals.make_cap_failure(call, slot), "refused", context.record.repairs)
    result: Delivered | PendingFailure | None = None
    try:
        result = await send(context, checked)
        return result
    finally:
        if not isinstance(result, Delivered) or result.failed:
            await store.release(slot.key)


async def send_within_limits(context: CallContext, checked: CheckedCall, send: Send) -> Delivered | PendingFailure:
    """Sends a call unless a limit of its tool refuses it. It is under way until its answer ends."""
    limiter, tool = context.services.limiter, context.call_route.tools.get(checked.call.tool)
    if limiter is None or tool is None or tool.limits is None:
        return await send(context, checked)
    await IN_TASK
    end = await limiter.admit(checked, tool.limits, context.call_route)
    if isinstance(end, Failure):
        return PendingFailure(end, "refused", context.record.repairs)
    if end is None:
        return await send(context, checked)
    result: Delivered | PendingFailure | None = None
    try:
        result = await send(context, checked)
    finally:
        if not isinstance(result, Delivered) or isinstance(result.reply.body, bytes):
            end()
    if isinstance(result, Delivered) and not isinstance(result.reply.body, bytes):
        return replace(result, reply=replace(result.reply, body=EndingStream(result.reply.body, end)))
    return result


# --- correction (layers 3 and 4) --------------------------------------------------------------------------------------
def may_correct(context: CallContext) -> bool:
    """Returns whether a corrector may be asked for a better call."""
    policy, corrector = context.policy, context.services.corrector
    is_on = corrector is not None and policy is not None and corrector.is_on(policy)
    return is_on and not context.report_only


async def correct_call(
    context: CallContext,
    pending: PendingFailure,
    attempt: Callable[[CallContext], Awaitable[Delivered | PendingFailure]],
) -> Delivered | PendingFailure:
    """Returns the outcome of a corrected call, or the original failure; another failure only if a corrected call may
    have run. A corrected call goes the way of every other (`attempt`). If none succeeds, the record keeps only which
    questions were asked."""
    corrector, policy, record = context.services.corrector, context.policy, context.record
    if corrector is None or policy is None or not may_correct(context) or policy.container is not None:
        return pending  # what a container was called with belongs to one of its functions
    await IN_TASK
    if not corrector.asks_again(policy):
        episode = await context.services.store.look(context.key, if_known=True)
        if episode is not None and episode.times(context.digest) > 0:
            return pending  # the same arguments failed before: a model has nothing new to work with
    before, started, latest = copy(record), context.services.clock.now(), pending
    notes = HookNotes() if context.hooks is None else context.hooks.notes
    hooks_before, answered_by = notes.seconds, notes.answered_by

    async def try_call(call: ToolCall) -> Delivered | Failure:
        nonlocal latest
        result = await attempt(replace(context, call=call))
        if isinstance(result, PendingFailure):
            latest = result
            return result.failure
        if result.failed and result.reply.status < 500:
            await close_body(result.reply)  # the corrector will not have it
        return result

    failed = FailedCall(context.call, pending.failure, policy, context.call_route, record)
    found = await corrector.correct(failed, try_call)
    waited = context.services.clock.now() - started - (notes.seconds - hooks_before)
    if found is not None:  # the time that the tool took is in the record by itself
        waited -= record.upstream_seconds - before.upstream_seconds
    if found is None:
        notes.answered_by = answered_by  # what a hook answered in the place of a corrected call has reached nobody
    record_correction(record, before, waited, found=found is not None)
    if isinstance(found, Delivered):
        return found
    return pending if found is None else latest

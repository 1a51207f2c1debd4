"""ONE CALL, IN ORDER: from the decoded call to its outcome. Names no protocol and no library.

`run_call` is the table of contents. The stages are below it in the order in which they run, the longer ones in separate
files. The pure core decides everything; this room asks the store, sends, and notes in the `CallRecord` what happened
(`context.py`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from proxy.call.context import (
    CallContext,
    PendingFailure,
    make_delivered,
    open_context,
    record_approval,
    record_call,
    record_refusal,
)
from proxy.call.judging import Judged, forward_unjudged, judge_call, sample_call
from proxy.call.optional import (
    admit_call,
    correct_call,
    deliver_by_hooks,
    deliver_filtered,
    list_filters,
    may_correct,
    send_within_cap,
    send_within_limits,
    tell_outcome,
)
from proxy.call.outcome import check_answer, count_tool_error, deliver_answer, recall_failures, refuse_call
from proxy.call_record import CallRecord
from proxy.core.contract import container
from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import (
    CheckedCall,
    Delivered,
    Failure,
    Outcome,
    Reject,
    ToolCall,
    ToolResult,
    UpstreamReply,
)
from proxy.driver import IN_TASK
from proxy.interfaces import CallRoute, Services, UpstreamRequest
from proxy.upstream.faults import close_body
from proxy.upstream.sending import FailedSend, send_with_backoff

_JSON: Final = (("Content-Type", "application/json"),)


def run_call(
    call: ToolCall, call_route: CallRoute, services: Services, record: CallRecord
) -> Coroutine[Any, Any, Outcome]:
    """Returns the outcome of a call: the tool's answer, or an explanation for the model. Fills `record` on the way.

    Gives the coroutine to await: without hooks, another one around it would do nothing. A clean call needs no task
    (`proxy/driver.py`): the stages that do say so."""
    context = open_context(call, call_route, services, record)
    record_call(record, context.call, context.policy, context.opening)
    return _run(context) if context.hooks is None else tell_outcome(context.hooks, context, _run)


async def _run(context: CallContext) -> Outcome:
    if context.call_route.calls is not None and (denied := context.call_route.refuse_hidden(context.call.tool)):
        return await refuse_call(context, PendingFailure(denied, "refused", context.opening))
    if context.has_failed_before():
        recalled = await recall_failures(context)
        if isinstance(recalled, ToolResult):
            return recalled
        context = recalled
    result = context if context.hooks is None else await admit_call(context.hooks, context)
    if isinstance(result, CallContext):
        context = result
        result = await _judge_and_send(context)
        if isinstance(result, PendingFailure) and context.services.corrector is not None:
            result = await correct_call(context, result, _run_corrected)
        if isinstance(result, PendingFailure) and result.answered is not None:  # its own answer says it
            checked, answer = result.answered
            record_approval(context, checked)  # a correction may have tried other calls
            result = await _check_and_deliver(context, checked, answer)
    return await refuse_call(context, result) if isinstance(result, PendingFailure) else result


async def _run_corrected(context: CallContext) -> Delivered | PendingFailure:
    """A corrected call passes the same stages as a new one."""
    result = context if context.hooks is None else await admit_call(context.hooks, context)
    return await _judge_and_send(result) if isinstance(result, CallContext) else result


async def _judge_and_send(context: CallContext) -> Delivered | PendingFailure:
    services, policy, record = context.services, context.policy, context.record
    started = services.clock.now()
    try:
        judged = judge_call(context)
        if not isinstance(judged, Judged):
            await IN_TASK
            judged = await judged()
    except Exception as error:  # noqa: BLE001 - a defect of ours, which raises it again unless the call is only counted
        judged = forward_unjudged(context, error)
    decision, record.stages["decide"] = judged.decision, services.clock.now() - started
    if context.hooks is not None:
        decision = await context.hooks.after_decision(context.call, decision)
    if isinstance(decision, Reject):
        record_refusal(context, judged.container_event)
        return PendingFailure(decision.failure, "refused", context.opening)
    checked = decision.checked
    record_approval(context, checked, judged.container_event)
    if (calls := context.call_route.calls) is not None and (denied := calls.refuse_call(checked)):
        return PendingFailure(denied, "refused", record.repairs)
    sample_call(context, checked)
    if services.confirm is not None and policy is not None:
        await IN_TASK
        failure = await services.confirm(record.route, checked, policy)
        if failure is not None:
            return PendingFailure(failure, "refused", record.repairs)
    send = send_call if services.limiter is None or context.report_only else partial(send_within_limits, send=send_call)
    if policy is None or policy.cap.limit is None or context.report_only:
        return await send(context, checked)
    return await send_within_cap(context, checked, policy, send)


# --- the way to the tool ----------------------------------------------------------------------------------------------
def make_request(context: CallContext, checked: CheckedCall) -> UpstreamRequest | UpstreamReply:
    """Makes the request for a checked call, or the proxy's own answer: a container's functions, or its arguments."""
    policy = context.policy
    if policy is not None and policy.tool == checked.call.tool:
        group = policy.container
        if group is not None and group.expand == "proxy":
            is_misuse = context.record.container_event == "auto_expanded"
            return UpstreamReply(200, _JSON, dumps(container.make_expansion(group, is_misuse, checked.value)))
        if policy.answers_here is not None:
            return UpstreamReply(200, _JSON, dumps(policy.answers_here(checked.value)))
    return context.call_route.request(checked) or UpstreamReply(200, _JSON, checked.arguments or b"{}")


async def send_call(context: CallContext, checked: CheckedCall) -> Delivered | PendingFailure:
    """Sends the call to its tool, and says what became of it."""
    request, record = make_request(context, checked), context.record
    tool = context.call_route.tools.get(checked.call.tool)
    if isinstance(request, UpstreamReply):
        return await deliver_answer(context, checked, request, tool)
    if context.hooks is not None:
        adjusted = await context.hooks.before_forward(checked, request)
        if isinstance(adjusted, Failure):
            return PendingFailure(adjusted, "refused", record.repairs)
        request = adjusted
    if context.services.answers:
        for each in list_filters(context, tool):
            request = each.prepare(request, context.call_route)
    answer = await send_with_backoff(checked, request, tool, context.services, record)
    try:
        if isinstance(answer, UpstreamReply):
            is_correctable = context.services.corrector is not None and may_correct(context)
            if is_correctable and (complaint := context.call_route.find_complaint(checked, answer)) is not None:
                return PendingFailure(complaint, "tool_error", record.repairs, (checked, answer))
            return await _check_and_deliver(context, checked, answer)
        return await _end_failed_send(context, checked, answer, tool)
    except BaseException:  # the client has gone: nobody reads the answer
        if (reply := answer if isinstance(answer, UpstreamReply) else answer.reply) is not None:
            await close_body(reply)
        raise


async def _end_failed_send(
    context: CallContext, checked: CheckedCall, failed: FailedSend, tool: ToolPolicy | None
) -> Delivered | PendingFailure:
    """Returns what becomes of a call that its tool did not serve."""
    if failed.reply is None:
        return PendingFailure(failed.failure, "upstream_error", context.record.repairs)
    if context.report_only:  # the tool's own error arrives
        return await deliver_filtered(context, checked, failed.reply, tool)
    if tool is not None and tool.upstream_errors.is_handed_on(failed.reply.status):
        await count_tool_error(context, failed.failure)
        return await deliver_filtered(context, checked, failed.reply, tool, failed.failure)
    await close_body(failed.reply)
    return PendingFailure(failed.failure, "tool_error", context.record.repairs)


async def _check_and_deliver(
    context: CallContext, checked: CheckedCall, answer: UpstreamReply
) -> Delivered | PendingFailure:
    """Hands on an answer that means success, if it is what the tool promises."""
    tool = context.call_route.tools.get(checked.call.tool)
    if context.hooks is not None:
        return await deliver_by_hooks(context.hooks, context, checked, answer, tool)
    if tool is not None and tool.answer is not None and (unfit := check_answer(context, tool.answer, answer)):
        return PendingFailure(unfit, "tool_error", context.record.repairs)
    if context.services.answers:
        return await deliver_filtered(context, checked, answer, tool)
    is_plain = context.policy is None or context.policy.container is None
    if is_plain and not context.services.store.is_known(context.key):  # there is nothing to end
        return make_delivered(context, checked, answer, tool)
    return await deliver_answer(context, checked, answer, tool)

"""The endings of a call: the tool's answer, the tool's own error passed on, or an explanation for the model.

Each ending is written into the `CallRecord` and, where the retry contract asks for it, into the store.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from proxy.call.context import (
    CallContext,
    PendingFailure,
    make_delivered,
    open_context,
    record_answer,
    record_call,
    record_escalation,
    record_result,
    record_tool_error,
)
from proxy.call_record import CallRecord
from proxy.core.contract import attempts as contract
from proxy.core.contract import container, refusals
from proxy.core.contract.policy import AnswerPolicy, ToolPolicy
from proxy.core.explain.advice import add_advice
from proxy.core.model import codes
from proxy.core.model.values import (
    CheckedCall,
    Delivered,
    FailedAttempt,
    Failure,
    FailureRecorded,
    FeedbackLimits,
    ToolCall,
    ToolResult,
    UpstreamReply,
)
from proxy.core.tool_errors.answers import find_broken_answer
from proxy.core.tool_errors.classify import make_unfit_failure
from proxy.interfaces import CallRoute, Services

# How long the first failure of a turn waits for the others, so that parallel calls count as one attempt, in seconds. A
# model takes far longer to read an answer and to make another call.
_GATHERING: Final = 0.01


async def recall_failures(context: CallContext) -> CallContext | ToolResult:
    """Returns an answer that earlier failures already decide; otherwise the call, with the attempts it has `seen`. A
    clean call waits for no shared store."""
    store, policy = context.services.store, context.counted_by
    episode = await store.look(context.key, if_known=not contract.asks_first(policy))
    known = None if episode is None else contract.look_up_attempt(context.call, episode, context.digest, policy)
    if known is None and not context.report_only and context.counts_tool_errors:
        known = await _recall_tool_errors(context)
        if known is not None:
            return known
    if known is None or context.report_only:
        return context if episode is None else replace(context, seen=episode.count)
    record_result(context.record, known, "refused")
    return known


async def _recall_tool_errors(context: CallContext) -> ToolResult | None:
    """The answer in place of a call whose tool has refused or failed too often. Only if this process has counted an
    error of the tool is there anything to ask the store."""
    store, policy, errors = context.services.store, context.counted_by, context.key + refusals.TOOL_ERRORS
    if await store.count_taken(errors, enough=0) == 0:
        return None
    cause = refusals.make_same_call_key(context.key, context.digest)
    known = refusals.refuse_repeated_call(context.call, await store.look(cause), policy)
    if known is None and policy.attempts.tool_errors.limit is not None:
        cause = errors
        known = refusals.refuse_over_budget(context.call, await store.look(errors), policy)
    if known is None:
        return None
    key = refusals.make_blocked_key(cause)
    blocked = FailedAttempt(context.digest, known.history[-refusals.BLOCKED_LINES :])
    recorded = await store.fail(key, blocked, contract.find_ttl(context.came.conversation, policy))
    known = replace(known, attempt=refusals.read_standing(key, recorded.episode, policy.attempts))
    record_result(context.record, known, "refused")
    if recorded.episode.failed == 1:  # the first such call is the escalation
        _escalate(context, known)
    return known


def _escalate(context: CallContext, result: ToolResult) -> None:
    """Reports an escalation. Its later answers, to calls that change nothing, are not reported again."""
    record_escalation(context.record)
    context.services.escalated(result, context.record)


async def count_tool_error(context: CallContext, failure: Failure) -> None:
    """Remembers an error of the tool itself: of the same call, and of all its calls where those have a budget."""
    store, policy = context.services.store, context.policy
    if policy is None or context.report_only or not context.counts_tool_errors:
        return
    errors, budget = context.key + refusals.TOOL_ERRORS, policy.attempts.tool_errors
    error = FailedAttempt(context.digest, contract.write_tool_error(failure))
    if refusals.is_refusal(failure):
        await store.reserve(errors, refusals.MOST_ERRORS, max(refusals.SAME_CALL_TTL, budget.window))
        same = refusals.make_same_call_key(context.key, context.digest)
        await _add_tool_error(context, same, error, refusals.SAME_CALL_TTL)
    if budget.limit is not None:
        await store.reserve(errors, refusals.MOST_ERRORS, max(refusals.SAME_CALL_TTL, budget.window))
        await _add_tool_error(context, errors, error, budget.window)


async def _add_tool_error(context: CallContext, key: str, error: FailedAttempt, ttl: float) -> None:
    """Remembers an error of the tool. If the errors begin again, so does their escalation."""
    recorded = await context.services.store.fail(key, error, ttl)
    if recorded.episode.failed == 1:
        await context.services.store.clear(refusals.make_blocked_key(key), forget=True)


async def refuse_call(context: CallContext, pending: PendingFailure) -> ToolResult:
    """Counts the attempt if the failure is one, and lets the retry contract make the answer of it."""
    failure, recorded = pending.failure, None
    if pending.outcome == "tool_error":
        await count_tool_error(context, failure)
    if contract.raises_attempt(failure) and not context.report_only:
        context, recorded = await _count_attempt(context, failure)
    result = contract.grant_attempt(context.call, failure, recorded, context.counted_by)
    result = add_advice(result, context.policy)
    record_result(context.record, result, pending.outcome)
    if recorded is not None and contract.uses_up_attempts(recorded, context.counted_by):
        _escalate(context, result)
    write_extra = context.services.extra_lines
    extra = () if write_extra is None else write_extra(context.call.tool, failure)
    return replace(result, repairs=pending.repairs, extra=extra) if pending.repairs or extra else result


async def refuse_unread_call(
    call: ToolCall, failure: Failure, call_route: CallRoute, services: Services, record: CallRecord
) -> ToolResult:
    """The answer to a call whose arguments could not be read, although its tool is known; counted like any other."""
    context = open_context(call, call_route, services, record)
    record_call(record, context.call, context.policy, context.opening)
    if context.has_failed_before():
        recalled = await recall_failures(context)
        if isinstance(recalled, ToolResult):
            return recalled
        context = recalled
    return await refuse_call(context, PendingFailure(failure, "refused"))


async def _count_attempt(context: CallContext, failure: Failure) -> tuple[CallContext, FailureRecorded | None]:
    """Counts a failed call; gives the call as it is to be answered, which may be that of the next rung's conversation:
    a trace in which nothing failed before tells nothing of what its client did."""
    store, policy, came = context.services.store, context.counted_by, context.came
    conversation, other = came.conversation, came.conversation.otherwise
    if not contract.is_counted(conversation, policy):
        return context, None
    if contract.may_be_parallel(conversation, policy):
        clock = context.services.clock
        began = clock.now()
        await context.services.pacing.sleep(_GATHERING)
        context.record.stages["gather"] = clock.now() - began
    attempt = contract.make_failed_attempt(failure, context.digest, contract.find_resend_id(came), context.seen)
    recorded = await store.fail(context.key, attempt, contract.find_ttl(conversation, policy))
    if other is None or recorded.episode.failed > 1 or not contract.is_counted(other, policy):
        return context, recorded
    key, ttl = contract.make_attempt_key(other, came.tool, policy, context.digest), contract.find_ttl(other, policy)
    by_next = await store.fail(key, replace(attempt, seen=None), ttl)
    return replace(context, call=replace(context.call, conversation=other)), by_next


async def count_expansion(context: CallContext, failure: Failure) -> None:
    """An expansion in place of a misuse is an attempt: the next misuse of the episode is refused."""
    conversation, policy = context.came.conversation, context.counted_by
    if contract.is_counted(conversation, policy) and not context.report_only:
        came = context.came
        attempt = contract.make_failed_attempt(failure, context.digest, contract.find_resend_id(came), context.seen)
        await context.services.store.fail(context.key, attempt, contract.find_ttl(conversation, policy))


def check_answer(
    context: CallContext, promised: AnswerPolicy, reply: UpstreamReply, *, own: bool = True
) -> Failure | None:
    """Returns why a successful answer is not handed on, by what the tool has `promised`; None if it is. The model is
    not to blame, so it costs no attempt. An answer that is a hook's, not the tool's `own`, is never handed on broken,
    whatever the operator says of the tool's."""
    broken = find_broken_answer(reply, promised)
    if broken and (not own or (promised.enforce and not context.report_only)):
        record_answer(context.record, "refused", broken)
        return make_unfit_failure(broken)
    record_answer(context.record, "unread" if broken is None else "broken" if broken else "passed", broken or ())
    return None


def name_unshown(failure: Failure) -> str:
    """The outcome of a call whose answer does not reach its client: the operator's rules withhold it, or the tool or
    its connection is at fault."""
    if failure.code in (codes.ANSWER_TOO_LARGE, codes.CALL_NOT_ALLOWED, codes.HOOK_FAILED):
        return "withheld"
    return "tool_error" if failure.code is codes.UPSTREAM_UNFIT_ANSWER else "upstream_error"


def hand_on_error(context: CallContext, checked: CheckedCall, reply: UpstreamReply, failure: Failure) -> Delivered:
    """The tool's own error, untouched: it neither raises the attempts nor ends them, and takes no slot of a cap."""
    record_tool_error(context.record, failure)
    limits = FeedbackLimits() if context.policy is None else context.policy.feedback
    return Delivered(reply, context.record.repairs, checked.warnings, failed=True, limits=limits)


async def deliver_answer(
    context: CallContext, checked: CheckedCall, reply: UpstreamReply, tool: ToolPolicy | None
) -> Delivered:
    """The tool answered: the attempts of this call are over, and a container that was called is expanded. `tool` is the
    policy of the tool that was called."""
    policy, store = context.policy, context.services.store
    ended, event = None, ""
    # A misused container ends no attempts, being one.
    if reply.status < 300 and context.record.container_event != "auto_expanded" and store.is_known(context.key):
        ended = await store.clear(context.key)
    group = None if policy is None else policy.container
    if policy is not None and group is not None and checked.call.tool == context.call.tool:
        event = "expanded"
        if group.require_expansion:
            key = container.make_expansion_key(context.call.conversation, group.name)
            await store.reserve(key, container.MOST_EXPANSIONS, policy.attempts.ttl)
    return make_delivered(context, checked, reply, tool, ended, event)

"""The decision about one call, from the pure core and from what the store knows of containers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from proxy.call.context import CallContext
from proxy.call.elsewhere import decide_here
from proxy.call.outcome import count_expansion
from proxy.core.contract import container
from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide, forward_unjudged, is_ready, prepare
from proxy.core.explain.explain import explain_unknown_tool
from proxy.core.model.values import Decision, Failure, Forward, Reject, ToolCall, value_class


@value_class
class Judged:
    """A decision, and the event around a container: one of `container.EVENTS`, or ''."""

    decision: Decision
    container_event: str = ""


def judge_call(context: CallContext) -> Judged | Coroutine[Any, Any, Judged]:
    """What `decide` says, once the tool is known and its container (if any) was expanded: the decision, or the
    coroutine that makes it where it has to wait for something."""
    policy = context.policy
    if policy is None:
        failure = explain_unknown_tool(context.call, context.call_route.tools)
        decision = forward_unjudged(context.call, failure) if context.report_only else Reject(failure)
        return Judged(decision, "dotted" if failure.container is not None else "")
    is_plain = policy.member_of is None and policy.container is None and is_ready(policy)
    if is_plain and (here := decide_here(context.call, policy)) is not None:
        return Judged(here)
    return _judge_slowly(context, policy, tried=is_plain)


async def _judge_slowly(context: CallContext, policy: ToolPolicy, *, tried: bool) -> Judged:
    """The decision on a call that may have to wait: for the store, for code to be written, or for a child process."""
    if policy.member_of is not None and (early := await _called_too_early(context, policy)) is not None:
        return Judged(Reject(early), "not_expanded")
    decision = await _decide(context, context.call, policy, tried=tried)
    if isinstance(decision, Reject) and decision.failure.container is not None:
        return await _judge_misuse(context, policy, decision.failure)
    return Judged(decision)


async def _decide(context: CallContext, call: ToolCall, policy: ToolPolicy, *, tried: bool = False) -> Decision:
    """What `decide` says; of a call that would keep others waiting, in a child process. `tried`: this one would."""
    if not is_ready(policy):  # a first call; other calls go on while its code is written
        await asyncio.to_thread(prepare, policy)
    elsewhere = context.services.elsewhere
    return decide(call, policy) if elsewhere is None else await elsewhere.decide(call, policy, tried=tried)


async def _called_too_early(context: CallContext, policy: ToolPolicy) -> Failure | None:
    """Why a function of a container may not be called yet; None for other tools."""
    if policy.member_of is None or context.report_only:
        return None
    key = container.make_expansion_key(context.call.conversation, policy.member_of.name)
    return container.check_expanded(policy, await context.services.store.count_taken(key, enough=1) > 0)


async def _judge_misuse(context: CallContext, policy: ToolPolicy, failure: Failure) -> Judged:
    """A misused container is refused, expanded, or stands for the call of one of its functions."""
    seen_before = await context.services.store.look(context.key) is not None
    match container.expand_or_dispatch(context.call, failure, seen_before):
        case container.Expand(call):
            await count_expansion(context, failure)
            return Judged(await _decide(context, call, policy), "auto_expanded")
        case container.Dispatch(call) as dispatch if (function := context.call_route.tools.get(call.tool)) is not None:
            decision = await _decide(context, call, function)
            if isinstance(decision, Forward):
                return Judged(decision, "dispatched")
            return Judged(Reject(container.make_inner_failure(decision.failure, dispatch, failure.sent)), "refused")
    return Judged(Reject(failure), "refused")

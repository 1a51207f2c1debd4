"""Replaces a failed call by a corrected one (layers 3 and 4). Nothing here runs where no correction is configured.

A corrected call goes the way of every other: hooks admit it, `decide` judges it, its cap and its container count. If no
correction succeeds, the original failure is answered; the record keeps only which questions were asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import replace

from proxy.call.context import CallContext, PendingFailure, record_correction
from proxy.core.model.values import Delivered, Failure, ToolCall
from proxy.interfaces import Stumble
from proxy.upstream.faults import close_body


def may_correct(context: CallContext) -> bool:
    """Whether a corrector may be asked for a better call."""
    policy, corrector = context.policy, context.services.corrector
    is_on = corrector is not None and policy is not None and corrector.is_on(policy)
    return is_on and not context.report_only


async def correct_call(
    context: CallContext,
    pending: PendingFailure,
    attempt: Callable[[CallContext], Awaitable[Delivered | PendingFailure]],
) -> Delivered | PendingFailure:
    """Returns the outcome of a corrected call, or the original failure; another failure only where a corrected call may
    have run."""
    corrector, policy, record = context.services.corrector, context.policy, context.record
    if corrector is None or policy is None or not corrector.is_on(policy) or context.report_only:
        return pending
    if policy.container is not None or (not corrector.asks_again(policy) and await _is_repeated(context)):
        return pending  # what a container was called with belongs to one of its functions
    before, started, latest = copy(record), context.services.clock.now(), pending
    hooks_before = record.stages.get("hooks", 0.0)

    async def try_call(call: ToolCall) -> Delivered | Failure:
        nonlocal latest
        result = await attempt(replace(context, call=call))
        if isinstance(result, PendingFailure):
            latest = result
            return result.failure
        if result.failed and result.reply.status < 500:
            await close_body(result.reply)  # the corrector will not have it
        return result

    found = await corrector.correct(
        Stumble(context.call, pending.failure, policy, context.call_route, record), try_call
    )
    waited = context.services.clock.now() - started - (record.stages.get("hooks", 0.0) - hooks_before)
    if found is not None:  # the time that the tool took stands in the record by itself
        waited -= record.upstream_seconds - before.upstream_seconds
    record_correction(record, before, waited, found=found is not None)
    if isinstance(found, Delivered):
        return found
    return pending if found is None else latest


async def _is_repeated(context: CallContext) -> bool:
    """Whether the same arguments failed before in this episode, so that a model has nothing new to work with."""
    episode = await context.services.store.look(context.key, if_known=True)
    return episode is not None and episode.times(context.digest) > 0

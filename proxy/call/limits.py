"""Sends a call within the limits of its tool: its call cap, and the `limits.rate` and `limits.concurrent` that an
extension keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from proxy.call.context import ApprovedCall, CallContext, PendingFailure
from proxy.core.contract import attempts
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import Delivered, Failure
from proxy.upstream.faults import EndingStream

Send = Callable[[CallContext, ApprovedCall], Awaitable[Delivered | PendingFailure]]


async def send_within_cap(
    context: CallContext, approved: ApprovedCall, policy: ToolPolicy | None, send: Send
) -> Delivered | PendingFailure:
    """Takes the call's slot of its cap, where it has one, and gives it back unless the call is delivered."""
    store, call = context.services.store, approved.checked.call
    slot = None if policy is None else attempts.make_reservation(call, policy)
    if slot is None:
        return await send(context, approved)
    if await store.reserve(slot.key, slot.limit, slot.ttl) is None:
        return PendingFailure(attempts.make_cap_failure(call, slot), "refused", approved.repairs)
    result: Delivered | PendingFailure | None = None
    try:
        result = await send(context, approved)
        return result
    finally:
        if not isinstance(result, Delivered) or result.failed:
            await store.release(slot.key)


async def send_within_limits(context: CallContext, approved: ApprovedCall, send: Send) -> Delivered | PendingFailure:
    """Sends a call unless calls like it come too often, or too many at once. It is under way until its answer ends."""
    limiter, tool = context.services.limiter, context.call_route.tools.get(approved.checked.call.tool)
    if limiter is None or tool is None or tool.limits is None:
        return await send(context, approved)
    end = await limiter.admit(approved.checked, tool.limits, context.call_route)
    if isinstance(end, Failure):
        return PendingFailure(end, "refused", approved.repairs)
    if end is None:
        return await send(context, approved)
    result: Delivered | PendingFailure | None = None
    try:
        result = await send(context, approved)
    finally:
        if not isinstance(result, Delivered) or isinstance(result.reply.body, bytes):
            end()
    if isinstance(result, Delivered) and not isinstance(result.reply.body, bytes):
        return replace(result, reply=replace(result.reply, body=EndingStream(result.reply.body, end)))
    return result

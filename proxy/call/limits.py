"""Sends a call within `limits.rate` and `limits.concurrent`, where its tool has some and an extension keeps them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from proxy.call.context import ApprovedCall, CallContext, PendingFailure
from proxy.core.model.values import Delivered, Failure
from proxy.upstream.faults import EndingStream

Send = Callable[[CallContext, ApprovedCall], Awaitable[Delivered | PendingFailure]]


async def send_within_limits(context: CallContext, approved: ApprovedCall, send: Send) -> Delivered | PendingFailure:
    """Sends a call unless calls like it come too often, or too many at once. It is under way until its answer ends."""
    limiter, tool = context.services.limiter, context.call_route.tools.get(approved.checked.call.tool)
    if limiter is None or tool is None or tool.limits is None:
        return await send(context, approved)
    end = await limiter.admit(approved.checked, tool.limits, context.call_route, context.record)
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

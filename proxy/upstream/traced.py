"""Spans of upstream requests: each send, resends included, becomes a span and names itself in `traceparent` as the
parent of the upstream's work (W3C Trace Context section 3.4). Without a trace the client's headers stay untouched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from proxy.core.model.tracecontext import write_traceparent
from proxy.core.model.values import Headers, UpstreamFault, UpstreamReply
from proxy.interfaces import Sent, Trace, UpstreamRequest

Answer = UpstreamReply | UpstreamFault
Send = Callable[[UpstreamRequest], Awaitable[Answer]]

_PARENT: Final = "traceparent"
_STATE: Final = "tracestate"


def trace_sends(send: Send, trace: Trace, now: Callable[[], float]) -> Send:
    """`send`, noting in `trace` what was sent and when. `now` is the monotonic clock in seconds."""

    async def sending(request: UpstreamRequest) -> Answer:
        span_id, started = trace.fresh_id(), now()
        answer: Answer | None = None
        try:
            answer = await send(replace(request, headers=_own(request.headers, trace, span_id)))
            return answer
        finally:
            status = answer.status if isinstance(answer, UpstreamReply) else 0
            error = answer.token if isinstance(answer, UpstreamFault) else "" if answer is not None else "client_gone"
            trace.sent.append(
                Sent(span_id, request.method, request.upstream, started, now(), status, error, request.resend)
            )

    return sending


def _own(headers: Headers, trace: Trace, span_id: str) -> Headers:
    """The headers with this span as parent. `tracestate` without a valid parent is dropped (section 3.3)."""
    dropped = (_PARENT,) if trace.parent_id else (_PARENT, _STATE)
    kept = tuple([field for field in headers if field[0] not in dropped])
    return (*kept, (_PARENT, write_traceparent(trace.trace_id, span_id, trace.flags)))

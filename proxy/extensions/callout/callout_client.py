"""Asks one call-out service, within its time, number of questions at once and size of an answer.

The upstream of the service has pooled connections, TLS and a circuit breaker. Nothing is followed or decoded: a
redirect, another status than 200 and a content coding are failures. A question changes nothing, so one that met the end
of an idle connection is sent once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from proxy.core.json.contentcoding import is_coded
from proxy.core.model.value_class import value_class
from proxy.core.model.values import UpstreamFault, UpstreamReply
from proxy.extensions.callout.callout_messages import CalloutAnswer, read_callout_answer
from proxy.extensions.callout.callout_section import CalloutPoint, CalloutSettings
from proxy.interfaces import GuardedUpstream, UpstreamRequest
from proxy.plugin import Label, MetricRow
from proxy.upstream.faults import UNANSWERED, ReplyBroken, close_body

_HEADERS: Final = (
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "toolcall-proxy"),
)


class CalloutFault(StrEnum):
    """The reasons why the answer of a service does not count."""

    TIMEOUT = "timeout"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    WRONG_STATUS = "wrong_status"
    TOO_LARGE = "too_large"
    WRONG_ANSWER = "wrong_answer"
    INVALID_ARGUMENTS = "invalid_arguments"
    NOT_SHOWN = "not_shown"


_MEANING: Final = "The decision of the service, or the reason why there is none."
_ACTIONS: Final = ("allow", "replace", "refuse", "pass", "mask")
_OWN: Final = {
    "callout": Label("The call-out, as the config names it."),
    "point": Label("When it was asked.", tuple(CalloutPoint)),
    "outcome": Label(_MEANING, (*_ACTIONS, *CalloutFault)),
}
COUNTED: Final = MetricRow(
    "toolproxy_callouts_total", "counter", "Questions to call-out services.",
    ("callout", "point", "outcome"), _OWN,
)  # fmt: skip
SECONDS: Final = MetricRow(
    "toolproxy_callout_seconds", "histogram", "How long calls waited for one answer of a call-out service.",
    ("callout", "point"), {name: _OWN[name] for name in ("callout", "point")},
    bounds=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)  # fmt: skip
METRICS: Final = (COUNTED, SECONDS)


@value_class
class CalloutFailure:
    """A question without an answer that counts. `detail` is for the log, and quotes no answer."""

    fault: CalloutFault
    detail: str = ""


class CalloutClient:
    """Asks one service. `count_sent` counts each request by upstream, status and error."""

    def __init__(
        self, settings: CalloutSettings, upstream: GuardedUpstream, count_sent: Callable[[str, int, str], None]
    ) -> None:
        self.settings = settings
        self._upstream = upstream
        self._count_sent = count_sent
        self._places = asyncio.Semaphore(settings.concurrency)
        own = {name for name, _ in settings.sent}
        self._headers = (*(pair for pair in _HEADERS if pair[0] not in own), *settings.sent)

    async def ask(self, question: bytes, point: CalloutPoint) -> CalloutAnswer | CalloutFailure:
        """The answer of the service to one question."""
        has_place = False
        try:
            async with asyncio.timeout(self.settings.timeout), self._places:
                has_place = True
                body = await self._post(question)
        except TimeoutError:
            return CalloutFailure(CalloutFault.TIMEOUT if has_place else CalloutFault.BUSY)
        if isinstance(body, CalloutFailure):
            return body
        answer = read_callout_answer(body, point)
        return CalloutFailure(CalloutFault.WRONG_ANSWER, answer) if isinstance(answer, str) else answer

    async def _post(self, question: bytes) -> bytes | CalloutFailure:
        settings = self.settings
        request = UpstreamRequest(settings.upstream, "POST", settings.path, self._headers, question, settings.timeout)
        reply = await self._send(request)
        if isinstance(reply, UpstreamFault) and reply.token == UNANSWERED.token:
            reply = await self._send(request)
        if isinstance(reply, UpstreamFault):
            return _name_fault(reply)
        try:
            return await _read_body(reply, settings.max_answer)
        except ReplyBroken as broken:
            return _name_fault(broken.fault)
        finally:
            await close_body(reply)

    async def _send(self, request: UpstreamRequest) -> UpstreamReply | UpstreamFault:
        reply = await self._upstream.relay(request, None)
        if isinstance(reply, UpstreamReply):
            self._count_sent(request.upstream, reply.status, "")
        else:
            self._count_sent(request.upstream, 0, reply.token)
        return reply


async def _read_body(reply: UpstreamReply, limit: int) -> bytes | CalloutFailure:
    """The body of an answer that may count."""
    if reply.status != 200:
        return CalloutFailure(CalloutFault.WRONG_STATUS, f"status {reply.status}")
    if is_coded(reply.header("content-encoding")):
        return CalloutFailure(CalloutFault.WRONG_ANSWER, "has a content coding")
    body = bytearray(reply.body if isinstance(reply.body, bytes) else b"")
    if not isinstance(reply.body, bytes):
        async for piece in reply.body:
            body += piece
            if len(body) > limit:
                break
    return CalloutFailure(CalloutFault.TOO_LARGE, f"more than {limit} bytes") if len(body) > limit else bytes(body)


def _name_fault(fault: UpstreamFault) -> CalloutFailure:
    if fault.token.endswith("_timeout"):
        return CalloutFailure(CalloutFault.TIMEOUT, fault.token)
    is_busy = fault.token == "connection_limit_reached"  # noqa: S105 - an error type of RFC 9209
    return CalloutFailure(CalloutFault.BUSY if is_busy else CalloutFault.UNREACHABLE, fault.token)

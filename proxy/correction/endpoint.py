"""Asking the model endpoint: one chat completion, not streamed, bounded in time and size.

It is an upstream like any other (its entry says where it is, how TLS is done, and what is sent along, the API key
among that), and the app gives the way to it: `Exchange`. A redirect, an error status and an endless answer all come to
nothing; nobody waits longer than `timeout`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from proxy.core.contentcoding import Undecodable, decode, is_coded
from proxy.core.correction import Asked, CorrectionSettings
from proxy.core.jsontext import dumps
from proxy.core.model import Headers, JsonValue, UpstreamFault, UpstreamReply
from proxy.interfaces import UpstreamRequest

# Sends a request and reads at most so many bytes of the answer's body; None where there were more.
Exchange = Callable[[UpstreamRequest, int], Awaitable[UpstreamReply | UpstreamFault | None]]

_HEADERS: Final = (
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "toolcall-proxy"),
)


class Endpoint:
    """The model endpoint as the config describes it."""

    def __init__(self, settings: CorrectionSettings, exchange: Exchange) -> None:
        self._settings = settings
        self._exchange = exchange
        own = {name for name, _ in settings.headers}
        self._headers = (*(pair for pair in _HEADERS if pair[0] not in own), *settings.headers)
        self._asking = 0

    def enter(self) -> bool:
        """Takes a place for one question, to be left afterwards; False where all are taken."""
        free = self._asking < self._settings.concurrency
        self._asking += free
        return free

    def leave(self) -> None:
        """Gives a place back."""
        self._asking -= 1

    async def ask(self, messages: Sequence[Mapping[str, str]], seconds: float) -> bytes | Asked:
        """The body of the endpoint's answer, or what came instead of one. `seconds`: how long it may take."""
        settings = self._settings
        body = dumps(request_of(settings, messages))
        request = UpstreamRequest(settings.upstream, "POST", settings.path, self._headers, body, seconds)
        try:
            async with asyncio.timeout(seconds):
                reply = await self._exchange(request, settings.max_answer)
        except TimeoutError:
            return Asked.TIMEOUT
        if reply is None:
            return Asked.TOO_LONG
        if isinstance(reply, UpstreamFault):
            return Asked.TIMEOUT if reply.token.endswith("timeout") else Asked.ENDPOINT
        return _body(reply, settings.max_answer)


def request_of(settings: CorrectionSettings, messages: Sequence[Mapping[str, str]]) -> dict[str, JsonValue]:
    """The request of a chat completion; the operator's own members go before ours, and null takes one away."""
    body: dict[str, JsonValue] = {
        "model": settings.model,
        "messages": [dict(message) for message in messages],
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        **settings.body,
    }
    return {key: value for key, value in body.items() if value is not None}


def _body(reply: UpstreamReply, most: int) -> bytes | Asked:
    if reply.status != 200 or not isinstance(reply.body, bytes):
        return Asked.ENDPOINT
    coding = _header(reply.headers, "content-encoding")
    if not is_coded(coding):
        return reply.body
    decoded = decode(reply.body, coding, most)
    return Asked.UNUSABLE if isinstance(decoded, Undecodable) else decoded


def _header(headers: Headers, name: str) -> str:
    return next((value for key, value in headers if key.lower() == name), "")

"""Asking the model endpoint: one chat completion, not streamed, bounded in time and size.

It is an upstream like any other (its entry says where it is, how TLS is done, and what is sent along, the API key
among that), and the app gives the way to it: `Exchange`. A redirect, an error status and an endless answer all come to
nothing; nobody waits longer than `timeout`.

Questions wait for one of `concurrency` places. Each asks for the best form of answer that the endpoint is not known to
refuse: one that answers 4xx or 501 and names the form in its words is asked once more with the next form, and not with
that one again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.core.contract.correction import AnswerFormat, Asked, CorrectionSettings
from proxy.core.json.contentcoding import Undecodable, decode, is_coded
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Headers, JsonValue, UpstreamFault, UpstreamReply
from proxy.correction.structured import NO_FORM, Form
from proxy.interfaces import UpstreamRequest

# Sends a request and gives the answer with its whole body; one of more than so many bytes is the fault _TOO_LARGE.
Exchange = Callable[[UpstreamRequest, int], Awaitable[UpstreamReply | UpstreamFault]]
_TOO_LARGE: Final = "http_response_body_size"
_FORM: Final = "response_format"

_HEADERS: Final = (
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "toolcall-proxy"),
)


# How an endpoint says that it does not know a form: the statuses, and words of OpenAI, vLLM, llama.cpp and LiteLLM.
_UNKNOWN_FORM: Final = frozenset({400, 404, 415, 422, 500, 501})
_FORM_WORDS: Final = re.compile(
    rb"response_?format|json_?schema|json_?object|structured.?output|guided|grammar|schema", re.IGNORECASE
)
_SEARCHED: Final = 8 * 1024
# Refused forms that are remembered; a form is one tool's schema.
_MOST_REFUSED: Final = 1000


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of one question: the body of the answer or what came instead of one, and the form asked for."""

    body: bytes | Asked = field(repr=False)
    format: AnswerFormat


class Endpoint:
    """The model endpoint as the config describes it."""

    def __init__(self, settings: CorrectionSettings, exchange: Exchange) -> None:
        self._settings = settings
        self._exchange = exchange
        own = {name for name, _ in settings.headers}
        self._headers = (*(pair for pair in _HEADERS if pair[0] not in own), *settings.headers)
        self._places = asyncio.Semaphore(settings.concurrency)
        self._refused: set[bytes] = set()

    async def enter(self, seconds: float) -> bool:
        """Takes a place for one question, to be left afterwards; False where none came free in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except TimeoutError:
            return False
        return True

    def leave(self) -> None:
        """Gives a place back."""
        self._places.release()

    async def ask(self, messages: Sequence[Mapping[str, str]], forms: Iterable[Form], seconds: float) -> Answered:
        """The endpoint's answer, in the first of `forms` that it takes. `seconds`: how long it may take in all."""
        format_asked = AnswerFormat.TEXT
        try:
            async with asyncio.timeout(seconds):
                for form in self._chosen(forms):
                    format_asked = form.kind
                    reply = await self._send(messages, form, seconds)
                    if not _refuses_form(reply, form):
                        return Answered(self._read(reply), form.kind)
                    if len(self._refused) < _MOST_REFUSED:
                        self._refused.add(form.key)
        except TimeoutError:
            return Answered(Asked.TIMEOUT, format_asked)
        return Answered(Asked.ENDPOINT, format_asked)

    def _chosen(self, forms: Iterable[Form]) -> list[Form]:
        """The forms worth asking for; an operator who wrote a `response_format` of their own wants that one."""
        settings = self._settings
        if not settings.structured_output or _FORM in settings.body:
            return [NO_FORM]
        return [form for form in forms if form is NO_FORM or form.key not in self._refused]

    async def _send(
        self, messages: Sequence[Mapping[str, str]], form: Form, seconds: float
    ) -> UpstreamReply | UpstreamFault:
        settings = self._settings
        body = dumps(make_request(settings, messages, form))
        request = UpstreamRequest(settings.upstream, "POST", settings.path, self._headers, body, seconds)
        return await self._exchange(request, settings.max_answer)

    def _read(self, reply: UpstreamReply | UpstreamFault) -> bytes | Asked:
        if isinstance(reply, UpstreamFault):
            if reply.token == _TOO_LARGE:
                return Asked.TOO_LONG
            return Asked.TIMEOUT if reply.token.endswith("timeout") else Asked.ENDPOINT
        return _body(reply, self._settings.max_answer)


def _refuses_form(reply: UpstreamReply | UpstreamFault, form: Form) -> bool:
    """Whether the endpoint says that it does not know the form it was asked for."""
    if form is NO_FORM or isinstance(reply, UpstreamFault) or reply.status not in _UNKNOWN_FORM:
        return False
    body = reply.body if isinstance(reply.body, bytes) else b""
    return _FORM_WORDS.search(body[:_SEARCHED]) is not None


def make_request(
    settings: CorrectionSettings, messages: Sequence[Mapping[str, str]], form: Form = NO_FORM
) -> dict[str, JsonValue]:
    """The request of a chat completion; the operator's own members go before ours, and null takes one away."""
    body: dict[str, JsonValue] = {
        "model": settings.model,
        "messages": [dict(message) for message in messages],
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        _FORM: form.value,
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

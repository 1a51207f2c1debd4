"""The model endpoint: one question and its answer, bounded in time and size, and the budgets of questions and tokens.

The endpoint is an upstream like any other: its entry in the config has its address, TLS and headers, the API key among
them. The server passes in the function that sends to it (`Exchange`). A redirect, an error status and an endless answer
count as no answer; a question ends after `timeout`.

Questions wait for one of `concurrency` places. Each asks for the best form of answer that the endpoint is not known to
refuse. If an endpoint answers 4xx or 501 and names the form in its text, the question is sent once more with the next
form. The refused form is not used again.

`Budgets` bound the questions about one call, in one conversation and in one hour, and the tokens of one hour. Several
users may share a conversation that is known only by its client's address, so it has no separate budget. The number of
tokens is known only after the answer: a question may exceed the budget, and the next one is not asked. The shared store
counts tokens in thousands; the remainder is counted in this process.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from proxy.core.contract.attempts import hash_conversation
from proxy.core.json.contentcoding import Undecodable, decode, is_coded
from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Conversation, JsonValue, Rung, UpstreamFault, UpstreamReply
from proxy.extensions.correction.core.settings import CorrectionBudget, CorrectionSettings
from proxy.extensions.correction.core.words import AnswerFormat, BudgetKind, QuestionOutcome
from proxy.extensions.correction.questions import NO_FORM, Form
from proxy.interfaces import Services, UpstreamRequest

# Sends a request and gives the answer with its whole body; a body of more than that many bytes is the fault _TOO_LARGE.
Exchange = Callable[[UpstreamRequest, int], Awaitable[UpstreamReply | UpstreamFault]]
_TOO_LARGE: Final = "http_response_body_size"
_FORM: Final = "response_format"

_HEADERS: Final = (
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "toolcall-proxy"),
)


# How an endpoint refuses a form: its statuses, and the words of OpenAI, vLLM, llama.cpp and LiteLLM.
_UNKNOWN_FORM: Final = frozenset({400, 404, 415, 422, 500, 501})
_FORM_WORDS: Final = re.compile(
    rb"response_?format|json_?schema|json_?object|structured.?output|guided|grammar|schema", re.IGNORECASE
)
_SEARCHED: Final = 8 * 1024
# Refused forms that are remembered; a form is one tool's schema.
_MOST_REFUSED: Final = 1000


@value_class
class EndpointAnswer:
    """The result of one question: the body of the answer or the outcome without one, and the form asked for."""

    body: bytes | QuestionOutcome = field(repr=False)
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
        """Takes a place for one question, which `leave` gives back; False where none becomes free in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._places.acquire()
        except TimeoutError:
            return False
        return True

    def leave(self) -> None:
        """Releases the place."""
        self._places.release()

    async def ask(self, messages: Sequence[Mapping[str, str]], forms: Iterable[Form], seconds: float) -> EndpointAnswer:
        """The endpoint's answer in the first of `forms` that it accepts, within `seconds` in all."""
        format_ = AnswerFormat.TEXT
        try:
            async with asyncio.timeout(seconds):
                for form in self._select_forms(forms):
                    format_ = form.kind
                    reply = await self._send(messages, form, seconds)
                    if not _refuses_form(reply, form):
                        return EndpointAnswer(self._read(reply), form.kind)
                    if len(self._refused) < _MOST_REFUSED:
                        self._refused.add(form.key)
        except TimeoutError:
            return EndpointAnswer(QuestionOutcome.TIMEOUT, format_)
        return EndpointAnswer(QuestionOutcome.ENDPOINT, format_)

    def _select_forms(self, forms: Iterable[Form]) -> list[Form]:
        """Returns the forms to try: none if the config has the operator's own `response_format`."""
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

    def _read(self, reply: UpstreamReply | UpstreamFault) -> bytes | QuestionOutcome:
        if isinstance(reply, UpstreamFault):
            if reply.token == _TOO_LARGE:
                return QuestionOutcome.TOO_LONG
            return QuestionOutcome.TIMEOUT if reply.token.endswith("timeout") else QuestionOutcome.ENDPOINT
        return _decode_body(reply, self._settings.max_answer)


def _refuses_form(reply: UpstreamReply | UpstreamFault, form: Form) -> bool:
    """Returns whether the endpoint refuses the form it was asked for."""
    if form is NO_FORM or isinstance(reply, UpstreamFault) or reply.status not in _UNKNOWN_FORM:
        return False
    body = reply.body if isinstance(reply.body, bytes) else b""
    return _FORM_WORDS.search(body[:_SEARCHED]) is not None


def make_request(
    settings: CorrectionSettings, messages: Sequence[Mapping[str, str]], form: Form = NO_FORM
) -> dict[str, JsonValue]:
    """The request of a chat completion. The operator's members replace the proxy's; null removes one."""
    body: dict[str, JsonValue] = {
        "model": settings.model,
        "messages": [dict(message) for message in messages],
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        _FORM: form.value,
        **settings.body,
    }
    return {key: value for key, value in body.items() if value is not None}


def _decode_body(reply: UpstreamReply, most: int) -> bytes | QuestionOutcome:
    if reply.status != 200 or not isinstance(reply.body, bytes):
        return QuestionOutcome.ENDPOINT
    coding = reply.header("content-encoding")
    if not is_coded(coding):
        return reply.body
    decoded = decode(reply.body, coding, most)
    return QuestionOutcome.UNUSABLE if isinstance(decoded, Undecodable) else decoded


# Seconds: how long a conversation's questions are counted after its last one; an hour.
_CONVERSATION: Final = 86_400.0
_HOUR: Final = 3600.0
_THOUSAND: Final = 1000


class Budgets:
    """The budgets of one endpoint. `warn` is called with a used-up budget, once an hour for each."""

    def __init__(self, budget: CorrectionBudget, services: Services, warn: Callable[[BudgetKind], None]) -> None:
        self._budget = budget
        self._services = services
        self._warn = warn
        self._warned: dict[BudgetKind, int] = {}
        self._rest: tuple[int, int] = (0, 0)  # an hour, and its tokens below a full thousand

    async def take(self, conversation: Conversation, count: int) -> BudgetKind | None:
        """Takes one question from every budget, and returns None. If a budget is used up, takes from none and returns
        that one. `count`: the number of questions about this call so far."""
        spent = await self._find_spent(conversation, count)
        if spent is not None and self._warned.get(spent) != self._count_hours():
            self._warned[spent] = self._count_hours()
            self._warn(spent)
        return spent

    async def _find_spent(self, conversation: Conversation, count: int) -> BudgetKind | None:
        budget, store = self._budget, self._services.store
        if count >= budget.per_call:
            return BudgetKind.PER_CALL
        if budget.tokens_per_hour is not None and await self._count_tokens() >= budget.tokens_per_hour:
            return BudgetKind.TOKENS_PER_HOUR
        key = f"{hash_conversation(conversation)}/corrections"
        is_known = conversation.rung is not Rung.ADDRESS
        if is_known and await store.reserve(key, budget.per_conversation, _CONVERSATION) is None:
            return BudgetKind.PER_CONVERSATION
        if await store.reserve(f"corrections/{self._count_hours()}", budget.per_hour, _HOUR) is None:
            if is_known:
                await store.release(key)
            return BudgetKind.PER_HOUR
        return None

    async def spend_tokens(self, count: int) -> None:
        """Counts the tokens of one question and its answer."""
        if self._budget.tokens_per_hour is None or count <= 0:
            return
        hour, rest = self._rest
        thousands, rest = divmod(count + (rest if hour == self._count_hours() else 0), _THOUSAND)
        self._rest = self._count_hours(), rest
        most = self._budget.tokens_per_hour // _THOUSAND + 1
        for _ in range(min(thousands, most)):
            await self._services.store.reserve(self._make_tokens_key(), most, _HOUR)

    async def _count_tokens(self) -> int:
        hour, rest = self._rest
        thousands = await self._services.store.count_taken(self._make_tokens_key())
        return thousands * _THOUSAND + (rest if hour == self._count_hours() else 0)

    def _make_tokens_key(self) -> str:
        return f"corrections/{self._count_hours()}/tokens"

    def _count_hours(self) -> int:
        return int(self._services.clock.wall() // _HOUR)

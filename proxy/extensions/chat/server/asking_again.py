"""Asks a model again whose calls cannot be repaired: so many times, within a deadline and a budget of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from proxy.core.envelope.feedback import write_feedback
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsonspan import replace_value
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import Attempt, JsonProblem, JsonValue, Repair, ToolResult
from proxy.extensions.chat.config.model_section import ModelSettings
from proxy.extensions.chat.core.model_request import ModelRequest
from proxy.extensions.chat.core.next_question import REPEAT, count_tokens, sum_usage, write_next_question
from proxy.extensions.chat.server.call_judge import JudgedCall


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """One answer: its bytes and value, its calls, and the bytes that go on for it."""

    text: bytes = field(repr=False)
    value: JsonValue = field(repr=False)
    calls: list[JudgedCall] = field(default_factory=list)
    written: bytes = field(default=b"", repr=False)

    @property
    def failed(self) -> JudgedCall | None:
        """The first call that is wrong."""
        return next((call for call in self.calls if call.failure is not None), None)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """What was done to the calls."""
        return tuple(repair for call in self.calls for repair in call.repairs)

    @property
    def usage(self) -> JsonValue:
        """What the answer says of its tokens."""
        return self.value.get("usage") if isinstance(self.value, dict) else None


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """What came of a request: the answer that goes on, how many there were, and the tokens of those after the first."""

    answer: JudgedAnswer
    attempts: int = 1
    tokens_again: int = 0


async def ask_until_right(
    first: JudgedAnswer,
    asked: ModelRequest,
    settings: ModelSettings,
    ask: Callable[[bytes], Awaitable[JudgedAnswer | None]],
) -> FinalAnswer:
    """The first answer whose calls are all right, or the last one. `ask` sends a body and judges its answer; None where
    there is none that can be read, and then the answer before it stays."""
    answer, attempts, usage, again = first, 1, first.usage, 0
    retries = settings.retries if settings.retry_deadline else 0
    try:
        async with asyncio.timeout(settings.retry_deadline):
            while answer.failed is not None and attempts <= retries:
                cost = count_tokens(answer.usage)
                body = write_next_question(asked, answer.value, write_results(answer.calls, attempts, retries))
                if body is None or again + cost > settings.retry_tokens or (found := await ask(body)) is None:
                    break
                answer, attempts = found, attempts + 1
                again += count_tokens(answer.usage)
                usage = sum_usage(usage, answer.usage)
    except TimeoutError:
        pass
    if attempts == 1 or not isinstance(usage, dict) or isinstance(parse(answer.written), JsonProblem):
        return FinalAnswer(answer, attempts, again)
    summed = replace_value(answer.written, ("usage",), dumps(usage))
    return FinalAnswer(JudgedAnswer(answer.text, answer.value, answer.calls, summed), attempts, again)


def write_results(calls: list[JudgedCall], attempts: int, retries: int) -> list[tuple[str, str]]:
    """The id of each call of a turn, and what is said of it."""
    return [(call.found.call_id, _write_result(call, Attempt(attempts, retries + 1))) for call in calls]


def _write_result(call: JudgedCall, attempt: Attempt) -> str:
    if call.failure is None:
        return REPEAT
    limits = ToolResult(call.call, call.failure).limits if call.policy is None else call.policy.feedback
    return write_feedback(add_advice(ToolResult(call.call, call.failure, attempt, limits=limits), call.policy))

"""Asks a model again when its calls cannot be repaired: so many times, within a deadline and a budget of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import field, replace

from proxy.core.model.value_class import value_class
from proxy.core.model.values import Attempt, FeedbackLimits, JsonValue, Repair, ToolResult
from proxy.extensions.chat.config import ModelSettings
from proxy.extensions.chat.core.model_request import REPEAT, ModelRequest, count_tokens, sum_usage
from proxy.extensions.chat.core.whole_bodies import ReadAnswer
from proxy.extensions.chat.server.call_judge import JudgedCall
from proxy.plugin import add_advice, write_feedback


@value_class
class JudgedAnswer:
    """One answer: its bytes and their parts, its calls, and the bytes for the client."""

    text: bytes = field(repr=False)
    read: ReadAnswer = field(repr=False)
    calls: list[JudgedCall] = field(default_factory=list)
    written: bytes = field(default=b"", repr=False)

    @property
    def failed(self) -> JudgedCall | None:
        """The first call that is wrong."""
        return next((call for call in self.calls if call.failure is not None), None)

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """The repairs of its calls."""
        return tuple(repair for call in self.calls for repair in call.repairs)


@value_class
class CountedAnswer:
    """One answer to a request: its calls, and the tokens that it reports."""

    calls: list[JudgedCall]
    tokens: int


@value_class
class Spending:
    """The cost of one request so far: its answers, the sum of the `usage` that they report, and the tokens of the
    latest one. `again` are the tokens of those after the first. An answer that reports none counts one token for each
    byte of its question and its calls: no tokenizer makes more. `lost` are the tokens of an unusable answer."""

    counted: tuple[CountedAnswer, ...] = ()
    usage: JsonValue = None
    latest: int = 0
    again: int = 0
    lost: int = 0

    @property
    def answers(self) -> int:
        """The number of answers."""
        return len(self.counted)

    @property
    def reported(self) -> int:
        """The tokens of asking again that the answers report."""
        return sum([each.tokens for each in self.counted[1:]]) + self.lost

    def add(self, calls: list[JudgedCall], usage: JsonValue, size: int) -> Spending:
        """The cost with another answer; `size` counts where it reports no usage, in bytes."""
        reported = count_tokens(usage)
        latest, again = reported or size, self.answers > 0
        summed = sum_usage(self.usage, usage) if again else usage
        return Spending((*self.counted, CountedAnswer(calls, reported)), summed, latest, self.again + latest * again)

    def add_lost(self, usage: JsonValue) -> Spending:
        """The cost with an unusable answer, which is the last."""
        if not isinstance(usage, dict) or not usage:
            return self
        return replace(self, usage=sum_usage(self.usage, usage), lost=count_tokens(usage))

    def may_go_on(self, settings: ModelSettings) -> bool:
        """Returns whether the model may be asked once more; the latest answer's cost is the estimate for the next."""
        retries = settings.retries if settings.retry_deadline else 0
        return self.answers <= retries and self.again + self.latest <= settings.retry_tokens


@value_class
class LostAnswer:
    """An unusable answer to another question, with its usage."""

    usage: JsonValue = None


@value_class
class FinalAnswer:
    """The result of a request: the answer for the client, and its cost."""

    answer: JudgedAnswer
    spent: Spending


# Writes the body of the next question to an answer, from the results of its calls; None where there can be none.
WriteQuestion = Callable[[JudgedAnswer, list[tuple[str, str]]], Awaitable[bytes | None]]
# Writes an answer with another usage.
WriteUsage = Callable[[bytes, JsonValue], Awaitable[bytes]]


async def ask_until_right(
    first: JudgedAnswer,
    request: ModelRequest,
    settings: ModelSettings,
    write: WriteQuestion,
    ask: Callable[[bytes], Awaitable[JudgedAnswer | LostAnswer]],
    write_usage: WriteUsage,
) -> FinalAnswer:
    """The first answer whose calls are all right, or the last one. `ask` sends a body and judges its answer; if that is
    unusable, the previous answer stays."""
    answer, spent = first, Spending().add(first.calls, first.read.usage, request.size + len(first.text))
    try:
        async with asyncio.timeout(settings.retry_deadline or None):
            while answer.failed is not None and spent.may_go_on(settings):
                results = write_results(answer.calls, spent.answers, settings.retries)
                body = await write(answer, results)
                if body is None:
                    break
                if isinstance(found := await ask(body), LostAnswer):
                    spent = spent.add_lost(found.usage)
                    break
                answer, spent = found, spent.add(found.calls, found.read.usage, len(body) + len(found.text))
    except TimeoutError:
        pass
    if (spent.answers == 1 and not spent.lost) or not isinstance(spent.usage, dict):
        return FinalAnswer(answer, spent)
    return FinalAnswer(replace(answer, written=await write_usage(answer.written, spent.usage)), spent)


def write_results(calls: list[JudgedCall], attempts: int, retries: int) -> list[tuple[str, str]]:
    """The id of each call of a turn, and its text for the model."""
    attempt = Attempt(attempts, retries + 1)
    return [
        (call.found.call_id, REPEAT if call.failure is None else write_feedback(explain_call(call, attempt)))
        for call in calls
    ]


def explain_call(call: JudgedCall, attempt: Attempt | None = None) -> ToolResult:
    """The result for a refused call, with advice on its tool."""
    if call.failure is None:
        raise AssertionError("only a refused call is explained")
    limits = FeedbackLimits() if call.policy is None else call.policy.feedback
    return add_advice(ToolResult(call.call, call.failure, attempt, limits=limits), call.policy)

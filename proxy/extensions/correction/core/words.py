"""The words of corrections (GoMind's layers 3 and 4), as records of calls have them. Pure values.

A correction is a model's guess at the intended call. `decide` judges it like any other call, and it is marked. A call's
log line, metrics and spans describe the questions in these words.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue


class Layer(StrEnum):
    """The two kinds of questions, by the seeds' names, which mark corrections in headers, logs and metrics."""

    VALIDATION_FEEDBACK = "validation_feedback"  # layer 3: the error, the arguments and the schema
    SEMANTIC_RETRY = "semantic_retry"  # layer 4: the user's wish and the earlier results as well


class BudgetKind(StrEnum):
    """The budgets of corrections: a metric's label."""

    PER_CALL = "per_call"
    PER_CONVERSATION = "per_conversation"
    PER_HOUR = "per_hour"
    TOKENS_PER_HOUR = "tokens_per_hour"


class AnswerFormat(StrEnum):
    """The form of answer that the request demanded (`response_format`): a span's and a log line's word."""

    STRICT = "strict"  # a JSON Schema that the endpoint has to keep to
    SCHEMA = "json_schema"  # a JSON Schema that it may take as advice
    OBJECT = "json_object"  # any JSON object
    TEXT = "text"  # any text: the form of the answer is not enforced


# --- outcomes ---------------------------------------------------------------------------------------------------------
class QuestionOutcome(StrEnum):
    """The outcome of one question: a metric's label."""

    DELIVERED = "delivered"  # the corrected call was delivered
    REFUSED = "refused"  # the corrected call was refused, by the schema or by the tool
    CANNOT_FIX = "cannot_fix"  # the model says so
    OUT_OF_SCOPE = "out_of_scope"  # it changed places that had not failed
    UNUSABLE = "unusable"  # the verdict was unreadable, or its arguments may not be used
    TOO_LONG = "too_long"  # the answer was longer than `max_answer`
    TIMEOUT = "timeout"
    ENDPOINT = "endpoint_error"  # no answer, or one with a status other than 200
    BUSY = "busy"  # not asked: `concurrency` questions were under way
    BUDGET = "budget"  # not asked: the budget was used up


_NOT_SENT: Final = frozenset({QuestionOutcome.BUSY, QuestionOutcome.BUDGET})
# No readable answer: a failure of the endpoint, and not a model that found nothing to correct.
_UNANSWERED: Final = frozenset(
    {QuestionOutcome.TIMEOUT, QuestionOutcome.ENDPOINT, QuestionOutcome.TOO_LONG, QuestionOutcome.UNUSABLE}
)


@value_class
class CorrectionQuestion:
    """One question to the model endpoint. `independent`: no earlier result of the conversation was known. `budget`
    names the one that was used up, if the question was not asked because of it; tokens are the endpoint's count.
    `format`: how the endpoint was held to the form of its answer. `begun`: when it was asked, in seconds of the
    monotonic clock. Implements `ModelQuestion`."""

    layer: Layer
    outcome: QuestionOutcome
    seconds: float = 0.0
    independent: bool = True
    budget: BudgetKind | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    format: AnswerFormat = AnswerFormat.TEXT
    begun: float = 0.0

    def list_fields(self) -> Mapping[str, JsonValue]:
        """The fields of the log line. The names for the form of the answer are Compozy's."""
        fields: dict[str, JsonValue] = {
            "layer": self.layer.value,
            "outcome": self.outcome.value,
            "duration_ms": (self.seconds * 1_000_000 + 0.5) // 1 / 1000,
        }
        if self.budget is not None:
            return {**fields, "budget": self.budget.value}
        if self.seconds:
            fields |= self._describe_form()
        if self.prompt_tokens or self.completion_tokens:
            fields["tokens"] = self.prompt_tokens + self.completion_tokens
        return fields

    def describe_span(self) -> tuple[float, float, Mapping[str, str | int | bool], str] | None:
        """The span of a question that was asked."""
        if self.outcome in _NOT_SENT:
            return None
        attributes: dict[str, str | int | bool] = {
            "correction.layer": self.layer.value,
            "correction.outcome": self.outcome.value,
            **self._describe_form(),
        }
        if self.prompt_tokens or self.completion_tokens:
            attributes["gen_ai.usage.input_tokens"] = self.prompt_tokens
            attributes["gen_ai.usage.output_tokens"] = self.completion_tokens
        failed = self.outcome.value if self.outcome in _UNANSWERED else ""
        return self.begun, self.begun + self.seconds, attributes, failed

    def _describe_form(self) -> dict[str, bool]:
        return {
            "forced_json_mode": self.format is not AnswerFormat.TEXT,
            "structured_output_strict": self.format is AnswerFormat.STRICT,
        }

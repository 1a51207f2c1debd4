"""The words of corrections (GoMind's layers 3 and 4), as records of calls have them. Pure values.

A correction is a model's guess at the call that was meant. It is judged by `decide` like any other call, and it is
marked. The extension `correction` asks the model; a record of a call, and so
its log line, metrics and spans, tell of its questions in these words.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Layer(StrEnum):
    """Who is asked what; the names are the seeds'. Each names its corrections in headers, logs and metrics."""

    VALIDATION_FEEDBACK = "validation_feedback"  # layer 3: the error, the arguments and the schema
    SEMANTIC_RETRY = "semantic_retry"  # layer 4: the user's wish and the earlier results as well


# The repairs of a checked call list a model's changes under these names, so that adapters send them. The names are not
# repair rules, and every other place distinguishes the two.
CORRECTIONS: Final = frozenset(layer.value for layer in Layer)


class BudgetKind(StrEnum):
    """The budgets of corrections: a metric's label."""

    PER_CALL = "per_call"
    PER_CONVERSATION = "per_conversation"
    PER_HOUR = "per_hour"
    TOKENS_PER_HOUR = "tokens_per_hour"


class AnswerFormat(StrEnum):
    """How the endpoint was held to the form of its answer (`response_format`): a span's and a log line's word."""

    STRICT = "strict"  # a JSON Schema that the endpoint has to keep to
    SCHEMA = "json_schema"  # a JSON Schema that it may take as advice
    OBJECT = "json_object"  # any JSON object
    TEXT = "text"  # any text: the form of the answer is not enforced


# --- what came of it --------------------------------------------------------------------------------------------------
class Asked(StrEnum):
    """What came of one question: a metric's label."""

    DELIVERED = "delivered"  # the corrected call was delivered
    REFUSED = "refused"  # the corrected call was refused, by the schema or by the tool
    CANNOT_FIX = "cannot_fix"  # the model says so
    OUT_OF_SCOPE = "out_of_scope"  # it changed what had not failed
    UNUSABLE = "unusable"  # the verdict was unreadable, or its arguments may not be used
    TOO_LONG = "too_long"  # the answer was longer than `max_answer`
    TIMEOUT = "timeout"
    ENDPOINT = "endpoint_error"  # no answer, or one with a status other than 200
    BUSY = "busy"  # not asked: `concurrency` questions were under way
    BUDGET = "budget"  # not asked: the budget was used up

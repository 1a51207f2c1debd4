"""What the operator decided about corrections (GoMind's layers 3 and 4), and what a prompt may hold. Pure values.

A correction is a model's guess at the call that was meant. It is off unless the config switches it on, it is judged by
`decide` like any other call, and it is marked. `config/` writes these values, `correction/` follows them; every
default stands here, once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from proxy.core.display.placeholders import fill_placeholders
from proxy.core.model.values import Headers, JsonValue


class Layer(StrEnum):
    """Who is asked what; the names are the seeds'. Each names its corrections in headers, logs and metrics."""

    VALIDATION_FEEDBACK = "validation_feedback"  # layer 3: the error, the arguments and the schema
    SEMANTIC_RETRY = "semantic_retry"  # layer 4: the user's wish and the earlier results as well


# The repairs of a checked call list a model's changes under these names, so that adapters send them. The names are not
# repair rules, and every other place distinguishes the two.
CORRECTIONS: Final = frozenset(layer.value for layer in Layer)


class Scope(StrEnum):
    """What a correction may change: the places that the failure names (any, where it names none), or anything."""

    FAILING = "failing"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class CorrectionPolicy:
    """Which corrections one tool's calls may get. `max_attempts`: questions per layer and call.

    `trajectory`: the user's wish and the results of earlier calls are remembered, and layer 4 gets them.
    `independent_steps`: layer 4 is asked also where no earlier result is known. `scope`: None leaves each layer its own
    (`scope_of`).
    """

    validation_feedback: bool = False
    semantic_retry: bool = False
    max_attempts: int = 2
    trajectory: bool = False
    independent_steps: bool = True
    scope: Scope | None = None

    def wants(self, layer: Layer) -> bool:
        """Whether a layer is switched on."""
        return self.validation_feedback if layer is Layer.VALIDATION_FEEDBACK else self.semantic_retry

    def scope_of(self, layer: Layer) -> Scope:
        """What a layer's answer may change. Layer 4 reasons over the whole conversation, so it may touch anything."""
        return self.scope or (Scope.FAILING if layer is Layer.VALIDATION_FEEDBACK else Scope.ANY)

    @property
    def on(self) -> bool:
        """Whether anything is switched on."""
        return self.validation_feedback or self.semantic_retry


@dataclass(frozen=True, slots=True)
class CorrectionBudget:
    """How many questions may be asked at most, of one call, in one conversation, and in one hour, and how many tokens
    they and their answers may cost in an hour; None: any number."""

    per_call: int = 4
    per_conversation: int = 20
    per_hour: int = 200
    tokens_per_hour: int | None = None


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


@dataclass(frozen=True, slots=True)
class TrajectoryLimits:
    """How much is remembered of a conversation: its last `steps` results of at most `max_chars` code points each, for
    `ttl` seconds after the last one, of the last `conversations`."""

    steps: int = 5
    max_chars: int = 2000
    conversations: int = 1000
    ttl: float = 1800.0


@dataclass(frozen=True, slots=True)
class DebugStore:
    """The file that keeps whole prompts and answers, and its size in bytes; the older half is in `<file>.1`."""

    file: str
    max_size: int = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CorrectionSettings:
    """The model endpoint and how it is asked. Times in seconds, sizes in bytes.

    `upstream` names the entry that leads there and `headers` are that entry's (the API key among them); `body` holds
    further members of the request, null removes one. `timeout` is for one question, `deadline` for all of one call.
    `max_corrections`: corrected calls of one call that may be sent to its tool. `query`: (kind,
    name) of the places where clients tell what the user wants. `prompts` holds the operator's own, by layer.
    `structured_output`: the endpoint is asked to answer in the form of the tool's schema.
    """

    upstream: str
    model: str
    path: str = "/v1/chat/completions"
    headers: Headers = field(default=(), repr=False)
    body: Mapping[str, JsonValue] = field(default_factory=dict, repr=False)
    temperature: float = 0.1
    max_tokens: int = 1000
    timeout: float = 10.0
    deadline: float = 20.0
    concurrency: int = 4
    max_corrections: int = 2
    max_answer: int = 256 * 1024
    budget: CorrectionBudget = field(default_factory=CorrectionBudget)
    trajectory: TrajectoryLimits = field(default_factory=TrajectoryLimits)
    query: tuple[tuple[str, str], ...] = (("header", "x-user-query"),)
    prompts: Mapping[Layer, str] = field(default_factory=dict, repr=False)
    debug: DebugStore | None = None
    structured_output: bool = True


# --- prompts ----------------------------------------------------------------------------------------------------------
# What may stand in `{{ }}` in a prompt. Values come as text or as JSON, without secrets.
PLACEHOLDERS: Final[Mapping[str, str]] = {
    "tool": "the tool's name",
    "description": "what the tool does",
    "schema": "the JSON Schema of its arguments; their signature where that is too long",
    "arguments": "the arguments that failed, as JSON",
    "error": "what the model would be told of the failure",
    "status": "the HTTP status",
    "code": "the error's code",
    "category": "the error's category",
    "details": "the error's details, as JSON",
    "attempt": "which question about this call it is, from 1 on",
    "query": "what the user wants (`correction.query`), or `unknown`",
    "trajectory": "earlier calls of the conversation and their results, as JSON, or `none`",
}
# Without these a prompt cannot be answered.
NEEDED: Final[Mapping[Layer, frozenset[str]]] = {
    Layer.VALIDATION_FEEDBACK: frozenset({"arguments", "error", "schema"}),
    Layer.SEMANTIC_RETRY: frozenset({"arguments", "error", "query", "trajectory"}),
}
# The text before this line is the system message, the text behind it the user message.
_DIVIDER: Final = re.compile(r"^---[ \t]*\r?\n", re.MULTILINE)


def make_messages(prompt: str, values: Mapping[str, str]) -> list[dict[str, str]]:
    """The chat messages of a prompt. What is filled in is text: nothing in it is looked through for placeholders."""
    system, divider, user = _divide_prompt(prompt)
    told = fill_placeholders(user, values).strip()
    first = fill_placeholders(system, values).strip()
    said = [{"role": "system", "content": first}] if divider and first else []
    return [*said, {"role": "user", "content": told}]


def _divide_prompt(prompt: str) -> tuple[str, bool, str]:
    parts = _DIVIDER.split(prompt, maxsplit=1)
    return (parts[0], True, parts[1]) if len(parts) == 2 else ("", False, prompt)


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

"""The model endpoint, its questions, and the contents of a prompt. This file holds every default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Final, Protocol

from proxy.core.display.graphemes import fill_placeholders
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers, JsonValue
from proxy.extensions.correction.core.words import Layer

# --- the corrections that the calls of one tool may get ---------------------------------------------------------------
POLICY_KEY: Final = "correct"


class Scope(StrEnum):
    """The scope of a correction: the places that the failure names (any, where it names none), or everything."""

    FAILING = "failing"
    ANY = "any"


@value_class
class CorrectionPolicy:
    """Which corrections one tool's calls may get: the policy key `correct`. `scope`: None leaves each layer its own."""

    validation_feedback: bool = False
    semantic_retry: bool = False
    max_attempts: int = 2
    trajectory: bool = False
    independent_steps: bool = True
    scope: Scope | None = None

    def wants(self, layer: Layer) -> bool:
        """Returns whether a layer is switched on."""
        return self.validation_feedback if layer is Layer.VALIDATION_FEEDBACK else self.semantic_retry

    def scope_of(self, layer: Layer) -> Scope:
        """The scope of a layer's answer. Layer 4 reasons over the whole conversation, so it may touch anything."""
        return self.scope or (Scope.FAILING if layer is Layer.VALIDATION_FEEDBACK else Scope.ANY)

    @property
    def on(self) -> bool:
        """Returns whether anything is switched on."""
        return self.validation_feedback or self.semantic_retry


class _HasAdded(Protocol):
    @property
    def added(self) -> Mapping[str, Any]:
        """The values of the extensions' keys, by key."""


_OFF: Final = CorrectionPolicy()


def find_policy(policy: _HasAdded) -> CorrectionPolicy:
    """The corrections that a policy allows; by default everything is off."""
    found: CorrectionPolicy = policy.added.get(POLICY_KEY, _OFF)
    return found


# --- the model endpoint and how it is asked ---------------------------------------------------------------------------
@value_class
class CorrectionBudget:
    """The most questions for one call, in one conversation, and in one hour, and the most tokens that they and their
    answers may cost in an hour. None: any number."""

    per_call: int = 4
    per_conversation: int = 20
    per_hour: int = 200
    tokens_per_hour: int | None = None


@value_class
class TrajectoryLimits:
    """The limits of a conversation's memory: its last `steps` results of at most `max_chars` code points each, for
    `ttl` seconds after the last one, of the last `conversations`."""

    steps: int = 5
    max_chars: int = 2000
    conversations: int = 1000
    ttl: float = 1800.0


@value_class
class DebugStore:
    """The file that keeps whole prompts and answers, and its size in bytes; the older half is in `<file>.1`."""

    file: str = ""
    max_size: int = 10 * 1024 * 1024


@value_class
class CorrectionSettings:
    """The settings of the model endpoint: the section `correction`. Times in seconds, sizes in bytes.

    `headers` are those of the upstream, the API key among them. `query`: (kind, name) of the places where clients tell
    what the user wants. `prompts` holds the operator's own, by layer.
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
# The names that a prompt may have in `{{ }}`. Values come as text or as JSON, without secrets.
PLACEHOLDERS: Final[Mapping[str, str]] = {
    "tool": "the tool's name",
    "description": "what the tool does",
    "schema": "the JSON Schema of its arguments; their signature if that is too long",
    "arguments": "the arguments that failed, as JSON",
    "error": "the failure's text for the model",
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
    """The chat messages of a prompt. Values are filled in as text: placeholders inside them stay as they are."""
    parts = _DIVIDER.split(prompt, maxsplit=1)
    messages = [{"role": "user", "content": fill_placeholders(parts[-1], values).strip()}]
    if len(parts) == 2 and (system := fill_placeholders(parts[0], values).strip()):
        messages.insert(0, {"role": "system", "content": system})
    return messages

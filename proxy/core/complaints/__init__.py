"""What an upstream says is wrong with the arguments: its error body -> violations with a path (contract section 7).

A tool's own complaint ("cannot unmarshal string into Go struct field WeatherRequest.lat of type float64") is the best
hint a model can get, once somebody has read it. `complaints` reads it in four steps: open the body (`answer.py`), ask
the dialects in the order of their table (`dialects.py`), match what they claim to the sent arguments and the schema
(`places.py`), and word it like a violation of our own. What no dialect reads may still hold one of GoMind's patterns
(`generic.py`): then it is known that the arguments are at fault, not which.

Nothing of what was sent is quoted from the tool: its words are masked, secrets of the arguments taken out, and cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from proxy.core.codes import TYPE_MISMATCH
from proxy.core.complaints.answer import Answer, open_body
from proxy.core.complaints.dialects import DIALECTS, Dialect
from proxy.core.complaints.findings import Tool, findings, secrets_of
from proxy.core.complaints.generic import spoken
from proxy.core.complaints.places import Arguments
from proxy.core.complaints.wording import code_of_words, expected_type
from proxy.core.model import FeedbackLimits, JsonValue, Violation
from proxy.core.secrets import sensitive_names
from proxy.core.validation import Check

__all__ = ["DIALECTS", "STATUSES", "Complaint", "Dialect", "complaints", "prepare"]

# Statuses that can mean wrong arguments. Others say who is at fault by themselves.
STATUSES: Final = frozenset({400, 404, 409, 422})
# With these, something that was not found or is in conflict is the usual meaning, so words have to be plain.
_DOUBTFUL: Final = frozenset({404, 409})

# JSON-RPC 2.0, "Error object": Invalid params.
_INVALID_PARAMS: Final = -32602
# Categories of GoMind's error bodies that say themselves that the arguments are not at fault.
_OTHER_CATEGORIES: Final = frozenset({"NOT_FOUND", "AUTH_ERROR", "RATE_LIMIT", "SERVICE_ERROR"})


@dataclass(frozen=True, slots=True)
class Complaint:
    """A tool's complaint about the arguments it was sent.

    `dialect` is the name of the table's entry that read it (`gomind` for the generic patterns). `violations` is empty
    where the tool does not say which argument it means. `words` are its own words: one line, masked, at most 300
    code points. `type_related`: it is about a type (the seed's `isTypeRelatedError`), as span events tell.
    """

    dialect: str
    violations: tuple[Violation, ...]
    words: str = field(repr=False)
    type_related: bool


def complaints(
    status: int,
    content_type: str,
    body: bytes,
    check: Check | None,
    sent: JsonValue,
    limits: FeedbackLimits | None = None,
) -> Complaint | None:
    """What an error answer says about the sent arguments; None where it says nothing about them.

    `body` is the answer without content coding, of which the first 64 KiB are looked at. `check` is the tool's compiled
    schema, `sent` the arguments that were forwarded (`ABSENT` if there were none). `limits` names further secrets and
    path roots; without it, the schema's own marks count. An error inside a 200 (MCP `isError`, JSON-RPC `error`) has
    no status of its own: ask with 400. Never raises, whatever the body holds.
    """
    if status not in STATUSES or not body:
        return None
    answer = open_body(content_type, body)
    if _says_otherwise(answer):
        return None
    if limits is None:
        limits = FeedbackLimits(secret_names=sensitive_names(check.schemas) if check is not None else frozenset())
    tool = Tool(Arguments(sent, check), limits, secrets_of(sent, limits), status in _DOUBTFUL)
    for dialect in DIALECTS:
        read = findings(dialect, answer, tool)
        if read is not None:
            found, words = read
            typed = any(violation.code is TYPE_MISMATCH for violation in found)
            return Complaint(dialect.name, found, words, typed)
    return _generic(answer, tool)


def prepare() -> None:
    """Compiles the expressions of all dialects, some 15 ms, so that the first complaint does not wait for them."""
    nothing = open_body("text/plain", b"-")
    for dialect in DIALECTS:
        list(dialect.read(nothing))
    code_of_words("-")
    expected_type("-")


def _generic(answer: Answer, tool: Tool) -> Complaint | None:
    said = spoken(answer)
    if said is not None:
        return Complaint("gomind", (), tool.shown(said[0]), said[1])
    if any(_is_invalid_params(value) for value in answer.values):
        return Complaint("json-rpc", (), tool.shown(answer.texts[0] if answer.texts else "Invalid params"), False)
    return None


def _is_invalid_params(value: JsonValue) -> bool:
    """A JSON-RPC error object for wrong arguments; MCP also answers -32602 for a tool it does not know."""
    if not isinstance(value, dict) or value.get("code") != _INVALID_PARAMS:
        return False
    message = str(value.get("message", "")).lower()
    return not ("unknown tool" in message or "not found" in message or "unknown prompt" in message)


def _says_otherwise(answer: Answer) -> bool:
    """Whether the body names a category of its own that is not about the arguments (GoMind, contract section 7)."""
    return any(isinstance(value, dict) and value.get("category") in _OTHER_CATEGORIES for value in answer.values[:8])

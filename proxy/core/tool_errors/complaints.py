"""Turns an upstream's error body into violations of the arguments, each with a path (docs/upstream.md).

A tool's own complaint ("cannot unmarshal string into Go struct field WeatherRequest.lat of type float64") is the best
hint for a model, once it is understood. `read_complaints` opens the body (`error_body.py`), and tries the dialects in
the order of their table (`dialects.py`). It matches their claims to the sent arguments and the schema (`places.py`),
and words them like violations of our own. A body that no dialect reads may still match one of GoMind's patterns: then
the arguments are known to be at fault, but not which. These are the union of the three lists of the seed (Intelligent
Error Handling "Layer 3"; Multi-Layer Type Safety, step 1 and implementation notes). A sentence about the caller's
rights or means does not count, although it may say "is required": different arguments would not help.

A tool's words are never quoted unchanged: they are masked, freed of secrets from the arguments, and cut.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from proxy.core.check.validation import Check
from proxy.core.display.secrets import find_sensitive_names
from proxy.core.explain.places import find_value
from proxy.core.model.value_class import value_class
from proxy.core.model.values import FeedbackLimits, JsonValue, Violation
from proxy.core.tool_errors.dialects import DIALECTS
from proxy.core.tool_errors.error_body import ErrorBody, find_code_of_words, find_expected_type, open_body
from proxy.core.tool_errors.findings import Tool, list_findings, list_secrets
from proxy.core.tool_errors.places import Arguments

# Statuses that can mean wrong arguments. All others show by themselves what is at fault.
STATUSES: Final = frozenset({400, 404, 409, 422})
# These statuses usually mean something that was not found or is in conflict, so the words have to be clear.
_DOUBTFUL: Final = frozenset({404, 409})

# Server errors by which a Go service may report that it could not read its arguments. They are read as with a conflict.
SERVER_ERRORS: Final = frozenset({500, 503})
# JSON-RPC 2.0, "Error object": Invalid params.
_INVALID_PARAMS: Final = -32602
_UNKNOWN: Final = re.compile(r"unknown tool|not found|unknown prompt", re.IGNORECASE)
# Categories of GoMind's error bodies that say that the arguments are not at fault.
_OTHER_CATEGORIES: Final = frozenset({"NOT_FOUND", "AUTH_ERROR", "RATE_LIMIT", "SERVICE_ERROR"})
# `isTypeRelatedError` of the seed, all three lists.
TYPE_PATTERNS: Final = (
    "cannot unmarshal string into", "cannot unmarshal number into", "cannot unmarshal bool into",
    "json: cannot unmarshal", "type mismatch", "invalid type", "expected number", "expected string", "expected boolean",
    "invalid value",
)  # fmt: skip
# Validation errors of the seed ("business logic").
RULE_PATTERNS: Final = ("must be greater than", "must be positive", "is required", "cannot be empty")

# Problems that only an operator, a login or money can solve.
_NOT_ARGUMENTS: Final = re.compile(
    r"authenti|authori[sz]|api[ _-]?key|credential|log ?in\b|sign[ -]?in|permission|token\b|subscri|payment|billing"
    r"|quota|rate limit|licen[cs]e|session|csrf|certificate|signature|account\b|plan\b|upgrade|content-type|header"
    r"|https?\b is|cookie|user[ -]agent|tls|ssl|environment variable|configur",
    re.IGNORECASE,
)
_SENTENCES: Final = re.compile(r"(?<=[.;!?])\s+|\n")
_MOST_SENTENCES: Final = 200


@value_class
class Complaint:
    """A tool's complaint about the arguments that it was sent. `dialect` names the entry of the table that read it
    (`gomind` for the generic patterns). `violations` is empty if the tool does not say which argument it means.
    `words` are its own: one line, masked, at most 300 code points. `type_related`: it is about a type, for span
    events."""

    dialect: str
    violations: tuple[Violation, ...]
    words: str = field(repr=False)
    type_related: bool


def read_complaints(
    status: int,
    content_type: str,
    body: bytes,
    check: Check | None,
    sent: JsonValue,
    limits: FeedbackLimits | None = None,
) -> Complaint | None:
    """The complaint of an error answer about the sent arguments; None if it says nothing about them. `body` is the
    answer without content coding; its first 64 KiB are read. `check` is the tool's compiled schema, `sent` the
    arguments that were forwarded (`ABSENT`: none); `limits` names further secrets and path roots. An error inside a 200
    (MCP `isError`, JSON-RPC `error`) has no separate status, so pass 400 for it. Never raises."""
    if status not in STATUSES or not body:
        return None
    answer = open_body(content_type, body)
    # A category of GoMind's that is not about the arguments (docs/upstream.md).
    if any(isinstance(value, dict) and value.get("category") in _OTHER_CATEGORIES for value in answer.values[:8]):
        return None
    limits = make_limits(check) if limits is None else limits
    tool = Tool(Arguments(sent, check), limits, list_secrets(sent, limits), status in _DOUBTFUL)
    for dialect in DIALECTS:
        if (read := list_findings(dialect, answer, tool)) is not None:
            return Complaint(dialect.name, *read)
    if (sentence := read_sentence(answer)) is not None:
        return Complaint("gomind", (), tool.show(sentence[0]), sentence[1])
    # MCP also answers -32602 for an unknown tool.
    invalid = [value for value in answer.values if isinstance(value, dict) and value.get("code") == _INVALID_PARAMS]
    if not all(_UNKNOWN.search(str(value.get("message", ""))) for value in invalid):
        return Complaint("json-rpc", (), tool.show(answer.texts[0] if answer.texts else "Invalid params"), False)
    return None


def make_limits(check: Check | None) -> FeedbackLimits:
    """Returns how a tool's words are shown where nothing else says it: secret are the names that its schema marks."""
    return FeedbackLimits(secret_names=find_sensitive_names(check.schemas) if check is not None else frozenset())


def read_server_error(
    content_type: str, body: bytes, check: Check | None, sent: JsonValue, limits: FeedbackLimits | None = None
) -> Complaint | None:
    """Returns the complaint of a Go service that answers with one of SERVER_ERRORS to arguments of a wrong type. None
    if it names no text that was sent: it may have failed to read somebody else's answer. Only for tools that may be
    called twice, because a server error does not say that the tool has not run."""
    if b"cannot unmarshal string" not in body:
        return None
    found = read_complaints(409, content_type, body, check, sent, limits)
    if found is None or found.dialect != "go-json" or not found.violations:
        return None
    return found if all(isinstance(find_value(sent, each.path), str) for each in found.violations) else None


def compile_dialects() -> None:
    """Compiles the expressions of all dialects (about 15 ms), so that the first complaint does not wait for them."""
    nothing = open_body("text/plain", b"-")
    for dialect in DIALECTS:
        list(dialect.read(nothing))
    find_code_of_words("-")
    find_expected_type("-")


def read_sentence(answer: ErrorBody) -> tuple[str, bool] | None:
    """The first sentence with one of GoMind's patterns, and whether it is about a type; None without one."""
    for text in answer.texts if answer.prose else ():
        for sentence in _SENTENCES.split(text)[:_MOST_SENTENCES]:
            lowered = sentence.lower()
            typed = any(pattern in lowered for pattern in TYPE_PATTERNS)
            if (typed or any(pattern in lowered for pattern in RULE_PATTERNS)) and not _NOT_ARGUMENTS.search(sentence):
                return " ".join(sentence.split()), typed
    return None

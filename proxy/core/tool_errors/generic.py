"""The last resort: GoMind's patterns, which show that a complaint is about the arguments, but not which one.

They are the union of the three lists of the seed (Intelligent Error Handling "Layer 3"; Multi-Layer Type Safety, step 1
and implementation notes). GoMind looks for them anywhere in the body. Here a sentence about the caller's rights or
means does not count, although it may say "is required", because different arguments would not help.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.tool_errors.error_body import ErrorBody

# `isTypeRelatedError` of the seed, all three lists.
TYPE_PATTERNS: Final = (
    "cannot unmarshal string into",
    "cannot unmarshal number into",
    "cannot unmarshal bool into",
    "json: cannot unmarshal",
    "type mismatch",
    "invalid type",
    "expected number",
    "expected string",
    "expected boolean",
    "invalid value",
)
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


def read_sentence(answer: ErrorBody) -> tuple[str, bool] | None:
    """The first sentence with one of GoMind's patterns, and whether it is about a type; None without one."""
    if not answer.prose:
        return None
    for text in answer.texts:
        for sentence in _SENTENCES.split(text)[:_MOST_SENTENCES]:
            lowered = sentence.lower()
            typed = any(pattern in lowered for pattern in TYPE_PATTERNS)
            if (typed or any(pattern in lowered for pattern in RULE_PATTERNS)) and not _NOT_ARGUMENTS.search(sentence):
                return " ".join(sentence.split()), typed
    return None

"""The last resort: GoMind's patterns, which tell that a complaint is about the arguments and not which one.

The union of the three lists of the seed (Intelligent Error Handling "Layer 3"; Multi-Layer Type Safety, step 1 and
implementation notes). GoMind looks for them anywhere in the body. Here a sentence that speaks of the caller's
rights or means is left out, although it says "is required": no other argument mends it.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.complaints.answer import Answer

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

# What only an operator, a login or money can mend.
_NOT_ARGUMENTS: Final = re.compile(
    r"authenti|authori[sz]|api[ _-]?key|credential|log ?in\b|sign[ -]?in|permission|token\b|subscri|payment|billing"
    r"|quota|rate limit|licen[cs]e|session|csrf|certificate|signature|account\b|plan\b|upgrade|content-type|header"
    r"|https?\b is|cookie|user[ -]agent|tls|ssl|environment variable|configur",
    re.IGNORECASE,
)
_SENTENCES: Final = re.compile(r"(?<=[.;!?])\s+|\n")
_MOST_SENTENCES: Final = 200


def spoken(answer: Answer) -> tuple[str, bool] | None:
    """The first sentence that holds one of GoMind's patterns, and whether it tells of a type; None without one."""
    if not answer.prose:
        return None
    for text in answer.texts:
        for sentence in _SENTENCES.split(text)[:_MOST_SENTENCES]:
            lowered = sentence.lower()
            typed = any(pattern in lowered for pattern in TYPE_PATTERNS)
            if (typed or any(pattern in lowered for pattern in RULE_PATTERNS)) and not _NOT_ARGUMENTS.search(sentence):
                return " ".join(sentence.split()), typed
    return None

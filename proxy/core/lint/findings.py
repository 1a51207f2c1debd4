"""Findings of the schema lint, its keywords, and the keyword that a misspelt one means. Pure."""

from __future__ import annotations

from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer

# Keywords that can refuse a value, in all drafts.
ASSERTING: Final = frozenset(
    ["type", "enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength",
     "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "contains", "maxContains", "minContains",
     "maxProperties", "minProperties", "required", "dependentRequired", "dependentSchemas", "dependencies", "allOf",
     "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "additionalItems", "unevaluatedItems",
     "properties", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties", "format",
     "$ref", "$dynamicRef", "$recursiveRef"]
)  # fmt: skip
# Keywords that say something and refuse nothing: of all drafts, and of OpenAPI's schemas (3.0, "Schema Object").
SAYING: Final = frozenset(
    ["$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$comment", "$defs",
     "definitions", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
     "contentEncoding", "contentMediaType", "contentSchema", "nullable", "discriminator", "xml", "externalDocs",
     "example"]
)  # fmt: skip
KNOWN: Final = ASSERTING | SAYING
# Words that people write in schemas on purpose, and that are near an asserting keyword.
_OWN_WORDS: Final = frozenset(
    ["allow", "container", "cost", "count", "dtype", "form", "host", "multiple", "note", "notes", "num", "option",
     "options", "unit", "units", "when"]
)  # fmt: skip
# The keywords of our own.
_OURS: Final = ("x-hint", "x-null", "x-repair", "x-sensitive", "x-severity")


@value_class
class Finding:
    """Something that a schema says in vain: its document and place, what is wrong, and what to write instead.
    `is_grave`: it surely means more than it guards. `is_keyword`: the operator's `schemas.unknown_keywords` decides."""

    document: str
    path: Pointer
    message: str
    hint: str = ""
    is_grave: bool = False
    is_keyword: bool = False


def show(value: JsonValue) -> str:
    """A value of a config in a message, as YAML and JSON spell it and cut to 40 characters."""
    text = dumps(value).decode()
    return text if len(text) <= 40 else text[:39] + "…"


def find_nearest_keyword(key: str) -> str | None:
    """The keyword that a misspelt one surely means: one edit away, or two from eight letters on, whatever the case
    and the separators. None for keywords that exist, and for words that people write on purpose."""
    folded = fold(key)
    if key in KNOWN or key in _OURS or folded in _OWN_WORDS or folded in _FOLDED_SAYING:
        return None
    if key.startswith("x-") or folded in _LETTERS_OF_OURS:
        return _find_near(folded, _FOLDED_OURS)
    if folded in _SHORT:
        return folded
    near = _find_near(folded, _FOLDED_REFERENCES) if key.startswith("$") else None
    return near or _find_near(folded.lstrip("$"), _FOLDED_ASSERTING)


def _find_near(folded: str, keywords: tuple[tuple[str, str], ...]) -> str | None:
    counted = [(count_edits(folded, letters), len(letters), keyword) for keyword, letters in keywords]
    near = [(edits, keyword) for edits, length, keyword in counted if edits <= (2 if length >= 8 else 1)]
    return min(near)[1] if near else None


def fold(key: str) -> str:
    """A key without regard to case and separators."""
    return "".join(letter for letter in key.lower() if letter.isalnum() or letter == "$")


_FOLDED_SAYING: Final = frozenset((*map(fold, SAYING), "$def"))
_FOLDED_ASSERTING: Final = tuple((key, fold(key)) for key in sorted(ASSERTING) if len(key) >= 4 and key[0] != "$")
_FOLDED_REFERENCES: Final = tuple((key, fold(key)) for key in sorted(ASSERTING) if key[0] == "$")
_SHORT: Final = frozenset(key for key in ASSERTING if len(key) < 4)
_FOLDED_OURS: Final = tuple((key, fold(key)) for key in _OURS)
_LETTERS_OF_OURS: Final = frozenset(letters for _, letters in _FOLDED_OURS)


def count_edits(one: str, other: str) -> int:
    """Returns the number of letters to insert, drop, exchange or swap (optimal string alignment), at most 3."""
    if abs(len(one) - len(other)) > 2:
        return 3
    before, row = [0] * (len(other) + 1), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, wanted in enumerate(other, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                row[j] = min(row[j], last[j - 2] + 1)
    return min(row[-1], 3)

"""Prepares a listed schema before it is compiled: estimates its cost, and lays the operator's patch over it. Pure."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from proxy.core.json.jsontext import walk
from proxy.core.model.values import JsonValue

# The most values, and characters of patterns, of a schema that is compiled without being examined. A pattern must not
# unfold: no count over 99, none of a class of Unicode letters, no look around, no reference to a group.
_FEW: Final = 1_000
_SHORT_PATTERNS: Final = 1_000
_COUNTED: Final = re.compile(r"\{[0-9,]*[0-9]{3}|\\[pPk1-9]|\\[wW].*\{|\(\?|\}.*\{.*\}.*\{")


def may_be_expensive(schema: JsonValue) -> bool:
    """Whether a schema has many values, patterns that could be of any cost, or references that generated code cannot
    follow."""
    values = list(islice(walk(schema), _FEW + 1))
    objects = [value for value in values if isinstance(value, dict)]
    patterns = [text for value in objects for text in _list_patterns(value)]
    is_long = len(values) > _FEW or sum(map(len, patterns)) > _SHORT_PATTERNS
    return is_long or any(map(_COUNTED.search, patterns)) or any(map(_leads_far, objects))


def _list_patterns(schema: dict[str, JsonValue]) -> list[str]:
    named = schema.get("patternProperties")
    return [
        text for text in (schema.get("pattern"), *(named if isinstance(named, dict) else ())) if isinstance(text, str)
    ]


def _leads_far(schema: dict[str, JsonValue]) -> bool:
    reference = schema.get("$ref", "#")
    dynamic = "$dynamicRef" in schema or "$recursiveRef" in schema
    return dynamic or not isinstance(reference, str) or not reference.startswith("#")


def apply_merge_patch(target: JsonValue, patch: JsonValue) -> JsonValue:
    """A value with a JSON Merge Patch laid over it (RFC 7396 section 2)."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = apply_merge_patch(made.get(key), value)
    return made

"""Judges a value by walking its schema, with nothing compiled: for a schema that one start asks about one value.

To write code for a schema as large as the config's own takes longer than the rest of a start, and the engine beside
ours takes 8 MB (judge.py). So this file knows the common keywords alone, and its answer has one side: what it takes is
valid by every draft from 6 on; what it does not take, `compile_check` has to judge, which also finds the reasons. A
keyword it does not know, a reference to another document, and a pattern or a text for one that is not as simple as
`_SIMPLE` says are not taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sized
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Final

from proxy.core.jsontext import as_decimal, at_pointer, equal, json_type, parse_pointer
from proxy.core.model import JsonValue

# (root schema, the keyword's value, the value) -> whether it is surely right.
_Taker = Callable[[JsonValue, JsonValue, JsonValue], bool]


# Expressions that mean the same to Python and to ECMA-262, as long as the text is printable ASCII: classes, groups,
# repetitions; of the escapes those of characters, digits, words and spaces.
_ESCAPE: Final = r"\\[\\.\-/^$*+?()\[\]{}|dDwWsS]"
_SIMPLE: Final = re.compile(
    rf"(?:[^\\(){{}}\[\]]|{_ESCAPE}|\((?:\?:)?(?!\?)|\)|\{{[0-9]+(?:,[0-9]*)?\}}|\[\^?(?:[^\\\[\]]|{_ESCAPE})+\])*"
)


def takes(root: JsonValue, schema: JsonValue, value: JsonValue) -> bool:
    """Whether a schema within the document `root` surely takes a value. Neither is copied or kept.

    The schema is known to be right, and so shallow that recursion is safe.
    """
    if isinstance(schema, bool):
        return schema
    for keyword, asked in schema.items():
        taker = _TAKERS.get(keyword)
        if taker is not None:
            if not taker(root, asked, value):
                return False
        elif keyword not in _SAY_NOTHING and not keyword.startswith("x-"):
            return False
    return not isinstance(value, dict) or _members(root, schema, value)


_MEMBERS: Final = frozenset({"additionalProperties", "patternProperties", "properties"})
_NOTES: Final = frozenset({"$comment", "$schema", "default", "deprecated", "description", "examples", "title"})
# What describes a value, is there to be referred to, or is asked of a mapping at the end.
_SAY_NOTHING: Final = _MEMBERS | _NOTES | {"$defs", "definitions", "readOnly", "writeOnly"}


def _type(_root: JsonValue, named: JsonValue, value: JsonValue) -> bool:
    kind, names = json_type(value), [named] if isinstance(named, str) else named
    return kind in names or (kind == "integer" and "number" in names)


def _enum(_root: JsonValue, choices: JsonValue, value: JsonValue) -> bool:
    return any(equal(choice, value) for choice in choices)


def _const(_root: JsonValue, choice: JsonValue, value: JsonValue) -> bool:
    return equal(choice, value)


def _ref(root: JsonValue, reference: JsonValue, value: JsonValue) -> bool:
    known = reference.startswith("#/") and "%" not in reference  # nothing to be decoded
    return known and takes(root, at_pointer(root, parse_pointer(reference[1:])), value)


def _any_of(root: JsonValue, branches: JsonValue, value: JsonValue) -> bool:
    return any(takes(root, branch, value) for branch in branches)


def _all_of(root: JsonValue, parts: JsonValue, value: JsonValue) -> bool:
    return all(takes(root, part, value) for part in parts)


def _not(_root: JsonValue, refused: JsonValue, value: JsonValue) -> bool:
    """A mapping that misses a required key is refused for sure; of no other schema is that told here."""
    if not isinstance(value, dict) or not isinstance(refused, dict) or "$ref" in refused:
        return False
    return any(key not in value for key in refused.get("required", ()))


def _pattern(_root: JsonValue, pattern: JsonValue, value: JsonValue) -> bool:
    return not isinstance(value, str) or _matches(pattern, value) is True


def _required(_root: JsonValue, keys: JsonValue, value: JsonValue) -> bool:
    return not isinstance(value, dict) or all(key in value for key in keys)


def _items(root: JsonValue, schema: JsonValue, value: JsonValue) -> bool:
    if not isinstance(schema, dict | bool):
        return False
    return not isinstance(value, list) or all(takes(root, schema, item) for item in value)


def _unique(_root: JsonValue, asked: JsonValue, value: JsonValue) -> bool:
    if not isinstance(value, list) or not asked:
        return True
    return not any(equal(item, other) for index, item in enumerate(value) for other in value[:index])


def _bound(fits: Callable[[Any, Any], Any]) -> _Taker:
    def taker(_root: JsonValue, limit: JsonValue, value: JsonValue) -> bool:
        if isinstance(value, str | bool | dict | list) or value is None:
            return True
        return bool(fits(as_decimal(value), as_decimal(limit)))

    return taker


def _size(kind: type[Sized], fits: Callable[[Any, Any], Any]) -> _Taker:
    def taker(_root: JsonValue, limit: JsonValue, value: JsonValue) -> bool:
        return not isinstance(value, kind) or bool(fits(len(value), as_decimal(limit)))

    return taker


def _members(root: JsonValue, schema: JsonValue, value: JsonValue) -> bool:
    """`properties`, `patternProperties` and `additionalProperties` in one, as the last depends on the others."""
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    other = schema.get("additionalProperties", True)
    for key, item in value.items():
        matches = {pattern: _matches(pattern, key) for pattern in patterns}
        if None in matches.values():
            return False
        judges = [named[key]] if key in named else []
        judges += [patterns[pattern] for pattern, found in matches.items() if found]
        if not all(takes(root, judge, item) for judge in judges or [other]):
            return False
    return True


def _matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern is found in a text; None where that is not sure."""
    if not (text.isascii() and text.isprintable()):
        return None
    compiled = _compiled(pattern)
    return None if compiled is None else compiled.search(text) is not None


@lru_cache(maxsize=32)  # the config's schema has 20
def _compiled(pattern: str) -> re.Pattern[str] | None:
    return re.compile(pattern) if _SIMPLE.fullmatch(pattern) else None


_TAKERS: Final[Mapping[str, _Taker]] = {
    "$ref": _ref,
    "allOf": _all_of,
    "anyOf": _any_of,
    "const": _const,
    "enum": _enum,
    "exclusiveMaximum": _bound(lt),
    "exclusiveMinimum": _bound(gt),
    "items": _items,
    "maxItems": _size(list, le),
    "maxLength": _size(str, le),
    "maxProperties": _size(dict, le),
    "maximum": _bound(le),
    "minItems": _size(list, ge),
    "minLength": _size(str, ge),
    "minProperties": _size(dict, ge),
    "minimum": _bound(ge),
    "not": _not,
    "pattern": _pattern,
    "required": _required,
    "type": _type,
    "uniqueItems": _unique,
}

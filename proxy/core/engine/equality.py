"""Equality of JSON values as hashable keys: two values are equal exactly when their keys are.

Numbers are equal by value (1 equals 1.0 equals 1e0), `true` is not 1, objects are equal whatever their order
(draft 2020-12, 4.2.2). Keys make `enum`, `const` and `uniqueItems` take linear time.
"""

from __future__ import annotations

from collections.abc import Hashable

from proxy.core.engine.numbers import digits_of
from proxy.core.model import JsonValue

_TRUE = ("true",)
_FALSE = ("false",)


def key(value: JsonValue) -> Hashable:
    """A hashable stand-in for a JSON value. Strings, ints and None stand for themselves."""
    kind = type(value)
    if kind is str or kind is int or value is None:
        own: Hashable = value
        return own
    if kind is bool:
        return _TRUE if value else _FALSE
    if kind is dict:
        return ("object", frozenset((name, key(item)) for name, item in value.items()))
    if kind is list:
        return ("array", *map(key, value))
    digits = digits_of(value)
    # Only an integral number of less than 4,300 digits can equal an int that was read from JSON.
    if 0 <= digits.exponent <= 4300:
        return digits.whole
    return ("number", digits)


def unique(values: list[JsonValue]) -> bool:
    """Whether no two items of a list are equal."""
    return len(set(map(key, values))) == len(values)

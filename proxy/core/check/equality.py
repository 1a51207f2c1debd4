"""Equality of JSON values as hashable keys: two values are equal exactly when their keys are.

Numbers are equal by value (1 equals 1.0 equals 1e0), `true` is not 1, objects are equal whatever their order
(draft 2020-12, 4.2.2). Keys make `enum`, `const` and `uniqueItems` take linear time.
"""

from __future__ import annotations

from collections.abc import Hashable

from proxy.core.check.numbers import read_digits
from proxy.core.model.values import JsonValue

# CPython hashes an int by its remainder modulo 2**61 - 1, so a caller could send thousands of ints with one hash. A
# larger int is replaced by its text, whose hash cannot be predicted from outside.
PLAIN_INT = 2**60

_TRUE = ("true",)
_FALSE = ("false",)


def make_equality_key(value: JsonValue) -> Hashable:
    """A hashable stand-in for a JSON value. Strings, ints below `PLAIN_INT` and None stand for themselves."""
    kind = type(value)
    if kind is int:
        return value if -PLAIN_INT < value < PLAIN_INT else ("int", hex(value))
    if kind is str or value is None:
        own: Hashable = value
        return own
    if kind is bool:
        return _TRUE if value else _FALSE
    if kind is dict:
        return ("object", frozenset((name, make_equality_key(item)) for name, item in value.items()))
    if kind is list:
        return ("array", *map(make_equality_key, value))
    digits = read_digits(value)
    # An int that was read from JSON has less than 4,300 digits, so only such an integral number can equal one.
    if 0 <= digits.exponent <= 4300:
        return make_equality_key(digits.whole)
    return ("number", digits)


def are_unique(values: list[JsonValue]) -> bool:
    """Whether no two items of a list are equal."""
    return len(set(map(make_equality_key, values))) == len(values)

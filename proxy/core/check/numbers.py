"""Compares JSON numbers, and JSON values by their numbers: exactly, in time bounded by the length of the text.

A float decides only where it cannot be wrong. Reading a decimal text as a double is monotonic, so two numbers with
different doubles compare as the doubles do. A double with a fraction never came from an integer. Everything else is
decided on the digits. No exponent is expanded beyond those in the schema itself (`1e-999999999` is cheap).

Two values are equal exactly when their hashable keys are (`make_equality_key`): numbers by value (1 equals 1.0 equals
1e0), `true` is not 1, objects whatever their order (draft 2020-12, 4.2.2).
"""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from math import ceil, floor, inf
from typing import Final, NamedTuple

from proxy.core.json.jsontext import LosslessFloat, make_decimal
from proxy.core.model.values import JsonValue

# The number types of a parsed value besides int: jsontext gives LosslessFloat, callers may pass the other two.
INEXACT: Final = frozenset({LosslessFloat, float, Decimal})
NUMBERS: Final = INEXACT | {int}


class Digits(NamedTuple):
    """A number as sign, digits and exponent: `digits` has no zero at either end and is empty for zero."""

    negative: bool
    digits: str
    exponent: int


def read_digits(value: JsonValue) -> Digits:
    """Takes a JSON number of any type; gives its exact digits."""
    sign, digits, exponent = make_decimal(value).as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    return Digits(sign == 1, stripped, int(exponent) + len(text) - len(stripped)) if stripped else Digits(False, "", 0)


def is_spelled_as_integer(value: JsonValue) -> bool:
    """Returns whether draft 4 counts a number that is no int as an integer: no fraction or exponent, as only `-0`."""
    return isinstance(value, LosslessFloat) and not set(bytes(value)) & set(b".eE")


def _double(value: JsonValue) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


class Bound:
    """A limit of `minimum` and its relatives, exact; `floor` and `ceiling` for ints, if it is of moderate size."""

    __slots__ = ("ceiling", "exact", "floor", "near")

    def __init__(self, value: JsonValue) -> None:
        self.exact = make_decimal(value)
        self.near = _double(self.exact)
        is_moderate = abs(self.exact.adjusted()) < 400
        self.floor = floor(self.exact) if is_moderate else None
        self.ceiling = ceil(self.exact) if is_moderate else None

    def compare(self, value: JsonValue) -> int:
        """-1, 0 or 1 as `value` is below, at or above the limit."""
        near = _double(value)
        if near != self.near:
            return 1 if near > self.near else -1
        exact = make_decimal(value)
        return (exact > self.exact) - (exact < self.exact)


class Step:
    """The value of `multipleOf`, exact."""

    __slots__ = ("coefficient", "exponent", "whole")

    def __init__(self, value: JsonValue) -> None:
        digits = read_digits(value)
        self.coefficient = int(digits.digits or "0")
        self.exponent = digits.exponent
        # The step as an int, if it has a moderate size; for ints, `value % whole` then decides.
        self.whole = self.coefficient * 10**self.exponent if 0 <= self.exponent < 400 else None

    def divides(self, value: JsonValue) -> bool:
        """Whether `value` is a multiple of the step. Let value = c * 10^x (c without trailing zero) and step = d *
        10^y. For x < y a multiple would need 10 | c, which only zero has. Otherwise c * 10^(x-y) must be 0 modulo d,
        and pow() never builds 10^(x-y)."""
        _, digits, exponent = read_digits(value)
        shift, step, remainder = exponent - self.exponent, self.coefficient, 0
        if digits and shift < 0:
            return False
        for start in range(0, len(digits), 4000):  # int() takes no longer text
            piece = digits[start : start + 4000]
            remainder = (remainder * pow(10, len(piece), step) + int(piece)) % step
        return not digits or remainder * pow(10, shift, step) % step == 0


# --- equality ---------------------------------------------------------------------------------------------------------
# CPython hashes an int by its remainder modulo 2**61 - 1, so a caller could send thousands of ints with one hash. A
# larger int is replaced by its text, whose hash cannot be predicted from outside.
PLAIN_INT = 2**60


def make_equality_key(value: JsonValue) -> Hashable:
    """Returns a hashable key for a JSON value. Strings, ints below `PLAIN_INT` and None are their own keys."""
    kind = type(value)
    if kind is int:
        return value if -PLAIN_INT < value < PLAIN_INT else ("int", hex(value))
    if kind is str or value is None:
        own: Hashable = value
        return own
    if kind is bool:
        return ("true",) if value else ("false",)
    if kind is dict:
        return ("object", frozenset((name, make_equality_key(item)) for name, item in value.items()))
    if kind is list:
        return ("array", *map(make_equality_key, value))
    digits = read_digits(value)
    # An int that was read from JSON has less than 4,300 digits, so only such an integral number can equal one.
    if 0 <= digits.exponent <= 4300:
        return make_equality_key(int(make_decimal(value)))
    return ("number", digits)


def are_unique(values: list[JsonValue]) -> bool:
    """Returns whether no two items of a list are equal."""
    return len(set(map(make_equality_key, values))) == len(values)

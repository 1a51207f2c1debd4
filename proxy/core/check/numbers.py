"""Compares JSON numbers, and JSON values by their numbers: exactly, in time bounded by the length of the text.

A float decides only where it cannot be wrong. Reading a decimal text as a double is monotonic, so two numbers with
different doubles compare as the doubles do; and a double with a fraction never came from an integer. Everything else is
decided on the digits. No exponent is expanded beyond those in the schema itself (`1e-999999999` is cheap).

Two values are equal exactly when their equality keys are (`make_equality_key`): numbers by value (1 equals 1.0 equals
1e0), `true` is not 1, objects whatever their order (draft 2020-12, 4.2.2). The keys are hashable, so `enum`, `const`
and `uniqueItems` take linear time.
"""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal, InvalidOperation
from math import inf
from typing import Final, NamedTuple

from proxy.core.json.jsontext import LosslessFloat
from proxy.core.model.values import JsonValue

# The number types of a parsed value besides int: jsontext gives LosslessFloat, callers may pass the other two.
INEXACT: Final = frozenset({LosslessFloat, float, Decimal})
NUMBERS: Final = INEXACT | {int}

# Exponents are clamped to this: no double reaches it, and no arithmetic below depends on its size.
_FAR: Final = 10**9


class Digits(NamedTuple):
    """A number as sign, digits and exponent: `digits` has no zero at either end and is empty for zero."""

    negative: bool
    digits: str
    exponent: int

    @property
    def whole(self) -> int:
        """The number as an int, for an integral number of moderate size."""
        return int(self.digits or "0") * int(10**self.exponent) * (-1 if self.negative else 1)

    @property
    def integral(self) -> bool:
        """Whether the number has no fraction."""
        return self.exponent >= 0


def read_digits(value: JsonValue) -> Digits:
    """Takes a JSON number of any type; gives its exact digits."""
    if isinstance(value, int):
        return _int_digits(value)
    if isinstance(value, LosslessFloat):
        text = bytes(value).decode("ascii")
    else:
        text = repr(value) if isinstance(value, float) else str(value)
    mantissa, _, power = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("+-").partition(".")
    exponent = _clamp(power) - len(fraction)
    digits = (whole + fraction).lstrip("0")
    stripped = digits.rstrip("0")
    if not stripped:
        return Digits(False, "", 0)
    return Digits(text.startswith("-"), stripped, exponent + len(digits) - len(stripped))


def _int_digits(value: int) -> Digits:
    text = format(Decimal(abs(value)), "f") if abs(value).bit_length() > 14_000 else str(abs(value))
    stripped = text.rstrip("0")
    if not stripped:
        return Digits(False, "", 0)
    return Digits(value < 0, stripped, len(text) - len(stripped))


def _clamp(power: str) -> int:
    if not power:
        return 0
    if len(power) > 9:
        unsigned = power.lstrip("+-0")
        if len(unsigned) > 9:
            return -_FAR if power.startswith("-") else _FAR
    return int(power)


def is_integral_number(value: JsonValue) -> bool:
    """Whether a number other than an int has no fraction (2020-12 validation 6.1.1: 1.0 is an integer)."""
    if not _double(value).is_integer():
        return _double(value) in (inf, -inf) and read_digits(value).integral
    return read_digits(value).integral


def is_spelled_as_integer(value: JsonValue) -> bool:
    """Whether draft 4 counts the number as an integer: written without fraction and exponent. Among numbers that are
    not ints, only `-0` is."""
    return isinstance(value, LosslessFloat) and not set(bytes(value)) & set(b".eE")


def _double(value: JsonValue) -> float:
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


class Bound:
    """A limit of `minimum` and its relatives, exact. `floor` and `ceiling` are the same limit for ints."""

    __slots__ = ("ceiling", "exact", "floor", "near")

    def __init__(self, value: JsonValue) -> None:
        self.exact = _decimal(value)
        self.near = _double(self.exact)
        digits = read_digits(value)
        self.floor: int | None = None
        self.ceiling: int | None = None
        if abs(digits.exponent) < 400:
            numerator = int(digits.digits or "0") * (-1 if digits.negative else 1)
            scale: int = 10 ** abs(digits.exponent)
            self.floor = numerator * scale if digits.exponent >= 0 else numerator // scale
            self.ceiling = numerator * scale if digits.exponent >= 0 else -(-numerator // scale)

    def compare(self, value: JsonValue) -> int:
        """-1, 0 or 1 as `value` is below, at or above the limit."""
        near = _double(value)
        if near != self.near:
            return 1 if near > self.near else -1
        exact = _decimal(value)
        return (exact > self.exact) - (exact < self.exact)


def _decimal(value: JsonValue) -> Decimal:
    if isinstance(value, int):
        return Decimal(value)
    try:
        return Decimal(bytes(value).decode("ascii") if isinstance(value, LosslessFloat) else str(value))
    except InvalidOperation:  # an exponent of twenty digits: only its sign and size are kept
        digits = read_digits(value)
        return Decimal((int(digits.negative), (1,), _FAR if digits.exponent > 0 else -_FAR))


class Step:
    """The value of `multipleOf`, exact."""

    __slots__ = ("coefficient", "exponent", "whole")

    def __init__(self, value: JsonValue) -> None:
        digits = read_digits(value)
        self.coefficient = int(digits.digits or "0")
        self.exponent = digits.exponent
        # The step as an int, where it has a moderate size; for ints, `value % whole` then decides.
        self.whole = self.coefficient * 10**self.exponent if 0 <= self.exponent < 400 else None

    def divides(self, value: JsonValue) -> bool:
        """Whether `value` is a multiple of the step.

        With value = c * 10^x (c without trailing zero) and step = d * 10^y: for x < y a multiple would need
        10 | c, which only zero has; else c * 10^(x-y) must be 0 modulo d, and pow() never builds 10^(x-y).
        """
        if self.whole is not None and type(value) is int:
            return bool(value % self.whole == 0)
        digits = read_digits(value)
        if not digits.digits:
            return True
        shift = digits.exponent - self.exponent
        if shift < 0:
            return False
        return _modulo(digits.digits, self.coefficient) * pow(10, shift, self.coefficient) % self.coefficient == 0


def _modulo(digits: str, divisor: int) -> int:
    """int(digits) % divisor, in pieces of a length that int() accepts."""
    remainder = 0
    for start in range(0, len(digits), 4000):
        piece = digits[start : start + 4000]
        remainder = (remainder * pow(10, len(piece), divisor) + int(piece)) % divisor
    return remainder


# --- equality ---------------------------------------------------------------------------------------------------------
# CPython hashes an int by its remainder modulo 2**61 - 1, so a caller could send thousands of ints with one hash. A
# larger int is replaced by its text, whose hash cannot be predicted from outside.
PLAIN_INT = 2**60


def make_equality_key(value: JsonValue) -> Hashable:
    """A hashable stand-in for a JSON value. Strings, ints below `PLAIN_INT` and None stand for themselves."""
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
        return make_equality_key(digits.whole)
    return ("number", digits)


def are_unique(values: list[JsonValue]) -> bool:
    """Whether no two items of a list are equal."""
    return len(set(map(make_equality_key, values))) == len(values)

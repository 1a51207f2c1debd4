"""The strict reader of JSON text (jiter): gives the value that the text spells, or a problem with its place.

It refuses what two parsers could read differently (jsontext.py lists it). jiter does not check overflow, our bounds and
the sign of `-0`; those are checked afterwards, and only where a cheap look at the bytes shows that they can matter. The
reader keeps the text of every number that is not a plain integer. `jsontext.parse` gives it every text that the quick
reader does not read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from jiter import LosslessFloat, from_json

from proxy.core.model.values import JsonProblem, JsonValue
from proxy.core.model.work import READING

__all__ = [
    "DEFAULT_LIMITS",
    "SHORT",
    "LosslessFloat",
    "TextLimits",
    "has_minus_zero",
    "read_keeping_minus_zero",
    "read_lossless",
    "read_strict_number",
    "read_strictly",
]


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Bounds of one JSON text: nesting depth and number of values (repair.md section 1)."""

    depth: int = 64
    nodes: int = READING
    # A text of fewer bytes cannot break either limit: a level takes two bytes, a value one.
    harmless: int = field(init=False)
    # In a text of fewer bytes, counting the brackets costs less than visiting the values.
    short: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "harmless", min(2 * self.depth, self.nodes))
        object.__setattr__(self, "short", min(512, self.nodes))


DEFAULT_LIMITS: Final = TextLimits()

_POSITION = re.compile(r"^(.*) at line (\d+) column (\d+)$", re.DOTALL)
_MINUS_ZERO = re.compile(rb"-0(?![.0-9eE])")
# An exponent of ten digits or more: no common arithmetic distinguishes such a number from zero or infinity.
_FAR_EXPONENT = re.compile(rb"[eE][+-]?0*[1-9][0-9]{9,}\Z")
# A string, which ends at the end of the text where it is not closed, or a bracket.
_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)
_OPENS: Final = (b"[", b"{")
_CLOSES: Final = (b"]", b"}")
_INFINITE: Final = (float("inf"), float("-inf"))

_PLAIN: Final = frozenset({str, bool, type(None)})
_EDGES: Final = frozenset({*_INFINITE, 0.0})

# A text up to this size is searched for signs of what the reader does not check. In a longer text the values are
# visited instead, because it may be one long string, which is quick to read and slow to search.
SHORT: Final = 4096
# Translates a short text for the search for numbers that the reader wrongly accepts: every digit becomes "0", every E
# "e", and everything else a space.
_SHAPES: Final = bytes(48 if 48 <= byte <= 57 else 101 if byte in b"eE" else 32 for byte in range(256))
_EXPONENT: Final = b"0e"
_MOST_DIGITS: Final = 309  # of the largest double, before the point
_TOO_MANY_DIGITS: Final = b"0" * _MOST_DIGITS


def read_strictly(text: bytes, limits: TextLimits) -> JsonValue | JsonProblem:
    """Reads one strict JSON text: the value, or a `JsonProblem` with line and column (VAL-004). Never raises."""
    try:
        value = from_json(
            text, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True, float_mode="lossless-float"
        )
    except ValueError as error:
        return _check_depth(text, limits.depth) or _problem(text, str(error))
    size = len(text)
    if (size < 2 * limits.depth or (size <= SHORT and _openings(text) <= limits.depth)) and size <= limits.nodes:
        # CPython 3.11's `in` first tries its argument as an integer, which takes three times as long as partition().
        # The single byte is looked for before the expression, because that is quicker.
        shapes = text.translate(_SHAPES)
        if not shapes.partition(_EXPONENT)[1] and (size < _MOST_DIGITS or shapes.find(_TOO_MANY_DIGITS) < 0):
            if text.partition(b"-")[1] and _MINUS_ZERO.search(text):
                return read_keeping_minus_zero(text)
            return value
    return _survey_value(text, value, limits)


def _openings(text: bytes) -> int:
    """An upper bound of a text's nesting depth."""
    return text.count(b"{") + text.count(b"[")


def _survey_value(text: bytes, value: JsonValue, limits: TextLimits) -> JsonValue | JsonProblem:
    """The value, after checking what the reader does not check."""
    too_deep, nodes, far, zero = _survey(value, limits.depth)
    if too_deep:
        return _check_depth(text, limits.depth) or JsonProblem(f"nested deeper than {limits.depth} levels", 1, 1)
    if nodes > limits.nodes:
        return JsonProblem(f"more than {limits.nodes} values", 1, 1)
    if far is not None:
        return JsonProblem("number out of range", *_locate(text, bytes(far)))
    if zero and _MINUS_ZERO.search(text):
        return read_keeping_minus_zero(text)
    return value


def _survey(value: JsonValue, depth: int) -> tuple[bool, int, LosslessFloat | None, bool]:
    """Visits every value once; gives (deeper than `depth`, number of values, a number out of range, an integer 0)."""
    level: list[Any] = [value.values()] if type(value) is dict else [value if type(value) is list else (value,)]
    nodes, far, zero = int(type(value) in (dict, list)), None, False
    while level and depth:
        depth -= 1
        below: list[Any] = []
        for holder in level:
            nodes += len(holder)
            for item in holder:
                kind = type(item)
                if kind in _PLAIN:
                    continue
                if kind is int:
                    if not item:
                        zero = True
                elif kind is LosslessFloat:
                    # Only a number in range gives a double that is neither zero nor infinite.
                    if float(item) in _EDGES and _out_of_range(item):
                        far = item
                else:
                    below.append(item.values() if kind is dict else item)
        level = below
    return bool(level), nodes, far, zero


def _out_of_range(number: LosslessFloat) -> bool:
    """Whether a number overflows a double, or has an exponent beyond all arithmetic (RFC 8259 section 6: a reader may
    set limits). A number that only underflows is accepted: its text is forwarded, and it is compared exactly."""
    near = float(number)
    return near in _INFINITE or (not near and _FAR_EXPONENT.search(bytes(number)) is not None)


def has_minus_zero(text: bytes) -> bool:
    """Whether a text may hold the integer `-0`."""
    return _MINUS_ZERO.search(text) is not None


def read_lossless(text: bytes) -> JsonValue:
    """Reads a text that `read_strictly` took before, `-0` aside."""
    return from_json(text, allow_inf_nan=False, cache_mode="keys", float_mode="lossless-float")


def read_keeping_minus_zero(text: bytes) -> JsonValue:
    """Reads a text with `-0`, which jiter reads as the integer 0 without its sign. The text has passed jiter, so `json`
    can read it safely."""

    def integer(digits: str) -> int | LosslessFloat:
        return LosslessFloat(b"-0") if digits == "-0" else int(digits)

    return json.loads(text, parse_int=integer, parse_float=lambda digits: LosslessFloat(digits.encode()))


def read_strict_number(text: str) -> int | LosslessFloat | None:
    """The number that a text spells, JSON's white space around it allowed. None for any other text, and for the few
    numbers that need the full reader (zeros, exponents, a hundred digits)."""
    try:
        read = from_json(text.encode(), allow_inf_nan=False, float_mode="lossless-float")
    except ValueError:
        return None
    if type(read) is LosslessFloat:
        return read if "." in text and "e" not in text and "E" not in text and len(text) < 100 else None
    return read if type(read) is int and read else None


def _problem(text: bytes, message: str) -> JsonProblem:
    found = _POSITION.match(message)
    if found is None:
        return JsonProblem(message, 1, 1)
    reason, line, column = found[1], int(found[2]), max(int(found[3]), 1)
    if reason.startswith("Detected duplicate key"):
        reason = "duplicate key " + reason.removeprefix("Detected duplicate key ")
    if reason == "unexpected end of hex escape":  # a text that ends there is "EOF while parsing a string"
        reason = "lone leading surrogate in hex escape"
    truncated = reason.startswith("EOF while parsing")
    return JsonProblem(reason, line, column, truncated and text.strip() != b"")


def _check_depth(text: bytes, limit: int) -> JsonProblem | None:
    depth = 0
    for found in _BRACKET.finditer(text):
        if found[0] in _OPENS:
            depth += 1
            if depth > limit:
                return JsonProblem(f"nested deeper than {limit} levels", *_position(text, found.start()))
        elif found[0] in _CLOSES:
            depth -= 1
    return None


def _position(text: bytes, offset: int) -> tuple[int, int]:
    return text.count(b"\n", 0, offset) + 1, offset - text.rfind(b"\n", 0, offset)


def _locate(text: bytes, number: bytes) -> tuple[int, int]:
    return _position(text, max(text.find(number), 0))

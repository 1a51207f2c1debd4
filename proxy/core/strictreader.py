"""The strict reader of JSON text, jiter: what it gives is what the text says, or a problem with its place.

It refuses what two parsers could read differently (jsontext.py says what). What jiter does not check (overflow, our own
bounds, the sign of `-0`) is checked on top, and only when a cheap look at the bytes says that it can matter. It keeps
the text of every number that is not a plain integer. `jsontext.parse` asks it about every text that the quick reader
has no say in.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from jiter import LosslessFloat, from_json

from proxy.core.model import JsonProblem, JsonValue

__all__ = ["DEFAULT_LIMITS", "SHORT", "LosslessFloat", "TextLimits", "read_strictly", "strict_number"]


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Bounds of one JSON text: nesting depth and number of values (repair.md section 1)."""

    depth: int = 64
    nodes: int = 100_000
    # A text of fewer bytes cannot break either: a level takes two, a value one.
    harmless: int = field(init=False)
    # Of fewer bytes than these, counting the brackets costs less than going over the values.
    short: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "harmless", min(2 * self.depth, self.nodes))
        object.__setattr__(self, "short", min(512, self.nodes))


DEFAULT_LIMITS: Final = TextLimits()

_POSITION = re.compile(r"^(.*) at line (\d+) column (\d+)$", re.DOTALL)
_MINUS_ZERO = re.compile(rb"-0(?![.0-9eE])")
# An exponent of ten digits or more: no arithmetic here or anywhere keeps such a number apart from zero.
_FAR_EXPONENT = re.compile(rb"[eE][+-]?0*[1-9][0-9]{9,}\Z")
_INFINITE: Final = (float("inf"), float("-inf"))

_PLAIN: Final = frozenset({str, bool, type(None)})
_EDGES: Final = frozenset({*_INFINITE, 0.0})

# A text up to this size is searched for signs of what the reader does not check; in a longer one the values are looked
# at, because it may be one long string, which costs the reader next to nothing to read.
SHORT: Final = 4096
# What a short text is searched in for numbers that the reader lets pass: itself, with every digit as "0", every E as
# "e" and all else as a space.
_SHAPES: Final = bytes(48 if 48 <= byte <= 57 else 101 if byte in b"eE" else 32 for byte in range(256))
_EXPONENT: Final = b"0e"
_MOST_DIGITS: Final = 309  # of a double, before the point
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
        # partition(), because `in` asks CPython 3.11 for an integer first, which takes three times as long; and for one
        # byte before it does for two
        shapes = text.translate(_SHAPES)
        if not shapes.partition(_EXPONENT)[1] and (size < _MOST_DIGITS or shapes.find(_TOO_MANY_DIGITS) < 0):
            if text.partition(b"-")[1] and _MINUS_ZERO.search(text):
                return _parse_keeping_minus_zero(text)
            return value
    return _surveyed(text, value, limits)


def _openings(text: bytes) -> int:
    """A text is nested at most so deep."""
    return text.count(b"{") + text.count(b"[")


def _surveyed(text: bytes, value: JsonValue, limits: TextLimits) -> JsonValue | JsonProblem:
    """The value, held against what the reader does not check."""
    too_deep, nodes, far, zero = _survey(value, limits.depth)
    if too_deep:
        return _check_depth(text, limits.depth) or JsonProblem(f"nested deeper than {limits.depth} levels", 1, 1)
    if nodes > limits.nodes:
        return JsonProblem(f"more than {limits.nodes} values", 1, 1)
    if far is not None:
        return JsonProblem("number out of range", *_locate(text, bytes(far)))
    if zero and _MINUS_ZERO.search(text):
        return _parse_keeping_minus_zero(text)
    return value


def _survey(value: JsonValue, depth: int) -> tuple[bool, int, LosslessFloat | None, bool]:
    """Looks at every value once: (deeper than `depth`, number of values, a number out of range, an integer 0)."""
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
                    # A double that is neither zero nor infinite can only come of a number in range.
                    if float(item) in _EDGES and _out_of_range(item):
                        far = item
                else:
                    below.append(item.values() if kind is dict else item)
        level = below
    return bool(level), nodes, far, zero


def _out_of_range(number: LosslessFloat) -> bool:
    """Whether a number overflows a double, or has an exponent beyond all arithmetic (RFC 8259 section 6: a reader may
    set limits). What only underflows is kept: its text goes on, and it is compared exactly."""
    near = float(number)
    return near in _INFINITE or (not near and _FAR_EXPONENT.search(bytes(number)) is not None)


def _parse_keeping_minus_zero(text: bytes) -> JsonValue:
    """jiter reads `-0` as the integer 0 and its sign is lost; the text has passed jiter, so json may read it."""

    def integer(digits: str) -> int | LosslessFloat:
        return LosslessFloat(b"-0") if digits == "-0" else int(digits)

    return json.loads(text, parse_int=integer, parse_float=lambda digits: LosslessFloat(digits.encode()))


def strict_number(text: str) -> int | LosslessFloat | None:
    """The number that a text is, with JSON's white space around it; None for any other text, and for the few numbers
    that have to be looked at twice (zeros, exponents, a hundred digits)."""
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
    truncated = reason.startswith("EOF while parsing") or reason == "unexpected end of hex escape"
    return JsonProblem(reason, line, column, truncated and text.strip() != b"")


def _check_depth(text: bytes, limit: int) -> JsonProblem | None:
    depth = 0
    in_string = escaped = False
    for offset, byte in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            if depth > limit:
                line, column = _position(text, offset)
                return JsonProblem(f"nested deeper than {limit} levels", line, column)
        elif byte in b"]}":
            depth -= 1
    return None


def _position(text: bytes, offset: int) -> tuple[int, int]:
    return text.count(b"\n", 0, offset) + 1, offset - text.rfind(b"\n", 0, offset)


def _locate(text: bytes, number: bytes) -> tuple[int, int]:
    return _position(text, max(text.find(number), 0))

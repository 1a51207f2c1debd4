"""Strict JSON in, exact JSON out, and JSON Pointer. All knowledge of JSON text lives here.

Reading (RFC 8259, I-JSON where the two differ) refuses what two parsers could read differently: a byte order mark,
invalid UTF-8, lone surrogates, NaN and Infinity, duplicate keys at any depth, numbers that overflow a double,
integers over 4,300 digits, trailing bytes, too much depth, too many nodes. The reader is jiter; what it does not
check (overflow, our own bounds, the sign of `-0`) is checked on top, and only when a cheap look at the bytes says
that it can matter.

Writing keeps what was read: integers exact at any size, every other number by its own text (`LosslessFloat`), text
as UTF-8. Only repaired arguments are ever written; clean ones go on as the bytes they came in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

from jiter import LosslessFloat, from_json

from proxy.core.model import JsonProblem, JsonValue, Pointer

__all__ = [
    "JSON_TYPES",
    "LosslessFloat",
    "TextLimits",
    "as_decimal",
    "at_pointer",
    "dumps",
    "equal",
    "format_pointer",
    "json_type",
    "parse",
    "parse_pointer",
    "plain",
]

JSON_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

# CPython refuses to convert longer integer texts (sys.int_info.default_max_str_digits); so does every peer we know.
MAX_INTEGER_DIGITS: Final = 4300


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Bounds of one JSON text: nesting depth and number of values (repair.md section 1)."""

    depth: int = 64
    nodes: int = 100_000


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
_SHORT: Final = 4096
# What a short text is searched in for numbers that the reader lets pass: itself, with every digit as "0", every E as
# "e" and all else as a space.
_SHAPES: Final = bytes(48 if 48 <= byte <= 57 else 101 if byte in b"eE" else 32 for byte in range(256))
_EXPONENT: Final = b"0e"
_MOST_DIGITS: Final = 309  # of a double, before the point
_TOO_MANY_DIGITS: Final = b"0" * _MOST_DIGITS


def parse(text: bytes, limits: TextLimits = DEFAULT_LIMITS) -> JsonValue | JsonProblem:
    """Reads one strict JSON text.

    Takes UTF-8 bytes; gives the value, or a `JsonProblem` with line and column (VAL-004). Numbers other than plain
    integers become `LosslessFloat`, which keeps their text. Never raises.
    """
    try:
        value = from_json(
            text, allow_inf_nan=False, cache_mode="keys", catch_duplicate_keys=True, float_mode="lossless-float"
        )
    except ValueError as error:
        return _check_depth(text, limits.depth) or _problem(text, str(error))
    size = len(text)
    if (size < 2 * limits.depth or (size <= _SHORT and _openings(text) <= limits.depth)) and size <= limits.nodes:
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


def read_number(text: str) -> int | LosslessFloat | None:
    """The number that a text is, in JSON's grammar with JSON's white space around it; None for any other text, and for
    the few numbers that have to be looked at twice (zeros, exponents, a hundred digits), which `parse` reads."""
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


def walk(value: JsonValue) -> Iterator[JsonValue]:
    """Every value inside `value`, itself first."""
    stack = [value]
    while stack:
        current = stack.pop()
        yield current
        if type(current) is dict:
            stack.extend(current.values())
        elif type(current) is list:
            stack.extend(current)


# --- writing --------------------------------------------------------------------------------------------------------
_quote: Final[Callable[[str], str]] = encode_basestring  # RFC 8259 section 7: escapes what must be, nothing else


def dumps(value: JsonValue) -> bytes:
    """Writes a value as compact UTF-8 JSON: integers exact, other numbers by their own text, key order kept.

    Raises TypeError for a value that is not JSON.
    """
    return _written(value).encode()


def _written(value: JsonValue) -> str:
    kind = type(value)
    if kind is str:
        return _quote(value)
    if kind is int:
        return str(value)
    if kind is dict:
        return "{" + ",".join([f"{_quote(key)}:{_written(item)}" for key, item in value.items()]) + "}"
    if kind is list or kind is tuple:
        return "[" + ",".join([_written(item) for item in value]) + "]"
    if kind is LosslessFloat:
        return bytes(value).decode("ascii")
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    return _written_as(value)


def _written_as(value: JsonValue) -> str:
    """What a caller of ours may hold instead of the types the reader gives."""
    if isinstance(value, float | Decimal):
        return json.dumps(float(value), allow_nan=False)
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, dict | list | tuple):
        return _written(dict(value) if isinstance(value, dict) else list(value))
    raise TypeError(f"{type(value).__name__} is not JSON")


# --- values ---------------------------------------------------------------------------------------------------------
def json_type(value: JsonValue) -> str:
    """The JSON Schema type name of a value; a number without fraction is "integer" whatever its spelling."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    if isinstance(value, dict):
        return "object"
    return "integer" if is_integral(as_decimal(value)) else "number"


def as_decimal(value: JsonValue) -> Decimal:
    """The exact value of a JSON number (int, LosslessFloat or float)."""
    if isinstance(value, LosslessFloat):
        return decimal_of(bytes(value).decode("ascii"))
    return Decimal(value)


# `decimal` refuses exponents beyond about 10^18; an exponent of this size says as much about a number.
_FAR: Final = 10**17


def decimal_of(text: str) -> Decimal:
    """The exact value of a number in JSON's spelling; of an exponent beyond 10^17 only the sign and that it is huge."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(exponent) < 18:
        return Decimal(text)
    huge = len(exponent.lstrip("+-0")) > 17
    power = (-_FAR if exponent.startswith("-") else _FAR) if huge else int(exponent)
    return Decimal(f"{mantissa}e{power}")


def is_integral(number: Decimal) -> bool:
    """Whether an exact number has no fraction, without building a huge integer for a huge exponent."""
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return False
    return exponent >= 0 or not any(digits[exponent:])


def plain(value: JsonValue) -> JsonValue:
    """A copy in which each `LosslessFloat` is an exact `Decimal`, as the validation engines and comparisons take it."""
    if isinstance(value, LosslessFloat):
        return as_decimal(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def equal(left: JsonValue, right: JsonValue) -> bool:
    """Equality of JSON values: numbers by value (1 equals 1.0), booleans never equal numbers (draft 2020-12, 4.2.2)."""
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str) and left == right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(item, right[key]) for key, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict | list) or isinstance(right, dict | list):
        return False
    return as_decimal(left) == as_decimal(right)


# --- JSON Pointer (RFC 6901) ----------------------------------------------------------------------------------------
def format_pointer(path: Pointer) -> str:
    """The RFC 6901 text of a path; the root is the empty string."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def parse_pointer(text: str) -> Pointer:
    """The steps of an RFC 6901 pointer, all as strings. Raises ValueError if it does not start with '/'."""
    if text == "":
        return ()
    if not text.startswith("/"):
        raise ValueError(f"a JSON Pointer starts with '/': {text!r}")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def at_pointer(value: JsonValue, path: Pointer) -> JsonValue:
    """The value at a path. Raises LookupError where there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value[step]
        elif isinstance(value, list) and str(step).isdecimal():
            value = value[int(step)]
        else:
            raise LookupError(format_pointer(path))
    return value

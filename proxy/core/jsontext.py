"""Strict JSON in, exact JSON out, and JSON Pointer. All knowledge of JSON text lives here.

Reading (RFC 8259, I-JSON where the two differ) refuses what two parsers could read differently: a byte order mark,
invalid UTF-8, lone surrogates, NaN and Infinity, duplicate keys at any depth, numbers that overflow a double,
integers over 4,300 digits, trailing bytes, too much depth, too many nodes.

There are two readers. The quick one, orjson, refuses less, but its word counts only where its writer makes the same
text again of what was read, but for white space: then no key stood twice, no zero lost its sign and no number a digit.
(White space inside a string is left out of account on both sides, so no string can hide a member.) Every other text,
with `1.50`, `1e3` or escapes that need not be, is read by the strict one (strictreader.py), which also says what is
wrong.

So a number that is not a plain integer is a `float` where the shortest spelling of that float is the number's own text,
and a `LosslessFloat`, which keeps the text, everywhere else. Both are exact: whoever compares asks `as_decimal` or the
engine's numbers, whoever writes `number_text`.

Writing keeps what was read: integers exact at any size, every other number by its own text, text as UTF-8. Only
repaired arguments are ever written; clean ones go on as the bytes they came in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from gc import get_referents
from json.encoder import encode_basestring
from math import isfinite
from typing import Final

from orjson import Fragment
from orjson import dumps as quick_write
from orjson import loads as quick_read

from proxy.core.model import JsonProblem, JsonValue, Pointer
from proxy.core.strictreader import (
    DEFAULT_LIMITS,
    SHORT,
    LosslessFloat,
    TextLimits,
    read_strictly,
    strict_number,
)

__all__ = [
    "DEFAULT_LIMITS",
    "FRACTIONS",
    "JSON_TYPES",
    "LosslessFloat",
    "TextLimits",
    "as_decimal",
    "at_pointer",
    "dumps",
    "dumps_known",
    "equal",
    "format_pointer",
    "json_type",
    "number_text",
    "parse",
    "parse_pointer",
    "plain",
]

# What a number with a fraction or an exponent is read as.
FRACTIONS: Final = (float, LosslessFloat)

JSON_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

# CPython refuses to convert longer integer texts (sys.int_info.default_max_str_digits); so does every peer we know.
MAX_INTEGER_DIGITS: Final = 4300

_ASCII_SPACE: Final = " \t\n\r"
_SPACE: Final = _ASCII_SPACE.encode()
# All bytes but those that open a level.
_NO_OPENING: Final = bytes(byte for byte in range(256) if byte not in b"[{")
# So few colons at the beginning of a larger text mean few values.
_BEGINNING: Final = 1024
_FEW: Final = 16


def parse(text: bytes, limits: TextLimits = DEFAULT_LIMITS) -> JsonValue | JsonProblem:
    """Reads one strict JSON text.

    Takes UTF-8 bytes; gives the value, or a `JsonProblem` with line and column (VAL-004). Numbers other than plain
    integers become floats or `LosslessFloat`s, so that none loses a digit (see above). Never raises.
    """
    size = len(text)
    if size <= SHORT or not _one_long_text(text):
        try:
            value = quick_read(text)
            written = quick_write(value)
            if written == text or written.translate(None, _SPACE) == text.translate(None, _SPACE):
                if size < limits.harmless or (
                    size < limits.short and len(text.translate(None, _NO_OPENING)) <= limits.depth
                ):
                    return value
                if _within(value, limits):
                    return value
        except (ValueError, TypeError):  # no JSON, or an integer beyond 64 bits, or too deep for this reader
            pass
    return read_strictly(text, limits)


def _one_long_text(text: bytes) -> bool:
    """Whether a large text begins as one does that is a long string with escapes, which takes the quick writer longer
    than the strict reader takes for everything."""
    return text.find(b"\\", 0, _BEGINNING) >= 0 and text.count(b":", 0, _BEGINNING) < _FEW


def _within(value: JsonValue, limits: TextLimits) -> bool:
    """Whether a value that was read keeps to the limits for certain."""
    # All values of one level at a time, without a step of ours for each: strings, numbers and keys refer to nothing.
    level, nodes = [value], 1
    for _ in range(limits.depth):
        level = get_referents(*level)
        nodes += len(level)
        if not level:
            return nodes <= limits.nodes
    return False


def read_number(text: str) -> JsonValue:
    """The number that a text is, in JSON's grammar with JSON's white space around it, as `parse` reads it; None for any
    other text, and for the few numbers that have to be looked at twice (zeros, exponents, a hundred digits)."""
    try:
        read = float(text)
        written = quick_write(read).decode()
        # `float` reads more than JSON's grammar, but what is written of it is none of that.
        if written == text or written == text.strip(_ASCII_SPACE):
            return read
    except ValueError:
        return None
    return strict_number(text)


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


def dumps_known(value: JsonValue) -> bytes:
    """`dumps`, a tenth of the price, of a value whose every part was read here or is a plain text, number or container
    of ours. Of foreign values the quick writer would take more for JSON than it is."""
    try:
        written = quick_write(value, _as_read)
    except TypeError:  # an integer beyond 64 bits, or too deep for this writer
        return dumps(value)
    # It writes what is no number as null, without a word.
    return written if written.find(b"null") < 0 else dumps(value)


def _as_read(number: object) -> Fragment:
    if type(number) is LosslessFloat:
        return Fragment(bytes(number))
    raise TypeError


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
    if kind is LosslessFloat or kind is float:
        return number_text(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    return _written_as(value)


def _written_as(value: JsonValue) -> str:
    """What a caller of ours may hold instead of the types the reader gives."""
    if isinstance(value, float | Decimal):
        return number_text(float(value))
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


def number_text(value: JsonValue) -> str:
    """A JSON number (int, LosslessFloat or float) in its own digits. Raises ValueError for a float that is none."""
    if isinstance(value, LosslessFloat):
        return bytes(value).decode("ascii")
    if isinstance(value, int):
        return str(value)
    if not isfinite(value):
        raise ValueError(f"{value!r} is not JSON")
    return quick_write(float(value)).decode()


def as_decimal(value: JsonValue) -> Decimal:
    """The exact value of a JSON number (int, LosslessFloat or float, which stands for its shortest spelling)."""
    if isinstance(value, LosslessFloat):
        return decimal_of(bytes(value).decode("ascii"))
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


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
    """A copy in which each number but the integers is an exact `Decimal`, as validation engines and comparisons take
    it."""
    if isinstance(value, FRACTIONS):
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

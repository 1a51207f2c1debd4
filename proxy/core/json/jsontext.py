"""Strict JSON in, exact JSON out, and JSON Pointer.

Reading (RFC 8259, I-JSON if the two differ) refuses texts that two parsers could read differently. Such a text has a
byte order mark, invalid UTF-8, lone surrogates, NaN and Infinity, duplicate keys at any depth, or numbers that overflow
a double. Or it has integers over 4,300 digits, trailing bytes, too much depth, or too many nodes. `strictreader.py`
reads and reports errors; `fast_json.py` reads the texts that it can prove right, and does so faster. Models' texts are
read by `read_document`, which repairs a text that cannot be read (`textrepair.py`).

A number that is not a plain integer becomes a `float` if the shortest spelling of that float is the number's own text.
Otherwise it becomes a `LosslessFloat`, which keeps the text. Both are exact. Code that compares numbers uses
`make_decimal` or the engine's numbers. Writing keeps what was read: integers exact at any size, every other number by
its own text. Only repaired arguments are written; clean ones are forwarded as the bytes that came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import MAX_PREC, Context, Decimal
from json.encoder import encode_basestring
from math import isfinite
from struct import Struct
from typing import Any, Final

from orjson import dumps as write_shortest

from proxy.core.json import fast_json
from proxy.core.json.strictreader import DEFAULT_LIMITS as DEFAULT_LIMITS
from proxy.core.json.strictreader import KnownText, PlainReader, UnreadDocument, outline, read_strictly
from proxy.core.json.strictreader import LosslessFloat as LosslessFloat
from proxy.core.json.strictreader import TextLimits as TextLimits
from proxy.core.json.textrepair import repair_text
from proxy.core.model.value_class import UNREAD
from proxy.core.model.values import ABSENT, Document, JsonProblem, JsonValue, Pointer, Repair

# The types of a number with a fraction or an exponent.
FRACTIONS: Final = (float, LosslessFloat)

JSON_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

# CPython refuses to convert longer integer texts (sys.int_info.default_max_str_digits).
MAX_INTEGER_DIGITS: Final = 4300
_EXACT: Final = Context(prec=MAX_PREC)
_LENGTH: Final = Struct(">I")
# For data of this program, or data that was already read within other limits.
TRUSTED: Final = TextLimits(depth=1000, nodes=20_000_000)
# A call without any text for its arguments; `decide` knows whether they count as `{}` (docs/repair.md).
NO_ARGUMENTS: Final = Document(b"", None)


def parse(text: bytes, limits: TextLimits = DEFAULT_LIMITS) -> JsonValue | JsonProblem:
    """Reads one strict JSON text: UTF-8 bytes to the value, with every number exact (see above), or a `JsonProblem`
    with line and column (VAL-004). Never raises."""
    if type(text) is KnownText and text.holds_under(limits):
        return text.read()
    value = fast_json.read(text, limits)
    return read_strictly(text, limits) if value is ABSENT else value


def read_document(text: bytes, limits: TextLimits, classes: frozenset[str]) -> Document | JsonProblem:
    """Reads one JSON text strictly, or else with the text repairs named in `classes`: the document with the repairs it
    took, or the problem that strict parsing found. Never raises."""
    if type(text) is KnownText and text.holds_under(limits) and isinstance(text.found, PlainReader):
        return UnreadDocument(text, UNREAD)
    value = parse(text, limits)
    if not isinstance(value, JsonProblem):
        return Document(text, value)
    is_known = type(text) is KnownText and text.repairs == classes and text.holds_under(limits)
    repaired = text.repaired if is_known and isinstance(text, KnownText) else repair_text(text, classes)
    again = value if repaired is None else parse(repaired[0], limits)
    if repaired is None or isinstance(again, JsonProblem):
        return value
    return Document(repaired[0], again, tuple(Repair(name, ()) for name in repaired[1]))


def examine_text(text: bytes, limits: TextLimits, classes: frozenset[str]) -> KnownText:
    """Returns what `read_document` would find in a text, without its value."""
    found = _examine_document(text, limits)
    known = KnownText.of(text, limits, found)
    known.repairs = classes
    if isinstance(found, JsonProblem):
        known.outline = outline(text)
        if (repaired := repair_text(text, classes)) is not None:
            known.repaired = KnownText.of(repaired[0], limits, _examine_document(repaired[0], limits)), repaired[1]
    return known


def _examine_document(text: bytes, limits: TextLimits) -> PlainReader | JsonProblem:
    if fast_json.read(text, limits) is not ABSENT:
        return PlainReader.QUICK
    value = parse(text, limits)
    return value if isinstance(value, JsonProblem) else PlainReader.LOSSLESS


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
_quote: Final[Callable[[str], str]] = encode_basestring  # RFC 8259 section 7: escapes only what has to be escaped


def dumps(value: JsonValue) -> bytes:
    """Writes a value as compact UTF-8 JSON: integers exact, other numbers by their own text, key order kept. Raises
    TypeError for a value that is not JSON."""
    return _write_value(value).encode()


def dumps_known(value: JsonValue) -> bytes:
    """Writes a value like `dumps`, for a value whose every part was read here or has a plain JSON type."""
    written = fast_json.write(value)
    return dumps(value) if written is None else written


def _write_value(value: JsonValue) -> str:
    kind = type(value)
    if kind is str:
        return _quote(value)
    if kind is int:
        return str(value)
    if kind is dict:
        return "{" + ",".join([f"{_quote(key)}:{_write_value(item)}" for key, item in value.items()]) + "}"
    if kind is list or kind is tuple:
        return "[" + ",".join([_write_value(item) for item in value]) + "]"
    if kind is LosslessFloat or kind is float:
        return write_number(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    # The types that callers may use instead of those the reader gives.
    if isinstance(value, (float, Decimal)):
        return write_number(float(value))
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, (dict, list, tuple)):
        return _write_value(dict(value) if isinstance(value, dict) else list(value))
    raise TypeError(f"{type(value).__name__} is not JSON")


def write_canonical(value: JsonValue) -> bytes:
    """Writes equal values as equal bytes: keys in the order of RFC 8785 (by UTF-16 code units), and equal numbers
    alike, exact at any size. So `1`, `1.0` and `1e0` are alike; RFC 8785 itself rounds to doubles."""
    return _write_canonically(value).encode("utf-8", "surrogatepass")


def _write_canonically(value: JsonValue) -> str:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join([f"{_quote(key)}:{_write_canonically(value[key])}" for key in keys]) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join([_write_canonically(item) for item in value]) + "]"
    if isinstance(value, FRACTIONS):
        number = make_decimal(value)
        if not number:
            return "0"
        if number == number.to_integral_value() and number.adjusted() < MAX_INTEGER_DIGITS:
            return f"{number:.0f}"
        return f"{number.normalize(_EXACT):e}"
    return _write_value(value)


# --- values ---------------------------------------------------------------------------------------------------------
def name_json_type(value: JsonValue) -> str:
    """The JSON Schema type name of a value; a number without fraction is "integer" whatever its spelling."""
    name = _TYPES.get(type(value))
    if name is None and type(value) not in FRACTIONS:  # of a class that a caller derived
        name = next((name for kind, name in _TYPES.items() if isinstance(value, kind)), None)
    return name or ("integer" if is_integral_number(value) else "number")


_TYPES: Final = {type(None): "null", bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


def is_integral_number(value: JsonValue) -> bool:
    """Returns whether a number other than an int has no fraction (2020-12 validation 6.1.1: 1.0 is an integer)."""
    return value.is_integer() if type(value) is float else is_integral(make_decimal(value))


def write_number(value: JsonValue) -> str:
    """The digits of a JSON number (int, LosslessFloat or float). Raises ValueError for NaN and Infinity."""
    if isinstance(value, LosslessFloat):
        return bytes(value).decode("ascii")
    if isinstance(value, int):
        return str(value)
    if not isfinite(value):
        raise ValueError(f"{value!r} is not JSON")
    return write_shortest(float(value)).decode()


def make_decimal(value: JsonValue) -> Decimal:
    """Returns the exact value of a JSON number (int, LosslessFloat or float, which means its shortest spelling)."""
    if isinstance(value, LosslessFloat):
        return read_decimal(bytes(value).decode("ascii"))
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


# `decimal` refuses exponents beyond about 10^18. A larger exponent is replaced by this one.
_FAR: Final = 10**17


def read_decimal(text: str) -> Decimal:
    """The exact value of a number in JSON's spelling. An exponent beyond 10^17 becomes 10^17."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(exponent) < 18:
        return Decimal(text)
    huge = len(exponent.lstrip("+-0")) > 17
    power = (-_FAR if exponent.startswith("-") else _FAR) if huge else int(exponent)
    return Decimal(f"{mantissa}e{power}")


def is_integral(number: Decimal) -> bool:
    """Returns whether an exact number has no fraction, without building a huge integer for a huge exponent."""
    return number.is_finite() and number == number.to_integral_value()


def are_equal(left: JsonValue, right: JsonValue) -> bool:
    """Equality of JSON values: numbers by value (1 equals 1.0), booleans never equal numbers (draft 2020-12, 4.2.2)."""
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str) and left == right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(are_equal(item, right[key]) for key, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(are_equal, left, right))
    if isinstance(left, (dict, list)) or isinstance(right, (dict, list)):
        return False
    return make_decimal(left) == make_decimal(right)


# --- JSON Pointer (RFC 6901) ----------------------------------------------------------------------------------------
def format_pointer(path: Pointer) -> str:
    """The RFC 6901 text of a path; the root is the empty string."""
    return "".join(["/" + str(step).replace("~", "~0").replace("/", "~1") for step in path])


def parse_pointer(text: str) -> Pointer:
    """The steps of an RFC 6901 pointer, all as strings. Raises ValueError if it does not start with '/'."""
    if text == "":
        return ()
    if not text.startswith("/"):
        raise ValueError(f"a JSON Pointer starts with '/': {text!r}")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def find_at_pointer(value: JsonValue, path: Pointer) -> JsonValue:
    """The value at a path. Raises LookupError where there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value[step]
        elif isinstance(value, list) and str(step).isdecimal():
            value = value[int(step)]
        else:
            raise LookupError(format_pointer(path))
    return value


def find_case_duplicate(value: JsonValue, path: Pointer) -> JsonProblem | None:
    r"""Returns why a reader that ignores case may find something else at `path`, or None. Go's `encoding/json` and
    .NET's web defaults ignore case, and take the last of several matching keys: such a reader could read another call
    than the one that was judged. Every object on the path is examined, also if it ends early. Go folds beyond ASCII, as
    `str.casefold` does: it reads `argument\u017f` as `arguments`."""
    for step in path:
        if not isinstance(value, dict) or not isinstance(step, str):
            return None
        if [*map(str.casefold, value)].count(step.casefold()) > (step in value):
            return JsonProblem(f"a member passes for '{step}' where case does not count: leave it out", 1, 1)
        if step not in value:
            return None
        value = value[step]
    return None


# --- a JSON head followed by bytes: how jobs and their results pass to child processes and back -----------------------
def join_frame(head: JsonValue, tail: bytes = b"") -> bytes:
    """Joins a JSON head and the bytes behind it."""
    text = dumps(head)
    return b"".join((_LENGTH.pack(len(text)), text, tail))


def split_frame(data: bytes) -> tuple[Any, bytes]:
    """Splits what `join_frame` joined into head and tail."""
    (length,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + length
    return parse(data[_LENGTH.size : end], TRUSTED), data[end:]

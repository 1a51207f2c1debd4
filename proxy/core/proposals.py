"""What each value rule makes of a refused value: one small pure function for each, from the value and its `Site`.

No function gives a value another type where its own is legal: what is refused there is refused for another reason (a
bound, a `not`), and a change of type would only get around it. A function proposes another value or gives `NONE`; it
never decides: the engine keeps a proposal only where the schema accepts it and no other rule of the same tier proposes
a different one. Which rule is on when is the table of `rules.py`; each function's exact condition stands there too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final

from proxy.core.jsontext import (
    DEFAULT_LIMITS,
    FRACTIONS,
    MAX_INTEGER_DIGITS,
    LosslessFloat,
    as_decimal,
    decimal_of,
    dumps,
    is_integral,
    json_type,
    number_text,
    parse,
)
from proxy.core.model import JsonProblem, JsonValue
from proxy.core.pythontext import python_value
from proxy.core.textrepair import read_document


class _None:
    def __repr__(self) -> str:
        return "NONE"


NONE: Final = _None()

# JSON text inside a string is unwrapped at most this often for one value (repair.md section 1).
MAX_UNWRAPS: Final = 3


@dataclass(frozen=True, slots=True)
class Site:
    """What the schema allows at one place: the possible types, whether free text is legal there, and the values an
    enum or const leaves (None: no such list). `several`: by its name or description the place holds several values
    in one text. `classes` are the text repairs allowed inside strings."""

    types: frozenset[str]
    free_text: bool
    choices: tuple[JsonValue, ...] | None
    several: bool = False
    classes: frozenset[str] = frozenset()


# --- numbers and booleans -------------------------------------------------------------------------------------------
# JSON's number grammar (RFC 8259 section 6) with an optional '+' and leading zeros; ASCII digits only.
_NUMBER = re.compile(r"([+-]?)0*([0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_ASCII_SPACE: Final = " \t\n\r"
_NUMERIC: Final = frozenset({"integer", "number"})

# strconv.ParseBool, which GoMind's layer 2 uses.
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _number_text(value: JsonValue) -> str | None:
    """The JSON spelling of a number in a string, its digits kept, or None."""
    if not isinstance(value, str):
        return None
    found = _NUMBER.fullmatch(value.strip(_ASCII_SPACE))
    if found is None:
        return None
    sign, whole, fraction, exponent = found.groups()
    return ("-" if sign == "-" else "") + whole + (fraction or "") + (exponent or "")


def integral(number: Decimal) -> JsonValue:
    """The integer an exact number is, or NONE: never rounded, never longer than an integer may be."""
    if not is_integral(number) or number.adjusted() >= MAX_INTEGER_DIGITS:
        return NONE
    return int(number)


def string_to_integer(value: JsonValue, site: Site) -> JsonValue:
    """`"42"` -> 42, exact at any size."""
    text = _number_text(value)
    if text is None or "integer" not in site.types or "number" in site.types or site.free_text:
        return NONE
    if len(text) > MAX_INTEGER_DIGITS:
        return NONE
    return integral(decimal_of(text))


def string_to_number(value: JsonValue, site: Site) -> JsonValue:
    """`"35.6"` -> 35.6, its digits kept; a number that overflows a double is none."""
    text = _number_text(value)
    if text is None or "number" not in site.types or site.free_text or len(text) > MAX_INTEGER_DIGITS:
        return NONE
    read = parse(text.encode())
    return NONE if isinstance(read, JsonProblem) else read


def string_to_boolean(value: JsonValue, site: Site) -> JsonValue:
    """The twelve spellings of strconv.ParseBool."""
    if not isinstance(value, str) or "boolean" not in site.types or site.free_text:
        return NONE
    return True if value in _TRUE else False if value in _FALSE else NONE


def integral_float(value: JsonValue, site: Site) -> JsonValue:
    """`3.0` -> 3 where an integer is asked."""
    if not isinstance(value, FRACTIONS) or "integer" not in site.types or "number" in site.types:
        return NONE
    return integral(as_decimal(value))


def number_to_string(value: JsonValue, site: Site) -> JsonValue:
    """A number's own text; booleans and containers never become strings."""
    if "string" not in site.types or isinstance(value, bool) or _NUMERIC & site.types:
        return NONE
    return number_text(value) if isinstance(value, int | float | LosslessFloat) else NONE


def yes_no(value: JsonValue, site: Site) -> JsonValue:
    """yes/no and on/off in any case -> boolean."""
    if not isinstance(value, str) or "boolean" not in site.types or site.free_text:
        return NONE
    return {"yes": True, "on": True, "no": False, "off": False}.get(value.strip(_ASCII_SPACE).lower(), NONE)


def zero_one(value: JsonValue, site: Site) -> JsonValue:
    """The numbers 1 and 0 -> boolean."""
    if isinstance(value, bool) or not isinstance(value, int) or "boolean" not in site.types or _NUMERIC & site.types:
        return NONE
    return bool(value) if value in (0, 1) else NONE


# --- text that holds something else ---------------------------------------------------------------------------------
# What JSON text holding a container can start with: itself, a string around it, a fence, a comment.
_JSON_STARTS: Final = ("[", "{", '"', "'", "`", "/")
_NULL_TEXTS: Final = frozenset({"null", "None", ""})


def null_text(value: JsonValue, site: Site) -> JsonValue:
    """`"null"`, `"None"`, `""` -> null where null is legal and free text is not."""
    legal = isinstance(value, str) and value in _NULL_TEXTS and "null" in site.types and not site.free_text
    return None if legal else NONE


def parse_json_string(value: JsonValue, site: Site) -> JsonValue:
    """JSON text -> the array or object it holds, where such a one is asked and free text is not legal."""
    return NONE if (read := read_inside(value, site)) is None else read[0]


def read_inside(value: JsonValue, site: Site) -> tuple[JsonValue, tuple[str, ...]] | None:
    """The array or object inside JSON text, and the text repairs it took; None where `parse_json_string` has no say."""
    if not isinstance(value, str) or site.free_text or not site.types & {"array", "object"}:
        return None
    used: tuple[str, ...] = ()
    for _ in range(MAX_UNWRAPS):
        if value.strip(_ASCII_SPACE)[:1] not in _JSON_STARTS:
            return None
        read = read_document(value.encode("utf-8", "surrogatepass"), DEFAULT_LIMITS, site.classes)
        if isinstance(read, JsonProblem):
            return None
        used += tuple(made.rule for made in read.repairs)
        value = read.value
        if not isinstance(value, str):
            break
    found = _container(value, site)
    return None if found is NONE else (found, used)


def python_literal(value: JsonValue, site: Site) -> JsonValue:
    """A string that is one Python list or dict of JSON values -> that array or object."""
    if not isinstance(value, str) or site.free_text or not site.types & {"array", "object"}:
        return NONE
    read = python_value(value)
    return NONE if read is None else _container(read, site)


def _container(value: JsonValue, site: Site) -> JsonValue:
    if isinstance(value, list):
        return value if "array" in site.types else NONE
    return value if isinstance(value, dict) and "object" in site.types else NONE


# --- enum members ---------------------------------------------------------------------------------------------------
def enum_case(value: JsonValue, site: Site) -> JsonValue:
    """The one enum member that is equal after trimming and case-folding."""
    return _one_member(value, site, trimmed)


def enum_fold(value: JsonValue, site: Site) -> JsonValue:
    """The one enum member that is equal when '-', '_', spaces and case are left out of account."""
    return _one_member(value, site, fold)


def trimmed(text: str) -> str:
    """A text without case and without white space around it."""
    return text.strip().casefold()


def fold(text: str) -> str:
    """A name without case and without '-', '_' and spaces: `startDate`, `start_date` and `START-DATE` are one."""
    return re.sub(r"[-_\s]", "", text).casefold()


def _one_member(value: JsonValue, site: Site, key: Callable[[str], str]) -> JsonValue:
    if not isinstance(value, str) or site.choices is None or site.free_text:
        return NONE
    return members_by(key, tuple(member for member in site.choices if isinstance(member, str))).get(key(value), NONE)


@lru_cache(maxsize=1024)  # a long enum is folded once, not for each of the values of a call
def members_by(key: Callable[[str], str], members: tuple[str, ...]) -> Mapping[str, str]:
    """Folded text -> the one member that folds to it; texts that several members or none fold to are not there."""
    found: dict[str, set[str]] = {}
    for member in members:
        found.setdefault(key(member), set()).add(member)
    return {folded: same.pop() for folded, same in found.items() if folded and len(same) == 1}


# --- one and many ---------------------------------------------------------------------------------------------------
# Text that may itself be a list, an object or several values is never wrapped whole.
_LOOKS_LIKE_MANY = re.compile(r"[\[\]{}(),;\n\r]")


def wrap_single(value: JsonValue, site: Site) -> JsonValue:
    """`"a"` -> `["a"]`; the engine asks that the value validates as an item without further repair."""
    if "array" not in site.types or value is None or isinstance(value, list) or site.free_text:
        return NONE
    if not isinstance(value, str) and json_type(value) in site.types:
        return NONE
    if isinstance(value, str) and (value.strip() in _NULL_TEXTS or _LOOKS_LIKE_MANY.search(value)):
        return NONE
    return [value]


def split_commas(value: JsonValue, site: Site) -> JsonValue:
    """`"a,b"` -> `["a","b"]`; matching quotes around an item are stripped."""
    if not isinstance(value, str) or "array" not in site.types or site.free_text or "," not in value:
        return NONE
    if re.search(r"[\[\]{}\n\r]", value):
        return NONE
    items = [_unquote(item.strip()) for item in value.split(",")]
    return items if all(items) else NONE


def _unquote(text: str) -> str:
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def join_chunks(value: JsonValue, site: Site) -> JsonValue:
    """`["a","b"]` -> `"ab"` where one text is asked; a text of several values wants a separator nobody knows."""
    if "string" not in site.types or "array" in site.types or not isinstance(value, list) or not value:
        return NONE
    if site.several and len(value) > 1:
        return NONE
    return "".join(value) if all(isinstance(item, str) for item in value) else NONE


def first_of_one(value: JsonValue, site: Site) -> JsonValue:
    """`["a"]` -> `"a"` where no array is legal."""
    alone = isinstance(value, list) and len(value) == 1 and "array" not in site.types
    return value[0] if alone else NONE


def schema_shaped(value: JsonValue, site: Site) -> JsonValue:
    """`{"description": "x", "type": "str"}` -> `"x"`: the model copied the schema's shape around its value."""
    if not isinstance(value, dict) or value.keys() != {"description", "type"} or "object" in site.types:
        return NONE
    return value["description"]


def object_to_json_string(value: JsonValue, site: Site) -> JsonValue:
    """`{...}` -> its JSON text where a string is asked."""
    if not isinstance(value, dict) or "string" not in site.types or "object" in site.types:
        return NONE
    return dumps(value).decode()

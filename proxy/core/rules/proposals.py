"""The proposals of the value rules: one small pure function for each rule, from a refused value and its `Site`.

No function changes the type of a value whose type is legal there: such a value is refused for another reason (a bound,
a `not`), and a change of type would only evade it. A function proposes another value or gives `NONE`; it never decides.
The engine keeps a proposal only where the schema accepts it and no other rule of the same tier proposes a different
one. The table in `rules.py` says which rule is on when, and the exact condition of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final

from proxy.core.json.embedded import read_python_value
from proxy.core.json.jsontext import (
    DEFAULT_LIMITS,
    FRACTIONS,
    JSON_TYPES,
    MAX_INTEGER_DIGITS,
    LosslessFloat,
    dumps,
    is_integral,
    make_decimal,
    name_json_type,
    parse,
    read_decimal,
    write_number,
)
from proxy.core.json.textrepair import read_document
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.core.rules.names import is_case_meaning

_SCHEMA_SHAPE: Final = frozenset({"description", "type"})
_TYPED_SHAPE: Final = frozenset({"type", "value"})


class _None:
    def __repr__(self) -> str:
        return "NONE"


NONE: Final = _None()

# The most times that JSON text inside a string is unwrapped for one value (repair.md section 1).
MAX_UNWRAPS: Final = 3


@dataclass(frozen=True, slots=True)
class Site:
    """What the schema allows at one place: the possible types, whether free text is legal there, and the values an
    enum or const leaves (None: no such list).

    `name` is the property's name, '' for a place without one; `descriptions` are those of its schemas. `json_text` says
    that the text is JSON, according to name, media type, format or description. `item_keys` and `item_choices` are the
    keys and the values that the items of an array declare. `classes` are the text repairs allowed inside strings."""

    types: frozenset[str]
    free_text: bool
    choices: tuple[JsonValue, ...] | None
    name: str = ""
    descriptions: tuple[str, ...] = ()
    json_text: bool = False
    item_keys: frozenset[str] = frozenset()
    item_choices: tuple[JsonValue, ...] = ()
    classes: frozenset[str] = frozenset()


# --- numbers and booleans -------------------------------------------------------------------------------------------
# JSON's number grammar (RFC 8259 section 6) with an optional '+' and one leading zero; ASCII digits only.
_NUMBER = re.compile(r"([+-]?)([0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
# A fraction without digits before its point, as Go's ParseFloat takes it.
_LEADING_POINT: Final = re.compile(r"([+-]?)(\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
# A dot before exactly three digits: half of the world writes thousands so, so it is not read as a fraction.
_GROUPED: Final = 4
# The most digits that an exponent may add to an integer: a few bytes of text must not become a long row of digits.
MAX_EXPONENT: Final = 20
_ASCII_SPACE: Final = " \t\n\r"
_NUMERIC: Final = frozenset({"integer", "number"})

# strconv.ParseBool, which GoMind's layer 2 uses.
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _number_text(value: JsonValue, *, whole: bool) -> str | None:
    """The JSON spelling of a number in a string, with its digits kept, or None. Two digits may start with a zero, as in
    dates; a longer row that does is octal or a code. `whole`: an integer is expected."""
    if not isinstance(value, str):
        return None
    found = _NUMBER.fullmatch(value.strip(_ASCII_SPACE))
    if found is None:
        return None
    sign, digits, fraction, exponent = found.groups("")
    if len(digits) > 2 and digits[0] == "0":
        return None
    if whole and (len(fraction) == _GROUPED or len(exponent) > 4 or abs(int(exponent[1:] or 0)) > MAX_EXPONENT):
        return None
    return ("-" if sign == "-" else "") + (digits.lstrip("0") or "0") + fraction + exponent


def make_integral(number: Decimal) -> JsonValue:
    """The integer that an exact number is, or NONE. It is never rounded, and never longer than an integer may be."""
    if not is_integral(number) or number.adjusted() >= MAX_INTEGER_DIGITS:
        return NONE
    return int(number)


def string_to_integer(value: JsonValue, site: Site) -> JsonValue:
    """`"42"` -> 42, exact at any size."""
    text = _number_text(value, whole=True)
    if text is None or "integer" not in site.types or "number" in site.types or site.free_text:
        return NONE
    if len(text) > MAX_INTEGER_DIGITS:
        return NONE
    return make_integral(read_decimal(text))


def string_to_number(value: JsonValue, site: Site) -> JsonValue:
    """`"35.6"` -> 35.6 with its digits kept; a text whose number overflows a double is not changed."""
    text = _number_text(value, whole=False)
    if text is None or "number" not in site.types or site.free_text or len(text) > MAX_INTEGER_DIGITS:
        return NONE
    read = parse(text.encode())
    return NONE if isinstance(read, JsonProblem) else read


def leading_point(value: JsonValue, site: Site) -> JsonValue:
    """`".5"` -> 0.5, its digits kept."""
    found = _LEADING_POINT.fullmatch(value.strip(_ASCII_SPACE)) if isinstance(value, str) else None
    if found is None:
        return NONE
    sign, fraction, exponent = found.groups("")
    return string_to_number(f"{sign}0{fraction}{exponent}", site)


def string_to_boolean(value: JsonValue, site: Site) -> JsonValue:
    """The twelve spellings of strconv.ParseBool."""
    if not isinstance(value, str) or "boolean" not in site.types or site.free_text:
        return NONE
    return True if value in _TRUE else False if value in _FALSE else NONE


def integral_float(value: JsonValue, site: Site) -> JsonValue:
    """`3.0` -> 3 where an integer is expected."""
    if not isinstance(value, FRACTIONS) or "integer" not in site.types or "number" in site.types:
        return NONE
    return NONE if "e" in write_number(value).lower() else make_integral(make_decimal(value))


def number_to_string(value: JsonValue, site: Site) -> JsonValue:
    """A number's own text; booleans and containers never become strings."""
    if "string" not in site.types or isinstance(value, bool) or _NUMERIC & site.types:
        return NONE
    return write_number(value) if isinstance(value, int | float | LosslessFloat) else NONE


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


def boolean_word(value: JsonValue, site: Site) -> JsonValue:
    """`true` -> `"True"` where the enum holds exactly one spelling of that word."""
    if not isinstance(value, bool) or "boolean" in site.types or site.free_text:
        return NONE
    word = "true" if value else "false"
    spelt = [choice for choice in site.choices or () if isinstance(choice, str) and choice.lower() == word]
    return spelt[0] if len(spelt) == 1 else NONE


# --- text that holds something else ---------------------------------------------------------------------------------
# The possible starts of JSON text that holds a container: itself, a string around it, a fence, a comment.
_JSON_STARTS: Final = ("[", "{", '"', "'", "`", "/")
_NULL_TEXTS: Final = frozenset({"null", "None", ""})
# Words that mean "no value" where free text is not legal.
NULL_WORDS: Final = _NULL_TEXTS | {"undefined"}


def null_text(value: JsonValue, site: Site) -> JsonValue:
    """`"null"`, `"None"`, `""` -> null where null is legal and free text is not."""
    legal = isinstance(value, str) and value in _NULL_TEXTS and "null" in site.types and not site.free_text
    return None if legal else NONE


def parse_json_string(value: JsonValue, site: Site) -> JsonValue:
    """JSON text -> the array or object in it, where one is expected and free text is not legal."""
    return NONE if (read := read_inside(value, site)) is None else read[0]


def read_inside(
    value: JsonValue, site: Site, kinds: frozenset[str] | None = None
) -> tuple[JsonValue, tuple[str, ...]] | None:
    """The array or object inside JSON text, and the text repairs it took; None where `parse_json_string` does not
    apply.

    `kinds` are the types to read, by default those of the two that are legal at the place.
    """
    wanted = site.types & {"array", "object"} if kinds is None else kinds
    if not isinstance(value, str) or site.free_text or not wanted:
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
    return (value, used) if isinstance(value, list | dict) and name_json_type(value) in wanted else None


def python_literal(value: JsonValue, site: Site) -> JsonValue:
    """A string that is one Python dict of JSON values -> that object."""
    read = (
        read_python_value(value) if isinstance(value, str) and "object" in site.types and not site.free_text else None
    )
    return read if isinstance(read, dict) else NONE


# --- enum members ---------------------------------------------------------------------------------------------------
def enum_case(value: JsonValue, site: Site) -> JsonValue:
    """The one enum member that is equal after trimming and case-folding."""
    return _one_member(value, site, fold_case)


def enum_fold(value: JsonValue, site: Site) -> JsonValue:
    """The one enum member that is equal when '-', '_', spaces and case are ignored."""
    return _one_member(value, site, fold)


def fold_case(text: str) -> str:
    """A text without case and without white space around it."""
    return text.strip().casefold()


def fold(text: str) -> str:
    """A name without case and without '-', '_' and spaces: `startDate`, `start_date` and `START-DATE` are one."""
    return re.sub(r"[-_\s]", "", text).casefold()


def _one_member(value: JsonValue, site: Site, key: Callable[[str], str]) -> JsonValue:
    if not isinstance(value, str) or site.choices is None or site.free_text:
        return NONE
    if value.strip() in site.choices:
        return value.strip()
    return index_members(key, tuple(member for member in site.choices if isinstance(member, str))).get(key(value), NONE)


@lru_cache(maxsize=1024)  # a long enum is folded once, not for each value of a call
def index_members(key: Callable[[str], str], members: tuple[str, ...]) -> Mapping[str, str]:
    """Folded text -> the one member that folds to it. Left out are texts that several members fold to, and members
    whose case carries the meaning (`names.is_case_meaning`)."""
    found: dict[str, set[str]] = {}
    for member in members:
        found.setdefault(key(member), set()).add(member)
    sole = {folded: same.pop() for folded, same in found.items() if folded and len(same) == 1}
    return {folded: member for folded, member in sole.items() if not is_case_meaning(member)}


# --- what a model put around a value: the shape of its schema, its own name, `item` ----------------------------------
def _may_be_meant(site: Site) -> bool:
    """Whether the object itself may be meant: an object is legal, or its JSON text."""
    return "object" in site.types or site.json_text


def schema_shaped(value: JsonValue, site: Site) -> JsonValue:
    """`{"description": "x", "type": "str"}` -> `"x"`: the model copied the schema's shape around its value.

    An object with a type of JSON Schema, or with the schema's own description, is a copied schema without a value.
    """
    if not isinstance(value, dict) or value.keys() != _SCHEMA_SHAPE or _may_be_meant(site):
        return NONE
    echoed = value["type"] in JSON_TYPES or value["description"] in site.descriptions
    return NONE if echoed else value["description"]


def typed_value(value: JsonValue, site: Site) -> JsonValue:
    """`{"type": "string", "value": "x"}` -> `"x"`."""
    if not isinstance(value, dict) or value.keys() != _TYPED_SHAPE or _may_be_meant(site):
        return NONE
    return value["value"] if value["type"] in JSON_TYPES else NONE


def self_wrapped(value: JsonValue, site: Site) -> JsonValue:
    """`{"city": {"city": "x"}}` -> `{"city": "x"}`: the value is wrapped a second time under its own name, also as JSON
    text."""
    if "object" not in site.types and _may_be_meant(site):
        return NONE
    read = read_inside(value, site, frozenset({"object"})) if isinstance(value, str) else (value, ())
    inner = None if read is None else read[0]
    return inner[site.name] if isinstance(inner, dict) and site.name and inner.keys() == {site.name} else NONE


def item_wrapped(value: JsonValue, site: Site) -> JsonValue:
    """`{"item": {...}}` -> `[{...}]` where a list is expected: a list in the spelling of XML."""
    if not isinstance(value, dict) or value.keys() != {"item"} or "array" not in site.types:
        return NONE
    if "object" in site.types or "item" in site.item_keys:
        return NONE
    return value["item"] if isinstance(value["item"], list) else [value["item"]]


def object_to_json_string(value: JsonValue, site: Site) -> JsonValue:
    """`{...}` -> its JSON text, where the schema says that the string is JSON and the object does not wrap a value."""
    if not isinstance(value, dict) or "string" not in site.types or "object" in site.types or not site.json_text:
        return NONE
    if value.keys() in (_SCHEMA_SHAPE, _TYPED_SHAPE, {site.name}):
        return NONE
    return dumps(value).decode()

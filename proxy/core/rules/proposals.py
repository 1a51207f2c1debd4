"""The notations of scalars: the same value in another spelling, such as `"5"` for 5.

A notation has two functions. `read(value, site)` returns the value that was meant and its spelling, or None if it reads
nothing there. `encode(value, spelling)` returns what was sent, up to white space. Each function of this file that ends
in `_text` encodes. A notation never looks at the meaning of a name or a description.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from proxy.core.json.embedded import read_python_value
from proxy.core.json.jsontext import (
    DEFAULT_LIMITS,
    FRACTIONS,
    MAX_INTEGER_DIGITS,
    dumps,
    is_integral,
    make_decimal,
    name_json_type,
    parse,
    read_document,
    write_number,
)
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.core.rules.style import match_member

# The most times that JSON text inside a string is unwrapped for one value (docs/repair.md).
MAX_UNWRAPS: Final = 3
# A value with the spelling in which it was sent. A spelling is what its own notation's `encode` takes.
Reading = tuple[JsonValue, Any]


@value_class
class Site:
    """The schema's statements about one place: the possible types, whether free text is legal there, and the values
    that an enum or const leaves (None: no such list). `json_text`: the schema states that the text is JSON.
    `item_keys`, `item_choices` and `item_formats`: the declarations of an array's items. `lengths`: the only length of
    a text, by equal limits or a pattern. `classes` are the text repairs allowed inside strings."""

    types: frozenset[str]
    free_text: bool
    choices: tuple[JsonValue, ...] | None
    name: str = ""
    json_text: bool = False
    item_keys: frozenset[str] = frozenset()
    item_choices: tuple[JsonValue, ...] = ()
    item_formats: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    is_fixed_length: bool = False


_ASCII_SPACE: Final = " \t\n\r"
_NUMERIC: Final = frozenset({"integer", "number"})


def _takes_scalar(kind: str, site: Site) -> bool:
    """Returns whether a text may mean a value of this type. If a list is legal as well, it may be a list of one."""
    return kind in site.types and "array" not in site.types and not site.free_text


def as_sent(value: JsonValue, spelling: Any) -> JsonValue:  # noqa: ARG001  # every `encode` has these parameters
    """Encodes a notation whose spelling is the text as it was sent."""
    return spelling


# --- numbers in text --------------------------------------------------------------------------------------------------
_INTEGER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.0)?", re.ASCII)
# RFC 8259 section 6.
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
# A fraction without digits before its point, as Go's ParseFloat takes it.
_LEADING_POINT: Final = re.compile(r"(-?)(\.[0-9]+(?:[eE][+-]?[0-9]+)?)", re.ASCII)
# Two groups of three digits or more behind commas. A single one may be a fraction.
_GROUPS: Final = re.compile(r"-?[1-9][0-9]{0,2}(?:,[0-9]{3}){2,}(?:\.[0-9]+)?", re.ASCII)


def make_integral(number: Decimal) -> int | None:
    """The integer that an exact number is. It is never rounded, and never longer than an integer may be."""
    return int(number) if is_integral(number) and number.adjusted() < MAX_INTEGER_DIGITS else None


def string_to_integer(value: JsonValue, site: Site) -> Reading | None:
    """`"42"` -> 42, exact at any size."""
    if not isinstance(value, str) or "number" in site.types or not _takes_scalar("integer", site):
        return None
    found = _INTEGER.fullmatch(value.strip(_ASCII_SPACE))
    if found is None or len(found[1]) > MAX_INTEGER_DIGITS:
        return None
    number = int(found[1])
    return number, (found[2] or "") if number else found[0]


def integer_text(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes `string_to_integer`: the fraction behind it is the spelling, or the whole text of a zero."""
    return f"{value}{spelling}" if value else spelling


def string_to_number(value: JsonValue, site: Site) -> Reading | None:
    """`"35.6"` -> 35.6 with its digits kept; a text whose number overflows a double is not changed."""
    if not isinstance(value, str) or not _takes_scalar("number", site):
        return None
    text = value.strip(_ASCII_SPACE)
    if _NUMBER.fullmatch(text) is None or len(text) > MAX_INTEGER_DIGITS:
        return None
    read = parse(text.encode())
    return None if isinstance(read, JsonProblem) else (read, "")


def number_text(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes a number whose digits before `spelling[0]` characters of its text are left out."""
    sign, left_out = spelling or ("", "")
    text = write_number(value)
    return sign + text[len(sign) + len(left_out) :]


def leading_point(value: JsonValue, site: Site) -> Reading | None:
    """`".5"` -> 0.5, its digits kept."""
    found = _LEADING_POINT.fullmatch(value.strip(_ASCII_SPACE)) if isinstance(value, str) else None
    read = string_to_number(f"{found[1]}0{found[2]}", site) if found is not None else None
    return read and (read[0], (found[1] if found is not None else "", "0"))


def grouped_number(value: JsonValue, site: Site) -> Reading | None:
    """`"1,000,000"` -> 1000000: two groups of three digits or more, which no fraction has."""
    if not isinstance(value, str) or site.free_text or _GROUPS.fullmatch(value.strip(_ASCII_SPACE)) is None:
        return None
    digits = value.replace(",", "")
    read = string_to_integer(digits, site) if "number" not in site.types else string_to_number(digits, site)
    return read and (read[0], read[1])


def grouped_text(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes `grouped_number`."""
    whole, point, fraction = write_number(value).partition(".")
    return f"{int(whole):,}{point}{fraction}{spelling}"


def integral_float(value: JsonValue, site: Site) -> Reading | None:
    """`3.0` -> 3 if an integer is expected."""
    if not isinstance(value, FRACTIONS) or "integer" not in site.types or "number" in site.types:
        return None
    text = write_number(value)
    whole = make_integral(make_decimal(value)) if "e" not in text.lower() else None
    return None if whole is None else (whole, text)


def written_number(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes a number that was sent in its own spelling, or that a text holds."""
    text = spelling or value
    return parse(text.encode())


# A number whose text could not be another one: no exponent, no fraction of zeros.
_PLAIN_NUMBER: Final = re.compile(r"(?!-0\Z)-?[0-9]+(?:\.[0-9]*[1-9][0-9]*)?")


def number_to_string(value: JsonValue, site: Site) -> Reading | None:
    """A number's own text, without an exponent or `.0`."""
    is_number = isinstance(value, (int, *FRACTIONS)) and not isinstance(value, bool)
    if not is_number or "string" not in site.types or _NUMERIC & site.types:
        return None
    text = write_number(value)
    return (text, text) if _PLAIN_NUMBER.fullmatch(text) else None


def number_pinned(value: JsonValue, site: Site) -> Reading | None:
    """A number's own text, if an enum lists it or the schema fixes the length of the text."""
    read = number_to_string(value, site)
    if read is None and isinstance(value, FRACTIONS) and (whole := integral_float(value, _WHOLE)) is not None:
        read = str(whole[0]), whole[1]  # 1.0 for "1", only if an enum lists it
        return read if read[0] in (site.choices or ()) else None
    is_pinned = read is not None and (read[0] in (site.choices or ()) or site.is_fixed_length)
    return read if is_pinned else None


_WHOLE: Final = Site(frozenset({"integer"}), False, None)


# --- booleans and null ------------------------------------------------------------------------------------------------
# strconv.ParseBool, which GoMind's layer 2 uses; its letters are a separate rule.
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "TRUE", "true", "True"), True), **dict.fromkeys(("0", "FALSE", "false", "False"), False)
}  # fmt: skip
_WORDS: Final = {"yes": True, "on": True, "no": False, "off": False}
_LETTERS: Final = {"t": True, "T": True, "f": False, "F": False}
_NULLS: Final = ("null", "None")


def _read_word(value: JsonValue, meanings: Mapping[str, bool], site: Site, *, folds: bool = False) -> Reading | None:
    """Returns the boolean that a word means, if one is expected and text is not legal."""
    if not isinstance(value, str) or not _takes_scalar("boolean", site):
        return None
    text = value.strip(_ASCII_SPACE)
    found = meanings.get(text.lower() if folds else text)
    return None if found is None else (found, text)


def string_to_boolean(value: JsonValue, site: Site) -> Reading | None:
    """The spellings of strconv.ParseBool except its single letters, which often mean another word."""
    return _read_word(value, _BOOLEANS, site)


def boolean_letter(value: JsonValue, site: Site) -> Reading | None:
    """The single letters of strconv.ParseBool."""
    return _read_word(value, _LETTERS, site)


def yes_no(value: JsonValue, site: Site) -> Reading | None:
    """yes/no and on/off in any case -> boolean."""
    return _read_word(value, _WORDS, site, folds=True)


def zero_one(value: JsonValue, site: Site) -> Reading | None:
    """The numbers 1 and 0 -> boolean."""
    is_applicable = "boolean" in site.types and not _NUMERIC & site.types and type(value) is int
    return (bool(value), "") if is_applicable and value in (0, 1) else None


def boolean_word(value: JsonValue, site: Site) -> Reading | None:
    """`true` -> `"True"` if the enum holds exactly one spelling of that word."""
    if not isinstance(value, bool) or "boolean" in site.types or site.free_text:
        return None
    word = "true" if value else "false"
    spelt = [choice for choice in site.choices or () if isinstance(choice, str) and choice.lower() == word]
    return (spelt[0], value) if len(spelt) == 1 else None


def null_text(value: JsonValue, site: Site) -> Reading | None:
    """`"null"`, `"None"` -> null if null is legal and free text is not."""
    return (None, value) if value in _NULLS and "null" in site.types and not site.free_text else None


# --- listed words, quotes, dates --------------------------------------------------------------------------------------
_LONGEST_MEMBER: Final = 1000
_SENTENCE: Final = re.compile(r"[^\W\d_]{3,}\.")


def _read_member(value: JsonValue, site: Site, *, folds: bool = False) -> Reading | None:
    if not isinstance(value, str) or site.choices is None or site.free_text or len(value) > _LONGEST_MEMBER:
        return None
    if value.strip() in site.choices:
        return value.strip(), value
    if "null" in site.types and value.strip().lower() in ("null", "none"):
        return None  # that word may mean null
    members = tuple([member for member in site.choices if isinstance(member, str)])
    found = match_member(value, members, folds=folds)
    return None if found is None else (found, value)


def enum_case(value: JsonValue, site: Site) -> Reading | None:
    """The one enum member of the same identifier style (`style.py`)."""
    return _read_member(value, site)


def enum_fold(value: JsonValue, site: Site) -> Reading | None:
    """The same, if the operator says that case never carries the meaning."""
    return _read_member(value, site, folds=True)


def enum_point(value: JsonValue, site: Site) -> Reading | None:
    """The one enum member before a full stop: `"Red."` -> `"red"`."""
    is_word = isinstance(value, str) and _SENTENCE.fullmatch(value) is not None
    read = _read_member(value[:-1], site) if isinstance(value, str) and is_word else None
    return read and (read[0], value)


# Formats whose texts hold no quotes.
_WITHOUT_QUOTES: Final = frozenset({"date", "date-time", "time", "uuid", "ipv4", "ipv6", "hostname"})
_QUOTED: Final = re.compile(r"""\s*(?:"([^"'`]*)"|'([^"'`]*)'|`([^"'`]*)`|“([^"'`“”]*)”)\s*""")
_QUOTES: Final = ('""', "''", "``", "“”")


def quoted_text(value: JsonValue, site: Site) -> Reading | None:
    """`"\\"5\\""` -> 5, `"'celsius'"` -> `"celsius"`: a number, boolean or listed word within quotes."""
    found = _QUOTED.fullmatch(value) if isinstance(value, str) else None
    if found is None or (site.free_text and not (site.formats and site.formats <= _WITHOUT_QUOTES)):
        return None
    text = found[found.lastindex or 1]
    quotes = _QUOTES[(found.lastindex or 1) - 1]
    if site.free_text or site.choices is not None:
        return (text, quotes) if site.choices is None or text in site.choices else None
    read = string_to_integer(text, site) or string_to_number(text, site)
    number = read[0] if read is not None and write_number(read[0]) == text else None
    word = {"true": True, "false": False}.get(text) if "boolean" in site.types else None
    inner = number if word is None else word
    return None if inner is None else (inner, quotes)


def quote_text(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes `quoted_text`."""
    return spelling[0] + (value if isinstance(value, str) else dumps(value).decode()) + spelling[1]


# A date with the year first, in other signs or without: `2026/01/15`, `2026-1-5`, `20260115`. With the year first, the
# month is second everywhere; other orders are ambiguous.
_DATE: Final = re.compile(r"([12][0-9]{3})([-/])([0-9]{1,2})\2([0-9]{1,2})", re.ASCII)
_SHORT_DATE: Final = re.compile(r"((?:19|20)[0-9]{2})()([01][0-9])([0-3][0-9])", re.ASCII)
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})([ Tt])([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)( ?(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2}))"
)


def year_first_date(value: JsonValue, site: Site) -> Reading | None:
    """`"2026/01/15"` -> `"2026-01-15"` if a date is expected; a blank for the `T` if a time is."""
    text = value.strip(_ASCII_SPACE) if isinstance(value, str) else ""
    if site.formats == {"date-time"} and (time := _TIME.fullmatch(text)) is not None:
        zone = time[4].strip()
        zone = zone if zone[0] in "+-" else "Z"
        zone = zone if len(zone) != 5 else f"{zone[:3]}:{zone[3:]}"
        return f"{time[1]}T{time[3]}{zone}", text
    found = _DATE.fullmatch(text) or (_SHORT_DATE.fullmatch(text) if text == value else None)
    return (f"{found[1]}-{found[3]:0>2}-{found[4]:0>2}", text) if found and site.formats == {"date"} else None


# --- JSON and Python in text ------------------------------------------------------------------------------------------
# The possible starts of JSON text that holds a container: itself, a string around it, a fence, a comment.
_JSON_STARTS: Final = ("[", "{", '"', "'", "`", "/")


def parse_json_string(value: JsonValue, site: Site) -> Reading | None:
    """JSON text -> the array or object in it, if one is expected and free text is not legal."""
    read = read_inside(value, site)
    return None if read is None else (read[0], read[2])


def json_text(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes a value as JSON text, `spelling` times."""
    for _ in range(spelling):
        value = dumps(value).decode()
    return value


def read_inside(
    value: JsonValue, site: Site, kinds: frozenset[str] | None = None
) -> tuple[JsonValue, tuple[str, ...], int] | None:
    """The array or object inside JSON text, the text repairs it took and the number of texts around it. `kinds` are the
    types to read, by default those of the two that are legal at the place."""
    wanted = site.types & {"array", "object"} if kinds is None else kinds
    if not isinstance(value, str) or site.free_text or not wanted:
        return None
    used: tuple[str, ...] = ()
    for texts in range(1, MAX_UNWRAPS + 1):
        if value.strip(_ASCII_SPACE)[:1] not in _JSON_STARTS:
            return None
        read = read_document(value.encode("utf-8", "surrogatepass"), DEFAULT_LIMITS, site.classes)
        if isinstance(read, JsonProblem):
            return None
        used += tuple(made.rule for made in read.repairs)
        value = read.value
        if not isinstance(value, str):
            return (value, used, texts) if name_json_type(value) in wanted else None
    return None


def python_literal(value: JsonValue, site: Site) -> Reading | None:
    """A text that is one Python list or dict of JSON values -> that array or object."""
    wanted = site.types & {"array", "object"}
    read = read_python_value(value) if isinstance(value, str) and wanted and not site.free_text else None
    return (read, "") if isinstance(read, (list, dict)) and name_json_type(read) in wanted else None


def python_text(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes a value as a Python literal."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {python_text(item, spelling)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(str(python_text(item, spelling)) for item in value)}]"
    return repr(value) if value is None or isinstance(value, (str, bool)) else write_number(value)


def object_to_json_string(value: JsonValue, site: Site) -> Reading | None:
    """`{...}` -> its JSON text, if the schema states that the text is JSON."""
    is_expected = "string" in site.types and "object" not in site.types and site.json_text
    return (dumps(value).decode(), "") if is_expected and isinstance(value, dict) else None

"""The proposals of the value rules: one small pure function for each rule, from a refused value and its `Site`.

No function changes the type of a value whose type is legal there: such a value is refused for another reason (a bound,
a `not`), and a change of type would only evade it. A function proposes another value or gives `NONE`; the engine keeps
a proposal only where the schema accepts it and no other rule of the same tier proposes a different one. `rules.py` says
which rule is on when, and the exact condition of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from proxy.core.json.embedded import read_python_value
from proxy.core.json.jsontext import (
    DEFAULT_LIMITS,
    FRACTIONS,
    MAX_INTEGER_DIGITS,
    LosslessFloat,
    is_integral,
    make_decimal,
    name_json_type,
    parse,
    read_decimal,
    read_document,
    write_number,
)
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.core.rules.names import split_words

# What a rule gives that has nothing to propose: a value of its own, because None is a value of JSON.
NONE: Final[JsonValue] = object()
# The most times that JSON text inside a string is unwrapped for one value (docs/repair.md).
MAX_UNWRAPS: Final = 3


@value_class
class Site:
    """What the schema allows at one place: the possible types, whether free text is legal there, and the values that an
    enum or const leaves (None: no such list). `json_text`: by its name, media type, format or description the text is
    JSON. `item_keys` and `item_choices`: what the items of an array declare; `pinned`: a format or pattern tells one
    item from several. `examples` are texts that the schema shows, `classes` the text repairs allowed inside strings."""

    types: frozenset[str]
    free_text: bool
    choices: tuple[JsonValue, ...] | None
    name: str = ""
    descriptions: tuple[str, ...] = ()
    json_text: bool = False
    item_keys: frozenset[str] = frozenset()
    item_choices: tuple[JsonValue, ...] = ()
    classes: frozenset[str] = frozenset()
    pinned: bool = False
    formats: frozenset[str] = frozenset()
    examples: tuple[str, ...] = ()


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

# strconv.ParseBool, which GoMind's layer 2 uses; its letters are a rule of their own.
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "TRUE", "true", "True"), True), **dict.fromkeys(("0", "FALSE", "false", "False"), False)
}  # fmt: skip
_WORDS: Final = {"yes": True, "on": True, "no": False, "off": False}
_LETTERS: Final = {"t": True, "T": True, "f": False, "F": False}


def _number_text(value: JsonValue, *, whole: bool) -> str | None:
    """The JSON spelling of a number in a string, its digits kept, or None. Two digits may start with a zero, as in
    dates; a longer row that does is octal or a code."""
    found = _NUMBER.fullmatch(value.strip(_ASCII_SPACE)) if isinstance(value, str) else None
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
    is_applicable = "integer" in site.types and "number" not in site.types and not site.free_text
    text = _number_text(value, whole=True) if is_applicable else None
    if text is None or len(text) > MAX_INTEGER_DIGITS:
        return NONE
    return int(text) if text.isdecimal() else make_integral(read_decimal(text))


def string_to_number(value: JsonValue, site: Site) -> JsonValue:
    """`"35.6"` -> 35.6 with its digits kept; a text whose number overflows a double is not changed."""
    text = _number_text(value, whole=False) if "number" in site.types and not site.free_text else None
    read = parse(text.encode()) if text is not None and len(text) <= MAX_INTEGER_DIGITS else NONE
    return NONE if isinstance(read, JsonProblem) else read


def leading_point(value: JsonValue, site: Site) -> JsonValue:
    """`".5"` -> 0.5, its digits kept."""
    found = _LEADING_POINT.fullmatch(value.strip(_ASCII_SPACE)) if isinstance(value, str) else None
    if found is None:
        return NONE
    sign, fraction, exponent = found.groups("")
    return string_to_number(f"{sign}0{fraction}{exponent}", site)


def string_to_boolean(value: JsonValue, site: Site) -> JsonValue:
    """The spellings of strconv.ParseBool but for its single letters, which often stand for another word."""
    return _read_word(value, _BOOLEANS, site)


def boolean_letter(value: JsonValue, site: Site) -> JsonValue:
    """The single letters of strconv.ParseBool."""
    is_applicable = isinstance(value, str) and "boolean" in site.types and not site.free_text
    return _LETTERS.get(value, NONE) if is_applicable else NONE


def integral_float(value: JsonValue, site: Site) -> JsonValue:
    """`3.0` -> 3 where an integer is expected."""
    is_applicable = isinstance(value, FRACTIONS) and "integer" in site.types and "number" not in site.types
    return make_integral(make_decimal(value)) if is_applicable and "e" not in write_number(value).lower() else NONE


def number_to_string(value: JsonValue, site: Site) -> JsonValue:
    """A number's own text, with the number of digits that the schema tells; without exponent or `.0`, unless it lists
    that."""
    is_number = isinstance(value, int | float | LosslessFloat) and not isinstance(value, bool)
    if not is_number or "string" not in site.types or _NUMERIC & site.types:
        return NONE
    text = write_number(value)
    if not _PLAIN_NUMBER.fullmatch(text):
        whole = make_integral(make_decimal(value)) if isinstance(value, FRACTIONS) else NONE
        return str(whole) if whole is not NONE and str(whole) in (site.choices or ()) else NONE
    named = ["".join(groups).lower() for one in site.descriptions for groups in _DIGITS.findall(one)]
    if named and str(len(text)) not in [_DIGIT_WORDS.get(word, word) for word in named]:
        return NONE
    # Zeros may be lost before it, where the name or an example of the schema says that such texts are longer, and
    # behind its point, where it is a version's (3.1 and 3.10 are two versions).
    words = split_words(site.name)
    has_lost_zeros = (
        ("." in text and not _VERSIONS.isdisjoint(words))
        or any(len(text) not in _LENGTHS.get(word, (len(text),)) for word in words)
        or any(len(shown) > len(text) for one in (*site.descriptions, *site.examples) for shown in _PADDED.findall(one))
    )
    return NONE if has_lost_zeros else text


def _read_word(value: JsonValue, meanings: Mapping[str, bool], site: Site) -> JsonValue:
    """The boolean that a word means, where one is expected and text is not legal."""
    is_applicable = isinstance(value, str) and "boolean" in site.types and not site.free_text
    return meanings.get(value.strip(_ASCII_SPACE), NONE) if is_applicable else NONE


def yes_no(value: JsonValue, site: Site) -> JsonValue:
    """yes/no and on/off in any case -> boolean."""
    return _read_word(value.lower() if isinstance(value, str) else value, _WORDS, site)


def zero_one(value: JsonValue, site: Site) -> JsonValue:
    """The numbers 1 and 0 -> boolean."""
    is_applicable = "boolean" in site.types and not _NUMERIC & site.types
    return bool(value) if is_applicable and type(value) is int and value in (0, 1) else NONE


def boolean_word(value: JsonValue, site: Site) -> JsonValue:
    """`true` -> `"True"` where the enum holds exactly one spelling of that word."""
    if not isinstance(value, bool) or "boolean" in site.types or site.free_text:
        return NONE
    word = "true" if value else "false"
    spelt = [choice for choice in site.choices or () if isinstance(choice, str) and choice.lower() == word]
    return spelt[0] if len(spelt) == 1 else NONE


# A number whose text could not be another one: no exponent, no fraction of zeros.
_PLAIN_NUMBER: Final = re.compile(r"(?!-0\Z)-?[0-9]+(?:\.[0-9]*[1-9][0-9]*)?")
# How many digits or characters a description tells: `5-digit`, `ten digits`, `ISBN-10`.
_DIGITS: Final = re.compile(
    r"\b([0-9]+|three|four|five|six|seven|eight|nine|ten)[- ](?:digit|character|numeral|number\b)"
    r"|\b(?:ISBN|EAN|GTIN|UPC)-(?=([0-9]+))|\blength(?: of)? ([0-9]+)",
    re.IGNORECASE,
)
# How long the texts of codes are that may begin with zeros, by a word of the name; and an example that begins so.
_LENGTHS: Final[dict[str, tuple[int, ...]]] = {
    **dict.fromkeys(("zip", "zipcode", "postcode", "postal", "plz"), (5, 6, 7, 9)),
    **dict.fromkeys(("pin", "otp"), (4, 5, 6, 8)), "ssn": (9,), "isbn": (10, 13), "issn": (8,), "ean": (8, 13),
    "gtin": (8, 12, 13, 14), "upc": (12,), "cusip": (9,), "imei": (15,),
}  # fmt: skip
_PADDED: Final = re.compile(r"(?<![\w.])0[0-9]+(?![\w.])")
_VERSIONS: Final = frozenset({"version", "versions", "release", "revision"})
_DIGIT_WORDS: Final = {
    "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10"
}  # fmt: skip

# --- text that holds something else ---------------------------------------------------------------------------------
# The possible starts of JSON text that holds a container: itself, a string around it, a fence, a comment.
_JSON_STARTS: Final = ("[", "{", '"', "'", "`", "/")
_NULL_TEXTS: Final = frozenset({"null", "None", ""})
# Words that mean "no value" where free text is not legal.
NULL_WORDS: Final = _NULL_TEXTS | {"undefined"}
# Quotes around a text that are part of it: one pair, and none inside.
_WITHOUT_QUOTES: Final = frozenset({"date", "date-time", "time", "uuid", "ipv4", "ipv6", "hostname"})
_QUOTED: Final = re.compile(r"""\s*(?:"([^"'`]*)"|'([^"'`]*)'|`([^"'`]*)`|“([^"'`“”]*)”)\s*""")


def quoted_text(value: JsonValue, site: Site) -> JsonValue:
    """`"\\"5\\""` -> 5, `"'celsius'"` -> `"celsius"`: a number, boolean or listed word within quotes of its own."""
    found = _QUOTED.fullmatch(value) if isinstance(value, str) else None
    if found is None or (site.free_text and not (site.formats and site.formats <= _WITHOUT_QUOTES)):
        return NONE
    text = next(part for part in found.groups() if part is not None)
    if site.free_text:
        return text
    if site.choices is not None:
        return text if text in site.choices else NONE
    word = {"true": True, "false": False}.get(text, NONE) if "boolean" in site.types else NONE
    proposed = [one for one in (string_to_integer(text, site), string_to_number(text, site), word) if one is not NONE]
    return proposed[0] if len(proposed) == 1 else NONE


# A date whose year stands first, in other signs or without: `2026/01/15`, `2026-1-5`, `20260115`. With the year first,
# the month is second everywhere; other orders are ambiguous.
_DATE: Final = re.compile(r"([12][0-9]{3})([-/])([0-9]{1,2})\2([0-9]{1,2})", re.ASCII)
_SHORT_DATE: Final = re.compile(r"((?:19|20)[0-9]{2})([01][0-9])([0-3][0-9])", re.ASCII)
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ Tt]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?) ?(Z|UTC|[+-][0-9]{2}:?[0-9]{2})"
)


def year_first_date(value: JsonValue, site: Site) -> JsonValue:
    """`"2026/01/15"` -> `"2026-01-15"` where a date is expected; a blank for the `T` where a time is."""
    text = value.strip(_ASCII_SPACE) if isinstance(value, str) else ""
    if site.formats == {"date-time"} and (time := _TIME.fullmatch(text)) is not None:
        zone = time[3] if time[3][0] in "+-" else "Z"
        zone = zone if len(zone) != 5 else f"{zone[:3]}:{zone[3:]}"
        return f"{time[1]}T{time[2]}{zone}"
    if site.formats == {"date"} and (found := _DATE.fullmatch(text)) is not None:
        return f"{found[1]}-{found[3]:0>2}-{found[4]:0>2}"
    if site.formats == {"date"} and text == value and (short := _SHORT_DATE.fullmatch(text)) is not None:
        return "-".join(short.groups())
    return NONE


# Two groups of three digits or more behind commas. One alone may be a fraction.
_GROUPS: Final = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:,[0-9]{3}){2,}(?:\.[0-9]+)?", re.ASCII)


def grouped_number(value: JsonValue, site: Site) -> JsonValue:
    """`"1,000,000"` -> 1000000: two groups of three digits or more, which no fraction has."""
    if not isinstance(value, str) or site.free_text or _GROUPS.fullmatch(value.strip(_ASCII_SPACE)) is None:
        return NONE
    digits = value.replace(",", "")
    return string_to_integer(digits, site) if "number" not in site.types else string_to_number(digits, site)


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
    """The array or object inside JSON text, and the text repairs it took, or None. `kinds` are the types to read, by
    default those of the two that are legal at the place."""
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
    is_applicable = isinstance(value, str) and "object" in site.types and not site.free_text
    read = read_python_value(value) if is_applicable else None
    return read if isinstance(read, dict) else NONE

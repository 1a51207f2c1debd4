"""The value rules between one value and a list: a value for a list of one, a text that lists values, and the reverse.

A text becomes an item as a whole only where nothing in it looks like a separator, and is split only where every part
proves to be one: a text such as `San Francisco, CA` is one place or two, which cannot be known here.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.json.embedded import read_python_value
from proxy.core.json.jsontext import name_json_type, parse
from proxy.core.model.values import JsonValue
from proxy.core.rules.proposals import NONE, NULL_WORDS, Site, read_inside

# Characters and words that may separate values: brackets and separators of many scripts, conjunctions, list bullets.
_SEPARATORS: Final = re.compile(
    r"[\[\]{}(),;|\t\n\r、，；،؛・]| (?:and|or|y|e|et|und|&|\+|/|-) |^[-*•] ", re.IGNORECASE
)
# Quotes inside a text, or two addresses: such a text is not a single item.
_QUOTES: Final = re.compile(r"[\"“”„«»`]|^'|'$|' '")
_ADDRESSES: Final = re.compile(r"\S@\S+\.\S.*\S@\S|://.*\s\S*://", re.DOTALL)
# Only quoted parts are split at commas, or words without white space in or around them.
_WORDS: Final = re.compile(r"[^\s,'\"]+(?:,[^\s,'\"]+)+")
_QUOTED: Final = re.compile(r"\s*(?:'[^',]*'|\"[^\",]*\")(?:\s*,\s*(?:'[^',]*'|\"[^\",]*\"))+\s*")
_BRACKETS: Final = re.compile(r"[\[\]{}\n\r]")
_INTEGERS: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:, ?-?(?:0|[1-9][0-9]{0,17})){2,}", re.ASCII)
# Groups of three digits after a comma: thousands.
_THOUSANDS: Final = re.compile(r",[0-9]{3}(?![0-9])")


def wrap_single(value: JsonValue, site: Site) -> JsonValue:
    """`"a"` -> `["a"]`; the engine checks that the value validates as an item without further repair."""
    if "array" not in site.types or value is None or isinstance(value, list) or site.free_text:
        return NONE
    if isinstance(value, str):
        return NONE if value.strip() in NULL_WORDS or _is_many(value) else [value]
    if name_json_type(value) in site.types or (isinstance(value, dict) and not _is_item(value, site)):
        return NONE
    return [value]


def _is_item(value: dict[str, JsonValue], site: Site) -> bool:
    """Whether an object is one item, recognised by a key that the items declare, and not a map of several items."""
    if value.keys().isdisjoint(site.item_keys):
        return False
    return not all(isinstance(part, dict) and not part.keys().isdisjoint(site.item_keys) for part in value.values())


def _is_many(text: str) -> bool:
    """Whether a text may be several values, or a spelling of one."""
    return any(sign.search(text) is not None for sign in (_SEPARATORS, _QUOTES, _ADDRESSES))


def json_item(value: JsonValue, site: Site) -> JsonValue:
    """`"{\\"id\\": 1}"` -> `[{"id": 1}]`: JSON text of one object where a list of such objects is expected."""
    if "array" not in site.types or "object" in site.types:
        return NONE
    read = read_inside(value, site, frozenset({"object"}))
    return NONE if read is None or read[0].keys().isdisjoint(site.item_keys) else [read[0]]


def python_list(value: JsonValue, site: Site) -> JsonValue:
    """`"['a', 'b']"` -> `["a", "b"]`."""
    read = read_python_value(value) if isinstance(value, str) and _takes_list(site) else None
    return read if isinstance(read, list) else NONE


def split_members(value: JsonValue, site: Site) -> JsonValue:
    """`"red, green"` -> `["red", "green"]` where the schema lists every part, but not the whole."""
    if not isinstance(value, str) or not _takes_list(site) or not site.item_choices or "," not in value:
        return NONE
    parts = [part.strip() for part in value.split(",")]
    listed = [choice for choice in site.item_choices if isinstance(choice, str)]
    return parts if value.strip() not in listed and all(part in listed for part in parts) else NONE


def split_integers(value: JsonValue, site: Site) -> JsonValue:
    """`"5, 2, 9"` -> `[5, 2, 9]`: three integers or more, none of which could be the thousands of the one before."""
    if not isinstance(value, str) or not _takes_list(site) or _INTEGERS.fullmatch(value.strip(" ")) is None:
        return NONE
    return NONE if _THOUSANDS.search(value) else parse(f"[{value}]".encode())


def split_commas(value: JsonValue, site: Site) -> JsonValue:
    """`"a,b"` -> `["a","b"]`; matching quotes around an item are stripped."""
    if not isinstance(value, str) or not _takes_list(site) or _BRACKETS.search(value):
        return NONE
    if _QUOTED.fullmatch(value):
        return [part.strip()[1:-1] for part in value.split(",")]
    if _WORDS.fullmatch(value) is None or _THOUSANDS.search(value):
        return NONE
    return value.split(",")


def join_chunks(value: JsonValue, site: Site) -> JsonValue:
    """`["a\\n","b"]` -> `"a\\nb"` where one text is expected: each chunk but the last ends in a line break."""
    if "string" not in site.types or "array" in site.types or not isinstance(value, list) or len(value) < 2:
        return NONE
    if not all(isinstance(item, str) for item in value) or not all(item.endswith("\n") for item in value[:-1]):
        return NONE
    return "".join(value)


def first_of_one(value: JsonValue, site: Site) -> JsonValue:
    """`["a"]` -> `"a"` where no array is legal."""
    alone = isinstance(value, list) and len(value) == 1 and "array" not in site.types
    return value[0] if alone else NONE


def list_level(value: JsonValue, site: Site) -> JsonValue:
    """`[["a","b"]]` -> `["a","b"]`: one level of lists too many."""
    double = isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) and "array" in site.types
    return value[0] if double else NONE


def _takes_list(site: Site) -> bool:
    return "array" in site.types and not site.free_text

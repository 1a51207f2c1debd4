"""The notations between one value and a list, and those that remove a model's additions around a value.

A text becomes an item, or is split into items, only if the schema pins the items. That is, they have an enum, a const,
or a format whose grammar holds no separator. A text such as `San Francisco, CA` is one place or two, and no rule knows.
"""

from __future__ import annotations

import re
from typing import Any, Final

from proxy.core.json.jsontext import FRACTIONS, dumps, name_json_type
from proxy.core.model.values import JsonValue
from proxy.core.rules.proposals import Reading, Site, read_inside
from proxy.core.rules.vocabulary import ITEM_KEY, VALUE_KEY
from proxy.core.schema.drafts import Draft
from proxy.core.schema.formats import format_check

# The formats that pin an item: no text of theirs holds a separator.
PINNING_FORMATS: Final = frozenset(["date", "date-time", "time", "uuid", "email", "hostname", "ipv4", "ipv6"])
_SEPARATORS: Final = (", ", ",", "; ", ";")
# A comma between two digits is a decimal comma, or parts thousands.
_IN_NUMBER: Final = re.compile(r"[0-9],[0-9]")
_QUOTED: Final = re.compile(r"'[^',]*'(?:, ?'[^',]*')+|\"[^\",]*\"(?:, ?\"[^\",]*\")+")
_WORDS: Final = re.compile(r"[\w-]+(?:(?:,[\w-]+){2,}|(?:, [\w-]+){2,})", re.ASCII)


def _takes_list(site: Site) -> bool:
    return "array" in site.types and not site.free_text


def _is_pinned(text: str, site: Site) -> bool:
    """Returns whether a text has the format of the items, whatever the operator asserts elsewhere."""
    checks = [format_check(name, Draft.D2020) for name in site.item_formats]
    return bool(checks) and all(check is not None and check(text) for check in checks)


def json_item(value: JsonValue, site: Site) -> Reading | None:
    """`"{\\"id\\": 1}"` -> `[{"id": 1}]`: JSON text of one object if a list of such objects is expected."""
    is_applicable = "array" in site.types and "object" not in site.types
    read = read_inside(value, site, frozenset({"object"})) if is_applicable else None
    return ([read[0]], read[2]) if read is not None and _has_item_key(read[0], site) else None


def item_text(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes `json_item`."""
    item = _first(value, spelling)
    for _ in range(spelling):
        item = dumps(item).decode()
    return item


def wrap_object(value: JsonValue, site: Site) -> Reading | None:
    """`{"id": 1}` -> `[{"id": 1}]` if the items declare one of its keys, and it is not a map of several items."""
    if not _takes_list(site) or "object" in site.types or not _has_item_key(value, site):
        return None
    is_map = isinstance(value, dict) and all(_has_item_key(part, site) for part in value.values())
    return None if is_map else ([value], "")


def _has_item_key(value: JsonValue, site: Site) -> bool:
    return isinstance(value, dict) and not value.keys().isdisjoint(site.item_keys)


def wrap_pinned(value: JsonValue, site: Site) -> Reading | None:
    """`"red"` -> `["red"]` if the items list it, or have a format that it has."""
    if not _takes_list(site) or name_json_type(value) in site.types or isinstance(value, (dict, list)) or value is None:
        return None
    is_pinned = bool(site.item_choices) or (isinstance(value, str) and _is_pinned(value, site))
    parts = _split(value) if isinstance(value, str) and site.item_choices else None
    is_several = parts is not None and all(part in site.item_choices for part in parts[0])
    return ([value], "") if is_pinned and not is_several else None


def wrap_scalar(value: JsonValue, site: Site) -> Reading | None:
    """`5` -> `[5]`: a bare number or boolean."""
    is_applicable = isinstance(value, (int, *FRACTIONS)) and _takes_list(site)
    return ([value], "") if is_applicable and name_json_type(value) not in site.types else None


def wrap_text(value: JsonValue, site: Site) -> Reading | None:
    """`"a"` -> `["a"]`, whatever the text is."""
    return ([value], "") if isinstance(value, str) and _takes_list(site) else None


def _first(value: JsonValue, spelling: Any) -> JsonValue:  # noqa: ARG001  # every `encode` has these parameters
    return value[0] if isinstance(value, list) else value


unwrap_item: Final = _first


def split_members(value: JsonValue, site: Site) -> Reading | None:
    """`"red, green"` -> `["red", "green"]`; the engine checks that the items list every part, and not the whole."""
    is_whole = not isinstance(value, str) or value.strip() in site.item_choices
    return None if is_whole or not site.item_choices or not _takes_list(site) else _split(str(value))


def split_pinned(value: JsonValue, site: Site) -> Reading | None:
    """`"a@x.org, b@y.org"` -> `["a@x.org", "b@y.org"]` if each part has the items' format, and not the whole."""
    if not isinstance(value, str) or not _takes_list(site) or not site.item_formats or _is_pinned(value, site):
        return None
    read = _split(value)
    return read if read is not None and all(_is_pinned(str(part), site) for part in read[0]) else None


def _split(text: str) -> tuple[list[JsonValue], str] | None:
    """Returns the parts of a text that the same single separator divides throughout."""
    text = text.strip(" \t\n\r")
    if _IN_NUMBER.search(text) is not None:
        return None
    for separator in _SEPARATORS:
        parts = text.split(separator)
        if len(parts) > 1:
            is_whole = all(part and part == part.strip() and not {*part} & {",", ";"} for part in parts)
            return ([*parts], separator) if is_whole else None
    return None


def split_commas(value: JsonValue, site: Site) -> Reading | None:
    """`"a,b,c"` -> `["a","b","c"]`: three plain texts or more; matching quotes around all items are stripped."""
    if not isinstance(value, str) or not _takes_list(site):
        return None
    text = value.strip(" \t\n\r")
    separator = ", " if ", " in text else ","
    if _QUOTED.fullmatch(text):
        return [part[1:-1] for part in text.split(separator)], (separator, text[0])
    if _WORDS.fullmatch(text) is None or _IN_NUMBER.search(text):
        return None
    return [*text.split(separator)], (separator, "")


def joined_text(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes the notations that split a text: the separator, and the quote around each item."""
    separator, quote = spelling if isinstance(spelling, tuple) else (spelling, "")
    return separator.join(f"{quote}{part}{quote}" for part in value)


def join_chunks(value: JsonValue, site: Site) -> Reading | None:
    r"""`["a\\n","b"]` -> `"a\\nb"` if one text is expected: all but the last end in a line break."""
    if not isinstance(value, list) or len(value) < 2 or "string" not in site.types or "array" in site.types:
        return None
    if not all(isinstance(item, str) for item in value) or not all(item.endswith("\n") for item in value[:-1]):
        return None
    return "".join(value), [len(item) for item in value]


def chunks(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes `join_chunks` by the lengths of the pieces."""
    ends = [sum(spelling[: at + 1]) for at in range(len(spelling))]
    return [value[end - length : end] for end, length in zip(ends, spelling, strict=True)]


def first_of_one(value: JsonValue, site: Site) -> Reading | None:
    """`["a"]` -> `"a"` if no array is legal."""
    alone = isinstance(value, list) and len(value) == 1 and "array" not in site.types
    return (value[0], "") if alone else None


def one_item(value: JsonValue, spelling: Any) -> JsonValue:  # noqa: ARG001
    """Encodes `first_of_one`."""
    return [value]


def value_wrapped(value: JsonValue, site: Site) -> Reading | None:
    """`{"value": "high"}` -> `"high"` if the schema lists it, or expects a number or boolean."""
    if not isinstance(value, dict) or value.keys() != {VALUE_KEY} or site.types & {"object", "array"}:
        return None
    return None if site.free_text else (value[VALUE_KEY], VALUE_KEY)


def self_wrapped(value: JsonValue, site: Site) -> Reading | None:
    """`{"tags": {"tags": ["x"]}}` -> `{"tags": ["x"]}`: a list is wrapped a second time under its own name, also as
    JSON text. An object is never legal there, and no key of the items has that name."""
    if not _takes_list(site) or "object" in site.types or site.name in site.item_keys:
        return None
    read = read_inside(value, site, frozenset({"object"})) if isinstance(value, str) else (value, (), 0)
    inner = read[0] if read is not None and isinstance(read[0], dict) and site.name else {}
    is_list = inner.keys() == {site.name} and isinstance(inner[site.name], list)
    return (inner[site.name], (site.name, read[2])) if is_list and read is not None else None


def write_wrapper(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes a value under a single key, or JSON text of that."""
    key, texts = spelling if isinstance(spelling, tuple) else (spelling, 0)
    made: JsonValue = {key: value}
    for _ in range(texts):
        made = dumps(made).decode()
    return made


def item_wrapped(value: JsonValue, site: Site) -> Reading | None:
    """`{"item": {...}}` -> `[{...}]` if a list is expected: a list in the spelling of XML."""
    if "array" not in site.types or "object" in site.types or ITEM_KEY in site.item_keys:
        return None
    if not isinstance(value, dict) or value.keys() != {ITEM_KEY}:
        return None
    inner = value[ITEM_KEY]
    return (inner, True) if isinstance(inner, list) else ([inner], False)


def items(value: JsonValue, spelling: Any) -> JsonValue:
    """Encodes `item_wrapped`; the spelling is whether a list was sent."""
    return {ITEM_KEY: value if spelling else _first(value, spelling)}

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
from proxy.core.rules.names import split_words
from proxy.core.rules.proposals import NONE, NULL_WORDS, Site, read_inside

# Signs between values, in many scripts: a text with one of them may be several values.
_SEPARATORS: Final = re.compile(
    r"[\s\[\]{}(),;|=&<>~‐-―−→-⇿⟵-⟿➔-➾…·、，；،؛・／＋\"“”„«»`]|^'|'$|\w\+\w|\w\.{2,}\w|\\[nrt]|%[0-9A-Fa-f]{2}"
    r"|\S[@#]\S*[@#]|[@#]\S*[^\s.][@#]"
    r"|://.*://|^[0-9.:]+[-/x][0-9.:]+\Z|\A[A-Z]\w*(?:[-/][A-Z]\w*)+\Z"
)
# Letters of scripts that part no words by blanks, or join a conjunction to a word.
_UNPARTED: Final = re.compile(
    r"[\u0590-\u06ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
_SLASHED: Final = re.compile(r"\w+(?:/\w+)+")
# The last words of names whose values hold a slash.
_PATHS: Final = frozenset(
    ["paths", "files", "filenames", "dirs", "directories", "folders", "repos", "repositories", "urls", "uris", "links",
     "routes", "topics", "images", "globs", "patterns", "zones", "timezones", "refs", "branches", "models", "packages"]
)  # fmt: skip
# Words of nothing, and of more than one: neither is an item.
_NO_ITEM: Final = frozenset(
    ["none", "null", "nil", "undefined", "nan", "na", "n/a", "n.a.", "nothing", "no", "empty", "unknown", "tbd",
     "keine", "kein", "keiner", "nichts", "aucun", "aucune", "rien", "ninguno", "ninguna", "nada", "nessuno", "nessuna",
     "niente", "nenhum", "nenhuma", "geen", "niets", "нет", "ничего", "brak", "nic", "ingen", "inget", "yok", "žádný",
     "all", "any", "both", "every", "everything", "each", "either", "neither", "alle", "beide", "tous", "toutes",
     "todos", "todas", "ambos", "ambas", "tutti", "entrambi", "все", "оба", "hepsi", "multiple", "several", "various",
     "default", "same", "etc", "other", "others", "*"]
)  # fmt: skip
# Words of names of which one value is one end, or one part: of these nothing is wrapped.
_PARTED: Final = frozenset(
    ["range", "ranges", "pair", "pairs", "position", "positions", "dimension", "dimensions", "bounds", "bound",
     "limits",
     "interval", "intervals", "span", "spans", "window", "between", "coordinates", "coordinate", "coords", "coord",
     "point", "points", "box", "bbox", "rect", "rectangle", "resolution", "vector", "axis", "axes", "extent", "latlng",
     "latlon", "lnglat", "xy", "ratio", "aspect", "endpoints", "ends", "corners", "matrix", "rgb", "period", "edge",
     "segment", "versus", "matchup"]
)  # fmt: skip
_PARTS_TOLD: Final = re.compile(
    r"\bm(?:in|inimum)\b.*\bmax|\blat.*\bl(?:on|ng)|\bwidth.*\bheight|\[\s*[a-z_]\w*\s*,\s*[a-z_]\w*\s*[\],]"
    r"|\b(?:pair|tuple|range|exactly (?:two|three|[2-9]))\b",
    re.IGNORECASE | re.DOTALL,
)
# Only quoted parts are split at commas, or three or more plain words; two only where they are ids.
_WORDS: Final = re.compile(r"[\w-]+(?:,[\w-]+){2,}", re.ASCII)
_IDS: Final = re.compile(r"[\w-]+(?:,[\w-]+)+", re.ASCII)
# The last words of names whose single value may hold commas.
_WITH_COMMAS: Final = frozenset(
    [
        "addresses",
        "locations",
        "places",
        "names",
        "authors",
        "people",
        "persons",
        "files",
        "paths",
        "points",
        "dates",
        "coordinates",
        "cities",
        "numbers",
        "amounts",
        "expressions",
        "queries",
        "texts",
        "sentences",
        "lines",
    ]
)
# Where a text of pinned items is parted, and what each part has that plain words have not.
_PARTINGS: Final = re.compile(r"\s*[,;]\s*")
_SIGN: Final = re.compile(r"[^\W_]*[^A-Za-z\s].*")
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
        return NONE if _is_many(value, site) else [value]
    if _is_parted(site) or (isinstance(value, int | float) and not _is_plural(site)):
        return NONE
    if name_json_type(value) in site.types or (isinstance(value, dict) and not _is_item(value, site)):
        return NONE
    return [value]


def _is_item(value: dict[str, JsonValue], site: Site) -> bool:
    """Whether an object is one item, recognised by a key that the items declare, and not a map of several items."""
    if value.keys().isdisjoint(site.item_keys):
        return False
    return not all(isinstance(part, dict) and not part.keys().isdisjoint(site.item_keys) for part in value.values())


def _is_many(text: str, site: Site) -> bool:
    """Whether a text may be several values, a spelling of one, one end of a pair, or none."""
    bare = text.strip()
    if bare in NULL_WORDS or bare.lower() in _NO_ITEM or (re.search(r"\w", bare) is None and bare != "*"):
        return bare not in site.item_choices
    if site.item_choices:
        return False  # the schema lists the items, so the judge decides
    if site.pinned:
        return False
    slashed = _SLASHED.fullmatch(bare) is not None and _PATHS.isdisjoint(split_words(site.name)[-1:])
    return slashed or _is_parted(site) or _SEPARATORS.search(text) is not None or _UNPARTED.search(text) is not None


def _is_parted(site: Site) -> bool:
    """Whether a list is one thing of several parts: one value is one of its ends."""
    words = split_words(site.name)
    return not _PARTED.isdisjoint(words) or any(_PARTS_TOLD.search(one) for one in site.descriptions)


def _is_plural(site: Site) -> bool:
    """Whether a list of numbers has a name of many: under a name of one it may be a point or a size."""
    last = split_words(site.name)[-1:]
    return bool(last) and (last[0].endswith("s") or last[0] in ("data", "indices", "list", "array", "set"))


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
    if not isinstance(value, str) or not _takes_list(site) or _is_parted(site):
        return NONE
    if _INTEGERS.fullmatch(value.strip(" ")) is None:
        return NONE
    return NONE if _THOUSANDS.search(value) else parse(f"[{value}]".encode())


def split_commas(value: JsonValue, site: Site) -> JsonValue:
    """`"a,b"` -> `["a","b"]`; matching quotes around an item are stripped."""
    if not isinstance(value, str) or not _takes_list(site) or _BRACKETS.search(value):
        return NONE
    if _QUOTED.fullmatch(value):
        return [part.strip()[1:-1] for part in value.split(",")]
    last = split_words(site.name)[-1:]
    words = _IDS if last == ("ids",) else _WORDS
    if words.fullmatch(value) is None or _THOUSANDS.search(value) or not _WITH_COMMAS.isdisjoint(last):
        return NONE
    return NONE if _is_parted(site) else value.split(",")


def split_pinned(value: JsonValue, site: Site) -> JsonValue:
    """`"a@x.org, b@y.org"` -> `["a@x.org", "b@y.org"]` where a format or pattern takes each part. No part is a plain
    word, which a name or a place may hold two of, and the whole is proposed too (`wrap_single`): where the schema takes
    either, the text has two meanings."""
    if not isinstance(value, str) or not _takes_list(site) or not site.pinned or _is_parted(site):
        return NONE
    parts = _PARTINGS.split(value.strip())
    return parts if len(parts) > 1 and all(_may_stand_alone(part) for part in parts) else NONE


def _may_stand_alone(part: str) -> bool:
    return _SIGN.fullmatch(part) is not None and any(letter.isalpha() for letter in part) and not re.search(r"\s", part)


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

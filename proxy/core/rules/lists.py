"""The value rules between one value and a list, and those that take off what a model put around a value.

A text becomes an item as a whole only where nothing in it looks like a separator, and is split only where every part
proves to be one: a text such as `San Francisco, CA` is one place or two, which cannot be known here.
"""

from __future__ import annotations

import re
from typing import Final

from proxy.core.json.embedded import read_python_value
from proxy.core.json.jsontext import JSON_TYPES, dumps, name_json_type, parse
from proxy.core.model.values import JsonValue
from proxy.core.rules.members import fold_case, index_members
from proxy.core.rules.names import split_words
from proxy.core.rules.proposals import NONE, NULL_WORDS, Site, read_inside

# The one value that a text without white space may be: a word, a flag, a handle, a name with points, a path, an
# address or a pattern of files. Letters are those of scripts that part their words by blanks; any other sign may stand
# between values.
_WORD: Final = r"[\w\u0300-\u036f]+(?:['’][\w]+)?"
_NAME: Final = rf"{_WORD}(?:[-.]{_WORD})*"
_STEP: Final = rf"(?:[@.]?{_NAME}|\.\.?)"
_ONE: Final = re.compile(
    rf"(?:--?|[@#$.])?{_NAME}(?:\+{{1,2}}|#)?"
    rf"|{_WORD}(?:[-.+]{_WORD})*@{_NAME}"
    rf"|[A-Za-z][A-Za-z0-9+.-]*://{_NAME}(?::[0-9]+)?(?:/[\w.~!$@#?%-]+)*/?"
    rf"|(?:~?/|[A-Za-z]:/)?{_STEP}(?:/{_STEP})*/?|[A-Za-z]:\\{_STEP}(?:\\{_STEP})*"
    rf"|(?:(?:{_STEP}|\*\*)/)*[\w.-]*\*{{1,2}}[\w.-]*"
)
_LATIN_KIN: Final = re.compile(r"[\x00-\u036f\u0370-\u058f\u10a0-\u10ff\u1e00-\u1fff’]*")
# Two values, or the ends of a span: `mon-fri`, `9am-5pm`, `v1-v3`, `LHR-JFK`, `en2de`, `1to5`, `2xpizza`, `3ff`.
_SPAN: Final = re.compile(
    r"[0-9]+(?:[.:][0-9]+)*[-/x][0-9]+(?:[.:][0-9]+)*"
    r"|(?:[^\W\d_]{1,3}[0-9]+|[0-9]+[^\W\d_]{1,3})-(?:[^\W\d_]{0,3}[0-9]+|[0-9]+[^\W\d_]{1,3})"
    r"|[A-Z]\w*(?:[-/][A-Z]\w*)+|[A-Z]{3,}\.[A-Z]{3,}|[^\W\d_]{2,}2[^\W\d_]{2,}"
    r"|[0-9]+(?:to|x|-)[^\W_]+|[^\W_]+x[0-9]|[0-9]+(?:ff?|\+)|\w+\*[0-9]\w*|[0-9]\w*\*\w+"
)
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}-(?:[A-Z]{2}|[A-Z][a-z]{3})")
# Words that join two values, in the languages that join them by a word: between the words of `rice_and_beans`.
_JOINING: Final = frozenset([
    "and", "or", "und", "oder", "et", "ou", "y", "o", "e", "och", "og", "eller", "ve", "veya", "vs", "versus", "with",
    "mit", "avec", "con", "to", "bis", "plus", "minus", "through", "thru", "nor", "n", "i", "и", "или",
])  # fmt: skip
# Words of one small family each: two of them, joined by a hyphen, are two values.
_FAMILIES: Final = tuple(
    frozenset(words.split())
    for words in (
        "mon tue wed thu fri sat sun monday tuesday wednesday thursday friday saturday sunday weekday weekend",
        "jan feb mar apr may jun jul aug sep sept oct nov dec january february march april june july august september "
        "october november december",
        "spring summer autumn fall winter",
        "red green blue black white yellow orange brown grey gray purple pink",
        "small medium large low high male female men women morning noon afternoon evening night day am pm",
        "one two three four five six seven eight nine ten first second third last start end begin finish min max",
    )
)
# The last words of names whose values hold a slash.
_FILE: Final = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}\Z|\*")
_PATHS: Final = frozenset([

    "paths", "files", "filenames", "dirs", "directories", "folders", "repos", "repositories", "urls", "uris", "links",
    "routes", "topics", "images", "globs", "patterns", "zones", "timezones", "refs", "branches", "models", "packages",
])  # fmt: skip
# Words of nothing, and of more than one: neither is an item.
_NO_ITEM: Final = frozenset([
    "none", "null", "nil", "undefined", "nan", "na", "n/a", "n.a.", "nothing", "no", "empty", "unknown", "tbd", "tba",
    "tbc", "unspecified", "unset", "nobody", "nowhere", "never", "keine", "kein", "keiner", "niemand", "nichts",
    "aucun", "aucune", "rien", "personne", "ninguno", "ninguna", "ningún", "nada", "nadie", "nessuno", "nessuna",
    "niente", "nenhum", "nenhuma", "ninguém", "geen", "niets", "нет", "ничего", "никто", "brak", "nic", "nikt", "ingen",
    "inget", "yok", "žádný", "all", "any", "both", "every", "everything", "everyone", "everybody", "everywhere",
    "anything", "anyone", "anybody", "someone", "somebody", "something", "each", "either", "neither", "alle", "alles",
    "beide", "tous", "toutes", "tout", "todos", "todas", "todo", "ambos", "ambas", "tutti", "tutte", "tutto",
    "entrambi", "все", "всё", "оба", "wszyscy", "wszystko", "hepsi", "alla", "allemaal", "multiple", "several",
    "various", "many", "some", "few", "most", "default", "same", "ditto", "idem", "etc", "other", "others", "rest",
    "remaining", "whatever", "auto", "*",
])  # fmt: skip
# Words of names of which one value is one end, or one part: of these nothing is wrapped.
_PARTED: Final = frozenset([
    "range", "ranges", "pair", "pairs", "position", "positions", "dimension", "dimensions", "bounds", "bound", "limits",
    "interval", "intervals", "span", "spans", "window", "between", "margin", "margins", "padding", "paddings", "offset",
    "offsets", "threshold", "thresholds", "shape", "dims", "dim", "minmax", "grid", "coordinates", "coordinate",
    "coords", "coord", "point", "points", "box", "bbox", "rect", "rectangle", "resolution", "vector", "axis", "axes",
    "extent", "latlng", "latlon", "lnglat", "xy", "ratio", "aspect", "endpoints", "ends", "corners", "matrix", "rgb",
    "period", "edge", "segment", "versus", "matchup",
])  # fmt: skip
# A description that tells the parts: how many, or by names of the first and another one.
_PARTS_NAMED: Final = re.compile(
    r"\[\s*[a-z_]\w*\s*,\s*[a-z_]\w*\s*[\],]|\b(?:pair|pairs|tuple|couple|both|triple)\b"
    r"|\b(?:two|three)\b(?![- ](?:letter|digit|char|word))|\bexactly [2-9]\b"
    r"|\b(?:from|lower|lowest|low|min|minimum|start|starting|begin|beginning|first|open|opening|origin|source|home|base"
    r"|foreground|check-?in|x|rows?|width|departure|youngest|smallest|oldest|cheapest|lat|latitude|lon|lng|longitude"
    r"|red|old|left|horizontal|earliest)\b[^.;\n]{0,24}?(?:,|/|-|\band\b|\bto\b)\s*(?:the )?"
    r"(?:to|upper|uppermost|highest|high|max|maximum|stop|end|ending|last|close|closing|destination|target|away|quote"
    r"|background|check-?out|y|col|columns?|height|arrival|oldest|youngest|largest|dearest|lat|latitude|lon|lng"
    r"|longitude|green|new|right|vertical|latest)\b",
    re.IGNORECASE,
)
# Named of numbers alone: a range of prices may be the words `low` and `mid` as well.
_RANGE_NAMED: Final = re.compile(r"\brange\b", re.IGNORECASE)
# Only quoted parts are split at commas, or three or more plain words; two only where they are ids.
_WORDS: Final = re.compile(r"[\w-]+(?:(?:,[\w-]+){2,}|(?:, [\w-]+){2,})", re.ASCII)
_IDS: Final = re.compile(r"[\w-]+(?:,[\w-]+)+", re.ASCII)
# The last words of names whose single value may hold commas.
_WITH_COMMAS: Final = frozenset([
    "addresses", "locations", "places", "names", "authors", "people", "persons", "files", "paths", "points", "dates",
    "coordinates", "cities", "numbers", "amounts", "expressions", "queries", "texts", "sentences", "lines", "stops",
    "waypoints", "args", "argv", "arguments", "flags", "options", "params", "command", "commands", "chords", "order",
    "by", "sort", "sorts", "sorting", "formulas", "equations", "rules",
])  # fmt: skip
# A name of a person or place, which may hold commas, and words that say something of the word before or behind them.
_PROPER: Final = re.compile(r"[A-Z][a-z]")
_NO_PART: Final = _NO_ITEM | {word for word in _JOINING if len(word) > 1} | {
    "asc", "desc", "ascending", "descending", "not", "except", "without", "but", "only", "please", "yes", "more"
}  # fmt: skip
# Where a text of pinned items is parted, and what each part has that plain words have not.
_PARTINGS: Final = re.compile(r"\s*[,;]\s*|\s+")
_IP: Final = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
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
    if name_json_type(value) in site.types:
        return NONE
    # An object is one item where it has a key that the items declare, and is not a map of several items.
    is_item = not isinstance(value, dict) or (
        _has_item_key(value, site) and not all(_has_item_key(part, site) for part in value.values())
    )
    return [value] if is_item else NONE


def _has_item_key(value: JsonValue, site: Site) -> bool:
    return isinstance(value, dict) and not value.keys().isdisjoint(site.item_keys)


_LETTER: Final = re.compile(r"\w")
_PIECES: Final = re.compile(r"[^\W_]+")
# Where a word of a camelCase name begins.
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _is_many(text: str, site: Site) -> bool:
    """Whether a text may be several values, a spelling of one, one end of a pair, or none."""
    bare = text.strip()
    if bare in NULL_WORDS or bare.lower() in _NO_ITEM or (_LETTER.search(bare) is None and bare != "*"):
        return bare not in site.item_choices
    if site.item_choices or site.pinned:
        return False  # the schema lists or pins the items, so the judge decides
    return (bare.isdecimal() and not _is_plural(site)) or _is_parted(site, bare) or not _is_one(text, site)


def _is_one(text: str, site: Site) -> bool:
    """Whether a text can only be one value, as far as its spelling tells."""
    if _ONE.fullmatch(text) is None or _LATIN_KIN.fullmatch(text) is None:
        return False
    if _SPAN.fullmatch(text) and not _LANGUAGE.fullmatch(text):
        return False
    parted = text if text.islower() else _CAMEL.sub(" ", text).lower()
    if not _JOINING.isdisjoint(_PIECES.findall(parted)[1:-1]):
        return False
    parts = text.lower().split("-")
    if len(parts) == 2:
        # Codes or abbreviations of one length: `en-de`, `jfk-lhr`, `a-f`.
        is_short = len(parts[0]) == len(parts[1]) <= 3 and all(part.isalpha() for part in parts)
        if is_short or any(family.issuperset(parts) for family in _FAMILIES):
            return bool(_LANGUAGE.fullmatch(text))
    slashes = "/" in text and "://" not in text and not text.startswith(("/", "./", "../", "~", "@"))
    return not slashes or not _PATHS.isdisjoint(split_words(site.name)[-1:]) or bool(_FILE.search(text))


def _is_parted(site: Site, text: str = "") -> bool:
    """Whether a list is one thing of several parts: one value is one of its ends."""
    if not _PARTED.isdisjoint(split_words(site.name)) or any(_PARTS_NAMED.search(one) for one in site.descriptions):
        return True
    return not text.isalpha() and any(_RANGE_NAMED.search(one) for one in site.descriptions)


def _is_plural(site: Site) -> bool:
    """Whether a list of numbers has a name of many: under a name of one it may be a point or a size."""
    last = split_words(site.name)[-1:]
    return bool(last) and (last[0].endswith("s") or last[0] in ("data", "indices", "list", "array", "set"))


def json_item(value: JsonValue, site: Site) -> JsonValue:
    """`"{\\"id\\": 1}"` -> `[{"id": 1}]`: JSON text of one object where a list of such objects is expected."""
    is_applicable = "array" in site.types and "object" not in site.types
    read = read_inside(value, site, frozenset({"object"})) if is_applicable else None
    return [read[0]] if read is not None and _has_item_key(read[0], site) else NONE


def python_list(value: JsonValue, site: Site) -> JsonValue:
    """`"['a', 'b']"` -> `["a", "b"]`."""
    spells_list = isinstance(value, str) and _takes_list(site) and value.lstrip().startswith("[")
    read = read_python_value(value) if spells_list else None
    return read if isinstance(read, list) else NONE


def split_members(value: JsonValue, site: Site) -> JsonValue:
    """`"red, green"` -> `["red", "green"]` where the schema lists every part, but not the whole."""
    if not isinstance(value, str) or not _takes_list(site) or not site.item_choices:
        return NONE
    parts = [part.strip() for part in re.split(r"[,;]", value)]
    listed = tuple(choice for choice in site.item_choices if isinstance(choice, str))
    folded = index_members(fold_case, listed)
    found = [part if part in listed else folded.get(fold_case(part)) for part in parts]
    return NONE if len(parts) < 2 or value.strip() in listed or None in found else found


def split_integers(value: JsonValue, site: Site) -> JsonValue:
    """`"5, 2, 9"` -> `[5, 2, 9]`: three integers or more, none of which could be the thousands of the one before."""
    if not isinstance(value, str) or not _takes_list(site) or _is_parted(site):
        return NONE
    is_list = _INTEGERS.fullmatch(value.strip(" ")) is not None and _THOUSANDS.search(value) is None
    return parse(f"[{value}]".encode()) if is_list else NONE


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
    parts = re.split(", ?", value)
    if _is_parted(site) or not _NO_PART.isdisjoint(parts) or any(_PROPER.match(part) for part in parts):
        return NONE
    return NONE if "".join(parts).isdecimal() and last != ("ids",) else parts


def split_pinned(value: JsonValue, site: Site) -> JsonValue:
    """`"a@x.org, b@y.org"` -> `["a@x.org", "b@y.org"]` where a format or pattern takes each part, and none is a plain
    word. The whole is proposed too (`wrap_single`): where the schema takes either, the text has two meanings."""
    if not isinstance(value, str) or not _takes_list(site) or not site.pinned or _is_parted(site):
        return NONE
    parts = _PARTINGS.split(value.strip())
    are_pinned = all(
        _IP.fullmatch(part) or (part[:1].isalnum() and _SIGN.fullmatch(part) and any(map(str.isalpha, part)))
        for part in parts
    )
    return parts if len(parts) > 1 and are_pinned else NONE


def join_chunks(value: JsonValue, site: Site) -> JsonValue:
    r"""`["a\\n","b"]` -> `"a\\nb"` where one text is expected, not an item of a list: all but the last end in a line
    break."""
    is_applicable = site.name and "string" in site.types and "array" not in site.types
    if not is_applicable or not isinstance(value, list) or len(value) < 2:
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


# --- what a model put around a value: the shape of its schema, its own name, `item` -----------------------------------
_SCHEMA_SHAPE: Final = frozenset({"description", "type"})
_TYPED_SHAPE: Final = frozenset({"type", "value"})
# Python's name of a text's type. Any other word may be data: the type of an issue is lost with it.
_TEXT_TYPES: Final = ("str", "Str")


def _can_be_object(site: Site) -> bool:
    return "object" in site.types or site.json_text  # as it is, or as JSON text


def schema_shaped(value: JsonValue, site: Site) -> JsonValue:
    """`{"description": "x", "type": "str"}` -> `"x"`: the model copied the schema's shape around its value."""
    if not isinstance(value, dict) or value.keys() != _SCHEMA_SHAPE or _can_be_object(site):
        return NONE
    echoed = value["type"] in JSON_TYPES or value["description"] in site.descriptions
    return value["description"] if not echoed and value["type"] in _TEXT_TYPES else NONE


def typed_value(value: JsonValue, site: Site) -> JsonValue:
    """`{"type": "string", "value": "x"}` -> `"x"`."""
    if not isinstance(value, dict) or value.keys() != _TYPED_SHAPE or _can_be_object(site):
        return NONE
    return value["value"] if value["type"] == name_json_type(value["value"]) else NONE


def value_wrapped(value: JsonValue, site: Site) -> JsonValue:
    """`{"value": "high"}` -> `"high"` where the schema lists it, or asks a number or boolean."""
    if not isinstance(value, dict) or value.keys() != {"value"} or site.types & {"object", "array"} or site.free_text:
        return NONE
    return value["value"]


def self_wrapped(value: JsonValue, site: Site) -> JsonValue:
    """`{"tags": {"tags": ["x"]}}` -> `{"tags": ["x"]}`: a list is wrapped a second time under its own name, also as
    JSON text. An object is never legal there, and no key of the items has that name."""
    if "array" not in site.types or site.free_text or _can_be_object(site) or site.name in site.item_keys:
        return NONE
    read = read_inside(value, site, frozenset({"object"})) if isinstance(value, str) else (value, ())
    inner = read[0] if read is not None and isinstance(read[0], dict) and site.name else {}
    return inner[site.name] if inner.keys() == {site.name} and isinstance(inner[site.name], list) else NONE


def item_wrapped(value: JsonValue, site: Site) -> JsonValue:
    """`{"item": {...}}` -> `[{...}]` where a list is expected: a list in the spelling of XML."""
    is_applicable = "array" in site.types and "object" not in site.types and "item" not in site.item_keys
    if not is_applicable or not isinstance(value, dict) or value.keys() != {"item"}:
        return NONE
    return value["item"] if isinstance(value["item"], list) else [value["item"]]


def object_to_json_string(value: JsonValue, site: Site) -> JsonValue:
    """`{...}` -> its JSON text, where the schema says that the string is JSON and the object does not wrap a value."""
    if not isinstance(value, dict) or "string" not in site.types or "object" in site.types or not site.json_text:
        return NONE
    if value.keys() in (_SCHEMA_SHAPE, _TYPED_SHAPE, {site.name}):
        return NONE
    return dumps(value).decode()

"""The text of parameters and urlencoded forms, read into values and written from them (RFC 6570, OpenAPI). Pure.

Parameters are read by style and schema. Text has no types, so `3` is the integer 3 where the schema takes an integer
and the text "3" where it takes a text. A number is read only if every reader reads the same: `1e2`, which some
parsers read as 1, is not an integer here. A text may have several readings, the likeliest first; no reading means that
it is not in its style.
"""

from __future__ import annotations

import re
from binascii import a2b_qp
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from proxy.core.json.jsontext import FRACTIONS, dumps, parse, write_number
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions.operations.core.http.multipart import Pairs
from proxy.extensions.operations.core.http.parameters import Parameter

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,99})")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?")
_WORDS: Final[Mapping[str, JsonValue]] = {"true": True, "false": False, "null": None}
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_DELIMITERS: Final = {"form": ",", "simple": ",", "spaceDelimited": " ", "pipeDelimited": "|"}

# The most pairs of a query or a form that are read: ten times what PHP, Django and Flask take by default.
MOST_PAIRS: Final = 10_000


def count_pairs(text: str) -> int:
    """Returns how many pairs a query or a form has at most, for any service: some begin one at `;`."""
    return text.count("&") + text.count(";") + 1


# --- text -> values ---------------------------------------------------------------------------------------------------
def _read_typed(text: str, kinds: frozenset[str]) -> JsonValue:
    """A text as the JSON value it spells, where the schema takes such values."""
    if text in _WORDS and (not kinds or {"true": "boolean", "false": "boolean", "null": "null"}[text] in kinds):
        return _WORDS[text]
    if not kinds or "number" in kinds:
        spelt = _NUMBER.fullmatch(text)
    else:
        spelt = _INTEGER.fullmatch(text) if kinds & {"integer", "array", "object"} else None
    if spelt is not None:
        value = parse(text.encode())
        if not isinstance(value, JsonProblem):
            return value
    return text


def _scalars(text: str, kinds: frozenset[str]) -> list[JsonValue]:
    value = _read_typed(text, kinds)
    return [text] if value == text else [value, text]


def _lists(texts: list[str], parameter: Parameter) -> list[JsonValue]:
    return [[_read_typed(text, parameter.items) for text in texts], list(texts)]


def _objects(pairs: Pairs, parameter: Parameter) -> list[JsonValue]:
    if len({name for name, _ in pairs}) != len(pairs):
        return []
    members = parameter.members
    return [{name: _read_typed(text, members.get(name, frozenset())) for name, text in pairs}, dict(pairs)]


def _json(text: str) -> list[JsonValue]:
    value = parse(text.encode())
    return [] if isinstance(value, JsonProblem) else [value]


def read_path(parameter: Parameter, text: str) -> list[JsonValue]:
    """Returns the possible values of a decoded path segment; empty if it is not in its style."""
    if parameter.style == "json":
        return _json(text)
    if parameter.style == "matrix":
        return _read_matrix(parameter, text)
    delimiter = ","
    if parameter.style == "label":
        if not text.startswith("."):
            return []
        text, delimiter = text[1:], "." if parameter.explode else ","
    if "array" in parameter.kinds:
        return [*_lists(text.split(delimiter), parameter), *_scalar_beside(parameter.kinds, text)]
    if "object" in parameter.kinds:
        return _objects(_flat(text.split(delimiter), parameter.explode), parameter)
    return _scalars(text, parameter.kinds)


def _read_matrix(parameter: Parameter, text: str) -> list[JsonValue]:
    """`;name=value` (RFC 6570 section 3.2.7)."""
    if not text.startswith(";"):
        return []
    pairs = [(name, value) for name, _, value in (part.partition("=") for part in text[1:].split(";"))]
    if "object" in parameter.kinds and parameter.explode:
        return _objects(pairs, parameter)
    if any(name != parameter.name for name, _ in pairs) or (len(pairs) > 1 and not parameter.explode):
        return []
    texts = [value for _, value in pairs]
    if "array" in parameter.kinds:
        return _lists(texts if parameter.explode else texts[0].split(","), parameter)
    if "object" in parameter.kinds:
        return _objects(_flat(texts[0].split(","), explode=False), parameter)
    return _scalars(texts[0], parameter.kinds) if len(texts) == 1 else []


def _flat(parts: list[str], explode: bool) -> Pairs:
    """`a=1,b=2` exploded, else `a,1,b,2`."""
    if explode:
        return [(name, value) for name, _, value in (part.partition("=") for part in parts)]
    return list(zip(parts[::2], parts[1::2], strict=False)) if len(parts) % 2 == 0 else []


def _scalar_beside(kinds: frozenset[str], text: str) -> list[JsonValue]:
    """A single value, where the schema takes one beside a list."""
    return _scalars(text, kinds) if kinds - {"array", "null"} else []


def is_of(parameter: Parameter, name: str) -> bool:
    """Returns whether a name of a query or a form belongs to a parameter."""
    if parameter.style == "deepObject":
        return name.startswith(f"{parameter.name}[") and name.endswith("]")
    if parameter.style == "form" and parameter.explode and "object" in parameter.kinds:
        return name in parameter.properties
    return name == parameter.name


def list_written_names(parameter: Parameter) -> tuple[str, ...]:
    """Returns the names in a query, a form or cookies of a parameter's declared parts."""
    if parameter.style == "form" and parameter.explode and "object" in parameter.kinds:
        return parameter.properties
    return (parameter.name,)


def group_pairs(pairs: Pairs) -> dict[str, Pairs]:
    """The pairs by their names."""
    groups: dict[str, Pairs] = {}
    for pair in pairs:
        groups.setdefault(pair[0], []).append(pair)
    return groups


def select_pairs(parameter: Parameter, groups: dict[str, Pairs]) -> Pairs:
    """The pairs of a query or a form that belong to a parameter (`is_of`)."""
    if parameter.style == "deepObject":
        return [pair for name, pairs in groups.items() if is_of(parameter, name) for pair in pairs]
    if parameter.style == "form" and parameter.explode and "object" in parameter.kinds:
        return [pair for name in parameter.properties for pair in groups.get(name, ())]
    return groups.get(parameter.name, [])


def read_pairs(parameter: Parameter, pairs: Pairs) -> list[JsonValue]:
    """Returns the possible values of a parameter's pairs; empty if they are not in its style."""
    texts = [text for _, text in pairs]
    if parameter.style == "json":
        return _json(texts[0]) if len(texts) == 1 else []
    if parameter.style == "deepObject":
        start = len(parameter.name) + 1
        return _objects([(name[start:-1], text) for name, text in pairs], parameter)
    if "object" in parameter.kinds:
        inner = pairs if parameter.explode else _flat(texts[0].split(","), explode=False) if len(texts) == 1 else []
        return _objects(inner, parameter) if inner else []
    if "array" in parameter.kinds:
        if parameter.explode:
            return [*_lists(texts, parameter), *(_scalar_beside(parameter.kinds, texts[0]) if len(texts) == 1 else [])]
        return _lists(texts[0].split(_DELIMITERS[parameter.style]), parameter) if len(texts) == 1 else []
    return _scalars(texts[0], parameter.kinds) if len(texts) == 1 else []


def split_query(query: str) -> Pairs | None:
    """Returns the decoded names and values of a query string; None if it is not escaped text in UTF-8."""
    if _BAD_ESCAPE.search(query):
        return None
    try:
        return [
            (_decode_text(name), _decode_text(value))
            for name, _, value in (part.partition("=") for part in query.split("&") if part)
        ]
    except UnicodeDecodeError:
        return None


def _decode_text(text: str) -> str:
    """A text without its escapes, all of which are whole. Quoted-printable has `=XX` for `%XX`, and is read in a
    thirtieth of the time that `unquote` takes."""
    return a2b_qp(text.replace("+", " ").replace("=", "=3D").replace("%", "=").encode()).decode()


def read_header(parameter: Parameter, lines: list[str]) -> list[JsonValue]:
    """The possible values of a header's lines (style `simple`)."""
    text = ", ".join(line.strip() for line in lines)
    if parameter.style == "json":
        return _json(text)
    parts = [part.strip() for part in text.split(",")]
    if "array" in parameter.kinds:
        return [*_lists(parts, parameter), *_scalar_beside(parameter.kinds, text)]
    if "object" in parameter.kinds:
        return _objects(_flat(parts, parameter.explode), parameter)
    return _scalars(text, parameter.kinds) if len(lines) == 1 else []


# --- values -> text ---------------------------------------------------------------------------------------------------
def _scalar_text(value: JsonValue) -> str | None:
    """A single value as text; None for null, a list or an object."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, FRACTIONS):
        return write_number(value)
    return str(value) if isinstance(value, str | int) else None


def _join_texts(texts: list[str | None], delimiter: str) -> str | None:
    """Items with a delimiter between them; None where an item holds it or cannot be written."""
    parts = [text for text in texts if text is not None and delimiter not in text]
    return delimiter.join(parts) if parts and len(parts) == len(texts) and parts != [""] else None


def _flat_text(value: JsonValue, delimiter: str, *, explode: bool, between: str = "=") -> str | None:
    """A list or an object in one text."""
    if isinstance(value, list):
        return _join_texts([_scalar_text(item) for item in value], delimiter)
    if not isinstance(value, dict):
        return _scalar_text(value)
    pairs = [(name, _scalar_text(item)) for name, item in value.items()]
    if not explode:
        return _join_texts([part for pair in pairs for part in pair], delimiter)
    if any(between in name for name, _ in pairs):
        return None
    return _join_texts([None if text is None else f"{name}{between}{text}" for name, text in pairs], delimiter)


def write_path(parameter: Parameter, value: JsonValue) -> str | None:
    """The text of a path segment, not escaped yet; None where the value cannot be written in the style."""
    if parameter.style == "json":
        return dumps(value).decode()
    if parameter.style == "label":
        text = _flat_text(value, "." if parameter.explode else ",", explode=parameter.explode)
        return None if text is None else f".{text}"
    if parameter.style == "matrix":
        return _write_matrix(parameter, value)
    return _flat_text(value, ",", explode=parameter.explode)


def _write_matrix(parameter: Parameter, value: JsonValue) -> str | None:
    if isinstance(value, dict) and parameter.explode:
        text = _flat_text(value, ";", explode=True)
        return None if text is None else f";{text}"
    if isinstance(value, list) and parameter.explode:
        texts = [_scalar_text(item) for item in value]
        known = [text for text in texts if text is not None and ";" not in text]
        complete = known and len(known) == len(texts)
        return "".join(f";{parameter.name}={text}" for text in known) if complete else None
    text = _flat_text(value, ",", explode=False)
    return None if text is None or ";" in text else f";{parameter.name}={text}"


def write_header(parameter: Parameter, value: JsonValue) -> str | None:
    """The value of a header; None where it cannot be written: control characters, or beyond ASCII."""
    as_json = parameter.style == "json"
    text = dumps(value).decode() if as_json else _flat_text(value, ",", explode=parameter.explode)
    if text is None or text != text.strip() or any(not " " <= character <= "~" for character in text):
        return None
    return text


def write_pairs(parameter: Parameter, value: JsonValue) -> Pairs | None:
    """The names and values of a query or a form, not escaped yet; None if the value cannot be written in the style.
    Null, and a list or an object without members, is written as nothing."""
    name = parameter.name
    if parameter.style == "json":
        return [(name, dumps(value).decode())]
    if value is None or value == [] or value == {}:
        return []
    if parameter.style == "deepObject" and isinstance(value, dict):
        return _all_written([(f"{name}[{key}]", _scalar_text(item)) for key, item in value.items()])
    if isinstance(value, dict) and parameter.explode and parameter.style == "form":
        return _all_written([(key, _scalar_text(item)) for key, item in value.items()])
    if isinstance(value, list) and parameter.explode:
        return _all_written([(name, _scalar_text(item)) for item in value])
    delimiter = _DELIMITERS.get(parameter.style, ",")
    return _all_written([(name, _flat_text(value, delimiter, explode=False))])


def _all_written(pairs: list[tuple[str, str | None]]) -> Pairs | None:
    written = [(name, text) for name, text in pairs if text is not None]
    return written if len(written) == len(pairs) else None


def escape_pairs(pairs: Pairs) -> str:
    """Names and values as a query has them; a comma and a colon stay."""
    return "&".join(f"{quote(name, safe='[]')}={quote(text, safe=',:')}" for name, text in pairs)

"""A tool's complaints about arguments, as claims; and the three ways in which frameworks write them, each as a reader.

A reader takes an `ErrorBody` and gives claims, none if the body does not use its dialect. It reads lists of objects
with a place and words (FastAPI, AJV, zod ...), maps of places to words (Django, Rails, ASP.NET ...), or sentences (Go,
Jackson, serde ...). A claim counts or not when it is matched to the sent arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Final

from proxy.core.model.codes import ViolationCode
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue
from proxy.core.tool_errors.error_body import ErrorBody, find_code_of_kind

# One place as a framework spells it: `WeatherRequest.lat`, `/lat`, `$.stops[1].lat`, a list of steps; `*` is any item.
Place = str | tuple[str | int, ...]

# The most claims of one body; further ones add nothing.
MOST_CLAIMS: Final = 40
_MOST_MATCHES: Final = 40
_DEEPEST_MAP: Final = 8


@value_class
class Claim:
    """One complaint about one place, in the framework's terms. `place` is None if the framework does not name it;
    `name` is just a key, whose object is not named. `kind` is the framework's name of the rule (`float_parsing`,
    `minLength`, `oneof`); `code` is our code if the dialect is sure. `expected` and `got` are type words. `quoted`, the
    value as the tool repeats it, only serves to find the place. `sentence` is whole if `words` lack its subject."""

    words: str
    place: Place | None = None
    name: str = ""
    kind: str = ""
    code: ViolationCode | None = None
    expected: str = ""
    got: str = ""
    quoted: JsonValue = None
    sentence: str = ""


Reader = Callable[[ErrorBody], Iterator[Claim]]


# --- lists of objects -------------------------------------------------------------------------------------------------
def make_items_reader(
    *, needs: tuple[str, ...], place: tuple[str, ...], words: tuple[str, ...], kind: tuple[str, ...] = (),
    extra: tuple[str, ...] = (), outside: tuple[str, ...] = (),
) -> Reader:  # fmt: skip
    """A reader of objects that have all keys of `needs`. `place`, `words` and `kind` name the keys that may hold these
    parts, best first; a dot leads to an inner object. `extra` are keys that name a further step (AJV's missing
    property). An object whose place starts with one of `outside` is not about the arguments (but a header, for
    example)."""

    def read(answer: ErrorBody) -> Iterator[Claim]:
        for value in answer.values:
            if not isinstance(value, dict) or "timestamp" in value or not all(key in value for key in needs):
                continue  # Spring's frame has a time, and the path of the request
            where, message = _place(_first(value, place)), _first(value, words)
            if where is None or not isinstance(message, str):
                continue
            start = where if isinstance(where, str) else where[0] if where else ""
            if str(start).split(".")[0].lower() in outside or str(value.get("location", "")).lower() in outside:
                continue
            texts = (_first(value, kind), value.get("expected"))
            named, expected = (text if isinstance(text, str) else "" for text in texts)
            further = [step for key in extra for step in _list_texts(_first(value, (key,)))]
            for below in [_join_place(where, step) for step in further] or [where]:
                yield Claim(message, below, kind=named, expected=expected)

    return read


def _first(value: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    for key in keys:
        found = value
        for step in key.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def _list_texts(value: JsonValue) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [step for step in listed if isinstance(step, str)][:_MOST_MATCHES]


def _place(value: JsonValue) -> Place | None:
    if not isinstance(value, list):
        return value if isinstance(value, str) else None
    steps: tuple[JsonValue, ...] = tuple(step.get("key") if isinstance(step, dict) else step for step in value)
    return steps if all(isinstance(step, (str, int)) and not isinstance(step, bool) for step in steps) else None


def _join_place(place: Place, step: str) -> Place:
    if isinstance(place, tuple):
        return (*place, step)
    if place.startswith(("/", "#/")) or place == "":
        return f"{place}/{step.replace('~', '~0').replace('/', '~1')}"
    return f"{place}.{step}"


# --- maps -------------------------------------------------------------------------------------------------------------
# Keys of a map that mean the object itself, and keys that only group.
_ITSELF: Final = frozenset(
    ["non_field_errors", "nonFieldErrors", "_schema", "_errors", "formErrors", "base", "__all__", "$", "", "root",
     "_error"]
)  # fmt: skip
_GROUPS: Final = frozenset(["fieldErrors", "field_errors", "nested", "json", "body", "json_or_form"])
# The keys that group in zod's trees, which keep their own errors beside them.
_BRANCHES: Final = frozenset(["properties", "items"])
# Keys beside an error under which a body repeats the request; the words in there are the caller's own.
_ECHOED: Final = frozenset(
    ["input", "request", "received", "params", "arguments", "sent", "data", "meta", "context", "headers"]
)


def make_map_reader(*, at: tuple[str, ...] = (), marks: tuple[str, ...] = (), loose: bool = False) -> Reader:
    """A reader of maps from places to words. `at` names the keys that may hold the map, () for the body itself; of the
    keys `marks`, one must be beside or inside it. `loose`: words may be a single text instead of a list."""

    def read(answer: ErrorBody) -> Iterator[Claim]:
        for value in answer.values[:200] if at else answer.values[:1]:
            if not isinstance(value, dict):
                continue
            for held in [value.get(key) for key in at] if at else [value]:
                if isinstance(held, dict) and (not marks or any(mark in value or mark in held for mark in marks)):
                    yield from _read_map(held, (), loose, 0)

    return read


def _read_map(value: JsonValue, path: tuple[str | int, ...], loose: bool, depth: int) -> Iterator[Claim]:
    """The claims of one map, its place so far being `path`."""
    pairs = value.items() if isinstance(value, dict) else ((index, one) for index, one in enumerate(value) if one)
    is_tree = isinstance(value, dict) and "errors" in value and not _BRANCHES.isdisjoint(value)
    for key, entry in islice(pairs, MOST_CLAIMS if depth <= _DEEPEST_MAP else 0):
        if (key in _GROUPS or (is_tree and key in _BRANCHES)) and isinstance(entry, (dict, list)):
            yield from _read_map(entry, path, loose, depth + 1)
            continue
        itself = key in _ITSELF or (key == "errors" and (path != () or is_tree))
        below = path if itself else (*path, key)
        claims = _read_words(entry, loose)
        if claims is not None:
            # A single key may itself be spelt as a path (`place.lat`, `$.lat`).
            place: Place = below[0] if len(below) == 1 and isinstance(below[0], str) else below
            yield from (Claim(words, place, kind=kind) for words, kind in claims)
        elif isinstance(entry, (dict, list)) and not (depth == 0 and key in _ECHOED):
            yield from _read_map(entry, below, loose, depth + 1)


def _read_words(entry: JsonValue, loose: bool) -> list[tuple[str, str]] | None:
    """Returns the words at one place, each with the name of its rule; None if the entry is not a list of words."""
    if isinstance(entry, str) and loose:
        return [(entry, "")]
    if not isinstance(entry, list) or not entry:
        return None
    found: list[tuple[str, str]] = []
    for one in entry[:_MOST_MATCHES]:
        if isinstance(one, str):
            found.append((one, ""))
        elif isinstance(one, dict) and isinstance(one.get("message"), str):
            found.append((one["message"], str(one.get("code") or one.get("type") or "")))
        elif isinstance(one, dict) and isinstance(one.get("error"), str):  # Rails `errors.details`
            found.append((one["error"].replace("_", " "), one["error"]))
        else:
            return None
    return found


# --- words ------------------------------------------------------------------------------------------------------------
def make_phrase_reader(*rows: tuple[str, ViolationCode | None], prose: bool = False) -> Reader:
    """A reader of texts: each row is a regular expression and the code it means (None: the words decide). Named groups:
    They are `path` (a place), `name` (a key whose object is not named), `chain` (Jackson's reference chain), `kind`,
    `expected`, `got` and `quoted`. Further, `words` (default: the whole match), `sentence` (default: the words), `root`
    (the arguments as a whole are meant) and `items` (the items of the list at `path` are meant). `prose`: not for HTML
    pages, which may contain any sentence. The expressions are compiled on first use, or by
    `complaints.compile_dialects`, so that the start does not wait for them."""

    @cache
    def compile_phrases() -> list[tuple[re.Pattern[str], ViolationCode | None]]:
        return [(re.compile(pattern, re.MULTILINE), code) for pattern, code in rows]

    def read(answer: ErrorBody) -> Iterator[Claim]:
        for text in answer.texts if answer.prose or not prose else ():
            taken: list[tuple[int, int]] = []
            for pattern, code in compile_phrases():
                for _, match in zip(range(_MOST_MATCHES), pattern.finditer(text), strict=False):
                    if not any(start < match.end() and match.start() < end for start, end in taken):
                        taken.append(match.span())
                        yield _claim(match, code)

    return read


_CHAIN: Final = re.compile(r"\[\"([^\"\]]+)\"\]|\[(\d+)\]")


def _claim(match: re.Match[str], code: ViolationCode | None) -> Claim:
    found = match.groupdict()
    kind = found.get("kind") or ""
    place: Place | None = found.get("path")
    if found.get("chain"):
        place = tuple(name or int(index) for name, index in _CHAIN.findall(found["chain"]))
    elif found.get("root") is not None:
        place = ()
    elif found.get("items"):
        place = f"{place}.*"
    words, sentence = (" ".join(text.split()) for text in (found.get("words") or match[0], found.get("sentence") or ""))
    name, expected, got = (found.get(group) or "" for group in ("name", "expected", "got"))
    return Claim(
        words, place, name, kind, code or find_code_of_kind(kind), expected, got, found.get("quoted"), sentence
    )

"""A recorded call can be judged again on another machine: stand-ins replace its texts and keep its verdict.

A stand-in has the length, the punctuation and the character classes of its text (a letter becomes x or X, a digit 1).
It is used only where the verdict stays the same: a decisive text (a member of an enum) stays readable. This does not
make a call anonymous. Numbers, keys, true, false and null stay as they are. Texts that are secrets are always replaced;
where that changes the verdict, the call is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final

from proxy.core.display.preview import is_secret_path
from proxy.core.display.secrets import mask_credentials
from proxy.core.json.jsontext import parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import FeedbackLimits, JsonValue, Pointer

# The most judgements that one call may take; about 4 are usual.
MOST_JUDGED: Final = 40


@value_class
class StoodIn:
    """Arguments with stand-ins, and the places of those. None in its place: the call is lost."""

    value: JsonValue = field(repr=False)
    masked: tuple[Pointer, ...]


def stand_in(
    value: JsonValue, limits: FeedbackLimits, is_same: Callable[[JsonValue], bool], *, secrets_alone: bool = False
) -> StoodIn | None:
    """The value with stand-ins for as many texts as possible, or for secrets alone; `is_same` says whether a value has
    the same verdict."""
    texts = list(_texts(value, ()))
    secret = [path for path, text in texts if is_secret_path(path, limits) or mask_credentials(text) != text]
    plain = [] if secrets_alone else [path for path, _ in texts if path not in set(secret)]
    replaced, left = set(secret), MOST_JUDGED
    if secret and not is_same(_replace(value, (), replaced)):
        return None
    waiting: list[Sequence[Pointer]] = [plain] if plain else []
    while waiting:
        group = waiting.pop()
        left -= 1
        if left < 0:
            return None
        if is_same(_replace(value, (), replaced | set(group))):
            replaced |= set(group)
        elif len(group) > 1:
            half = len(group) // 2
            waiting += [group[half:], group[:half]]
    return StoodIn(_replace(value, (), replaced), tuple(sorted(replaced, key=str)))


def make_standin(text: str) -> str:
    """The stand-in of one text. Of a text that holds a JSON object or list, the keys stay."""
    if text[:1] in ("{", "["):
        inner = parse(text.encode("utf-8", "surrogatepass"))
        if isinstance(inner, dict | list):
            return _in_json(text)
    return "".join(map(_sign, text))


def _in_json(text: str) -> str:
    """Stand-ins for the texts inside a text of JSON, whose keys and layout stay."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != '"':
            found.append(text[at])
            at += 1
            continue
        end = at + 1
        while end < len(text) and text[end] != '"':
            end += 2 if text[end] == "\\" else 1
        quoted, rest = text[at : end + 1], text[end + 1 :].lstrip()
        found.append(quoted if rest.startswith(":") or "\\" in quoted else "".join(map(_sign, quoted)))
        at = end + 1
    return "".join(found)


def _sign(character: str) -> str:
    if character.isdecimal():
        return "1"
    if character.isalpha():
        return "X" if character.isupper() else "x"
    return character


def _texts(value: JsonValue, path: Pointer) -> list[tuple[Pointer, str]]:
    if isinstance(value, str):
        return [(path, value)] if make_standin(value) != value else []
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for step, item in members for found in _texts(item, (*path, step))]


def _replace(value: JsonValue, path: Pointer, places: set[Pointer]) -> JsonValue:
    if isinstance(value, str):
        return make_standin(value) if path in places else value
    if isinstance(value, dict):
        return {key: _replace(item, (*path, key), places) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace(item, (*path, index), places) for index, item in enumerate(value)]
    return value

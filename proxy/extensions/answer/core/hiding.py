"""Finds what to mask in an answer: the places that pointers name, and what the built-in secret patterns find.

Places are found in the parsed value, so no spelling of a key or text hides them (`\\u0070assword`). The mask is a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

from proxy.core.display.secrets import MASK, is_secret_name, mask_credentials
from proxy.core.json.jsonspan import replace_values
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.answer.core.answer_rules import ANY, AnswerRules

# Names of tokens that are no secrets: a model needs cursors to ask for the next page, and a client those of progress.
_CURSOR: Final = re.compile(
    r"(?:page|cursor|continuation|continue|next|previous|sync|progress)[_-]?token\Z", re.IGNORECASE
)
# Characters left out at the end of a text that ends too early: a credential there may be too short to be recognized.
_UNSURE: Final = 1024


class Unreadable(Enum):
    """The reason why masks cannot be applied."""

    DATA = "data that is not strict JSON"


def find_masks(value: JsonValue, rules: AnswerRules, open_at: Pointer | None = None) -> dict[Pointer, JsonValue]:
    """The places of a value to replace, each with what replaces it. No place lies within another. `open_at`: the place
    of a string that ends too early."""
    found: dict[Pointer, JsonValue] = {}
    for pointer in rules.pointers:
        found.update(dict.fromkeys(_match(value, pointer), MASK))
    found = {place: MASK for place in found if not any(place[:length] in found for length in range(len(place)))}
    if rules.secrets:
        found.update(_find_secrets(value, frozenset(found), open_at))
    return found


def _match(value: JsonValue, pointer: tuple[str, ...]) -> Iterator[Pointer]:
    """The places in a value that a pointer names."""
    level: list[tuple[Pointer, JsonValue]] = [((), value)]
    for step in pointer:
        below: list[tuple[Pointer, JsonValue]] = []
        for place, holder in level:
            if isinstance(holder, dict):
                names = holder if step == ANY else [step] if step in holder else []
                below += [((*place, name), holder[name]) for name in names]
            elif isinstance(holder, list) and step == ANY:
                below += [((*place, index), item) for index, item in enumerate(holder)]
            elif isinstance(holder, list) and step.isascii() and step.isdigit() and len(step) < 10:
                below += [((*place, int(step)), item) for item in holder[int(step) : int(step) + 1]]
        level = below
    return (place for place, _ in level)


def _find_secrets(
    value: JsonValue, known: frozenset[Pointer], open_at: Pointer | None
) -> Iterator[tuple[Pointer, JsonValue]]:
    stack: list[tuple[Pointer, JsonValue]] = [((), value)]
    while stack:
        place, item = stack.pop()
        if place in known:
            continue
        if isinstance(item, dict):
            for name, member in item.items():
                if _is_secret(name, member):
                    if (*place, name) not in known:
                        yield (*place, name), MASK
                else:
                    stack.append(((*place, name), member))
        elif isinstance(item, list):
            stack += [((*place, index), member) for index, member in enumerate(item)]
        elif isinstance(item, str):
            shown = hide_credentials(item, is_open=place == open_at)
            if shown != item:
                yield place, shown


def _is_secret(name: str, value: JsonValue) -> bool:
    """Returns whether a member holds a secret by its name. Switches and nulls hold none."""
    return value is not None and not isinstance(value, bool) and is_secret_name(name) and not _CURSOR.search(name)


def hide_credentials(text: str, *, is_open: bool = False) -> str:
    """A text without the credentials in it. `is_open`: its end is missing, so the last part of it is left out."""
    if not is_open:
        return mask_credentials(text)
    return mask_credentials(text, max(0, len(text) - _UNSURE)) if len(text) > _UNSURE else ""


def mask_json(text: bytes, value: JsonValue, rules: AnswerRules, open_at: Pointer | None = None) -> bytes:
    """A JSON text with its masks; every other byte stays. `value` is what it says."""
    changes = find_masks(value, rules, open_at)
    return replace_values(text, {place: dumps(mask) for place, mask in changes.items()}) if changes else text


def holds_data(text: str | bytes) -> bool:
    """Returns whether a text that is not strict JSON begins with data that a lenient reader takes: duplicate keys, NaN,
    several values in a row. Masks by pointer cannot be applied to it with certainty."""
    try:
        shown = text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass")
        value, _ = json.JSONDecoder().raw_decode(shown.lstrip("\ufeff \t\r\n"))
    except RecursionError:
        return True
    except ValueError:
        return False
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            return True
        stack += item if isinstance(item, list) else ()
    return False

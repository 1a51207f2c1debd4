"""Shows a value to a model or an operator: short, on one line, and without secrets. Every answer of ours that quotes an
argument uses this file.

`write_preview` gives JSON-like text of at most `limits.max_preview` code points. Long strings end in `...` (Acode
FR-051), long arrays show their first and last items (FR-053), objects stop at a depth (FR-054). `sanitise_value` gives
a JSON value for machine-readable parts, reduced by the same rules. Both write a text that they changed as `<...>`: text
in quotes is as sent, and may be copied. The order matters, because a cut credential would no longer be recognised: mask
secrets, shorten file paths, cut, escape. Neither function raises, whatever it is given (NFR-005).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from itertools import islice, repeat
from math import isfinite
from typing import Final

from proxy.core.display.graphemes import cut, escape, replace_surrogates
from proxy.core.display.secrets import (
    LONGEST_NAME,
    SHORTEST_SECRET,
    is_secret_name,
    is_short_name_secret,
    mask_credentials,
    may_hold_secret,
    shorten_paths,
)
from proxy.core.display.secrets import MASK as MASK
from proxy.core.json.jsontext import LosslessFloat, write_number
from proxy.core.model.values import Absent, FeedbackLimits, JsonValue, Pointer, value_class
from proxy.core.model.work import LONGEST, remember_short

# The sizes in which a container is tried, largest first: (depth, entries of one container, code points of one string).
_SHAPES: Final = ((4, 12, 60), (3, 6, 30), (2, 4, 20), (1, 3, 12), (1, 1, 8))
# The sizes of a value in machine-readable parts, which may be larger: (depth, entries of one container). About 200
# values fit; strings have a separate bound.
_MACHINE_SHAPES: Final = ((5, 20), (4, 12), (3, 8), (2, 8))
_MACHINE_LAST: Final = (1, 8)
_MACHINE_SIZE: Final = 399
# No reader compares longer integers digit by digit; their length says more.
_LONGEST_NUMBER: Final = 64
# How many entries are searched for texts that a message may quote: messages quote scalars and short containers.
_HIDDEN_ENTRIES: Final = 8
_HIDDEN_VALUES: Final = 32
# Shorter secrets are not hidden, because ordinary words contain them too.
_TOO_SHORT: Final = 3
# A secret that a message does not quote whole is looked for by its beginning of this length.
SHOWN_BEGINNING: Final = 8

_DEFAULT: Final = FeedbackLimits()
# Replaces a secret value.
_HIDDEN: Final = f"<{MASK}>"
_CONTAINERS: Final = (dict, list, tuple)


def is_secret_path(path: Pointer, limits: FeedbackLimits = _DEFAULT) -> bool:
    """Returns whether a step of a path names a secret, by its own name or because the schema marks it."""
    for step in path:
        if isinstance(step, str) and (step in limits.secret_names or is_short_name_secret(step[:LONGEST_NAME])):
            return True
    return False


def _is_secret_key(key: str, limits: FeedbackLimits) -> bool:
    return key in limits.secret_names or is_short_name_secret(key[:LONGEST_NAME])


# --- text -----------------------------------------------------------------------------------------------------------
def write_preview(
    value: JsonValue, limits: FeedbackLimits = _DEFAULT, *, path: Pointer = (), sensitive: bool = False
) -> str:
    """`value` as JSON-like text of at most `limits.max_preview` code points.

    `path` is where the value was sent; a secret name in it, or `sensitive`, masks the whole value. '' for `ABSENT`.
    """
    budget = max(limits.max_preview, 0)
    if isinstance(value, Absent):
        return ""
    if value is not None and (sensitive or (path and is_secret_path(path, limits))):
        return cut(_HIDDEN, budget)
    if isinstance(value, str):
        return _quote_text(value, budget, limits)
    if not isinstance(value, _CONTAINERS):
        return _show(value, 0, 0, budget, limits)
    for depth, entries, width in _SHAPES:
        if _fits(value, depth, entries, width, budget):
            text = _show(value, depth, entries, width, limits)
            if len(text) <= budget:
                return text
    return cut("{...}" if isinstance(value, dict) else "[...]", budget)


def _fits(value: JsonValue, depth: int, entries: int, width: int, most: int) -> bool:
    """Returns whether a container of this size may fit into `most` code points: an estimate before it is shown."""
    length, stack = 2, [(value, depth)]
    while stack:
        item, left = stack.pop()
        length += 2 * min(len(item), entries)  # each member takes at least this, so most containers end here
        if length > most:
            return False
        members = islice(item.items(), entries) if isinstance(item, dict) else zip(repeat(""), item[:entries])
        for key, inner in members:
            if key:
                length += min(len(key if isinstance(key, str) else type(key).__name__), width) + 4
            if isinstance(inner, str):
                length += min(len(inner), width) + 2
            elif left > 1 and isinstance(inner, _CONTAINERS):
                stack.append((inner, left - 1))
        if length > most:
            return False
    return True


def _show(value: JsonValue, depth: int, entries: int, width: int, limits: FeedbackLimits) -> str:
    """A value with at most so many levels, entries of one container, and code points of one string or number."""
    if isinstance(value, str):
        return _quote_text(value, width, limits)
    if not isinstance(value, _CONTAINERS):
        text = "null" if value is None else str(value).lower() if isinstance(value, bool) else _show_number(value)
        return text if len(text) <= width else cut(text, width)
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    if not value or depth == 0:
        return f"{opening}{'...' if value else ''}{closing}"
    if isinstance(value, dict):
        parts, left_out, tail = [], max(len(value) - entries, 0), list[JsonValue]()
        for key, item in _first(value, entries):
            hidden = item is not None and _is_secret_key(key, limits)
            shown = _HIDDEN if hidden else _show(item, depth - 1, entries, width, limits)
            parts.append(f"{_quote_text(key, width, limits)}: {shown}")
    else:
        head, left_out, tail = _ends(value, entries)
        parts = [_show(item, depth - 1, entries, width, limits) for item in head]
    if left_out:
        parts.append(f"... (+{left_out} more)")
    parts += [_show(item, depth - 1, entries, width, limits) for item in tail]
    return f"{opening}{', '.join(parts)}{closing}"


def _ends(value: list[JsonValue] | tuple[JsonValue, ...], entries: int) -> tuple[list[JsonValue], int, list[JsonValue]]:
    """The first and last items of a long array and how many lie between (Acode FR-053)."""
    if len(value) <= max(entries, 2):
        return list(value), 0, []
    first = max(entries - 1, 1)
    return list(value[:first]), len(value) - first - 1, [value[-1]]


def _first(value: dict[JsonValue, JsonValue], entries: int) -> list[tuple[str, JsonValue]]:
    return [(key if isinstance(key, str) else type(key).__name__, item) for key, item in islice(value.items(), entries)]


def _show_number(value: JsonValue) -> str:
    if isinstance(value, int):
        # About 3.32 bits make a digit. str() of a huge integer is slow, and refused beyond 4,300 digits.
        if value.bit_length() > _LONGEST_NUMBER * 3.32:
            return f"(an integer of about {round(value.bit_length() / 3.32193)} digits)"
        return str(value)
    if isinstance(value, LosslessFloat):
        return bytes(value)[: _LONGEST_NUMBER + 1].decode("ascii", "replace")
    if isinstance(value, float) and isfinite(value):
        return write_number(value)
    if isinstance(value, (float, Decimal)):
        return str(value)
    return f"({type(value).__name__})"


def _quote_text(text: str, width: int, limits: FeedbackLimits) -> str:
    """A JSON string of at most `width` code points, or what was made of a text that is not shown whole, in `<>`.

    Escapes count, and are never split.
    """
    room = width - 2
    if room < 4:
        return cut("<...>" if text else '""', width)
    if len(text) <= room and len(text) < SHORTEST_SECRET and text.isascii() and text.isalnum():
        return f'"{text}"'  # a short word, as most
    clean = clean_text(text, room, limits)
    if clean == text and len(escaped := escape(clean, quotes=True)) <= room:
        return f'"{escaped}"'
    escaped = _escape_inside(clean)
    kept = len(clean)
    while len(escaped) > room:
        kept = min(kept - 1, max(kept - (len(escaped) - room) // 6, 0))
        clean = cut(clean, kept)
        escaped = _escape_inside(clean)
    return f"<{escaped}>"


def _escape_inside(text: str) -> str:
    """Returns a text as written in `<>`: no part of it reads as JSON."""
    return escape(text).replace('"', "'")


def clean_text(text: str, limit: int, limits: FeedbackLimits = _DEFAULT) -> str:
    """At most `limit` code points of `text`, credentials masked and file paths shortened; not escaped."""
    if len(text) <= limit and text.isascii() and "/" not in text and "\\" not in text:  # most texts are short and plain
        if len(text) < SHORTEST_SECRET and ":" not in text and "=" not in text:
            return text
        return cut(mask_credentials(text, limit), limit) if may_hold_secret(text) else text
    start = replace_surrogates(text[: limit + 2 * _PATH_ROOM])
    if "/" not in start and "\\" not in start:
        return cut(mask_credentials(start, limit), limit)
    return cut(shorten_paths(mask_credentials(start, limit + _PATH_ROOM), limits.path_roots), limit)


# The longest path that is read whole: a path is shortened before the text is cut (PATH_MAX of Linux).
_PATH_ROOM: Final = 4096


# --- values ---------------------------------------------------------------------------------------------------------
def sanitise_value(
    value: JsonValue, limits: FeedbackLimits = _DEFAULT, *, path: Pointer = (), sensitive: bool = False
) -> JsonValue:
    """`value` as a small JSON value that may be shown: secrets masked, strings cut to `limits.max_preview`, at most 20
    entries of a container, 5 levels and 200 values. None for `ABSENT`. Small clean values come back equal."""
    if value is not None and not isinstance(value, Absent) and (sensitive or is_secret_path(path, limits)):
        return _HIDDEN
    if isinstance(value, str):
        return _reduce_text(value, limits)
    if not isinstance(value, _CONTAINERS):
        return _reduce_scalar(value)
    for depth, entries in _MACHINE_SHAPES:
        if _fits_machine(value, depth, entries):
            return _reduce(value, depth, entries, limits)
    return _reduce(value, *_MACHINE_LAST, limits)


def _fits_machine(value: JsonValue, depth: int, entries: int) -> bool:
    """Returns whether a value of this size holds few enough values: members count, their texts do not."""
    size, stack = 0, [(value, depth)] if isinstance(value, _CONTAINERS) else []
    while stack:
        item, left = stack.pop()
        size += (3 if isinstance(item, dict) else 1) * min(len(item), entries)
        for inner in islice(item.values(), entries) if isinstance(item, dict) else item[:entries]:
            if isinstance(inner, str):
                size += 1
            elif left > 1 and isinstance(inner, _CONTAINERS):
                stack.append((inner, left - 1))
        if size > _MACHINE_SIZE:
            return False
    return True


def _reduce(value: JsonValue, depth: int, entries: int, limits: FeedbackLimits) -> JsonValue:
    """A value with at most so many levels, and entries of one container."""
    if isinstance(value, str):
        return _reduce_text(value, limits)
    if not isinstance(value, _CONTAINERS):
        return _reduce_scalar(value)
    if value and depth == 0:
        return "<object>" if isinstance(value, dict) else "<list>"
    if not isinstance(value, dict):
        head, left_out, tail = _ends(value, entries)
        shown_items = [_reduce(item, depth - 1, entries, limits) for item in head]
        if left_out:
            shown_items += [f"<{left_out} more>", *(_reduce(item, depth - 1, entries, limits) for item in tail)]
        return shown_items
    shown: dict[str, JsonValue] = {}
    for key, item in islice(value.items(), entries):
        if not isinstance(key, str):
            key = type(key).__name__  # noqa: PLW2901 - a value that was not read from JSON
        is_plain, is_secret = read_key(key, limits)
        name = key if is_plain else _reduce_text(key, limits)
        if item is not None and is_secret:
            shown[name] = _HIDDEN
        elif isinstance(item, str):
            shown[name] = _reduce_text(item, limits)
        else:
            shown[name] = _reduce(item, depth - 1, entries, limits)
    if len(value) > entries:
        shown["<more>"] = f"<{len(value) - entries} more>"
    return shown


def _reduce_text(text: str, limits: FeedbackLimits) -> str:
    """A text as it is, or what was made of it in `<>`."""
    clean = clean_text(text, max(limits.max_preview, 0), limits)
    return text if clean == text else f"<{clean}>"


def _reduce_scalar(value: JsonValue) -> JsonValue:
    """A value that is no text and no container: the same, unless it is a number that nobody reads whole, or no JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Absent):
        return None
    if isinstance(value, float):
        return value if isfinite(value) else f"<{value}>"
    text = _show_number(value)
    is_whole = isinstance(value, (int, LosslessFloat)) and len(text) <= _LONGEST_NUMBER
    return value if is_whole else f"<{text.strip('()')}>"


def read_key(key: str, limits: FeedbackLimits) -> tuple[bool, bool]:
    """Returns for a key: is it short and shown as it is, and does it name a secret?"""
    if _is_open(key):
        return len(key) <= limits.max_preview, key in limits.secret_names
    is_plain = len(key) <= LONGEST and "/" not in key and "\\" not in key and clean_text(key, len(key)) == key
    return is_plain and len(key) <= limits.max_preview, key in limits.secret_names or is_secret_name(key)


def are_open(keys: Mapping[str, object], limits: FeedbackLimits) -> bool:
    """Returns whether all keys of an object are short and shown as they are, and none names a secret."""
    return limits.max_preview >= LONGEST and all(map(_is_open, keys)) and limits.secret_names.isdisjoint(keys)


@remember_short  # the names of a schema, in every refusal
def _is_open(key: str) -> bool:
    is_short = len(key) <= LONGEST and "/" not in key and "\\" not in key
    return is_short and clean_text(key, len(key)) == key and not is_secret_name(key)


# --- words about a value ----------------------------------------------------------------------------------------------
@value_class
class Hider:
    """Removes from texts that may quote one value whatever must not be shown of it."""

    leaves: tuple[tuple[str, bool], ...] = field(repr=False)
    roots: tuple[str, ...]

    def hide(self, text: str) -> str:
        """`text` with secrets masked and file paths shortened as in the value's own preview."""
        return mask_credentials(self.hide_value(text))

    def hide_value(self, text: str) -> str:
        """`text` with what it quotes of the value masked and shortened, whatever else it holds."""
        for raw, secret in self.leaves:
            if not secret:
                text = text.replace(raw, shorten_paths(mask_credentials(raw), self.roots)) if raw in text else text
                continue
            text = text.replace(raw, MASK)
            at = text.find(raw[:SHOWN_BEGINNING]) if len(raw) > SHOWN_BEGINNING else -1
            if at >= 0:  # a message has cut the secret short
                end = at
                while end < len(text) and end - at < len(raw) and text[end] == raw[end - at]:
                    end += 1
                text = text[:at] + MASK + text[end:]
        return text


_NOTHING: Final = Hider((), ())


def may_be_quoted(value: JsonValue, longest: int) -> bool:
    """Returns whether a text of at most `longest` code points and without a credential may quote a value, which is no
    secret, unchanged: no path, no container."""
    if isinstance(value, str):
        return len(value) > longest or ("/" not in value and "\\" not in value)
    return not isinstance(value, _CONTAINERS)


def make_hider(
    value: JsonValue, limits: FeedbackLimits = _DEFAULT, *, path: Pointer = (), sensitive: bool = False
) -> Hider:
    """The `Hider` of one value, sent at `path`; `sensitive` says that all of it is a secret."""
    secret = sensitive or bool(path and is_secret_path(path, limits))
    if isinstance(value, _CONTAINERS):
        return Hider(tuple(_leaves(value, secret, limits)), limits.path_roots)
    if isinstance(value, str):
        text = value
    elif not secret or value is None or isinstance(value, (bool, Absent)):
        return _NOTHING  # a message may quote any number
    else:
        text = _show_number(value)
    return Hider(((text, secret),), limits.path_roots) if len(text) >= _TOO_SHORT else _NOTHING


def _leaves(value: JsonValue, secret: bool, limits: FeedbackLimits) -> list[tuple[str, bool]]:
    """Texts inside a container and whether each is a secret; the longest first, so that no part of one survives."""
    found: set[tuple[str, bool]] = set()
    stack: list[tuple[JsonValue, bool]] = [(value, secret)]
    for _ in range(_HIDDEN_VALUES):
        if not stack:
            break
        item, hidden = stack.pop()
        if isinstance(item, dict):
            for key, inner in islice(item.items(), _HIDDEN_ENTRIES):
                stack.append((inner, hidden or (isinstance(key, str) and _is_secret_key(key, limits))))
        elif isinstance(item, (list, tuple)):
            stack += [(inner, hidden) for inner in item[:_HIDDEN_ENTRIES]]
        elif isinstance(item, str):
            found.add((item, hidden))
        elif hidden and item is not None and not isinstance(item, bool):
            found.add((_show_number(item), True))
    return sorted((leaf for leaf in found if len(leaf[0]) >= _TOO_SHORT), key=lambda leaf: (-len(leaf[0]), leaf))

"""Two schemas -> what has changed from one to the other, each change at its JSON Pointer. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from proxy.core.jsontext import dumps, equal, format_pointer
from proxy.core.model import JsonValue, Pointer

_SHOWN: Final = 60  # characters of a value in a line of text


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `path` is where in the schema; `before` and `after` are None where there was or is nothing."""

    kind: Literal["added", "removed", "changed"]
    path: Pointer
    before: JsonValue = None
    after: JsonValue = None

    def __str__(self) -> str:
        place = format_pointer(self.path) or "the whole schema"
        if self.kind == "changed":
            return f"changed  {place}: {_shown(self.before)} is now {_shown(self.after)}"
        return f"{self.kind:<8} {place}: {_shown(self.after if self.kind == 'added' else self.before)}"


def _shown(value: JsonValue) -> str:
    text = dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def drift(before: JsonValue, after: JsonValue, path: Pointer = ()) -> Iterator[Change]:
    """What has changed, in the order of the older one. Lists of single values (`required`, `enum`, `type`) are compared
    as sets, other lists place by place."""
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_mappings(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from (_of_sets if _is_flat(before) and _is_flat(after) else _of_lists)(before, after, path)
    elif not equal(before, after):
        yield Change("changed", path, before, after)


def _of_mappings(before: dict[str, JsonValue], after: dict[str, JsonValue], path: Pointer) -> Iterator[Change]:
    for key, value in before.items():
        if key in after:
            yield from drift(value, after[key], (*path, key))
        else:
            yield Change("removed", (*path, key), before=value)
    for key, value in after.items():
        if key not in before:
            yield Change("added", (*path, key), after=value)


def _of_sets(before: list[JsonValue], after: list[JsonValue], path: Pointer) -> Iterator[Change]:
    for value in before:
        if not any(equal(value, other) for other in after):
            yield Change("removed", path, before=value)
    for value in after:
        if not any(equal(value, other) for other in before):
            yield Change("added", path, after=value)


def _of_lists(before: list[JsonValue], after: list[JsonValue], path: Pointer) -> Iterator[Change]:
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        yield from drift(old, new, (*path, index))
    for index in range(len(after), len(before)):
        yield Change("removed", (*path, index), before=before[index])
    for index in range(len(before), len(after)):
        yield Change("added", (*path, index), after=after[index])


def _is_flat(values: list[JsonValue]) -> bool:
    return not any(isinstance(value, dict | list) for value in values)

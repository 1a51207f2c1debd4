"""Two schemas -> what has changed from one to the other, each change at its JSON Pointer. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from proxy.core.json.jsontext import are_equal, dumps, format_pointer
from proxy.core.model.values import JsonValue, Pointer

_SHOWN: Final = 60  # characters of a value in a line of text


@dataclass(frozen=True, slots=True)
class DescriptionChange:
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


def list_changes(before: JsonValue, after: JsonValue, path: Pointer = ()) -> Iterator[DescriptionChange]:
    """What has changed, in the order of the older one. Lists of single values (`required`, `enum`, `type`) are compared
    as sets, other lists place by place."""
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_mappings(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from (_of_sets if _is_flat(before) and _is_flat(after) else _of_lists)(before, after, path)
    elif not are_equal(before, after):
        yield DescriptionChange("changed", path, before, after)


def _of_mappings(
    before: dict[str, JsonValue], after: dict[str, JsonValue], path: Pointer
) -> Iterator[DescriptionChange]:
    for key, value in before.items():
        if key in after:
            yield from list_changes(value, after[key], (*path, key))
        else:
            yield DescriptionChange("removed", (*path, key), before=value)
    for key, value in after.items():
        if key not in before:
            yield DescriptionChange("added", (*path, key), after=value)


def _of_sets(before: list[JsonValue], after: list[JsonValue], path: Pointer) -> Iterator[DescriptionChange]:
    for value in before:
        if not any(are_equal(value, other) for other in after):
            yield DescriptionChange("removed", path, before=value)
    for value in after:
        if not any(are_equal(value, other) for other in before):
            yield DescriptionChange("added", path, after=value)


def _of_lists(before: list[JsonValue], after: list[JsonValue], path: Pointer) -> Iterator[DescriptionChange]:
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        yield from list_changes(old, new, (*path, index))
    for index in range(len(after), len(before)):
        yield DescriptionChange("removed", (*path, index), before=before[index])
    for index in range(len(before), len(after)):
        yield DescriptionChange("added", (*path, index), after=after[index])


def _is_flat(values: list[JsonValue]) -> bool:
    return not any(isinstance(value, dict | list) for value in values)

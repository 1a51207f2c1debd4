"""Compares the record of an import with its sources as they are now; each change of a schema has its JSON Pointer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Final, Literal

from proxy.core.contract.policy import NullOptional, ToolPolicy
from proxy.core.json.jsontext import are_equal, dumps, format_pointer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers, JsonValue, Pointer
from proxy.core.rules.facts import list_required, read_facts
from proxy.core.rules.rules import LEAVING_OUT
from proxy.extensions.operations.importing import read_source_again
from proxy.extensions.operations.importing.harvest import (
    FILE,
    Harvest,
    ImportProblem,
    Recorded,
    describe_unguarded,
    flatten_text,
    read_record,
)

_SHOWN: Final = 60  # characters of a value in a line of text
_MOST_NAMED: Final = 10  # tools in a line of text


@value_class
class DescriptionChange:
    """One change of a schema, at `path`. `before` is None for what was added, `after` for what was removed."""

    kind: Literal["added", "removed", "changed"]
    path: Pointer
    before: JsonValue = None
    after: JsonValue = None

    def __str__(self) -> str:
        place = format_pointer(self.path) or "the whole schema"
        if self.kind == "changed":
            return f"changed  {place}: {_shorten(self.before)} is now {_shorten(self.after)}"
        return f"{self.kind:<8} {place}: {_shorten(self.after if self.kind == 'added' else self.before)}"


@value_class
class SourceDrift:
    """The changes of one source. `changed`: tool -> the changes of its schema; `gone`: tools that the source no longer
    has -> the reason, or ''; `new`: its new tools; `same`: the number of unchanged tools; `unguarded`:
    tools -> the constraints that their schemas surely mean and do not check."""

    source: str
    same: int
    changed: dict[str, tuple[DescriptionChange, ...]] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    new: tuple[str, ...] = ()
    unguarded: dict[str, str] = field(default_factory=dict)

    @property
    def is_found(self) -> bool:
        """Returns whether a tool that the config serves has changed or is gone."""
        return bool(self.changed or self.gone)


async def look_live(folder: Path, headers: Headers) -> list[SourceDrift]:
    """Compares every source recorded beside a config with its record. `headers` go with every request.

    Raises ImportProblem if there is no record or a source does not answer.
    """
    path = folder / FILE
    try:
        recorded = read_record(path.read_bytes())
    except OSError as error:
        hint = "it is written by `toolcall-proxy import`; a config written by hand has no source to compare with"
        raise ImportProblem(f"cannot read {path}: {error.strerror}", hint) from None
    return [compare_source(source, await read_source_again(source, headers, folder)) for source in recorded]


def compare_source(recorded: Recorded, now: Harvest) -> SourceDrift:
    """Compares the record of a source with the source as it is now."""
    live = {tool.origin: tool.schema for tool in now.tools}
    reasons = {left.name: left.why for left in now.left_out}
    changed = {
        name: found
        for name, (origin, schema) in recorded.tools.items()
        if origin in live and (found := tuple(list_changes(schema, live[origin])))
    }
    missing = {name: reasons.get(origin, "") for name, (origin, _) in recorded.tools.items() if origin not in live}
    new = tuple(tool.origin for tool in now.tools if tool.origin not in recorded.seen)
    same = len(recorded.tools) - len(changed) - len(missing)
    unguarded = {tool.origin: remarks for tool in now.tools if (remarks := describe_unguarded(tool))}
    return SourceDrift(recorded.source, same, changed, missing, new, unguarded)


def describe_drift(found: SourceDrift) -> Iterator[str]:
    """The drift of one source as lines of text."""
    counts = f"{found.same} as imported, {len(found.changed)} changed, {len(found.gone)} gone"
    yield f"{found.source.partition('?')[0]}: {counts}"
    for name, changes in found.changed.items():
        yield f"  {flatten_text(name)}:"
        yield from (f"    {flatten_text(str(change))}" for change in changes)
    for name, why in found.gone.items():
        yield f"  {flatten_text(name)}: gone" + (f": {flatten_text(why)}" if why else "")
    yield from (f"  new, served by no route: {flatten_text(origin)}" for origin in found.new)
    for name, remarks in found.unguarded.items():
        yield f"  {flatten_text(name)}: its schema guards less than it says: {flatten_text(remarks)}"


def describe_refused_nulls(tools: Iterable[ToolPolicy]) -> Iterator[str]:
    """One line about the tools that refuse null at optional keys because nothing states what such a null means."""
    named = [policy.tool for policy in tools if _refuses_null(policy)]
    if named:
        shown = ", ".join(flatten_text(name) for name in named[:_MOST_NAMED])
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        yield (
            f"null at an optional key is refused by {shown}{more}: if it means 'not given' there, set "
            "`null_optional: drop` in `defaults`, on the route or on the tool (docs/repair.md)"
        )


def _refuses_null(policy: ToolPolicy) -> bool:
    repair, check = policy.repair, policy.check
    is_decided = (
        repair.null_optional in (NullOptional.DROP, NullOptional.REFUSE) or policy.repair_in_force.rules >= LEAVING_OUT
    )
    if check is None or is_decided or not repair.rules:
        return False
    required = list_required(check.root.always)
    members = [member for part in check.root.always for key, member in part.properties.items() if key not in required]
    return any(not read_facts(member).null and not check.accepts_at(member, None) for member in members)


def _shorten(value: JsonValue) -> str:
    text = dumps(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def list_changes(before: JsonValue, after: JsonValue, path: Pointer = ()) -> Iterator[DescriptionChange]:
    """The changes from one schema to another, in the order of the older one. Lists of single values (`required`,
    `enum`, `type`) are compared as sets, other lists place by place."""
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _compare_mappings(before, after, path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from (_compare_sets if _is_flat(before) and _is_flat(after) else _compare_lists)(before, after, path)
    elif not are_equal(before, after):
        yield DescriptionChange("changed", path, before, after)


def _compare_mappings(
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


def _compare_sets(before: list[JsonValue], after: list[JsonValue], path: Pointer) -> Iterator[DescriptionChange]:
    for value in before:
        if not any(are_equal(value, other) for other in after):
            yield DescriptionChange("removed", path, before=value)
    for value in after:
        if not any(are_equal(value, other) for other in before):
            yield DescriptionChange("added", path, after=value)


def _compare_lists(before: list[JsonValue], after: list[JsonValue], path: Pointer) -> Iterator[DescriptionChange]:
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        yield from list_changes(old, new, (*path, index))
    for index in range(len(after), len(before)):
        yield DescriptionChange("removed", (*path, index), before=before[index])
    for index in range(len(before), len(after)):
        yield DescriptionChange("added", (*path, index), after=after[index])


def _is_flat(values: list[JsonValue]) -> bool:
    return not any(isinstance(value, dict | list) for value in values)

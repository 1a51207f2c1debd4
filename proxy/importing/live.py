"""What an import was made of, held against its sources as they are now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from proxy.core.model.values import Headers
from proxy.importing.drift import DescriptionChange, list_changes
from proxy.importing.harvest import Harvest, ImportProblem, flatten_text
from proxy.importing.mcp import read_mcp
from proxy.importing.openapi import Choice
from proxy.importing.reading import read_openapi
from proxy.importing.record import FILE, Recorded, read_record


@dataclass(frozen=True, slots=True)
class SourceDrift:
    """One source. `changed`: tool -> what has changed in its schema; `gone`: tools the source no longer has, each with
    what it says instead, if anything; `new`: what it has now and had not; `same`: how many tools are as they were."""

    source: str
    same: int
    changed: dict[str, tuple[DescriptionChange, ...]] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    new: tuple[str, ...] = ()

    @property
    def is_found(self) -> bool:
        """Whether a tool that the config serves is no longer what it was."""
        return bool(self.changed or self.gone)


async def look_live(folder: Path, headers: Headers) -> list[SourceDrift]:
    """Asks every source recorded beside a config. `headers` go with the questions.

    Raises ImportProblem where there is no record, or a source does not answer.
    """
    path = folder / FILE
    try:
        recorded = read_record(path.read_bytes())
    except OSError as error:
        hint = "it is written by `toolcall-proxy import`; a config written by hand has no source to compare with"
        raise ImportProblem(f"cannot read {path}: {error.strerror}", hint) from None
    return [compare_source(source, await _now(source, headers, folder)) for source in recorded]


async def _now(recorded: Recorded, headers: Headers, folder: Path) -> Harvest:
    if recorded.kind == "mcp":
        return await read_mcp(recorded.source, headers)
    return await read_openapi(recorded.source, Choice(upstream=recorded.upstream), headers, folder)


def compare_source(recorded: Recorded, now: Harvest) -> SourceDrift:
    """What has changed between the record of a source and the source."""
    live = {tool.origin: tool.schema for tool in now.tools}
    why = {left.name: left.why for left in now.left_out}
    changed = {
        name: found
        for name, (origin, schema) in recorded.tools.items()
        if origin in live and (found := tuple(list_changes(schema, live[origin])))
    }
    gone = {name: why.get(origin, "") for name, (origin, _) in recorded.tools.items() if origin not in live}
    new = tuple(tool.origin for tool in now.tools if tool.origin not in recorded.seen)
    return SourceDrift(recorded.source, len(recorded.tools) - len(changed) - len(gone), changed, gone, new)


def describe_drift(found: SourceDrift) -> Iterator[str]:
    """The same in lines."""
    counts = f"{found.same} as imported, {len(found.changed)} changed, {len(found.gone)} gone"
    yield f"{found.source.partition('?')[0]}: {counts}"
    for name, changes in found.changed.items():
        yield f"  {flatten_text(name)}:"
        yield from (f"    {flatten_text(str(change))}" for change in changes)
    for name, why in found.gone.items():
        yield f"  {flatten_text(name)}: gone" + (f": {flatten_text(why)}" if why else "")
    yield from (f"  new, served by no route: {flatten_text(origin)}" for origin in found.new)

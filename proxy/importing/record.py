"""`imported.json` records the sources of an import, so that `check --live` can tell what has changed there since.

It lies beside the config and holds each schema as the source had it. Users edit other files, so an edit is never taken
for a change at the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxy.core.json.jsontext import TextLimits, dumps, parse
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.importing.harvest import Harvest, ImportProblem, Kind

FILE: Final = "imported.json"
_LIMITS: Final = TextLimits(depth=200, nodes=5_000_000)
_ABOUT: Final = (
    "Written by `toolcall-proxy import`. `check --live` compares the sources with it: keep it, do not edit it."
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One source at the time of the import. `tools`: name -> (name at the source, schema); `seen`: every name there."""

    kind: Kind
    source: str
    upstream: str
    seen: frozenset[str]
    tools: Mapping[str, tuple[str, JsonValue]]


def record_text(harvest: Harvest) -> str:
    """The text of `imported.json` for one import, with one line for each tool."""
    tools = ",\n".join(
        f"{_json(tool.name)}: {_json({'origin': tool.origin, 'schema': tool.schema})}" for tool in harvest.tools
    )
    head = {"kind": harvest.kind, "from": harvest.source, "upstream": harvest.upstream, "seen": list(harvest.seen)}
    source = f'{_json(head)[:-1]}, "tools": {{\n{tools}\n}}}}'
    return f'{{\n"about": {_json(_ABOUT)},\n"version": 1,\n"sources": [\n{source}\n]\n}}\n'


def _json(value: JsonValue) -> str:
    return dumps(value).decode()


def read_record(text: bytes) -> tuple[Recorded, ...]:
    """The sources in a record. Raises ImportProblem for any other text."""
    value = parse(text, _LIMITS)
    if isinstance(value, JsonProblem) or not isinstance(value, dict) or value.get("version") != 1:
        raise ImportProblem(f"{FILE} is no record of an import", "import again")
    try:
        return tuple(_recorded(source) for source in value["sources"])
    except (KeyError, TypeError, AttributeError):
        raise ImportProblem(f"{FILE} lacks something", "import again") from None


def _recorded(source: dict[str, JsonValue]) -> Recorded:
    tools = {name: (tool["origin"], tool["schema"]) for name, tool in source["tools"].items()}
    kind: Kind = "mcp" if source["kind"] == "mcp" else "openapi"
    return Recorded(kind, source["from"], source["upstream"], frozenset(source["seen"]), tools)

"""The file `tools.lock`: how each tool of a route was defined when the operator approved it.

It holds the definitions themselves, a part on a line each, so that a review of the file shows what has changed, and a
digest of each (SHA-256 over canonical JSON), so that a file that was edited by hand is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal

from proxy.core.contract.definitions import DEFINED, hash_definition
from proxy.core.contract.listed_schema import BadSchemaError, parse_schema
from proxy.core.display.graphemes import cut
from proxy.core.json.jsontext import TextLimits, dumps, parse, write_canonical
from proxy.core.model.values import JsonProblem, JsonValue
from proxy.extensions.access.pins.hidden_text import find_hidden
from proxy.extensions.importing.harvest import flatten_text
from proxy.extensions.importing.live import DescriptionChange, list_changes

Changed = Literal["warn", "hide", "refuse"]
# What defines a tool, by the keys of `DEFINED`.
Definition = Mapping[str, JsonValue]
# Route -> tool -> its definition.
Pins = Mapping[str, Mapping[str, Definition]]

FILE: Final = "tools.lock"
_ABOUT: Final = "Written by `toolcall-proxy pin`: the definitions of tools that are approved. Review its changes."
_LIMITS: Final = TextLimits(depth=200, nodes=5_000_000)
_LONGEST: Final = 600
_MOST: Final = 8


class LockProblem(Exception):  # noqa: N818 - a problem of the user's file, not an error of the proxy
    """The file cannot be used; the message says why."""


def select_definition(entry: Mapping[str, JsonValue]) -> Definition:
    """What defines a tool, of an entry of a list."""
    return {key: entry[key] for key in DEFINED if key in entry}


def digest_tool(name: str, definition: Definition) -> str:
    """The digest of a definition."""
    return f"sha256:{sha256(write_canonical({**definition, 'name': name})).hexdigest()}"


# --- the file ---------------------------------------------------------------------------------------------------------
def write_lock(pins: Pins) -> str:
    """The text of the file, routes and tools in the order of their names."""
    routes = ",\n".join(f"  {_write(route)}: {{{_write_tools(pins[route])}}}" for route in sorted(pins))
    return f'{{\n"about": {_write(_ABOUT)},\n"version": 1,\n"routes": {{\n{routes}\n}}\n}}\n'


def _write_tools(tools: Mapping[str, Definition]) -> str:
    return ",".join(f"\n    {_write(name)}: {{{_write_parts(name, tools[name])}}}" for name in sorted(tools))


def _write_parts(name: str, definition: Definition) -> str:
    parts = {"digest": digest_tool(name, definition), **definition}
    return ",".join(f"\n      {_write(key)}: {_write(value)}" for key, value in parts.items())


def _write(value: JsonValue) -> str:
    return dumps(value).decode()


def read_lock(text: bytes) -> Pins:
    """The definitions in a file. Raises LockProblem."""
    value = parse(text, _LIMITS)
    if isinstance(value, JsonProblem):
        raise LockProblem(f"line {value.line}: {value.reason}")
    if not isinstance(value, dict) or value.get("version") != 1 or not isinstance(value.get("routes"), dict):
        raise LockProblem("it is not a file that `toolcall-proxy pin` has written")
    return {route: dict(_read_tools(route, tools)) for route, tools in value["routes"].items()}


def _read_tools(route: str, tools: JsonValue) -> Iterator[tuple[str, Definition]]:
    for name, entry in tools.items() if isinstance(tools, dict) else ():
        definition = select_definition(entry) if isinstance(entry, dict) else {}
        if not isinstance(entry, dict) or entry.get("digest") != digest_tool(name, definition):
            raise LockProblem(f"tool {name!r} of route {route!r} does not have the digest that stands beside it")
        yield name, definition


# --- one route --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PinnedRoute:
    """Implements `PinnedTools`."""

    definitions: Mapping[str, Definition] = field(repr=False)
    changed: Changed
    hashes: Mapping[str, tuple[str, ...]] = field(repr=False)

    @classmethod
    def of(cls, definitions: Mapping[str, Definition], changed: Changed) -> PinnedRoute:
        """The approved definitions of a route."""
        return cls(definitions, changed, {name: hash_definition(found) for name, found in definitions.items()})

    def is_pinned(self, name: str, definition: tuple[str, ...]) -> bool:
        """Whether a tool is defined as it was approved."""
        return self.hashes.get(name) == definition

    def describe_change(self, name: str, definition: tuple[str, ...], known: Mapping[str, JsonValue]) -> str:
        """How a tool that is not pinned differs from what was approved, and what a reader of it may not see, in one
        line."""
        before, parts = self.definitions.get(name), ["new"]
        if before is not None:
            hashes = zip(DEFINED, self.hashes[name], definition, strict=True)
            parts = [line for key, old, new in hashes if old != new for line in _describe_part(key, before, known, new)]
        parts = [*(f"look at {what}" for what in find_hidden(known, name, self.definitions.keys())), *parts]
        more = f"; +{len(parts) - _MOST} more" if len(parts) > _MOST else ""
        return cut(flatten_text("; ".join(parts[:_MOST])), _LONGEST) + more


def _describe_part(key: str, before: Definition, known: Definition, new: str) -> Iterator[str]:
    """The changes of one part of a definition, as far as they can be shown."""
    if key not in before or not new:
        yield f"{key} {'added' if new else 'removed'}"
    elif key == "description":
        yield str(DescriptionChange("changed", (key,), before[key], known[key]))
    else:
        try:
            lines = list(map(str, list_changes(before[key], parse_schema(known[key]), (key,)))) if key in known else []
        except BadSchemaError:
            lines = []
        yield from lines or [f"{key} changed"]

"""A tool in a server's list: its definition, as far as a model or a client reads it, and whether the operator has
approved that. Its schema is bounded, read, converted to a current draft, and compiled. Pure.

A server's list is not trusted. A schema may refer only to itself and hold at most `MAX_NODES` values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from hashlib import sha256
from typing import Final, Literal, Protocol

from proxy.core.check.validation import Check, SchemaError, compile_check
from proxy.core.display.preview import clean_text
from proxy.core.json.jsontext import TRUSTED, format_pointer, parse, walk, write_canonical
from proxy.core.model import codes
from proxy.core.model.values import Failure, JsonValue, value_class
from proxy.core.schema.dialects import normalise
from proxy.core.schema.formats import Formats

# The keys of MCP that define a tool beside its name. `otherKeys` holds all other keys of its entry, and `request` is
# how an operation becomes an HTTP request.
LISTED: Final = ("title", "description", "inputSchema", "outputSchema", "annotations")
OTHER_KEYS: Final = "otherKeys"
DEFINED: Final = (*LISTED, OTHER_KEYS, "request")
# The definition is kept under the name. `_meta` may differ with each list.
_UNDEFINED: Final = frozenset({*LISTED, "name", "_meta"})
# The longest name of a tool in a message, in characters.
_LONGEST: Final = 60

# A server's `annotations` of a tool, by the keys of MCP.
Hints = Mapping[str, bool]
# The hints on a listed tool if its server gives none (MCP, `ToolAnnotations`).
USUAL_HINTS: Final[Hints] = {
    "readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True,
}  # fmt: skip


def define_tool(entry: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Returns the definition of a tool from its whole entry in a list, by the keys of `DEFINED`."""
    others: JsonValue = {key: value for key, value in entry.items() if key not in _UNDEFINED}
    return {key: entry[key] for key in LISTED if key in entry} | ({OTHER_KEYS: others} if others else {})


def hash_definition(definition: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Returns a hash of each of `DEFINED` in a definition, over canonical JSON, and '' for a missing part."""
    return tuple(sha256(write_canonical(definition[key])).hexdigest() if key in definition else "" for key in DEFINED)


def refuse_unapproved(tool: str) -> Failure:
    """The failure of a call of a tool that is not defined as the operator has approved it."""
    name = clean_text(tool, _LONGEST)
    return Failure(codes.TOOL_NOT_APPROVED, f"Tool '{name}' is not defined as its operator has approved it")


class PinnedTools(Protocol):
    """The definitions of one route's tools that the operator has approved, by the names that their server lists.
    `definition` is the result of `hash_definition`, `changed` the treatment of any other one. `unpinned` are the
    operations of the config that are not defined as approved, each with how it differs."""

    @property
    def changed(self) -> Literal["warn", "hide", "refuse"]: ...
    @property
    def unpinned(self) -> Mapping[str, str]: ...

    def is_pinned(self, name: str, definition: tuple[str, ...]) -> bool:
        """Returns whether a tool is defined as it was approved."""

    def describe_change(self, name: str, definition: tuple[str, ...], known: Mapping[str, JsonValue]) -> str:
        """Returns how a tool that is not pinned differs from what was approved. `known`: what is there to show of its
        parts, by the keys of `DEFINED`."""


# --- its schema -----------------------------------------------------------------------------------------------------
# Values in one schema: the largest in tests/data/mcp-tools has 422, and 5,000 take most of a second to compile.
MAX_NODES: Final = 5_000
# The remedy of a reference that leads out of a listed schema.
_WHOLE: Final = "nothing is ever fetched: the server has to list the whole schema, such as with `$defs`"


@value_class
class Unparsed:
    """A schema of a long list: its JSON text, read when its tool is called. `reason`: why it cannot be used."""

    text: bytes = field(repr=False)
    reason: str = ""


class BadSchemaError(Exception):
    """A tool's schema cannot be used; the message says why."""


def parse_schema(schema: JsonValue) -> JsonValue:
    """A listed schema as a value. Raises BadSchemaError for one that was not kept."""
    if not isinstance(schema, Unparsed):
        return schema
    if schema.reason:
        raise BadSchemaError(schema.reason)
    return parse(schema.text, TRUSTED)


def check_size(schema: JsonValue) -> None:
    """Raises BadSchemaError if a schema is not a JSON object, or exceeds the bounds."""
    if not isinstance(schema, dict):
        raise BadSchemaError("it is missing, or no JSON object")
    if sum(1 for _ in walk(schema)) > MAX_NODES:
        raise BadSchemaError(f"it holds more than {MAX_NODES} values")


def compile_listed(schema: JsonValue, formats: bool | Formats) -> Check:
    """A listed schema, compiled. Raises BadSchemaError."""
    check_size(schema)
    try:
        return compile_check(normalise(schema)[0], formats=formats, is_trusted=False)
    except SchemaError as error:
        remedy = f"; {_WHOLE}" if error.path[-1:] == ("$ref",) else ""
        raise BadSchemaError(f"{format_pointer(error.path)}: {error.message}"[:300] + remedy) from None

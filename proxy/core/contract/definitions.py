"""How a tool is defined, as far as a model or a client reads it, and whether the operator has approved that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final, Literal, Protocol

from proxy.core.display.preview import clean_text
from proxy.core.json.jsontext import write_canonical
from proxy.core.model import codes
from proxy.core.model.values import Failure, JsonValue

# What defines a tool beside its name, by the keys of MCP; `request` is how an operation becomes an HTTP request.
DEFINED: Final = ("title", "description", "inputSchema", "outputSchema", "annotations", "request")
# The longest name of a tool in a message, in characters.
_LONGEST: Final = 60

# What a server says of a tool in its `annotations`, by the keys of MCP.
Hints = Mapping[str, bool]
# What holds of a listed tool where its server says nothing (MCP, `ToolAnnotations`).
USUAL_HINTS: Final[Hints] = {
    "readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True,
}  # fmt: skip


def read_hints(entry: Mapping[str, JsonValue]) -> Hints:
    """The hints that an entry of a list gives; one that is neither true nor false is none."""
    written = entry.get("annotations")
    found = written if isinstance(written, dict) else {}
    return {name: value for name in USUAL_HINTS if isinstance(value := found.get(name), bool)}


def hash_definition(entry: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """A hash of each of `DEFINED` in an entry of a list, over canonical JSON; '' for what is not there."""
    return tuple(sha256(write_canonical(entry[key])).hexdigest() if key in entry else "" for key in DEFINED)


def refuse_unapproved(tool: str) -> Failure:
    """The failure of a call of a tool that is not defined as the operator has approved it."""
    name = clean_text(tool, _LONGEST)
    return Failure(codes.TOOL_NOT_APPROVED, f"Tool '{name}' is not defined as its operator has approved it")


class PinnedTools(Protocol):
    """The definitions of one route's tools that the operator has approved, by the names that their server lists.
    `definition` is what `hash_definition` gives, `changed` what becomes of any other one, and `unpinned` are the
    operations of the config that are not defined as approved, each with how it differs."""

    @property
    def changed(self) -> Literal["warn", "hide", "refuse"]: ...
    @property
    def unpinned(self) -> Mapping[str, str]: ...

    def is_pinned(self, name: str, definition: tuple[str, ...]) -> bool:
        """Whether a tool is defined as it was approved."""

    def describe_change(self, name: str, definition: tuple[str, ...], known: Mapping[str, JsonValue]) -> str:
        """How a tool that is not pinned differs from what was approved. `known`: what is there to show of its parts, by
        the keys of `DEFINED`."""

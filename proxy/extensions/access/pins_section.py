"""The section `pins` of the config: the file of approved definitions, and the treatment of all others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final, get_args

from proxy.config.keys.kinds import ConfigKey, choice, mapping, text
from proxy.config.model import Config, RouteEntry, ToolConfig, UpstreamConfig
from proxy.core.contract.listed_tool import Hints, refuse_unapproved
from proxy.core.contract.policy import Mode
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Failure, JsonValue, ToolCall
from proxy.extensions.access.lock_file import (
    FILE,
    Changed,
    Definition,
    LockProblem,
    PinnedRoute,
    Pins,
    RouteOperations,
    read_lock,
)
from proxy.interfaces import CallAccess
from proxy.plugin import Context, Files, read_named_text


# --- refuses calls of operations whose definitions the operator has not approved --------------------------------------
@value_class
class WithheldTools:
    """The operations of a route with other definitions than approved. `hides`: they are not shown, either."""

    tools: frozenset[str]
    hides: bool


@value_class
class ApprovedCalls:
    """Implements `CallAccess`: calls of approved operations, as far as `others` allow them (None: all)."""

    withheld: WithheldTools
    others: CallAccess | None

    @property
    def scope(self) -> str:
        """The scope of `others`."""
        return "" if self.others is None else self.others.scope

    def may_see(self, tool: str, hints: Hints | None = None) -> bool:
        """Returns whether a tool is shown. A changed tool is shown unless the config hides it."""
        hidden = self.withheld.hides and tool in self.withheld.tools
        return not hidden and (self.others is None or self.others.may_see(tool, hints))

    def refuse_tool(self, tool: str, hints: Hints | None = None) -> Failure | None:
        """Returns the failure if no call of a tool is allowed; that of `others` comes first."""
        if self.others is not None and (refused := self.others.refuse_tool(tool, hints)) is not None:
            return refused
        return refuse_unapproved(tool) if tool in self.withheld.tools else None

    def refuse_call(self, checked: CheckedCall, hints: Hints | None = None) -> Failure | None:
        """The failure of a call that is not allowed."""
        if checked.call.tool in self.withheld.tools:
            return self.refuse_tool(checked.call.tool)
        return None if self.others is None else self.others.refuse_call(checked, hints)

    def refuse_answer(self, call: ToolCall, hints: Hints | None = None) -> Failure | None:
        """The failure where a hook may not answer in place of the tool."""
        if call.tool in self.withheld.tools:
            return self.refuse_tool(call.tool)
        return None if self.others is None else self.others.refuse_answer(call, hints)


# --- the section `pins` of the config ---------------------------------------------------------------------------------
# --- the definitions of a config's HTTP operations --------------------------------------------------------------------
#
# An operation is a tool with `request`, or one whose schema an OpenAPI document holds. Its definition includes its
# request, because a document that sends the same arguments elsewhere has changed.


def find_operations(entries: Iterable[RouteEntry]) -> RouteOperations:
    """The operations of the routes of one name."""
    plain: dict[str, Definition] = {}
    requests: dict[str, JsonValue] = {}
    for entry in entries:
        if entry.listed is not None:
            tools = entry.listed.tools.items()
            requests |= {name: tool.request.write_entry() for name, tool in tools if tool.request is not None}
        elif entry.kind == "call":
            plain |= {name: _define(tool) for name, tool in entry.tools.items() if tool.request is not None}
    return RouteOperations(plain, requests)


def _define(tool: ToolConfig) -> Definition:
    parts = {
        "description": tool.description or None,
        "inputSchema": tool.schema.value if tool.schema is not None else None,
        "request": tool.request.write_entry() if tool.request is not None else None,
    }
    return {key: value for key, value in parts.items() if value is not None}


# --- the section `pins` of the config ---------------------------------------------------------------------------------
_CHANGED: Final[Changed] = "hide"
_WRITE: Final = "paths start at the config file's folder; `toolcall-proxy pin CONFIG` writes it"


@value_class
class PinConfig:
    """The approved definitions by route, and the treatment of all others."""

    pins: Pins = field(repr=False)
    changed: Changed = _CHANGED


_PINS: Final = mapping(
    None,
    ConfigKey(
        "file",
        text(minLength=1, x_expects="a path from the config's folder"),
        "The file of approved definitions, from the config's folder.",
        default=FILE,
    ),
    ConfigKey(
        "changed",
        choice(*get_args(Changed)),
        "A listed tool or an HTTP operation that is new or changed: gives a warning (`warn`); is not listed and not "
        "callable (`hide`); is listed and not callable (`refuse`).",
        default=_CHANGED,
    ),
)
PINS: Final = ConfigKey(
    "pins", _PINS, "Definitions of tools that are approved (docs/access.md); `toolcall-proxy pin` writes them."
)


def read_pins(context: Context, files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> PinConfig | None:
    """Reads which definitions are approved. If the file cannot be used, reports that and returns None."""
    written = context.mapping("pins")
    at = ("pins", "file") if "file" in written else ("pins",)
    locked = read_named_text(context, files, at, written.get("file", FILE), _WRITE)
    if locked is None:
        return None
    try:
        pins = read_lock(locked.encode())
    except LockProblem as problem:
        hint = "write it again with `toolcall-proxy pin`, and review the changes"
        context.mistake(at, f"the file of pins cannot be used: {problem}", hint)
        return None
    return PinConfig(pins, _PINS.read(written).get("changed", _CHANGED))


def find_pinned(config: Config, route: str) -> PinnedRoute | None:
    """The approved definitions of a route; None where the config pins nothing. A report-only route only warns."""
    found: PinConfig | None = config.sections.get("pins")
    if found is None:
        return None
    entries = [entry for entry in config.routes if entry.name == route]
    report = any(entry.policy.mode is Mode.REPORT for entry in entries)
    others = frozenset(name for tools in found.pins.values() for name in tools)
    changed: Changed = "warn" if report else found.changed
    return PinnedRoute.of(found.pins.get(route, {}), changed, find_operations(entries), others)


def find_withheld(config: Config, route: str) -> WithheldTools | None:
    """The operations of a route that may not be called; None where all may be called."""
    pinned = find_pinned(config, route)
    if pinned is None or pinned.changed == "warn" or not (unpinned := pinned.unpinned):
        return None
    return WithheldTools(frozenset(unpinned), pinned.changed == "hide")

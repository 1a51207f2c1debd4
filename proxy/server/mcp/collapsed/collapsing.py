"""Shows one container in place of a server's tools where a route has `collapse` (contract section 6).

The list has one page and is the same for everybody who sees the same tools (MCP 2026-07-28 forbids that it varies by
connection); a session of the old revisions also sees the functions that it was shown. Beside a container with many
functions stand `search_tools` and `describe_tool`. What the container holds comes from the tools, when it is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from proxy.adapters.mcpmessage import Message
from proxy.core.contract.listed_schema import BadSchemaError, parse_schema
from proxy.core.contract.listed_tools import LearnedTools, LearnPolicy, ListedTool, Listing
from proxy.core.contract.tool_search import DESCRIBE, DESCRIBE_TOOL, SEARCH, SEARCH_TOOL
from proxy.core.model.values import JsonValue

# The longest list of function names in the container's description.
_SHOWN: Final = 40
_DISPATCHED: Final[dict[str, JsonValue]] = {
    "function": {"type": "string", "description": "The tool to call; leave it out to see them all."},
    "arguments": {"type": "object", "description": "Its arguments."},
}
_PAGED: Final[dict[str, JsonValue]] = {
    "page": {"type": "integer", "minimum": 1, "description": "The page to see, where there are several; alone."}
}


def make_collapsed_list(
    message: Message, tools: LearnedTools, rules: LearnPolicy, visible: Iterable[str] = ()
) -> dict[str, JsonValue]:
    """The result of `tools/list`: the container, the search, and the `visible` functions. A page behind it is empty."""
    container = rules.collapse
    if container is None:
        raise AssertionError("a route without `collapse` shows its tools")
    is_searched = bool(tools.own)
    tool: dict[str, JsonValue] = {
        "name": container.name,
        "description": rules.collapse_description
        or _described(tools.listing, container.auto_expand == "dispatch", is_searched),
        "inputSchema": _make_schema(dispatched=container.auto_expand == "dispatch", is_paged=is_searched),
    }
    own: list[JsonValue] = [one for one in (SEARCH_TOOL, DESCRIBE_TOOL) if one["name"] in tools.own]
    seen: list[JsonValue] = [_as_listed(found) for name in visible if (found := tools.listing.tools.get(name))]
    shown = [] if isinstance(message.param("cursor"), str) else [tool, *own, *seen]
    fresh = {"ttlMs": int(rules.ttl * 1000), "cacheScope": "private"} if message.modern else {}
    return {"tools": shown, **fresh}


def _make_schema(*, dispatched: bool, is_paged: bool) -> JsonValue:
    """The container's parameters."""
    properties = dict(_DISPATCHED) if dispatched else {}
    return {"type": "object", "properties": {**properties, **(_PAGED if is_paged else {})}}


def _as_listed(tool: ListedTool) -> JsonValue:
    """A function as its server lists it."""
    listed: dict[str, JsonValue] = {"name": tool.name, "description": tool.description}
    for key, schema in (("inputSchema", tool.schema), ("outputSchema", tool.output)):
        try:
            value = parse_schema(schema)
        except BadSchemaError:
            continue
        if isinstance(value, dict):
            listed[key] = value
    if tool.destructive:
        listed["annotations"] = {"destructiveHint": True}
    return {"inputSchema": {"type": "object"}, **listed}


def _described(listing: Listing, dispatched: bool, is_searched: bool) -> str:
    names = list(listing.tools)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    then = (
        'call it again with {"function": <name>, "arguments": <its arguments>} to use one'
        if dispatched
        else "call the one you need by its own name"
    )
    if is_searched:
        then = f"{then}. `{SEARCH}` finds tools by what they do, `{DESCRIBE}` shows one"
    return (
        f"Groups {len(names)} tools. Call it with no arguments to get their descriptions and schemas, then {then}. "
        f"Tools: {', '.join(names[:_SHOWN])}{more}"
    )

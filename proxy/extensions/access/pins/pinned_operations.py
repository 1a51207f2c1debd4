"""The definitions of a config's HTTP operations.

An operation is a tool with `request`, or one whose schema an OpenAPI document holds. Its definition includes its
request, because a document that sends the same arguments elsewhere has changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.config.model import RouteEntry, ToolConfig
from proxy.core.model.values import JsonValue
from proxy.extensions.access.pins.lock_file import Definition, RouteOperations


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

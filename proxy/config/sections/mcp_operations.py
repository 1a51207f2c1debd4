"""Reads `operations` of an MCP route: tools of the catalogue whose calls are HTTP requests to one service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from proxy.config.combinations import WrittenRoute
from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.mistakes import join_words, suggest_word
from proxy.config.model import McpConfig, RouteEntry, ServedOperations, ToolConfig, UpstreamConfig
from proxy.config.policies import Written
from proxy.config.sections.mcp_section import MCP_DEFAULTS
from proxy.config.tools import show_schema
from proxy.core.model.values import JsonValue, Pointer

# Defaults of the other MCP routes that hold here too: the service is no agent, and its statuses are HTTP's.
OPERATION_DEFAULTS: Final[Written] = {key: MCP_DEFAULTS[key] for key in ("limits", "conversation")}
ALL: Final = "all"
# What a method says of a tool (RFC 9110 section 9.2, MCP `ToolAnnotations`).
_ANNOTATIONS: Final[Mapping[str, dict[str, JsonValue]]] = {
    "GET": {"readOnlyHint": True},
    "HEAD": {"readOnlyHint": True},
    "PUT": {"idempotentHint": True},
    "DELETE": {"destructiveHint": True, "idempotentHint": True},
}


def name_tools(context: Context, route: WrittenRoute, known: tuple[str, ...]) -> Iterator[tuple[str, Pointer]]:
    """The tools that `operations` names, each with the place of its name. Reports names that nobody knows."""
    written = route.entry["operations"]
    at = (*route.at, "operations")
    if not known:
        context.mistake(at, "the catalogue `tools` is empty", "add the tools that may be called", key=True)
    elif not isinstance(written, list):
        yield from ((name, at) for name in known)
    else:
        for index, name in enumerate(map(reveal, written)):
            if name in known:
                yield name, (*at, index)
            else:
                hint = suggest_word(name, known) or f"known: {join_words(known)}"
                context.mistake((*at, index), f"unknown tool {name!r}", hint)


def read_operations(context: Context, route: WrittenRoute, tools: Mapping[str, ToolConfig]) -> dict[str, ToolConfig]:
    """The tools that the route serves as operations. Reports those whose calls nothing can make a request of."""
    written = route.entry["operations"]
    served = {name: tool for name, tool in tools.items() if tool.request is not None}
    if isinstance(written, list):
        for index, name in enumerate(map(reveal, written)):
            if name in tools and name not in served:
                hint = "add `request:`, or take its schema from an OpenAPI description"
                context.mistake(
                    (*route.at, "operations", index), f"nothing says which HTTP request a call of {name!r} is", hint
                )
    elif tools and not served:
        hint = "add `request:` to the tools of the catalogue, or take their schemas from an OpenAPI description"
        context.mistake((*route.at, "operations"), "no tool of the catalogue has an HTTP request", hint, key=True)
    return served


def describe_operations(route: WrittenRoute, mcp: McpConfig | None) -> ServedOperations | None:
    """The operations of a route as `tools/list` shows them; None where it serves none."""
    if mcp is None or "operations" not in route.entry:
        return None
    return ServedOperations(route.upstream, {name: _describe(tool) for name, tool in mcp.tools.items()})


def _describe(tool: ToolConfig) -> dict[str, JsonValue]:
    method = tool.request.method if tool.request is not None else ""
    annotations = _ANNOTATIONS.get(method)
    return {
        "name": tool.name,
        **({"description": tool.description} if tool.description else {}),
        "inputSchema": _input_schema(tool),
        **({"annotations": annotations} if annotations else {}),
    }


def _input_schema(tool: ToolConfig) -> dict[str, JsonValue]:
    """The schema as every SDK reads it: an object whose properties are objects."""
    shown = (show_schema(tool.schema) if tool.schema is not None else None) or {}
    made: dict[str, JsonValue] = {"type": "object", **{key: item for key, item in shown.items() if key != "type"}}
    properties = made.get("properties")
    if isinstance(properties, dict):
        made["properties"] = {name: _as_object(schema) for name, schema in properties.items()}
    return made


def _as_object(schema: JsonValue) -> JsonValue:
    return {} if schema is True else {"not": {}} if schema is False else schema


def name_served(route: WrittenRoute) -> str:
    """What the operations of a route are called together, in logs and metrics."""
    return f"operations of {route.name}"


def with_operations(upstreams: Mapping[str, UpstreamConfig], routes: Iterable[RouteEntry]) -> dict[str, UpstreamConfig]:
    """The upstreams, and for each route that serves operations one that stands for all of them."""
    found = dict(upstreams)
    for route in routes:
        if route.operations is not None:
            service = upstreams[route.operations.upstream]
            found[route.upstream] = UpstreamConfig(
                route.upstream,
                "",
                response_timeout=service.response_timeout,
                idle_timeout=service.idle_timeout,
                headers=service.headers,
                operations=route.operations,
            )
    return found

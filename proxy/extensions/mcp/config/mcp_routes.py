"""Reads routes that speak MCP, for the reader of all routes. Implements `RouteKindReader` (config/routes.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.config.keys.kinds import (
    TOOL_NAME,
    WORD,
    ConfigKey,
    Kind,
    choice,
    either,
    list_of,
    map_of,
    mapping,
    name_kind,
)
from proxy.config.keys.policy_keys import POLICY_KEYS
from proxy.config.model import PluginSettings, RouteEntry, ToolConfig, UpstreamConfig
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.mcp.config.mcp_section import McpReader, make_metadata_routes, widen_session_pools
from proxy.extensions.mcp.config.mcp_upstreams import (
    OPERATION_DEFAULTS,
    add_joined,
    add_operations,
    choose_defaults,
    describe_operations,
    name_joined,
    name_served,
    name_tools,
    read_joined,
    read_operations,
)
from proxy.extensions.mcp.config.model import MCP, SERVER, UPSTREAM, McpConfig, Resource
from proxy.plugin import DROP_ONE, NO_UPSTREAM, Context, ToolReader, reveal

if TYPE_CHECKING:
    from proxy.plugin import Finding, WrittenRoute

# --- the keys ---------------------------------------------------------------------------------------------------------
_ROUTE: Final = mapping(
    None,
    ConfigKey(
        "protocol", choice("mcp"), "Plain HTTP calls, or the Model Context Protocol (Streamable HTTP, every revision)."
    ),
    ConfigKey("mcp", name_kind("mcp", "MCP", MCP, "Settings of a `protocol: mcp` route for its server's tools.")),
    ConfigKey(
        "servers",
        map_of(
            either(WORD, SERVER),
            minProperties=1,
            propertyNames={"pattern": "^[A-Za-z0-9.-][A-Za-z0-9_.-]*$"},
            x_expects="a mapping of server names to upstreams",
        ),
        "Several MCP servers by name, in place of `upstream`: each an upstream or a mapping. Their tools' names get "
        "`NAME_` in front.",
    ),
    ConfigKey(
        "operations",
        either(choice("all"), list_of(TOOL_NAME, minItems=1, uniqueItems=True), x_expects="`all`, or a list of tools"),
        "With `protocol: mcp`: the tools of the catalogue served here, each an HTTP request to `upstream`; `all`: "
        "every tool that has one.",
    ),
)
_TOOL: Final = mapping(
    None,
    ConfigKey(
        "overlay",
        Kind({"type": "object", "x-expects": "a mapping: the parts of the schema that are to differ"}),
        "On an MCP route (`mcp.tools.NAME`): a JSON Merge Patch (RFC 7396) laid over the schema that the server lists.",
    ),
    ConfigKey(
        "as",
        TOOL_NAME,
        "On an MCP route (`mcp.tools.NAME`): the name that clients see and call. NAME is the one its server lists, "
        "here and everywhere else in the config.",
    ),
)
KEYS: Final = {"upstream": UPSTREAM, "route": _ROUTE, "tool": _TOOL}

# --- checks of a route's keys about MCP that contradict each other ----------------------------------------------------
# Keys without a meaning on an MCP route, where the message names the tool and MCP defines the answers.
_NOT_MCP: Final = (
    "tool", "tools", "dispatch", "schema", "container", "description", "methods", "response_schema", "parameters",
    *(key.name for key in POLICY_KEYS if key.of_answers),
)  # fmt: skip
# Keys about a server's own list of tools.
_OF_LISTS: Final = (
    "tools", "unknown_schema", "on_bad_schema", "trust_annotations", "output_check", "credentials", "ttl", "wait",
    "servers_wait", "prefix", "resource",
)  # fmt: skip
_ANSWERS: Final = ("response_schema", "response_mode")
# Keys that only a tool that a server lists can have, and why not one of the catalogue.
_OF_LISTED: Final = (
    ("overlay", "`overlay` has nothing to be laid over here"),
    ("as", "`as` renames what a server lists, and no server lists the tools of the catalogue"),
)


def check_catalogue(context: Context) -> None:
    """Reports keys of listed tools in the catalogue."""
    for name, entry in context.entries("tools"):
        for key, message in _OF_LISTED:
            if key in entry:
                hint = "put it under `mcp: {tools: {NAME: ...}}` of the route whose server lists the tool"
                context.mistake(("tools", name, key), message, hint, key=True)


def check_route_keys(context: Context, route: WrittenRoute) -> Iterator[Finding]:
    """The contradictions among one route's keys about MCP."""
    for check in (_check_mcp, _check_process, _check_servers, _check_operations):
        yield from check(context, route)


def speaks_mcp(route: WrittenRoute) -> bool:
    """Returns whether the route's clients and its upstream speak MCP."""
    return route.protocol == "mcp"


def _check_mcp(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    if not speaks_mcp(route):
        if "mcp" in route.entry:
            yield (*route.at, "mcp"), "`mcp` has no effect on this route", "say `protocol: mcp`, or drop it"
        return
    for key in _NOT_MCP:
        if key in route.entry:
            hint = "the server lists the tools; put settings of one tool under `mcp: {tools: {NAME: ...}}`"
            yield (*route.at, key), f"`{key}` has no effect on an MCP route", hint
        if key in route.entry and key in _ANSWERS and route.upstream not in ("", NO_UPSTREAM) and not route.passes:
            why = "MCP's tools tell it themselves (`mcp: {output_check: on}`)"
            yield (*route.at, key), f"`{key}` has no effect: {why}", DROP_ONE
    if "aliases" in route.entry:
        hint = "an alias belongs to one tool: `mcp: {tools: {NAME: {aliases: ...}}}`"
        yield (*route.at, "aliases"), "`aliases` on a route of many tools", hint
    if route.upstream == NO_UPSTREAM:
        yield (*route.at, "upstream"), "an MCP route needs an upstream", "name one of `upstreams`"
    for name in route.parameters:
        if name == "tool":
            yield route.path_at, "{tool} in the path of an MCP route", "the message names the tool"


def _check_process(context: Context, route: WrittenRoute) -> Iterator[Finding]:
    """Checks that a route to an upstream with a `command` speaks MCP."""
    if "command" not in context.mapping("upstreams", route.upstream):
        return
    if not speaks_mcp(route):
        hint = "say `protocol: mcp`"
        yield (*route.at, "upstream"), f"upstream {route.upstream!r} is a command, which speaks only MCP", hint
    elif "upstream_path" in route.entry:
        yield (*route.at, "upstream_path"), "`upstream_path` has no effect: a command has no paths", DROP_ONE


def _check_servers(context: Context, route: WrittenRoute) -> Iterator[Finding]:
    """Checks that only an MCP route has `servers`, and has it without keys about a single server."""
    if "servers" not in route.entry:
        for key in ("prefix", "servers_wait"):
            if key in route.entry.get("mcp", {}):
                yield (*route.at, "mcp", key), f"`{key}` has no effect without `servers`", DROP_ONE
        return
    if not speaks_mcp(route):
        yield (*route.at, "servers"), "`servers` has no effect on this route", "say `protocol: mcp`"
        read_joined(context, route)  # for the mistakes within it
    for key in ("upstream", "upstream_path"):
        if key in route.entry:
            yield (*route.at, key), f"`{key}` has no effect beside `servers`", DROP_ONE
    if "resource" in route.entry.get("mcp", {}):
        yield (*route.at, "mcp", "resource"), "`resource` has no effect beside `servers`", DROP_ONE


def _check_operations(context: Context, route: WrittenRoute) -> Iterator[Finding]:
    """Checks that operations are served by MCP, from a service that speaks HTTP, and without keys about a server's own
    list."""
    if "operations" not in route.entry:
        return
    at = (*route.at, "operations")
    if not speaks_mcp(route):
        yield at, "`operations` has no effect on this route", "say `protocol: mcp`"
    if "servers" in route.entry:
        yield at, "`operations` beside `servers`", "give each a separate route"
    if "command" in context.mapping("upstreams", route.upstream):
        hint = "name the upstream of the HTTP service"
        yield (*route.at, "upstream"), f"upstream {route.upstream!r} is a command, which takes no HTTP requests", hint
    if "upstream_path" in route.entry:
        message = "`upstream_path` has no effect: each operation has its path"
        yield (*route.at, "upstream_path"), message, DROP_ONE
    for key in _OF_LISTS:
        if key in route.entry.get("mcp", {}):
            hint = "put settings of one tool into the catalogue `tools`" if key == "tools" else DROP_ONE
            yield (*route.at, "mcp", key), f"`{key}` has no effect beside `operations`: no server lists them", hint


# --- reads routes that speak MCP --------------------------------------------------------------------------------------
class McpRoutes:
    """Reads the keys of MCP routes of one config."""

    def __init__(self, context: Context, catalogue: ToolReader) -> None:
        self._context = context
        self._catalogue = catalogue

    def read(self, route: WrittenRoute, read_tools: Callable[[WrittenRoute], dict[str, ToolConfig]]) -> McpConfig:
        """Returns how the route treats its tools; `read_tools` reads those of the catalogue that it names."""
        is_served = "operations" in route.entry
        defaults = OPERATION_DEFAULTS if is_served else choose_defaults(self._context, route)
        found = McpReader(self._context, self._catalogue, defaults).read(route.entry, route.at, route.name)
        rewrites = reveal(route.entry.get("mcp", {}).get("resource", "")) == "rewrite"
        found = replace(
            found,
            upstream=route.upstream,
            upstream_path="" if is_served else route.upstream_path,
            rewritten_by=PluginSettings("mcp", Resource(route.path)) if rewrites else None,
        )
        if (joined := read_joined(self._context, route)) is not None:
            found = replace(found, upstream=name_joined(route), joined=joined)
        if not is_served:
            return found
        tools = read_operations(self._context, route, read_tools(route))
        upstream = found.upstream if joined is not None else name_served(route)
        return replace(found, tools=tools, upstream=upstream, operations=describe_operations(route, tools))

    def name_tools(self, route: WrittenRoute, known: tuple[str, ...]) -> Iterator[tuple[str, Pointer]]:
        """The tools of the catalogue that `operations` names, each with the place of its name."""
        return name_tools(self._context, route, known)

    def complete_upstreams(
        self, upstreams: Mapping[str, UpstreamConfig], routes: tuple[RouteEntry, ...], written: Mapping[str, JsonValue]
    ) -> dict[str, UpstreamConfig]:
        """Returns the upstreams that the routes need, and those that represent several servers or operations."""
        return add_operations(add_joined(widen_session_pools(upstreams, routes, written), routes), routes)

    def make_metadata_routes(
        self, routes: tuple[RouteEntry, ...], upstreams: Mapping[str, UpstreamConfig]
    ) -> tuple[RouteEntry, ...]:
        """The routes that relay the OAuth metadata of the servers."""
        return make_metadata_routes(routes, upstreams)

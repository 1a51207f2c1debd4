"""Reads routes that speak MCP, for the reader of all routes. Implements `RouteKindReader` (config/routes.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from proxy.config.combinations import WrittenRoute
from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.model import RouteEntry, ToolConfig, UpstreamConfig
from proxy.config.tools import ToolReader
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
from proxy.extensions.mcp.config.model import McpConfig


class McpRoutes:
    """Reads the keys of MCP routes of one config."""

    def __init__(self, context: Context, catalogue: ToolReader) -> None:
        self._context = context
        self._catalogue = catalogue

    def read(self, route: WrittenRoute, read_tools: Callable[[WrittenRoute], dict[str, ToolConfig]]) -> McpConfig:
        """How the route treats its tools; `read_tools` reads those of the catalogue that it names."""
        is_served = "operations" in route.entry
        defaults = OPERATION_DEFAULTS if is_served else choose_defaults(self._context, route)
        found = McpReader(self._context, self._catalogue, defaults).read(route.entry, route.at, route.name)
        found = replace(
            found,
            upstream=route.upstream,
            upstream_path="" if is_served else route.upstream_path,
            rewrites_resource=route.path if reveal(route.entry.get("mcp", {}).get("resource", "")) == "rewrite" else "",
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
        """The upstreams as the routes need them, and those that stand for several servers or for operations."""
        return add_operations(add_joined(widen_session_pools(upstreams, routes, written), routes), routes)

    def make_metadata_routes(
        self, routes: tuple[RouteEntry, ...], upstreams: Mapping[str, UpstreamConfig]
    ) -> tuple[RouteEntry, ...]:
        """The routes that relay the OAuth metadata of the servers."""
        return make_metadata_routes(routes, upstreams)

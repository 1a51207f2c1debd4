"""Reads routes that speak MCP, for the reader of all routes. Implements `RouteKindReader` (config/route_kinds.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from proxy.config.combinations import WrittenRoute
from proxy.config.context import Context
from proxy.config.model import JoinedServers, McpConfig, RouteEntry, ServedOperations, ToolConfig, UpstreamConfig
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


class McpRoutes:
    """Reads the keys of MCP routes of one config."""

    def __init__(self, context: Context, catalogue: ToolReader) -> None:
        self._context = context
        self._catalogue = catalogue

    def read(self, route: WrittenRoute, read_tools: Callable[[WrittenRoute], dict[str, ToolConfig]]) -> McpConfig:
        """What the route does with its tools; `read_tools` reads those of the catalogue that it names."""
        if "operations" not in route.entry:
            defaults = choose_defaults(self._context, route)
            return McpReader(self._context, self._catalogue, defaults).read(route.entry, route.at, route.name)
        found = McpReader(self._context, self._catalogue, OPERATION_DEFAULTS).read(route.entry, route.at, route.name)
        return replace(found, tools=read_operations(self._context, route, read_tools(route)))

    def read_servers(self, route: WrittenRoute) -> JoinedServers | None:
        """The several servers of a route; None where it has one upstream."""
        return read_joined(self._context, route)

    def name_tools(self, route: WrittenRoute, known: tuple[str, ...]) -> Iterator[tuple[str, Pointer]]:
        """The tools of the catalogue that `operations` names, each with the place of its name."""
        return name_tools(self._context, route, known)

    def describe_operations(self, route: WrittenRoute, mcp: McpConfig | None) -> ServedOperations | None:
        """The operations that the route serves as tools; None where it serves none."""
        return describe_operations(route, mcp)

    def name_upstream(self, route: WrittenRoute) -> str:
        """The name of what stands behind the route."""
        if "servers" in route.entry:
            return name_joined(route)
        return name_served(route) if "operations" in route.entry else route.upstream

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

"""Routes of a protocol that an extension speaks: what reads their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from proxy.config.combinations import WrittenRoute
from proxy.config.context import Context
from proxy.config.model import ListedRoute, RouteEntry, ToolConfig, UpstreamConfig
from proxy.config.tools import ToolReader
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions import find_route_kind, load_place


class RouteKindReader(Protocol):
    """Reads what a route of an extension's protocol says beyond the keys of every route."""

    def read(self, route: WrittenRoute, read_tools: Callable[[WrittenRoute], dict[str, ToolConfig]]) -> ListedRoute:
        """What the route does with its tools; `read_tools` reads those of the catalogue that it names."""

    def name_tools(self, route: WrittenRoute, known: tuple[str, ...]) -> Iterator[tuple[str, Pointer]]:
        """The tools of the catalogue that the route names, each with the place of its name."""

    def complete_upstreams(
        self, upstreams: Mapping[str, UpstreamConfig], routes: tuple[RouteEntry, ...], written: Mapping[str, JsonValue]
    ) -> dict[str, UpstreamConfig]:
        """The upstreams as the routes need them, and those that stand for others."""

    def make_metadata_routes(
        self, routes: tuple[RouteEntry, ...], upstreams: Mapping[str, UpstreamConfig]
    ) -> tuple[RouteEntry, ...]:
        """Routes that the config does not name, beside its own."""


def load_route_kind(protocol: str, context: Context, catalogue: ToolReader) -> RouteKindReader:
    """The reader of a protocol's routes. Raises KeyError where no extension has one."""
    kind = find_route_kind(protocol)
    if kind is None:
        raise KeyError(protocol)
    made: RouteKindReader = load_place(kind.reader)(context, catalogue)
    return made

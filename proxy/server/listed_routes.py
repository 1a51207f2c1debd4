"""The routes whose tools their server lists. An extension answers them.

A config with such a route imports the extension while it is compiled (`load_handler`), so that no request waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from proxy.core.model.values import UpstreamFault, UpstreamReply
from proxy.extensions import find_route_kind, load_place
from proxy.interfaces import Clock
from proxy.server.bound_route import RouteRequest
from proxy.server.listed_request import ListedRequest, PassedOn, Reports


class RouteHandler(Protocol):
    """Answers all requests of one kind of route in this process."""

    def handle(self, request: ListedRequest, /) -> Awaitable[web.StreamResponse]:
        """Answers one request whose body has been read."""

    async def rewrite_metadata(self, reply: UpstreamReply, call_route: RouteRequest) -> UpstreamReply | UpstreamFault:
        """The answer of a route with `rewrites_resource`."""

    async def close(self) -> None:
        """Ends what runs beside the requests."""


# How an extension makes it; `Reports` are told of listed tools, `PassedOn` of each request that its server has.
MakeHandler = Callable[[Clock, Callable[[], str], Reports, PassedOn | None], RouteHandler]


class ListedRoutes:
    """Makes the handler of each kind of route for its first request."""

    def __init__(self, clock: Clock, fresh_id: Callable[[], str], reports: Reports) -> None:
        self.passed_on: PassedOn | None = None
        """Hears of each request that its server has; set before the first request."""
        self._world = (clock, fresh_id, reports)
        self._made: dict[str, RouteHandler] = {}

    def of(self, protocol: str) -> RouteHandler:
        """The handler of a protocol."""
        if protocol not in self._made:
            self._made[protocol] = load_handler(protocol)(*self._world, self.passed_on)
        return self._made[protocol]

    async def close(self) -> None:
        """Ends what runs beside the requests."""
        for each in self._made.values():
            await each.close()


def load_handler(protocol: str) -> MakeHandler:
    """Imports what makes the handler of a protocol. Raises KeyError where no extension has one."""
    kind = find_route_kind(protocol)
    if kind is None:
        raise KeyError(protocol)
    made: MakeHandler = load_place(kind.handler)
    return made

"""The routes that an extension answers: those whose tools their server lists, and relayed ones with its key.

A config with such a route imports the extension while it is compiled (`load_handler`), so that no request waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from proxy.core.model.values import UpstreamFault, UpstreamReply
from proxy.extensions import find_relay, find_route_kind, load_place
from proxy.interfaces import Clock
from proxy.server.bound_route import RouteRequest
from proxy.server.listed_request import ListedRequest, PassedOn, Reports

if TYPE_CHECKING:
    from aiohttp import web


class RouteHandler(Protocol):
    """Answers all requests of one kind of route in this process."""

    def handle(self, request: ListedRequest, /) -> Awaitable[web.StreamResponse]:
        """Answers one request whose body has been read."""

    async def rewrite_metadata(self, reply: UpstreamReply, call_route: RouteRequest) -> UpstreamReply | UpstreamFault:
        """The answer of a route with `rewrites_resource`."""

    async def close(self) -> None:
        """Ends what runs beside the requests."""


class RelayHandler(Protocol):
    """Answers the requests of relayed routes with one key (`Extension.relays`) in this process."""

    def handle(self, request: ListedRequest, /) -> Awaitable[web.StreamResponse | RouteRequest]:
        """Answers one request whose body has not been read; or gives the request, with its body if that was read, for
        it to be relayed as any other."""

    async def close(self) -> None:
        """Ends what runs beside the requests."""


# How an extension makes a `RelayHandler`; `Reports` are told of the tools that requests bring along.
MakeRelay = Callable[[Clock, Reports], RelayHandler]
# How an extension makes it; `Reports` are told of listed tools, `PassedOn` of each request that its server has.
MakeHandler = Callable[[Clock, Callable[[], str], Reports, PassedOn | None], RouteHandler]


class ListedRoutes:
    """Makes the handler of each kind of route for its first request."""

    def __init__(self, clock: Clock, fresh_id: Callable[[], str], reports: Reports) -> None:
        self.passed_on: PassedOn | None = None
        """Hears of each request that its server has; set before the first request."""
        self._world = (clock, fresh_id, reports)
        self._made: dict[str, RouteHandler] = {}
        self._relays: dict[str, RelayHandler] = {}

    def of(self, protocol: str) -> RouteHandler:
        """The handler of a protocol."""
        if protocol not in self._made:
            self._made[protocol] = load_handler(protocol)(*self._world, self.passed_on)
        return self._made[protocol]

    def of_relay(self, key: str) -> RelayHandler:
        """The handler of relayed routes with a key."""
        if key not in self._relays:
            self._relays[key] = load_relay(key)(self._world[0], self._world[2])
        return self._relays[key]

    async def close(self) -> None:
        """Ends what runs beside the requests."""
        for each in (*self._made.values(), *self._relays.values()):
            await each.close()


def load_handler(protocol: str) -> MakeHandler:
    """Imports what makes the handler of a protocol. Raises KeyError where no extension has one."""
    kind = find_route_kind(protocol)
    if kind is None:
        raise KeyError(protocol)
    made: MakeHandler = load_place(kind.handler)
    return made


def load_relay(key: str) -> MakeRelay:
    """Imports what makes the handler of relayed routes with a key. Raises StopIteration where no extension has one."""
    made: MakeRelay = load_place(find_relay(key)[1].handler)
    return made

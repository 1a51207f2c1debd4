"""The routes that a plugin answers: those whose tools their server lists, and relayed ones with its key. Also defines
the plugin's view of a request.

A config with such a route imports the extension while it is compiled (`load_handler`), so that no request waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from aiohttp.web_response import StreamResponse

from proxy.call_record import CallRecord
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Delivered, JsonValue, ToolResult, UpstreamFault, UpstreamReply
from proxy.interfaces import Clock, Services, ToolTexts, Upstream, UpstreamRequest
from proxy.plugin import SpeaksProtocol
from proxy.plugins import find_plugins
from proxy.server.bound_route import RouteRequest
from proxy.server.http.responses import answer_call, answer_failure, deliver
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from aiohttp import web

# The answer of a plugin.
Answer = StreamResponse
# Sends a request that is not a call. Takes the request, its streamed body, the upstream, and its record.
Relay = Callable[
    [UpstreamRequest, AsyncIterator[bytes] | None, Upstream, CallRecord], Awaitable[UpstreamReply | UpstreamFault]
]
# Continues the caller's trace. Takes the request's record and the values of `traceparent` and `tracestate`.
Place = Callable[[CallRecord, str | None, str | None], None]
# Hears the JSON-RPC id of a request once its server has it.
PassedOn = Callable[[JsonValue], None]


@value_class
class ListedRequest:
    """One request with everything needed to answer it. `find_request` returns aiohttp's, which exists only in a task.
    With `closing` the connection ends after the answer. `texts` are what clients read of tools before they call; `tell`
    takes the records of further calls in the same request."""

    find_request: Callable[[], web.BaseRequest]
    call_route: RouteRequest
    services: Services
    record: CallRecord
    closing: bool
    relay: Relay
    place: Place
    texts: ToolTexts | None
    tell: Callable[[CallRecord], None]

    async def deliver(self, delivered: Delivered) -> web.StreamResponse:
        """Returns the response with a tool's or a server's answer. A task writes a stream to its end."""
        body, cors = delivered.reply.body, self.call_route.cors
        if isinstance(body, bytes):
            return answer_call(delivered, body, self.call_route.raw.method, cors, self.record)
        return await deliver(delivered, self.find_request, cors, self.record, self.closing)

    def make_refusal(self, result: ToolResult) -> web.StreamResponse:
        """Returns the response that gives a failure to the client."""
        return answer_failure(self.call_route.binding, self.call_route.raw, result, self.record)


@value_class
class Reports:
    """A plugin's reports on listed tools. `unpinned` receives a route, a tool that is not defined as approved, its
    treatment, and how it differs, each time that a list is read."""

    log: Log
    metrics: Metrics
    unpinned: Callable[[str, str, str, str], None]

    def note_unusable(self, route: str, tool: str, reason: str) -> None:
        """Logs why a tool's schema cannot be used."""
        self.log.event("tool schema cannot be used", "warning", route=route, tool=tool, reason=reason)


class RouteHandler(Protocol):
    """Answers all requests of one kind of route in this process."""

    def handle(self, request: ListedRequest, /) -> Awaitable[web.StreamResponse]:
        """Answers one request whose body has been read."""

    async def rewrite_answer(
        self,
        reply: UpstreamReply,
        call_route: RouteRequest,
        ask: Callable[[UpstreamRequest], Awaitable[UpstreamReply | UpstreamFault]],
    ) -> UpstreamReply | UpstreamFault:
        """The answer of a relayed route with `rewritten_by`. `ask` sends another request to the server."""

    async def close(self) -> None:
        """Ends what runs beside the requests."""


class RelayHandler(Protocol):
    """Answers the requests of relayed routes with one key (`SpeaksProtocol.relay_key`) in this process."""

    def handle(self, request: ListedRequest, /) -> Awaitable[web.StreamResponse | RouteRequest]:
        """Answers one request whose body has not been read; or returns it, with its body if that was read, to relay
        it."""

    async def close(self) -> None:
        """Ends what runs beside the requests."""


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
            plugin = next(each for each in find_plugins(SpeaksProtocol) if each.protocol == protocol)
            self._made[protocol] = plugin.make_handler(*self._world, self.passed_on)
        return self._made[protocol]

    def of_relay(self, key: str) -> RelayHandler:
        """The handler of relayed routes with a key."""
        if key not in self._relays:
            plugin = next(each for each in find_plugins(SpeaksProtocol) if each.relay_key == key)
            self._relays[key] = plugin.make_relay(self._world[0], self._world[2])
        return self._relays[key]

    async def close(self) -> None:
        """Ends what runs beside the requests."""
        for each in (*self._made.values(), *self._relays.values()):
            await each.close()

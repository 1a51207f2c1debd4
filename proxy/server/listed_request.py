"""One request of a route that an extension answers, and what is told of tools that a server lists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from aiohttp.web_response import StreamResponse

from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, ToolResult, UpstreamFault, UpstreamReply
from proxy.interfaces import CallRecord, Services, ToolTexts, Upstream, UpstreamRequest
from proxy.server.bound_route import RouteRequest
from proxy.server.http.responses import answer_failure
from proxy.telemetry.metric_table import MetricRow
from proxy.telemetry.metrics import Counter

if TYPE_CHECKING:
    from aiohttp import web

# What an extension answers with.
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
    """One request with everything needed to answer it. With `closing` the connection ends after the answer. `texts`
    are what clients are told of tools before they call; `tell` takes the records of further calls in the same
    request."""

    request: web.BaseRequest
    call_route: RouteRequest
    services: Services
    record: CallRecord
    closing: bool
    relay: Relay
    place: Place
    texts: ToolTexts | None
    tell: Callable[[CallRecord], None]

    def make_refusal(self, result: ToolResult) -> web.StreamResponse:
        """Returns the response that gives a failure to the client."""
        return answer_failure(self.call_route.binding, self.call_route.raw, result, self.record)


@value_class
class Reports:
    """The observers of listed tools. `learned` receives a route's name and the names of its tools; `unusable` receives
    a route, a tool, and why the tool's schema cannot be used; `unguarded` the same where a schema surely means more
    than it guards. Each is called once per list, the last two for each tool. `unpinned` receives a route, a tool that
    is not defined as approved, what becomes of it, and how it differs, each time that a list is read. `add_counter`
    adds a metric of the extension; `knows` says of a route and a tool whether the tool may be a label value there."""

    learned: Callable[[str, Iterable[str]], None]
    unusable: Callable[[str, str, str], None]
    unguarded: Callable[[str, str, str], None]
    unpinned: Callable[[str, str, str, str], None]
    add_counter: Callable[[MetricRow], Counter]
    knows: Callable[[str, str], bool]

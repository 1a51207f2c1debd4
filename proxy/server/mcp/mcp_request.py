"""One request of an MCP route with everything needed to answer it, and the observers of listed tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass

from aiohttp import web

from proxy.config.model import Guidance
from proxy.core.model.values import ToolResult, UpstreamFault, UpstreamReply
from proxy.interfaces import CallRecord, Services, Upstream, UpstreamRequest
from proxy.server.bound_route import RouteRequest
from proxy.server.http.responses import answer_failure

# Sends a request that is not a call: the request, its streamed body, the upstream, and its record.
Relay = Callable[
    [UpstreamRequest, AsyncIterator[bytes] | None, Upstream, CallRecord], Awaitable[UpstreamReply | UpstreamFault]
]
# Puts a request into its trace: its record, its `traceparent` and its `tracestate`.
Place = Callable[[CallRecord, str | None, str | None], None]


@dataclass(frozen=True, slots=True)
class McpRequest:
    """One request with everything needed to answer it. `closing`: the connection ends with the answer.
    `guidance`: what clients are told before they call."""

    request: web.BaseRequest
    call_route: RouteRequest
    services: Services
    record: CallRecord
    closing: bool
    relay: Relay
    place: Place
    guidance: Guidance

    def make_refusal(self, result: ToolResult) -> web.StreamResponse:
        """Encodes a failure for the client."""
        return answer_failure(self.call_route.binding, self.call_route.raw, result, self.record)


@dataclass(frozen=True, slots=True)
class Reports:
    """The observers of listed tools: `learned` of a route and its tools' names, `unusable` of a route, a tool and
    why its schema cannot be used. Each is told once."""

    learned: Callable[[str, Iterable[str]], None]
    unusable: Callable[[str, str, str], None]

"""What goes in at the door of the MCP routes: a request with all it takes to answer it, and who is told of tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass

from proxy.app.http1.answer import Answer
from proxy.app.http1.request import Request
from proxy.app.lane import RequestLane
from proxy.app.replies import refused_on
from proxy.core.model import ToolResult, UpstreamFault, UpstreamReply
from proxy.interfaces import CallRecord, Services, Upstream, UpstreamRequest

# Sends what is no call: the request, its body where it streams, the upstream, and the record it is noted in.
Relay = Callable[
    [UpstreamRequest, AsyncIterator[bytes] | None, Upstream, CallRecord], Awaitable[UpstreamReply | UpstreamFault]
]
# Puts a request into its trace: its record, its `traceparent` and its `tracestate`.
Place = Callable[[CallRecord, str | None, str | None], None]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request with all that it takes to answer it. `closing`: the connection ends with the answer."""

    request: Request
    lane: RequestLane
    services: Services
    record: CallRecord
    closing: bool
    relay: Relay
    place: Place

    def refused(self, result: ToolResult) -> Answer | None:
        """A failure as its client reads it."""
        return refused_on(self.lane.way, self.lane.raw, result, self.record)


@dataclass(frozen=True, slots=True)
class Reports:
    """Who is told what of listed tools: `learned` of a route and its tools' names, `unusable` of a route, a tool and
    why its schema is of no use. Each is told once."""

    learned: Callable[[str, Iterable[str]], None]
    unusable: Callable[[str, str, str], None]

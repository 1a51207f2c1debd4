"""How the requests of one route go out: `Way` is compiled once per route, `RequestLane` is one request on it.

A dispatch route sends the client's whole body, unless its `upstream_path` holds `{tool}`: then the upstream serves
one tool per path, and gets the arguments alone, as it would from a route per tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.adapters import ADAPTERS
from proxy.adapters.base import Adapter
from proxy.adapters.ladder import find_text
from proxy.app.catalogue import Catalogues
from proxy.app.headers import ANOTHER_REQUEST, Changes, request_headers
from proxy.core.model import CheckedCall, Headers, RawRequest
from proxy.core.noun import noun
from proxy.core.policy import Mode, ToolPolicy
from proxy.interfaces import UpstreamRequest
from proxy.routing import Route

# Checksums of a body (RFC 9530, RFC 3230, RFC 1864): false once the body was changed.
_DIGESTS: Final = frozenset({"content-digest", "repr-digest", "digest", "content-md5"})


@dataclass(frozen=True, slots=True)
class Way:
    """A route with what its requests need, worked out beforehand. `alone`: the arguments go without their envelope.
    `target` is the path to send to where it is the same for every request, else ''. `catalogues` holds what was
    learned of its tools, where a route learns them."""

    route: Route
    adapter: Adapter
    dropped: frozenset[str]
    alone: bool
    target: str
    catalogues: Catalogues = field(default_factory=Catalogues)

    @classmethod
    def of(cls, route: Route) -> Way:
        """Compiles one route."""
        dropped = Changes(route.headers_set, route.headers_remove).dropped
        if route.auth is not None and not route.auth.forward:
            dropped |= {"authorization"}  # it was meant for us
        if route.kind != "passthrough":
            dropped |= ANOTHER_REQUEST
        alone = route.shape.tool_pointer is not None and "{tool}" in route.upstream_path
        target = "" if "{" in route.upstream_path else route.upstream_path
        return cls(route, ADAPTERS[route.adapter], dropped, alone, target)

    def outgoing(self, request: RawRequest, hop_fields: Headers, tool: str, body: bytes) -> UpstreamRequest:
        """A request of this route as it goes out. `tool` is '' for what is no call."""
        route = self.route
        dropped = self.dropped if body is request.body else self.dropped | _DIGESTS
        headers = request_headers(request.headers, dropped, hop_fields + route.headers_set)
        target = self.target or route.target(request.params, tool)
        if request.query:
            target = f"{target}?{request.query}"
        return UpstreamRequest(route.upstream, request.method, target, headers, body, route.timeout_for(tool))


@noun
class RequestLane:
    """Implements the pipeline's `Lane` for one request. `hop_fields` are Via, X-Forwarded-* and the request id."""

    way: Way
    raw: RawRequest
    hop_fields: Headers

    @property
    def tools(self) -> Mapping[str, ToolPolicy]:
        """The policy of every tool of the route."""
        return self.way.route.tools

    @property
    def headers(self) -> Headers:
        """The client's own headers."""
        return self.raw.headers

    def wish(self) -> str:
        """What the user wants, where the config says that clients tell it."""
        return find_text(self.raw, self.way.route.query)

    def lets_through(self, tool: str) -> bool:
        """Whether a call of an unknown tool goes on: on a report-only route, unless its name has to make a path of the
        upstream and cannot."""
        route = self.way.route
        named = tool not in ("", ".", "..") or "{tool}" not in route.upstream_path
        return route.mode is Mode.REPORT and route.kind == "call" and named

    def request(self, checked: CheckedCall) -> UpstreamRequest | None:
        """What is sent for a checked call; None on a validate-only route."""
        way = self.way
        if way.route.kind == "validate":
            return None
        body = checked.arguments if way.alone else way.adapter.rewrite(self.raw, way.route.shape, checked)
        return way.outgoing(self.raw, self.hop_fields, checked.call.tool, body)

    def passthrough(self) -> UpstreamRequest:
        """What is sent for a request that is no call."""
        return self.way.outgoing(self.raw, self.hop_fields, "", self.raw.body)

"""A dry run: the route and the request that it is about, and a route that sends nothing.

`find_dry_target` finds them by the route's name, its path, or a request's method and target, whose query and path
parameters are then judged too. On a `DryRoute` a call is judged like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from proxy.core.contract.policy import ToolPolicy, UnknownTool
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Failure, Fields, Headers, RawRequest, UpstreamReply
from proxy.interfaces import CallAccess, QuerySources, UpstreamRequest
from proxy.routing.table import Match, MethodNotAllowed, Route, RouteTable

_CONVERSATION: Final = ("x-conversation-id", "dry-run")


@value_class
class DryTarget:
    """A route, and the method, path and query of a request for it."""

    route: Route
    method: str
    path: str
    query: str = field(default="", repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False)

    def request(self, body: bytes, params: Mapping[str, str], headers: Headers = ()) -> RawRequest:
        """The request with a body; `params` are further path parameters, `headers` replace the usual ones."""
        given = tuple((name.lower(), value) for name, value in headers)
        usual = (("content-type", self.route.form or "application/json"), _CONVERSATION)
        names = {name for name, _ in given}
        headers = Fields((*(each for each in usual if each[0] not in names), *given))
        return RawRequest(self.method, self.path, self.query, headers, body, {**self.params, **params}, "")


def find_dry_target(table: RouteTable, wanted: str, method: str = "") -> DryTarget | MethodNotAllowed | None:
    """Finds the route with this name or path, otherwise the route that takes a request for this target. `method` may be
    '' where the path has only one, or takes POST."""
    for route in table.routes:
        if wanted in (route.key, route.name, route.path) and (not method or method in route.methods):
            return DryTarget(route, method or _choose_likeliest(tuple(sorted(route.methods))), route.path)
    path, _, query = wanted.partition("?")
    match = table.match(method or "POST", path)
    if isinstance(match, MethodNotAllowed) and not method and len(set(match.methods) - {"HEAD", "OPTIONS"}) == 1:
        method = _choose_likeliest(match.methods)
        match = table.match(method, path)
    if isinstance(match, Match):
        return DryTarget(match.route, method or "POST", path, query, match.params)
    return match if isinstance(match, MethodNotAllowed) else None


def _choose_likeliest(methods: tuple[str, ...]) -> str:
    rest = [method for method in methods if method not in ("HEAD", "OPTIONS")]
    return "POST" if "POST" in rest or not rest else rest[0]


@value_class
class DryRoute:
    """Implements `CallRoute`: knows the tools and sends nothing, so the checked arguments come back."""

    tools: Mapping[str, ToolPolicy]
    headers: Headers = ()
    unknown: UnknownTool = field(default_factory=UnknownTool)
    peer: str = ""
    caller: str = ""
    calls: CallAccess | None = None

    def refuse_hidden(self, tool: str) -> Failure | None:  # noqa: ARG002 - the operator sees all tools
        return None

    def find_user_query(self, sources: QuerySources) -> str:  # noqa: ARG002
        return ""

    def can_forward_unknown(self, tool: str) -> bool:  # noqa: ARG002 - nothing is sent, whatever it is
        return False

    def request(self, checked: CheckedCall) -> UpstreamRequest | None:  # noqa: ARG002 - nothing is sent, whatever it is
        return None

    def find_complaint(self, checked: CheckedCall, reply: UpstreamReply) -> Failure | None:  # noqa: ARG002 - as above
        return None

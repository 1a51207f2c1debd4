"""Finds the route and the request of a dry run: by a route's name, its path, or a request's
method and target, whose query and path parameters are then judged too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.core.model.values import Headers, RawRequest
from proxy.routing.table import Match, MethodNotAllowed, Route, RouteTable

_CONVERSATION: Final = ("x-conversation-id", "dry-run")


@dataclass(frozen=True, slots=True)
class DryTarget:
    """A route and what a request for it says in its first line."""

    route: Route
    method: str
    path: str
    query: str = field(default="", repr=False)
    params: Mapping[str, str] = field(default_factory=dict, repr=False)

    def request(self, body: bytes, params: Mapping[str, str], headers: Headers = ()) -> RawRequest:
        """The request with a body; `params` are further path parameters, `headers` stand over the usual ones."""
        given = tuple((name.lower(), value) for name, value in headers)
        usual = (("content-type", self.route.form or "application/json"), _CONVERSATION)
        names = {name for name, _ in given}
        kept = tuple(each for each in usual if each[0] not in names)
        return RawRequest(self.method, self.path, self.query, (*kept, *given), body, {**self.params, **params}, "")


def find_dry_target(table: RouteTable, wanted: str, method: str = "") -> DryTarget | MethodNotAllowed | None:
    """The route of this name or path, else the one that takes a request for this target. `method` may be left out
    where the path has but one, or takes POST."""
    for route in table.routes:
        if wanted in (route.key, route.name, route.path) and (not method or method in route.methods):
            return DryTarget(route, method or _likeliest(tuple(sorted(route.methods))), route.path)
    path, _, query = wanted.partition("?")
    match = table.match(method or "POST", path)
    if isinstance(match, MethodNotAllowed) and not method and len(set(match.methods) - {"HEAD", "OPTIONS"}) == 1:
        method = _likeliest(match.methods)
        match = table.match(method, path)
    if isinstance(match, Match):
        return DryTarget(match.route, method or "POST", path, query, match.params)
    return match if isinstance(match, MethodNotAllowed) else None


def _likeliest(methods: tuple[str, ...]) -> str:
    rest = [method for method in methods if method not in ("HEAD", "OPTIONS")]
    return "POST" if "POST" in rest or not rest else rest[0]

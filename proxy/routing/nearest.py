"""Describes a request that no route takes, for the operator: its path, and the route that was probably meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.display.graphemes import cut, escape
from proxy.routing.table import MethodNotAllowed, RouteTable

# Characters of a path that are shown and compared, and routes that are compared: a search costs a millisecond at most.
_LONGEST: Final = 200
_MOST: Final = 100
_SIMILAR: Final = 0.6


def describe_unrouted(table: RouteTable, path: str, why_not: MethodNotAllowed | None) -> Mapping[str, str]:
    """The notes of a request with this path: the path, and the nearest route if one is similar. A route that only the
    method misses is the nearest."""
    notes = {"url.path": cut(escape(path), _LONGEST)}
    if why_not is not None:
        return notes | {"nearest_route": f"{'|'.join(why_not.methods)} {why_not.path}"}
    nearest = _find_nearest(table, path[:_LONGEST])
    return notes | ({"nearest_route": nearest} if nearest else {})


def _find_nearest(table: RouteTable, path: str) -> str:
    from difflib import get_close_matches  # imported here, because most processes never need it

    routes = {_fold(route.path): route for route in reversed(table.routes[:_MOST])}
    folded = _fold(path)
    near = [key for key in routes if folded and (key.endswith(folded) or folded.endswith(key or "//"))]
    near = near or get_close_matches(folded, routes, n=1, cutoff=_SIMILAR)
    if not near:
        return ""
    route = routes[near[0]]
    return f"{'|'.join(sorted(route.methods))} {route.path}" if route.methods else route.path


def _fold(path: str) -> str:
    return "/" + path.strip("/").lower() if path.strip("/") else ""

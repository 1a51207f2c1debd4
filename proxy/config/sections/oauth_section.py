"""Routes that stand beside MCP routes: the OAuth metadata of their servers (RFC 9728).

A client that is refused looks for `/.well-known/oauth-protected-resource` and the path of its server, and then for that
path alone. Both lead to the server, the second where the config has a single such server. Where the server's URL has a
path, the well-known one stands before it, as RFC 9728 section 3.1 has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from proxy.adapters.base import CallShape
from proxy.config.model import RouteEntry, UpstreamConfig

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


def make_metadata_routes(
    routes: tuple[RouteEntry, ...], upstreams: Mapping[str, UpstreamConfig]
) -> tuple[RouteEntry, ...]:
    """The routes for the metadata. A route that the config has for such a path goes before them."""
    remote = [route for route in routes if _has_metadata(route, upstreams)]
    written = {route.path for route in routes}
    added = [route for route in _metadata_routes(remote, upstreams) if route.path not in written]
    return tuple({route.path: route for route in reversed(added)}.values())


def _has_metadata(route: RouteEntry, upstreams: Mapping[str, UpstreamConfig]) -> bool:
    """Whether the server behind a route may ask its clients for tokens: not where the proxy itself asks for some."""
    upstream = upstreams.get(route.upstream)
    asks_here = route.policy.auth is not None and not route.policy.auth.forward
    return (
        route.mcp is not None
        and upstream is not None
        and bool(upstream.url)
        and "{" not in route.path
        and not asks_here
    )


def _metadata_routes(remote: Sequence[RouteEntry], upstreams: Mapping[str, UpstreamConfig]) -> Iterator[RouteEntry]:
    for route in remote:
        url = urlsplit(upstreams[route.upstream].url)
        base = url.path.rstrip("/") if url.scheme != "unix" else ""  # there the path is the socket's
        path, own = "" if route.path == "/" else route.path, base + route.upstream_path.removesuffix("/")
        yield _metadata_route(route, f"{WELL_KNOWN}{path}", f"{WELL_KNOWN}{own}")
    if len(remote) == 1 and remote[0].path != "/":
        yield _metadata_route(remote[0], WELL_KNOWN, WELL_KNOWN)


def _metadata_route(route: RouteEntry, path: str, target: str) -> RouteEntry:
    policy = replace(route.policy, auth=None)
    return RouteEntry(
        name=path,
        path=path,
        methods=("GET", "HEAD"),
        kind="passthrough",
        adapter="plain",
        shape=CallShape(),
        policy=policy,
        upstream=route.upstream,
        upstream_path=target,
        websocket=False,
        rewrites_resource=route.rewrites_resource,
        is_from_root=True,
    )

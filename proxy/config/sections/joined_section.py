"""Reads `servers` of an MCP route: several servers behind one path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from proxy.config.combinations import WrittenRoute
from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.mistakes import join_words, suggest_word
from proxy.config.model import JoinedServers, RouteEntry, ServerEntry, UpstreamConfig, find_default
from proxy.config.policies import Written
from proxy.config.sections.units import read_seconds, read_switch
from proxy.core.contract.listed_tools import LearnPolicy
from proxy.core.model.values import JsonValue

# How much of `mcp.wait` one server may take, so that a list without it still comes in time.
_SHARE: Final = 0.8


def read_joined(context: Context, route: WrittenRoute) -> JoinedServers | None:
    """The servers of a route, or None where it has one upstream."""
    if "servers" not in route.entry:
        return None
    written = route.entry["servers"]
    at = (*route.at, "servers")
    servers = tuple(_server(reveal(name), entry) for name, entry in written.items())
    for name, server in zip(written, servers, strict=True):
        _check_upstream(context, (*at, name), server, written[name])
    for one, other in _ambiguous(servers):
        message = f"the prefix {one.prefix!r} begins {other.prefix!r}, the one of server {other.name!r}"
        hint = "names could be read both ways: say `prefix` for one of them"
        context.mistake((*at, one.name), message, hint, key=True)
    said: Written = route.entry.get("mcp", {})
    wait = read_seconds(said["wait"]) if "wait" in said else find_default(LearnPolicy, "wait")
    return JoinedServers(servers, reveal(said.get("prefix", "always")) == "always", _SHARE * wait)


def _server(name: str, written: JsonValue) -> ServerEntry:
    entry = {"upstream": written} if isinstance(written, str) else written
    if not isinstance(entry, dict):
        raise AssertionError("the schema lets texts and mappings through")
    made: dict[str, Any] = {"path": reveal(entry["upstream_path"])} if "upstream_path" in entry else {}
    if "credentials" in entry:
        made["credentials"] = read_switch(entry["credentials"])
    return ServerEntry(
        name, reveal(entry.get("upstream", name)), prefix=reveal(entry.get("prefix", f"{name}_")), **made
    )


def _check_upstream(context: Context, at: tuple[str | int, ...], server: ServerEntry, written: JsonValue) -> None:
    known = context.names("upstreams")
    if server.upstream not in known:
        hint = suggest_word(server.upstream, known) or f"known: {join_words(known) or 'none'}"
        context.mistake(at, f"unknown upstream {server.upstream!r}", hint)
        return
    is_command = "command" in context.mapping("upstreams", server.upstream)
    if is_command and isinstance(written, dict) and "upstream_path" in written:
        message = "`upstream_path` has no effect: a command has no paths"
        context.mistake((*at, "upstream_path"), message, "drop it", key=True)


def _ambiguous(servers: tuple[ServerEntry, ...]) -> Iterator[tuple[ServerEntry, ServerEntry]]:
    for one in servers:
        for other in servers:
            if one is not other and other.prefix.startswith(one.prefix):
                yield one, other


def name_joined(route: WrittenRoute) -> str:
    """What the servers of a route are called together, in logs and metrics."""
    return f"servers of {route.name}"


def with_joined(upstreams: Mapping[str, UpstreamConfig], routes: Iterable[RouteEntry]) -> dict[str, UpstreamConfig]:
    """The upstreams, and for each route with several servers one that stands for all of them."""
    found = dict(upstreams)
    for route in routes:
        if route.joined is not None:
            servers = (replace(one, headers=upstreams[one.upstream].headers) for one in route.joined.servers)
            found[route.upstream] = UpstreamConfig(
                route.upstream, "", joined=replace(route.joined, servers=tuple(servers))
            )
    return found

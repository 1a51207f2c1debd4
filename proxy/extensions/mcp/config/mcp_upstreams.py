"""Reads the upstreams of MCP routes that do not lead to one server. `servers` are several MCP servers behind one path.
`operations` are tools of the catalogue whose calls are HTTP requests to one service.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.config.keys.upstream_keys import GUARD
from proxy.config.model import RouteEntry, ToolConfig, UpstreamConfig, find_default
from proxy.config.policies import Written
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.mcp.config.mcp_section import MCP_DEFAULTS, OWN_CHILD_DEFAULTS, note_refused_names
from proxy.extensions.mcp.config.model import (
    SERVER,
    UPSTREAM,
    Command,
    JoinedServers,
    ServedOperations,
    ServerEntry,
    find_mcp,
)
from proxy.extensions.mcp.core.listed_tools import LearnPolicy
from proxy.plugin import Context, join_words, read_seconds, read_switch, reveal, show_schema, suggest_word

if TYPE_CHECKING:
    from proxy.plugin import WrittenRoute

# --- reads `upstreams.NAME.command` -----------------------------------------------------------------------------------
# Keys that only an upstream with a URL can have.
_OF_CONNECTIONS: Final = frozenset({"pool", "tls", "headers", "buffer", "health"})


def read_process(context: Context, name: str, entry: Mapping[str, JsonValue]) -> UpstreamConfig:
    """Reads an upstream that the proxy starts as a process."""
    path = ("upstreams", name)
    for key in _OF_CONNECTIONS & entry.keys():
        context.mistake((*path, key), f"`{key}` has no effect beside `command`", "drop it", key=True)
    made: dict[str, Any] = UPSTREAM.read(entry)
    if "cwd" in entry:
        made["cwd"] = str((context.folder / made["cwd"]).resolve())
        if not Path(made["cwd"]).is_dir():
            hint = "paths start at the config file's folder"
            context.mistake((*path, "cwd"), f"there is no folder {reveal(entry['cwd'])!r}", hint)
    timeouts = entry.get("timeouts", {})
    response = (
        read_seconds(timeouts["response"])
        if "response" in timeouts
        else find_default(UpstreamConfig, "response_timeout")
    )
    return UpstreamConfig(name, "", response_timeout=response, guard=GUARD.read(entry), added=Command(**made))


# --- reads the upstreams of MCP routes that do not lead to one server -------------------------------------------------
# The share of `mcp.wait` that one server may take at most, so that a list without it still comes in time.
_SHARE: Final = 0.8


def read_joined(context: Context, route: WrittenRoute) -> JoinedServers | None:
    """Returns the servers of a route, or None if it has one upstream."""
    if "servers" not in route.entry:
        return None
    written = route.entry["servers"]
    at = (*route.at, "servers")
    servers = tuple(_read_server(reveal(name), entry) for name, entry in written.items())
    for name, server in zip(written, servers, strict=True):
        _check_upstream(context, (*at, name), server, written[name])
    for one, other in permutations(servers, 2):
        if other.prefix.startswith(one.prefix):
            message = f"the prefix {one.prefix!r} begins {other.prefix!r}, the one of server {other.name!r}"
            hint = "names could be read both ways: say `prefix` for one of them"
            context.mistake((*at, one.name), message, hint, key=True)
    prefixes = ((one.prefix, f"the prefix {one.prefix!r} of server {one.name!r}") for one in servers)
    note_refused_names(context, route.name, prefixes)
    mcp_keys: Written = route.entry.get("mcp", {})
    whole = read_seconds(mcp_keys["wait"]) if "wait" in mcp_keys else find_default(LearnPolicy, "wait")
    wait = read_seconds(mcp_keys["servers_wait"]) if "servers_wait" in mcp_keys else find_default(JoinedServers, "wait")
    return JoinedServers(servers, reveal(mcp_keys.get("prefix", "always")) == "always", min(wait, _SHARE * whole))


def choose_defaults(context: Context, route: WrittenRoute) -> Written:
    """The defaults of an MCP route. Calls have no time limit if each session has separate processes."""
    servers = route.entry.get("servers", {route.upstream: route.upstream})
    named = (server.get("upstream", name) if isinstance(server, dict) else server for name, server in servers.items())
    upstreams = [context.mapping("upstreams", reveal(name)) for name in named]
    own = all("command" in entry and not read_switch(entry.get("shared", False)) for entry in upstreams)
    return OWN_CHILD_DEFAULTS if own else MCP_DEFAULTS


def _read_server(name: str, written: JsonValue) -> ServerEntry:
    entry = {"upstream": written} if isinstance(written, str) else written
    if not isinstance(entry, dict):
        raise AssertionError("the schema lets texts and mappings through")
    return ServerEntry(**{"name": name, "upstream": name, "prefix": f"{name}_", **SERVER.read(entry)})


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


def name_joined(route: WrittenRoute) -> str:
    """The common name of a route's servers in logs and metrics."""
    return f"servers of {route.name}"


def add_joined(upstreams: Mapping[str, UpstreamConfig], routes: Iterable[RouteEntry]) -> dict[str, UpstreamConfig]:
    """Returns the upstreams, and for each route with several servers one that represents all of them."""
    found = dict(upstreams)
    for route in routes:
        mcp = find_mcp(route)
        # An upstream that has a mistake is not there.
        if mcp is not None and mcp.joined is not None and upstreams.keys() >= set(mcp.joined.parts):
            entries = (replace(one, headers=upstreams[one.upstream].headers) for one in mcp.joined.entries)
            found[route.upstream] = UpstreamConfig(
                route.upstream, "", added=replace(mcp.joined, entries=tuple(entries))
            )
    return found


# --- operations -------------------------------------------------------------------------------------------------------
# The defaults of MCP routes that apply here too. The others do not: the service is not an agent, and its statuses are
# HTTP's.
OPERATION_DEFAULTS: Final[Written] = {key: MCP_DEFAULTS[key] for key in ("limits", "conversation")}
ALL: Final = "all"
# Method -> annotations of its tool (RFC 9110 section 9.2, MCP `ToolAnnotations`).
_ANNOTATIONS: Final[Mapping[str, dict[str, JsonValue]]] = {
    "GET": {"readOnlyHint": True},
    "HEAD": {"readOnlyHint": True},
    "PUT": {"idempotentHint": True},
    "DELETE": {"destructiveHint": True, "idempotentHint": True},
}


def name_tools(context: Context, route: WrittenRoute, known: tuple[str, ...]) -> Iterator[tuple[str, Pointer]]:
    """The tools that `operations` names, each with the place of its name. Reports unknown names."""
    written = route.entry["operations"]
    at = (*route.at, "operations")
    if not known:
        context.mistake(at, "the catalogue `tools` is empty", "add the tools that may be called", key=True)
    elif not isinstance(written, list):
        yield from ((name, at) for name in known)
    else:
        for index, name in enumerate(map(reveal, written)):
            if name in known:
                yield name, (*at, index)
            else:
                hint = suggest_word(name, known) or f"known: {join_words(known)}"
                context.mistake((*at, index), f"unknown tool {name!r}", hint)


def read_operations(context: Context, route: WrittenRoute, tools: Mapping[str, ToolConfig]) -> dict[str, ToolConfig]:
    """The tools that the route serves as operations. Reports tools whose calls have no HTTP request."""
    written = route.entry["operations"]
    served = {name: tool for name, tool in tools.items() if tool.request is not None}
    if isinstance(written, list):
        for index, name in enumerate(map(reveal, written)):
            if name in tools and name not in served:
                hint = "add `request:`, or take its schema from an OpenAPI description"
                context.mistake(
                    (*route.at, "operations", index), f"nothing says which HTTP request a call of {name!r} is", hint
                )
    elif tools and not served:
        hint = "add `request:` to the tools of the catalogue, or take their schemas from an OpenAPI description"
        context.mistake((*route.at, "operations"), "no tool of the catalogue has an HTTP request", hint, key=True)
    return served


def describe_operations(route: WrittenRoute, tools: Mapping[str, ToolConfig]) -> ServedOperations:
    """The operations of a route as `tools/list` shows them."""
    return ServedOperations(route.upstream, {name: _describe(tool) for name, tool in tools.items()})


def _describe(tool: ToolConfig) -> dict[str, JsonValue]:
    method = tool.request.method if tool.request is not None else ""
    annotations = _ANNOTATIONS.get(method)
    return {
        "name": tool.name,
        **({"description": tool.description} if tool.description else {}),
        "inputSchema": _write_input_schema(tool),
        **({"annotations": annotations} if annotations else {}),
    }


def _write_input_schema(tool: ToolConfig) -> dict[str, JsonValue]:
    """The schema as every SDK reads it: an object whose properties are objects."""
    shown = (show_schema(tool.schema) if tool.schema is not None else None) or {}
    made: dict[str, JsonValue] = {"type": "object", **{key: item for key, item in shown.items() if key != "type"}}
    properties = made.get("properties")
    if isinstance(properties, dict):
        made["properties"] = {name: _make_object(schema) for name, schema in properties.items()}
    return made


def _make_object(schema: JsonValue) -> JsonValue:
    return {} if schema is True else {"not": {}} if schema is False else schema


def name_served(route: WrittenRoute) -> str:
    """The common name of a route's operations in logs and metrics."""
    return f"operations of {route.name}"


def add_operations(upstreams: Mapping[str, UpstreamConfig], routes: Iterable[RouteEntry]) -> dict[str, UpstreamConfig]:
    """Returns the upstreams, and for each route that serves operations one that represents all of them."""
    found = dict(upstreams)
    for route in routes:
        mcp = find_mcp(route)
        service = upstreams.get(mcp.operations.upstream) if mcp is not None and mcp.operations is not None else None
        if mcp is not None and service is not None:  # a service that has a mistake is not there
            found[route.upstream] = UpstreamConfig(
                route.upstream,
                "",
                response_timeout=service.response_timeout,
                idle_timeout=service.idle_timeout,
                headers=service.headers,
                added=mcp.operations,
            )
    return found

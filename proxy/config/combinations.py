"""Checks of a route's keys that contradict each other: one function per check, all listed in `CHECKS`.

A check looks at one written route and yields its findings as (path, message, hint). It never looks at another route,
nor at a tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from proxy.config.context import Context
from proxy.config.files.secrets import reveal
from proxy.config.keys.policy_keys import POLICY_KEYS
from proxy.config.mistakes import DROP_ONE, join_words, suggest_word
from proxy.config.policies import Written
from proxy.config.schemas import is_operation
from proxy.config.sections.top_level import NO_UPSTREAM
from proxy.core.model.values import Pointer
from proxy.plugin import AddsKeys, SpeaksProtocol
from proxy.plugins import find_plugins, list_keys

# A parameter is a whole segment: `/tools/{tool}`, but not `/tools/get-{tool}`.
PARAMETER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

Finding = tuple[Pointer, str, str]
# Yields what contradicts itself among a route's keys.
Check = Callable[[Context, "WrittenRoute"], Iterator[Finding]]

# The keys of a route whose requests a plugin relays.
_RELAYED_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_CALL_METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")
_OPERATION_METHODS: Final = (*_CALL_METHODS, "GET", "HEAD")

# Keys without a meaning on a route that checks no calls.
_JUDGING: Final = (
    "tool", "tools", "dispatch", "schema", "container", "description", "response_schema", "protocol", "query",
    *(key.name for key in POLICY_KEYS if not key.on_relay),
)  # fmt: skip


class WrittenRoute:
    """One route as written: its place in the config (`at`), its valid parts (`entry`) and its `path`.

    `name` is shown in logs and metrics. `protocol` is what its clients and its upstream speak; if it `is_listed`, a
    plugin speaks it, and the server lists the tools. `relay` is the plugin that answers its requests, and `relay_key`
    the key by which it does. If it `passes`, everything is relayed. `upstream` is a name, `none`, or ''. `path_at` is
    the path's place in the file. `parameters` are the names in braces in it, and `upstream_path` may have them.
    """

    def __init__(self, at: Pointer, entry: Written, path: str) -> None:
        self.at, self.entry, self.path = at, entry, path
        self.path_at: Pointer = (*at, "path") if "path" in entry else at
        self.parameters = find_parameters(path)
        self.name = reveal(entry.get("name", path))
        self.protocol = reveal(entry.get("protocol", "http"))
        self.upstream = reveal(entry.get("upstream", ""))
        self.upstream_path = reveal(entry.get("upstream_path", path))
        self.relay = next((each for each in find_plugins(SpeaksProtocol) if each.relay_key in entry), None)
        self.relay_key = self.relay.relay_key if self.relay is not None else ""
        self.passes = bool(entry.get("passthrough") or entry.get("relay") or self.relay_key)
        kind = find_protocol(self.protocol)
        self.is_listed = kind is not None
        usual = _RELAYED_METHODS if self.relay_key else ("POST",)
        self.methods: tuple[str, ...] = kind.methods if kind else tuple(map(reveal, entry.get("methods", usual)))


def find_protocol(protocol: str) -> SpeaksProtocol | None:
    """The plugin that speaks a protocol; None for the main job's own."""
    return next((each for each in find_plugins(SpeaksProtocol) if each.protocol == protocol), None)


def find_parameters(path: str) -> tuple[str, ...]:
    """The names in braces of a path, in order."""
    return tuple(found[1] for segment in path.split("/") if (found := PARAMETER.fullmatch(segment)))


def check_route(context: Context, route: WrittenRoute) -> None:
    """Reports every contradiction among one route's keys."""
    upstream = context.mapping("upstreams", route.upstream)
    written = route.entry.keys() | upstream.keys()
    added = [
        plugin.check_route
        for plugin in find_plugins(AddsKeys)
        if not written.isdisjoint(list_keys(plugin))
        or (isinstance(plugin, SpeaksProtocol) and plugin.protocol == route.protocol)
    ]
    for check in (*CHECKS, *added):
        for path, message, hint in check(context, route):
            context.mistake(path, message, hint, key=path != (*route.at, "path") and "methods" not in path)


def _check_path(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    yield from _check_braces(route.path, route.path_at, "as in `/tools/{tool}`")
    names = route.parameters
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield route.path_at, f"{{{name}}} is in the path twice", "give each segment its own name"
    segments = route.path.split("/")[1:]
    if {".", ".."} & set(segments) or "" in segments[:-1] or "%" in route.path:
        yield route.path_at, "the path is not in its plain form", "no empty segment, no '.', no '..', no %-escape"


def _check_braces(path: str, at: Pointer, hint: str) -> Iterator[Finding]:
    for segment in path.split("/"):
        if ("{" in segment or "}" in segment) and not PARAMETER.fullmatch(segment):
            yield at, f"{segment!r}: braces take a whole segment", hint


def _check_methods(context: Context, route: WrittenRoute) -> Iterator[Finding]:
    tool = context.mapping("tools", reveal(route.entry.get("tool", "")))
    schema = route.entry.get("schema", tool.get("schema"))
    takes_operation = "tool" in route.entry and ("request" in tool or is_operation(schema))
    known = _OPERATION_METHODS if takes_operation else _CALL_METHODS
    for index, method in enumerate(route.methods):
        if not route.passes and not route.is_listed and method not in known:
            hint = "calls come by POST; relay other requests with `passthrough: true`"
            yield (*route.at, "methods", index), f"{method} carries no call", hint


def _check_passthrough(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    if not route.passes:
        if "websocket" in route.entry:
            yield (*route.at, "websocket"), "only a passthrough route takes WebSockets", DROP_ONE
        if "lookalikes" in route.entry:
            yield (*route.at, "lookalikes"), "only a passthrough route has lookalikes of judged paths", DROP_ONE
        return
    usable = route.relay.relay_policy_keys if route.relay is not None else ()
    for key in (*_JUDGING, *(key for plugin in find_plugins(AddsKeys) for key in plugin.call_keys)):
        if key in route.entry and key not in usable:
            yield (*route.at, key), f"`{key}` has no effect on a passthrough route", DROP_ONE
    if route.upstream == NO_UPSTREAM:
        yield (*route.at, "upstream"), "a passthrough route needs an upstream", "name one of `upstreams`"


def _check_finalising(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    """Finds keys about tools' answers on routes without a tool, and `finalize_output_retries` on routes with one."""
    if route.passes or not route.upstream:
        return
    why = dict.fromkeys(("response_schema", "response_mode"), "no tool answers here")
    if route.upstream != NO_UPSTREAM:
        why = {"finalize_output_retries": "only a route with `upstream: none` finalises outputs"}
    for key in why.keys() & route.entry.keys():
        yield (*route.at, key), f"`{key}` has no effect: {why[key]}", DROP_ONE


def _check_tool(context: Context, route: WrittenRoute) -> Iterator[Finding]:
    if route.passes or route.is_listed:
        return
    names = {
        "`tool`": "tool" in route.entry,
        "`dispatch`": "dispatch" in route.entry,
        "`{tool}` in the path": "tool" in route.parameters,
    }
    ways = [words for words, there in names.items() if there]
    if len(ways) > 1:
        yield route.at, f"{' and '.join(ways)} both name the tool", "keep one of them"
    if not ways and not context.structure.has_mistake(route.at, "tool", "dispatch", "passthrough", "protocol"):
        hint = "add `tool: NAME`, `dispatch: {...}`, `{tool}` in the path, or `passthrough: true`"
        yield route.at, "nothing says which tool is called", hint
    if "tool" in route.entry and "tools" in route.entry:
        yield (*route.at, "tools"), "`tools` has no effect beside `tool`", DROP_ONE
    for key in ("schema", "response_schema", "container", "description", "aliases"):
        if key in route.entry and "tool" not in route.entry and ways:
            hint = f"put it into the catalogue: `tools: {{NAME: {{{key}: ...}}}}`"
            yield (*route.at, key), f"`{key}` on a route of many tools", hint


def _check_upstream_path(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    if "upstream_path" not in route.entry:
        return
    at = (*route.at, "upstream_path")
    if route.upstream == NO_UPSTREAM:
        yield at, "`upstream_path` has no effect with `upstream: none`", "drop it"
    yield from _check_braces(route.upstream_path, at, "as in `/api/{tool}`")
    known = {*route.parameters, *(() if route.passes or route.is_listed else ("tool",))}
    for name in find_parameters(route.upstream_path):
        if name not in known:
            hint = suggest_word(name, known) or f"known here: {join_words(sorted(known)) or 'none'}"
            yield at, f"{{{name}}} is not in the route's path", hint


def _check_query(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    """Checks that parameters are declared, and queries judged, only on routes that call one tool."""
    if route.passes or "tool" in route.entry:
        return
    if "parameters" in route.entry and not route.is_listed:
        at = (*route.at, "parameters")
        yield at, "`parameters` on a route of many tools", "give the tool a separate route"
    if reveal(route.entry.get("query", "")) in ("judge", "strict"):
        yield (*route.at, "query"), "nothing declares query parameters here", "say `query: refuse` or `forward`"


CHECKS: Final[tuple[Check, ...]] = (
    _check_path, _check_methods, _check_passthrough, _check_finalising, _check_tool, _check_query,
    _check_upstream_path,
)  # fmt: skip

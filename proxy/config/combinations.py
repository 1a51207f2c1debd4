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
from proxy.config.mistakes import join_words, suggest_word
from proxy.config.policies import Written
from proxy.config.sections.top_level import NO_UPSTREAM
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Pointer
from proxy.extensions import RELAY_KEYS, find_relay, find_route_kind, list_route_checks, load_place

# A parameter is a whole segment: `/tools/{tool}`, but not `/tools/get-{tool}`.
PARAMETER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

Finding = tuple[Pointer, str, str]
# Yields what contradicts itself among a route's keys.
Check = Callable[[Context, "WrittenRoute"], Iterator[Finding]]

# What a route takes whose requests an extension relays.
_RELAYED_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_CALL_METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")
_OPERATION_METHODS: Final = (*_CALL_METHODS, "GET", "HEAD")
DROP_ONE: Final = "drop one of them"

# Keys without a meaning on a route that checks no calls.
_JUDGING: Final = (
    "tool", "tools", "dispatch", "schema", "container", "description", "mode", "repair", "unknown_keys",
    "leaked_markup", "attempts", "caps", "feedback", "formats", "validation", "resend", "idempotent", "idempotency",
    "upstream_errors", "wrap_success", "response_schema", "response_mode", "finalize_output_retries", "correct",
    "protocol", "mcp", "servers", "operations", "query", "parameters",
)  # fmt: skip


@value_class
class WrittenRoute:
    """One route as written: its place in the config, its valid parts, its path and the parameters in it."""

    at: Pointer
    entry: Written
    path: str

    @property
    def passes(self) -> bool:
        """Whether the route relays everything."""
        return bool(self.entry.get("passthrough") or self.entry.get("relay") or self.relay_key)

    @property
    def relay_key(self) -> str:
        """The key by which an extension answers the route's requests; '' without one."""
        return next((key for key in RELAY_KEYS if key in self.entry), "")

    @property
    def protocol(self) -> str:
        """What the route's clients and its upstream speak."""
        return reveal(self.entry.get("protocol", "http"))

    @property
    def is_listed(self) -> bool:
        """Whether an extension speaks the route's protocol, so that its server lists the tools."""
        return find_route_kind(self.protocol) is not None

    @property
    def name(self) -> str:
        """The route's name in logs and metrics."""
        return reveal(self.entry.get("name", self.path))

    @property
    def upstream(self) -> str:
        """The name of the route's upstream, `none`, or ''."""
        return reveal(self.entry.get("upstream", ""))

    @property
    def upstream_path(self) -> str:
        """The path sent upstream, with its parameters in braces."""
        return reveal(self.entry.get("upstream_path", self.path))

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the route accepts."""
        kind = find_route_kind(self.protocol)
        if kind is not None:
            return kind.methods
        usual = _RELAYED_METHODS if self.relay_key else ("POST",)
        return tuple(map(reveal, self.entry.get("methods", usual)))

    @property
    def path_at(self) -> Pointer:
        """The place where the path is written."""
        return (*self.at, "path") if "path" in self.entry else self.at

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in braces of its path, in order."""
        return find_parameters(self.path)


def takes_operation(context: Context, route: WrittenRoute) -> bool:
    """Whether the route's requests are those of an HTTP operation."""
    tool = context.mapping("tools", reveal(route.entry.get("tool", "")))
    schema = route.entry.get("schema", tool.get("schema"))
    described = isinstance(schema, dict) and isinstance(schema.get("openapi"), str)
    return "tool" in route.entry and ("request" in tool or described)


def find_parameters(path: str) -> tuple[str, ...]:
    """The names in braces of a path, in order."""
    return tuple(found[1] for segment in path.split("/") if (found := PARAMETER.fullmatch(segment)))


def check_route(context: Context, route: WrittenRoute) -> None:
    """Reports every contradiction among one route's keys."""
    upstream = context.mapping("upstreams", route.upstream)
    added: list[Check] = [load_place(place) for place in list_route_checks(route.protocol, route.entry, upstream)]
    for check in (*CHECKS, *added):
        for path, message, hint in check(context, route):
            context.mistake(path, message, hint, key=path != (*route.at, "path") and "methods" not in path)


def _check_path(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    yield from _check_braces(route.path, route.path_at, "as in `/tools/{tool}`")
    names = route.parameters
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield route.path_at, f"{{{name}}} stands twice in the path", "give each segment its own name"
    segments = route.path.split("/")[1:]
    if {".", ".."} & set(segments) or "" in segments[:-1] or "%" in route.path:
        yield route.path_at, "the path is not in its plain form", "no empty segment, no '.', no '..', no %-escape"


def _check_braces(path: str, at: Pointer, hint: str) -> Iterator[Finding]:
    for segment in path.split("/"):
        if ("{" in segment or "}" in segment) and not PARAMETER.fullmatch(segment):
            yield at, f"{segment!r}: braces take a whole segment", hint


def _check_methods(context: Context, route: WrittenRoute) -> Iterator[Finding]:
    for index, method in enumerate(route.methods):
        known = _OPERATION_METHODS if takes_operation(context, route) else _CALL_METHODS
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
    usable = find_relay(route.relay_key)[1].other_keys if route.relay_key else ()
    for key in _JUDGING:
        if key in route.entry and key not in usable:
            yield (*route.at, key), f"`{key}` has no effect on a passthrough route", DROP_ONE
    if route.upstream == NO_UPSTREAM:
        yield (*route.at, "upstream"), "a passthrough route needs an upstream", "name one of `upstreams`"


def _check_finalising(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    """Finds keys about tools' answers on routes without a tool, and `finalize_output_retries` on routes with one."""
    if route.passes or not route.upstream:
        return
    sends = route.upstream != NO_UPSTREAM
    no_answer = "no tool answers here"
    why = (
        {"finalize_output_retries": "only a route with `upstream: none` finalises outputs"}
        if sends
        else {"response_schema": no_answer, "response_mode": no_answer}
    )
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
    hurt = any(context.structure.is_hurt((*route.at, key)) for key in ("tool", "dispatch", "passthrough", "protocol"))
    if not ways and not hurt:
        hint = "add `tool: NAME`, `dispatch: {...}`, `{tool}` in the path, or `passthrough: true`"
        yield route.at, "nothing says which tool is called", hint
    if "tool" in route.entry and "tools" in route.entry:
        yield (*route.at, "tools"), "`tools` has no effect beside `tool`", DROP_ONE
    for key in ("schema", "response_schema", "container", "description"):
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
        yield (
            (*route.at, "parameters"),
            "`parameters` on a route of many tools",
            "give the tool a route of its own",
        )
    if reveal(route.entry.get("query", "")) in ("judge", "strict"):
        yield (*route.at, "query"), "nothing declares query parameters here", "say `query: refuse` or `forward`"


CHECKS: Final[tuple[Check, ...]] = (
    _check_path,
    _check_methods,
    _check_passthrough,
    _check_finalising,
    _check_tool,
    _check_query,
    _check_upstream_path,
)

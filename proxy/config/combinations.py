"""Keys of a route that cannot be meant together: each check is a function, and `CHECKS` lists them all.

A check looks at one written route and yields what is wrong, as (path, message, hint). It never looks at another route
and never at a tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from proxy.config.context import Context
from proxy.config.mistakes import did_you_mean, one_of
from proxy.config.policies import Written
from proxy.config.secrets import reveal
from proxy.config.sections import NO_UPSTREAM
from proxy.core.model import Pointer

# A parameter is a whole segment: `/tools/{tool}`, not `/tools/get-{tool}`.
PARAMETER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")

Finding = tuple[Pointer, str, str]

# POST carries MCP's messages; GET opens the stream of old revisions, DELETE ends their sessions.
MCP_METHODS: Final = ("POST", "GET", "DELETE")
_CALL_METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")
_DROP_ONE: Final = "drop one of them"

# Keys that mean nothing on a route that judges nothing.
_JUDGING: Final = (
    "tool", "tools", "dispatch", "schema", "container", "description", "mode", "repair", "unknown_keys", "attempts",
    "caps", "feedback", "formats", "validation", "resend", "idempotent", "idempotency", "upstream_errors",
    "wrap_success", "response_schema", "response_mode", "finalize_output_retries", "correct",
    "protocol", "mcp",
)  # fmt: skip
# Keys that mean nothing where the message names the tool and MCP says how answers look.
_NOT_MCP: Final = (
    "tool", "tools", "dispatch", "schema", "container", "description", "methods", "envelope", "error_status",
    "wrap_success", "response_schema", "response_mode",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WrittenRoute:
    """One route as written: its place in the config, its right parts, its path and the parameters in it."""

    at: Pointer
    entry: Written
    path: str

    @property
    def passes(self) -> bool:
        """Whether it relays everything."""
        return bool(self.entry.get("passthrough"))

    @property
    def speaks_mcp(self) -> bool:
        """Whether its clients and its upstream speak MCP."""
        return self.entry.get("protocol") == "mcp"

    @property
    def name(self) -> str:
        """Its name in logs and metrics."""
        return reveal(self.entry.get("name", self.path))

    @property
    def upstream(self) -> str:
        """The name of its upstream, `none`, or ''."""
        return reveal(self.entry.get("upstream", ""))

    @property
    def upstream_path(self) -> str:
        """The path sent upstream, with its parameters in braces."""
        return reveal(self.entry.get("upstream_path", self.path))

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods it takes."""
        return MCP_METHODS if self.speaks_mcp else tuple(map(reveal, self.entry.get("methods", ("POST",))))

    @property
    def path_at(self) -> Pointer:
        """Where its path is written."""
        return (*self.at, "path") if "path" in self.entry else self.at

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in braces of its path, in order."""
        return parameters(self.path)


def parameters(path: str) -> tuple[str, ...]:
    """The names in braces of a path, in order."""
    return tuple(found[1] for segment in path.split("/") if (found := PARAMETER.fullmatch(segment)))


def check_route(context: Context, route: WrittenRoute) -> None:
    """Reports every combination of one route's keys that cannot be meant."""
    for check in CHECKS:
        for path, message, hint in check(context, route):
            context.mistake(path, message, hint, key=path != (*route.at, "path") and "methods" not in path)


def _path(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    yield from _braces(route.path, route.path_at, "as in `/tools/{tool}`")
    names = route.parameters
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield route.path_at, f"{{{name}}} stands twice in the path", "give each segment its own name"
    segments = route.path.split("/")[1:]
    if {".", ".."} & set(segments) or "" in segments[:-1] or "%" in route.path:
        yield route.path_at, "the path is not in its plain form", "no empty segment, no '.', no '..', no %-escape"


def _braces(path: str, at: Pointer, hint: str) -> Iterator[Finding]:
    for segment in path.split("/"):
        if ("{" in segment or "}" in segment) and not PARAMETER.fullmatch(segment):
            yield at, f"{segment!r}: braces take a whole segment", hint


def _methods(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    for index, method in enumerate(route.methods):
        if not route.passes and not route.speaks_mcp and method not in _CALL_METHODS:
            hint = "calls come by POST; relay other requests with `passthrough: true`"
            yield (*route.at, "methods", index), f"{method} carries no call", hint


def _passthrough(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    if not route.passes:
        if "websocket" in route.entry:
            yield (*route.at, "websocket"), "only a passthrough route takes WebSockets", _DROP_ONE
        return
    for key in _JUDGING:
        if key in route.entry:
            yield (*route.at, key), f"`{key}` has no effect on a passthrough route", _DROP_ONE
    if route.upstream == NO_UPSTREAM:
        yield (*route.at, "upstream"), "a passthrough route needs an upstream", "name one of `upstreams`"


def _finalising(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    """Keys for answers of a tool where no tool answers, and the other way round."""
    if route.passes or not route.upstream:
        return
    sends = route.upstream != NO_UPSTREAM
    why = {"finalize_output_retries": "only a route with `upstream: none` finalises outputs"} if sends else {}
    if not sends or route.entry.get("protocol") == "mcp":
        told = "MCP's tools tell it themselves (`mcp: {output_check: on}`)" if sends else "no tool answers here"
        why |= {"response_schema": told, "response_mode": told}
    for key in why.keys() & route.entry.keys():
        yield (*route.at, key), f"`{key}` has no effect: {why[key]}", _DROP_ONE


def _mcp(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    if not route.speaks_mcp:
        if "mcp" in route.entry:
            yield (*route.at, "mcp"), "`mcp` has no effect on this route", "say `protocol: mcp`, or drop it"
        return
    for key in _NOT_MCP:
        if key in route.entry:
            hint = "tools are listed by the server; what is special about one stands under `mcp: {tools: {NAME: ...}}`"
            yield (*route.at, key), f"`{key}` has no effect on an MCP route", hint
    if route.upstream == NO_UPSTREAM:
        yield (*route.at, "upstream"), "an MCP route needs an upstream", "name one of `upstreams`"
    for name in route.parameters:
        if name == "tool":
            yield route.path_at, "{tool} in the path of an MCP route", "the message names the tool"


def _which_tool(context: Context, route: WrittenRoute) -> Iterator[Finding]:
    if route.passes or route.speaks_mcp:
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
        yield (*route.at, "tools"), "`tools` has no effect beside `tool`", _DROP_ONE
    for key in ("schema", "response_schema", "container", "description"):
        if key in route.entry and "tool" not in route.entry and ways:
            hint = f"put it into the catalogue: `tools: {{NAME: {{{key}: ...}}}}`"
            yield (*route.at, key), f"`{key}` on a route of many tools", hint


def _upstream_path(_context: Context, route: WrittenRoute) -> Iterator[Finding]:
    if "upstream_path" not in route.entry:
        return
    at = (*route.at, "upstream_path")
    if route.upstream == NO_UPSTREAM:
        yield at, "`upstream_path` has no effect with `upstream: none`", "drop it"
    yield from _braces(route.upstream_path, at, "as in `/api/{tool}`")
    known = {*route.parameters, *(() if route.passes or route.speaks_mcp else ("tool",))}
    for name in parameters(route.upstream_path):
        if name not in known:
            hint = did_you_mean(name, known) or f"known here: {one_of(sorted(known)) or 'none'}"
            yield at, f"{{{name}}} is not in the route's path", hint


CHECKS: Final[tuple[Callable[[Context, WrittenRoute], Iterator[Finding]], ...]] = (
    _path,
    _methods,
    _passthrough,
    _mcp,
    _finalising,
    _which_tool,
    _upstream_path,
)

"""`RouteTable` is the compiled, immutable form of the config that serves requests.

`match(method, path)` costs the same with one route or ten thousand: a dict for exact paths, a trie over path segments
for templates. An exact path wins over a template. The path chooses the route, and the method is checked only then
(405), so that a call never falls through to another route.

Paths are percent-decoded once, segment by segment. A path that the proxy and the upstream could read differently
matches nothing. Such a path has an escaped slash, backslash or control character, `.` or `..`, an invalid escape, or
text that is not UTF-8. `Route.target` escapes parameters again, so that a parameter can never become two segments.

Some servers read a path more leniently: they ignore case, `;...`, and a dot, a blank or a slash at the end. No
parameter may become another path in that reading, and a passthrough template does not take another spelling of a judged
path (core/contract/spellings.py, `lookalikes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import quote, unquote_to_bytes

from proxy.adapters.base import CallShape
from proxy.config.model import Auth, Cors, PluginSettings, Policy, UpstreamConfig, find_default
from proxy.core.check.validation import Check
from proxy.core.contract.policy import BroughtTools, ListRules, Mode, ToolPolicy, UnknownTool
from proxy.core.contract.request_rules import OperationRule, QueryPolicy
from proxy.core.contract.spellings import JudgedPaths, Unclear, find_leaving, leaves_segment
from proxy.core.display.graphemes import cut, escape
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Failure, Fields, Headers, JsonValue, RawRequest, UpstreamReply
from proxy.interfaces import CallAccess, QuerySources, UpstreamRequest

# RFC 3986 section 3.3: what a path segment may hold unescaped besides letters, digits and "-._~". Servlet containers
# cut a segment at `;`, so where calls are judged it is escaped.
_SEGMENT_SAFE: Final = "!$&'()*+,;=:@"
_JUDGED_SAFE: Final = "!$&'()*+,=:@"
_ESCAPE: Final = re.compile("[0-9A-Fa-f]{2}")
# The parameter that holds the path below a relayed route, as it was sent.
BELOW: Final = ""


@value_class
class Route:
    """One configured route, compiled. `tools` holds the policy of every tool that may be called through it.

    `kind`: `call` judges and forwards, `validate` judges and answers the checked arguments (`upstream: none`),
    `passthrough` relays everything. `mode` and `unknown` are for calls whose tool is unknown. `upstream_path` may hold
    `{tool}` and the route's own path parameters. `learn` is set where the upstream lists its tools itself.
    `tool_timeouts`: tools that may take another time than `timeout` (seconds). `matrix`: path parameters with `;`.
    `operations`: the form of a tool's calls in HTTP requests, if they are more than a body. `key` is unique; several
    routes may share a name, which is their path, and differ in their methods. `asks_caller`: the services' `access`
    admits its requests; `keeps_token`: a token that came does not go on. `relayed_by`: the extension that answers a
    route of kind `passthrough`, which then takes every path below its own; `brought` holds for the tools that its
    requests bring along. `rewritten_by`: as in `RouteEntry`. `is_from_root`: the path of the upstream's URL does not
    go before `upstream_path`.
    """

    name: str
    path: str
    methods: frozenset[str]
    kind: Literal["call", "validate", "passthrough"]
    adapter: str = "plain"
    shape: CallShape = field(default_factory=CallShape)
    tools: Mapping[str, ToolPolicy] = field(default_factory=dict)
    upstream: str = ""
    upstream_path: str = ""
    envelope: str = find_default(Policy, "envelope")
    error_status: Literal["category", "ok"] = find_default(Policy, "error_status")
    detail: Literal["compact", "full"] = find_default(Policy, "detail")
    mode: Mode = field(default=find_default(Policy, "mode"))
    unknown: UnknownTool = field(default_factory=UnknownTool)
    max_body: int = find_default(Policy, "max_body")
    asks_caller: bool = False
    keeps_token: bool = False
    timeout: float = 30.0
    tool_timeouts: Mapping[str, float] = field(default_factory=dict)
    headers_set: Headers = field(default=(), repr=False)
    headers_remove: frozenset[str] = frozenset()
    auth: Auth | None = None
    cors: Cors | None = None
    websocket: bool = False
    learn: ListRules | None = None
    idle_timeout: float = find_default(UpstreamConfig, "idle_timeout")
    query_policy: QueryPolicy = QueryPolicy.FORWARD
    lookalikes: Literal["refuse", "pass"] = "refuse"
    rewritten_by: PluginSettings | None = None
    is_from_root: bool = False
    matrix: frozenset[str] = frozenset()
    operations: Mapping[str, OperationRule] = field(default_factory=dict, repr=False)
    relayed_by: PluginSettings | None = None
    brought: BroughtTools | None = None
    key: str = ""

    @property
    def form(self) -> str:
        """The media type of the form that is taken in place of JSON, '' for none."""
        operation = self.shape.operation
        return operation.template.body if operation is not None and not operation.template.has_json else ""

    @property
    def forwards_unjudged_query(self) -> bool:
        """Returns whether the route judges calls and forwards their query unjudged."""
        return self.kind == "call" and self.query_policy is QueryPolicy.FORWARD

    def timeout_for(self, tool: str) -> float:
        """The upstream's time to answer a call of `tool`, in seconds."""
        return self.tool_timeouts.get(tool, self.timeout)

    def target(self, params: Mapping[str, str], tool: str = "") -> str:
        """The path to send upstream, with each parameter escaped into one segment.

        Takes the decoded path parameters of the match and the tool's name. Raises ValueError for '', '.' and '..',
        which would change the path.
        """
        if self.relayed_by is not None:
            return self.upstream_path.rstrip("/") + params[BELOW]
        if "{" not in self.upstream_path:
            return self.upstream_path
        values, segments = {**params, "tool": tool} if tool else params, self.upstream_path.split("/")
        for place, segment in enumerate(segments):
            if segment.startswith("{"):
                name = segment[1:-1]
                if (value := values[name]) in ("", ".", ".."):
                    raise ValueError(f"{value!r} is not legal in a path")
                is_free = self.kind == "passthrough" or name in self.matrix
                segments[place] = quote(value, safe=_SEGMENT_SAFE if is_free else _JUDGED_SAFE)
        return "/".join(segments)


@value_class
class Match:
    """The route of a request, and its decoded path parameters."""

    route: Route
    params: Mapping[str, str] = field(default_factory=dict)


@value_class
class MethodNotAllowed:
    """A known path, but no route for the method. `methods` is what the `Allow` header lists, sorted; `path` is the
    path of the first of its routes, as configured."""

    methods: tuple[str, ...]
    path: str


@value_class
class LeftOutOperation:
    """An operation of the service that is neither judged nor relayed, and why."""

    why: str


@dataclass(slots=True)
class _Node:
    """A place in the trie: children by literal segment, the child for any segment, and the routes that end here."""

    literal: dict[str, _Node] = field(default_factory=dict)
    any_segment: _Node | None = None
    ends: list[tuple[Route, tuple[str, ...]]] = field(default_factory=list)


class RouteTable:
    """All routes. Immutable: a reload makes a new table and replaces the reference."""

    def __init__(self, routes: tuple[Route, ...], left_out: RouteTable | None = None) -> None:
        self.routes = routes
        self.left_out = left_out
        self._judged = JudgedPaths(routes)
        self._exact: dict[str, list[Match]] = {}
        self._root = _Node()
        self._relayed = sorted((r for r in routes if r.relayed_by is not None), key=lambda route: -len(route.path))
        for route in routes:
            if route.relayed_by is None and "{" in route.path:
                node, names = self._root, []
                for segment in route.path.split("/")[1:]:
                    if segment.startswith("{"):
                        names.append(segment[1:-1])
                        node.any_segment = node.any_segment or _Node()
                        node = node.any_segment
                    else:
                        node = node.literal.setdefault(segment, _Node())
                node.ends.append((route, tuple(names)))
            elif route.relayed_by is None:
                self._exact.setdefault(route.path, []).append(Match(route))

    def match(self, method: str, path: str) -> Match | MethodNotAllowed | Unclear | LeftOutOperation | None:
        """The route of a request, by method and the path as it was sent (no query). None: no route has this path."""
        found = self._find(method, path)
        if self.left_out is None or isinstance(found, Match | Unclear):
            return found
        left = self.left_out.match(method, path)
        return LeftOutOperation(left.route.name) if isinstance(left, Match) else found

    def _find(self, method: str, path: str) -> Match | MethodNotAllowed | Unclear | None:
        if (exact := self._exact.get(path)) is not None:
            return _choose(method, exact)
        # A path that servers could read differently has no segments here.
        decoded = tuple(map(_decode, path.split("/")[1:])) if path.startswith("/") else (None,)
        segments = tuple(segment for segment in decoded if segment is not None)
        if len(segments) < len(decoded):
            return None
        if "%" in path and (exact := self._exact.get("/" + "/".join(segments))) is not None:
            return _choose(method, exact)
        for node, values in walk_trie(self._root, segments):
            if node.ends:
                matches = [Match(route, dict(zip(names, values, strict=True))) for route, names in node.ends]
                chosen = _choose(method, matches)
                return self._clear_match(method, segments, chosen) if isinstance(chosen, Match) else chosen
        return self._find_relayed(method, path, segments)

    def _find_relayed(
        self, method: str, path: str, segments: tuple[str, ...]
    ) -> Match | MethodNotAllowed | Unclear | None:
        """The relayed route above a path that no other route has; the longest goes first."""
        if any(leaves_segment(segment, judged=False) for segment in segments):
            return None
        for route in self._relayed:
            base = route.path.rstrip("/")
            if path != base and not path.startswith(f"{base}/"):
                continue
            chosen = _choose(method, [Match(route, {BELOW: path[len(base) :]})])
            return self._clear_match(method, segments, chosen) if isinstance(chosen, Match) else chosen
        return None

    def _clear_match(self, method: str, segments: tuple[str, ...], match: Match) -> Match | Unclear:
        """The match of a template, unless a lenient server could take the path for another one."""
        route = match.route
        exempt = {BELOW, *route.matrix}  # the path below a relayed route was split into its segments
        if name := find_leaving(match.params, exempt, judged=route.kind != "passthrough"):
            return Unclear.parameter(name)
        if route.kind == "passthrough" and route.lookalikes == "refuse" and self._judged:
            target = route.target(match.params)
            if reached := self._judged.list_reached(segments, route.upstream, target, {method}):
                return Unclear.lookalike(reached[0])
        return match


def walk_trie(
    node: _Node, segments: tuple[str, ...], values: tuple[str, ...] = ()
) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    """Every place in the trie where the segments end, literal ones before parameters, with the parameters' values."""
    if not segments:
        yield node, values
        return
    first, rest = segments[0], segments[1:]
    if (child := node.literal.get(first)) is not None:
        yield from walk_trie(child, rest, values)
    if node.any_segment is not None and first:
        yield from walk_trie(node.any_segment, rest, (*values, first))


def _choose(method: str, matches: list[Match]) -> Match | MethodNotAllowed:
    """The route for the method among the routes of one path."""
    for match in matches:
        if method in match.route.methods:
            return match
    methods = tuple(sorted({allowed for match in matches for allowed in match.route.methods}))
    return MethodNotAllowed(methods, matches[0].route.path)


def _decode(segment: str) -> str | None:
    if "%" not in segment:
        text = segment
    elif not all(_ESCAPE.match(part) for part in segment.split("%")[1:]):
        return None
    else:
        try:
            text = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError:
            return None
    if text in (".", "..") or any(character in "/\\\x7f" or character < " " for character in text):
        return None
    return text


# --- A dry run --------------------------------------------------------------------------------------------------------
# A dry run: the route and the request that it is about, and a route that sends nothing.
#
# `find_dry_target` finds them by the route's name, its path, or a request's method and target, whose query and path
# parameters are then judged too. On a `DryRoute` a call is judged like any other.

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
    '' if the path has only one, or takes POST."""
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

    def find_answer_check(self, tool: str) -> Check | None:  # noqa: ARG002 - nothing is answered
        return None

    def make_message(self, result: dict[str, JsonValue]) -> dict[str, JsonValue] | None:  # noqa: ARG002 - as above
        return None


# --- paths near an unknown one ----------------------------------------------------------------------------------------
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

"""Config -> RouteTable: the compiled, immutable picture of what is served.

`match(method, path)` costs the same with one route or ten thousand: a dict for exact paths, a trie over path segments
for templates. An exact path goes before a template; the path chooses the route, and only then the method is looked at
(405), so that a call never falls through to another route.

Paths are percent-decoded once, segment by segment. What could mean one thing here and another at the upstream is no
path of ours: an escaped slash, backslash or control character, `.` and `..`, invalid escapes, anything but UTF-8.
`Route.target` escapes parameters again, so that a parameter can never become two segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import quote, unquote_to_bytes

from proxy.adapters.base import CallShape
from proxy.config.model import (
    Auth,
    Config,
    Cors,
    HeaderChanges,
    Mcp,
    Policy,
    RouteEntry,
    RouteKind,
    Tool,
    Upstream,
    default_of,
)
from proxy.config.policies import fingerprint_parts, repair_policy
from proxy.config.schemas import fingerprint
from proxy.config.secrets import reveal
from proxy.config.units import switch
from proxy.core.learned import LearnPolicy, Overlay
from proxy.core.model import ABSENT, Container, FeedbackLimits, Headers
from proxy.core.policy import AnswerPolicy, Mode, ToolPolicy
from proxy.core.secrets import sensitive_names
from proxy.core.validation import Check

# RFC 3986 section 3.3: what a path segment may hold unescaped besides letters, digits and "-._~".
_SEGMENT_SAFE: Final = "!$&'()*+,;=:@"


@dataclass(frozen=True, slots=True)
class Route:
    """One configured route, compiled. `tools` holds the policy of every tool that may be called through it.

    `kind`: `call` judges and forwards, `validate` judges and answers the checked arguments (`upstream: none`),
    `passthrough` relays everything. `mode` is that of calls whose tool is unknown. `upstream_path` may hold `{tool}`
    and the route's own path parameters. `learn` is set where the upstream lists its tools itself.
    `tool_timeouts` holds the tools that may take another time than `timeout` (seconds).
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
    envelope: str = default_of(Policy, "envelope")
    error_status: Literal["category", "ok"] = default_of(Policy, "error_status")
    mode: Mode = field(default=default_of(Policy, "mode"))
    max_body: int = default_of(Policy, "max_body")
    timeout: float = 30.0
    tool_timeouts: Mapping[str, float] = field(default_factory=dict)
    headers_set: Headers = field(default=(), repr=False)
    headers_remove: frozenset[str] = frozenset()
    query: tuple[tuple[str, str], ...] = ()
    auth: Auth | None = None
    cors: Cors | None = None
    websocket: bool = False
    learn: LearnPolicy | None = None
    idle_timeout: float = default_of(Upstream, "idle_timeout")

    def timeout_for(self, tool: str) -> float:
        """How long the upstream may take to answer a call of `tool`, in seconds."""
        return self.tool_timeouts.get(tool, self.timeout)

    def target(self, params: Mapping[str, str], tool: str = "") -> str:
        """The path to send upstream, each parameter escaped into one segment.

        Takes the decoded path parameters of the match and the tool's name. Raises ValueError for a value that no
        segment can hold: '', '.' and '..' would change the path.
        """
        if "{" not in self.upstream_path:
            return self.upstream_path
        values = {**params, "tool": tool} if tool else params
        return "/".join(_filled(segment, values) for segment in self.upstream_path.split("/"))


def _filled(segment: str, values: Mapping[str, str]) -> str:
    if not segment.startswith("{"):
        return segment
    value = values[segment[1:-1]]
    if value in ("", ".", ".."):
        raise ValueError(f"{value!r} cannot stand in a path")
    return quote(value, safe=_SEGMENT_SAFE)


@dataclass(frozen=True, slots=True)
class Match:
    """The route of a request and its path parameters, decoded."""

    route: Route
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotAllowed:
    """A known path, but no route for the method. `methods` is what the `Allow` header lists, sorted."""

    methods: tuple[str, ...]


@dataclass(slots=True)
class _Node:
    """A place in the trie: the children by literal segment, the child of any segment, and what ends here."""

    literal: dict[str, _Node] = field(default_factory=dict)
    any_segment: _Node | None = None
    ends: list[tuple[Route, tuple[str, ...]]] = field(default_factory=list)


class RouteTable:
    """All routes. Immutable once made: a reload makes a new one and swaps the reference."""

    def __init__(self, routes: tuple[Route, ...]) -> None:
        self.routes = routes
        self._exact: dict[str, list[Match]] = {}
        self._root = _Node()
        for route in routes:
            if "{" in route.path:
                _insert(self._root, route)
            else:
                self._exact.setdefault(route.path, []).append(Match(route))

    def match(self, method: str, path: str) -> Match | NotAllowed | None:
        """The route of a request, by method and the path as it was sent (no query). None: no route has this path."""
        if (exact := self._exact.get(path)) is not None:
            return _chosen(method, exact)
        segments = _segments(path)
        if segments is None:
            return None
        if "%" in path and (exact := self._exact.get("/" + "/".join(segments))) is not None:
            return _chosen(method, exact)
        for node, values in walk(self._root, segments):
            if node.ends:
                matches = [Match(route, dict(zip(names, values, strict=True))) for route, names in node.ends]
                return _chosen(method, matches)
        return None


def walk(
    node: _Node, segments: tuple[str, ...], values: tuple[str, ...] = ()
) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    """Every place in the trie where the segments end, literal ones before parameters, with the parameters' values."""
    if not segments:
        yield node, values
        return
    first, rest = segments[0], segments[1:]
    if (child := node.literal.get(first)) is not None:
        yield from walk(child, rest, values)
    if node.any_segment is not None and first:
        yield from walk(node.any_segment, rest, (*values, first))


def _insert(root: _Node, route: Route) -> None:
    node, names = root, []
    for segment in route.path.split("/")[1:]:
        if segment.startswith("{"):
            names.append(segment[1:-1])
            node.any_segment = node.any_segment or _Node()
            node = node.any_segment
        else:
            node = node.literal.setdefault(segment, _Node())
    node.ends.append((route, tuple(names)))


def _chosen(method: str, matches: list[Match]) -> Match | NotAllowed:
    """The one of a path's routes that takes the method."""
    for match in matches:
        if method in match.route.methods:
            return match
    return NotAllowed(tuple(sorted({allowed for match in matches for allowed in match.route.methods})))


def _segments(path: str) -> tuple[str, ...] | None:
    """The decoded segments of a path, or None where it is not one that everybody reads the same way."""
    if not path.startswith("/"):
        return None
    decoded = tuple(_decoded(segment) for segment in path.split("/")[1:])
    return None if None in decoded else tuple(segment for segment in decoded if segment is not None)


def _decoded(segment: str) -> str | None:
    if "%" not in segment:
        text = segment
    elif any(not _is_escape(part) for part in segment.split("%")[1:]):
        return None
    else:
        try:
            text = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError:
            return None
    if text in (".", "..") or any(character in "/\\\x7f" or character < " " for character in text):
        return None
    return text


def _is_escape(part: str) -> bool:
    return len(part) >= 2 and all(digit in "0123456789abcdefABCDEF" for digit in part[:2])


# --- Config -> Route --------------------------------------------------------------------------------------------------
def build_routes(config: Config) -> RouteTable:
    """Compiles a loaded config. Does not fail: what could be wrong, `config.load` has reported."""
    containers = _members(config)
    return RouteTable(tuple(_route(entry, config, containers) for entry in config.routes))


def _members(config: Config) -> dict[str, Container]:
    """Function name -> the container that wants to be expanded before it is called."""
    found: dict[str, Container] = {}
    for entry in config.routes:
        for tool in entry.tools.values():
            if tool.container is not None and tool.container.require_expansion:
                found |= {function.name: tool.container for function in tool.container.functions}
    return found


def _route(entry: RouteEntry, config: Config, containers: Mapping[str, Container]) -> Route:
    upstream = config.upstreams.get(entry.upstream)
    inherited = upstream.headers if upstream else HeaderChanges()
    own = entry.policy.headers
    changed = {**dict(inherited.set), **dict(own.set)}
    timeout = entry.policy.timeout
    if timeout is None:
        timeout = upstream.response_timeout if upstream else default_of(Route, "timeout")
    return Route(
        name=entry.name,
        path=entry.path,
        methods=frozenset(entry.methods),
        kind=entry.kind,
        adapter=entry.adapter,
        shape=entry.shape,
        tools={name: _policy(tool, containers.get(name), entry.kind) for name, tool in entry.tools.items()},
        upstream=entry.upstream,
        upstream_path=entry.upstream_path,
        envelope=entry.policy.envelope,
        error_status=entry.policy.error_status,
        mode=entry.policy.mode,
        max_body=entry.policy.max_body,
        timeout=timeout,
        tool_timeouts={
            name: tool.policy.timeout
            for name, tool in (entry.mcp.tools if entry.mcp is not None else entry.tools).items()
            if tool.policy.timeout not in (None, timeout)
        },
        headers_set=tuple((name, reveal(value)) for name, value in changed.items()),
        headers_remove=inherited.remove | own.remove,
        query=config.correction.query if config.correction is not None else (),
        auth=entry.policy.auth,
        cors=entry.policy.cors,
        websocket=entry.websocket and entry.kind == "passthrough",
        learn=_learn(entry.mcp) if entry.mcp is not None else None,
        idle_timeout=upstream.idle_timeout if upstream else default_of(Route, "idle_timeout"),
    )


def _learn(entry: Mcp) -> LearnPolicy:
    """What the operator says of tools that are listed by their server."""
    template = entry.template
    everything = Tool("", "", None, None, template, entry.written)
    overlays = {
        name: Overlay(
            _policy(tool, None, "call"),
            entry.patches.get(name, ABSENT),
            switch(tool.written.get("validation", True)),
        )
        for name, tool in entry.tools.items()
    }
    return LearnPolicy(
        _policy(everything, None, "call"),
        overlays,
        caps={name: template.caps.of(name) for name in template.caps.overrides},
        formats=template.formats,
        unknown_schema=entry.unknown_schema,
        on_bad_schema=entry.on_bad_schema,
        trust_annotations=entry.trust_annotations,
        output_check=entry.output_check,
        collapse=entry.collapse,
        collapse_description=entry.collapse_description,
        credentials=entry.credentials,
        ttl=entry.ttl,
        wait=entry.wait,
    )


def _policy(tool: Tool, member_of: Container | None, kind: RouteKind) -> ToolPolicy:
    policy, schema, attempts = tool.policy, tool.schema, tool.policy.attempts
    finalising = kind == "validate"
    if finalising and policy.finalize_output_retries is not None:
        attempts = replace(attempts, max_attempts=1 + policy.finalize_output_retries)
    return ToolPolicy(
        tool=tool.name,
        check=schema.check if schema else None,
        fingerprint=_fingerprint(tool),
        schema_id=schema.schema_id if schema else "",
        description=tool.description,
        mode=policy.mode,
        unknown_keys=policy.unknown_keys,
        repair=repair_policy(policy.repair),
        text=policy.text,
        feedback=_feedback(policy.feedback, schema.check if schema else None),
        attempts=attempts,
        cap=policy.caps.of(tool.name),
        container=tool.container,
        member_of=member_of,
        resend=policy.resend,
        upstream_errors=policy.upstream_errors,
        wrap_success=policy.wrap_success,
        correction=policy.correction,
        answer=_answer(tool),
        finalising=finalising,
    )


def _answer(tool: Tool) -> AnswerPolicy | None:
    enforce = tool.policy.response_mode is Mode.ENFORCE
    return None if tool.answer is None else AnswerPolicy(tool.answer.check, enforce)


def _feedback(limits: FeedbackLimits, check: Check | None) -> FeedbackLimits:
    """The bounds of answers, with the names that the schema marks as secret."""
    return limits if check is None else replace(limits, secret_names=sensitive_names(check.schemas))


def _fingerprint(tool: Tool) -> str:
    """A hash of all that decides a call of this tool: the policy as written, the schema, the container."""
    return fingerprint(
        {
            "policy": fingerprint_parts(tool.written),
            "schema": tool.schema.schema_id if tool.schema else None,
            "container": repr(tool.container),
        }
    )

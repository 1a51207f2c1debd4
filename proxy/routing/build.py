"""Compiles a loaded config into a `RouteTable`. Never fails: `config.load` has reported every mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from proxy.config.files.secrets import reveal
from proxy.config.model import (
    Config,
    HeaderChanges,
    Policy,
    RouteEntry,
    RouteKind,
    ToolConfig,
    UpstreamConfig,
    find_default,
)
from proxy.config.policies import make_repair_policy, select_fingerprint
from proxy.config.schemas import hash_value
from proxy.core.contract.policy import (
    AnswerPolicy,
    AttemptsPolicy,
    BroughtTools,
    ListRules,
    Mode,
    ToolPolicy,
    UnknownTool,
    list_policy_values,
)
from proxy.core.contract.request_rules import ChannelJudge, OperationRule
from proxy.core.display.secrets import find_sensitive_names
from proxy.core.model.values import Container
from proxy.plugin import ExtendsCalls
from proxy.plugins import find_pinned, find_plugins, find_requests
from proxy.routing.table import Route, RouteTable


def build_routes(config: Config) -> RouteTable:
    """Compiles the routes of a loaded config."""
    containers = {  # function name -> the container that must be expanded before the function is called
        function.name: tool.container
        for entry in config.routes
        for tool in entry.tools.values()
        if tool.container is not None and tool.container.require_expansion
        for function in tool.container.functions
    }
    routes = [_build_route(entry, key, config, containers) for key, entry in name_routes(config)]
    tools = [tool for entry in config.routes for tool in (entry.listed or entry).tools.values()]
    held = {id(tool.schema.check) for tool in tools if tool.request is not None and tool.schema is not None}
    for schema in [schema for tool in tools for schema in (tool.schema, tool.answer) if schema is not None]:
        if id(schema.check) not in held:  # an operation holds nodes of its schema's graph
            schema.check.rest()
    left_out = [
        Route(each.why, each.path, frozenset(each.methods), "passthrough", upstream_path=each.path, lookalikes="pass")
        for each in config.left_out
    ]
    return RouteTable(tuple(routes), RouteTable(tuple(left_out)) if left_out else None)


def name_routes(config: Config) -> Iterator[tuple[str, RouteEntry]]:
    """The routes of a config, each with the key that no other one has."""
    taken: set[str] = set()
    for entry in (*config.routes, *config.metadata_routes):
        key = entry.name if entry.name not in taken else f"{','.join(entry.methods)} {entry.name}"
        taken.add(key)
        yield key, entry


# The fields of a route that its entry, and its policy, say as they are.
_OF_ENTRY: Final = (
    "name", "path", "kind", "adapter", "upstream", "upstream_path", "lookalikes", "rewritten_by", "is_from_root",
    "relayed_by",
)  # fmt: skip
_OF_POLICY: Final = ("envelope", "error_status", "detail", "mode", "max_body", "auth", "cors")


def _build_route(entry: RouteEntry, key: str, config: Config, containers: Mapping[str, Container]) -> Route:
    upstream, policy, operations = config.upstreams.get(entry.upstream), entry.policy, _bind_operations(entry)
    inherited, own = upstream.headers if upstream else HeaderChanges(), policy.headers
    headers_set = (dict(inherited.set) | dict(own.set)).items()
    timeout, tool_timeouts = _find_timeouts(entry, upstream)
    pinned = find_pinned(config, entry.name)  # an operation that is not defined as approved may not be called
    withholds = pinned is not None and pinned.changed != "warn" and bool(pinned.unpinned)
    asks_caller = any(not policy.added.keys().isdisjoint(each.asks_callers) for each in find_plugins(ExtendsCalls))
    shape, brought = entry.shape, None
    if entry.adapter == "http" and shape.tool is not None:
        shape = replace(shape, operation=operations[shape.tool])
    if entry.relayed_by is not None:
        brought = BroughtTools(_build_policy(ToolConfig("", "", None, None, policy, {}), None), policy.formats)
    same: dict[str, Any] = {name: getattr(entry, name) for name in _OF_ENTRY}
    same |= {name: getattr(policy, name) for name in _OF_POLICY}
    return Route(
        **same,
        key=key,
        methods=frozenset(entry.methods),
        shape=shape,
        operations=operations,
        tools={n: _build_policy(tool, operations.get(n), entry, containers.get(n)) for n, tool in entry.tools.items()},
        unknown=UnknownTool(_choose_attempts(policy, entry.kind), policy.feedback),
        timeout=timeout,
        tool_timeouts=tool_timeouts,
        headers_set=tuple((name, reveal(value)) for name, value in headers_set),
        headers_remove=inherited.remove | own.remove,
        asks_caller=asks_caller or withholds,
        keeps_token=any(getattr(each, "keeps_token", False) for each in policy.added.values()),
        websocket=entry.websocket and entry.kind == "passthrough",
        learn=_build_rules(entry, config, operations),
        idle_timeout=upstream.idle_timeout if upstream else find_default(Route, "idle_timeout"),
        query_policy=entry.query,
        brought=brought,
        matrix=entry.channels.matrix if entry.channels else frozenset().union(*(o.matrix for o in operations.values())),
    )


def _find_timeouts(entry: RouteEntry, upstream: UpstreamConfig | None) -> tuple[float, dict[str, float]]:
    """The seconds that a tool may take, and those of the tools that may take another time."""
    usual = entry.policy.timeout
    if usual is None:
        usual = upstream.response_timeout if upstream else find_default(Route, "timeout")
    tools = entry.listed.tools if entry.listed is not None else entry.tools
    timeouts = ((name, tool.policy.timeout) for name, tool in tools.items())
    return usual, {name: timeout for name, timeout in timeouts if timeout is not None and timeout != usual}


def _bind_operations(entry: RouteEntry) -> dict[str, OperationRule]:
    """Returns tool -> the form of its calls in HTTP requests, if they are more than a body."""
    by_name, plugin = entry.adapter != "http", find_requests()
    if plugin is None:
        return {}
    return {
        name: plugin.bind(tool.request, tool.schema.check if tool.schema else None, by_name=by_name, query=entry.query)
        for name, tool in (entry.listed.tools if entry.listed is not None else entry.tools).items()
        if tool.request is not None and entry.kind == "call"
    }


def _build_rules(entry: RouteEntry, config: Config, operations: Mapping[str, OperationRule]) -> ListRules | None:
    """Returns the operator's rules for tools that a server lists, or that are `operations`; None for other routes."""
    if entry.listed is None:
        return None
    rules = entry.listed.make_rules(lambda tool: _build_policy(tool, operations.get(tool.name)))
    pinned = find_pinned(config, entry.name)
    return rules if pinned is None else rules.pin(pinned)


# RFC 9110 section 9.2.1 and RFC 5789: methods that only read, and methods that change or remove something.
_READING: Final = frozenset({"GET", "HEAD"})
_CHANGING: Final = frozenset({"PATCH", "PUT", "DELETE"})


def _build_policy(
    tool: ToolConfig, operation: OperationRule | None, entry: RouteEntry | None = None, member: Container | None = None
) -> ToolPolicy:
    """The policy of a tool of a route's `entry`; without one, of a tool that a server lists or a request brings."""
    policy, schema = tool.policy, tool.schema
    kind, channels = (entry.kind, entry.channels) if entry else ("call", None)
    methods = (set(entry.methods) if entry else set(), {operation.template.method} if operation else set())
    feedback = policy.feedback
    if schema:
        feedback = replace(feedback, secret_names=find_sensitive_names(schema.check.schemas))
    values = list_policy_values(policy) | {
        "feedback": feedback,
        "attempts": _choose_attempts(policy, kind),
        "wrap_success": policy.wrap_success and entry is not None,  # an answer of MCP has its own form
    }
    return ToolPolicy(
        tool=tool.name,
        check=schema.check if schema else None,
        fingerprint=_hash_tool(tool, channels),
        schema_id=schema.schema_id if schema else "",
        description=tool.description,
        repair=make_repair_policy(policy, listed=entry is None),
        cap=policy.caps.of(tool.name),
        container=tool.container,
        member_of=member,
        answer=AnswerPolicy(tool.answer.check, policy.response_mode is Mode.ENFORCE) if tool.answer else None,
        finalising=kind == "validate",
        channels=channels,
        operation=operation,
        changes=any(each & _CHANGING for each in methods),
        reads=any(each and each <= _READING for each in methods),
        **values,
    )


def _choose_attempts(policy: Policy, kind: RouteKind) -> AttemptsPolicy:
    if kind != "validate" or policy.finalize_output_retries is None:
        return policy.attempts
    return replace(policy.attempts, max_attempts=1 + policy.finalize_output_retries)


def _hash_tool(tool: ToolConfig, channels: ChannelJudge | None) -> str:
    """A hash of all that decides a call of this tool: the policy as written, the schema, the container."""
    return hash_value(
        {
            "policy": select_fingerprint(tool.written),
            "schema": tool.schema.schema_id if tool.schema else None,
            "container": repr(tool.container),
            "channels": channels.described if channels is not None else None,
            "request": repr(tool.request),
        }
    )

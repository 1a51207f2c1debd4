"""Compiles a loaded config into a `RouteTable`. Never fails: `config.load` has reported every mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from proxy.adapters.base import CallShape
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
from proxy.core.check.validation import Check
from proxy.core.contract.definitions import PinnedTools
from proxy.core.contract.policy import (
    AnswerPolicy,
    AttemptsPolicy,
    BroughtTools,
    ListRules,
    Mode,
    ToolPolicy,
    UnknownTool,
)
from proxy.core.contract.request_rules import ChannelJudge, OperationRule
from proxy.core.display.secrets import find_sensitive_names
from proxy.core.model.values import Container, FeedbackLimits
from proxy.extensions import ASKS_CALLER, find_binder, find_pinned_place, load_place
from proxy.routing.table import Route, RouteTable


def build_routes(config: Config) -> RouteTable:
    """Compiles the routes of a loaded config."""
    containers = _list_members(config)
    routes = [replace(_build_route(entry, config, containers), key=key) for key, entry in name_routes(config)]
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


def _list_members(config: Config) -> dict[str, Container]:
    """Function name -> the container that must be expanded before the function is called."""
    found: dict[str, Container] = {}
    for entry in config.routes:
        for tool in entry.tools.values():
            if tool.container is not None and tool.container.require_expansion:
                found |= {function.name: tool.container for function in tool.container.functions}
    return found


def _build_route(entry: RouteEntry, config: Config, containers: Mapping[str, Container]) -> Route:
    upstream = config.upstreams.get(entry.upstream)
    inherited = upstream.headers if upstream else HeaderChanges()
    own, timeout, operations = entry.policy.headers, _find_timeout(entry, upstream), _bind_operations(entry)
    return Route(
        name=entry.name,
        path=entry.path,
        methods=frozenset(entry.methods),
        kind=entry.kind,
        adapter=entry.adapter,
        shape=_build_shape(entry, operations),
        operations=operations,
        tools=_build_policies(entry, operations, containers),
        upstream=entry.upstream,
        upstream_path=entry.upstream_path,
        envelope=entry.policy.envelope,
        error_status=entry.policy.error_status,
        detail=entry.policy.detail,
        mode=entry.policy.mode,
        unknown=UnknownTool(_choose_attempts(entry.policy, entry.kind), entry.policy.feedback),
        max_body=entry.policy.max_body,
        timeout=timeout,
        tool_timeouts=_list_tool_timeouts(entry, timeout),
        headers_set=tuple((name, reveal(value)) for name, value in (dict(inherited.set) | dict(own.set)).items()),
        headers_remove=inherited.remove | own.remove,
        auth=entry.policy.auth,
        cors=entry.policy.cors,
        asks_caller=not entry.policy.added.keys().isdisjoint(ASKS_CALLER) or _withholds(entry, config),
        keeps_token=any(getattr(each, "keeps_token", False) for each in entry.policy.added.values()),
        websocket=entry.websocket and entry.kind == "passthrough",
        learn=_build_rules(entry, config, operations),
        idle_timeout=upstream.idle_timeout if upstream else find_default(Route, "idle_timeout"),
        query_policy=entry.query,
        lookalikes=entry.lookalikes,
        rewrites_resource=entry.rewrites_resource,
        is_from_root=entry.is_from_root,
        relayed_by=entry.relayed_by,
        brought=_build_brought(entry) if entry.relayed_by is not None else None,
        matrix=entry.channels.matrix if entry.channels else _list_matrix_parameters(operations),
    )


def _build_brought(entry: RouteEntry) -> BroughtTools:
    """How calls of the tools are judged that the requests of a relayed route bring along."""
    template = _build_policy(ToolConfig("", "", None, None, entry.policy, {}), None, "call", listed=True)
    return BroughtTools(template, entry.policy.formats)


def _find_timeout(entry: RouteEntry, upstream: UpstreamConfig | None) -> float:
    if entry.policy.timeout is not None:
        return entry.policy.timeout
    return upstream.response_timeout if upstream else find_default(Route, "timeout")


def _bind_operations(entry: RouteEntry) -> dict[str, OperationRule]:
    """Tool -> how its calls stand in HTTP requests, where they are more than a body."""
    by_name = entry.adapter != "http"
    return {
        name: load_place(find_binder())(
            tool.request, tool.schema.check if tool.schema else None, by_name=by_name, query=entry.query
        )
        for name, tool in (entry.listed.tools if entry.listed is not None else entry.tools).items()
        if tool.request is not None and entry.kind == "call"
    }


def _list_matrix_parameters(operations: Mapping[str, OperationRule]) -> frozenset[str]:
    """The path parameters in matrix style, in which `;` has a meaning."""
    return frozenset(name for operation in operations.values() for name in operation.matrix)


def _build_shape(entry: RouteEntry, operations: Mapping[str, OperationRule]) -> CallShape:
    if entry.adapter != "http" or entry.shape.tool is None:
        return entry.shape
    return replace(entry.shape, operation=operations[entry.shape.tool])


def _build_policies(
    entry: RouteEntry, operations: Mapping[str, OperationRule], containers: Mapping[str, Container]
) -> dict[str, ToolPolicy]:
    methods = frozenset(entry.methods)
    return {
        name: _build_policy(
            tool, containers.get(name), entry.kind, methods, entry.channels, operation=operations.get(name)
        )
        for name, tool in entry.tools.items()
    }


def _list_tool_timeouts(entry: RouteEntry, usual: float) -> dict[str, float]:
    tools = entry.listed.tools if entry.listed is not None else entry.tools
    timeouts = ((name, tool.policy.timeout) for name, tool in tools.items())
    return {name: timeout for name, timeout in timeouts if timeout is not None and timeout != usual}


def _build_rules(entry: RouteEntry, config: Config, operations: Mapping[str, OperationRule]) -> ListRules | None:
    """The operator's rules for tools that a server lists, or that are `operations`; None where the route has none."""
    if entry.listed is None:
        return None
    rules = entry.listed.make_rules(
        lambda tool: _build_policy(tool, None, "call", listed=True, operation=operations.get(tool.name))
    )
    pinned = _find_pinned(entry, config)
    return rules if pinned is None else rules.pin(pinned)


def _find_pinned(entry: RouteEntry, config: Config) -> PinnedTools | None:
    """The approved definitions of a route's tools; None where the config pins nothing."""
    place = find_pinned_place(config.sections)
    pinned: PinnedTools | None = load_place(place)(config, entry.name) if place else None
    return pinned


def _withholds(entry: RouteEntry, config: Config) -> bool:
    """Whether some operation of a plain route may not be called, because it is not defined as approved."""
    pinned = _find_pinned(entry, config)
    return pinned is not None and pinned.changed != "warn" and bool(pinned.unpinned)


def _build_policy(
    tool: ToolConfig,
    member_of: Container | None,
    kind: RouteKind,
    methods: frozenset[str] = frozenset(),
    channels: ChannelJudge | None = None,
    listed: bool = False,
    operation: OperationRule | None = None,
) -> ToolPolicy:
    policy, schema = tool.policy, tool.schema
    return ToolPolicy(
        tool=tool.name,
        check=schema.check if schema else None,
        fingerprint=_hash_tool(tool, channels),
        schema_id=schema.schema_id if schema else "",
        description=tool.description,
        mode=policy.mode,
        unknown_keys=policy.unknown_keys,
        repair=make_repair_policy(policy.repair, listed=listed),
        text=policy.text,
        feedback=_add_secret_names(policy.feedback, schema.check if schema else None),
        attempts=_choose_attempts(policy, kind),
        cap=policy.caps.of(tool.name),
        limits=policy.limits,
        container=tool.container,
        member_of=member_of,
        resend=policy.resend,
        upstream_errors=policy.upstream_errors,
        wrap_success=policy.wrap_success and not listed,  # an answer of MCP has a form of its own
        added=policy.added,
        answer=_build_answer(tool),
        finalising=kind == "validate",
        channels=channels,
        operation=operation,
        changes=methods == {"PATCH"} or (operation is not None and operation.template.method == "PATCH"),
        reads=methods == {"GET"} or (operation is not None and operation.template.method == "GET"),
        max_body=policy.max_body,
        leaked_markup=policy.leaked_markup,
    )


def _choose_attempts(policy: Policy, kind: RouteKind) -> AttemptsPolicy:
    if kind != "validate" or policy.finalize_output_retries is None:
        return policy.attempts
    return replace(policy.attempts, max_attempts=1 + policy.finalize_output_retries)


def _build_answer(tool: ToolConfig) -> AnswerPolicy | None:
    enforce = tool.policy.response_mode is Mode.ENFORCE
    return None if tool.answer is None else AnswerPolicy(tool.answer.check, enforce)


def _add_secret_names(limits: FeedbackLimits, check: Check | None) -> FeedbackLimits:
    """The limits of answers, with the names that the schema marks as secret."""
    return limits if check is None else replace(limits, secret_names=find_sensitive_names(check.schemas))


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

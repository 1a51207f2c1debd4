"""The outgoing requests of one route: `RouteBinding` is compiled once per route, `RouteRequest` is one request on it.

A dispatch route sends the client's whole body, unless its `upstream_path` holds `{tool}`. Then the upstream serves one
tool per path, and gets only the arguments, as it would from a route per tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import compress
from typing import Final

from proxy.adapters import find_adapter
from proxy.adapters.base import Adapter
from proxy.adapters.dispatch import PlainAdapter
from proxy.adapters.ladder import find_text
from proxy.config.combinations import find_protocol
from proxy.core.check.validation import Check
from proxy.core.contract.policy import ListRules, Mode, ToolPolicy, UnknownTool
from proxy.core.contract.request_rules import OperationRule
from proxy.core.model.fields import NO_NAMES, fold_header
from proxy.core.model.value_class import share
from proxy.core.model.values import (
    CheckedCall,
    Failure,
    Fields,
    Headers,
    JsonValue,
    RawRequest,
    UpstreamReply,
    value_class,
)
from proxy.interfaces import CallAccess, LearnedLists, QuerySources, UpstreamRequest
from proxy.routing import Route
from proxy.server.http.body import BodyMemory, is_json
from proxy.server.http.headers import ANOTHER_REQUEST, CLIENT_PREFIXES, Changes, list_nominated

# Fields that no longer hold once the body was changed: checksums (RFC 9530, RFC 3230, RFC 1864) and the coding.
_DIGESTS: Final = frozenset({"content-digest", "repr-digest", "digest", "content-md5", "content-encoding"})
_TYPE: Final = frozenset({"content-type"})
_JSON: Final = (("content-type", "application/json"),)
# The usual value of `Connection`: it names a field that never crosses, and no other.
_LASTING: Final = "keep-alive"
# How many sets of dropped names are remembered for the names of a request: routes have few that differ.
_MOST_DROPPED: Final = 64


class NothingLearned:
    """Implements `LearnedLists` for a route that learns no tools."""

    def get_latest(self, rules: ListRules) -> Mapping[str, ToolPolicy]:
        return rules.whole()


@value_class
class RouteBinding:
    """A route with everything its requests need, computed in advance. `alone`: the arguments go without their envelope;
    `is_plain`: they come without one. `target` is the path to send to if it is the same for every request, otherwise
    ''. `judges`: its requests are calls, unless their adapter says otherwise; `form` is `Route.form`. `catalogues`
    holds the tools that it has learned, if a route learns them."""

    route: Route
    adapter: Adapter
    dropped: frozenset[str]
    alone: bool
    is_plain: bool
    target: str
    judges: bool
    form: str
    catalogues: LearnedLists

    @classmethod
    def of(cls, route: Route) -> RouteBinding:
        """Compiles one route."""
        dropped = Changes(route.headers_set, route.headers_remove).dropped
        if (route.auth is not None and not route.auth.forward) or route.keeps_token:
            dropped |= {"authorization"}  # the credentials are the proxy's own
        if route.kind != "passthrough":
            dropped |= ANOTHER_REQUEST
        alone = route.shape.tool_pointer is not None and "{tool}" in route.upstream_path
        varies = "{" in route.upstream_path or route.relayed_by is not None
        target = "" if varies else route.upstream_path
        plugin = find_protocol(route.adapter) if route.learn is not None else None
        lists = NothingLearned() if plugin is None else plugin.make_lists()
        judges = route.kind != "passthrough"
        adapter = find_adapter(route.adapter)
        is_plain = adapter.name == PlainAdapter.name
        return cls(route, adapter, share(dropped), alone, is_plain, target, judges, route.form, lists)

    def make_outgoing(
        self,
        request: RawRequest,
        hop_fields: Headers,
        tool: str,
        body: bytes,
        silence: float | None = None,
        passed_on: Callable[[], None] | None = None,
    ) -> UpstreamRequest:
        """Makes the outgoing request. `tool` is '' for a request that is not a call."""
        route = self.route
        dropped, own = self.dropped, hop_fields + route.headers_set
        if body is not request.body:
            dropped = _join(dropped, _DIGESTS)
            # An empty body of any type that became `{}`.
            if not is_json(request.header("content-type") or "") and "content-type" not in self.dropped:
                dropped, own = dropped | _TYPE, (*own, *_JSON)
        headers = make_request_headers(request.headers, dropped, own)
        target = self.target or route.target(request.params, tool)
        if request.query:
            target = f"{target}?{request.query}"
        timeout = route.timeout_for(tool) if route.tool_timeouts else route.timeout
        return UpstreamRequest(
            route.upstream,
            request.method,
            target,
            headers,
            body,
            timeout,
            silence=silence,
            client_names=request.headers.names,
            is_from_root=route.is_from_root,
            passed_on=passed_on,
        )


@lru_cache(maxsize=256)  # the same object each time, whose hash is known
def _join(dropped: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    return dropped | more


def make_request_headers(headers: Headers, dropped: frozenset[str], own: Headers) -> Headers:
    """A client's headers as they go on to the upstream: without `dropped`, `X-Forwarded-*`, `X-Original-*` and what
    `Connection` names, with `own`, in which those are that are believed."""
    if (
        isinstance(headers, Fields)
        and (names := headers.names) is not NO_NAMES
        and names.is_unique
        and (headers.get("connection") or _LASTING) == _LASTING
    ):
        crossing: dict[frozenset[str], tuple[bool, ...]] = names.memos.setdefault(_may_cross, {})
        selected = crossing.get(dropped)
        if selected is None:
            if len(crossing) >= _MOST_DROPPED:
                crossing.clear()
            selected = crossing[dropped] = tuple([_may_cross(name, dropped) for name in names.lower])
        return (*compress(headers, selected), *own)
    dropped = dropped | list_nominated(headers)
    return (*[field for field in headers if _may_cross(field[0], dropped)], *own)


def _may_cross(name: str, dropped: frozenset[str]) -> bool:
    """Returns whether a field continues. Servers behind CGI-like interfaces read `X_Forwarded_For` as
    `X-Forwarded-For`; so such a spelling is dropped too."""
    plain = name.replace("_", "-")
    return not (name in dropped or plain in dropped or plain.startswith(CLIENT_PREFIXES))


def show_tools(tools: Mapping[str, ToolPolicy], calls: CallAccess) -> dict[str, ToolPolicy]:
    """The tools that a caller may see; containers hold the functions that it may see."""
    shown = {name: policy for name, policy in tools.items() if calls.may_see(name)}
    for name, policy in shown.items():
        if (group := policy.container) is not None:
            seen = tuple(function for function in group.functions if calls.may_see(function.name))
            if len(seen) < len(group.functions):
                shown[name] = replace(policy, container=replace(group, functions=seen))
    return shown


@value_class
class RouteRequest:
    """Implements `CallRoute` for one request. `hop_fields` are Via, X-Forwarded-* and the request id, `cors` the fields
    of the answer by which a page may read it. `memory` is the share of its body. `tools` are those of the route that
    the caller may see, `calls` those it may call (None: any), and `caller` identifies it."""

    binding: RouteBinding
    raw: RawRequest
    hop_fields: Headers
    cors: Headers
    memory: BodyMemory
    tools: Mapping[str, ToolPolicy]
    calls: CallAccess | None = None
    caller: str = ""

    def refuse_hidden(self, tool: str) -> Failure | None:
        return self.calls.refuse_tool(tool) if self.calls is not None and tool in self.binding.route.tools else None

    @property
    def unknown(self) -> UnknownTool:
        return self.binding.route.unknown

    @property
    def headers(self) -> Headers:
        return self.raw.headers

    @property
    def peer(self) -> str:
        return self.raw.peer

    def find_user_query(self, sources: QuerySources) -> str:
        return find_text(self.raw, sources)

    def can_forward_unknown(self, tool: str) -> bool:
        """Returns whether a call of an unknown tool continues: on a report-only route, if its name fits the path."""
        route = self.binding.route
        named = tool not in ("", ".", "..") or "{tool}" not in route.upstream_path
        return route.mode is Mode.REPORT and route.kind == "call" and named

    def request(self, checked: CheckedCall) -> UpstreamRequest | None:
        """Makes the request for a checked call; None on a validate-only route."""
        binding = self.binding
        if binding.route.kind == "validate":
            return None
        operation = binding.route.operations.get(checked.call.tool)
        if operation is not None and not (operation.template.is_plain and not operation.by_name):
            return self.operation_request(operation, checked)
        if binding.alone or (binding.is_plain and checked.enforced):
            body = checked.arguments
        else:
            body = binding.adapter.rewrite(self.raw, binding.route.shape, checked)
        return binding.make_outgoing(self.raw, self.hop_fields, checked.call.tool, body)

    def find_complaint(self, checked: CheckedCall, reply: UpstreamReply) -> Failure | None:  # noqa: ARG002
        return None

    def find_answer_check(self, tool: str) -> Check | None:
        policy = self.tools.get(tool)
        return policy.answer.check if policy is not None and policy.answer is not None else None

    def make_message(self, result: dict[str, JsonValue]) -> dict[str, JsonValue] | None:  # noqa: ARG002
        return None

    def operation_request(self, operation: OperationRule, checked: CheckedCall) -> UpstreamRequest:
        """Returns the request for a call whose arguments are spread over an HTTP request."""
        binding, route, raw = self.binding, self.binding.route, self.raw
        if operation.by_name:
            written = operation.write(checked.value)
            path, method = written.fill_path(operation.template.path), operation.template.method
        else:
            written = operation.rewrite(raw, route.path, route.shape, checked.value if checked.enforced else None)
            path, method = written.fill_path(route.upstream_path), raw.method
        folded = frozenset(map(fold_header, written.removed))
        lookalikes = {name for name, _ in raw.headers if fold_header(name) in folded}
        dropped = binding.dropped | written.removed | lookalikes
        own = self.hop_fields + written.headers + route.headers_set
        if written.body is not raw.body:
            dropped = dropped | _DIGESTS
            if written.media_type or not written.body:
                dropped = dropped | _TYPE
            own += (("content-type", written.media_type),) if written.media_type else ()
        headers = make_request_headers(raw.headers, dropped, own)
        target, timeout = f"{path}?{written.query}" if written.query else path, route.timeout_for(checked.call.tool)
        names = raw.headers.names
        return UpstreamRequest(route.upstream, method, target, headers, written.body, timeout, client_names=names)

    def make_passthrough(self) -> UpstreamRequest:
        """Makes the request for a message that is not a call."""
        return self.binding.make_outgoing(self.raw, self.hop_fields, "", self.raw.body)

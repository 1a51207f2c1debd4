"""The outgoing request of a call on an MCP route: headers that repeat parts of the body are kept equal to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from proxy.adapters.mcpheaders import update_headers
from proxy.core.contract.http_operation import HttpOperation
from proxy.core.contract.policy import ToolPolicy, UnknownTool
from proxy.core.model.codes import UPSTREAM_REJECTED_ARGUMENTS
from proxy.core.model.values import CheckedCall, Failure, Headers, JsonValue, ToolCall, UpstreamReply
from proxy.interfaces import UpstreamRequest
from proxy.server.bound_route import RouteRequest
from proxy.server.mcp.lists.catalogue import Catalogue
from proxy.server.mcp.lists.learner import decode_body
from proxy.server.mcp.operation_calls import make_operation_request
from proxy.server.mcp.verdicts import read_result_failure


@dataclass(frozen=True, slots=True)
class McpRouteRequest:
    """Implements `CallRoute` for one call as it was decoded. `catalogue`: None where nothing was learned."""

    call_route: RouteRequest
    call: ToolCall
    tools: Mapping[str, ToolPolicy]
    catalogue: Catalogue | None
    modern: bool
    headers: Headers = field(repr=False)
    request_id: JsonValue = None

    @property
    def _operations(self) -> Mapping[str, HttpOperation]:
        return self.call_route.binding.route.operations

    @property
    def unknown(self) -> UnknownTool:
        """What holds for calls of tools outside of `tools`."""
        return self.call_route.unknown

    def find_user_query(self) -> str:
        """The user query, where the client sends one."""
        return self.call_route.find_user_query()

    def can_forward_unknown(self, tool: str) -> bool:
        """Whether a call of an unknown tool goes on: not where the tools are operations, and no server is behind
        them."""
        return not self._operations and self.call_route.can_forward_unknown(tool)

    def request(self, checked: CheckedCall) -> UpstreamRequest:
        """Makes the request for a checked call. Headers that repeat a changed part of the body are changed too."""
        if (operation := self._operations.get(checked.call.tool)) is not None:
            return make_operation_request(self.call_route, operation, checked)
        binding, raw, tool, body = (
            self.call_route.binding,
            self.call_route.raw,
            checked.call.tool,
            self.call_route.raw.body,
        )
        if checked.repairs or checked.call is not self.call:
            body = binding.adapter.rewrite(raw, binding.route.shape, checked)
        sent = binding.make_outgoing(raw, self.call_route.hop_fields, tool, body)
        headers = sent.headers
        if self.modern and body is not raw.body:
            wanted = self.catalogue.mirrors(tool) if self.catalogue is not None else ()
            headers = update_headers(headers, tool, wanted, checked.value)
        return replace(sent, headers=headers, silence=math.inf)

    def find_complaint(self, checked: CheckedCall, reply: UpstreamReply) -> Failure | None:
        """What a result with `isError` says against the arguments. An HTTP service complains with a status."""
        if self._operations:
            return None
        body = decode_body(reply, reply.body) if isinstance(reply.body, bytes) else None
        if body is None or reply.status >= 300:
            return None
        policy = self.tools.get(checked.call.tool)
        check = policy.check if policy is not None else None
        failure = read_result_failure(body, self.request_id, check, checked.value)
        return failure if failure is not None and failure.code is UPSTREAM_REJECTED_ARGUMENTS else None

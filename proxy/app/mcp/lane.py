"""How a call goes out on an MCP route: like any other, with the headers that repeat its body kept true."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from proxy.adapters.mcpheaders import kept_true
from proxy.app.catalogue import Catalogue
from proxy.app.lane import RequestLane
from proxy.core.model import CheckedCall, Headers, ToolCall
from proxy.core.policy import ToolPolicy
from proxy.interfaces import UpstreamRequest


@dataclass(frozen=True, slots=True)
class McpLane:
    """Implements the pipeline's `Lane` for one call as it was decoded. `catalogue`: None where nothing was learned."""

    lane: RequestLane
    call: ToolCall
    tools: Mapping[str, ToolPolicy]
    catalogue: Catalogue | None
    modern: bool
    headers: Headers = field(repr=False)

    def wish(self) -> str:
        """What the user wants, where the client tells."""
        return self.lane.wish()

    def lets_through(self, tool: str) -> bool:
        """Whether a call of an unknown tool goes on."""
        return self.lane.lets_through(tool)

    def request(self, checked: CheckedCall) -> UpstreamRequest:
        """What is sent for a checked call. Where the body was changed, the headers that repeat it change with it."""
        way, raw, tool, body = self.lane.way, self.lane.raw, checked.call.tool, self.lane.raw.body
        if checked.repairs or checked.call is not self.call:
            body = way.adapter.rewrite(raw, way.route.shape, checked)
        sent = way.outgoing(raw, self.lane.hop_fields, tool, body)
        headers = sent.headers
        if self.modern and body is not raw.body:
            wanted = self.catalogue.mirrors(tool) if self.catalogue is not None else ()
            headers = kept_true(headers, tool, wanted, checked.value)
        return replace(sent, headers=headers, silence=math.inf)

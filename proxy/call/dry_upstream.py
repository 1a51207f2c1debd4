"""A route without an upstream, for dry runs: its calls are judged like any other, and nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from proxy.core.contract.policy import ToolPolicy, UnknownTool
from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, Failure, Headers, UpstreamReply
from proxy.interfaces import CallAccess, QuerySources, UpstreamRequest


@value_class
class Nowhere:
    """Implements `CallRoute`: knows the tools and sends nothing, so the checked arguments come back."""

    tools: Mapping[str, ToolPolicy]
    headers: Headers = ()
    unknown: UnknownTool = field(default_factory=UnknownTool)
    peer: str = ""
    caller: str = ""
    calls: CallAccess | None = None

    def refuse_hidden(self, tool: str) -> Failure | None:  # noqa: ARG002 - the operator sees all tools
        """Every tool may be called."""
        return None

    def find_user_query(self, sources: QuerySources) -> str:  # noqa: ARG002
        """There is no user query."""
        return ""

    def can_forward_unknown(self, tool: str) -> bool:  # noqa: ARG002 - nothing is sent, whatever it is
        """Unknown tools are refused."""
        return False

    def request(self, checked: CheckedCall) -> UpstreamRequest | None:  # noqa: ARG002 - nothing is sent, whatever it is
        """Nothing is sent."""
        return None

    def find_complaint(self, checked: CheckedCall, reply: UpstreamReply) -> Failure | None:  # noqa: ARG002 - as above
        """Nothing answers, so nothing complains."""
        return None

"""A route that leads nowhere: its calls are judged like any other, and nothing is sent. For dry runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.core.model import CheckedCall, Headers
from proxy.core.policy import ToolPolicy
from proxy.interfaces import UpstreamRequest


@dataclass(frozen=True, slots=True)
class Nowhere:
    """Implements `Lane`: knows the tools and sends nothing, so the checked arguments come back."""

    tools: Mapping[str, ToolPolicy]
    headers: Headers = ()

    def wish(self) -> str:
        """Nobody says what he wants."""
        return ""

    def lets_through(self, tool: str) -> bool:  # noqa: ARG002 - nothing is sent, whatever it is
        """No unknown tool is let through."""
        return False

    def request(self, checked: CheckedCall) -> UpstreamRequest | None:  # noqa: ARG002 - nothing is sent, whatever it is
        """Nothing is sent."""
        return None

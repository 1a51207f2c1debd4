"""Hooks that plugins add to a call: they follow the hooks of the config, and each point passes on what those return.

A plugin inherits `FollowingHooks`, overrides the points that it needs, and puts them into `Services.hooks`.
"""

from __future__ import annotations

from proxy.core.model.values import CheckedCall, Decision, Failure, Outcome, ToolCall, UpstreamReply
from proxy.interfaces import HookNotes, Hooks, UpstreamRequest


class FollowingHooks:
    """Implements `Hooks`: passes everything on. `first` are the hooks that run before these, if there are any."""

    def __init__(self, first: Hooks | None) -> None:
        self.notes = HookNotes() if first is None else first.notes
        self._first = first

    async def before_decision(self, call: ToolCall) -> ToolCall | UpstreamReply | Failure:
        return call if self._first is None else await self._first.before_decision(call)

    async def after_decision(self, call: ToolCall, decision: Decision) -> Decision:
        return decision if self._first is None else await self._first.after_decision(call, decision)

    async def before_forward(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamRequest | Failure:
        return request if self._first is None else await self._first.before_forward(checked, request)

    async def after_answer(self, checked: CheckedCall, reply: UpstreamReply) -> UpstreamReply | Failure:
        return reply if self._first is None else await self._first.after_answer(checked, reply)

    async def after_outcome(self, call: ToolCall, outcome: Outcome | None) -> None:
        if self._first is not None:
            await self._first.after_outcome(call, outcome)

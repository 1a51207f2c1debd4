"""`/-/guidance`: what an agent's prompt takes in before it calls the tools served here (docs/guidance.md).

With `conversation`, the text also says where that conversation stands, unless `guidance: {dynamic_state: off}`: the
value is what the client sends by the ladder's `rung` (its `X-Conversation-Id` by default). Looking changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from proxy.app.question import Page, Question, unfit
from proxy.config.mistakes import did_you_mean
from proxy.core import caps, contract
from proxy.core.model import Conversation, Document, Rung, ToolCall
from proxy.core.policy import ToolPolicy
from proxy.core.prompt import ToolState, guidance
from proxy.interfaces import StateStore
from proxy.routing import RouteTable

if TYPE_CHECKING:
    from proxy.app.serving import Serving

_TEXT = "text/plain; charset=utf-8"


async def guide(serving: Serving, asked: Question) -> Page:
    """The guidance of all tools, or of those that `tool` names."""
    query = parse_qs(asked.query)
    snapshot, settings = serving.handler.snapshot, serving.config.guidance
    policies = served(snapshot.table)
    wanted = query.get("tool", list(policies))
    for name in wanted:
        if name not in policies:
            return unfit(f"no tool {name[:128]!r} is served here {did_you_mean(name, policies)}".rstrip(), 404)
    policies = {name: policies[name] for name in wanted}
    states: list[ToolState] = []
    if settings.dynamic_state and "conversation" in query:
        rung = query.get("rung", [Rung.HEADER.value])[0]
        if rung not in tuple(Rung):
            return unfit(f"`rung` is one of: {', '.join(Rung)}")
        conversation = Conversation(query["conversation"][0], Rung(rung))
        states = [await _state(conversation, policy, snapshot.services.store) for policy in policies.values()]
    text = await asyncio.to_thread(guidance, policies, settings.max_chars, states)
    return Page(text.encode(), content_type=_TEXT)


def served(table: RouteTable) -> dict[str, ToolPolicy]:
    """Every tool by its name; where routes serve one differently, as the first of them does."""
    found: dict[str, ToolPolicy] = {}
    for route in table.routes:
        for name, policy in route.tools.items():
            found.setdefault(name, policy)
    return found


async def _state(conversation: Conversation, policy: ToolPolicy, store: StateStore) -> ToolState:
    call = ToolCall(policy.tool, Document(b"{}", {}), "", conversation)
    slot = caps.reservation(call, policy)
    used = None if slot is None else await store.taken(slot.key)
    episode = await store.look(contract.attempt_key(conversation, policy.tool, policy))
    failed = 0 if episode is None else max(episode.count, episode.repeats)
    return ToolState(policy.tool, used, slot.limit if slot else None, failed, policy.attempts.max_attempts)

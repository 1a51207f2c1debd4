"""`/-/guidance`: what an agent's prompt takes in before it calls the tools served here (docs/guidance.md).

With `conversation`, the text also says where that conversation stands, unless `guidance: {dynamic_state: off}`: the
value is what the client sends at the first place of the route's ladder (`X-Conversation-Id` by default), or at the one
that `rung` names. Looking changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from proxy.adapters.base import ConversationSource
from proxy.adapters.ladder import named_conversation
from proxy.app.question import Page, Question, unfit
from proxy.config.mistakes import remark
from proxy.core import caps, contract
from proxy.core.model import Conversation, Document, ToolCall
from proxy.core.policy import ToolPolicy
from proxy.core.prompt import ToolState, guidance
from proxy.interfaces import StateStore

if TYPE_CHECKING:
    from proxy.app.handler import Snapshot
    from proxy.app.serving import Serving

_TEXT: Final = "text/plain; charset=utf-8"
# The rungs at which a client gives a conversation a name.
_NAMED: Final = ("header", "meta", "body", "trace", "session")


@dataclass(frozen=True, slots=True)
class _Served:
    """A tool as the first route serves it, and where that route looks for conversations."""

    policy: ToolPolicy
    ladder: tuple[ConversationSource, ...]


async def guide(serving: Serving, asked: Question) -> Page:
    """The guidance of all tools, or of those that `tool` names."""
    query = parse_qs(asked.query)
    snapshot, settings = serving.handler.snapshot, serving.config.guidance
    known = await asyncio.to_thread(_served, snapshot)  # learned tools may have to be compiled first
    for name in query.get("tool", ()):
        if name not in known:
            return unfit(f"no tool {name[:128]!r} is served here{remark(name, known)}", 404)
    wanted = {name: known[name] for name in query.get("tool", known)}
    rung = query.get("rung", [""])[0]
    if rung not in ("", *_NAMED):
        return unfit(f"`rung` is one of: {', '.join(_NAMED)}")
    states: list[ToolState] = []
    if settings.dynamic_state and "conversation" in query:
        named, store = query["conversation"][0], snapshot.services.store
        found = [(one.policy, _conversation(one.ladder, rung, named)) for one in wanted.values()]
        states = [await _state(which, policy, store) for policy, which in found if which is not None]
    policies = {name: one.policy for name, one in wanted.items()}
    text = await asyncio.to_thread(guidance, policies, settings.max_chars, states)
    return Page(text.encode(), content_type=_TEXT)


def _served(snapshot: Snapshot) -> dict[str, _Served]:
    found: dict[str, _Served] = {}
    for route in snapshot.table.routes:
        tools = route.tools if route.learn is None else snapshot.ways[route.name].catalogues.latest(route.learn)
        for name in tools:
            if (policy := tools.get(name)) is not None:  # a listed schema may be of no use
                found.setdefault(name, _Served(policy, route.shape.ladder))
    return found


def _conversation(ladder: tuple[ConversationSource, ...], rung: str, named: str) -> Conversation | None:
    """The conversation that is called `named` at the wanted rung of a ladder, at the first where none is wanted."""
    sources = [source for source in ladder if source.kind in _NAMED and rung in ("", source.kind)]
    return named_conversation(sources[0], named) if sources else None


async def _state(conversation: Conversation, policy: ToolPolicy, store: StateStore) -> ToolState:
    call = ToolCall(policy.tool, Document(b"{}", {}), "", conversation)
    slot = caps.reservation(call, policy)
    used = None if slot is None else await store.taken(slot.key)
    episode = await store.look(contract.attempt_key(conversation, policy.tool, policy))
    failed = 0 if episode is None else max(episode.count, episode.repeats)
    return ToolState(policy.tool, used, slot.limit if slot else None, failed, policy.attempts.max_attempts)

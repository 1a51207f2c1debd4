"""`/-/guidance`: the text for an agent's prompt before it calls the tools served here (docs/guidance.md).

With `conversation`, the text also gives the state of that conversation, unless `guidance: {dynamic_state: off}`. The
value is the id that the client sends at the first rung of the route's ladder (`X-Conversation-Id` by default), or at
the rung that `rung` names. Reading this page changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from proxy.adapters.base import ConversationSource
from proxy.adapters.ladder import make_conversation
from proxy.config.mistakes import suggest_remark
from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Conversation
from proxy.extensions.guidance.core.prompt import ToolState, write_guidance
from proxy.extensions.guidance.guidance_section import find_guidance
from proxy.extensions.guidance.served_guidance import read_state
from proxy.interfaces import ExaminedTools
from proxy.server.admin.page import Page, PageRequest, refuse_question

if TYPE_CHECKING:
    from proxy.server.handler import Snapshot
    from proxy.server.lifecycle import Serving

# The most learned tools of one list that are examined.
_MOST_EXAMINED: Final = 500
_TEXT: Final = "text/plain; charset=utf-8"
# The rungs at which a client can name a conversation.
_NAMED: Final = ("header", "meta", "body", "trace", "session")


@value_class
class _Served:
    """The policy of a tool on the first route that serves it, and where that route looks for a conversation id."""

    policy: ToolPolicy
    ladder: tuple[ConversationSource, ...]


async def make_guidance_page(serving: Serving, question: PageRequest) -> Page:
    """Writes the guidance for all tools, or for the tools that `tool` names."""
    query = parse_qs(question.query)
    snapshot, settings = serving.handler.snapshot, find_guidance(serving.config)
    await _examine(snapshot)
    known = await asyncio.to_thread(_list_served, snapshot)  # the schemas of learned tools may have to be compiled
    for name in query.get("tool", ()):
        if name not in known:
            return refuse_question(f"no tool {name[:128]!r} is served here{suggest_remark(name, known)}", 404)
    chosen = {name: known[name] for name in query.get("tool", known)}
    rung = query.get("rung", [""])[0]
    if rung not in ("", *_NAMED):
        return refuse_question(f"`rung` is one of: {', '.join(_NAMED)}")
    states: list[ToolState] = []
    if settings.dynamic_state and "conversation" in query:
        conversation, store = query["conversation"][0], snapshot.services.store
        found = [(one.policy, _conversation(one.ladder, rung, conversation)) for one in chosen.values()]
        states = [await read_state(which, policy, store) for policy, which in found if which is not None]
    policies = {name: one.policy for name, one in chosen.items()}
    text = await asyncio.to_thread(write_guidance, policies, settings.max_chars, decide, states, settings.template)
    return Page(text.encode(), content_type=_TEXT)


async def _examine(snapshot: Snapshot) -> None:
    """Finds out which learned schemas may be compiled in this process."""
    elsewhere = snapshot.services.elsewhere
    for route in snapshot.table.routes if elsewhere is not None else ():
        tools = snapshot.bindings[route.key].catalogues.get_latest(route.learn) if route.learn is not None else None
        if elsewhere is not None and isinstance(tools, ExaminedTools):
            for name in list(tools)[:_MOST_EXAMINED]:
                await elsewhere.examine(tools, name)


def _list_served(snapshot: Snapshot) -> dict[str, _Served]:
    found: dict[str, _Served] = {}
    for route in snapshot.table.routes:
        tools = route.tools if route.learn is None else snapshot.bindings[route.key].catalogues.get_latest(route.learn)
        for name in tools:
            if (policy := tools.get(name)) is not None:  # None: the server's schema for this tool cannot be used
                found.setdefault(name, _Served(policy, route.shape.ladder))
    return found


def _conversation(ladder: tuple[ConversationSource, ...], rung: str, name: str) -> Conversation | None:
    """Returns the conversation `name` at the given rung of a ladder; at its first named rung where `rung` is ''."""
    sources = [source for source in ladder if source.kind in _NAMED and rung in ("", source.kind)]
    return make_conversation(sources[0], name) if sources else None

"""`/-/guidance`: the text for an agent's prompt before it calls the tools served here (docs/guidance.md).

With `conversation`, the text also gives the state of that conversation, unless `guidance: {dynamic_state: off}`. The
value is the id that the client sends at the first rung of the route's ladder (`X-Conversation-Id` by default), or at
the rung that `rung` names. Reading this page changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from proxy.adapters.ladder import find_conversation, make_conversation
from proxy.config.model import Config
from proxy.core.contract import attempts as contract
from proxy.core.contract import container, refusals
from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Conversation, Document, Fields, HttpReply, RawRequest, Rung, ToolCall
from proxy.extensions.guidance.core.prompt import ToolState, list_progress_hints, write_guidance
from proxy.extensions.guidance.guidance_section import Guidance, find_guidance
from proxy.interfaces import ExaminedTools, StateStore
from proxy.plugin import ConversationSource, decide, suggest_remark
from proxy.routing import Route
from proxy.server.admin.page import Page, PageRequest, refuse_question
from proxy.server.bound_route import show_tools

if TYPE_CHECKING:
    from proxy.plugin import AnswerPath, Serving, Snapshot, Usable

# --- guidance for callers ---------------------------------------------------------------------------------------------
# Guidance on the port where agents call (`guidance: {serve: PATH}`): prompt text or JSON, with the caller's state.
#
# The answer covers the tools that the caller may call, by the routes' `auth`, `jwt`, `allow` and `cors`. It has the
# state of the conversation that the request names, if the route finds one without a body. Tools that an MCP server
# lists are left out, because each client gets its own list there. A request changes nothing.


def make_answers(config: Config) -> dict[str, AnswerPath]:
    """The path at which agents fetch guidance, if the config names one, and its answer."""
    settings = find_guidance(config)
    return {settings.serve: partial(answer_guidance, settings)} if settings.serve else {}


async def answer_guidance(
    settings: Guidance,
    request: RawRequest,
    _fields: Fields,
    list_usable: Callable[[], Awaitable[Usable]],
    store: StateStore,
) -> HttpReply:
    """The guidance for the caller: all its tools, or those of `route` and `tool` in the query."""
    query = parse_qs(request.query)
    usable = await list_usable()
    route_name = query.get("route", [""])[0]
    if route_name and route_name not in {route.name for route, _ in usable}:
        return _refuse(f"no route {route_name[:128]!r} is yours to use")
    known: dict[str, tuple[ToolPolicy, Route]] = {}
    for route, calls in usable:
        tools = route.tools if calls is None else show_tools(route.tools, calls)
        for name, policy in tools.items() if route_name in ("", route.name) and route.learn is None else ():
            known.setdefault(name, (policy, route))
    for name in query.get("tool", ()):
        if name not in known:
            return _refuse(f"no tool {name[:128]!r} is yours to use{suggest_remark(name, known)}")
    chosen = {name: known[name] for name in query.get("tool", known)}
    states: list[ToolState] = []
    if settings.dynamic_state:
        conversations = [(policy, find_conversation(request, route.shape.ladder)) for policy, route in chosen.values()]
        states = [await read_state(one, policy, store) for policy, one in conversations if one.rung is not Rung.ADDRESS]
    policies = {name: policy for name, (policy, _) in chosen.items()}
    text = await asyncio.to_thread(write_guidance, policies, settings.max_chars, decide, states, settings.template)
    if "application/json" in (request.header("accept") or ""):
        return _reply(200, "application/json", _as_json(text, policies, states))
    return _reply(200, "text/plain; charset=utf-8", text.encode())


def _as_json(text: str, policies: Mapping[str, ToolPolicy], states: list[ToolState]) -> bytes:
    return dumps(
        {
            "text": text,
            "tools": list(policies),
            "state": [asdict(state) for state in states],
            "progress": list_progress_hints(states),
        }
    )


def _refuse(why: str) -> HttpReply:
    return _reply(404, "application/json", dumps({"error": why}))


def _reply(status: int, media_type: str, body: bytes) -> HttpReply:
    return HttpReply(status, (("Content-Type", media_type), ("Cache-Control", "no-store")), body)


async def read_state(conversation: Conversation, policy: ToolPolicy, store: StateStore) -> ToolState:
    """A conversation's used-up calls of one tool, its last failure, and whether its container was expanded."""
    call = ToolCall(policy.tool, Document(b"{}", {}), "", conversation)
    slot = refusals.make_reservation(call, policy)
    used = None if slot is None else await store.count_taken(slot.key)
    episode = await store.look(contract.make_attempt_key(conversation, policy.tool, policy))
    history = contract.write_history(episode) if episode is not None and episode.count else ()
    group, expanded = policy.member_of, None
    if group is not None and group.require_expansion:
        expanded = await store.count_taken(container.make_expansion_key(conversation, group.name), enough=1) > 0
    return ToolState(
        policy.tool, used, slot.limit if slot else None, 0 if episode is None else episode.count,
        policy.attempts.max_attempts, history[-1].partition(": ")[2] if history else "",
        "" if group is None or expanded is not False else group.name,
    )  # fmt: skip


# --- `/-/guidance` ----------------------------------------------------------------------------------------------------
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

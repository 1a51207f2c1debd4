"""Guidance on the port where agents call (`guidance: {serve: PATH}`): prompt text or JSON, with the caller's own state.

The answer covers the tools that the caller may call, by the routes' `auth`, `jwt`, `allow` and `cors`, and the state of
the conversation that the request names, where the route finds one without a body. Tools that an MCP server lists are
left out, because each client gets its own list there. A request changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from functools import partial
from urllib.parse import parse_qs

from proxy.adapters.ladder import find_conversation
from proxy.config.mistakes import suggest_remark
from proxy.config.model import Config
from proxy.core.contract import attempts as contract
from proxy.core.contract import container, refusals
from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Conversation, Document, Fields, HttpReply, RawRequest, Rung, ToolCall
from proxy.extensions.guidance.core.prompt import ToolState, list_progress_hints, write_guidance
from proxy.extensions.guidance.guidance_section import Guidance, find_guidance
from proxy.interfaces import StateStore
from proxy.routing import Route
from proxy.server.bound_route import show_tools
from proxy.server.handler import AnswerPath, Usable


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

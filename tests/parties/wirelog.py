"""The exchanges on both sides of the proxy, compared with each other."""

from __future__ import annotations

import json
from collections import Counter

from tests.parties.tap import Exchange, Said


def differences(front: list[Exchange], back: list[Exchange]) -> list[str]:
    """Returns what the proxy has changed, added or kept: nothing but its own questions for the list of tools."""
    found = []
    unmatched = list(back)
    for exchange in front:
        same = [other for other in unmatched if _same(exchange, other)]
        if same:
            unmatched.remove(same[0])
        else:
            found.append(f"not passed on as it was: {told(exchange)}")
    strange = [exchange for exchange in unmatched if not _is_own_question(exchange, front)]
    return found + [f"nobody asked this: {told(exchange)}" for exchange in strange]


def opens_session(front: list[Exchange]) -> bool:
    """Returns whether the server has given a session."""
    answers = [exchange.answer for exchange in front if exchange.answer is not None]
    return any(name == "mcp-session-id" for answer in answers for name, _ in answer.fields)


def endings(front: list[Exchange]) -> set[str]:
    """Returns how a server answers to the end of its sessions."""
    return {each.answer.start for each in front if each.request.start == "DELETE" and each.answer is not None}


def told(exchange: Exchange) -> str:
    """An exchange for a person."""
    request, answer = exchange.request, exchange.answer
    asked_for = f"{request.start} {dict(request.fields)} {request.body!r}"
    return f"{asked_for}\n -> {answer and (answer.start, dict(answer.fields), answer.body, answer.complete)}"


def _same(front: Exchange, back: Exchange) -> bool:
    if (front.request.start, front.request.body) != (back.request.start, back.request.body):
        return False
    if Counter(front.request.fields) - Counter(back.request.fields):
        return False
    if front.answer is None or back.answer is None:
        return front.answer is None
    if front.answer.start != back.answer.start or Counter(back.answer.fields) - Counter(front.answer.fields):
        return False
    return _same_body(front.answer, back.answer)


def _same_body(front: Said, back: Said) -> bool:
    """Of an answer that a client did not read to its end, what it read."""
    return front.body == back.body if front.complete else back.body.startswith(front.body)


def _is_own_question(exchange: Exchange, front: list[Exchange]) -> bool:
    """A `tools/list` under an id that no client of this session has used."""
    message = json.loads(exchange.request.body or b"null")
    ids = [json.loads(other.request.body).get("id") for other in front if other.request.body]
    return isinstance(message, dict) and message.get("method") == "tools/list" and message.get("id") not in ids

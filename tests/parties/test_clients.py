"""Every client at every server, through the proxy and without it: the same answers, and the same bytes on the wire."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.parties.conftest import Stage
from tests.parties.environment import CLIENTS, asked
from tests.parties.tap import Exchange, Said

BOOK: Final[dict[str, Any]] = {
    "title": "Emma",
    "copies": 3,
    "price": 0.5,
    "gift": True,
    "size": "small",
    "tags": ["a", "b"],
    "place": {"city": "Bath", "floor": 2},
}
CALLS: Final = [["book", BOOK], ["book", {**BOOK, "note": None, "title": "Ünï"}], ["fail", {"reason": "no stock"}]]
EVERYTHING: Final = [["echo", {"message": "hello"}], ["get-sum", {"a": 2, "b": 3}], ["get-tiny-image", {}]]
STEPS: Final = {"error": False, "text": "4 steps"}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_whole_session_is_the_same_through_the_proxy(client: str, stage: Stage) -> None:
    for tap in (*stage.front.values(), *stage.back.values()):
        tap.exchanges()
    calls = {name: EVERYTHING if name == "everything" else CALLS for name in stage.direct}
    with ThreadPoolExecutor(2) as pool:
        direct = pool.submit(asked, CLIENTS[client], stage.direct_urls(), calls)
        proxied = pool.submit(asked, CLIENTS[client], stage.urls(), calls)
        expected, seen = direct.result(), proxied.result()
    assert expected == seen
    for name, told in seen.items():
        assert [1, 2, 3, 4] == told["heard"], name
        assert (told["steps"] == STEPS) is (name != "everything"), told["steps"]
        assert ({"error": True} if name != "everything" else {"error": False}).items() <= told["calls"][2].items()
    for name in stage.direct:
        front, back = stage.front[name].exchanges(), stage.back[name].exchanges()
        assert front, name
        assert [] == differences(front, back), name


def differences(front: list[Exchange], back: list[Exchange]) -> list[str]:
    """What the proxy has changed, added or kept: nothing but its own questions for the list of tools."""
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

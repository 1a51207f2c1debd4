"""The mistake table: what models get wrong, sent by real clients to real servers through the proxy.

Every repairable mistake arrives right, every other is an `isError` that names the parameter; none arrives wrong, none
is a protocol error.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.parties.conftest import Stage
from tests.parties.environment import CLIENTS, asked
from tests.parties.mistakes import ABSENT, BOOK, DEFAULTS, OBJECTS, RAW, Mistake
from tests.parties.rawmcp import Session, opened

BOOKSHOPS: Final = ("high", "low", "fastmcp", "ts1", "ts2")
MODERN: Final = ("high", "low", "fastmcp", "ts2")


def verdict(mistake: Mistake, told: dict[str, Any], *, lenient: bool = False) -> str:
    """What is wrong with an answer; '' where nothing is."""
    arrives = mistake.likely if lenient and mistake.likely is not None else mistake.arrives
    if "raised" in told:
        return f"a protocol error: {told['raised']}"
    if arrives is None:
        silent = [name for name in mistake.names if name not in told["text"]]
        return "not refused" if not told["error"] else f"does not name {silent}" if silent else ""
    if told["error"]:
        return f"refused: {told['text'][:200]}"
    seen = json.loads(told["text"])
    return "" if any(seen == {**added, **arrives} for added in DEFAULTS) else f"arrived as {seen}"


@pytest.mark.parametrize("client", CLIENTS)
def test_no_mistake_of_a_client_arrives_wrong_or_is_lost(client: str, stage: Stage) -> None:
    calls = [[mistake.tool, mistake.arguments] for mistake in OBJECTS]
    answers = asked(CLIENTS[client], stage.urls(*BOOKSHOPS), dict.fromkeys(BOOKSHOPS, calls))
    for server, told in answers.items():
        assert {mistake.name: "" for mistake in OBJECTS} == {
            mistake.name: verdict(mistake, answer) for mistake, answer in zip(OBJECTS, told["calls"], strict=True)
        }, server


def test_what_is_only_likely_is_mended_where_that_is_asked_for(stage: Stage) -> None:
    calls = [[mistake.tool, mistake.arguments] for mistake in OBJECTS]
    answers = asked(CLIENTS["mcp1"], stage.lenient_urls(*BOOKSHOPS), dict.fromkeys(BOOKSHOPS, calls))
    for server, told in answers.items():
        assert {mistake.name: "" for mistake in OBJECTS} == {
            mistake.name: verdict(mistake, answer, lenient=True)
            for mistake, answer in zip(OBJECTS, told["calls"], strict=True)
        }, server


@pytest.mark.parametrize("server", BOOKSHOPS)
@pytest.mark.parametrize("era", ["old", "modern"])
def test_arguments_that_are_no_object_are_mended_or_explained(server: str, era: str, stage: Stage) -> None:
    if era == "modern" and server not in MODERN:
        pytest.skip(f"{server} speaks the old revisions only")
    url = stage.urls(server)[server]
    session = opened(url) if era == "old" else Session(url, None)
    for mistake in RAW:
        params = {"name": "book", **({} if mistake.arguments is ABSENT else {"arguments": mistake.arguments})}
        answer = session.call(params)
        assert 200 == answer.status, mistake
        result = answer.message["result"]
        text = "\n".join(part["text"] for part in result["content"])
        assert "" == verdict(mistake, {"error": result.get("isError", False), "text": text}), mistake.name
        assert ("complete" if era == "modern" else None) == result.get("resultType")


@pytest.mark.parametrize("request_id", [0, "seven", "0", 2**53])
def test_a_refusal_has_the_id_of_its_call(request_id: Any, stage: Stage) -> None:
    for server in BOOKSHOPS:
        answer = opened(stage.urls(server)[server]).call({"name": "book", "arguments": {}}, request_id)
        assert (200, request_id, True) == (answer.status, answer.message["id"], answer.message["result"]["isError"])
        assert {"content", "isError", "_meta"} >= answer.message["result"].keys()


@pytest.mark.parametrize("server", ["high", "low", "fastmcp", "ts1", "everything"])
def test_a_session_the_server_does_not_know_is_refused_in_the_servers_own_words(server: str, stage: Stage) -> None:
    arguments = {"name": "book", "arguments": {**BOOK, "copies": "x"}}
    direct = Session(stage.direct_urls(server)[server], "no-such-session").call(arguments)
    proxied = Session(stage.urls(server)[server], "no-such-session").call(arguments)
    assert direct.status in (400, 404)
    assert (direct.status, direct.message) == (proxied.status, proxied.message)

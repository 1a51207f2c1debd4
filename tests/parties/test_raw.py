"""What no client library sends, but models make clients send: by hand, to real servers through the proxy."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.parties.conftest import Stage
from tests.parties.mistakes import ABSENT, BOOK, RAW, verdict
from tests.parties.rawmcp import Session, opened

BOOKSHOPS: Final = ("high", "low", "fastmcp", "ts1", "ts2")
MODERN: Final = ("high", "low", "fastmcp", "ts2")


@pytest.mark.parametrize(
    ("server", "era"), [*((name, "old") for name in BOOKSHOPS), *((name, "modern") for name in MODERN)]
)
def test_arguments_that_are_no_object_are_mended_or_explained(server: str, era: str, stage: Stage) -> None:
    url = stage.url(server)
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
        answer = opened(stage.url(server)).call({"name": "book", "arguments": {}}, request_id)
        assert (200, request_id, True) == (answer.status, answer.message["id"], answer.message["result"]["isError"])
        assert {"content", "isError", "_meta"} >= answer.message["result"].keys()


@pytest.mark.parametrize("server", ["high", "low", "fastmcp", "ts1", "everything"])
def test_a_session_the_server_does_not_know_is_refused_in_the_servers_own_words(server: str, stage: Stage) -> None:
    arguments = {"name": "book", "arguments": {**BOOK, "copies": "x"}}
    direct = Session(stage.direct_url(server), "no-such-session").call(arguments)
    proxied = Session(stage.url(server), "no-such-session").call(arguments)
    assert direct.status in (400, 404)
    assert (direct.status, direct.message) == (proxied.status, proxied.message)

"""Requests that no client library sends, but models make clients send: by hand, to real servers through the proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.parties.conftest import Stage
from tests.parties.mistakes import ABSENT, BOOK, RAW, verdict
from tests.parties.rawmcp import META, OLD, Session, exchanged, opened
from tests.parties.rawmcp import MODERN as NEW

pytestmark = pytest.mark.large

BOOKSHOPS: Final = ("high", "low", "fastmcp", "ts1", "ts2")
MODERN: Final = ("high", "low", "fastmcp", "ts2")


@pytest.mark.parametrize(
    ("server", "era"), [*((name, "old") for name in BOOKSHOPS), *((name, "modern") for name in MODERN)]
)
def test_arguments_that_are_no_object_are_repaired_or_explained(server: str, era: str, stage: Stage) -> None:
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


def oddities(session: str | None) -> Iterator[tuple[str, str, dict[str, str], str | None]]:
    """Requests that are not damaged calls: (name, method, headers, body). Some are good, and some are not."""
    both = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    known = {"mcp-session-id": session} if session else {}
    old = {**both, "mcp-protocol-version": OLD, **known}
    new = {**both, "mcp-protocol-version": NEW}
    ping = '{"jsonrpc":"2.0","id":5,"method":"ping"}'
    call = {"name": "release", "arguments": {"key": "nobody"}}

    def asking(method: str, **more: Any) -> str:
        return json.dumps({"jsonrpc": "2.0", "id": 5, "method": method, **more})

    yield "ping", "POST", old, ping
    yield "an id of text", "POST", old, ping.replace("5", '"five"')
    yield "no such method", "POST", old, asking("no/such")
    yield "a notification", "POST", old, '{"jsonrpc":"2.0","method":"notifications/none"}'
    yield "an answer nobody waits for", "POST", old, '{"jsonrpc":"2.0","id":77,"result":{}}'
    yield "no session", "POST", {**both, "mcp-protocol-version": OLD}, ping
    yield "another session", "POST", {**old, "mcp-session-id": "gone"}, ping
    yield "another revision", "POST", {**old, "mcp-protocol-version": "1999-01-01"}, ping
    yield "takes JSON alone", "POST", {**old, "accept": "application/json"}, ping
    yield "takes anything", "POST", {**old, "accept": "*/*"}, ping
    yield "a batch", "POST", old, f"[{ping}]"
    yield "an empty batch", "POST", old, "[]"
    yield "a list", "POST", old, asking("tools/list")
    yield "a page that is not there", "POST", old, asking("tools/list", params={"cursor": "none"})
    yield "prompts", "POST", old, asking("prompts/list")
    yield "a clean call", "POST", old, asking("tools/call", params=call)
    yield (
        "a call that wants no answer",
        "POST",
        old,
        json.dumps({"jsonrpc": "2.0", "method": "tools/call", "params": call}),
    )
    yield "a call of JSON-RPC 1.0", "POST", old, asking("tools/call", params=call).replace("2.0", "1.0")
    yield "a stream without a session", "GET", {"accept": "text/event-stream"}, None
    yield "a stream for who takes none", "GET", {"accept": "application/json", **known}, None
    yield "the end of no session", "DELETE", both, None
    yield (
        "the probe",
        "POST",
        {**new, "mcp-method": "server/discover"},
        asking("server/discover", params={"_meta": META}),
    )
    yield "a new list", "POST", {**new, "mcp-method": "tools/list"}, asking("tools/list", params={"_meta": META})
    yield "a new list without its header", "POST", new, asking("tools/list", params={"_meta": META})
    yield "a new list without its meta", "POST", {**new, "mcp-method": "tools/list"}, asking("tools/list")
    yield "no such new method", "POST", {**new, "mcp-method": "no/such"}, asking("no/such", params={"_meta": META})
    named = {**new, "mcp-method": "tools/call", "mcp-name": "release"}
    yield "a clean new call", "POST", named, asking("tools/call", params={**call, "_meta": META})


@pytest.mark.parametrize("server", [*BOOKSHOPS, "everything"])
def test_a_message_that_is_no_damaged_call_gets_the_servers_answer(server: str, stage: Stage) -> None:
    direct, proxied = stage.direct_url(server), stage.url(server)
    answers = []
    for url in (direct, proxied):
        # server-everything has other tools, so there these calls are damaged ones.
        cases = [case for case in oddities(opened(url).session) if server != "everything" or "call" not in case[0]]
        answers.append({name: exchanged(url, method, headers, body) for name, method, headers, body in cases})
    assert answers[0] == answers[1]

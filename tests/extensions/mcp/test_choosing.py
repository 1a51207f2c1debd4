"""Which tools a route serves: what is denied is neither listed nor callable."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.contentcoding import list_data
from proxy.core.model.values import UpstreamReply
from proxy.extensions.mcp.adapters.mcplist import MAX_LIST
from proxy.extensions.mcp.core.listed_tools import LearnPolicy
from proxy.extensions.mcp.server.lists.shown_lists import filter_list
from tests.extensions.mcp.conversation import refusal, talk
from tests.extensions.mcp.server import ADD, NOW, McpServer, call

LIST = {"jsonrpc": "2.0", "id": "client-7", "method": "tools/list"}
DROP = {"name": "drop_all", "title": "Drops", "inputSchema": {"type": "object"}}
RULES = "allow: ['add', 'drop_*'], deny: ['*_all']"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_list_shows_what_is_served_as_the_server_wrote_it(streamed: bool) -> None:
    async with talk(McpServer([ADD, NOW, DROP], events=streamed), mcp=RULES) as client:
        seen = await client.send(LIST)
    (text,) = list_data(seen.body) if streamed else (seen.body,)

    assert {"jsonrpc": "2.0", "id": "client-7", "result": {"tools": [ADD]}} == json.loads(text)


def test_rewrites_only_the_list_of_a_message() -> None:
    tools = b'[{"name": "add"}, {"name": "drop_all"}]'
    text = b'{ "result" : {"tools": %s , "_meta":{"n":1.50}},\n"jsonrpc":"2.0","id":"\\u00e9" }'
    reply = UpstreamReply(200, (("Content-Type", "application/json"),), text % tools)
    rules = LearnPolicy(ToolPolicy("", None, ""), allow=("add",))

    assert text % b'[{"name":"add"}]' == filter_list(reply, rules, "é").body


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 1 << 20):
        yield body[start : start + (1 << 20)]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(
    ("body", "coding", "message"),
    [
        (b'{"result":{"tools":[]}}' + b" " * MAX_LIST, "identity", "more than 16 MiB"),
        (b'{"result":{"tools":[],"tools":[]}}\n\n', "identity", "cannot be read as strict JSON"),
        (b"no gzip", "gzip", "cannot be read as strict JSON"),
    ],
    ids=["too long", "two readings", "coded otherwise"],
)
async def test_a_list_that_cannot_be_reduced_is_an_error_that_says_why(
    kind: str, body: bytes, coding: str, message: str
) -> None:
    body = body if kind == "application/json" or coding == "gzip" else b"data: " + body
    headers = (("Content-Type", kind), ("Content-Encoding", coding))
    rules = LearnPolicy(ToolPolicy("", None, ""), allow=("add",))
    for sent in (body, pieces(body)):
        reply = filter_list(UpstreamReply(200, headers, sent), rules, "client-7")
        text = reply.body if isinstance(reply.body, bytes) else b"".join([piece async for piece in reply.body])
        (told,) = list_data(text) if kind == "text/event-stream" else (text,)
        answer = json.loads(told)
        assert ("2.0", "client-7", -32603) == (answer["jsonrpc"], answer["id"], answer["error"]["code"])
        assert message in answer["error"]["message"]


@pytest.mark.parametrize("more", ["", "mode: report"])
@pytest.mark.parametrize("name", ["drop_all", "now"])
async def test_rejects_a_call_of_a_tool_that_is_not_served(name: str, more: str) -> None:
    async with talk(McpServer([ADD, NOW, DROP]), mcp=RULES, more=more) as client:
        await client.ask(call("add", {"a": 1, "b": 1}))
        answer = await client.ask(call(name, {}))

    assert ((True, "UNKNOWN_TOOL"), [{"a": 1, "b": 1}]) == (refusal(answer), client.received)


async def test_rejects_an_unserved_tool_without_a_list_or_under_another_spelling() -> None:
    async with talk(McpServer([ADD, NOW, DROP]), mcp=RULES) as client:
        spelt = await client.ask(call("functions.drop_all:0", {}))
        told = await client.ask(call("nothing", {}))

    assert [(True, "UNKNOWN_TOOL")] * 2 == [refusal(spelt), refusal(told)]
    assert "drop_all" not in json.dumps(told)
    assert [] == client.received


async def test_a_container_holds_what_is_served() -> None:
    async with talk(McpServer([ADD, NOW, DROP]), mcp=RULES + ", collapse: {name: everything}") as client:
        listed = json.dumps(await client.ask(LIST))
        expanded = json.dumps(await client.ask(call("everything")))

    assert ("add" in listed, "drop_all" in listed, "add" in expanded, "drop_all" in expanded) == (
        True,
        False,
        True,
        False,
    )

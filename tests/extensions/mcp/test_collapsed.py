"""A large catalogue behind one container: search, description, pages, and functions that become visible."""

from __future__ import annotations

import json
from typing import Any

from proxy.core.json.contentcoding import list_data
from tests.extensions.mcp.conversation import Talk, refusal, talk, text
from tests.extensions.mcp.server import ADD, McpServer, call

LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
MANY = [ADD, *({"name": f"tool_{number}", "description": f"Does thing {number}.", "inputSchema": {"type": "object"}}
               for number in range(40))]  # fmt: skip
SESSION = "Mcp-Session-Id: s1"


async def names(client: Talk, *headers: str) -> list[str]:
    return [tool["name"] for tool in (await client.ask(LIST, *headers))["result"]["tools"]]


def told(answer: Any) -> Any:
    return json.loads(text(answer))


async def test_a_container_with_many_tools_brings_a_search_and_a_description() -> None:
    async with talk(McpServer(MANY), mcp="collapse: {name: everything}") as client:
        assert ["everything", "search_tools", "describe_tool"] == await names(client)
        found = told(await client.ask(call("search_tools", {"query": "adds numbers", "limit": "3"})))
        assert "add" == found["tools"][0]["name"]
        shown = told(await client.ask(call("describe_tool", {"name": "add"})))
        assert ADD["inputSchema"] == shown["functions"][0]["parameters"]
        assert (True, "INVALID_ARGUMENTS") == refusal(await client.ask(call("search_tools", {})))
        assert '{"a": 1, "b": 2}' == text(await client.ask(call("add", {"a": "1", "b": 2})))
        assert [{"a": 1, "b": 2}] == client.received


async def test_a_container_with_few_tools_brings_no_search_and_a_servers_own_search_stays() -> None:
    async with talk(McpServer(MANY[:5]), mcp="collapse: {name: everything}") as client:
        assert ["everything"] == await names(client)
        assert (True, "UNKNOWN_TOOL") == refusal(await client.ask(call("search_tools", {"query": "x"})))
    own = {"name": "search_tools", "inputSchema": {"type": "object"}}
    async with talk(McpServer([*MANY, own]), mcp="collapse: {name: everything}") as client:
        assert ["everything", "describe_tool"] == await names(client)
        assert '{"query": "x"}' == text(await client.ask(call("search_tools", {"query": "x"})))


async def test_a_described_function_joins_the_sessions_list_with_a_notification() -> None:
    async with talk(McpServer(MANY), mcp="collapse: {name: everything}") as client:
        seen = await client.send(call("describe_tool", {"name": "add"}, id=7), SESSION)
        change, answer = map(json.loads, list_data(seen.body))
        assert ("notifications/tools/list_changed", 7) == (change["method"], answer["id"])
        assert ["everything", "search_tools", "describe_tool", "add"] == await names(client, SESSION)
        assert ADD == (await client.ask(LIST, SESSION))["result"]["tools"][-1]
        again = await client.send(call("describe_tool", {"name": "add"}), SESSION)
        assert "application/json" == again.header("content-type")
        assert 3 == len(await names(client, "Mcp-Session-Id: another"))


async def test_an_expansion_makes_its_page_visible() -> None:
    async with talk(McpServer(MANY), mcp="collapse: {name: everything}") as client:
        seen = await client.send(call("everything"), SESSION)
        _, answer = map(json.loads, list_data(seen.body))
        shown = [function["name"] for function in told(answer)["functions"]]
        assert shown == (await names(client, SESSION))[3:]


async def test_the_list_of_2026_never_varies() -> None:
    async with talk(McpServer(MANY), mcp="collapse: {name: everything}") as client:
        before = await client.ask_modern(LIST)
        assert "success" in told(await client.ask_modern(call("describe_tool", {"name": "add"})))
        assert before == await client.ask_modern(LIST)


async def test_advises_a_call_in_full_only_if_the_function_accepts_it_and_it_is_short() -> None:
    same = "call 'add' with the same arguments, without `function`."
    async with talk(McpServer(MANY), mcp="collapse: {name: everything}") as client:
        for arguments, advice in (
            ({"a": 1, "b": "2"}, 'call \'add\' with {"a": 1, "b": 2}.'),
            ({"a": 1, "b": 2, "note": "/srv/data/2026/report.txt"}, same),
            ({"a": "five", "b": 2}, f"{same} Change first: send integer at /a."),
        ):
            answer = await client.ask(call("everything", {"function": "add", **arguments}))
            assert advice in text(answer)
        assert [] == client.received

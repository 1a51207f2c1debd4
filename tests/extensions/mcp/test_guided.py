"""Guidance in what MCP clients read before they call (`guidance: {mcp: ...}`): only if the config wants it, and
nothing else of a message is changed."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from proxy.core.json.contentcoding import list_data
from proxy.extensions.guidance.core.prompt import REACT_HEADER
from tests.extensions.mcp.conversation import talk
from tests.extensions.mcp.server import ADD, NOW, McpServer, as_events, as_json, http
from tests.serving.wire import Seen

LIST = {"jsonrpc": "2.0", "id": "client-7", "method": "tools/list"}
START = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
DISCOVER = {"jsonrpc": "2.0", "id": 3, "method": "server/discover"}
ADD_LINES = """\
Adds two numbers.

Arguments: {a: integer (required), b: integer (required)}
✓ CORRECT: {"a":10,"b":10}
"""


def introduce(own: dict[str, Any], *, streamed: bool = False) -> McpServer:
    """A server with `own` in its answer to `initialize` and `server/discover`."""

    def answer(message: dict[str, Any], _: Seen) -> bytes:
        if message.get("method") not in ("initialize", "server/discover"):
            return http("202 Accepted", b"")
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": {"capabilities": {"tools": {}}, **own}}
        log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hello"}}
        return as_events(log, reply) if streamed else as_json(reply)

    return McpServer(otherwise=answer, events=streamed)


@pytest.mark.parametrize("streamed", [False, True])
async def test_descriptions_say_what_a_tool_takes(streamed: bool) -> None:
    async with talk(McpServer([ADD, NOW], events=streamed), guidance="{mcp: descriptions}") as client:
        seen = await client.send(LIST)
    (text,) = list_data(seen.body) if streamed else (seen.body,)
    listed = json.loads(text)
    add, now = listed["result"]["tools"]

    assert add["description"].startswith(ADD_LINES)
    assert "✗ WRONG:" in add["description"]
    assert now["description"].startswith("Arguments: {zone?: string}")
    del now["description"]
    assert {**LIST, "result": {"tools": [ADD, NOW]}} == {
        **listed, "method": "tools/list", "result": {"tools": [{**add, "description": ADD["description"]}, now]},
    }  # fmt: skip


async def test_no_other_byte_of_a_list_is_changed() -> None:
    tool = b'{"name":"n","inputSchema":{"type":"object"} ,"description" : "N"}'
    listed = b'{ "jsonrpc":"2.0", "result":{"x":1.50e+00,"tools":[ %b ]},"id":"client-7"}\n' % tool
    server = McpServer(refuse=lambda _: http("200 OK", listed, "Content-Type: application/json"))
    async with talk(server, guidance="{mcp: descriptions}") as client:
        seen = await client.send(LIST)
    before, _, after = listed.partition(b'"N"')

    assert (before, after) == (seen.body[: len(before)], seen.body[-len(after) :])
    assert seen.body[len(before) :].startswith(b'"N\\n\\nArguments: ')


@pytest.mark.parametrize("wanted", ["off", "instructions"])
async def test_a_list_passes_byte_for_byte_without_guided_descriptions(wanted: str) -> None:
    async with talk(McpServer([ADD]), guidance=f"{{mcp: {wanted}}}") as client:
        seen = await client.send(LIST)

    assert json.dumps({"jsonrpc": "2.0", "id": "client-7", "result": {"tools": [ADD]}}).encode() == seen.body


async def test_descriptions_together_are_bounded_and_leave_out_last_tools() -> None:
    tools = [{**ADD, "name": f"add{n}"} for n in range(20)]
    async with talk(McpServer(tools), guidance="{mcp: descriptions, max_chars: 1000}") as client:
        answer = await client.ask(LIST)
    added = [len(tool["description"]) - len(ADD["description"]) for tool in answer["result"]["tools"]]

    assert sum(added) <= 1000
    assert (True, 0) == (added[0] > 0, added[-1])


async def test_each_credential_gets_instructions_of_its_list_only() -> None:
    def choose(seen: Seen) -> bytes | None:
        message = json.loads(seen.body)
        if message.get("method") != "tools/list":
            return None
        tool = ADD if "alice" in (seen.header("authorization") or "") else NOW
        return as_json({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [tool]}})

    server = introduce({})
    server.refuse = choose
    async with talk(server, guidance="{mcp: instructions}") as client:
        await client.ask(LIST, "Authorization: Bearer alice")
        alice = await client.ask(START, "Authorization: Bearer alice")
        bob = await client.ask(START, "Authorization: Bearer bob")

    assert ["## add" in one["result"]["instructions"] for one in (alice, bob)] == [True, False]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("own", "before"), [({}, ""), ({"instructions": "Be kind."}, "Be kind.\n\n")])
async def test_instructions_follow_the_servers_own(own: dict[str, Any], before: str, streamed: bool) -> None:
    async with talk(introduce(own, streamed=streamed), guidance="{mcp: instructions}") as client:
        seen = await client.send(START)
    *others, text = list_data(seen.body) if streamed else (seen.body,)
    result = json.loads(text)["result"]

    assert result["instructions"].startswith(before + REACT_HEADER)
    assert {"capabilities": {"tools": {}}} == {key: result[key] for key in result if key != "instructions"}
    assert (1 if streamed else 0) == len(others)


async def test_discovery_of_the_modern_revision_has_them_too_with_the_list_it_was_given_before() -> None:
    async with talk(introduce({}), guidance="{mcp: instructions}") as client:
        await client.ask_modern(LIST)
        answer = await client.ask_modern(DISCOVER)

    assert "## add\nAdds two numbers.\nArguments: {a: integer" in answer["result"]["instructions"]


def _answer_always(message: object, _: Seen) -> bytes:
    return as_json(message)


async def test_an_error_and_instructions_that_are_no_text_stay_as_they_are() -> None:
    error = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32600, "message": "no"}}
    for own in (error, {"jsonrpc": "2.0", "id": 0, "result": {"instructions": [1]}}):
        server = McpServer(refuse=partial(_answer_always, own))
        async with talk(server, guidance="{mcp: instructions}") as client:
            assert json.dumps(own).encode() == (await client.send(START)).body


async def test_a_list_that_is_too_long_passes_unchanged() -> None:
    long = {**NOW, "description": "x" * 1_100_000}
    async with talk(McpServer([ADD, long], events=True), guidance="{mcp: descriptions}") as client:
        seen = await client.send(LIST)

    assert [{"jsonrpc": "2.0", "id": "client-7", "result": {"tools": [ADD, long]}}] == [
        json.loads(text) for text in list_data(seen.body)
    ]


async def test_a_guided_call_is_validated_as_any_other() -> None:
    async with talk(McpServer([ADD]), guidance="{mcp: descriptions}") as client:
        await client.ask(LIST)
        await client.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
                          "params": {"name": "add", "arguments": {"a": "1", "b": 2}}})  # fmt: skip

    assert [{"a": 1, "b": 2}] == client.received


async def test_a_container_of_all_tools_describes_itself() -> None:
    mcp = "collapse: {name: everything}"
    async with talk(McpServer([ADD]), mcp=mcp, guidance="{mcp: descriptions}") as guided:
        shown = await guided.ask(LIST)
    async with talk(McpServer([ADD]), mcp=mcp) as plain:
        assert shown == await plain.ask(LIST)

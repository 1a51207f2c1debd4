"""Renamed and newly described tools: clients see one name, the server gets its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.core.json.contentcoding import list_data
from tests.extensions.mcp.conversation import refusal, talk, text
from tests.extensions.mcp.server import ADD, NOW, McpServer, call, modern, modern_headers

LIST = {"jsonrpc": "2.0", "id": "client-7", "method": "tools/list"}
SUM = "tools: {add: {as: total, description: Sums.}}"


def sent(body: bytes) -> Any:
    """The name and the arguments that reached the server."""
    params = json.loads(body)["params"]
    return params["name"], params.get("arguments")


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_list_shows_the_new_name_and_description_and_nothing_else_differs(streamed: bool) -> None:
    async with talk(McpServer([ADD, NOW], events=streamed), mcp=SUM) as client:
        seen = await client.send(LIST)
    (listed,) = list_data(seen.body) if streamed else (seen.body,)

    assert [{**ADD, "name": "total", "description": "Sums."}, NOW] == json.loads(listed)["result"]["tools"]


async def test_a_clean_call_reaches_the_server_under_its_own_name_and_is_not_changed_otherwise() -> None:
    body = b'{ "jsonrpc":"2.0","id":1,\n"method":"tools/call","params":{"name" :"total", "arguments":{"a":1 ,"b":2}} }'
    async with talk(mcp=SUM) as client:
        await client.send(body)
        (seen,) = client.server.calls

    assert body.replace(b'"total"', b'"add"') == seen.body


async def test_a_call_is_validated_and_repaired_by_the_schema_that_was_listed() -> None:
    async with talk(mcp=SUM) as client:
        repaired = await client.ask(call("total", {"a": "1", "b": 2}))
        refused = await client.ask(call("total", {"a": "one", "b": 2}))
        received = [sent(seen.body) for seen in client.server.calls]

    assert '{"a": 1, "b": 2}' == text(repaired)
    assert (True, "INVALID_ARGUMENTS") == refusal(refused)
    assert "'total'" in text(refused)
    assert "add" not in json.dumps(refused)
    assert [("add", {"a": 1, "b": 2})] == received


async def test_the_servers_own_name_means_nothing_to_clients_and_the_answer_says_what_does() -> None:
    async with talk(mcp=SUM) as client:
        own = await client.ask(call("add", {"a": 1, "b": 2}))
        near = await client.ask(call("totals", {"a": 1, "b": 2}))

    assert [(True, "UNKNOWN_TOOL")] * 2 == [refusal(own), refusal(near)]
    assert "It is called 'total' here: call it by exactly this name." in text(own)
    assert "Did you mean 'total'?" in text(near)
    assert "'add'" not in text(near)
    assert [] == client.server.calls


@pytest.mark.parametrize("more", ["mode: report", ""])
async def test_the_servers_own_name_is_no_way_around_the_schema(more: str) -> None:
    async with talk(mcp=f"{SUM}, unknown_schema: forward", more=more) as client:
        answer = await client.ask(call("add", {"a": "one"}))

    assert ((True, "UNKNOWN_TOOL"), []) == (refusal(answer), client.server.calls)


async def test_an_unvalidated_call_has_the_servers_name_too() -> None:
    async with talk(mcp=SUM, more="mode: report") as client:
        await client.ask(call("total", {"a": "one"}))
        received = [sent(seen.body) for seen in client.server.calls]

    assert [("add", {"a": "one"})] == received


@pytest.mark.parametrize("arguments", [{"a": 1, "b": 2}, {"a": "1", "b": 2}], ids=["clean", "repaired"])
async def test_headers_that_repeat_the_call_say_what_its_body_says(arguments: dict[str, Any]) -> None:
    schema = {
        **ADD["inputSchema"],
        "properties": {"a": {"type": "integer", "x-mcp-header": "A"}, "b": {"type": "integer"}},
    }
    async with talk(McpServer([{**ADD, "inputSchema": schema}]), mcp=SUM) as client:
        await client.ask_modern(call("total", arguments), f"Mcp-Param-A: {arguments['a']}")
        (seen,) = client.server.calls

    assert ("add", "add", "1") == (sent(seen.body)[0], seen.header("mcp-name"), seen.header("mcp-param-a"))


async def test_a_header_with_the_servers_name_contradicts_the_body() -> None:
    message = call("total", {"a": 1, "b": 2})
    headers = [line.replace("Mcp-Name: total", "Mcp-Name: add") for line in modern_headers(message)]
    async with talk(mcp=SUM) as client:
        seen = await client.send(modern(message), *headers)

    assert (400, -32020) == (seen.status, json.loads(seen.body)["error"]["code"])


async def test_repairs_a_misspelt_new_name_if_the_rule_is_on() -> None:
    async with talk(mcp="tools: {add: {as: sum_up}}", more="repair: {rules: {tool_name_fold: on}}") as client:
        await client.ask(call("functions.sum_up:0", {"a": 1, "b": 2}))
        await client.ask(call("SumUp", {"a": 1, "b": 2}))
        received = [sent(seen.body) for seen in client.server.calls]

    assert [("add", {"a": 1, "b": 2})] * 2 == received


async def test_a_new_name_belongs_only_to_its_tool() -> None:
    taken = {"name": "total", "inputSchema": {"type": "object"}}
    async with talk(McpServer([taken, ADD]), mcp=SUM) as client:
        listed = (await client.ask(LIST))["result"]["tools"]
        await client.ask(call("total", {"a": 1, "b": 2}))
        refused = await client.ask(call("total", {"anything": 1}))
        received = [sent(seen.body) for seen in client.server.calls]

    assert [("total", "Sums.")] == [(tool["name"], tool["description"]) for tool in listed]
    assert [("add", {"a": 1, "b": 2})] == received
    assert (True, "INVALID_ARGUMENTS") == refusal(refused)


async def test_two_tools_can_swap_their_names() -> None:
    async with talk(mcp="tools: {add: {as: now}, now: {as: add}}") as client:
        listed = [tool["name"] for tool in (await client.ask(LIST))["result"]["tools"]]
        await client.ask(call("now", {"a": 1, "b": 2}))
        await client.ask(call("add", {"zone": "UTC"}))
        received = [sent(seen.body) for seen in client.server.calls]

    assert (["now", "add"], [("add", {"a": 1, "b": 2}), ("now", {"zone": "UTC"})]) == (listed, received)


async def test_the_config_means_tools_by_the_names_that_their_server_lists() -> None:
    rules = "tools: {add: {as: total, overlay: {properties: {a: {maximum: 5}}}}, now: {as: clock}}, deny: [now]"
    async with talk(mcp=rules, more="caps: {overrides: {add: 1}}") as client:
        listed = [tool["name"] for tool in (await client.ask(LIST))["result"]["tools"]]
        patched = await client.ask(call("total", {"a": 6, "b": 2}), "X-Conversation-Id: c")
        denied = [await client.ask(call(name, {})) for name in ("clock", "now")]
        answers = [await client.ask(call("total", {"a": 1, "b": 2}), "X-Conversation-Id: c") for _ in range(2)]

    assert ["total"] == listed
    assert (True, "INVALID_ARGUMENTS") == refusal(patched)
    assert [(True, "UNKNOWN_TOOL")] * 2 == [refusal(answer) for answer in denied]
    assert "clock" not in text(denied[1])
    assert '{"a": 1, "b": 2}' == text(answers[0])
    assert (True, "CALL_CAP_EXCEEDED") == refusal(answers[1])


async def test_a_container_holds_tools_by_their_new_names() -> None:
    rules = f"{SUM}, collapse: {{name: everything, auto_expand: dispatch}}"
    async with talk(mcp=rules) as client:
        expanded = json.dumps(await client.ask(call("everything")))
        await client.ask(call("everything", {"function": "total", "arguments": {"a": 1, "b": 2}}))
        received = [sent(seen.body) for seen in client.server.calls]

    assert ("Sums." in expanded, "Adds two numbers" in expanded) == (True, False)
    assert [("add", {"a": 1, "b": 2})] == received


async def test_guidance_follows_the_new_description() -> None:
    async with talk(mcp=SUM, guidance="{mcp: descriptions}") as client:
        first = (await client.ask(LIST))["result"]["tools"][0]

    assert ("total", True) == (first["name"], first["description"].startswith("Sums.\n\n"))
    assert "'add'" not in first["description"]


def read_mistakes(folder: Path, route: str) -> list[str]:
    path = folder / "config.yaml"
    path.write_text(
        "version: 1\nupstreams: {a: {url: 'http://127.0.0.1:9'}}\n"
        f"routes: [{{path: /mcp, protocol: mcp, upstream: a, {route}}}]\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    return [str(mistake) for mistake in caught.value.mistakes]


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ("mcp: {tools: {a: {as: x}, b: {as: x}}}", "the name 'x' is taken on this route"),
        ("mcp: {tools: {a: {as: b}, b: {mode: report}}}", "the name 'b' is taken on this route"),
        ("mcp: {tools: {a: {as: box}}, collapse: {name: box}}", "the name 'box' is taken on this route"),
        ("mcp: {tools: {a: {as: x}}, allow: [x]}", "only clients call a tool 'x'  (say 'a', as its server lists it)"),
        ("mcp: {tools: {a: {as: x}}}, caps: {overrides: {x: 5}}", "only clients call a tool 'x'"),
        ("mcp: {tools: {a: {as: x y}}}", "a tool's name, without spaces"),
    ],
)
def test_names_that_contradict_each_other_are_mistakes(route: str, message: str, tmp_path: Path) -> None:
    (found,) = read_mistakes(tmp_path, route)
    assert message in found


def test_a_tool_of_the_catalogue_cannot_be_renamed(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("version: 1\ntools: {t: {as: x, validation: off}}\n")
    with pytest.raises(ConfigError, match="`as` renames what a server lists"):
        load(path, {})


@pytest.mark.parametrize(
    ("route", "notes"),
    [
        ("servers: {hub: {upstream: a, prefix: gh.}}", ["the prefix 'gh.' of server 'hub'"]),
        ("servers: {my.hub: a}", ["the prefix 'my.hub_' of server 'my.hub'"]),
        ("servers: {hub: a}", []),
        ("upstream: a, mcp: {tools: {x: {as: a.b}, c.d: {}}}", ["the tool name 'a.b'", "the tool name 'c.d'"]),
        (f"upstream: a, mcp: {{tools: {{x: {{as: {'n' * 65}}}}}}}", [f"the tool name '{'n' * 65}'"]),
        (f"upstream: a, mcp: {{tools: {{x.y: {{as: {'n' * 64}}}}}}}", []),
        ("upstream: a, mcp: {collapse: {name: all.tools}}", ["the tool name 'all.tools'"]),
    ],
)
def test_names_that_vendors_refuse_are_notes(route: str, notes: list[str], tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "version: 1\nupstreams: {a: {url: 'http://127.0.0.1:9'}}\n"
        f"routes: [{{path: /mcp, protocol: mcp, {route}}}]\n"
    )
    refused = [note for note in load(path, {}).config.notes if "is refused by the APIs" in note]
    assert [
        f"route '/mcp': {words} is refused by the APIs of many models  (they take letters, digits, '_' and '-', "
        "at most 64 of them)"
        for words in notes
    ] == refused

"""Learning of schemas: when the proxy requests a list, whose list counts, and how calls without one end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.extensions.mcp.server.exchange import Exchange
from proxy.extensions.mcp.server.lists.learner import Learner
from tests.extensions.mcp.conversation import Talk, feedback, refusal, talk, text
from tests.extensions.mcp.server import (
    ADD,
    NOW,
    McpServer,
    as_events,
    as_json,
    call,
    http,
    modern,
    modern_headers,
    result,
)
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, tool

ARGUMENTS = {"a": 1, "b": 1}
GOOD = call("add", ARGUMENTS)
BAD = call("add", {"a": 1})
LIST = {"jsonrpc": "2.0", "id": "client-7", "method": "tools/list"}


def learner_of(client: Talk) -> Learner:
    """Returns what the proxy remembers of its servers, once a call has been judged."""
    exchange = client.proxy.serving.listed.of("mcp")
    assert isinstance(exchange, Exchange)
    return exchange._learner


async def test_requests_the_list_once_and_not_per_call() -> None:
    async with talk() as client:
        for _ in range(5):
            await client.ask(GOOD)
        await client.ask(BAD)

    assert (1, 5) == (len(client.server.listed), len(client.server.calls))


async def test_the_question_is_the_clients_own_with_a_name_that_no_client_has() -> None:
    async with talk(more="headers: {set: {x-team: blue}}") as client:
        await client.send(
            GOOD,
            "Authorization: Bearer t",
            "Mcp-Session-Id: s-1",
            "MCP-Protocol-Version: 2025-11-25",
            "Last-Event-ID: 9",
        )
    (asked,) = client.server.listed
    message = json.loads(asked.body)

    assert {"jsonrpc": "2.0", "id": message["id"], "method": "tools/list"} == message
    assert len(message["id"]) > 30
    assert ("Bearer t", "s-1", "2025-11-25", "blue", "application/json, text/event-stream", None) == tuple(
        asked.header(name)
        for name in ("authorization", "mcp-session-id", "mcp-protocol-version", "x-team", "accept", "last-event-id")
    )


async def test_requests_the_list_in_the_clients_revision() -> None:
    async with talk() as client:
        await client.ask_modern(GOOD)
    (asked,) = client.server.listed
    params = json.loads(asked.body)["params"]

    assert ("tools/list", None, "2026-07-28") == tuple(
        asked.header(name) for name in ("mcp-method", "mcp-name", "mcp-protocol-version")
    )
    assert {"io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"} == set(
        params["_meta"]
    )


@pytest.mark.parametrize("events", [False, True])
async def test_every_page_of_a_list_is_read(events: bool) -> None:
    tools = [{**ADD, "name": f"add{number}"} for number in range(7)]
    async with talk(McpServer(tools, page=3, events=events)) as client:
        answer = await client.ask(call("add6", {"a": 1}))

    assert (3, "INVALID_ARGUMENTS") == (len(client.server.listed), feedback(answer)["code"])


async def test_many_calls_at_once_ask_once() -> None:
    async with talk() as client:
        answers = await asyncio.gather(*[client.ask({**GOOD, "id": number}) for number in range(20)])

    assert list(range(20)) == [answer["id"] for answer in answers]
    assert 1 == len(client.server.listed)


@pytest.mark.parametrize("events", [False, True])
async def test_a_list_that_flows_by_need_not_be_asked_for(events: bool) -> None:
    async with talk(McpServer(events=events)) as client:
        await client.send(LIST)
        answer = await client.ask(BAD)

    assert (1, "INVALID_ARGUMENTS") == (len(client.server.listed), feedback(answer)["code"])


async def test_one_page_that_flows_by_is_not_taken_for_the_list() -> None:
    async with talk(McpServer(page=1)) as client:
        await client.send(LIST)
        await client.ask(call("now"))

    assert (3, [None]) == (len(client.server.listed), client.received)


async def test_each_credential_has_its_own_list() -> None:
    def refuse(seen: Seen) -> bytes | None:
        if seen.header("authorization") != "Bearer admin" and b"tools/list" in seen.body:
            return as_json(result(json.loads(seen.body), {"tools": [NOW]}))
        return None

    async with talk(McpServer(refuse=refuse)) as client:
        admin = await client.ask(GOOD, "Authorization: Bearer admin")
        user = await client.ask(GOOD, "Authorization: Bearer user")

    assert not admin["result"].get("isError")
    assert (True, "UNKNOWN_TOOL") == refusal(user)


async def test_other_headers_tell_credentials_apart_if_the_operator_says_so() -> None:
    async with talk(mcp="credentials: [X-Tenant]") as client:
        for tenant in ("a", "b", "a"):
            await client.ask(GOOD, f"X-Tenant: {tenant}")

    assert 2 == len(client.server.listed)


async def test_a_tool_that_is_not_in_the_list_is_looked_for_in_a_new_one() -> None:
    server = McpServer([NOW])
    async with talk(server, mcp="ttl: 0s") as client:
        await client.ask(call("now"))
        server.tools = [NOW, ADD]
        answer = await client.ask(GOOD)

    assert not answer["result"].get("isError")


def age(client: Talk, seconds: float) -> None:
    """Makes every list that the proxy knows as old as this."""
    learner = learner_of(client)
    at = learner._clock.now() - seconds
    learner._known.update({key: replace(known, at=at, fresh_until=at) for key, known in learner._known.items()})


def zip_tool(kind: str) -> dict[str, Any]:
    return {"name": "send", "inputSchema": {"type": "object", "properties": {"zip": {"type": kind}}}}


async def test_a_call_is_not_changed_by_the_word_of_an_old_list() -> None:
    server = McpServer([zip_tool("integer")])
    async with talk(server) as client:
        await client.ask(call("send", {"zip": "42"}))
        server.tools = [zip_tool("string")]
        age(client, 11)
        await client.ask(call("send", {"zip": "43"}))

    assert ([{"zip": 42}, {"zip": "43"}], 2) == (client.received, len(server.listed))


async def test_a_clean_call_goes_by_an_old_list_without_a_question() -> None:
    async with talk() as client:
        await client.ask(GOOD)
        age(client, 11)
        await client.ask(GOOD)

    assert 1 == len(client.server.listed)


async def test_requests_the_list_again_when_the_server_forgot_the_session() -> None:
    server = McpServer([zip_tool("integer")])
    async with talk(server) as client:
        await client.ask(call("send", {"zip": 1}), "Mcp-Session-Id: s-1")
        server.tools = [zip_tool("string")]
        server.refuse = _door
        gone = await client.send(call("send", {"zip": 1}), "Mcp-Session-Id: before")
        await client.ask(call("send", {"zip": "42"}), "Mcp-Session-Id: s-1")

    assert (404, [{"zip": 1}, {"zip": "42"}]) == (gone.status, client.received)


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 1), (1.5, 2)])
async def test_a_tool_that_was_added_a_second_ago_is_found(seconds: float, asked: int) -> None:
    server = McpServer([NOW])
    async with talk(server) as client:
        await client.ask(call("now"))
        server.tools = [NOW, ADD]
        age(client, seconds)
        answer = await client.ask(GOOD)

    assert (asked, asked == 1) == (len(server.listed), answer["result"].get("isError", False))


async def test_a_page_that_says_otherwise_than_the_list_outdates_it() -> None:
    server = McpServer([zip_tool("integer"), NOW])
    async with talk(server) as client:
        await client.ask(call("send", {"zip": 1}))
        server.tools, server.page = [zip_tool("string"), NOW], 1
        await client.send(LIST)
        await client.ask(call("send", {"zip": "42"}))

    assert [{"zip": 1}, {"zip": "42"}] == client.received


@pytest.mark.parametrize("escaped", ["notifications/tools/list_changed", "notifications\\/tools\\/list_changed"])
async def test_requests_the_list_again_when_the_server_says_that_it_changed(escaped: str) -> None:
    event = b'{"jsonrpc":"2.0","method":"' + escaped.encode() + b'"}'

    def called(message: dict[str, Any], _seen: Seen) -> bytes:
        whole = as_events(result(message, {"content": []}))
        head, _, rest = whole.partition(b"\r\n\r\n")
        data = b"data: " + event + b"\n\n"
        return head + b"\r\n\r\n" + f"{len(data):x}\r\n".encode() + data + b"\r\n" + rest

    async with talk(McpServer(called=called)) as client:
        await client.send(GOOD)
        await client.send(GOOD)

    assert 2 == len(client.server.listed)


# --- schemas ----------------------------------------------------------------------------------------------------------
async def test_an_unusable_schema_costs_only_its_tool() -> None:
    broken = {
        "name": "broken",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "intger"}}, "$ref": "#/no"},
    }
    remote = {"name": "remote", "inputSchema": {"$ref": "https://schemas.example/x.json"}}
    bare = {"name": "bare"}
    async with talk(McpServer([ADD, broken, remote, bare])) as client:
        refused = [await client.ask(call(name, {"a": 1})) for name in ("broken", "remote", "bare")]
        good = await client.ask(GOOD)
        await client.ask(call("broken", {"a": 1}))
        told = [json.loads(line) for line in client.proxy.log.getvalue().splitlines()]

    assert [(True, "SCHEMA_UNKNOWN")] * 3 == [refusal(answer) for answer in refused]
    assert all("cannot be used" in text(answer) for answer in refused)
    assert not good["result"].get("isError")
    assert ["broken", "remote", "bare"] == [
        line["tool"] for line in told if line["message"] == "tool schema cannot be used"
    ]


async def test_serves_a_listed_schema_that_guards_too_little_and_logs_it_once() -> None:
    loose = {"name": "loose", "inputSchema": {"type": "object", "propertes": {"a": {"type": "number"}}}}
    async with talk(McpServer([ADD, loose])) as client:
        answers = [await client.ask(call("loose", {"a": "x"})) for _ in range(2)]
        told = [json.loads(line) for line in client.proxy.log.getvalue().splitlines()]
        metrics = (await client.proxy.ask_admin("/metrics")).body.decode()

    assert [None, None] == [answer["result"].get("isError") for answer in answers]
    (line,) = [line for line in told if line["message"] == "tool schema guards less than it says"]
    assert ("warning", "loose", "/propertes: unknown keyword 'propertes', which JSON Schema ignores") == (
        line["level"],
        line["tool"],
        line["remarks"].partition(" (")[0],
    )
    assert 'toolproxy_unguarded_schemas_total{route="/mcp",tool="loose"} 1.0' in metrics


async def test_calls_such_a_tool_without_validation_if_the_operator_says_so() -> None:
    async with talk(McpServer([{"name": "bare"}]), mcp="on_bad_schema: forward") as client:
        await client.ask(call("bare", {"any": "thing"}))

    assert [{"any": "thing"}] == client.received


async def test_a_draft_that_the_schema_names_is_the_one_that_counts() -> None:
    old = {
        "name": "old",
        "inputSchema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}},
        },
    }
    async with talk(McpServer([old])) as client:
        answer = await client.ask(call("old", {"pair": [1, {"no": 1}]}))

    assert "/pair/1" == feedback(answer)["errors"][0]["path"]


async def test_a_schema_too_large_to_be_meant_is_not_compiled() -> None:
    huge = {"name": "huge", "inputSchema": {"enum": list(range(25_000))}}
    async with talk(McpServer([huge])) as client:
        answer = await client.ask(call("huge", {}))

    assert "more than 5000 values" in text(answer)


# --- no list ----------------------------------------------------------------------------------------------------------
def _listless(seen: Seen) -> bytes | None:
    message = json.loads(seen.body)
    if message["method"] != "tools/list":
        return None
    return as_json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})


async def test_without_a_list_nothing_unvalidated_reaches_a_tool() -> None:
    async with talk(McpServer(refuse=_listless)) as client:
        answer = await client.ask(GOOD)

    assert (True, "SCHEMA_UNKNOWN") == refusal(answer)
    assert [] == client.received


async def test_forwards_calls_without_a_list_if_the_operator_says_so() -> None:
    async with talk(McpServer(refuse=_listless), mcp="unknown_schema: forward") as client:
        await client.ask(BAD)

    assert [{"a": 1}] == client.received


async def test_without_a_list_the_configs_own_schema_counts() -> None:
    own = "tools: {add: {schema: {type: object, required: [c]}}}"
    async with talk(McpServer(refuse=_listless), mcp=own) as client:
        answer = await client.ask(GOOD)

    assert "/c" == feedback(answer)["errors"][0]["path"]


async def test_a_list_is_waited_for_no_longer_than_the_route_says() -> None:
    async def slow(_message: dict[str, Any], _seen: Seen) -> bytes:
        await asyncio.sleep(5)
        return b""

    def refuse(seen: Seen) -> Any:
        return slow({}, seen) if b"tools/list" in seen.body else None

    async with talk(McpServer(refuse=refuse), mcp="wait: 50ms") as client:
        answer = await client.ask(GOOD)

    assert "did not list its tools within 0.05 s" in text(answer)


async def test_how_long_a_tool_may_take_says_nothing_of_the_list() -> None:
    async def listed(message: dict[str, Any], _seen: Seen) -> bytes:
        await asyncio.sleep(0.1)
        return as_json(result(message, {"tools": [ADD]}))

    def refuse(seen: Seen) -> Any:
        return listed(json.loads(seen.body), seen) if b"tools/list" in seen.body else None

    async with talk(McpServer(refuse=refuse), mcp="wait: 5m", more="timeout: 50ms") as client:
        answer = await client.ask(call("add", {"a": 1, "c": 1}))

    assert "/b" == feedback(answer)["errors"][0]["path"]


@pytest.mark.parametrize("page", [{"tools": "no"}, {}, {"tools": [ADD], "nextCursor": "again"}])
async def test_a_list_that_is_none_or_never_ends_is_given_up(page: dict[str, Any]) -> None:
    def refuse(seen: Seen) -> bytes | None:
        message = json.loads(seen.body)
        return as_json(result(message, page)) if message["method"] == "tools/list" else None

    async with talk(McpServer(refuse=refuse)) as client:
        answer = await client.ask(GOOD)

    assert (True, "SCHEMA_UNKNOWN") == refusal(answer)


# --- who is welcome ---------------------------------------------------------------------------------------------------
def _door(seen: Seen) -> bytes | None:
    """Knows one session, and answers all others as the Python SDK does."""
    if seen.header("mcp-session-id") == "s-1":
        return None
    body = b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}'
    return http("404 Not Found", body, "Content-Type: application/json")


async def test_a_session_that_the_upstream_does_not_know_gets_the_upstreams_404() -> None:
    async with talk(McpServer(refuse=_door)) as client:
        first = await client.send(BAD, "Mcp-Session-Id: dead")
        await client.send(GOOD, "Mcp-Session-Id: s-1")
        later = await client.send(BAD, "Mcp-Session-Id: dead")
        again = await client.ask(BAD, "Mcp-Session-Id: s-1")

    assert (404, 404) == (first.status, later.status)
    assert b"Session not found" in later.body
    assert (True, "INVALID_ARGUMENTS") == refusal(again)


async def test_a_session_that_ended_is_not_answered_for() -> None:
    def initialized(_message: dict[str, Any], _seen: Seen) -> bytes:
        return as_json({"jsonrpc": "2.0", "id": 1, "result": {}}, "Mcp-Session-Id: s-1")

    open_ = [True]
    server = McpServer(otherwise=initialized)
    server.refuse = lambda seen: None if open_[0] else _door(_with_session(seen))
    async with talk(server) as client:
        await client.send({"jsonrpc": "2.0", "id": 1, "method": "initialize"})
        alive = await client.ask(BAD, "Mcp-Session-Id: s-1")
        open_[0] = False
        await client.send({"jsonrpc": "2.0", "method": "ping", "id": 3}, "Mcp-Session-Id: s-1")
        dead = await client.send(BAD, "Mcp-Session-Id: s-1")

    assert (True, "INVALID_ARGUMENTS") == refusal(alive)
    assert 404 == dead.status


def _with_session(seen: Seen) -> Seen:
    return Seen(seen.start, (), seen.body)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
async def test_a_client_without_credentials_gets_the_servers_challenge(status: str) -> None:
    said = http(
        status, b"{}", 'WWW-Authenticate: Bearer resource_metadata="https://x"', "Content-Type: application/json"
    )
    server = McpServer(refuse=lambda seen: None if seen.header("authorization") else said)
    async with talk(server) as client:
        await client.ask(GOOD, "Authorization: Bearer t")
        seen = await client.send(modern(BAD), *modern_headers(BAD))

    assert (int(status[:3]), 'Bearer resource_metadata="https://x"') == (seen.status, seen.header("www-authenticate"))


async def test_an_error_under_the_proxys_id_is_answered_under_the_clients_id() -> None:
    def refuse(seen: Seen) -> bytes | None:
        body = {"jsonrpc": "2.0", "id": json.loads(seen.body)["id"], "error": {"code": -32001, "message": "gone"}}
        return http("404 Not Found", json.dumps(body).encode(), "Content-Type: application/json")

    async with talk(McpServer(refuse=refuse)) as client:
        seen = await client.send({**GOOD, "id": "mine"})

    assert (404, "mine") == (seen.status, json.loads(seen.body)["id"])


# --- what the operator says of tools ----------------------------------------------------------------------------------
async def test_an_overlay_tightens_the_listed_schema() -> None:
    overlay = (
        "tools: {add: {overlay: {properties: {a: {maximum: 5}, b: null}, required: [a], additionalProperties: false}}}"
    )
    async with talk(mcp=overlay) as client:
        large = await client.ask(call("add", {"a": 6}))
        extra = await client.ask(GOOD)
        await client.ask(call("add", {"a": "5"}))

    assert ["/a"] == [error["path"] for error in feedback(large)["errors"]]
    assert ["/b"] == [error["path"] for error in feedback(extra)["errors"]]
    assert [{"a": 5}] == client.received


async def test_an_overlay_may_switch_repairs_off_for_a_parameter() -> None:
    async with talk(mcp='tools: {add: {overlay: {properties: {a: {x-repair: "off"}}}}}') as client:
        answer = await client.ask(call("add", {"a": "1", "b": "1"}))

    assert ["/a"] == [error["path"] for error in feedback(answer)["errors"]]


async def test_a_tools_own_keys_go_before_the_routes() -> None:
    async with talk(mcp="tools: {add: {mode: report}, now: {repair: off}}", more="repair: lenient") as client:
        await client.ask(BAD)
        answer = await client.ask(call("now", {"zone": 7}))

    assert [{"a": 1}] == client.received
    assert (True, "INVALID_ARGUMENTS") == refusal(answer)


async def test_a_schema_of_the_config_takes_the_place_of_the_listed_one() -> None:
    own = "tools: {add: {schema: {type: object, properties: {a: {type: string, maxLength: 1, minLength: 1}}}}}"
    async with talk(mcp=own) as client:
        await client.ask(call("add", {"a": 1}))

    assert [{"a": "1"}] == client.received


async def test_a_tool_may_be_a_container_and_another_unvalidated() -> None:
    own = "tools: {now: {container: {functions: [add]}}, add: {validation: off}}"
    async with talk(mcp=own) as client:
        refused = await client.ask(call("now", {"function": "add"}))
        await client.ask(call("add", {"no": 1}))

    assert (True, "CONTAINER_INVOCATION") == refusal(refused)
    assert [{"no": 1}] == client.received


@pytest.mark.parametrize(("trusted", "sends"), [("off", 1), ("on", 3)])
async def test_an_annotation_of_idempotence_counts_only_if_it_is_trusted(trusted: str, sends: int) -> None:
    reader = {**ADD, "annotations": {"readOnlyHint": True}}
    server = McpServer([reader], called=lambda _message, _seen: http("503 Busy", b""))
    async with talk(server, mcp=f"trust_annotations: {trusted}", more="resend: {backoff: 1ms}") as client:
        await client.ask(GOOD)

    assert sends == len(server.calls)


# --- one container in place of all tools ------------------------------------------------------------------------------
COLLAPSE = "collapse: {name: everything, auto_expand: dispatch}"


@pytest.mark.parametrize("era", ["old", "new"])
async def test_clients_see_one_container_and_may_still_call_every_tool(era: str) -> None:
    async with talk(mcp=COLLAPSE) as client:
        ask = client.ask if era == "old" else client.ask_modern
        listed = await ask(LIST)
        expanded = await ask(call("everything"))
        await ask(GOOD)
        await ask(call("everything", {"function": "add", "arguments": {"a": "2", "b": 2}}))
        wrong = await ask(call("add", {"a": 1}))

    assert ["everything"] == [one["name"] for one in listed["result"]["tools"]]
    assert "client-7" == listed["id"]
    assert ("complete" if era == "new" else None) == listed["result"].get("resultType")
    assert ["add", "now"] == [one["name"] for one in json.loads(text(expanded))["functions"]]
    assert [{"a": 1, "b": 1}, {"a": 2, "b": 2}] == client.received
    assert {"add"} == {json.loads(seen.body)["params"]["name"] for seen in client.server.calls}
    assert (True, "INVALID_ARGUMENTS") == refusal(wrong)


@pytest.mark.parametrize(
    ("mode", "said", "unsaid"),
    [
        ("off", "by its own name", '"function"'),
        ("expand", "by its own name", '"function"'),
        ("dispatch", '{"function": <name>, "arguments": <its arguments>}', "by its own name"),
    ],
)
async def test_the_description_of_a_collapsed_list_says_how_its_tools_are_called(
    mode: str, said: str, unsaid: str
) -> None:
    async with talk(mcp=f"collapse: {{name: everything, auto_expand: {mode}}}") as client:
        listed = await client.ask(LIST)
        as_said = call("everything", {"function": "add", "arguments": ARGUMENTS}) if mode == "dispatch" else GOOD
        answer = await client.ask(as_said)

    (tool,) = listed["result"]["tools"]
    assert said in tool["description"]
    assert unsaid not in tool["description"]
    assert ({"function", "arguments"} if mode == "dispatch" else set()) == tool["inputSchema"]["properties"].keys()
    assert ARGUMENTS == json.loads(text(answer))


async def test_asks_for_two_calls_when_a_listed_function_cannot_be_served() -> None:
    listed = [{"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "strin"}}}}]
    async with talk(McpServer(listed), mcp=COLLAPSE) as client:
        refused = await client.ask(call("everything", {"function": "broken", "arguments": {"a": "x"}}))

    assert (True, "CONTAINER_INVOCATION") == refusal(refused)
    assert "This requires TWO separate tool calls: (1) First call 'everything' with NO arguments" in text(refused)
    assert "has to name exactly one of them" not in text(refused)
    assert [] == client.received


async def test_a_collapsed_list_has_one_page_and_asks_for_credentials_like_any_other() -> None:
    server = McpServer(refuse=lambda seen: None if seen.header("authorization") else http("401 Unauthorized", b""))
    async with talk(server, mcp=COLLAPSE) as client:
        stranger = await client.send(LIST)
        second = await client.ask({**LIST, "params": {"cursor": "1"}}, "Authorization: Bearer t")

    assert 401 == stranger.status
    assert [] == second["result"]["tools"]


async def test_tools_may_have_to_be_expanded_first() -> None:
    async with talk(mcp="collapse: {name: everything, require_expansion: on}") as client:
        early = await client.ask(GOOD, "X-Conversation-Id: c")
        await client.ask(call("everything"), "X-Conversation-Id: c")
        await client.ask(GOOD, "X-Conversation-Id: c")

    assert (True, "CONTAINER_NOT_EXPANDED") == refusal(early)
    assert 1 == len(client.received)


# --- results held against their schema --------------------------------------------------------------------------------
PROMISING = {**NOW, "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
RESULTS: list[tuple[dict[str, Any], str]] = [
    ({"content": [], "structuredContent": {"n": 1}}, "passed"),
    ({"content": [], "structuredContent": {"n": "1"}}, "broken"),
    ({"content": []}, "unread"),
    ({"content": [], "isError": True, "structuredContent": {}}, ""),
    ({"resultType": "input_required"}, ""),
]


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize(("value", "outcome"), RESULTS)
async def test_counts_results_by_their_output_schema_and_keeps_them_unchanged(
    value: dict[str, Any], outcome: str, events: bool
) -> None:
    def called(message: dict[str, Any], _seen: Seen) -> bytes:
        return (as_events if events else as_json)(result(message, value))

    async with talk(McpServer([PROMISING], called=called), mcp="output_check: on") as client:
        seen = await client.send(call("now"))
        page = (await client.proxy.ask_admin("/metrics")).body.decode()

    counted = [line for line in page.splitlines() if line.startswith("toolproxy_answers_total{")]
    assert ([outcome] if outcome else []) == [line.split('outcome="')[1].split('"')[0] for line in counted]
    assert json.dumps(value).encode() in seen.body


# --- many -------------------------------------------------------------------------------------------------------------
@pytest.mark.large
async def test_a_thousand_tools_and_a_hundred_sessions_cost_a_list_for_each_credential_and_keep_one() -> None:
    tools = [{**ADD, "name": f"tool_{number}"} for number in range(1_000)]
    refused = []
    async with talk(McpServer(tools), mcp="wait: 5m, ttl: 1h") as client:

        async def one(number: int) -> None:
            for step in range(3):
                answer = await client.ask(
                    call(f"tool_{number % 20 * 50 + step}", {"a": "1", "b": 2}),
                    f"Authorization: Bearer {number % 5}",
                    f"Mcp-Session-Id: s{number}",
                )
                if answer["result"].get("isError"):
                    refused.append(refusal(answer))

        await asyncio.gather(*map(one, range(100)))
        learner = learner_of(client)
        listings = {id(known.listing) for known in learner._known.values()}

    assert [] == refused
    assert (5, 300) == (len(client.server.listed), len(client.server.calls))
    assert (5, 1) == (len(learner._known), len(listings))


async def test_learned_tools_have_their_own_metrics() -> None:
    async with talk() as client:
        await client.ask(GOOD)
        await client.ask(call("made_up_by_a_model", {}))
        page = (await client.proxy.ask_admin("/metrics")).body.decode()

    assert 'tool="add"' in page
    assert "made_up_by_a_model" not in page


async def test_two_servers_on_one_upstream_have_separate_lists() -> None:
    server = McpServer()
    server.refuse = lambda seen: (
        as_json(result(json.loads(seen.body), {"tools": [NOW]}))
        if " /b/mcp " in seen.start and b"tools/list" in seen.body
        else None
    )
    routes = "\n".join(f"  - {{path: /{name}/mcp, upstream: tools, protocol: mcp}}" for name in "ab")
    async with tool(server) as upstream, proxied(routes, upstream.url) as proxy:
        first = await proxy.post("/a/mcp", json.dumps(GOOD).encode())
        second = await proxy.post("/b/mcp", json.dumps(GOOD).encode())

    assert (False, True) == tuple(bool(json.loads(seen.body)["result"].get("isError")) for seen in (first, second))


async def test_the_operator_may_ask_what_would_become_of_a_call() -> None:
    async with talk() as client:
        question = {"route": "/mcp", "tool": "add", "body": {"a": "1", "b": 2}}
        before = json.loads((await client.ask_operator("/-/validate", question)).body)
        await client.ask(GOOD)
        repaired = json.loads((await client.ask_operator("/-/validate", question)).body)
        refused = json.loads((await client.ask_operator("/-/validate", {**question, "body": {"a": 1}})).body)

    assert ("refuse", "UNKNOWN_TOOL") == (before["decision"], before["code"])
    assert ("forward", {"a": 1, "b": 2}) == (repaired["decision"], repaired["arguments"])
    assert ("refuse", True) == (refused["decision"], refused["answer"]["result"]["isError"])
    assert 1 == len(client.received)


async def test_tools_of_the_config_are_known_before_anything_was_learned() -> None:
    async with talk(mcp="tools: {add: {schema: {type: object, properties: {a: {type: integer}}}}}") as client:
        question = {"route": "/mcp", "tool": "add", "body": {"a": "1"}}
        verdict = json.loads((await client.ask_operator("/-/validate", question)).body)
        guidance = await client.proxy.ask_admin("/-/guidance?tool=add")
        schemas = json.loads((await client.proxy.ask_admin("/-/schemas/add")).body)["schemas"]

    assert ("forward", {"a": 1}) == (verdict["decision"], verdict["arguments"])
    assert (200, True) == (guidance.status, b"Arguments: {a?: integer}" in guidance.body)
    assert [["/mcp"]] == [one["routes"] for one in schemas]
    assert [] == client.received


@pytest.mark.parametrize(
    "told",
    [
        {"error": {"code": -32602, "message": "Unknown tool: add"}},
        {"result": {"isError": True, "content": [{"type": "text", "text": "Unknown tool: add"}]}},
        {"result": {"isError": True, "content": [{"type": "text", "text": "MCP error -32602: Tool add not found"}]}},
    ],
)
@pytest.mark.parametrize("events", [False, True])
async def test_requests_the_list_again_when_the_server_does_not_know_a_listed_tool(
    told: dict[str, Any], events: bool
) -> None:
    def called(message: dict[str, Any], _seen: Seen) -> bytes:
        return (as_events if events else as_json)({"jsonrpc": "2.0", "id": message["id"], **told})

    async with talk(McpServer(called=called)) as client:
        await client.send(GOOD)
        learner = learner_of(client)
        new = len(client.server.listed)
        for key, known in learner._known.items():
            learner._known[key] = replace(known, at=known.at - 60)  # a minute later
        await client.send(GOOD)
        await client.send(GOOD)

    assert (1, 2) == (new, len(client.server.listed))

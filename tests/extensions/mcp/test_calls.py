"""Calls on MCP routes, over sockets: what is sent on, what is repaired, and how a refusal reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.extensions.mcp.conversation import feedback, refusal, talk, text
from tests.extensions.mcp.server import ADD, NOW, McpServer, as_json, call, http, modern, modern_headers, result
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, Tool, exchange, post, tool


async def test_forwards_a_clean_call_as_the_very_bytes_that_came() -> None:
    body = (
        b'{ "id":0 ,"jsonrpc" : "2.0","method":"tools\\/call", "params":{"arguments": {"b":2, "a":9007199254740993},'
        b'"name":"add", "task":{"ttl":1.10}, "_meta":{"x":"caf\xc3\xa9"}}}'
    )
    async with talk() as client:
        answer = await client.send(body)

    assert body == client.server.calls[0].body
    assert 200 == answer.status
    assert answer.header("tool-repairs") is None


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ({"a": "1", "b": 2}, {"a": 1, "b": 2}),
        ('{"a": 1, "b": "2"}', {"a": 1, "b": 2}),
        ('```json\n{"a": 1, "b": 2}\n```', {"a": 1, "b": 2}),
        ({"a": 3.0, "b": 2}, {"a": 3, "b": 2}),
    ],
)
async def test_a_mistake_with_one_meaning_is_repaired(arguments: object, sent: object) -> None:
    async with talk() as client:
        seen = await client.send(call("add", arguments))

    assert [sent] == client.received
    assert seen.header("tool-repairs")


@pytest.mark.parametrize("is_modern", [False, True])
async def test_answers_a_call_of_a_known_tool_without_a_task(is_modern: bool) -> None:
    async with talk() as client:
        ask, handler = client.ask_modern if is_modern else client.ask, client.proxy.serving.handler
        answers, counts = [], []
        for arguments in ({"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": "1", "b": 2}, {"a": 1}):
            answers.append(await ask(call("add", arguments)))
            counts.append(handler.counted_fast)

    assert [0, 1, 2] == counts[:3]  # the first has to learn the tool
    assert [{"a": 1, "b": 2}] * 3 == client.received
    assert (True, "INVALID_ARGUMENTS") == refusal(answers[3])


async def test_arguments_may_be_left_out_and_null_means_none() -> None:
    async with talk() as client:
        without = call("now")
        await client.send(without)
        await client.send(call("now", None))

    assert [None, {}] == client.received
    assert json.dumps(without).encode() == client.server.calls[0].body


async def test_a_repair_moves_nothing_else() -> None:
    body = (
        b'{"jsonrpc":"2.0", "params" : {"_meta":{"n":1.10}, "arguments": {"a":"1","b":2} ,"name": "add"},'
        b'"id":"x","method":"tools/call" }'
    )
    async with talk() as client:
        await client.send(body)

    assert body.replace(b'{"a":"1","b":2}', b'{"a":1,"b":2}') == client.server.calls[0].body


@pytest.mark.parametrize("arguments", [{"a": "one", "b": 2}, {"a": 1}, "a=1", ["a"], None, 7])
async def test_an_unrepairable_call_never_reaches_the_server(arguments: object) -> None:
    async with talk() as client:
        answer = await client.ask(call("add", arguments))

    assert (True, "INVALID_ARGUMENTS") == refusal(answer)
    assert [] == client.server.calls


async def test_a_refusal_is_a_result_that_names_the_parameter() -> None:
    async with talk() as client:
        seen = await client.send(call("add", {"a": "one"}, id=0))
        answer = json.loads(seen.body)

    assert (200, "application/json", "no-store") == (
        seen.status,
        seen.header("content-type"),
        seen.header("cache-control"),
    )
    assert {"jsonrpc", "id", "result"} == set(answer)
    assert {"content", "isError", "_meta"} == set(answer["result"])
    assert ["/a", "/b"] == [error["path"] for error in feedback(answer)["errors"]]
    assert "• /a (VAL-002)" in text(answer)
    assert "Accepts: {a: integer (required), b: integer (required)}" in text(answer)


@pytest.mark.parametrize("id", [0, 7, "x", "", -1, 1.5])
async def test_an_id_comes_back_as_it_was_sent(id: object) -> None:  # noqa: A002
    async with talk() as client:
        answer = await client.ask(call("add", {}, id=id))

    assert id == answer["id"]
    assert type(id) is type(answer["id"])


async def test_a_refusal_says_that_it_is_complete_since_2026_07_28() -> None:
    async with talk() as client:
        answer = await client.ask_modern(call("add", {}), "Mcp-Session-Id: s")
        seen = await client.send(modern(call("add", {})), *modern_headers(call("add")), "Mcp-Session-Id: s")

    assert "complete" == answer["result"]["resultType"]
    assert seen.header("mcp-session-id") is None


async def test_an_old_client_gets_its_session_back() -> None:
    async with talk() as client:
        seen = await client.send(call("add", {}), "Mcp-Session-Id: s-1")

    assert "s-1" == seen.header("mcp-session-id")


async def test_a_client_that_takes_only_events_gets_one() -> None:
    async with talk() as client:
        seen = await client.send(call("add", {}))
        client.headers = ()
        raw = await client.proxy.post("/mcp", json.dumps(call("add", {})).encode(), "Accept: text/event-stream")

    assert "text/event-stream" == raw.header("content-type")
    head, data = raw.body.split(b"\ndata: ")
    assert b"event: message" == head
    assert data.endswith(b"\n\n")
    assert json.loads(seen.body)["result"]["isError"] is json.loads(data)["result"]["isError"] is True


async def test_attempts_escalate_and_a_valid_call_still_goes_through() -> None:
    async with talk() as client:
        answers = [
            await client.ask(call("add", {"a": n}, id=n), "X-Conversation-Id: c", "Mcp-Session-Id: s") for n in range(3)
        ]
        good = await client.ask(call("add", {"a": 1, "b": 1}), "X-Conversation-Id: c", "Mcp-Session-Id: s")

    assert [(1, "retry"), (2, "retry"), (3, "blocked")] == [
        (feedback(answer)["attempt"], feedback(answer)["status"]) for answer in answers
    ]
    assert "escalation" == feedback(answers[2])["error_type"]
    assert not good["result"].get("isError")


LADDER: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"vscode.conversationId": "c"}, (), "meta"),
    ({"openai/session": "c"}, (), "meta"),
    ({"ai.opencode/sessionID": "c"}, (), "meta"),
    ({"antigravity.google/conversation_id": "c"}, (), "meta"),
    ({"threadId": "c"}, ("Mcp-Session-Id: s",), "meta"),
    ({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, ("Mcp-Session-Id: s",), "trace"),
    ({}, ("Mcp-Session-Id: s",), "session"),
    ({"openai/session": "c"}, ("X-Conversation-Id: c",), "header"),
    ({}, (), "address"),
]


@pytest.mark.parametrize(("meta", "headers", "rung"), LADDER)
async def test_the_conversation_is_found_where_clients_tell_it(
    meta: dict[str, Any], headers: tuple[str, ...], rung: str
) -> None:
    async with talk() as client:
        await client.ask(call("add", {"a": 1, "b": 1}, _meta=meta), *headers)
        (line,) = client.proxy.lines()

    assert rung == line["conversation.source"]


async def test_a_session_names_no_conversation_since_2026_07_28() -> None:
    async with talk() as client:
        await client.ask_modern(call("add", {"a": 1, "b": 1}), "Mcp-Session-Id: s")
        (line,) = client.proxy.lines()

    assert "address" == line["conversation.source"]


async def test_caps_hold_for_listed_tools() -> None:
    async with talk(more="caps: {default: 5, overrides: {add: 1}}") as client:
        answers = [await client.ask(call("add", {"a": n, "b": 1}), "X-Conversation-Id: c") for n in range(2)]

    assert [1, 1] == [client.received[0]["b"], len(client.received)]
    assert (True, "CALL_CAP_EXCEEDED") == refusal(answers[1])


# --- names ------------------------------------------------------------------------------------------------------------
async def test_an_unknown_tool_is_looked_for_once_and_then_explained() -> None:
    async with talk() as client:
        answers = [await client.ask(call("ad", {}, id=n)) for n in range(3)]

    assert ["UNKNOWN_TOOL", "UNKNOWN_TOOL", "ATTEMPTS_EXHAUSTED"] == [feedback(answer)["code"] for answer in answers]
    assert "Did you mean 'add'?" in text(answers[0])
    assert 1 == len(client.server.listed)
    assert [] == client.server.calls


async def test_trims_template_markup_from_a_name_and_its_header() -> None:
    async with talk() as client:
        message = call("functions.add", {"a": 1, "b": 1})
        await client.ask_modern(message)

    (seen,) = client.server.calls
    assert ("add", "add") == (json.loads(seen.body)["params"]["name"], seen.header("mcp-name"))


async def test_names_are_unfolded_if_the_operator_asks_for_it() -> None:
    tools = ({**ADD, "name": "add_numbers"},)
    async with talk(McpServer(tools)) as client:
        answer = await client.ask(call("addNumbers", {"a": 1, "b": 1}))
    async with talk(McpServer(tools), more="repair: {rules: {tool_name_fold: on}}") as folding:
        await folding.ask(call("addNumbers", {"a": 1, "b": 1}))

    assert "UNKNOWN_TOOL" == feedback(answer)["code"]
    assert "add_numbers" == json.loads(folding.server.calls[0].body)["params"]["name"]


# --- not a single call ------------------------------------------------------------------------------------------------
async def test_a_batch_that_calls_a_tool_is_refused_as_a_whole() -> None:
    async with talk() as client:
        seen = await client.send([call("add", {"a": 1, "b": 1}), {"jsonrpc": "2.0", "method": "ping", "id": 2}])

    assert (400, -32600) == (seen.status, json.loads(seen.body)["error"]["code"])
    assert [] == client.upstream.seen


@pytest.mark.parametrize("batch", [b"[[]]", b"[[{}]]", b"[1]"])
async def test_an_array_of_something_else_is_refused_too(batch: bytes) -> None:
    async with talk() as client:
        seen = await client.send(batch)

    assert (400, []) == (seen.status, client.upstream.seen)


async def test_other_batches_pass() -> None:
    batch = [{"jsonrpc": "2.0", "method": "notifications/initialized"}, {"jsonrpc": "2.0", "id": 1, "result": {}}]
    async with talk() as client:
        seen = await client.send(batch)

    assert (202, json.dumps(batch).encode()) == (seen.status, client.upstream.seen[0].body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"add"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping","params":{"name":"add"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"a":2,"b":1}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":NaN,"b":1}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 100 + b"]" * 100 + b"}",
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call"',
        b"",
        b"7",
    ],
)
async def test_a_body_that_two_parsers_could_read_differently_goes_no_further(body: bytes) -> None:
    async with talk() as client:
        seen = await client.send(body)

    told = json.loads(seen.body)
    assert [] == client.upstream.seen or [] == client.server.calls
    assert told.get("result", {}).get("isError") or (seen.status, told["error"]["code"] in (-32700, -32600)) == (
        400,
        True,
    )


@pytest.mark.parametrize("id", [b"NaN", b"-Infinity", b"1e999", b"1.50"])
async def test_an_unreadable_message_whose_id_is_no_plain_number_is_answered_under_null(id: bytes) -> None:  # noqa: A002
    body = b'{"jsonrpc":"2.0","id":' + id + b',"method":"tools/call","method":"tools/call","params":{"name":"add"}}'
    async with talk() as client:
        seen = await client.send(body)

    assert (400, None, []) == (seen.status, json.loads(seen.body)["id"], client.server.calls)


async def test_a_call_without_an_id_is_validated_and_refused_by_http() -> None:
    message = call("add", {"a": "x"})
    del message["id"]
    async with talk() as client:
        seen = await client.send(message)

    assert (400, b"", None) == (seen.status, seen.body, seen.header("content-type"))
    assert "INVALID_ARGUMENTS" == seen.header("tool-error")
    assert [] == client.server.calls


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (None, "is missing"),
        ([], "is missing"),
        ("x", "is missing"),
        ({}, "is missing"),
        ({"arguments": {}}, "is missing"),
        ({"name": 7}, "is of type integer"),
        ({"name": ""}, "is empty"),
    ],
)
async def test_a_call_that_names_no_tool_is_explained(params: object, why: str) -> None:
    async with talk() as client:
        answer = await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})

    assert (True, "UNKNOWN_TOOL") == refusal(answer)
    assert f"The call names no tool: 'name' in 'params' {why}, set it to the tool's exact name" in text(answer)


async def test_a_body_of_another_type_is_no_way_around_the_check() -> None:
    async with talk() as client:
        body = json.dumps(call("add", {"a": "x"})).encode()
        seen = await client.proxy.post("/mcp", body, content_type="text/plain")

    assert (415, []) == (seen.status, client.upstream.seen)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize(("header", "status"), [((), 200), (("X-HTTP-Method-Override: POST",), 400)])
async def test_another_method_is_no_way_around_the_check(method: str, header: tuple[str, ...], status: int) -> None:
    async with talk() as client:
        request = post("/mcp", json.dumps(call("add", {"a": "x"})).encode(), *header)
        seen = await exchange(client.proxy.port, request.replace(b"POST /mcp", f"{method} /mcp".encode()))

    assert status == seen.status
    assert [] == client.server.calls


# --- the server's own words -------------------------------------------------------------------------------------------
def _says(answer: bytes) -> McpServer:
    return McpServer(called=lambda _message, _seen: answer)


RESULT = {"content": [{"type": "text", "text": "no"}], "isError": True, "structuredContent": {"n": 1.10}}


async def test_returns_a_result_unchanged_even_if_it_says_that_it_failed() -> None:
    body = b'{"jsonrpc":"2.0", "id":1,"result":{"content":[{"type":"text","text":"n\\u006f"}],"isError":true,"x":1.10}}'
    async with talk(_says(http("200 OK", body, "Content-Type: application/json"))) as client:
        seen = await client.send(call("add", {"a": 1, "b": 1}))

    assert (200, body) == (seen.status, seen.body)


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "404 Not Found", "400 Bad Request"])
async def test_passes_http_statuses_of_the_server_as_http(status: str) -> None:
    said = http(status, b'{"jsonrpc":"2.0","id":null,"error":{}}', 'WWW-Authenticate: Bearer realm="x"')
    async with talk(_says(said)) as client:
        seen = await client.send(call("add", {"a": 1, "b": 1}))

    assert (int(status[:3]), 'Bearer realm="x"') == (seen.status, seen.header("www-authenticate"))
    assert b'{"jsonrpc":"2.0","id":null,"error":{}}' == seen.body


@pytest.mark.parametrize("status", ["429 Too Many Requests", "500 Oops", "502 Bad Gateway", "503 Busy"])
async def test_reports_an_outage_to_the_model(status: str) -> None:
    async with talk(_says(http(status, b"<html>", "Content-Type: text/html"))) as client:
        seen = await client.send(call("add", {"a": 1, "b": 1}))

    assert (200, True) == (seen.status, json.loads(seen.body)["result"]["isError"])


def _drops(upstream: Tool) -> Callable[[Seen], bytes]:
    def refuse(_seen: Seen) -> bytes:
        upstream.end()
        return b""

    return refuse


async def test_reports_a_server_that_is_gone_to_the_model() -> None:
    async with talk() as client:
        await client.ask(call("add", {"a": 1, "b": 1}))
        client.upstream.end()
        client.server.refuse = _drops(client.upstream)
        answer = await client.ask(call("add", {"a": 1, "b": 1}))

    assert (True, "UPSTREAM_BAD_ANSWER") == refusal(answer)


async def test_other_requests_of_a_server_that_is_gone_fail_as_http() -> None:
    async with talk() as client:
        client.server.refuse = _drops(client.upstream)
        seen = await client.send({"jsonrpc": "2.0", "id": 3, "method": "initialize"})

    told = json.loads(seen.body)
    assert (502, 3, -32603) == (seen.status, told["id"], told["error"]["code"])


# --- report-only ------------------------------------------------------------------------------------------------------
_TWICE = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now","name":"add","arguments":{}}}'


@pytest.mark.parametrize("message", [call("add", {"a": "x"}), call("nope", {}), [call("add", {"a": 1})], _TWICE])
async def test_a_report_only_route_lets_everything_through(message: object) -> None:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    async with talk(McpServer(called=_echo), more="mode: report") as client:
        seen = await client.send(body)

    assert (202 if isinstance(message, list) else 200) == seen.status
    assert body == client.upstream.seen[-1].body


def _echo(message: dict[str, Any], _seen: Seen) -> bytes:
    return as_json(result(message, {"content": []}))


@pytest.mark.parametrize("is_modern", [False, True])
async def test_a_call_that_the_end_of_the_proxy_cuts_short_gets_a_result(is_modern: bool) -> None:
    arrived = asyncio.Event()

    async def never(_message: dict[str, Any], _seen: Seen) -> bytes:
        arrived.set()
        await asyncio.Event().wait()
        return b""

    async with talk(McpServer(called=never)) as client:
        message = call("add", {"a": 1, "b": 2})
        calling = asyncio.create_task(client.ask_modern(message) if is_modern else client.ask(message))
        await arrived.wait()
        await client.proxy.serving.stop(grace=0.05)
        answer = await calling

    assert (1, (True, "RESTARTING")) == (answer["id"], refusal(answer))
    assert "It is not known whether the tool ran" in text(answer)
    line = client.proxy.lines()[-1]
    assert 50 <= line["upstream.duration_ms"]
    assert 1 > abs(line["duration_ms"] - line["overhead_ms"] - line["upstream.duration_ms"])


async def test_a_page_of_another_origin_may_not_call() -> None:
    async with talk() as client:
        seen = await client.send(call("now"), "Origin: https://evil.example")
    async with talk(more="cors: {origins: ['https://good.example']}") as allowed:
        await allowed.send(call("now"), "Origin: https://good.example")

    assert (403, []) == (seen.status, client.upstream.seen)
    assert "https://good.example" == allowed.server.calls[0].header("origin")


async def test_the_upstream_is_called_by_its_own_name() -> None:
    async with talk() as client:
        await client.send(call("now"))

    assert f"127.0.0.1:{client.upstream.port}" == client.server.calls[0].header("host")
    assert [ADD["name"], NOW["name"]] == [one["name"] for one in client.server.tools]


async def test_a_result_is_wrapped_in_nothing_whatever_the_defaults_say() -> None:
    async with talk(defaults="{wrap_success: on}") as client:
        answer = await client.ask(call("add", {"a": 1, "b": 1}))

    assert '{"a": 1, "b": 1}' == text(answer)


@pytest.mark.parametrize(
    ("headers", "tries"),
    [
        (("X-Conversation-Id: c",), ["1/3", "2/3", "3/3"]),  # a session for each call, in which the ids begin again
        (("Mcp-Session-Id: s",), ["1/3", "1/3", "1/3"]),
        (("X-Conversation-Id: c", "X-Tool-Call-Id: one"), ["1/3", "1/3", "1/3"]),
    ],
)
async def test_an_id_identifies_a_resend_only_within_its_session(headers: tuple[str, ...], tries: list[str]) -> None:
    async with talk() as client:
        answers = [await client.send(call("add", {"a": 1}, id=1), *headers) for _ in range(3)]

    assert tries == [one.header("tool-attempt") for one in answers]


async def test_the_query_of_the_upstreams_url_goes_with_every_request() -> None:
    listing = McpServer()
    routes = "\n  - {path: /mcp, protocol: mcp, upstream: tools}\n"
    accepts = "Accept: application/json, text/event-stream"
    async with tool(listing) as server, proxied(routes, f"{server.url}?project=a&ro=1") as proxy:
        for path in ("/mcp", "/mcp?project=b&page=2"):
            answer = await proxy.post(path, json.dumps(call("add", {"a": 1, "b": 2})).encode(), accepts)
            assert 200 == answer.status
    assert listing.listed[0].start.split()[1] == "/mcp?project=a&ro=1"
    assert ["/mcp?project=a&ro=1", "/mcp?project=a&ro=1&page=2"] == [seen.start.split()[1] for seen in listing.calls]


async def test_a_target_that_looks_like_one_of_another_route_is_validated_by_its_own() -> None:
    """`/mcp?x=1` as a whole fits `/{tool}`."""
    listing = McpServer()
    routes = """
  - {path: /mcp, protocol: mcp, upstream: tools}
  - {path: "/{tool}", upstream: tools}
"""
    accepts = "Accept: application/json, text/event-stream"
    async with tool(listing) as server, proxied(routes, server.url, tools="{any: {schema: {type: object}}}") as proxy:
        for arguments in ({"a": 1, "b": 2}, {"a": "one", "b": 2}, {"a": "two"}):
            await proxy.post("/mcp?x=1", json.dumps(call("add", arguments)).encode(), accepts)
    assert [{"a": 1, "b": 2}] == [json.loads(seen.body)["params"]["arguments"] for seen in listing.calls]

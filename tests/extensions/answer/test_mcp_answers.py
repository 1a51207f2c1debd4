"""`answer:` on MCP routes: a server over HTTP, a process, several servers, and operations as tools."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.extensions.mcp.conversation import Talk, refusal, talk, text
from tests.extensions.mcp.server import ADD, McpServer, as_events, as_json, call, chunk, http, result
from tests.extensions.mcp.test_joined import INITIALIZE, Client
from tests.extensions.mcp.test_stdio_upstream import SERVER
from tests.extensions.operations.served import TRIPS, served
from tests.extensions.operations.test_as_mcp import call as call_operation
from tests.serving.proxied import proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, replies, tool

CALL = call("add", {"a": 1, "b": 2})
CUT = "answer: {max_bytes: 8KiB, on_large: cut}"
REFUSE = "answer: {max_bytes: 8KiB}"
ROWS = [{"id": number, "name": "x" * 40} for number in range(500)]
LISTED = {**ADD, "outputSchema": {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}}


def serves(value: dict[str, Any], *, events: bool = False, tools: Any = (ADD,)) -> McpServer:
    """A server that answers each call with a result."""
    write = as_events if events else as_json
    return McpServer(tools=tools, called=lambda message, _seen: write(result(message, value)))


def read(seen: Seen) -> dict[str, Any]:
    """The JSON-RPC answer, which may be an event."""
    body = seen.body
    if seen.header("content-type") == "text/event-stream":
        *_, body = [line[5:] for line in body.splitlines() if line.startswith(b"data:")]
    found: dict[str, Any] = json.loads(body)
    return found


async def ask(server: McpServer, more: str, **keys: str) -> tuple[dict[str, Any], Talk]:
    """The result of one call."""
    async with talk(server, more=more, **keys) as client:
        seen = await client.send(CALL)
        answered = read(seen)
        assert CALL["id"] == answered["id"]
        return answered["result"], client


@pytest.mark.parametrize("events", [False, True])
async def test_keeps_every_byte_if_nothing_applies(events: bool) -> None:
    value = {"content": [{"type": "text", "text": "3"}], "structuredContent": {"n": 1.5}}
    async with talk(serves(value, events=events), more=f"{CUT[:-1]}, mask: [secrets, /email]}}") as client:
        filtered = await client.send(CALL)
    async with talk(serves(value, events=events)) as client:
        plain = await client.send(CALL)
    assert plain.body == filtered.body


@pytest.mark.parametrize("events", [False, True])
async def test_refuses_a_large_result_with_a_text_for_the_model(events: bool) -> None:
    value = {"content": [{"type": "text", "text": "x" * 20_000}]}
    found, client = await ask(serves(value, events=events), REFUSE)
    (block,) = found["content"]

    assert True is found["isError"]
    assert "longer than 8,192 bytes" in block["text"]
    assert "call add again with arguments that select less. Its arguments: a, b." in block["text"]
    line = client.proxy.lines()[-1]
    assert ("withheld", "ANSWER_TOO_LARGE") == (line["outcome"], line["error.type"])


@pytest.mark.parametrize("size", [20_000, 3_000_000])
@pytest.mark.parametrize("events", [False, True])
async def test_cuts_a_text_and_says_so_in_the_block(events: bool, size: int) -> None:
    found, _ = await ask(serves({"content": [{"type": "text", "text": "a line\n" * (size // 7)}]}, events=events), CUT)
    (block,) = found["content"]

    *lines, note = block["text"].split("\n")
    assert {"a line"} == set(lines)
    assert note.startswith("[Cut: the answer is longer than 8,192 bytes. It shows the first ")
    assert "isError" not in found
    assert len(json.dumps(found)) <= 8192


@pytest.mark.parametrize("events", [False, True])
async def test_a_cut_text_that_is_json_stays_json(events: bool) -> None:
    found, _ = await ask(serves({"content": [{"type": "text", "text": json.dumps(ROWS)}]}, events=events), CUT)

    *items, note = json.loads(found["content"][0]["text"])
    assert ROWS[: len(items)] == items
    assert f"the first {len(items)} of 500 items" in note


async def test_reads_no_more_than_the_beginning_of_an_endless_event() -> None:
    async def called(message: dict[str, Any], _seen: Seen) -> bytes:
        start = json.dumps(result(message, {"content": [{"type": "text", "text": "x"}]}))[:-5].encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        return head + chunk(b"data: " + start) + chunk(b"y" * 100_000) * 30  # and no end

    found, _ = await ask(McpServer(called=called), CUT)
    assert found["content"][0]["text"].startswith("xyyyyyy")
    assert "[Cut: " in found["content"][0]["text"]
    found, client = await ask(McpServer(called=called), REFUSE)
    assert "longer than 8,192 bytes" in found["content"][0]["text"]
    assert "withheld" == client.proxy.lines()[-1]["outcome"]


async def test_keeps_progress_and_drops_a_notification_that_is_too_large() -> None:
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 30_000}}
    secret = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "token: ghp_0123456789abcdef"}}
    value = {"content": [{"type": "text", "text": "3"}]}
    server = McpServer(called=lambda message, _seen: as_events(progress, log, secret, result(message, value)))
    async with talk(server, more="answer: {max_bytes: 8KiB, mask: secrets}") as client:
        seen = await client.send(CALL)

    first, second, last = [json.loads(line[5:]) for line in seen.body.splitlines() if line.startswith(b"data:")]
    assert (progress, "token: ***", value) == (first, second["params"]["data"], last["result"])


# --- masks ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("events", [False, True])
async def test_masks_the_structured_result_and_the_same_data_in_a_text(events: bool) -> None:
    data = {"user": {"email": "ann@x.org"}, "n": 1.10}
    blocks = [
        {"type": "text", "text": json.dumps(data)},
        {"type": "text", "text": "use sk-live1234567890abcdefghij"},
        {"type": "resource", "resource": {"uri": "x://y", "text": json.dumps(data)}},
    ]
    value = {"content": blocks, "structuredContent": data}
    found, client = await ask(serves(value, events=events), "answer: {mask: [secrets, /user/email]}")

    masked = {"user": {"email": "***"}, "n": 1.10}
    assert (masked, masked) == (found["structuredContent"], json.loads(found["content"][0]["text"]))
    assert ("use ***", masked) == (
        found["content"][1]["text"], json.loads(found["content"][2]["resource"]["text"]),
    )  # fmt: skip
    assert "ann@" not in client.proxy.log.getvalue()


@pytest.mark.parametrize("events", [False, True])
async def test_withholds_a_text_in_which_places_are_not_certain(events: bool) -> None:
    value = {"content": [{"type": "text", "text": '{"email": "Zoe", "email": "bob"}'}]}
    found, _ = await ask(serves(value, events=events), "answer: {mask: [/email]}")
    assert True is found["isError"]
    assert "cannot be read" in found["content"][0]["text"]
    assert "Zoe" not in json.dumps(found)


# --- outputSchema -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize(
    ("structured", "failed"), [({"rows": [1]}, False), ({"rows": "tulip"}, True), (None, True)], ids=str
)
async def test_holds_a_result_to_the_listed_output_schema(structured: Any, failed: bool, events: bool) -> None:
    value = {"content": [{"type": "text", "text": "ok"}], **({"structuredContent": structured} if structured else {})}
    found, _ = await ask(serves(value, events=events, tools=(LISTED,)), "answer: {schema: enforce}")
    assert failed == (found.get("isError") is True)
    assert "tulip" not in json.dumps(found)


async def test_reports_a_result_that_breaks_the_listed_output_schema() -> None:
    value = {"content": [{"type": "text", "text": "ok"}], "structuredContent": {"rows": "tulip"}}
    async with talk(serves(value, tools=(LISTED,)), more="answer: {schema: report}") as client:
        seen = await client.send(CALL)
        metrics = (await client.proxy.ask_admin("/metrics")).body.decode()
    assert value == read(seen)["result"]
    assert any("toolproxy_answers_total{" in line and "broken" in line for line in metrics.splitlines())


@pytest.mark.parametrize("events", [False, True])
async def test_a_cut_structured_result_still_matches_its_schema(events: bool) -> None:
    value = {"content": [{"type": "text", "text": json.dumps({"rows": ROWS})}], "structuredContent": {"rows": ROWS}}
    found, _ = await ask(serves(value, events=events, tools=(LISTED,)), CUT)

    rows = found["structuredContent"]["rows"]
    assert (ROWS[: len(rows)], True) == (rows, 0 < len(rows) < 500)
    assert "_cut" in json.loads(found["content"][0]["text"])


async def test_withholds_a_large_result_that_cannot_be_cut_within_its_schema() -> None:
    strict = {**LISTED, "outputSchema": {"type": "object", "properties": {"rows": {"minItems": 500}}}}
    value = {"content": [], "structuredContent": {"rows": ROWS}}
    found, _ = await ask(serves(value, tools=(strict,)), CUT)
    assert refusal({"result": found}) == (True, "ANSWER_TOO_LARGE")


async def test_masks_the_result_that_a_server_wraps() -> None:
    people = [{"email": "a@b.test", "n": 1}, {"email": "c@d.test", "n": 2}]
    value = {
        "content": [{"type": "text", "text": json.dumps(people)}, {"type": "text", "text": json.dumps(people[0])}],
        "structuredContent": {"result": people},
    }
    found, _ = await ask(serves(value), "answer: {mask: [/email, '/*/email']}")
    assert "b.test" not in json.dumps(found)
    assert [{"email": "***", "n": 1}, {"email": "***", "n": 2}] == found["structuredContent"]["result"]
    found, _ = await ask(serves(value), "answer: {mask: [/result, '/*/email']}")
    assert {"result": "***"} == found["structuredContent"]


async def test_says_how_many_text_blocks_are_missing() -> None:
    blocks = [{"type": "text", "text": json.dumps(row)} for row in ROWS]
    found, _ = await ask(serves({"content": blocks}), CUT)
    *shown, note = found["content"]
    assert blocks[: len(shown)] == shown
    assert f"the first {len(shown)} of {len(blocks)} blocks" in note["text"]


async def test_says_that_blocks_are_missing_behind_a_text_that_is_cut() -> None:
    blocks = [{"type": "text", "text": "word " * 5_000}, {"type": "text", "text": "second"}]
    found, _ = await ask(serves({"content": blocks}), CUT)
    cut, note = found["content"]
    assert cut["text"].startswith("word word")
    assert "characters" in cut["text"]
    assert "the first 1 of 2 blocks" in note["text"]


async def test_cuts_blocks_that_are_no_text() -> None:
    blocks = [{"type": "text", "text": "a picture:"}, {"type": "image", "data": "A" * 20_000, "mimeType": "image/png"}]
    found, _ = await ask(serves({"content": blocks}), CUT)
    first, note = found["content"]
    assert ("a picture:", True) == (first["text"], "the first 1 of 2 blocks" in note["text"])


async def test_keeps_an_error_of_the_protocol() -> None:
    error = {"code": -32603, "message": "no"}
    server = McpServer(
        tools=(ADD,), called=lambda message, _seen: as_json({"jsonrpc": "2.0", "id": message["id"], "error": error})
    )
    async with talk(server, more="answer: {mask: [/email]}") as client:
        assert error == (await client.ask(CALL))["error"]


async def test_passes_on_what_the_server_says_of_the_request_itself() -> None:
    server = McpServer(
        tools=(ADD,), called=lambda _message, _seen: http("401 Unauthorized", b"", "WWW-Authenticate: Bearer")
    )
    async with talk(server, more="answer: {mask: [/email]}") as client:
        seen = await client.send(CALL)
    assert (401, b"") == (seen.status, seen.body)


# --- other servers ----------------------------------------------------------------------------------------------------
COMMAND = json.dumps([sys.executable, str(SERVER)])


async def test_cuts_and_masks_the_answers_of_a_process() -> None:
    route = "  - {path: /mcp, protocol: mcp, upstream: a, answer: {max_bytes: 2KiB, on_large: cut, mask: [/b/email]}}"
    async with proxied(route, upstreams=f"{{a: {{command: {COMMAND}}}}}") as proxy:
        client = Client(proxy)
        await client.begin()
        masked = read(await client.send(call("echo", {"a": 1, "b": {"email": "Zoe"}})))
        cut = read(await client.send(call("echo", {"a": 1, "b": "x" * 9000})))
    assert {"a": 1, "b": {"email": "***"}} == json.loads(text(masked))
    assert "[Cut: the answer is longer than 2,048 bytes." in json.loads(text(cut))["_cut"]


async def test_one_tool_of_several_servers_may_have_rules() -> None:
    route = "  - {path: /mcp, protocol: mcp, servers: {a: a, b: b}, mcp: {tools: {b_echo: {answer: {mask: [/b]}}}}}"
    async with proxied(route, upstreams=f"{{a: {{command: {COMMAND}}}, b: {{command: {COMMAND}}}}}") as proxy:
        client = Client(proxy)
        seen = await client.send(INITIALIZE)
        client.headers = (f"Mcp-Session-Id: {seen.header('mcp-session-id')}",)
        shown = [json.loads(text(read(await client.send(call(f"{name}_echo", {"a": 1, "b": "ann"})))))["b"]
                 for name in "ab"]  # fmt: skip
    assert ["ann", "***"] == shown


async def test_filters_the_answer_of_a_service_before_it_becomes_a_result() -> None:
    route = (
        "  - {path: /mcp, upstream: tools, protocol: mcp, operations: all, "
        "answer: {max_bytes: 4KiB, on_large: cut, mask: [/email]}}\n"
    )
    body = json.dumps({"email": "Zoe", "rows": ROWS}).encode()
    async with tool(replies(answer("200 OK", body, JSON_TYPE))) as server, served(TRIPS, server.url, route) as port:
        found = await call_operation(port, "get_trip", {"trip-id": 7})
    shown = json.loads(found["content"][0]["text"])
    assert ("***", True) == (shown["email"], "of 500 items of /rows" in shown["_cut"])

"""Calls through the real app over real sockets: what reaches the tool, and what the client hears."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from tests.serving.proxied import FREE, RELAY, WEATHER, code, proxied, told
from tests.serving.wire import JSON_TYPE, Script, Seen, answer, post, read_message, replies, tool

OK = answer("200 OK", b'{"sun": true}', JSON_TYPE)


async def test_a_clean_call_reaches_the_tool_byte_for_byte_and_so_does_its_answer() -> None:
    body = b'{ "lat" : 48.850,"note":"caf\\u00e9", "x": [1e3 , 9007199254740993]}'
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", body, "X-Tenant: a")

    assert body == server.seen[0].body
    assert "POST /weather HTTP/1.1" == server.seen[0].start
    assert ("a", "application/json") == (server.seen[0].header("x-tenant"), server.seen[0].header("content-type"))
    assert (200, b'{"sun": true}', None) == (seen.status, seen.body, seen.header("tool-repairs"))


async def test_a_repaired_call_reaches_the_tool_repaired_and_the_answer_says_so() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": "48.850", "lon": 2.350}', "Content-MD5: abc", "Digest: sha=x")

    assert b'{"lat":48.850,"lon":2.350}' == server.seen[0].body
    assert {"content-md5", "digest"}.isdisjoint(server.seen[0].names())
    assert (200, "string_to_number;path=/lat") == (seen.status, seen.header("tool-repairs"))


async def test_a_rejected_call_never_reaches_the_tool_and_the_answer_counts_attempts() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": "north"}', "X-Conversation-Id: c", "X-Tool-Call-Id: call_7")

    assert [] == server.seen
    assert (400, "INVALID_ARGUMENTS") == code(seen)
    assert ("INVALID_ARGUMENTS", "1/3", "tool_result/2", "no-store") == tuple(
        seen.header(name) for name in ("tool-error", "tool-attempt", "tool-format", "cache-control")
    )
    assert "call_7" == told(seen)["tool_call_id"]
    assert 'Shape of valid arguments: {"lat":"<number>"}' in told(seen)["content"]


async def test_a_delivered_call_ends_the_attempts() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        said = "X-Conversation-Id: c"
        first = await proxy.post("/weather", b'{"lat": "a"}', said)
        second = await proxy.post("/weather", b'{"lat": "b"}', said)
        good = await proxy.post("/weather", b'{"lat": 1}', said)
        again = await proxy.post("/weather", b'{"lat": "c"}', said)

    assert ["1/3", "2/3", "3/3", "1/3"] == [seen.header("tool-attempt") for seen in (first, second, good, again)]


async def test_a_redirection_is_handed_on_and_ends_no_attempts() -> None:
    moved = answer("302 Found", b"", "Location: /elsewhere")
    async with tool(replies(moved)) as server, proxied(WEATHER, server.url) as proxy:
        said = "X-Conversation-Id: c"
        wrong = await proxy.post("/weather", b'{"lat": "a"}', said)
        sent = await proxy.post("/weather", b'{"lat": 1}', said)
        again = await proxy.post("/weather", b'{"lat": "b"}', said)

    assert (302, "/elsewhere") == (sent.status, sent.header("location"))
    assert ["1/3", None, "2/3"] == [seen.header("tool-attempt") for seen in (wrong, sent, again)]


async def test_the_last_attempt_is_answered_with_the_escalation() -> None:
    async with proxied(WEATHER) as proxy:
        said = "X-Conversation-Id: c"
        seen = [await proxy.post("/weather", json.dumps({"lat": text}).encode(), said) for text in "abc"]
        repeated = await proxy.post("/weather", b'{"lat": "a"}', said)

    assert ["INVALID_ARGUMENTS", "INVALID_ARGUMENTS", "ATTEMPTS_EXHAUSTED"] == [code(one)[1] for one in seen]
    assert (400, "ATTEMPTS_EXHAUSTED") == code(repeated)


async def test_an_empty_body_counts_as_no_arguments() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER + FREE, server.url) as proxy:
        missing = await proxy.post("/weather", b"", content_type=None)
        free = await proxy.post("/free", b"", content_type=None)

    assert ["VAL-001"] == [error["code"] for error in told(missing)["error"]["errors"]]
    assert (200, [b""]) == (free.status, [seen.body for seen in server.seen])


async def test_a_report_only_route_sends_the_clients_bytes_and_returns_the_tools_answer() -> None:
    routes = WEATHER + "    mode: report\n"
    refused = answer("400 Bad Request", b"no", "Content-Type: text/plain")
    async with tool(replies(OK, refused)) as server, proxied(routes, server.url) as proxy:
        repairable = await proxy.post("/weather", b'{"lat": "1"}')
        hopeless = await proxy.post("/weather", b'{"lat": [')

    assert [b'{"lat": "1"}', b'{"lat": ['] == [seen.body for seen in server.seen]
    assert (200, None) == (repairable.status, repairable.header("tool-repairs"))
    assert (400, b"no") == (hopeless.status, hopeless.body)
    assert ["Tool call would have been repaired", "Tool validation would have failed"] == [
        line["message"] for line in proxy.lines()
    ]


async def test_a_validate_only_route_answers_the_checked_arguments() -> None:
    routes = (
        "  - {path: /check, upstream: none, tool: check, schema: {type: object, properties: {n: {type: integer}}}}\n"
    )
    async with proxied(routes) as proxy:
        seen = await proxy.post("/check", b'{"n": "42"}')

    assert (200, b'{"n":42}', "application/json") == (seen.status, seen.body, seen.header("content-type"))


async def test_a_client_that_leaves_cancels_the_upstream_request() -> None:
    async with tool(silence) as server, proxied(WEATHER, server.url) as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", b'{"lat": 1}'))
        await server.arrived.wait()
        writer.close()
        async with asyncio.timeout(300):
            await server.gone.wait()
        await proxy.serving.handler.idle()

    assert "client_gone" == proxy.lines()[0]["outcome"]


async def silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
    await reader.read()
    raise ConnectionResetError


async def test_server_sent_events_reach_the_client_one_by_one() -> None:
    go_on = asyncio.Event()

    async def events(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 1\ndata:\n\n")
        await writer.drain()
        await go_on.wait()
        writer.write(b": comment\ndata: 2\n\n")
        await writer.drain()
        writer.close()

    async with tool(events) as server, proxied(WEATHER, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", b'{"lat": 1}'))
        head = await reader.readuntil(b"\r\n\r\n")
        first = await reader.readuntil(b"data:\n\n\r\n")
        go_on.set()
        rest = await reader.readuntil(b"0\r\n\r\n")
        writer.close()

    assert b"text/event-stream" in head
    assert b"id: 1\ndata:\n\n" in first
    assert b": comment\ndata: 2\n\n" in rest


async def test_an_answer_that_breaks_off_midway_breaks_off_at_the_client_too() -> None:
    async def half(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 100_000)
        await writer.drain()
        writer.close()

    async with tool(half) as server, proxied(WEATHER, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", b'{"lat": 1}'))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await read_message(reader)
        writer.close()

    assert ("upstream_error", "http_response_incomplete") == (
        proxy.lines()[0]["outcome"],
        proxy.lines()[0]["error.type"],
    )


async def test_a_large_answer_is_streamed_whole() -> None:
    body = bytes(range(256)) * 12_000
    async with tool(replies(answer("200 OK", body))) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}')

    assert (200, str(len(body))) == (seen.status, seen.header("content-length"))
    assert body == seen.body


async def test_a_redirect_goes_to_the_client() -> None:
    moved = answer("307 Temporary Redirect", b"", "Location: https://elsewhere.test/")
    async with tool(replies(moved)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}')

    assert (307, "https://elsewhere.test/", 1) == (seen.status, seen.header("location"), len(server.seen))


async def test_cookies_of_one_caller_never_reach_another_ones_request() -> None:
    first = answer("200 OK", b"{}", "Set-Cookie: session=alice; Path=/")
    async with tool(replies(first)) as server, proxied(WEATHER, f"http://localhost:{server.port}") as proxy:
        alice = await proxy.post("/weather", b'{"lat": 1}')
        await proxy.post("/weather", b'{"lat": 2}', "Cookie: session=bob")
        await proxy.post("/weather", b'{"lat": 3}')

    assert "session=alice; Path=/" == alice.header("set-cookie")
    assert [None, "session=bob", None] == [seen.header("cookie") for seen in server.seen]


async def test_a_passthrough_route_relays_both_ways_without_looking() -> None:
    reply = answer("418 Teapot", b"<tea/>", "Content-Type: text/xml", "X-Tea: green")
    async with tool(replies(reply)) as server, proxied(RELAY, server.url) as proxy:
        seen = await proxy.post("/relay?x=1", b"\x00raw", content_type="application/octet-stream")
        head = await proxy.get("/relay")

    assert ("POST /relay?x=1 HTTP/1.1", b"\x00raw") == (server.seen[0].start, server.seen[0].body)
    assert (418, b"<tea/>", "green", "text/xml") == (
        seen.status,
        seen.body,
        seen.header("x-tea"),
        seen.header("content-type"),
    )
    assert 418 == head.status


async def test_an_upload_without_length_is_streamed_through_a_passthrough_route() -> None:
    async with tool(replies(OK)) as server, proxied(RELAY, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"PUT /relay HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await server.connected.wait()
        writer.write(b"2\r\nde\r\n0\r\n\r\n")
        seen = await read_message(reader)
        writer.close()

    assert (200, b"abcde") == (seen.status, server.seen[0].body)


# --- the tool's own errors, and none at all ---------------------------------------------------------------------------
async def test_an_error_of_the_tool_becomes_a_failure_with_its_own_status_and_words() -> None:
    reply = answer("422 Unprocessable", b'{"detail": "lat is off the map"}', JSON_TYPE, "ETag: x")
    async with tool(replies(reply)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": "500"}')

    assert (422, "INVALID_REQUEST") == code(seen)
    assert "lat is off the map" == told(seen)["error"]["details"]["original_error"]
    assert "lat is off the map" in told(seen)["content"]
    assert ("toolcall-proxy; received-status=422", None, "string_to_number;path=/lat") == tuple(
        seen.header(name) for name in ("proxy-status", "etag", "tool-repairs")
    )


async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    writer.close()


async def cut(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    await writer.drain()
    writer.close()


FAULTS = {
    "says nothing": (silence, 504, "UPSTREAM_TIMEOUT", "http_response_timeout", "unknown"),
    "hangs up": (reset, 502, "UPSTREAM_BAD_ANSWER", "connection_terminated", "unknown"),
    "breaks off": (cut, 502, "UPSTREAM_BAD_ANSWER", "http_response_incomplete", "unknown"),
    "talks nonsense": (replies(b"BLAH\r\n\r\n"), 502, "UPSTREAM_BAD_ANSWER", "http_protocol_error", "unknown"),
}


@pytest.mark.parametrize(("script", "status", "name", "token", "executed"), FAULTS.values(), ids=FAULTS)
async def test_distinguishes_failures_of_a_tool_by_code_status_and_proxy_status(
    script: Script, status: int, name: str, token: str, executed: str
) -> None:
    routes = WEATHER + "    timeout: 200ms\n"
    async with tool(script) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}')

    assert (status, name) == code(seen)
    assert f"toolcall-proxy; error={token}" == seen.header("proxy-status")
    assert (executed, True) == (told(seen)["error"]["details"]["executed"], told(seen)["error"]["retryable"])
    assert (1, None) == (len(server.seen), seen.header("tool-attempt"))


async def test_a_tool_that_is_not_there_has_not_run() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        async with proxied(WEATHER + RELAY, f"http://127.0.0.1:{held.getsockname()[1]}") as proxy:
            call = await proxy.post("/weather", b'{"lat": 1}')
            relayed = await proxy.post("/relay", b"x")

    assert [(502, "UPSTREAM_UNAVAILABLE")] * 2 == [code(call), code(relayed)]
    assert ["toolcall-proxy; error=connection_refused"] * 2 == [
        call.header("proxy-status"),
        relayed.header("proxy-status"),
    ]
    assert "no" == told(call)["error"]["details"]["executed"]


# --- which tool -------------------------------------------------------------------------------------------------------
DISPATCH = """
  - path: /dispatch
    upstream: tools
    dispatch: {tool: /name, arguments: /arguments}
  - path: '/tools/{tool}'
    upstream: tools
    upstream_path: '/run/{tool}'
  - path: /spread
    upstream: tools
    upstream_path: '/run/{tool}'
    dispatch: {tool: /name, arguments: /arguments}
"""
TOOLS = "{weather: {schema: {type: object, properties: {lat: {type: number}}, required: [lat]}}}"


async def test_a_dispatch_route_sends_the_whole_body_with_only_the_repaired_parts_changed() -> None:
    body = b'{"id": 1,  "name": "functions.weather", "arguments": {"lat": "1.50"}, "z": 1e2}'
    async with tool(replies(OK)) as server, proxied(DISPATCH, server.url, tools=TOOLS) as proxy:
        seen = await proxy.post("/dispatch", body)

    assert b'{"id": 1,  "name": "weather", "arguments": {"lat":1.50}, "z": 1e2}' == server.seen[0].body
    assert "tool_name_trim;path=, string_to_number;path=/lat" == seen.header("tool-repairs")


async def test_a_dispatch_route_to_one_path_per_tool_sends_only_the_arguments() -> None:
    async with tool(replies(OK)) as server, proxied(DISPATCH, server.url, tools=TOOLS) as proxy:
        await proxy.post("/spread", b'{"name": "weather", "arguments": { "lat" : 1.0 }}')

    assert ("POST /run/weather HTTP/1.1", b'{ "lat" : 1.0 }') == (server.seen[0].start, server.seen[0].body)


async def test_an_unknown_tool_is_suggested_its_nearest_name_and_all_unknown_names_escalate_together() -> None:
    async with tool(replies(OK)) as server, proxied(DISPATCH, server.url, tools=TOOLS) as proxy:
        said = "X-Conversation-Id: c"
        first = await proxy.post("/tools/wether", b"{}", said)
        second = await proxy.post("/tools/whether", b"{}", said)
        third = await proxy.post("/tools/forecast", b"{}", said)

    assert [] == server.seen
    assert (404, "UNKNOWN_TOOL") == code(first)
    assert "weather" in told(first)["content"]
    assert ["1/3", "1/3", "3/3"] == [answered.header("tool-attempt") for answered in (first, second, third)]
    assert (400, "ATTEMPTS_EXHAUSTED") == code(third)


async def test_unknown_names_have_the_attempts_of_their_route() -> None:
    routes = DISPATCH.replace("- path: '/tools/{tool}'", "- path: '/tools/{tool}'\n    attempts: {max: 2}")
    assert routes != DISPATCH
    async with tool(replies(OK)) as server, proxied(routes, server.url, tools=TOOLS) as proxy:
        said = "X-Conversation-Id: c"
        seen = [await proxy.post(f"/tools/{name}", b"{}", said) for name in ("wether", "whether")]

    assert ["1/2", "2/2"] == [answered.header("tool-attempt") for answered in seen]
    assert [(404, "UNKNOWN_TOOL"), (400, "ATTEMPTS_EXHAUSTED")] == [code(answered) for answered in seen]


async def test_a_dispatch_body_that_cannot_be_read_or_names_no_tool_is_refused() -> None:
    async with tool(replies(OK)) as server, proxied(DISPATCH, server.url, tools=TOOLS) as proxy:
        broken = await proxy.post("/dispatch", b'{"name": "weather", "arguments": {"lat": 1}')
        empty = await proxy.post("/dispatch", b"")
        nameless = await proxy.post("/dispatch", b'{"arguments": {"lat": 1}}')
        listed = await proxy.post("/dispatch", b'[{"name": "weather", "arguments": {"lat": "x"}}]')

    assert [] == server.seen
    assert ["VAL-004", "VAL-004"] == [told(seen)["error"]["errors"][0]["code"] for seen in (broken, empty)]
    assert [(404, "UNKNOWN_TOOL")] * 2 == [code(nameless), code(listed)]


async def test_a_container_is_expanded_by_the_proxy_and_refuses_parameters() -> None:
    routes = """
  - path: /math
    upstream: none
    tool: Math
    container: {source: plugin, expand: proxy, functions: [{name: Add, description: Adds.}]}
"""
    async with proxied(routes) as proxy:
        opened = await proxy.post("/math", b"")
        misused = await proxy.post("/math", b'{"a": 5}')

    assert (200, ["Add"]) == (opened.status, [function["name"] for function in told(opened)["functions"]])
    assert (400, "CONTAINER_INVOCATION") == code(misused)


async def test_a_call_cap_counts_delivered_calls_only() -> None:
    fail = answer("500 Oops", b"")
    routes = WEATHER + "    caps: {default: 1}\n"
    async with tool(replies(fail, OK)) as server, proxied(routes, server.url) as proxy:
        said = "X-Conversation-Id: c"
        seen = [await proxy.post("/weather", b'{"lat": 1}', said) for _ in range(3)]

    assert [500, 200, 400] == [one.status for one in seen]
    assert (400, "CALL_CAP_EXCEEDED") == code(seen[2])
    assert 2 == len(server.seen)

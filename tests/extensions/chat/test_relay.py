"""Everything below a route with `model` is relayed as it is: other paths, errors, streams, and what cannot be read."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from tests.extensions.chat.answers import (
    EVENTS_TYPE,
    ROUTES,
    WEATHER,
    chat_answer,
    chat_request,
    chat_text,
    messages_answer,
    messages_request,
    responses_answer,
    responses_request,
    whole,
)
from tests.serving.proxied import code, proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, replies, tool

BROKEN = chat_answer('{"city": "Oslo", "days": "3"}')


async def test_every_path_below_the_base_is_relayed_with_its_query_and_the_callers_key() -> None:
    async with (
        tool(replies(answer("200 OK", b'{"data":  []}', JSON_TYPE))) as server,
        proxied(ROUTES, server.url) as proxy,
    ):
        seen = await proxy.get("/v1/models/org/tiny%20one?limit=2", "Authorization: Bearer sk-mine")
        await proxy.get("/v1")
        other = await proxy.get("/v2/models")
    assert (200, b'{"data":  []}') == (seen.status, seen.body)
    assert ["GET /v1/models/org/tiny%20one?limit=2 HTTP/1.1", "GET /v1 HTTP/1.1"] == [one.start for one in server.seen]
    assert "Bearer sk-mine" == server.seen[0].header("authorization")
    assert (404, "ROUTE_NOT_FOUND") == code(other)


async def test_another_path_can_be_sent_upstream() -> None:
    routes = "  - {path: /ai, upstream: tools, upstream_path: /api/v1/, model: {}}"
    async with tool(replies(whole(b"{}"))) as server, proxied(routes, server.url) as proxy:
        await proxy.post("/ai/chat/completions", chat_request())
    assert ["POST /api/v1/chat/completions HTTP/1.1"] == [one.start for one in server.seen]


async def test_a_path_that_servers_read_differently_has_no_route() -> None:
    async with tool(replies(whole(b"{}"))) as server, proxied(ROUTES, server.url) as proxy:
        refused = [await proxy.get(f"/v1/{path}") for path in ("..", "%2e%2e/keys", "a%2Fb", "%252e%252e/keys")]
    assert [(404, "ROUTE_NOT_FOUND")] * 4 == [code(one) for one in refused]
    assert [] == server.seen


async def test_an_error_of_the_model_server_passes_as_it_is() -> None:
    wrong = b'{"error":  {"message": "rate limited"}}'
    limited = answer("429 Too Many Requests", wrong, JSON_TYPE, "Retry-After: 7")
    async with tool(replies(limited)) as server, proxied(ROUTES, server.url) as proxy:
        seen = await proxy.post("/v1/chat/completions", chat_request())
    assert (429, wrong, "7") == (seen.status, seen.body, seen.header("retry-after"))


async def test_only_requests_that_name_tools_are_read() -> None:
    async with tool(replies(whole(BROKEN))) as server, proxied(ROUTES, server.url) as proxy:
        without = [
            await proxy.post("/v1/chat/completions", chat_request(tools=[])),
            await proxy.post("/v1/completions", chat_request()),
            await proxy.post("/v1/chat/completions", b"no JSON"),
        ]
        read = [
            await proxy.post("/v1/chat/completions", chat_request()),
            await proxy.post("/v1/chat/completions", chat_request(tool_choice="none")),  # the server does not care
        ]
    assert [BROKEN] * 3 == [one.body for one in without]
    assert BROKEN not in [one.body for one in read]
    sent = [chat_request(tools=[]), chat_request(), b"no JSON", chat_request(), chat_request(tool_choice="none")]
    assert sent == [one.body for one in server.seen]


async def test_a_long_request_or_answer_is_relayed_unread() -> None:
    small = "  - {path: /v1, upstream: tools, model: {max_request: 100, max_answer: 100}}"
    long = "  - {path: /v1, upstream: tools, model: {max_answer: 100}}"
    async with tool(replies(whole(BROKEN))) as server:
        for routes in (small, long):
            async with proxied(routes, server.url) as proxy:
                assert BROKEN == (await proxy.post("/v1/chat/completions", chat_request())).body
    assert [chat_request()] * 2 == [one.body for one in server.seen]


async def test_an_answer_that_is_no_json_or_is_coded_all_the_same_passes_untouched() -> None:
    coded = gzip.compress(BROKEN)
    script = replies(
        whole(b"{broken"), whole(coded, "Content-Encoding: gzip"), answer("200 OK", b"hi", "Content-Type: text/plain")
    )
    async with tool(script) as server, proxied(ROUTES, server.url) as proxy:
        seen = [await proxy.post("/v1/chat/completions", chat_request(), "Accept-Encoding: gzip") for _ in range(3)]
    assert [b"{broken", coded, b"hi"] == [one.body for one in seen]
    assert [None] * 3 == [one.header("accept-encoding") for one in server.seen]


async def test_an_answer_that_breaks_off_breaks_off_for_the_client() -> None:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{JSON_TYPE}\r\nContent-Length: 9999\r\n\r\n".encode() + BROKEN)
        await writer.drain()
        writer.close()

    async with tool(script) as server, proxied(ROUTES, server.url) as proxy:
        try:
            seen = await proxy.post("/v1/chat/completions", chat_request())
        except (asyncio.IncompleteReadError, ConnectionError):
            seen = None
    assert seen is None or seen.status == 502


async def test_a_client_that_goes_ends_the_request_to_the_model() -> None:
    async def script(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await reader.readexactly(1)

    async with tool(script) as server, proxied(ROUTES, server.url) as proxy:
        asking = asyncio.create_task(exchange(proxy.port, post("/v1/chat/completions", chat_request())))
        async with asyncio.timeout(30):
            await server.arrived.wait()
            asking.cancel()
            await server.gone.wait()
    assert server.gone.is_set()


async def test_text_passes_byte_for_byte() -> None:
    text = chat_text('It rains. {"name": "get_weather"}')
    async with tool(replies(whole(text))) as server, proxied(ROUTES, server.url) as proxy:
        seen = await proxy.post("/v1/chat/completions", chat_request())
    assert (text, None) == (seen.body, seen.header("tool-repairs"))


_FUNCTION = {"type": "function", "name": "get_weather", "parameters": WEATHER}
_OTHER_KINDS = {
    "a tool of the provider": (
        "/v1/messages",
        messages_request(
            tools=[{"type": "bash_20250124", "name": "bash"}, {"name": "Bash_", "input_schema": WEATHER}],
        ),
        messages_answer({"command": "ls"}, "bash"),
    ),
    "a tool in a namespace": (
        "/v1/responses",
        responses_request(tools=[_FUNCTION, {"type": "namespace", "name": "crm", "tools": [{"name": "find"}]}]),
        responses_answer("{}", "find"),
    ),
    "a tool that a search brought": (
        "/v1/responses",
        responses_request(tools=[_FUNCTION], input=[{"type": "tool_search_output", "tools": [{"name": "find"}]}]),
        responses_answer("{}", "find"),
    ),
}


@pytest.mark.parametrize("kind", _OTHER_KINDS)
async def test_a_call_of_a_tool_of_another_kind_passes_unvalidated(kind: str) -> None:
    path, request, called = _OTHER_KINDS[kind]
    routes = "  - {path: /v1, upstream: tools, model: {retries: 1, mode: refuse}}"
    async with tool(replies(whole(called))) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(path, request)
    assert (200, called, None, 1) == (seen.status, seen.body, seen.header("tool-error"), len(server.seen))


IDS = ("X-Request-ID: req_provider", "Request-Id: req_a", 'ETag: "x"', "Tool-Request-ID: other")


@pytest.mark.parametrize(
    ("path", "request_", "sent"),
    [
        ("/v1/chat/completions", chat_request(), answer("200 OK", BROKEN, JSON_TYPE, *IDS)),
        ("/v1/chat/completions", chat_request(), answer("429 Slow", b"{}", JSON_TYPE, *IDS)),
        ("/v1/chat/completions", chat_request(stream=True), answer("200 OK", b"data: {}\n\n", EVENTS_TYPE, *IDS)),
        ("/v1/embeddings", b"{}", answer("200 OK", b"{}", JSON_TYPE, *IDS)),
    ],
)
async def test_the_id_of_the_model_server_reaches_the_client(path: str, request_: bytes, sent: bytes) -> None:
    async with tool(replies(sent)) as server, proxied(ROUTES, server.url) as proxy:
        seen = await proxy.post(path, request_)
        line = proxy.lines()[-1]
    ids = [(name.lower(), value) for name, value in seen.headers if "request-id" in name.lower()]
    assert [
        ("request-id", "req_a"),
        ("x-request-id", "req_provider"),
        ("tool-request-id", line["correlation_id"]),
    ] == ids
    assert (sent.endswith(BROKEN)) == (seen.header("etag") is None)


async def test_answers_of_the_proxys_own_have_its_id() -> None:
    async with proxied(ROUTES, "http://127.0.0.1:1") as proxy:
        seen = await proxy.post("/v1/chat/completions", chat_request())
        assert (502, proxy.lines()[-1]["correlation_id"]) == (seen.status, seen.header("x-request-id"))

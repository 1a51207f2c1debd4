"""Call-outs on MCP routes, on operations of an HTTP API, on containers and on tools with long arguments."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.core.json.contentcoding import list_data
from tests.extensions.callout.service import says
from tests.extensions.mcp.conversation import refusal, talk, text
from tests.extensions.mcp.server import McpServer, call
from tests.extensions.operations.served import TRIPS, ask, served
from tests.serving.proxied import proxied
from tests.serving.wire import JSON_TYPE, Seen, Tool, answer, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)


def config(service: Tool, server: str, more: str = "") -> dict[str, str]:
    """The keys that make a proxy ask the service."""
    upstreams = f'{{tools: {{url: "{server}"}}, policy: {{url: "{service.url}"}}}}'
    return {"upstreams": upstreams, "callout": f"[{{name: policy, upstream: policy{more}}}]"}


async def ask_mcp(said: object, server: McpServer, more: str = "") -> tuple[Any, list[Any], list[Any]]:
    """The answer to one call over MCP, the arguments that arrived, and the questions."""
    async with tool(says(said)) as service, tool(server) as upstream:
        route = "  - {path: /mcp, upstream: tools, protocol: mcp}"
        async with talk(server) as usual, proxied(route, **config(service, upstream.url, more)) as proxy:
            usual.proxy = proxy
            body = (await usual.send(call("add", {"a": 1, "b": 2}))).body
            found = json.loads(body if body.startswith(b"{") else list(list_data(body))[-1])
            return found, usual.received, [json.loads(seen.body) for seen in service.seen]


@pytest.mark.parametrize("events", [False, True])
async def test_a_call_over_mcp_is_replaced_refused_and_masked(events: bool) -> None:
    server = McpServer(events=events)
    found, received, questions = await ask_mcp({"action": "replace", "arguments": {"a": 3, "b": "4"}}, server)
    assert ([{"a": 3, "b": 4}], '{"a": 3, "b": 4}') == (received, text(found))
    assert ["add"] == [question["call"]["tool"] for question in questions]

    found, _, _ = await ask_mcp({"action": "refuse", "message": "No sums today."}, McpServer(events=events))
    assert (True, "CALL_NOT_ALLOWED") == refusal(found)
    assert "No sums today." in text(found)

    found, received, _ = await ask_mcp({"action": "replace", "arguments": {"a": 3}}, McpServer(events=events))
    assert ([], (True, "HOOK_FAILED")) == (received, refusal(found))

    masks = {"action": "mask", "paths": ["/result/content/0/text"]}
    found, _, questions = await ask_mcp(masks, McpServer(events=events), ", at: [after_answer]")
    assert "***" == text(found)
    assert '{"a": 1, "b": 2}' == questions[0]["answer"]["value"]["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("replaced", "status", "arrives"),
    [({"trip-id": 8, "notify": True, "title": "Oslo"}, 200,
      [("PATCH /trips/8?notify=true HTTP/1.1", b'{"title":"Oslo"}')]),
     ({"notify": True, "title": "Oslo"}, 503, []), ({"trip-id": "..", "notify": True, "title": "Oslo"}, 503, [])],
)  # fmt: skip
async def test_an_operation_shows_path_query_and_body_as_arguments(
    replaced: object, status: int, arrives: list[object]
) -> None:
    """The service is behind the upstream of the operation: a test of both needs one address only."""
    said = answer("200 OK", json.dumps({"action": "replace", "arguments": replaced}).encode(), JSON_TYPE)

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        writer.write(said if seen.start.startswith("POST /ask ") else OK)
        await writer.drain()

    async with tool(script) as server:
        more = "\ncallout: [{name: policy, upstream: tools, path: /ask}]\n"
        async with served(TRIPS, server.url, more) as port:
            seen = await ask(port, "PATCH", "/trips/7?notify=false", b'{"title": "Rome"}')
    question, *rest = server.seen
    assert {"trip-id": 7, "notify": False, "title": "Rome"} == json.loads(question.body)["call"]["arguments"]
    assert (status, arrives) == (seen.status, [(each.start, each.body) for each in rest])


async def test_shows_the_function_that_a_container_leads_to() -> None:
    route = """
  - {path: /call, upstream: tools, dispatch: {tool: /name, arguments: /arguments}}
"""
    tools = "{Add: {schema: {type: object, properties: {a: {type: integer}}, required: [a]}}}"
    async with (
        tool(replies(OK)) as server,
        tool(says({"action": "replace", "arguments": {"a": 2}})) as service,
        proxied(route, tools=tools, **config(service, server.url)) as proxy,
    ):
        body = b'{"id": 1.50, "name": "Add", "arguments": {"a": 1}}'
        assert 200 == (await proxy.post("/call", body)).status
    assert [b'{"id": 1.50, "name": "Add", "arguments": {"a":2}}'] == [seen.body for seen in server.seen]
    assert "Add" == json.loads(service.seen[0].body)["call"]["tool"]


async def test_long_replaced_arguments_are_validated_elsewhere_and_arrive() -> None:
    route = """
  - path: /a
    upstream: tools
    tool: a
    schema: {type: object, properties: {n: {type: array, items: {type: integer}, uniqueItems: true}}, required: [n]}
"""
    for numbers, arrives in (list(range(20_000)), 1), ([*range(20_000), 5], 0), ([*range(20_000), "x"], 0):
        said = {"action": "replace", "arguments": {"n": numbers}}
        async with (
            tool(replies(OK)) as server,
            tool(says(said)) as service,
            proxied(route, **config(service, server.url, ", max_answer: 1MiB, timeout: 30s")) as proxy,
        ):
            seen = await proxy.post("/a", b'{"n": []}')
        assert (arrives, 200 if arrives else 503) == (len(server.seen), seen.status)

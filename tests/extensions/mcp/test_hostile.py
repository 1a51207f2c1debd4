"""Attempts to get round the check on an MCP route, and lists of a hostile server: over sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.extensions.mcp.conversation import refusal, talk
from tests.extensions.mcp.server import ADD, MODERN, McpServer, as_json, call, chunk, modern, modern_headers, result
from tests.serving.wire import Seen

pytestmark = pytest.mark.large

LONG_S = "argument\u017f"  # to Go's encoding/json this is `arguments`
GOOD = {"a": 1, "b": 2}
BAD = {"a": "one", "b": 2}


# --- names that some servers read without their case ------------------------------------------------------------------
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "Method": "tools/call", "params": {"name": "add", "arguments": BAD}},
        {**call("add", GOOD), "METHOD": "ping"},
        {**call("add", GOOD), "Params": {"name": "add", "arguments": BAD}},
        {**call("add", GOOD), "ID": 2},
        call("add", GOOD, Name="now"),
        call("add", GOOD, Arguments=BAD),
        call("add", GOOD, **{LONG_S: BAD}),
        call("add", **{LONG_S: BAD}),
        [{"jsonrpc": "2.0", "id": 1, "Method": "tools/call", "params": {"name": "add", "arguments": BAD}}],
    ],
)
async def test_a_message_with_a_second_reading_reaches_nobody(message: object) -> None:
    async with talk() as client:
        seen = await client.send(message)

    told = json.loads(seen.body)
    assert 400 == seen.status or told["result"]["isError"] is True
    assert [] == client.server.calls
    assert [b"tools/list"] * len(client.upstream.seen) == [
        json.loads(one.body)["method"].encode() for one in client.upstream.seen
    ]


async def test_a_message_that_is_no_call_may_name_its_parameters_freely() -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"Name": "a", "Arguments": 1}}
    async with talk() as client:
        seen = await client.send(message)

    assert (202, [message]) == (seen.status, [json.loads(one.body) for one in client.upstream.seen])


# --- headers ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["=?base64?\u00e9?=", "=?base64?_w==?=", "=?base64?////?="])
async def test_a_header_that_cannot_be_decoded_matches_nothing(name: str) -> None:
    message = call("add", GOOD)
    headers = (f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call", f"Mcp-Name: {name}")
    async with talk() as client:
        seen = await client.send(modern(message), *headers)

    assert (400, -32020, []) == (seen.status, json.loads(seen.body)["error"]["code"], client.server.calls)


@pytest.mark.parametrize(
    "twice", ["Mcp-Name: now", "Mcp-Name: add", "Mcp-Method: ping", f"MCP-Protocol-Version: {MODERN}", "Mcp-Param-X: 2"]
)
async def test_a_header_that_is_there_twice_is_a_lie_to_somebody(twice: str) -> None:
    message = call("add", GOOD)
    async with talk() as client:
        seen = await client.send(modern(message), *modern_headers(message, "Mcp-Param-X: 1", twice))

    assert (400, -32020, []) == (seen.status, json.loads(seen.body)["error"]["code"], client.server.calls)


async def test_the_newest_revision_that_any_header_names_counts() -> None:
    headers = ("MCP-Protocol-Version: 2025-06-18", f"MCP-Protocol-Version: {MODERN}", "Mcp-Name: now")
    async with talk() as client:
        seen = await client.send(call("add", GOOD), *headers)

    assert (400, []) == (seen.status, client.server.calls)


async def test_headers_of_a_call_are_not_sent_with_the_request_for_the_list() -> None:
    own = ("Idempotency-Key: k1", "X-Key: k2", "Content-Digest: sha-256=:abc:", "Range: bytes=0-1")
    async with talk(more="idempotency: {header: X-Key}") as client:
        await client.send(call("add", GOOD), *own, "X-Tenant: 7")

    names = {line.partition(":")[0].lower() for line in own}
    assert [{"x-tenant"}, names | {"x-tenant"}] == [
        seen.names() & (names | {"x-tenant"}) for seen in (client.server.listed[0], client.server.calls[0])
    ]


# --- messages without an id -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("id", [{}, {"id": None}, {"id": [1]}])
async def test_a_collapsed_list_without_a_usable_id_is_answered_under_null(id: dict[str, Any]) -> None:  # noqa: A002
    async with talk(mcp="collapse: {name: box}") as client:
        listed = await client.ask({"jsonrpc": "2.0", "method": "tools/list", **id})
        expanded = await client.ask({**call("box"), "id": None})

    assert (None, ["box"]) == (listed["id"], [one["name"] for one in listed["result"]["tools"]])
    assert (None, False) == (expanded["id"], expanded["result"].get("isError", False))


# --- hostile lists ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ttl", [10**400, 10**30, 2**63])
async def test_a_server_cannot_vouch_for_its_list_for_ever(ttl: int) -> None:
    async with talk(McpServer(ttl=ttl)) as client:
        answer = await client.ask(call("add", GOOD))
        listed = await client.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})

    assert [GOOD] == client.received
    assert ("result" in answer, ttl) == (True, listed["result"]["ttlMs"])


@pytest.mark.parametrize(
    "schema", [{"$id": "http://[bad"}, {"properties": {"a": {"$ref": "//["}}}, {"$defs": {"x": {"$id": "//["}}}]
)
async def test_a_schema_with_an_impossible_uri_is_of_no_use_and_the_other_tools_keep_working(
    schema: dict[str, Any],
) -> None:
    async with talk(McpServer([{"name": "odd", "inputSchema": schema}, ADD])) as client:
        odd = await client.ask(call("odd", {"a": 1}))
        good = await client.ask(call("add", GOOD))

    assert (True, "SCHEMA_UNKNOWN") == refusal(odd)
    assert ("result" in good, [GOOD]) == (True, client.received)


async def test_the_operators_guidance_leaves_out_what_has_no_usable_schema() -> None:
    async with talk(McpServer([{"name": "odd", "inputSchema": {"type": "nope"}}, ADD])) as client:
        await client.ask(call("add", GOOD))
        everything = await client.proxy.ask_admin("/-/guidance")
        odd = await client.proxy.ask_admin("/-/guidance?tool=odd")

    assert (200, True, False) == (everything.status, b"add" in everything.body, b"odd" in everything.body)
    assert 404 == odd.status


async def test_names_that_no_label_should_hold_are_counted_as_other() -> None:
    names = ["\x1b[2J", "a\rb", "x" * 129, "\u202ea"]
    async with talk(McpServer([ADD, *({"name": name, "inputSchema": {}} for name in names)])) as client:
        for name in ("add", *names):
            await client.send(call(name, GOOD))
        page = (await client.proxy.ask_admin("/metrics")).body.decode()

    counted = [line for line in page.split("\n") if line.startswith("toolproxy_requests_total{")]
    assert [
        'toolproxy_requests_total{outcome="delivered",route="/mcp",tool="_other"} 4.0',
        'toolproxy_requests_total{outcome="delivered",route="/mcp",tool="add"} 1.0',
    ] == sorted(counted)
    assert page.replace("\n", "").isprintable()


class _Trickling(McpServer):
    """Lists its tools as the last of many events; each of the others names the question. The stream stays open."""

    ends: tuple[bytes, ...] = (b"\r", b"\n", b"\r", b"\n")

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        message = json.loads(seen.body)
        if message["method"] != "tools/list":
            await super().__call__(reader, writer, seen)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        noise = f": {message['id']}\r\ndata: {'x' * 900}\r\n\r\n".encode()
        for _ in range(500):
            writer.write(chunk(noise))
            await writer.drain()
        last = json.dumps(result(message, {"tools": [ADD]})).encode()
        for part in (b"data: " + last, *self.ends):
            writer.write(chunk(part))
            await writer.drain()


@pytest.mark.parametrize("ends", [(b"\r", b"\n", b"\r", b"\n"), (b"\n\n",), (b"\n", b"\r\n"), (b"\r", b"\r")])
async def test_a_list_behind_hundreds_of_events_is_found_as_soon_as_it_is_there(ends: tuple[bytes, ...]) -> None:
    server = _Trickling()
    server.ends = ends
    async with talk(server) as client:
        answer = await client.ask(call("add", BAD))

    assert (True, "INVALID_ARGUMENTS") == refusal(answer)


async def test_a_filtered_list_that_flows_by_is_not_taken_for_the_whole_one() -> None:
    class Filtering(McpServer):
        def _answer(self, message: Any, seen: Seen) -> Any:
            if message.get("params", {}).get("only"):
                return as_json(result(message, {"tools": []}))
            return super()._answer(message, seen)

    async with talk(Filtering()) as client:
        for params in ({"only": "x"}, {"cursor": 7, "only": "x"}):
            await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params})
        await client.ask(call("add", GOOD))

    assert [GOOD] == client.received

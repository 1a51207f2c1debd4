"""Lists with keys that differ only in case: clients that ignore case would read another tool than the proxy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.extensions.mcp.conversation import feedback, talk
from tests.extensions.mcp.server import ADD, NOW, McpServer, as_events, as_json, call
from tests.serving.wire import Seen

LIST = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
EVIL = {**ADD, "description": "EVIL"}
RULES = "allow: ['add', 'now']"
ENTRIES: list[dict[str, Any]] = [
    {**ADD, "Description": "EVIL"},
    {**ADD, "Name": "EVIL"},
    {**ADD, "inputschema": {"title": "EVIL"}},
    {**ADD, "de\u017fcription": "EVIL"},
    {**ADD, "annotations": {"readonlyhint": "EVIL"}},
]
MESSAGES: list[dict[str, Any]] = [
    {"result": {"tools": [ADD], "Tools": [EVIL]}},
    {"result": {"Tools": [EVIL]}},
    {"result": {"tool\u017f": [EVIL]}},
    {"result": {"tools": [ADD]}, "Result": {"tools": [EVIL]}},
    {"Result": {"tools": [EVIL]}},
]


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("entry", ENTRIES, ids=["description", "name", "schema", "long s", "hint"])
async def test_hides_logs_and_counts_an_entry_with_two_readings(entry: dict[str, Any], events: bool) -> None:
    async with talk(McpServer([entry, NOW], events=events), mcp=RULES) as client:
        seen = [await client.send(LIST) for _ in range(2)]
        refused = await client.ask(call("add", {"a": 1, "b": 2}))
        metrics = (await client.proxy.ask_admin("/metrics")).body.decode()
        log = client.proxy.log.getvalue()

    assert all(b"EVIL" not in each.body and b'"now"' in each.body for each in seen)
    assert ("SCHEMA_UNKNOWN", []) == (feedback(refused)["code"], client.received)
    assert 1 == log.count("tool list has two readings")
    assert 'toolproxy_ambiguous_tools_total{route="/mcp"' in metrics


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("message", MESSAGES)
async def test_replaces_a_list_with_two_readings_by_an_error(message: dict[str, Any], events: bool, raw: bool) -> None:
    def lists(seen: Seen) -> bytes | None:
        asked = json.loads(seen.body)
        made = {"jsonrpc": "2.0", "id": asked.get("id"), **message}
        text = (as_events if events else as_json)(made)
        if raw and not events:
            body = json.dumps(made, ensure_ascii=False).encode()
            text = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        return text if asked["method"] == "tools/list" else None

    async with talk(McpServer(refuse=lists), mcp=RULES) as client:
        seen = await client.send(LIST)
        refused = await client.ask(call("add", {"a": 1, "b": 2}))
        metrics = (await client.proxy.ask_admin("/metrics")).body.decode()

    assert b"EVIL" not in seen.body
    assert b"two readings" in seen.body
    assert ("SCHEMA_UNKNOWN", []) == (feedback(refused)["code"], client.received)
    assert 'toolproxy_ambiguous_tools_total{route="/mcp",tool=""} 1.0' in metrics


async def test_reads_a_large_list_in_a_child_process_as_strictly() -> None:
    long = {**ADD, "description": "Adds. " + "x" * 100_000, "Description": "EVIL"}
    async with talk(McpServer([long, NOW])) as client:
        refused = await client.ask(call("add", {"a": 1, "b": 2}))

    assert ("SCHEMA_UNKNOWN", []) == (feedback(refused)["code"], client.received)

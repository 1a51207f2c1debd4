"""Corrections on an MCP route: tools that their server lists are corrected like those of the config."""

from __future__ import annotations

import json

from tests.correction.model import rig, says
from tests.mcp.server import McpServer, call
from tests.serving.wire import exchange, post

ROUTE = "  - {path: /mcp, upstream: tools, protocol: mcp, correct: {validation_feedback: on}}\n"
ACCEPT = "Accept: application/json, text/event-stream"


async def test_a_call_that_the_listed_schema_refuses_is_corrected_in_its_message() -> None:
    server = McpServer()
    fixed = {"can_fix": True, "corrected_payload": {"a": 3, "b": 2}}
    async with rig(says(fixed), server, ROUTE) as it:
        message = call("add", {"a": "three", "b": 2}) | {"id": 7}
        seen = await exchange(it.proxy.port, post("/mcp", json.dumps(message).encode(), ACCEPT))

    sent = json.loads(server.calls[0].body)
    assert ("add", {"a": 3, "b": 2}, 7) == (sent["params"]["name"], sent["params"]["arguments"], sent["id"])
    assert (200, "validation_feedback;path=/a") == (seen.status, seen.header("tool-corrections"))
    assert 7 == json.loads(seen.body)["id"]
    assert "Adds two numbers." in it.prompts()[0]

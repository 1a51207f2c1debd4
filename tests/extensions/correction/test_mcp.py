"""Corrections on an MCP route: tools that their server lists are corrected like those of the config."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from tests.extensions.correction.model import BOTH, rig, says
from tests.extensions.mcp.server import McpServer, as_events, as_json, call, result
from tests.serving.wire import Seen, exchange, post

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


# --- a result that complains of its arguments -------------------------------------------------------------------------
COMPLAINT = (
    "1 validation error for call[add]\na\n  Input should be greater than 0 [type=greater_than, input_value=-1, "
    "input_type=int]\n    For further information visit https://errors.pydantic.dev/2.14/v/greater_than"
)
LAYERS = f"  - {{path: /mcp, upstream: tools, protocol: mcp, correct: {BOTH}, caps: {{default: 1}}}}\n"
FIXED = {"can_fix": True, "corrected_payload": {"a": 3, "b": 2}}
NEGATIVE = json.dumps(call("add", {"a": -1, "b": 2})).encode()


def refusing(said: str = COMPLAINT, *, events: bool = False, always: bool = False, more: int = 0) -> McpServer:
    """A server whose tool says `isError` of a negative `a`, or `always`, with so much `more` in its result."""

    def called(message: dict[str, Any], _seen: Seen) -> bytes:
        failed = always or message["params"]["arguments"]["a"] < 0
        value = {
            "content": [{"type": "text", "text": said if failed else "5"}],
            "isError": failed,
            "_meta": {"x": "x" * more},
        }
        return (as_events if events else as_json)(result(message, value))

    return McpServer(called=called)


@pytest.mark.parametrize("events", [False, True])
async def test_a_result_that_complains_of_its_arguments_is_corrected(events: bool) -> None:
    server = refusing(events=events)
    async with rig(says(FIXED), server, LAYERS) as it:
        seen = await exchange(it.proxy.port, post("/mcp", NEGATIVE, ACCEPT, "X-Conversation-Id: c"))
        prompts, outcome = it.prompts(), it.record.outcome

    sent = [json.loads(each.body)["params"]["arguments"] for each in server.calls]
    assert [{"a": -1, "b": 2}, {"a": 3, "b": 2}] == sent
    assert (True, False) == (b'"text": "5"' in seen.body, b"greater than 0" in seen.body)
    assert ("validation_feedback;path=/a", "corrected") == (seen.header("tool-corrections"), outcome)
    assert "greater than 0" in prompts[0]


@pytest.mark.parametrize(
    ("why", "server", "answer", "asked"),
    [
        ("nobody can correct it", refusing(), {"can_fix": False}, 2),
        ("the corrected call is refused as well", refusing(always=True), FIXED, 3),
        ("it is not a complaint about arguments", refusing("no such file"), FIXED, 0),
        ("it is too long to be looked into", refusing(more=300_000), FIXED, 0),
        ("it is too long to be had whole", refusing(more=2_000_000), FIXED, 0),
    ],
)
async def test_returns_other_results_unchanged(why: str, server: McpServer, answer: Any, asked: int) -> None:
    async with rig(says(answer), server, LAYERS) as it:
        seen = await exchange(it.proxy.port, post("/mcp", NEGATIVE, ACCEPT, "X-Conversation-Id: c"))
        questions = len(it.asked())
    async with rig(says(answer), server, "  - {path: /mcp, upstream: tools, protocol: mcp}\n") as it:
        plain = await exchange(it.proxy.port, post("/mcp", NEGATIVE, ACCEPT))

    assert (plain.status, plain.body) == (seen.status, seen.body), why
    assert asked == questions


class HeadFirst(McpServer):
    """A server whose good answers come in two pieces: the head, then the rest."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        whole = bytearray()
        await super().__call__(reader, cast(asyncio.StreamWriter, _Gathers(whole)), seen)
        head, _, rest = bytes(whole).partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        for _ in range(20 if b'"isError": false' in rest else 0):  # the proxy reads in the same loop
            await asyncio.sleep(0)
        writer.write(rest)
        await writer.drain()


class _Gathers:
    """The stream that a server writes to."""

    def __init__(self, whole: bytearray) -> None:
        self.write = whole.extend

    async def drain(self) -> None:
        """Nothing waits."""


@pytest.mark.parametrize("events", [False, True])
async def test_layer_four_sees_results_of_earlier_calls_in_every_format(events: bool) -> None:
    route = "  - {path: /mcp, upstream: tools, protocol: mcp, correct: {semantic_retry: on, trajectory: on}}\n"
    server = HeadFirst(called=refusing(events=events).called)
    async with rig(says({"should_retry": False}), server, route) as it:
        for arguments in ({"a": 3, "b": 2}, {"a": -1, "b": 2}):
            sent = json.dumps(call("add", arguments)).encode()
            await exchange(it.proxy.port, post("/mcp", sent, ACCEPT, "X-Conversation-Id: c"))

    assert '[{"tool":"add","arguments":{"a":3,"b":2},"result":5}]' in it.prompts()[0]

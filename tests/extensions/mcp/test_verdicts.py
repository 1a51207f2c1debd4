"""A result with `isError` is forwarded unchanged, and counts as an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.extensions.mcp.conversation import Talk, feedback, refusal, talk, text
from tests.extensions.mcp.server import McpServer, as_events, as_json, call, result
from tests.serving.wire import Seen

GOOD = call("add", {"a": 1, "b": 1})
BAD = call("add", {"a": 1})
HEADER = "X-Conversation-Id: c"
PYDANTIC = (
    "1 validation error for call[add]\na\n  Input should be less than or equal to 0 [type=less_than_equal, "
    "input_value=1, input_type=int]\n    For further information visit https://errors.pydantic.dev/2.14/v/less_than_equal"
)


def failing(events: bool, said: str = "no such file") -> McpServer:
    """A server whose tools fail while `a` is 1."""

    def called(message: dict[str, Any], _seen: Seen) -> bytes:
        failed = message["params"]["arguments"]["a"] == 1
        value = {"content": [{"type": "text", "text": said if failed else "2"}], "isError": failed}
        return (as_events if events else as_json)(result(message, value))

    return McpServer(called=called)


def _outcomes(client: Talk) -> list[str]:
    return [line["outcome"] for line in client.proxy.lines() if line["outcome"] != "passthrough"]


@pytest.mark.parametrize("events", [False, True])
async def test_the_result_is_unchanged_and_the_outcome_says_that_the_tool_failed(events: bool) -> None:
    async with talk(failing(events)) as client:
        seen = await client.send(GOOD)
        await client.send(call("add", {"a": 2, "b": 1}))
        outcomes = _outcomes(client)

    assert b'"no such file"' in seen.body
    assert ["tool_error", "delivered"] == outcomes


@pytest.mark.parametrize("events", [False, True])
async def test_it_takes_no_slot_of_a_cap(events: bool) -> None:
    async with talk(failing(events), more="caps: {default: 1}") as client:
        for arguments in ({"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1}):
            await client.send(call("add", arguments), HEADER)
        refused = await client.ask(call("add", {"a": 2, "b": 2}), HEADER)

    assert ((True, "CALL_CAP_EXCEEDED"), 3) == (refusal(refused), len(client.received))


@pytest.mark.parametrize(("a", "attempt"), [(1, 2), (2, 1)])
@pytest.mark.parametrize("events", [False, True])
async def test_attempts_go_on_after_it_and_end_with_a_result(events: bool, a: int, attempt: int) -> None:
    async with talk(failing(events)) as client:
        await client.ask(BAD, HEADER)
        await client.send(call("add", {"a": a, "b": 1}), HEADER)
        again = await client.ask(call("add", {"b": 2}), HEADER)

    assert attempt == feedback(again)["attempt"]


async def test_a_complaint_about_arguments_is_counted_as_one() -> None:
    async with talk(failing(True, PYDANTIC)) as client:
        await client.send(GOOD)
        metrics = (await client.proxy.ask_admin("/metrics")).body.decode()

    assert any(
        line.startswith("toolproxy_errors_total") and "UPSTREAM_REJECTED_ARGUMENTS" in line and line.endswith(" 1.0")
        for line in metrics.splitlines()
    )


async def test_a_result_that_only_speaks_of_errors_is_a_result() -> None:
    def called(message: dict[str, Any], _seen: Seen) -> bytes:
        return as_json(
            result(message, {"content": [{"type": "text", "text": "x"}], "structuredContent": {"isError": True}})
        )

    async with talk(McpServer(called=called)) as client:
        answer = await client.ask(GOOD)
        outcomes = _outcomes(client)

    assert ("x", ["delivered"]) == (text(answer), outcomes)
    assert json.dumps({"isError": True}) in json.dumps(answer)


@pytest.mark.parametrize("events", [False, True])
async def test_a_call_that_the_tool_refused_twice_is_not_sent_a_third_time(events: bool) -> None:
    async with talk(failing(events, PYDANTIC)) as client:
        for _ in range(2):
            await client.send(GOOD, HEADER)
        third = await client.ask(GOOD, HEADER)
        await client.send(call("add", {"a": 2, "b": 1}), HEADER)

    assert ((True, "ATTEMPTS_EXHAUSTED"), 3) == (refusal(third), len(client.received))
    assert "This call was not sent to the tool." in text(third)


async def test_errors_of_another_kind_are_bounded_only_by_the_budget() -> None:
    budget = "attempts: {tool_errors: {max: 4, window: 5m}}"
    async with talk(failing(False), more=budget) as client:
        for _ in range(4):
            await client.send(GOOD, HEADER)
        beyond = await client.ask(GOOD, HEADER)
        other = await client.ask(call("add", {"a": 2, "b": 1}), "X-Conversation-Id: d")

    assert ((True, "TOOL_ERROR_BUDGET"), "2") == (refusal(beyond), text(other))
    assert 5 == len(client.received)

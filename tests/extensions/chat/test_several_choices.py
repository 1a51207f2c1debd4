"""Several choices in one stream (`n: 2`): each call of each choice is validated, at any place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.extensions.chat.answers import chat_request
from tests.extensions.chat.streams import data, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, replies, tool

CHAT = "/v1/chat/completions"
USUAL, AGAIN = "{}", "{retries: 1}"


def chunk(index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
    return data({"choices": [{"index": index, "delta": delta, "finish_reason": finish}]})


def begin(index: int, arguments: str, name: str = "get_weather") -> bytes:
    function = {"name": name, "arguments": arguments}
    return chunk(index, {"tool_calls": [{"index": 0, "id": f"call_{index}", "type": "function", "function": function}]})


def go_on(index: int, arguments: str) -> bytes:
    return chunk(index, {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]})


def end(index: int, why: str = "tool_calls") -> bytes:
    return chunk(index, {}, why)


DONE = b"data: [DONE]\n\n"


async def ask(events: Sequence[bytes], model: str = USUAL) -> tuple[Seen, list[tuple[str, str, str]], int]:
    """Returns what came, and of each call its id, outcome and mode in the log; how often the model was asked."""
    routes = f"  - {{path: /v1, upstream: tools, model: {model}}}"
    async with tool(replies(streamed(events))) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(CHAT, chat_request(stream=True, n=2))
        keys = ("gen_ai.tool.call.id", "outcome", "validation.mode")
        lines = sorted(tuple(str(line.get(key)) for key in keys) for line in proxy.lines())
        return seen, [(one, two, three) for one, two, three in lines], len(server.seen)


@pytest.mark.parametrize("model", [USUAL, AGAIN])
async def test_a_call_behind_the_end_of_another_choice_is_validated(model: str) -> None:
    def write(first: str, second: Sequence[str]) -> list[bytes]:
        rest = [begin(1, second[0]), *(go_on(1, part) for part in second[1:])]
        return [begin(0, first), end(0), *rest, end(1), DONE]

    sent = write('{"city": "A"}', ('{"city": "B", ', '"days": "3"}'))
    seen, calls, asked = await ask(sent, model)
    assert (b"".join(write('{"city": "A"}', ('{"city":"B","days":3}', ""))), 1) == (seen.body, asked)
    assert [("call_0", "delivered", "enforce"), ("call_1", "repaired", "enforce")] == calls


@pytest.mark.parametrize("model", [USUAL, AGAIN])
async def test_a_wrong_call_of_an_earlier_choice_hides_no_later_one(model: str) -> None:
    def write(second: str) -> list[bytes]:
        return [begin(0, '{"days": 1}'), end(0), begin(1, second), end(1), DONE]

    seen, calls, asked = await ask(write('{"city": "B", "days": "3"}'), model)
    assert (b"".join(write('{"city":"B","days":3}')), 1) == (seen.body, asked)
    assert [("call_0", "delivered", "report"), ("call_1", "repaired", "enforce")] == calls


async def test_a_call_behind_a_call_in_text_is_validated() -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "A"}}</tool_call>'
    seen, calls, _ = await ask(
        [chunk(0, {"content": text}), end(0, "stop"), begin(1, '{"city": "B", "days": "3"}'), end(1)],
        "{text_calls: leaked}",
    )
    assert ["repaired", "repaired"] == [outcome for _, outcome, _ in calls]
    assert b'"arguments": "{\\"city\\":\\"B\\",\\"days\\":3}"' in seen.body.replace(b'"arguments":"', b'"arguments": "')


@pytest.mark.parametrize("second", ['{"city": "B"}', '{"days": 1}'])
async def test_valid_and_wrong_calls_of_all_choices_keep_their_bytes(second: str) -> None:
    events = [begin(0, '{"city":  "A"}'), begin(1, second[:5]), end(0), go_on(1, second[5:]), end(1), DONE]
    seen, calls, _ = await ask(events)
    assert (b"".join(events), 2) == (seen.body, len(calls))


async def test_a_call_whose_answer_is_done_without_saying_so_is_validated() -> None:
    def write(arguments: str) -> list[bytes]:
        return [begin(0, arguments), DONE]

    seen, calls, _ = await ask(write('{"city": "A", "days": "3"}'))
    assert b"".join(write('{"city":"A","days":3}')) == seen.body
    assert [("call_0", "repaired", "enforce")] == calls


async def test_the_metrics_count_the_calls_of_all_choices() -> None:
    events = [begin(0, '{"city": "A"}'), end(0), begin(1, '{"city": "B", "days": "3"}'), end(1), DONE]
    routes = "  - {path: /v1, upstream: tools, model: {}}"
    async with tool(replies(streamed(events))) as server, proxied(routes, server.url) as proxy:
        await proxy.post(CHAT, chat_request(stream=True, n=2))
        text = (await proxy.ask_admin("/metrics")).body.decode()
        kept = json.loads((await proxy.ask_admin("/-/calls")).body)["calls"]
    rows = [row for row in text.splitlines() if row.startswith("toolproxy_requests_total{") and "get_weather" in row]
    assert 2 == sum(float(row.split()[-1]) for row in rows)
    assert 2 == len(kept)

"""Streams that number, end and write their events as no provider does: a call is repaired in its own places or in none,
and never becomes another call."""

from __future__ import annotations

from typing import Any

import pytest

from tests.extensions.chat.answers import chat_request
from tests.extensions.chat.streams import chat_stream, data, messages_stream
from tests.extensions.chat.test_streams import APIS, ask


def _chunk(finish: str | None = None, **delta: Any) -> bytes:
    return data({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _write_blocks(*calls: tuple[str, str, list[str]]) -> list[bytes]:
    """A message whose blocks all have the index 0."""
    kinds: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m1", "content": []}}]
    for call_id, name, pieces in calls:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        kinds.append({"type": "content_block_start", "index": 0, "content_block": block})
        for piece in pieces:
            delta = {"type": "input_json_delta", "partial_json": piece}
            kinds.append({"type": "content_block_delta", "index": 0, "delta": delta})
        kinds.append({"type": "content_block_stop", "index": 0})
    kinds.append({"type": "message_delta", "delta": {"stop_reason": "tool_use"}})
    return [data(value, value["type"]) for value in kinds]


def _write_items(calls: dict[str, str], indexes: list[int]) -> list[bytes]:
    """A response that numbers its items in the stream, and repeats only the calls at its end."""
    kinds: list[dict[str, Any]] = []
    items = []
    for index, (call_id, text) in zip(indexes, calls.items(), strict=True):
        item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "get_weather"}
        items.append({**item, "arguments": text})
        kinds.append({"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}})
        kinds.append({"type": "response.function_call_arguments.delta", "output_index": index, "delta": text})
        kinds.append({"type": "response.function_call_arguments.done", "output_index": index, "arguments": text})
        kinds.append({"type": "response.output_item.done", "output_index": index, "item": items[-1]})
    kinds.append({"type": "response.completed", "response": {"output": items}})
    return [data(value, value["type"]) for value in kinds]


async def test_arguments_that_come_as_an_object_become_text() -> None:
    free = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": free}}]

    def write(arguments: Any) -> list[bytes]:
        call = {"index": 0, "id": "call_1", "type": "function"}
        return [
            _chunk(tool_calls=[{**call, "function": {"name": "get_weather", "arguments": arguments}}]),
            _chunk("tool_calls"),
        ]

    seen, line = await ask(write({"city": "Oslo", "days": 1}), request=chat_request(stream=True, tools=tools))
    assert b"".join(write('{"city":"Oslo","days":1}')) == seen.body
    assert ("arguments_text;path=", "repaired") == (seen.header("tool-repairs"), line["outcome"])


async def test_blocks_of_one_index_are_separate_calls() -> None:
    path, request, _ = APIS["messages"]
    sent = _write_blocks(("a", "GetWeather", []), ("b", "Get_Weather", ['{"city": "Rome", ', '"days": "3"}']))
    seen, _ = await ask(sent, path, request)
    wanted = _write_blocks(("a", "GetWeather", []), ("b", "get_weather", ['{"city":"Rome","days":3}', ""]))
    assert b"".join(wanted) == seen.body


@pytest.mark.parametrize("indexes", [[0, 1], [1, 2], [0, 0], [1, 0]])
async def test_a_call_that_a_response_repeats_under_another_index_keeps_its_own_arguments(indexes: list[int]) -> None:
    path, request, _ = APIS["responses"]
    sent = {"a": '{"city": "Oslo", "days": "1"}', "b": '{"city": "Rome", "days": "2"}'}
    seen, _ = await ask(_write_items(sent, indexes), path, request)
    wanted = {"a": '{"city":"Oslo","days":1}', "b": '{"city":"Rome","days":2}'}
    assert b"".join(_write_items(wanted, indexes)) == seen.body


@pytest.mark.parametrize(
    "unread",
    [
        lambda event: event.replace(b'"id": "c1"', b'"id": "c1", "logprobs": NaN'),
        lambda event: event.replace(b', "object"', b',\ndata: "object'),
    ],
)
async def test_returns_a_call_with_an_unreadable_part_unchanged(unread: Any) -> None:
    sent = chat_stream(('{"city": "Os', "lo", '", "days": "3"}'))
    at = next(at for at, event in enumerate(sent) if b'"arguments": "lo"' in event)
    sent[at] = unread(sent[at])
    seen, _ = await ask(sent)
    assert b"".join(sent) == seen.body


async def test_a_stream_whose_lines_end_in_carriage_returns_is_read() -> None:
    path, request, _ = APIS["messages"]
    seen, line = await ask(
        [each.replace(b"\n", b"\r") for each in messages_stream(('{"city": "Oslo", "days": "3"}',))], path, request
    )
    wanted = b"".join(messages_stream(('{"city":"Oslo","days":3}',))).replace(b"\n", b"\r")
    assert (wanted, "repaired") == (seen.body, line["outcome"])

"""Agents of openai-agents and pydantic-ai call their tool rightly, streamed and not, although their model does not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.chat.answers import chat_answer, chat_text, messages_answer, responses_answer, whole
from tests.extensions.chat.streams import (
    chat_stream,
    chat_words,
    data,
    messages_stream,
    messages_words,
    responses_stream,
    streamed,
)
from tests.extensions.chat.test_sdks import PYTHON, ROUTES, run, skip_without
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, tool

pytestmark = pytest.mark.large

CLIENT = Path(__file__).with_name("agent_client.py")
# A framework by its package, and an API that its models speak.
AGENTS = [
    ("agents", "chat"),
    ("agents", "responses"),
    ("pydantic_ai", "chat"),
    ("pydantic_ai", "responses"),
    ("pydantic_ai", "messages"),
]
# What the model sends as name and arguments -> the outcome of the call.
SENT = [
    ("get_weather", '{"city": "Oslo", "days": 3}', "delivered"),
    ("GetWeather", '{"city": "Oslo", "days": "3"}', "repaired"),
]
END = "It rains."
_USED = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_USED_BLOCKS = {"input_tokens": 10, "output_tokens": 5}
_DETAILS = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
_USED_ITEMS = {**_USED_BLOCKS, **_DETAILS, "total_tokens": 15}


@pytest.mark.parametrize(("framework", "api"), AGENTS)
@pytest.mark.parametrize(("name", "text", "outcome"), SENT)
async def test_an_agent_calls_its_tool_rightly(framework: str, api: str, name: str, text: str, outcome: str) -> None:
    await skip_without(framework)

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        path, body = seen.start.split(" ")[1], json.loads(seen.body)
        stream = body.get("stream") is True
        writer.write(write_turn(path, stream=stream, call=None if has_result(body) else (name, text)))
        await writer.drain()

    async with tool(script) as server, proxied(ROUTES, server.url) as proxy:
        code, out, err = await run(PYTHON, str(CLIENT), framework, api, f"http://127.0.0.1:{proxy.port}")
        lines = proxy.lines()
    assert (0, b"") == (code, err[-2000:])
    assert [[[["Oslo", 3]], END]] * 2 == json.loads(out)
    assert [outcome, "passthrough"] * 2 == [line["outcome"] for line in lines]


def has_result(body: dict[str, Any]) -> bool:
    """Whether a request brings the result of a call."""
    for message in body.get("messages") or body["input"]:
        content = message.get("content")
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        kinds = {message.get("role"), message.get("type"), *(part.get("type") for part in parts)}
        if kinds & {"tool", "function_call_output", "tool_result"}:
            return True
    return False


def write_turn(path: str, *, stream: bool, call: tuple[str, str] | None) -> bytes:
    """What the scripted model answers at one of the three paths: a call by name and arguments, or how it ends."""
    written = write_end(path, stream=stream) if call is None else _write_call(path, call, stream=stream)
    if not isinstance(written, list):
        return whole(json.dumps(complete(json.loads(written))).encode())
    return streamed([_complete_event(event) for event in written])


def _complete_event(event: bytes) -> bytes:
    head, _, text = event.partition(b"data: ")
    return (
        event if text.startswith(b"[") else head + b"data: " + json.dumps(complete(json.loads(text))).encode() + b"\n\n"
    )


def complete(value: dict[str, Any]) -> dict[str, Any]:
    """An answer or an event of one with the fields that the frameworks want beside those the other tests need."""
    if "choices" in value:
        return {"created": 1, "model": "tiny", **value, **({"usage": _USED} if "usage" in value else {})}
    if "response" in value:
        return {**value, "response": complete(value["response"])}
    if "message" in value:
        return {**value, "message": complete(value["message"])}
    if value.get("object") == "response" or "output" in value:
        return {
            "object": "response",
            "created_at": 1,
            "model": "tiny",
            "status": "completed",
            **value,
            "usage": _USED_ITEMS,
        }
    return {"model": "tiny", **value, "usage": _USED_BLOCKS} if value["type"] == "message" else value


def _write_call(path: str, call: tuple[str, str], *, stream: bool) -> bytes | list[bytes]:
    name, text = call
    pieces = (text[:9], text[9:])
    if path.endswith("/messages"):
        return messages_stream(pieces, name) if stream else messages_answer(json.loads(text), name)
    if path.endswith("/responses"):
        return responses_stream(pieces, name) if stream else responses_answer(text, name)
    return chat_stream(pieces, name) if stream else chat_answer(text, name)


def write_end(path: str, *, stream: bool) -> bytes | list[bytes]:
    """The last answer of the scripted model: nothing but text."""
    if path.endswith("/messages"):
        text = {"type": "text", "text": END}
        body = {"id": "m2", "type": "message", "role": "assistant", "content": [text], "stop_reason": "end_turn"}
        return messages_words([END]) if stream else json.dumps(body).encode()
    if path.endswith("/responses"):
        part = {"type": "output_text", "text": END, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        response = {"id": "r2", "object": "response", "output": [item]}
        return _stream_end(item, response) if stream else json.dumps(response).encode()
    return chat_words([END]) if stream else chat_text(END)


def _stream_end(item: dict[str, Any], response: dict[str, Any]) -> list[bytes]:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    (part,) = item["content"]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": {**response, "output": []}}),
        ("response.output_item.added", {"output_index": 0, "item": {**item, "content": []}}),
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        ("response.output_text.delta", {**place, "delta": END, "logprobs": []}),
        ("response.output_text.done", {**place, "text": END, "logprobs": []}),
        ("response.content_part.done", {**place, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": response}),
    ]
    return [data({"type": kind, **rest, "sequence_number": at}, kind) for at, (kind, rest) in enumerate(kinds)]

"""Streamed answers of the three APIs as the tests use them, in the providers' own form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.extensions.chat.answers import EVENTS_TYPE
from tests.serving.wire import answer


def data(value: Any, name: str = "") -> bytes:
    """One event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return data({"id": "c1", "object": "chat.completion.chunk", "choices": [choice]})


def chat_stream(pieces: Sequence[str], name: str = "get_weather", text: Sequence[str] = ()) -> list[bytes]:
    """Chat Completions: text, then a call whose arguments come in pieces, then the usage."""
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        _chunk({"role": "assistant", "content": None}),
        *(_chunk({"content": word}) for word in text),
        _chunk({"tool_calls": [call]}),
        *(_chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces),
        _chunk({}, "tool_calls"),
        data({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": {"total_tokens": 15}}),
        b"data: [DONE]\n\n",
    ]


def chat_words(words: Sequence[str], finish: str = "stop") -> list[bytes]:
    """Chat Completions: nothing but text."""
    first = _chunk({"role": "assistant", "content": ""})
    return [first, *(_chunk({"content": word}) for word in words), _chunk({}, finish), b"data: [DONE]\n\n"]


def responses_stream(pieces: Sequence[str], name: str = "get_weather", text: Sequence[str] = ()) -> list[bytes]:
    """Responses: text, then a call whose arguments come in pieces."""
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name}
    whole = {**item, "arguments": "".join(pieces), "status": "completed"}
    place = {"output_index": 1 if text else 0}
    message, said = _write_message(text) if text else (None, [])
    output = [each for each in (message, whole) if each is not None]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": {"id": "r1", "output": []}}),
        *said,
        ("response.output_item.added", {**place, "item": {**item, "arguments": "", "status": "in_progress"}}),
        *(("response.function_call_arguments.delta", {"item_id": "fc_1", **place, "delta": piece}) for piece in pieces),
        (
            "response.function_call_arguments.done",
            {"item_id": "fc_1", **place, "name": name, "arguments": "".join(pieces)},
        ),
        ("response.output_item.done", {**place, "item": whole}),
        ("response.completed", {"response": {"id": "r1", "output": output, "usage": {"total_tokens": 15}}}),
    ]  # fmt: skip
    return [data({"type": kind, **rest, "sequence_number": at}, kind) for at, (kind, rest) in enumerate(kinds)]


def _write_message(words: Sequence[str]) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """A message of Responses, and its events."""
    text, place = "".join(words), {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant"}
    whole = {**item, "status": "completed", "content": [part]}
    return whole, [
        ("response.output_item.added", {"output_index": 0, "item": {**item, "status": "in_progress", "content": []}}),
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        *(("response.output_text.delta", {**place, "delta": word}) for word in words),
        ("response.output_text.done", {**place, "text": text}),
        ("response.content_part.done", {**place, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": whole}),
    ]


def messages_stream(pieces: Sequence[str], name: str = "get_weather", text: Sequence[str] = ()) -> list[bytes]:
    """Messages: a block of text, then a call whose arguments come in pieces."""
    message = {"id": "m1", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 10}}
    call = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
    deltas = [("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": word}}) for word in text]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": message}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        ("ping", {}),
        *deltas,
        ("content_block_stop", {"index": 0}),
        ("content_block_start", {"index": 1, "content_block": call}),
        *(
            ("content_block_delta", {"index": 1, "delta": {"type": "input_json_delta", "partial_json": piece}})
            for piece in pieces
        ),
        ("content_block_stop", {"index": 1}),
        ("message_delta", {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}}),
        ("message_stop", {}),
    ]  # fmt: skip
    return [data({"type": kind, **rest}, kind) for kind, rest in kinds]


def messages_words(words: Sequence[str]) -> list[bytes]:
    """Messages: nothing but text."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {"id": "m1", "type": "message", "role": "assistant", "content": []}}),
        ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        *(("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": word}}) for word in words),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
        ("message_stop", {}),
    ]
    return [data({"type": kind, **rest}, kind) for kind, rest in kinds]


def responses_words(words: Sequence[str]) -> list[bytes]:
    """Responses: nothing but text."""
    whole, said = _write_message(words)
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": {"id": "r1", "output": []}}),
        *said,
        ("response.completed", {"response": {"id": "r1", "status": "completed", "output": [whole]}}),
    ]
    return [data({"type": kind, **rest, "sequence_number": at}, kind) for at, (kind, rest) in enumerate(kinds)]


def streamed(events: Sequence[bytes]) -> bytes:
    """A streamed answer as it is on the wire."""
    return answer("200 OK", b"".join(events), EVENTS_TYPE)

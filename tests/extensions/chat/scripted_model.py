"""A model server that gives a test's answers at the paths of the three APIs, streamed on request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

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
from tests.serving.wire import Script, Seen
from tests.steady import run_others

# The model's answer: a call by name and the text of its arguments, or words. Bytes are a whole HTTP answer; a list
# holds its parts, sent one after the other.
Said = tuple[str, str] | str | bytes | list[bytes]
_USED: Final = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_USED_BLOCKS: Final = {"input_tokens": 10, "output_tokens": 5}
_DETAILS: Final = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
_USED_ITEMS: Final = {**_USED_BLOCKS, **_DETAILS, "total_tokens": 15}


def answers_by(choose: Callable[[str, dict[str, Any]], Said]) -> Script:
    """A script that answers each request by its path and its body."""

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        path, body = seen.start.split(" ")[1], json.loads(seen.body)
        said = choose(path, body)
        if isinstance(said, tuple | str):
            said = write_turn(path, said, stream=body.get("stream") is True)
        for part in said if isinstance(said, list) else [said]:
            writer.write(part)
            await writer.drain()
            await run_others()

    return script


def has_result(body: dict[str, Any]) -> bool:
    """Returns whether a request brings the result of a call."""
    for message in body.get("messages") or body["input"]:
        content = message.get("content")
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        kinds = {message.get("role"), message.get("type"), *(part.get("type") for part in parts)}
        if kinds & {"tool", "function_call_output", "tool_result"}:
            return True
    return False


def write_turn(path: str, said: tuple[str, str] | str, *, stream: bool) -> bytes:
    """An answer at one of the three paths, as it is on the wire."""
    if isinstance(said, str):
        written = _write_text(path, said, stream=stream)
    else:
        written = _write_call(path, said, stream=stream)
    if not isinstance(written, list):
        return whole(json.dumps(_complete(json.loads(written))).encode())
    return streamed([_complete_event(event) for event in written])


def stream_text_and_call(path: str, words: Sequence[str], call: tuple[str, str]) -> list[bytes]:
    """A streamed answer of text, and of a call that comes later."""
    name, text = call
    write = chat_stream
    if path.endswith("/messages"):
        write = messages_stream
    elif path.endswith("/responses"):
        write = responses_stream
    events = [_complete_event(event) for event in write((text[:9], text[9:]), name, words)]
    begun = next(at for at, event in enumerate(events) if name.encode() in event)
    later = b"".join(events[begun:])
    return [streamed(events).removesuffix(later), later]


def _complete_event(event: bytes) -> bytes:
    head, _, text = event.partition(b"data: ")
    if text.startswith(b"["):
        return event
    return head + b"data: " + json.dumps(_complete(json.loads(text))).encode() + b"\n\n"


def _complete(value: dict[str, Any]) -> dict[str, Any]:
    """An answer or an event of one with the fields that clients want beside those the other tests need."""
    if "choices" in value:
        return {"created": 1, "model": "tiny", **value, **({"usage": _USED} if "usage" in value else {})}
    if "response" in value:
        return {**value, "response": _complete(value["response"])}
    if "message" in value:
        return {**value, "message": _complete(value["message"])}
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
        return _stream_block(pieces, name) if stream else messages_answer(_read_input(text), name)
    if path.endswith("/responses"):
        return responses_stream(pieces, name) if stream else responses_answer(text, name)
    return chat_stream(pieces, name) if stream else chat_answer(text, name)


def _read_input(text: str) -> Any:
    """Arguments as a server for Messages writes them: JSON, or text that is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _stream_block(pieces: Sequence[str], name: str) -> list[bytes]:
    """A call without the block of text that `messages_stream` begins with."""
    events = [event for event in messages_stream(pieces, name) if b'"index": 0' not in event]
    return [event.replace(b'"index": 1', b'"index": 0') for event in events]


def _write_text(path: str, text: str, *, stream: bool) -> bytes | list[bytes]:
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    if path.endswith("/messages"):
        block = {"type": "text", "text": text}
        body = {"id": "m2", "type": "message", "role": "assistant", "content": [block], "stop_reason": "end_turn"}
        return messages_words(pieces) if stream else json.dumps(body).encode()
    if path.endswith("/responses"):
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        response = {"id": "r2", "object": "response", "output": [item]}
        return _stream_item(item, response, pieces) if stream else json.dumps(response).encode()
    return chat_words(pieces) if stream else chat_text(text)


def _stream_item(item: dict[str, Any], response: dict[str, Any], pieces: list[str]) -> list[bytes]:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    (part,) = item["content"]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": {**response, "output": []}}),
        ("response.output_item.added", {"output_index": 0, "item": {**item, "content": []}}),
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        *(("response.output_text.delta", {**place, "delta": piece, "logprobs": []}) for piece in pieces),
        ("response.output_text.done", {**place, "text": part["text"], "logprobs": []}),
        ("response.content_part.done", {**place, "part": part}),
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": response}),
    ]
    return [data({"type": kind, **rest, "sequence_number": at}, kind) for at, (kind, rest) in enumerate(kinds)]

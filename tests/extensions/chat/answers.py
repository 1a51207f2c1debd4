"""Requests and answers of the three APIs as the tests use them, in the providers' own form."""

from __future__ import annotations

import json
from typing import Any

from tests.serving.wire import JSON_TYPE, answer

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
ROUTES = """
  - {path: /v1, upstream: tools, model: {}}
"""
EVENTS_TYPE = "Content-Type: text/event-stream"


def chat_request(*, stream: bool = False, **more: Any) -> bytes:
    """A request of Chat Completions with the tool `get_weather`."""
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": [tool]}
    return json.dumps({**body, **({"stream": True} if stream else {}), **more}).encode()


def responses_request(*, stream: bool = False, **more: Any) -> bytes:
    """A request of Responses with the tool `get_weather`."""
    tool = {"type": "function", "name": "get_weather", "parameters": WEATHER}
    body = {"model": "tiny", "input": "Weather in Oslo?", "tools": [tool], **({"stream": True} if stream else {})}
    return json.dumps({**body, **more}).encode()


def messages_request(*, stream: bool = False, **more: Any) -> bytes:
    """A request of Messages with the tool `get_weather`."""
    tool = {"name": "get_weather", "input_schema": WEATHER}
    messages = [{"role": "user", "content": "Weather in Oslo?"}]
    body = {"model": "tiny", "max_tokens": 100, "messages": messages, "tools": [tool]}
    return json.dumps({**body, **({"stream": True} if stream else {}), **more}).encode()


def chat_answer(arguments: Any, name: str = "get_weather", **message: Any) -> bytes:
    """An answer of Chat Completions with one call, spaced unlike the proxy's encoder."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [call], **message}}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": "c1", "object": "chat.completion", "choices": [{**choice, "finish_reason": "tool_calls"}]}
    return json.dumps({**body, "usage": usage}, indent=1).encode()


def chat_text(content: str) -> bytes:
    """An answer of Chat Completions with nothing but text."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return json.dumps({"id": "c1", "object": "chat.completion", "choices": [choice]}, indent=1).encode()


def responses_answer(arguments: str, name: str = "get_weather") -> bytes:
    """An answer of Responses with one call."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return json.dumps({"id": "r1", "object": "response", "output": [call], "usage": usage}, indent=1).encode()


def messages_answer(arguments: Any, name: str = "get_weather") -> bytes:
    """An answer of Messages with one call."""
    call = {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments}
    usage = {"input_tokens": 10, "output_tokens": 5}
    body = {"id": "m1", "type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use"}
    return json.dumps({**body, "usage": usage}, indent=1).encode()


def whole(body: bytes, *headers: str) -> bytes:
    """A JSON answer as it is on the wire."""
    return answer("200 OK", body, JSON_TYPE, *headers)

"""llama.cpp's server with a model of random weights: what it says comes byte for byte, but for arguments that can be
repaired; those are valid then."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import product
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from tests.extensions.chat.answers import WEATHER
from tests.parties.environment import needs, servers
from tests.parties.tap import Said, taps
from tests.serving.proxied import proxied
from tests.serving.wire import Seen

pytestmark = pytest.mark.large

# The server holds its model to a schema by a grammar, which does not know `if`.
BEHIND_IF: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"enum": ["3", 3]}},
    "required": ["days"],
    "additionalProperties": False,
    "if": {},
    "then": {"properties": {"days": {"type": "integer"}}},
}
REPAIRABLE: Final = {"properties": {"days": {"const": "3"}}, "required": ["days"]}
PATHS: Final = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
ROUTES: Final = """
  - {path: /v1, upstream: tools, repair: lenient, model: {}}
"""


def make_request(path: str, schema: dict[str, Any], seed: int, *, stream: bool) -> bytes:
    """A request with one tool for a short answer, which may end in the middle of a call."""
    said = [{"role": "user", "content": "Weather in Oslo?"}]
    body: dict[str, Any] = {"model": "random", "stream": stream, "seed": seed, "temperature": 1.5}
    if path.endswith("messages"):
        body |= {"messages": said, "max_tokens": 80, "tools": [{"name": "get_weather", "input_schema": schema}]}
    elif path.endswith("responses"):
        tool = {"type": "function", "name": "get_weather", "parameters": schema}
        body |= {"input": said, "max_output_tokens": 80, "tools": [tool]}
    else:
        tool = {"type": "function", "function": {"name": "get_weather", "parameters": schema}}
        body |= {"messages": said, "max_tokens": 80, "tools": [tool]}
    return json.dumps(body).encode()


async def ask_all(schema: dict[str, Any]) -> list[tuple[str, Seen, Said]]:
    """Paths, with what the client got and what the server had said."""
    needs("llama")
    found = []
    with servers("llama") as ports, taps(ports) as tapped:
        # No connection is used twice: the server may end one at any time.
        upstreams = f'{{tools: {{url: "http://127.0.0.1:{tapped["llama"].port}", pool: {{idle: 0s}}}}}}'
        async with proxied(ROUTES, upstreams=upstreams) as proxy:
            for path, stream, seed in product(PATHS, (False, True), range(12)):
                seen = await proxy.post(path, make_request(path, schema, seed, stream=stream))
                (exchange,) = tapped["llama"].exchanges()
                assert exchange.answer is not None
                found.append((path, seen, exchange.answer))
    return found


def read_arguments(path: str, body: bytes) -> list[str]:
    """The arguments of the calls in an answer, streamed or not."""
    if body.startswith(b"{"):
        answer = json.loads(body)
        events = [answer]
    else:
        events = [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]
        answer = events[-1].get("response", {})
    if path.endswith("responses"):
        return [item["arguments"] for item in answer.get("output", ()) if item["type"] == "function_call"]
    found: dict[int, str] = defaultdict(str)
    for event in events:
        for choice in event.get("choices", ()):
            said = choice.get("delta") or choice.get("message") or {}
            for at, call in enumerate(said.get("tool_calls", ())):
                found[call.get("index", at)] += call["function"].get("arguments", "")
        for at, block in enumerate(event.get("content", ())):
            if block["type"] == "tool_use":
                found[at] = json.dumps(block["input"])
        if "partial_json" in event.get("delta", ()):
            found[event["index"]] += event["delta"]["partial_json"]
    return [*found.values()]


def is_valid(arguments: str, schema: dict[str, Any]) -> bool:
    """Returns whether arguments are JSON that fits a schema."""
    try:
        return bool(Draft202012Validator(schema).is_valid(json.loads(arguments)))
    except ValueError:
        return False


async def test_answers_come_byte_for_byte_whose_calls_are_valid_or_cannot_be_repaired() -> None:
    found = await ask_all(WEATHER)
    texts = [text for path, _, said in found for text in read_arguments(path, said.body)]
    assert {True, False} == {is_valid(text, WEATHER) for text in texts}
    for _, seen, said in found:
        assert (int(said.start), said.body) == (seen.status, seen.body)


async def test_only_arguments_change_that_are_valid_then() -> None:
    count = 0
    for path, seen, said in await ask_all(BEHIND_IF):
        pairs = [*zip(read_arguments(path, said.body), read_arguments(path, seen.body), strict=True)]
        changed = [(is_valid(old, BEHIND_IF), is_valid(new, BEHIND_IF)) for old, new in pairs if old != new]
        assert [(False, True)] * len(changed) == changed
        assert [] == [(path, seen.headers, seen.body[-700:], new) for _, new in pairs if is_valid(new, REPAIRABLE)]
        assert changed or said.body == seen.body
        count += len(changed)
    assert count

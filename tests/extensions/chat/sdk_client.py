"""Asks a model server by the SDKs of OpenAI and Anthropic, streamed and not: `python sdk_client.py PACKAGE URL`.

Runs with the interpreter of a party, so it imports nothing of this repository. Prints the calls that the SDK read, as
one JSON list for each way to ask.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
USER: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]


def ask_openai(url: str) -> list[Any]:
    """The calls that OpenAI's SDK reads."""
    client = import_module("openai").OpenAI(base_url=f"{url}/v1", api_key="sk-mine", max_retries=0)
    function: Any = {"name": "get_weather", "parameters": WEATHER}
    tools: Any = [{"type": "function", "function": function}]
    whole = client.chat.completions.create(model="tiny", messages=USER, tools=tools).choices[0].message.tool_calls
    with client.chat.completions.stream(model="tiny", messages=USER, tools=tools) as events:
        streamed = events.get_final_completion().choices[0].message.tool_calls
    flat: Any = [{"type": "function", **function}]
    items = client.responses.create(model="tiny", input=USER, tools=flat).output
    text, last = "", []
    for event in client.responses.create(model="tiny", input=USER, tools=flat, stream=True):
        if event.type == "response.function_call_arguments.delta":
            text += event.delta
        elif event.type == "response.completed":
            last = [(item.name, json.loads(item.arguments)) for item in event.response.output]
    assert [json.loads(text)] == [arguments for _, arguments in last]
    return [
        *([(call.function.name, json.loads(call.function.arguments)) for call in calls] for calls in (whole, streamed)),
        [(item.name, json.loads(item.arguments)) for item in items],
        last,
    ]


def ask_anthropic(url: str) -> list[Any]:
    """The calls that Anthropic's SDK reads."""
    client = import_module("anthropic").Anthropic(base_url=url, api_key="sk-mine", max_retries=0)
    tools: Any = [{"name": "get_weather", "input_schema": WEATHER}]
    asked: Any = {"model": "tiny", "max_tokens": 100, "messages": USER, "tools": tools}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as events:
        streamed = events.get_final_message()
    return [
        [(block.name, block.input) for block in message.content if block.type == "tool_use"]
        for message in (whole, streamed)
    ]


if __name__ == "__main__":
    package, address = sys.argv[1:]
    sys.stdout.write(json.dumps({"openai": ask_openai, "anthropic": ask_anthropic}[package](address)))

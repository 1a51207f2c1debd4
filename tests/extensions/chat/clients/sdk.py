"""Asks a model server by the SDKs of OpenAI and Anthropic, streamed and not: `python sdk.py PACKAGE`.

Runs with the interpreter of a party, so it imports nothing of this repository. The environment holds the server's
address, as these SDKs read it. Standard input is a JSON list of turns, each with the model's name and the tools. Prints
as JSON, by way to ask and by model, the calls that the SDK read, or the error that it raised.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

USER: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]
Ask = Callable[[str, dict[str, Any]], Any]


def list_openai_ways() -> dict[str, Ask]:
    """The ways of OpenAI's SDK."""
    client = import_module("openai").OpenAI(api_key="sk-mine", max_retries=0)

    def ask_chat(model: str, tools: dict[str, Any]) -> list[Any]:
        answer = client.chat.completions.create(model=model, messages=USER, tools=list_functions(tools))
        return read_chat(answer)

    def stream_chat(model: str, tools: dict[str, Any]) -> list[Any]:
        with client.chat.completions.stream(model=model, messages=USER, tools=list_functions(tools)) as events:
            return read_chat(events.get_final_completion())

    def ask_responses(model: str, tools: dict[str, Any]) -> list[Any]:
        return read_items(client.responses.create(model=model, input=USER, tools=list_flat(tools)).output)

    def stream_responses(model: str, tools: dict[str, Any]) -> Any:
        text, output = "", []
        for event in client.responses.create(model=model, input=USER, tools=list_flat(tools), stream=True):
            if event.type == "response.function_call_arguments.delta":
                text += event.delta
            elif event.type == "response.completed":
                output = event.response.output
            elif event.type == "error":
                return {"error": event.code, "number": event.sequence_number, "message": event.message}
        assert text == "".join(item.arguments for item in output if item.type == "function_call")
        return read_items(output)

    ways = {"chat": ask_chat, "chat, streamed": stream_chat}
    return {**ways, "responses": ask_responses, "responses, streamed": stream_responses}


def list_anthropic_ways() -> dict[str, Ask]:
    """The ways of Anthropic's SDK."""
    client = import_module("anthropic").Anthropic(api_key="sk-mine", max_retries=0)

    def make(model: str, tools: dict[str, Any]) -> dict[str, Any]:
        listed = [{"name": name, "input_schema": schema} for name, schema in tools.items()]
        return {"model": model, "max_tokens": 100, "messages": USER, "tools": listed}

    def ask_messages(model: str, tools: dict[str, Any]) -> list[Any]:
        return read_blocks(client.messages.create(**make(model, tools)))

    def stream_messages(model: str, tools: dict[str, Any]) -> list[Any]:
        with client.messages.stream(**make(model, tools)) as events:
            return read_blocks(events.get_final_message())

    return {"messages": ask_messages, "messages, streamed": stream_messages}


def list_functions(tools: dict[str, Any]) -> Any:
    """The tools as Chat Completions names them."""
    return [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in tools.items()]


def list_flat(tools: dict[str, Any]) -> Any:
    """The tools as Responses names them."""
    return [{"type": "function", "name": name, "parameters": schema} for name, schema in tools.items()]


def read_chat(answer: Any) -> list[Any]:
    """The calls of an answer of Chat Completions."""
    calls = answer.choices[0].message.tool_calls or []
    return [[call.function.name, call.function.arguments] for call in calls]


def read_items(items: Any) -> list[Any]:
    """The calls of an answer of Responses."""
    return [[item.name, item.arguments] for item in items if item.type == "function_call"]


def read_blocks(message: Any) -> list[Any]:
    """The calls of an answer of Messages."""
    return [[block.name, block.input] for block in message.content if block.type == "tool_use"]


def ask(package: str, way: Ask, turn: dict[str, Any]) -> Any:
    """The calls, or which error of the SDK's own was raised with which status."""
    try:
        return way(turn["model"], turn["tools"])
    except import_module(package).APIError as error:
        return {"error": type(error).__name__, "status": getattr(error, "status_code", None)}


if __name__ == "__main__":
    (name,) = sys.argv[1:]
    turns = json.load(sys.stdin)
    ways = {"openai": list_openai_ways, "anthropic": list_anthropic_ways}[name]()
    found = {kind: {turn["model"]: ask(name, way, turn) for turn in turns} for kind, way in ways.items()}
    sys.stdout.write(json.dumps(found))

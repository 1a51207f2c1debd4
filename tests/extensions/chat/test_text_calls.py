"""Calls in the text of an answer become calls if everything about them is whole and valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.extensions.chat.core.text_watch import MARKUPS, SIGNS
from tests.extensions.chat.answers import chat_request, chat_text, messages_request, responses_request, whole
from tests.extensions.chat.leaks import QUOTED, REPORTS
from tests.extensions.chat.samples import TEXTS, WHOLE
from tests.extensions.chat.scripted_model import write_turn
from tests.extensions.chat.streams import chat_words, messages_words, responses_words, streamed
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import Seen, replies, tool

STREAMS: dict[str, tuple[str, bytes, Any]] = {
    "chat": ("/v1/chat/completions", chat_request(stream=True), chat_words),
    "messages": ("/v1/messages", messages_request(stream=True), messages_words),
    "responses": ("/v1/responses", responses_request(stream=True), responses_words),
}
ROUTES = "  - {path: /v1, upstream: tools, repair: standard, model: {text_calls: %s}}"


async def ask(answer: bytes, path: str, request: bytes, text_calls: str = "leaked") -> Seen:
    async with tool(replies(whole(answer))) as server, proxied(ROUTES % text_calls, server.url) as proxy:
        return await proxy.post(path, request)


async def ask_chat(text: str, text_calls: str = "leaked", **more: Any) -> Seen:
    return await ask(chat_text(text), "/v1/chat/completions", chat_request(**more), text_calls)


def test_every_dialect_has_a_sample_and_a_source() -> None:
    assert {row.name for row in MARKUPS} == {name.partition(",")[0] for name in WHOLE}
    assert all(row.source for row in MARKUPS)
    assert all(text.startswith(SIGNS) for text, _ in WHOLE.values())
    assert all(report.startswith("https://") for report in REPORTS)


@pytest.mark.parametrize("dialect", WHOLE)
@pytest.mark.parametrize("before", ["", "\n\n ", "<think>I look, <b>.</think>\n\n", "[THINK]```[/THINK]\n"])
async def test_whole_markup_becomes_calls(dialect: str, before: str) -> None:
    text, arguments = WHOLE[dialect]
    seen = await ask_chat(before + text)
    choice = json.loads(seen.body)["choices"][0]
    calls = choice["message"]["tool_calls"]
    assert arguments == [json.loads(call["function"]["arguments"]) for call in calls]
    assert {"get_weather"} == {call["function"]["name"] for call in calls}
    assert len(calls) == len({call["id"] for call in calls})
    assert (before.rstrip() or None, "tool_calls") == (choice["message"]["content"], choice["finish_reason"])
    assert (seen.header("tool-repairs") or "").startswith("text_call;path=")


async def test_reported_leaks_become_calls() -> None:
    answers = [whole(chat_text(text)) for text in REPORTS.values()]
    async with tool(replies(*answers)) as server, proxied(ROUTES % "leaked", server.url) as proxy:
        for report in REPORTS:
            seen = await proxy.post("/v1/chat/completions", chat_request())
            (call,) = json.loads(seen.body)["choices"][0]["message"]["tool_calls"]
            found = call["function"]["name"], json.loads(call["function"]["arguments"])
            assert ("get_weather", {"city": "Oslo"}) == found, report


@pytest.mark.parametrize("api", STREAMS)
@pytest.mark.parametrize("text_calls", ["leaked", "json"])
async def test_a_quotation_never_becomes_a_call(api: str, text_calls: str) -> None:
    path, _, _ = STREAMS[api]
    answers = [write_turn(path, text, stream=False) for text in QUOTED.values()]
    request = {"chat": chat_request, "messages": messages_request, "responses": responses_request}[api]()
    async with tool(replies(*answers)) as server, proxied(ROUTES % text_calls, server.url) as proxy:
        for why, answer in zip(QUOTED, answers, strict=True):
            seen = await proxy.post(path, request)
            assert (answer.partition(b"\r\n\r\n")[2], None) == (seen.body, seen.header("tool-repairs")), why


@pytest.mark.parametrize("before", ["text", "tool_use", "server_tool_use"])
async def test_markup_behind_another_block_stays_text(before: str) -> None:
    blocks = [{"type": before, "text": "It says:", "name": "x"}, {"type": "text", "text": WHOLE["hermes"][0]}]
    answer = json.dumps({"id": "m1", "type": "message", "content": blocks, "stop_reason": "end_turn"}).encode()
    assert answer == (await ask(answer, "/v1/messages", messages_request())).body


@pytest.mark.parametrize("why", TEXTS)
async def test_any_other_text_stays_byte_for_byte(why: str) -> None:
    seen = await ask_chat(TEXTS[why])
    assert (chat_text(TEXTS[why]), None) == (seen.body, seen.header("tool-repairs"))


async def test_a_lone_object_becomes_a_call_if_the_route_says_so() -> None:
    seen = await ask_chat(TEXTS["a lone object"], "json")
    message = json.loads(seen.body)["choices"][0]["message"]
    assert (None, '{"city":"Oslo"}') == (message["content"], message["tool_calls"][0]["function"]["arguments"])
    for text in ("Here: " + TEXTS["a lone object"], "```json\n" + TEXTS["a lone object"] + "\n```", '{"city": "Oslo"}'):
        assert chat_text(text) == (await ask_chat(text, "json")).body


async def test_nothing_becomes_a_call_if_the_route_or_the_request_forbids_it() -> None:
    text = WHOLE["hermes"][0]
    assert chat_text(text) == (await ask_chat(text, "off")).body
    assert chat_text(text) == (await ask_chat(text, tool_choice="none")).body


async def test_the_last_block_of_a_message_becomes_blocks_of_calls() -> None:
    def write(*blocks: dict[str, Any], stop: str) -> dict[str, Any]:
        return {
            "id": "m1",
            "type": "message",
            "content": [{"type": "thinking", "thinking": "Hm"}, *blocks],
            "stop_reason": stop,
        }

    text, _ = WHOLE["hermes, twice"]
    answer = json.dumps(write({"type": "text", "text": f"<think>I look.</think>\n{text}"}, stop="end_turn")).encode()
    made = json.loads((await ask(answer, "/v1/messages", messages_request())).body)
    ids = [block.pop("id") for block in made["content"] if block["type"] == "tool_use"]
    calls = [{"type": "tool_use", "name": "get_weather", "input": each} for each in WHOLE["hermes, twice"][1]]
    assert write({"type": "text", "text": "<think>I look.</think>"}, *calls, stop="tool_use") == made
    assert 2 == len(set(ids))


async def test_the_last_message_of_a_response_becomes_items_of_calls() -> None:
    text, arguments = WHOLE["kimi"]
    message = {"type": "message", "id": "i1", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    answer = json.dumps({"id": "r1", "output": [{"type": "reasoning", "id": "i0"}, message]}).encode()
    made = json.loads((await ask(answer, "/v1/responses", responses_request())).body)
    assert ["reasoning", "function_call"] == [item["type"] for item in made["output"]]
    assert arguments == [json.loads(item["arguments"]) for item in made["output"][1:]]


@pytest.mark.parametrize("reason", ["length", "content_filter", "error"])
async def test_a_text_that_did_not_come_to_its_own_end_stays(reason: str) -> None:
    answer = chat_text(next(iter(WHOLE.values()))[0]).replace(b'"stop"', json.dumps(reason).encode())
    assert reason == json.loads(answer)["choices"][0]["finish_reason"]
    seen = await ask(answer, "/v1/chat/completions", chat_request())
    assert (answer, None) == (seen.body, seen.header("tool-repairs"))


def allow(*names: str) -> dict[str, Any]:
    """The `tool_choice` of Chat Completions that allows these tools."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": tools}}


@pytest.mark.parametrize(
    ("more", "becomes"),
    [
        ({"tool_choice": "auto"}, True),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}, True),
        ({"tool_choice": {"type": "function", "function": {"name": "other"}}}, False),
        ({"tool_choice": allow()}, False),
        ({"tool_choice": allow("other")}, False),
        ({"tool_choice": allow("other", "get_weather")}, True),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "get_weather"}]}}, True),
        ({"parallel_tool_calls": False}, True),
    ],
)
async def test_a_text_becomes_a_call_only_if_the_request_lets_the_model_call_the_tool(
    more: dict[str, Any], becomes: bool
) -> None:
    text = WHOLE["hermes"][0]
    seen = await ask_chat(text, **more)
    assert becomes == (seen.body != chat_text(text))


async def test_two_calls_in_a_text_stay_if_calls_are_not_parallel() -> None:
    text = WHOLE["hermes"][0] * 2
    assert chat_text(text) != (await ask_chat(text)).body
    assert chat_text(text) == (await ask_chat(text, parallel_tool_calls=False)).body


UNTYPED = {
    "qwen_coder": "<function=set><parameter=value>{}</parameter></function>",
    "glm": "<tool_call>set\n<arg_key>value</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>",
}


@pytest.mark.parametrize("dialect", UNTYPED)
@pytest.mark.parametrize(
    ("schema", "written", "wanted"),
    [
        ({"type": ["string", "integer"]}, "3", "3"),
        ({"anyOf": [{"type": "number"}, {"type": "string"}]}, "3.5", "3.5"),
        ({}, "3", "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": ["integer", "null"]}, "3", 3),
        ({"type": "number"}, "3.5", 3.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "string"}, "true", "true"),
    ],
)
async def test_an_argument_without_a_type_is_text_if_the_schema_takes_text(
    dialect: str, schema: dict[str, object], written: str, wanted: object
) -> None:
    parameters = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    request = chat_request(tools=[{"type": "function", "function": {"name": "set", "parameters": parameters}}])
    text = UNTYPED[dialect].replace("{}", written, 1)
    seen = await ask(chat_text(text), "/v1/chat/completions", request)
    (call,) = json.loads(seen.body)["choices"][0]["message"]["tool_calls"]
    assert {"value": wanted} == json.loads(call["function"]["arguments"])


@pytest.mark.parametrize("model", ["{}", "{text_calls: off}"])
async def test_leaves_markup_in_text_by_default_and_reports_it_once(model: str) -> None:
    text = WHOLE["hermes"][0]
    routes = f"  - {{path: /v1, upstream: tools, model: {model}}}"
    words = chat_words([" ", text[:9], text[9:40], text[40:]])
    stream = streamed(words)
    answers = [*map(whole, (chat_text(TEXTS["another tool"]), chat_text(text), chat_text(text))), stream, stream]
    async with tool(replies(*answers)) as server, proxied(routes, server.url) as proxy:
        counts = []
        for answer in answers:
            seen = await proxy.post("/v1/chat/completions", chat_request(stream=answer is stream))
            assert answer.endswith(seen.body)
            counts.append(list_leaks(proxy))
    assert [0, 1, 1, 1, 1] == [*map(len, counts)]
    assert {"level": "warning", "tool": "get_weather"}.items() <= counts[-1][0].items()
    assert "--text-calls leaked" in counts[-1][0]["hint"]
    assert "Oslo" not in json.dumps(counts[-1])


@pytest.mark.parametrize("api", STREAMS)
async def test_reports_markup_in_a_streamed_text_that_is_not_read(api: str) -> None:
    path, request, write = STREAMS[api]
    words = write(list(WHOLE["kimi"][0]))
    routes = "  - {path: /v1, upstream: tools, model: {}}"
    async with tool(replies(streamed(words))) as server, proxied(routes, server.url) as proxy:
        assert b"".join(words) == (await proxy.post(path, request)).body
        assert 1 == len(list_leaks(proxy))


def list_leaks(proxy: Proxied) -> list[dict[str, Any]]:
    """The log lines about calls that stay in a text."""
    lines = [*map(json.loads, proxy.log.getvalue().splitlines())]
    return [line for line in lines if line["message"] == "tool call left in text"]


def test_names_the_place_of_text_calls_if_it_is_on_a_route(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "version: 1\nupstreams: {tools: {url: 'http://127.0.0.1:9'}}\n"
        "routes: [{path: /w, upstream: tools, tool: w, schema: {type: object}, text_calls: leaked}]\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as error:
        load(tmp_path / "c.yaml", {})
    assert "did you mean `model: {text_calls: leaked}`?" in error.value.mistakes[0].text

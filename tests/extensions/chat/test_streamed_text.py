"""Markup in a streamed text becomes calls; other text passes byte for byte, and waits no longer than it is in doubt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from proxy.extensions.chat.core.call_markup import MARKUPS
from proxy.extensions.chat.core.call_prefix import SHAPES, TextWatch
from proxy.extensions.chat.core.events import EventSplitter, read_event
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.streamed_text import HeldText
from tests.extensions.chat.answers import chat_request, messages_request, responses_request
from tests.extensions.chat.samples import TEXTS, WHOLE
from tests.extensions.chat.streams import chat_words, data, messages_words, responses_words, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, replies, tool

ROUTES = "  - {path: /v1, upstream: tools, repair: standard, model: {text_calls: markup}}"
APIS: dict[str, tuple[str, bytes, Any]] = {
    "chat": ("/v1/chat/completions", chat_request(stream=True), chat_words),
    "messages": ("/v1/messages", messages_request(stream=True), messages_words),
    "responses": ("/v1/responses", responses_request(stream=True), responses_words),
}


def cut(text: str, size: int) -> list[str]:
    return [text[start:end] for start, end in pairwise((*range(0, len(text), size), len(text)))]


async def ask(events: list[bytes], path: str, request: bytes) -> Seen:
    async with tool(replies(streamed(events))) as server, proxied(ROUTES, server.url) as proxy:
        return await proxy.post(path, request)


def list_values(body: bytes) -> Iterator[Any]:
    for event in EventSplitter().feed(body):
        line = next(line for line in event.split(b"\n") if line.startswith(b"data: "))
        if line != b"data: [DONE]":
            yield json.loads(line[6:])


def read_chat(body: bytes) -> tuple[str, list[Any], str]:
    """The text, the arguments of each call, and why it ended."""
    choices = [value["choices"][0] for value in list_values(body)]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", ())]
    assert list(range(len(calls))) == [call["index"] for call in calls]
    return text, [json.loads(call["function"]["arguments"]) for call in calls], choices[-1]["finish_reason"]


def read_messages(body: bytes) -> tuple[str, list[Any], str]:
    """The same of Messages, whose blocks have to begin and end one after the other."""
    text, calls, reason, open_block = "", list[Any](), "", -1
    for value in list_values(body):
        kind = value["type"]
        if kind == "content_block_start":
            assert (open_block, value["index"]) == (-1, len(calls) + 1 if value["index"] else 0)
            open_block = value["index"]
        elif kind == "content_block_stop":
            assert open_block == value["index"]
            open_block = -1
        elif kind == "content_block_delta":
            text += value["delta"].get("text", "")
            calls += [json.loads(value["delta"]["partial_json"])] if "partial_json" in value["delta"] else []
        elif kind == "message_delta":
            reason = value["delta"]["stop_reason"]
    return text, calls, reason


def read_responses(body: bytes) -> tuple[str, list[Any], str]:
    """The same of Responses, whose events are numbered, and whose last one repeats all the others say."""
    values = list(list_values(body))
    assert list(range(len(values))) == [value["sequence_number"] for value in values]
    text = "".join(value["delta"] for value in values if value["type"] == "response.output_text.delta")
    done = [value for value in values if value["type"] == "response.output_item.done"]
    assert list(range(len(done))) == [value["output_index"] for value in done]
    output = values[-1]["response"]["output"]
    assert [value["item"] for value in done] == output
    assert [text] == [part["text"] for part in output[0]["content"]]
    assert [text] == [value["text"] for value in values if value["type"] == "response.output_text.done"]
    pieces = [value for value in values if value["type"] == "response.function_call_arguments.delta"]
    assert [item["arguments"] for item in output[1:]] == [value["delta"] for value in pieces]
    return text, [json.loads(item["arguments"]) for item in output[1:]], values[-1]["response"]["status"]


READ = {
    "chat": (read_chat, "tool_calls"),
    "messages": (read_messages, "tool_use"),
    "responses": (read_responses, "completed"),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("dialect", WHOLE)
@pytest.mark.parametrize("size", [1, 5, 10_000])
async def test_whole_markup_becomes_calls_however_it_is_cut(api: str, dialect: str, size: int) -> None:
    path, request, write = APIS[api]
    text, arguments = WHOLE[dialect]
    seen = await ask(write(cut(f"I look. {text}", size)), path, request)
    read, reason = READ[api]
    said, calls, ended = read(seen.body)
    assert (arguments, reason) == (calls, ended)
    assert "I look." == said.rstrip()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("why", TEXTS)
async def test_any_other_text_passes_byte_for_byte(api: str, why: str) -> None:
    path, request, write = APIS[api]
    events = write(cut(TEXTS[why], 4))
    assert b"".join(events) == (await ask(events, path, request)).body


def watch(*names: str, inner_quotes: bool = True) -> TextWatch:
    return TextWatch(names or ("get_weather", "get_time"), inner_quotes=inner_quotes)


def test_text_waits_only_while_it_may_be_markup() -> None:
    held = HeldText(Api.CHAT, watch())
    words = chat_words(["a ", "<", "b", " <tool", "_call", "> get"])
    assert [1, 1, 0, 2, 0, 0, 0] == [len(held.take(event, read_event(event))) for event in words[:7]]
    assert held.is_holding
    last = chat_words([" the tag"])[1]
    assert 4 == len(held.take(last, read_event(last)))
    assert not held.is_holding


def test_the_shapes_are_those_of_the_dialects() -> None:
    assert [row.name for row in MARKUPS] == list(SHAPES)


@pytest.mark.parametrize("dialect", WHOLE)
def test_every_beginning_of_a_call_is_held(dialect: str) -> None:
    watched = watch()
    text, begins = WHOLE[dialect][0], 0
    for char in text:
        watched.feed(char)
        assert (0, False) == (watched.start, watched.is_over)
        begins += 1
    assert begins == len(text)


# A text, and how much of it has come when it is let go.
LET_GO = {
    "no JSON behind a tag": ("<tool_call> or", "<tool_call> o"),
    "another tool": ('<tool_call>{"name": "get_whether"', '<tool_call>{"name": "get_wh'),
    "the beginning of a tool's name": ('<tool_call>{"name": "get_"}', '<tool_call>{"name": "get_"'),
    "another tool of GLM": ("<tool_call>get_x", "<tool_call>get_x"),
    "another function": ("<function=now>", "<function=n"),
    "words in an object": ("<tool_call>{this is", "<tool_call>{this i"),
    "words behind it": (f"{WHOLE['hermes'][0]} so", f"{WHOLE['hermes'][0]} s"),
    "an example in quotes": (f"{WHOLE['hermes'][0]}`", f"{WHOLE['hermes'][0]}`"),
    "a link": ("[TOOL_CALLS](a)", "[TOOL_CALLS]("),
    "an example in a fence": (f"```\n{WHOLE['hermes'][0]}", "```\n<tool_call>"),
    "a thought": (f"<think>{WHOLE['hermes'][0]}", "<think><tool_call>"),
}


@pytest.mark.parametrize("why", LET_GO)
def test_text_is_let_go_at_the_first_character_that_differs(why: str) -> None:
    text, wanted = LET_GO[why]
    watched = watch()
    came = ""
    for char in text:
        watched.feed(char)
        came += char
        if watched.is_over:
            break
    assert wanted == came


def test_a_bracket_in_prose_is_held_no_longer_than_it_fits() -> None:
    watched = watch()
    starts = []
    for char in "[T [a <t <|x":
        watched.feed(char)
        starts.append(watched.start)
    assert [0, 0, None, 3, None, None, 6, 6, None, 9, 9, None] == starts


def test_a_quote_within_a_text_is_waited_for_only_where_it_is_repaired() -> None:
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "a "b'
    for inner_quotes in (True, False):
        watched = watch(inner_quotes=inner_quotes)
        watched.feed(text)
        assert inner_quotes != watched.is_over


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("text", ["a <b> [c] <tool_call> d", WHOLE["hermes"][0]])
async def test_keeps_comments_of_the_server_in_their_places(api: str, text: str) -> None:
    path, request, write = APIS[api]
    plain = write(cut(text, 3))
    events = [each for number, event in enumerate(plain) for each in (event, b": ping %d\n\n" % number)]
    body = (await ask(events, path, request)).body
    if text != WHOLE["hermes"][0]:
        assert b"".join(events) == body
    changed = (await ask(plain, path, request)).body
    pings = [event for event in EventSplitter().feed(body) if event.startswith(b": ping")]
    assert events[1::2] == pings
    without = body
    for ping in pings:
        without = without.replace(ping, b"", 1)
    assert _without_ids(changed) == _without_ids(without)


def _without_ids(body: bytes) -> bytes:
    return re.sub(rb"(call_|toolu_|fc_)[0-9a-f]+", rb"\1", body)


async def test_what_stands_beside_the_text_of_a_call_stays() -> None:
    path, request, _ = APIS["chat"]
    markup = WHOLE["hermes"][0]
    deltas = [
        ({"role": "assistant", "content": f"Hm. {markup[:20]}", "reasoning_content": "I look."}, None),
        ({"content": markup[20:-4]}, None),
        ({"content": markup[-4:], "reasoning_content": " So."}, "stop"),
    ]
    usage = {"total_tokens": 7}
    values = [{"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": why}]} for delta, why in deltas]
    events = [data({**values[0], "usage": None}), data(values[1]), data({**values[2], "usage": usage})]
    said = list(list_values((await ask(events, path, request)).body))
    choices = [value["choices"][0] for value in said]
    assert {"role": "assistant", "content": "Hm.", "reasoning_content": "I look."} == choices[0]["delta"]
    assert "I look. So." == "".join(choice["delta"].get("reasoning_content", "") for choice in choices)
    assert [None, None, None, "tool_calls"] == [choice["finish_reason"] for choice in choices]
    assert [usage] == [value["usage"] for value in said if value.get("usage")]


async def test_an_answer_in_one_event_becomes_a_call_with_its_role() -> None:
    path, request, _ = APIS["chat"]
    delta = {"role": "assistant", "content": WHOLE["hermes"][0]}
    event = data({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}], "usage": {"a": 1}})
    said = list(list_values((await ask([event, b"data: [DONE]\n\n"], path, request)).body))
    choices = [value["choices"][0] for value in said]
    assert ["assistant"] == [choice["delta"]["role"] for choice in choices if "role" in choice["delta"]]
    assert "role" in choices[0]["delta"]
    assert [{"city": "Oslo"}] == [
        json.loads(call["function"]["arguments"]) for each in choices for call in each["delta"].get("tool_calls", ())
    ]
    assert [{"a": 1}] == [value["usage"] for value in said if value.get("usage")]

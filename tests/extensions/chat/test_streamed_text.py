"""Markup in a streamed text becomes calls; other text passes byte for byte, and waits no longer than it is in doubt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from proxy.core.json.contentcoding import EventSplitter
from proxy.extensions.chat.core.events import read_event
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.streamed_text import HeldText
from proxy.extensions.chat.core.text_watch import TextWatch
from tests.extensions.chat.answers import chat_request, messages_request, responses_request
from tests.extensions.chat.leaks import QUOTED, REPORTS
from tests.extensions.chat.samples import TEXTS, WHOLE
from tests.extensions.chat.streams import chat_words, data, messages_words, responses_words, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, replies, tool

ROUTES = "  - {path: /v1, upstream: tools, repair: standard, model: {text_calls: leaked}}"
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
    seen = await ask(write(cut(f"<think>I look.</think>\n{text}", size)), path, request)
    read, reason = READ[api]
    said, calls, ended = read(seen.body)
    assert (arguments, reason) == (calls, ended)
    assert "<think>I look.</think>" == said.rstrip()


@pytest.mark.parametrize("api", APIS)
async def test_reported_leaks_become_calls(api: str) -> None:
    path, request, write = APIS[api]
    read, reason = READ[api]
    answers = [streamed(write(cut(text, 3))) for text in REPORTS.values()]
    async with tool(replies(*answers)) as server, proxied(ROUTES, server.url) as proxy:
        for report in REPORTS:
            _, calls, ended = read((await proxy.post(path, request)).body)
            assert ([{"city": "Oslo"}], reason) == (calls, ended), report


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("text_calls", ["leaked", "json"])
async def test_any_other_text_passes_byte_for_byte(api: str, text_calls: str) -> None:
    path, request, write = APIS[api]
    texts = QUOTED if text_calls == "json" else {**TEXTS, **QUOTED}
    answers = [write(cut(text, 4)) for text in texts.values()]
    routes = ROUTES.replace("leaked", text_calls)
    async with tool(replies(*map(streamed, answers))) as server, proxied(routes, server.url) as proxy:
        for why, events in zip(texts, answers, strict=True):
            assert b"".join(events) == (await proxy.post(path, request)).body, why


@pytest.mark.parametrize("api", APIS)
async def test_a_lone_object_becomes_a_call_if_the_route_says_so(api: str) -> None:
    path, request, write = APIS[api]
    events = write(cut("\n" + TEXTS["a lone object"], 4))
    routes = ROUTES.replace("leaked", "json")
    async with tool(replies(streamed(events))) as server, proxied(routes, server.url) as proxy:
        _, calls, _ = READ[api][0]((await proxy.post(path, request)).body)
    assert [{"city": "Oslo"}] == calls


def test_text_waits_only_while_it_may_be_markup() -> None:
    held = HeldText(Api.CHAT, TextWatch())
    words = chat_words([" ", "<", "b", " <tool", "_call>"])
    assert [1, 1, 0, 2, 1, 1] == [len(held.take(event, read_event(event))) for event in words[:6]]
    assert not held.is_holding


@pytest.mark.parametrize("dialect", WHOLE)
@pytest.mark.parametrize("before", ["", " \n  ", "<think><tool_call></think>\n", "[THINK]a[/THINK]\n\n"])
def test_every_beginning_of_a_call_is_held(dialect: str, before: str) -> None:
    watch = TextWatch()
    watch.feed(before)
    for char in WHOLE[dialect][0]:
        watch.feed(char)
        assert (len(before), False) == (watch.start, watch.is_over)
    assert WHOLE[dialect][0] == watch.text


# A text, and how much of it has come when it is let go.
LET_GO = {
    "words": ("a<tool_call>", "a"),
    "a word that begins like a sign": ("<tool_cold>", "<tool_co"),
    "a blank behind a sign's beginning": ("<tool_call >", "<tool_call "),
    "a link": ("[TOOL](a)", "[TOOL]"),
    "an example in a fence": ("```\n<tool_call>", "`"),
    "a quote": ("> <tool_call>", ">"),
    "code": ("    <tool_call>", "    "),
    "words behind thinking": ("<think>a</think>b<tool_call>", "<think>a</think>b"),
    "thinking in thinking": ("<think>a<think>b</think>", "<think>a<think>"),
}


@pytest.mark.parametrize("why", LET_GO)
def test_text_is_let_go_at_the_first_character_that_differs(why: str) -> None:
    text, wanted = LET_GO[why]
    watch, came = TextWatch(), ""
    for char in text:
        watch.feed(char)
        came += char
        if watch.is_over:
            break
    assert wanted == came


def test_thinking_is_not_held() -> None:
    watch, starts = TextWatch(), []
    for char in "<th<ink></think>\n<t":
        watch.feed(char)
        starts.append(watch.start)
    assert [0, 0, 0, None] == starts[:4]
    watch, starts = TextWatch(), []
    for char in "<think>a<b></think>\n<t":
        watch.feed(char)
        starts.append(watch.start)
    assert [*[0] * 6, *[None] * 14, 20, 20] == starts


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("text", ["<b> [c] <tool_call> d", "<tool_call> d", WHOLE["hermes"][0]])
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


async def test_keeps_everything_around_the_text_of_a_call() -> None:
    path, request, _ = APIS["chat"]
    markup = WHOLE["hermes"][0]
    deltas = [
        ({"role": "assistant", "content": f"<think>Hm.</think>\n{markup[:20]}", "reasoning_content": "I look."}, None),
        ({"content": markup[20:-4]}, None),
        ({"content": markup[-4:], "reasoning_content": " So."}, "stop"),
    ]
    usage = {"total_tokens": 7}
    values = [{"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": why}]} for delta, why in deltas]
    events = [data({**values[0], "usage": None}), data(values[1]), data({**values[2], "usage": usage})]
    said = list(list_values((await ask(events, path, request)).body))
    choices = [value["choices"][0] for value in said]
    assert {"role": "assistant", "content": "<think>Hm.</think>", "reasoning_content": "I look."} == choices[0]["delta"]
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

"""Markup in a streamed text becomes calls; other text passes byte for byte, and waits no longer than it is in doubt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from proxy.extensions.chat.core.events import EventSplitter
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.streamed_text import HeldText
from tests.extensions.chat.answers import chat_request, messages_request
from tests.extensions.chat.samples import TEXTS, WHOLE
from tests.extensions.chat.streams import chat_words, messages_words, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, replies, tool

ROUTES = "  - {path: /v1, upstream: tools, repair: standard, model: {}}"
APIS: dict[str, tuple[str, bytes, Any]] = {
    "chat": ("/v1/chat/completions", chat_request(stream=True), chat_words),
    "messages": ("/v1/messages", messages_request(stream=True), messages_words),
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


READ = {"chat": (read_chat, "tool_calls"), "messages": (read_messages, "tool_use")}


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


def test_text_waits_only_while_it_may_be_markup() -> None:
    held = HeldText(Api.CHAT, is_off=False)
    words = chat_words(["a ", "<", "b", " <tool", "_call", "> x"])
    assert [1, 1, 0, 2, 0, 0, 0] == [len(held.take(event)) for event in words[:7]]
    assert held.is_holding

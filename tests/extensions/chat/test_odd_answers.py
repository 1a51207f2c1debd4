"""Answers of any shape are read without an error: each member of a real one is replaced by each kind of value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from proxy.extensions.chat.core.events import read_event
from proxy.extensions.chat.core.found_calls import find_answer_text, find_calls
from proxy.extensions.chat.core.model_request import (
    Api,
    ModelRequest,
    count_tokens,
    read_model_request,
    sum_usage,
    write_next_question,
)
from proxy.extensions.chat.core.streamed_calls import HeldCalls
from proxy.extensions.chat.core.streamed_text import HeldText
from proxy.extensions.chat.core.text_watch import TextWatch
from tests.extensions.chat.answers import (
    chat_answer,
    chat_request,
    chat_text,
    messages_answer,
    messages_request,
    responses_answer,
    responses_request,
)
from tests.extensions.chat.streams import (
    chat_stream,
    chat_words,
    data,
    messages_stream,
    messages_words,
    responses_stream,
    responses_words,
)

ODD: tuple[Any, ...] = (None, True, 7, "x", [], {}, [[]], [{}], {"type": "function"})
ARGUMENTS = '{"city": "Oslo"}'
REQUESTS = {Api.CHAT: chat_request(), Api.RESPONSES: responses_request(), Api.MESSAGES: messages_request()}
WHOLE = {
    Api.CHAT: (chat_answer(ARGUMENTS), chat_text("<tool_call>")),
    Api.RESPONSES: (responses_answer(ARGUMENTS),),
    Api.MESSAGES: (messages_answer({"city": "Oslo"}),),
}
PIECES = (ARGUMENTS[:5], ARGUMENTS[5:])
STREAMS: dict[Api, tuple[list[bytes], ...]] = {
    Api.CHAT: (chat_stream(PIECES, text=("a",)), chat_words(["a", "<tool_call>", "b"])),
    Api.RESPONSES: (responses_stream(PIECES), responses_words(["a", "<tool_call>", "{"])),
    Api.MESSAGES: (messages_stream(PIECES, text=("a",)), messages_words(["a", "<tool_call>", "b"])),
}


def list_odd(value: Any, place: Callable[[Any], Any] = lambda inner: inner) -> Iterator[Any]:
    """The value with each of its parts replaced by each odd value, or left out."""
    yield from map(place, ODD)
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        if isinstance(value, dict):
            yield place({name: each for name, each in value.items() if name != key})

        def put(new: Any, key: Any = key) -> Any:
            made = dict(value) if isinstance(value, dict) else list(value)
            made[key] = new
            return place(made)

        yield from list_odd(inner, put)


@pytest.mark.parametrize("api", list(Api))
def test_whole_answers_of_any_shape_are_read(api: Api) -> None:
    asked = read_model_request(api, REQUESTS[api])
    assert isinstance(asked, ModelRequest)
    read = 0
    for answer in WHOLE[api]:
        for odd in list_odd(json.loads(answer)):
            text = json.dumps(odd).encode()
            calls = find_calls(api, text, odd)
            find_answer_text(api, odd)
            if calls:
                write_next_question(asked, odd, [("call_1", "no")] * len(calls))
            usage = odd.get("usage") if isinstance(odd, dict) else None
            assert count_tokens(usage) >= 0
            sum_usage(usage, {"total_tokens": 15})
            read += 1
    assert read > 100


@pytest.mark.parametrize("api", list(Api))
def test_requests_of_any_shape_are_read(api: Api) -> None:
    found = [read_model_request(api, json.dumps(odd).encode()) for odd in list_odd(json.loads(REQUESTS[api]))]
    assert 0 < sum(each is None for each in found) < len(found)


@pytest.mark.parametrize("api", list(Api))
def test_streams_of_any_shape_are_read_and_unchanged_without_changes(api: Api) -> None:
    for events in STREAMS[api]:
        for at, event in enumerate(events):
            value = read_event(event)
            for odd in list_odd(value) if value is not None else ():
                changed = [*events[:at], data(odd), *events[at + 1 :]]
                held, text = HeldCalls(api), HeldText(api, TextWatch())
                passed = [
                    part
                    for each in changed
                    if not held.take(each, read_event(each))
                    for part in text.take(each, read_event(each))
                ]
                kept = held.write([None] * len(held.list_calls()))
                assert sorted(changed) == sorted([*passed, *text.give_up(), *kept])

"""Large requests are read in a child process, and their answers are judged and asked about like any other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.call.judging import is_rich
from proxy.extensions.chat.core.model_request import Api, ModelRequest, read_model_request
from proxy.extensions.chat.core.whole_bodies import reduce_request
from tests.extensions.chat.answers import (
    chat_answer,
    chat_request,
    messages_request,
    responses_request,
    whole,
)
from tests.extensions.chat.streams import chat_stream, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import replies, tool

CHAT = "/v1/chat/completions"
FILLING: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "a"}] * 5}] * 4_000
LONG: list[Any] = [{"role": "user", "content": "x" * 3_000_000}]
WRONG, RIGHT = '{"days": 3}', '{"city": "Oslo", "days": 3}'


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("messages", [FILLING, LONG])
async def test_an_answer_to_a_large_request_is_validated_and_asked_about(stream: bool, messages: list[Any]) -> None:
    request = chat_request(messages=messages, stream=stream)
    assert is_rich(request) == (messages is FILLING)
    sent = [streamed(chat_stream((text,))) if stream else whole(chat_answer(text)) for text in (WRONG, RIGHT)]
    routes = "  - {path: /v1, upstream: tools, model: {retries: 1, retry_tokens: 10000000}}"
    async with tool(replies(*sent)) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(CHAT, request)
        line = proxy.lines()[-1]
    first, second = (json.loads(one.body) for one in server.seen)
    assert (200, request, "2") == (seen.status, server.seen[0].body, line["chat.attempts"])
    assert [*first["messages"], "assistant", "tool"] == [
        *second["messages"][:-2],
        *(message["role"] for message in second["messages"][-2:]),
    ]
    assert {**first, "messages": 0} == {**second, "messages": 0}
    assert b"Oslo" in seen.body


@pytest.mark.parametrize(
    ("api", "request_"),
    [
        (Api.CHAT, chat_request(n=2, tool_choice="auto", stream=True, messages=FILLING[:2])),
        (Api.CHAT, chat_request(tool_choice="none")),
        (Api.CHAT, b"[]"),
        (Api.CHAT, b"{broken"),
        (Api.MESSAGES, messages_request(tool_choice={"type": "any", "disable_parallel_tool_use": True})),
        (Api.RESPONSES, responses_request(input=[{"type": "x", "tools": [{"name": "find"}]}, {"role": "user"}])),
        (Api.RESPONSES, responses_request(input="text", parallel_tool_calls=False)),
    ],
)
def test_a_reduced_request_says_the_same_as_the_whole_one(api: Api, request_: bytes) -> None:
    full, reduced = read_model_request(api, request_), read_model_request(api, reduce_request(request_))
    assert type(full) is type(reduced)
    if isinstance(full, ModelRequest) and isinstance(reduced, ModelRequest):
        assert (full.model, full.streams, full.is_single) == (reduced.model, reduced.streams, reduced.is_single)
        assert (full.tools.digest, [*full.tools.tools]) == (reduced.tools.digest, [*reduced.tools.tools])
        names = (["get_weather"], ["get_weather", "get_weather"], ["other"])
        assert [full.may_call(each) for each in names] == [reduced.may_call(each) for each in names]

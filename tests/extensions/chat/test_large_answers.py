"""Large answers are read and changed in a child process: here, so many values would not be read at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonProblem
from proxy.extensions.chat.core.found_calls import NewCall, write_calls
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.whole_bodies import (
    change_answer,
    change_large_answer,
    load_answer,
    read_answer,
    read_large_answer,
    write_calling_job,
    write_changing_job,
    write_large_calls,
    write_reading_job,
)
from tests.extensions.chat.answers import (
    chat_answer,
    chat_request,
    chat_text,
    messages_answer,
    responses_answer,
    whole,
)
from tests.extensions.chat.samples import WHOLE
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, replies, tool

CHAT = "/v1/chat/completions"
WRONG, REPAIRABLE, RIGHT = '{"days": 3}', '{"city": "Oslo", "days": "3"}', '{"city": "Oslo", "days": 3}'
# More values than are read in this process, and a long text.
VALUES: dict[str, Any] = {"logprobs": {"content": [{"token": "a", "logprob": -0.5, "bytes": [97]}] * 30_000}}
LONG: dict[str, Any] = {"reasoning_content": 'x"\n' * 500_000}
SIZES = {"many values": VALUES, "a long text": LONG}


def enlarge(answer: bytes, size: str) -> bytes:
    """An answer of Chat Completions with more beside its calls."""
    value = json.loads(answer)
    value["choices"][0] |= SIZES[size]
    return json.dumps(value).encode()


def read_arguments(answer: Any) -> list[Any]:
    """The arguments of the calls of an answer, taken out of it."""
    return [json.loads(call["function"].pop("arguments")) for call in answer["choices"][0]["message"]["tool_calls"]]


async def ask(*answers: bytes) -> tuple[Seen, list[Any], dict[str, Any]]:
    routes = "  - {path: /v1, upstream: tools, model: {retries: 1, retry_tokens: 10000000, text_calls: leaked}}"
    async with tool(replies(*map(whole, answers))) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(CHAT, chat_request())
        return seen, [json.loads(one.body) for one in server.seen], proxy.lines()[-1]


def test_so_many_values_are_not_read_in_this_process() -> None:
    assert isinstance(parse(enlarge(chat_answer(RIGHT), "many values")), JsonProblem)


@pytest.mark.parametrize("size", SIZES)
async def test_a_call_in_a_large_answer_is_repaired_and_nothing_else_changes(size: str) -> None:
    sent = enlarge(chat_answer(REPAIRABLE), size)
    seen, _, line = await ask(sent)
    call = json.loads(seen.body)["choices"][0]["message"]["tool_calls"][0]["function"]
    assert ({"city": "Oslo", "days": 3}, "repaired") == (json.loads(call["arguments"]), line["outcome"])
    assert sent.replace(dumps(REPAIRABLE), dumps(call["arguments"])) == seen.body
    valid = enlarge(chat_answer(RIGHT), size)
    assert valid == (await ask(valid))[0].body


@pytest.mark.parametrize("size", SIZES)
async def test_asks_a_model_again_about_a_large_answer(size: str) -> None:
    seen, requests, line = await ask(enlarge(chat_answer(WRONG), size), enlarge(chat_answer(REPAIRABLE), size))
    made, wanted = json.loads(seen.body), json.loads(enlarge(chat_answer(REPAIRABLE), size))
    assert [{"city": "Oslo", "days": 3}] == read_arguments(made)
    read_arguments(wanted)
    assert {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30} == made.pop("usage")
    wanted.pop("usage")
    assert (wanted, "2") == (made, line["chat.attempts"])
    turn, result = requests[1]["messages"][1:]
    assert (WRONG, "call_1") == (turn["tool_calls"][0]["function"]["arguments"], result["tool_call_id"])


@pytest.mark.parametrize("size", SIZES)
async def test_a_call_in_the_text_of_a_large_answer_becomes_one(size: str) -> None:
    text, (arguments,) = WHOLE["qwen_coder"]
    seen, _, line = await ask(enlarge(chat_text(text), size))
    assert ([arguments], "repaired") == (read_arguments(json.loads(seen.body)), line["outcome"])


async def test_large_arguments_are_repaired() -> None:
    sent = json.dumps({"city": "Oslo", "days": "3", "note": [{"a": 1}] * 20_000})
    request = json.loads(chat_request())
    request["tools"][0]["function"]["parameters"]["properties"]["note"] = {"type": "array"}
    routes = "  - {path: /v1, upstream: tools, model: {}}"
    async with tool(replies(whole(chat_answer(sent)))) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(CHAT, json.dumps(request).encode())
    assert [{**json.loads(sent), "days": 3}] == read_arguments(json.loads(seen.body))


ANSWERS = [
    (Api.CHAT, chat_answer(REPAIRABLE)),
    (Api.CHAT, chat_answer({"city": "Oslo"})),
    (Api.CHAT, chat_text('It rains \u00e9"')),
    (Api.RESPONSES, responses_answer("{broken")),
    (Api.MESSAGES, messages_answer({"city": "Oslo", "days": 1234567890123456789012})),
    (Api.MESSAGES, b'{"error": {"message": "busy"}, "usage": {"input_tokens": 1.50}}'),
]


@pytest.mark.parametrize(("api", "body"), ANSWERS)
def test_a_child_finds_and_writes_what_is_found_and_written_here(api: Api, body: bytes) -> None:
    here, there = read_answer(api, body), load_answer(read_large_answer(write_reading_job(api, body)))
    assert here is not None
    assert there is not None
    assert (here.calls, here.text, here.is_answer) == (there.calls, there.text, there.is_answer)
    assert dumps(here.usage) == dumps(there.usage)
    for call in here.calls:
        for places in ({call.arguments_at: b'"\xc3\xa9"'}, {call.name_at: b'"a"', call.arguments_at: b"{}"}):
            assert change_answer(body, places) == change_large_answer(write_changing_job(body, places))
    if here.text is not None:
        made = [NewCall("call_1", "get_weather", b'{"city": "Oslo"}')]
        job = write_calling_job(api, body, here.text, "It", made)
        assert write_calls(api, body, here.text, "It", made) == write_large_calls(job)


@pytest.mark.parametrize("body", [b"[]", b"{broken", b""])
def test_a_child_says_of_what_is_no_answer_that_it_is_none(body: bytes) -> None:
    assert read_answer(Api.CHAT, body) is None
    assert load_answer(read_large_answer(write_reading_job(Api.CHAT, body))) is None

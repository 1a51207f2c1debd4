"""A second request to a model whose calls cannot be repaired, within bounds; advice in the request is right if
followed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from proxy.extensions.chat.core.model_request import REPEAT
from tests.extensions.chat.answers import (
    chat_answer,
    chat_request,
    chat_text,
    messages_answer,
    messages_request,
    responses_answer,
    responses_request,
    whole,
)
from tests.serving.proxied import proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, replies, tool

CHAT = "/v1/chat/completions"
WRONG, RIGHT = '{"days": 3}', '{"city": "Oslo", "days": 3}'
APIS: dict[str, tuple[str, bytes, Any]] = {
    "chat": (CHAT, chat_request(), chat_answer),
    "responses": ("/v1/responses", responses_request(), responses_answer),
    "messages": ("/v1/messages", messages_request(), lambda text: messages_answer(json.loads(text))),
}


async def ask(
    answers: Sequence[bytes], model: str = "{retries: 1}", path: str = CHAT, request: bytes = chat_request()
) -> tuple[Seen, list[Any], dict[str, Any]]:
    """Returns what the client gets, the requests that the model had, and the line of the log."""
    routes = f"  - {{path: /v1, upstream: tools, model: {model}}}"
    async with tool(replies(*answers)) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(path, request, "Authorization: Bearer sk-mine")
        assert {"Bearer sk-mine"} == {one.header("authorization") for one in server.seen}
        return seen, [json.loads(one.body) for one in server.seen], proxy.lines()[-1]


@pytest.mark.parametrize("api", APIS)
async def test_returns_a_right_second_answer_with_the_usage_of_both(api: str) -> None:
    path, request, write = APIS[api]
    seen, requests, line = await ask([whole(write(WRONG)), whole(write(RIGHT))], path=path, request=request)
    made, wanted = json.loads(seen.body), json.loads(write(RIGHT))
    assert {key: 2 * count for key, count in wanted["usage"].items()} == made.pop("usage")
    wanted.pop("usage")
    assert wanted == made
    assert ("2", None) == (seen.header("tool-attempts"), seen.header("tool-error"))
    assert ("delivered", "enforce", "2", "15") == (
        line["outcome"], line["validation.mode"], line["chat.attempts"], line["chat.tokens_again"],
    )  # fmt: skip
    key = "input" if api == "responses" else "messages"
    first = json.loads(request)
    begun = [{"role": "user", "content": first["input"]}] if api == "responses" else first[key]
    assert (first, begun) == (requests[0], requests[1][key][: len(begun)])
    told = json.dumps(requests[1][key][len(begun) :])
    assert "city" in told
    assert "get_weather" in told


async def test_the_next_request_contains_the_rejected_turn_and_a_result_for_each_call() -> None:
    calls = [
        {"id": f"call_{at}", "type": "function", "function": {"name": "get_weather", "arguments": text}}
        for at, text in enumerate(('{"city": "A"}', "{broken"))
    ]
    _, requests, _ = await ask([whole(chat_answer("{}", tool_calls=calls)), whole(chat_answer(RIGHT))])
    turn, valid, refused = requests[1]["messages"][1:]
    assert ['{"city": "A"}', "{}"] == [call["function"]["arguments"] for call in turn["tool_calls"]]
    assert {"role": "tool", "tool_call_id": "call_0", "content": REPEAT} == valid
    assert "call_1" == refused["tool_call_id"]
    assert "JSON" in refused["content"]


async def test_returns_the_last_answer_marked_if_none_is_right() -> None:
    seen, requests, line = await ask([whole(chat_answer(WRONG))], "{retries: 2}")
    assert 3 == len(requests)
    assert ("3", "INVALID_ARGUMENTS") == (seen.header("tool-attempts"), seen.header("tool-error"))
    assert json.loads(chat_answer(WRONG))["choices"] == json.loads(seen.body)["choices"]
    assert ("report", "3", "30") == (line["validation.mode"], line["chat.attempts"], line["chat.tokens_again"])


@pytest.mark.parametrize(
    "second",
    [answer("500 Oops", b"{}", JSON_TYPE), whole(b"no JSON"), answer("200 OK", b"hi", "Content-Type: text/plain")],
)
async def test_the_first_answer_stays_if_the_second_cannot_be_read(second: bytes) -> None:
    seen, requests, _ = await ask([whole(chat_answer(WRONG)), second])
    assert (2, chat_answer(WRONG), "1") == (len(requests), seen.body, seen.header("tool-attempts"))


FAILED = json.dumps({"error": {"message": "no room"}, "usage": {"prompt_tokens": 40, "total_tokens": 40}}).encode()


@pytest.mark.parametrize("second", [answer("500 Oops", FAILED, JSON_TYPE), whole(FAILED)])
async def test_counts_the_tokens_of_a_second_answer_without_use(second: bytes) -> None:
    seen, _, line = await ask([whole(chat_answer(WRONG)), second])
    made, wanted = json.loads(seen.body), json.loads(chat_answer(WRONG))
    assert {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55} == made.pop("usage")
    wanted.pop("usage")
    assert wanted == made
    assert ("1", "1", "40") == (seen.header("tool-attempts"), line["chat.attempts"], line["chat.tokens_again"])


async def test_a_second_answer_in_text_is_an_answer() -> None:
    seen, _, _ = await ask([whole(chat_answer(WRONG)), whole(chat_text("Which city?"))])
    assert "Which city?" == json.loads(seen.body)["choices"][0]["message"]["content"]


@pytest.mark.parametrize("model", ["{}", "{retries: 1, retry_tokens: 14}", "{retries: 1, retry_deadline: 0}"])
async def test_does_not_ask_again_without_retries_tokens_or_time(model: str) -> None:
    seen, requests, _ = await ask([whole(chat_answer(WRONG)), whole(chat_answer(RIGHT))], model)
    assert (1, chat_answer(WRONG)) == (len(requests), seen.body)


async def test_a_valid_or_repaired_answer_is_not_asked_again() -> None:
    for sent in (RIGHT, '{"city": "Oslo", "days": "3"}'):
        seen, requests, _ = await ask([whole(chat_answer(sent)), whole(chat_answer(WRONG))])
        assert (1, "1") == (len(requests), seen.header("tool-attempts"))


async def test_the_deadline_ends_a_question_under_way() -> None:
    left = [whole(chat_answer(WRONG))]

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        if not left:
            await reader.readexactly(1)
        writer.write(left.pop())

    routes = "  - {path: /v1, upstream: tools, model: {retries: 1, retry_deadline: 50ms}}"
    async with tool(script) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(CHAT, chat_request())
        async with asyncio.timeout(30):
            await server.gone.wait()
    assert (200, chat_answer(WRONG)) == (seen.status, seen.body)


async def test_mode_refuse_answers_in_place_of_a_wrong_answer() -> None:
    seen, requests, line = await ask([whole(chat_answer(WRONG))], "{mode: refuse}")
    assert (502, 1, "refused") == (seen.status, len(requests), line["outcome"])
    assert "INVALID_ARGUMENTS" == seen.header("tool-error")
    passed, _, _ = await ask([whole(chat_answer(RIGHT))], "{mode: refuse}")
    assert chat_answer(RIGHT) == passed.body


STRICT: dict[str, Any] = {
    "refusal": None,
    "annotations": [],
    "audio": None,
    "function_call": None,
    "reasoning": "y",
    "index": 0,
}


async def test_members_that_strict_servers_refuse_do_not_go_back() -> None:
    wrong = json.loads(chat_answer(WRONG, reasoning_content="Hm", **STRICT))
    wrong["choices"][0]["message"]["tool_calls"][0] |= {"index": 0, "extra_content": {"thought": "x"}}
    answers = [whole(json.dumps(wrong).encode()), whole(chat_answer(RIGHT))]
    _, requests, _ = await ask(answers)
    turn = requests[1]["messages"][1]
    assert {"role", "content", "tool_calls", "reasoning_content"} == turn.keys()
    assert {"id", "type", "function", "extra_content"} == turn["tool_calls"][0].keys()
    earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning": "c"}]
    _, requests, _ = await ask(answers, request=chat_request(messages=earlier))
    assert "y" == requests[1]["messages"][-2]["reasoning"]


async def test_doubles_the_limit_after_an_answer_that_was_cut_off() -> None:
    cut = chat_answer(WRONG).replace(b'"finish_reason": "tool_calls"', b'"finish_reason": "length"')
    for wrong, limits in ((cut, [50, 100]), (chat_answer(WRONG), [50, 50])):
        _, requests, _ = await ask([whole(wrong), whole(chat_answer(RIGHT))], request=chat_request(max_tokens=50))
        assert limits == [each["max_tokens"] for each in requests]


async def test_items_of_a_stored_conversation_are_not_repeated() -> None:
    answers = [whole(responses_answer(WRONG)), whole(responses_answer(RIGHT))]
    _, requests, _ = await ask(answers, path="/v1/responses", request=responses_request(conversation="conv_1"))
    assert ["function_call_output"] == [each["type"] for each in requests[1]["input"]]
    assert "conv_1" == requests[1]["conversation"]


@pytest.mark.parametrize("store", [True, False])
async def test_reasoning_that_the_server_has_not_stored_does_not_go_back(store: bool) -> None:
    wrong = json.loads(responses_answer(WRONG))
    wrong["output"] = [{"type": "reasoning", "id": "rs_1", "summary": []}, *wrong["output"]]
    answers = [whole(json.dumps(wrong).encode()), whole(responses_answer(RIGHT))]
    _, requests, _ = await ask(answers, path="/v1/responses", request=responses_request(store=store))
    assert store == ("reasoning" in [each.get("type") for each in requests[1]["input"]])

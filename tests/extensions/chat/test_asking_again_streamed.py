"""A second request to a model that streams, if the client has received nothing that the next answer would
contradict."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.extensions.chat.answers import chat_answer, chat_request, messages_request, responses_request, whole
from tests.extensions.chat.streams import chat_stream, data, messages_stream, responses_stream, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, post, replies, tool

CHAT = "/v1/chat/completions"
WRONG, RIGHT = ('{"days"', ": 3}"), ('{"city": "Oslo"', ', "days": 3}')
APIS: dict[str, tuple[str, bytes, Any]] = {
    "chat": (CHAT, chat_request(stream=True), chat_stream),
    "responses": ("/v1/responses", responses_request(stream=True), responses_stream),
}


async def ask(
    answers: Sequence[bytes], path: str = CHAT, request: bytes = chat_request(stream=True), model: str = "{retries: 1}"
) -> tuple[Seen, list[Any], dict[str, Any]]:
    routes = f"  - {{path: /v1, upstream: tools, model: {model}}}"
    async with tool(replies(*answers)) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(path, request)
        return seen, [json.loads(one.body) for one in server.seen], proxy.lines()[-1]


@pytest.mark.parametrize("api", APIS)
async def test_a_second_answer_takes_the_place_of_the_first(api: str) -> None:
    path, request, write = APIS[api]
    seen, requests, line = await ask([streamed(write(WRONG)), streamed(write(RIGHT))], path, request)
    wanted = b"".join(write(RIGHT)).replace(b'"usage": {"total_tokens": 15}', b'"usage": {"total_tokens":30}')
    assert wanted == seen.body
    assert (2, True) == (len(requests), requests[1]["stream"])
    told = json.dumps(requests[1]["messages" if api == "chat" else "input"])
    assert "city" in told
    assert ("delivered", "enforce", "2") == (line["outcome"], line["validation.mode"], line["chat.attempts"])


async def test_the_next_request_contains_the_rejected_turn_of_messages() -> None:
    begun = [event for event in messages_stream(WRONG) if b'"index": 0' not in event]
    request = messages_request(stream=True)
    seen, requests, _ = await ask([streamed(begun), streamed(messages_stream(RIGHT))], "/v1/messages", request)
    (turn, results) = requests[1]["messages"][1:]
    assert ["tool_use", "tool_result"] == [turn["content"][0]["type"], results["content"][0]["type"]]
    assert {"days": 3} == turn["content"][0]["input"]
    assert b"Oslo" in seen.body
    assert 1 == seen.body.count(b"message_start\n")


async def test_does_not_ask_again_once_text_was_sent() -> None:
    events = chat_stream(WRONG, text=("It ",))
    seen, requests, line = await ask([streamed(events), streamed(chat_stream(RIGHT))])
    assert (b"".join(events), 1, "report") == (seen.body, len(requests), line["validation.mode"])


@pytest.mark.parametrize("second", [answer("500 Oops", b"{}", JSON_TYPE), answer("200 OK", b"{}", JSON_TYPE)])
async def test_the_first_answer_stays_if_there_is_no_second(second: bytes) -> None:
    seen, requests, line = await ask([streamed(chat_stream(WRONG)), second])
    assert (b"".join(chat_stream(WRONG)), 2, "report") == (seen.body, len(requests), line["validation.mode"])


async def test_returns_the_last_answer_if_none_is_right() -> None:
    seen, requests, line = await ask([streamed(chat_stream(WRONG))], model="{retries: 2}")
    wanted = b"".join(chat_stream(WRONG)).replace(b'"usage": {"total_tokens": 15}', b'"usage": {"total_tokens":45}')
    assert (wanted, 3, "3") == (seen.body, len(requests), line["chat.attempts"])


async def test_a_right_answer_passes_byte_for_byte() -> None:
    for events in (chat_stream(RIGHT), chat_stream(RIGHT, text=("It ", "rains"))):
        seen, requests, _ = await ask([streamed(events)])
        assert (b"".join(events), 1) == (seen.body, len(requests))


async def test_comments_before_an_answer_do_not_wait_for_it() -> None:
    for text in ((), ("It ", "rains")):
        events = [b": busy\n\n", b": busy\n\n", *chat_stream(RIGHT, text=text)]
        seen, _, _ = await ask([streamed(events)])
        assert b"".join(events) == seen.body


async def test_a_call_too_long_to_be_held_passes_behind_its_opening() -> None:
    events = chat_stream(('{"x": "', *["y" * 100] * 20, '"}'))[:-3]
    seen, requests, _ = await ask([streamed(events)], model="{retries: 1, max_answer: 1000}")
    assert (b"".join(events), 1) == (seen.body, len(requests))


OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


def break_off(events: Sequence[bytes]) -> bytes:
    """A streamed answer that ends within a chunk."""
    body = b"".join(events)
    return OPEN + b"%x\r\n%b\r\nff\r\n" % (len(body), body)


@pytest.mark.parametrize(
    "second",
    [break_off(chat_stream(RIGHT)[:2]), streamed(chat_stream(RIGHT)[:2]), streamed([]), streamed([b": busy\n\n"])],
)
async def test_the_first_answer_stays_if_the_second_breaks_off_before_it_says_anything(second: bytes) -> None:
    left = [streamed(chat_stream(WRONG)), second]

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(left.pop(0))
        if not left:
            writer.close()

    async with (
        tool(script) as server,
        proxied("  - {path: /v1, upstream: tools, model: {retries: 1}}", server.url) as proxy,
    ):
        seen = await proxy.post(CHAT, chat_request(stream=True))
    assert (b"".join(chat_stream(WRONG)), 2) == (seen.body, len(server.seen))


def begin_block(tokens: int) -> bytes:
    message = {"id": "m2", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": tokens}}
    return data({"type": "message_start", "message": message}, "message_start")


CALL_BLOCK = [event for event in messages_stream(WRONG) if b'"index": 0' not in event]
FAILED = {"id": "r2", "status": "failed", "error": {"code": "server_error"}, "usage": {"input_tokens": 40}}
# An API -> a wrong answer, one that comes to nothing but reports 40 tokens, and the wrong one with the tokens of both.
LOST: dict[str, tuple[str, bytes, list[bytes], bytes, bytes]] = {
    "chat": (
        CHAT,
        chat_request(stream=True),
        chat_stream(WRONG),
        streamed([data({"error": {"message": "no room"}, "usage": {"prompt_tokens": 40, "total_tokens": 40}})]),
        b"".join(chat_stream(WRONG)).replace(b'"usage": {"total_tokens": 15}', b'"usage": {"total_tokens":55}'),
    ),
    "responses": (
        "/v1/responses",
        responses_request(stream=True),
        [each.replace(b'{"total_tokens": 15}', b'{"input_tokens": 15}') for each in responses_stream(WRONG)],
        streamed([data({"type": "response.failed", "response": FAILED}, "response.failed")]),
        b"".join(responses_stream(WRONG)).replace(b'"usage": {"total_tokens": 15}', b'"usage": {"input_tokens":55}'),
    ),
    "messages": (
        "/v1/messages",
        messages_request(stream=True),
        CALL_BLOCK,
        streamed([begin_block(40)]),
        b"".join(CALL_BLOCK).replace(b'"usage": {"input_tokens": 10}', b'"usage": {"input_tokens":50}'),
    ),
}


@pytest.mark.parametrize("api", LOST)
async def test_counts_the_tokens_of_a_second_answer_without_use(api: str) -> None:
    path, request, first, second, wanted = LOST[api]
    seen, requests, line = await ask([streamed(first), second], path, request)
    assert (wanted, 2) == (seen.body, len(requests))
    assert ("1", "40", "report") == (line["chat.attempts"], line["chat.tokens_again"], line["validation.mode"])


async def test_a_refused_stream_counts_what_its_own_answer_reports() -> None:
    def write(tokens: int) -> bytes:
        usage = b'{"prompt_tokens": %d}' % tokens
        return streamed([event.replace(b'{"total_tokens": 15}', usage) for event in chat_stream(WRONG)])

    seen, _, line = await ask([write(7), write(20)], model="{mode: refuse, retries: 1}")
    assert (502, "2", "20") == (seen.status, line["chat.attempts"], line["chat.tokens_again"])


async def test_the_deadline_holds_until_the_second_answer_says_something() -> None:
    left = [streamed(chat_stream(WRONG))]

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        if left:
            writer.write(left.pop())
            return
        writer.write(OPEN)
        await reader.readexactly(1)

    routes = "  - {path: /v1, upstream: tools, model: {retries: 1, retry_deadline: 50ms}}"
    async with tool(script) as server, proxied(routes, server.url) as proxy:
        async with asyncio.timeout(30):
            seen = await proxy.post(CHAT, chat_request(stream=True))
            await server.gone.wait()
    assert b"".join(chat_stream(WRONG)) == seen.body


async def test_returns_a_wrong_answer_that_breaks_off_after_its_calls_unchanged() -> None:
    events = chat_stream(WRONG)[:-2]

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(break_off(events))
        writer.close()

    routes = "  - {path: /v1, upstream: tools, model: {retries: 1}}"
    async with tool(script) as server, proxied(routes, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post(CHAT, chat_request(stream=True)))
        got = await reader.read()
        writer.close()
    assert all(event.strip() in got for event in events)
    assert not got.endswith(b"0\r\n\r\n")


async def test_the_usage_of_a_second_answer_that_stays_is_the_sum() -> None:
    failed = answer("500 Oops", b"{}", JSON_TYPE)
    seen, requests, _ = await ask([streamed(chat_stream(WRONG))] * 2 + [failed], model="{retries: 2}")
    wanted = b"".join(chat_stream(WRONG)).replace(b'"usage": {"total_tokens": 15}', b'"usage": {"total_tokens":30}')
    assert (wanted, 3) == (seen.body, len(requests))


async def test_several_choices_are_not_asked_about() -> None:
    events = chat_stream(WRONG)
    seen, requests, _ = await ask(
        [streamed(events), streamed(chat_stream(RIGHT))], request=chat_request(stream=True, n=2)
    )
    assert (b"".join(events), 1) == (seen.body, len(requests))


async def test_valid_calls_that_all_have_one_number_pass_byte_for_byte() -> None:
    def write(at: int) -> bytes:
        function = {"name": "get_weather", "arguments": f'{{"city": "{at}"}}'}
        delta = {"tool_calls": [{"index": 0, "id": f"call_{at}", "type": "function", "function": function}]}
        return data({"choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls" if at else None}]})

    events = [write(0), write(1), b"data: [DONE]\n\n"]
    seen, requests, _ = await ask([streamed(events), streamed(chat_stream(RIGHT))])
    assert (b"".join(events), 1) == (seen.body, len(requests))


async def test_an_answer_that_reports_no_usage_counts_by_the_bytes_of_question_and_calls() -> None:
    request = chat_request(stream=True)
    silent = [event for event in chat_stream(WRONG) if b"usage" not in event]
    size = len(request) + len("get_weather") + len("".join(WRONG))
    for tokens, wanted in ((size, 2), (size - 1, 1)):
        answers = [streamed(silent), streamed(chat_stream(RIGHT))]
        _, requests, _ = await ask(answers, request=request, model=f"{{retries: 1, retry_tokens: {tokens}}}")
        assert wanted == len(requests)


async def test_the_tokens_of_asking_again_are_those_that_later_answers_report() -> None:
    def write(pieces: Sequence[str], tokens: int) -> bytes:
        usage = b'{"prompt_tokens": %d}' % tokens
        return streamed([event.replace(b'{"total_tokens": 15}', usage) for event in chat_stream(pieces)])

    _, _, line = await ask([write(WRONG, 7), write(WRONG, 20), write(RIGHT, 300)], model="{retries: 2}")
    assert ("3", "320") == (line["chat.attempts"], line["chat.tokens_again"])


@pytest.mark.parametrize("stream", [True, False])
async def test_each_further_request_has_its_own_idempotency_key(stream: bool) -> None:
    answers = [streamed(chat_stream(WRONG)) if stream else whole(chat_answer("".join(WRONG)))]
    routes = "  - {path: /v1, upstream: tools, model: {retries: 2}}"
    async with tool(replies(*answers)) as server, proxied(routes, server.url) as proxy:
        for _ in range(2):
            await proxy.post(CHAT, chat_request(stream=stream), "Idempotency-Key: key-1")
    first, second, third, *again = (one.header("idempotency-key") for one in server.seen)
    assert ("key-1", 3) == (first, len({first, second, third}))
    assert [first, second, third] == again


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    return data({"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def block(at: int, kind: str, *deltas: dict[str, Any], **more: Any) -> list[bytes]:
    """The events of one block of Messages."""
    return [
        data({"type": "content_block_start", "index": at, "content_block": {"type": kind, **more}}),
        *(data({"type": "content_block_delta", "index": at, "delta": each}) for each in deltas),
        data({"type": "content_block_stop", "index": at}),
    ]


def item(**more: Any) -> list[bytes]:
    """The events of one item of Responses."""
    return [
        data({"type": "response.output_item.added", "output_index": 0, "item": more}),
        data({"type": "response.reasoning_summary_part.added", "part": {"type": "summary_text", "text": ""}}),
        data({"type": "response.reasoning_summary_text.delta", "delta": "Hm"}),
        data({"type": "response.output_item.done", "output_index": 0, "item": more}),
    ]


THOUGHT = {"type": "thinking", "thinking": "Hm, Oslo.", "signature": "EqQB"}
REASONED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
# How an answer of a reasoning model begins, by API, and the refused turn in the next question.
BEGINNINGS: dict[str, tuple[str, list[bytes], Any]] = {
    "reasoning": (
        "chat",
        [chunk(role="assistant", content=None), chunk(reasoning_content="Hm, "), chunk(reasoning_content="Oslo.")],
        {"content": None, "reasoning_content": "Hm, Oslo."},
    ),
    "reasoning of another name": ("chat", [chunk(role="assistant"), chunk(reasoning="Hm")], {"content": None}),
    "blank lines": ("chat", [chunk(role="assistant", content="\n\n"), chunk(content=" ")], {"content": None}),
    "thinking": (
        "messages",
        [
            *block(0, "thinking", {"type": "thinking_delta", "thinking": "Hm, "},
                   {"type": "thinking_delta", "thinking": "Oslo."}, {"type": "signature_delta", "signature": "EqQB"},
                   thinking="", signature=""),
            *block(1, "redacted_thinking", data="zz"),
            *block(2, "text", {"type": "text_delta", "text": "\n\n"}, text=""),
        ],
        [THOUGHT, {"type": "redacted_thinking", "data": "zz"}],
    ),
    "a reasoning item": ("responses", item(**REASONED), [REASONED]),
}  # fmt: skip
WRITERS = {**APIS, "messages": ("/v1/messages", messages_request(stream=True), messages_stream)}


@pytest.mark.parametrize("why", BEGINNINGS)
async def test_asks_again_although_reasoning_or_blanks_came_first(why: str) -> None:
    api, begun, turn = BEGINNINGS[why]
    path, request, write = WRITERS[api]
    calls = [event for event in write(WRONG) if b'"text": ""' not in event]
    first = [*begun, *[event for event in calls if b"response.completed" not in event]]
    seen, requests, line = await ask([streamed(first), streamed([*begun, *write(RIGHT)])], path, request)
    assert (2, "2", "delivered") == (len(requests), line["chat.attempts"], line["outcome"])
    assert b"Oslo" in seen.body
    assert seen.body.startswith(b"".join(begun))
    assert 1 == seen.body.count(begun[0])
    if api == "responses":
        assert turn == [each for each in requests[1]["input"] if each.get("type") == "reasoning"]
    elif api == "messages":
        assert turn == requests[1]["messages"][1]["content"][:-1]
    else:
        message = requests[1]["messages"][1]
        assert turn == {key: message[key] for key in message.keys() - {"role", "tool_calls"}}


async def test_reasoning_passes_at_once_if_no_answer_may_follow() -> None:
    go_on = asyncio.Event()
    begun, later = [chunk(role="assistant"), chunk(reasoning_content="Hm")], chat_stream(WRONG)[1:]

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        size = sum(map(len, [*begun, *later]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % size)
        writer.write(b"".join(begun))
        await go_on.wait()
        writer.write(b"".join(later))

    routes = "  - {path: /v1, upstream: tools, model: {mode: refuse}}"
    async with tool(script) as server, proxied(routes, server.url) as proxy, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post(CHAT, chat_request(stream=True)))
        text = b""
        while b"Hm" not in text:
            text += await reader.read(65536)
        go_on.set()
        while b"0\r\n\r\n" not in text:
            text += await reader.read(65536)
        writer.close()
    assert b"INVALID_ARGUMENTS" in text


CUT: dict[str, tuple[str, list[bytes]]] = {
    "chat": ("max_completion_tokens", [each.replace(b'"tool_calls"}', b'"length"}') for each in chat_stream(WRONG)]),
    "responses": (
        "max_output_tokens",
        [each.replace(b"response.completed", b"response.incomplete") for each in responses_stream(WRONG)],
    ),
    "messages": (
        "max_tokens",
        [each.replace(b'"stop_reason": "tool_use"', b'"stop_reason": "max_tokens"') for each in messages_stream(WRONG)],
    ),
}


@pytest.mark.parametrize("api", CUT)
async def test_doubles_the_limit_after_an_answer_that_was_cut_off(api: str) -> None:
    path, request, write = WRITERS[api]
    limit, cut = CUT[api]
    body = json.dumps({**json.loads(request), limit: 100}).encode()
    _, requests, _ = await ask([streamed(cut), streamed(write(RIGHT))], path, body)
    assert [100, 200] == [each[limit] for each in requests]
    _, requests, _ = await ask([streamed(write(WRONG)), streamed(write(RIGHT))], path, body)
    assert [100, 100] == [each[limit] for each in requests]

"""Answers that a route cannot read: `mode: refuse` rejects them, any other mode relays, counts and reports them."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.core.json.contentcoding import EventSplitter
from proxy.extensions.chat.core.events import read_event
from tests.extensions.chat.answers import chat_answer, chat_request, responses_request, whole
from tests.extensions.chat.streams import chat_stream, data, streamed
from tests.extensions.chat.test_asking_again_streamed import break_off
from tests.extensions.chat.test_refused_streams import APIS
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import Seen, Tool, answer, post, tool

CHAT = "/v1/chat/completions"
WRONG, REPAIRABLE, REPAIRED = (
    ('{"days"', ": 3}"),
    ('{"city": "Oslo", ', '"days": "3"}'),
    ('{"city":"Oslo","days":3}', ""),
)
PASS, REFUSE = "{max_answer: 2000}", "{max_answer: 2000, mode: refuse}"
LONG = chat_stream(('{"x": "', *["y" * 1_000] * 300, '"}'))
FUNCTION = {"name": "get_weather", "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}}}


@asynccontextmanager
async def serving(model: str, *answers: bytes) -> AsyncIterator[tuple[Tool, Proxied]]:
    """A model server with these answers behind a route; it closes each connection."""
    left = [*answers]

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(left.pop(0))
        writer.close()

    routes = f"  - {{path: /v1, upstream: tools, model: {model}}}"
    async with tool(script) as server, proxied(routes, server.url) as proxy:
        yield server, proxy


async def list_reasons(proxy: Proxied) -> list[tuple[str, float]]:
    """The reasons that the metric counts."""
    rows = (await proxy.ask_admin("/metrics")).body.decode().splitlines()
    found = [row.split(" ") for row in rows if row.startswith("toolproxy_model_unread_total{")]
    return [(row[0].partition('reason="')[2].partition('"')[0], float(row[1])) for row in found]


def list_reports(proxy: Proxied) -> list[dict[str, Any]]:
    lines = [*map(json.loads, proxy.log.getvalue().splitlines())]
    return [line for line in lines if line["message"] == "model calls not validated"]


# --- requests ---------------------------------------------------------------------------------------------------------
GEMINI = {"contents": [], "tools": [{"functionDeclarations": [FUNCTION]}]}
OLLAMA = {"model": "m", "messages": [], "tools": [{"type": "function", "function": FUNCTION}]}
REQUESTS: dict[str, tuple[str, bytes, tuple[str, ...], str]] = {
    "Ollama": ("/v1/api/chat", json.dumps(OLLAMA).encode(), (), "api"),
    "Gemini": ("/v1/models/g:generateContent", json.dumps(GEMINI).encode(), (), "api"),
    "Bedrock": ("/v1/model/m/converse", json.dumps({"toolConfig": {"tools": [{}]}}).encode(), (), "api"),
    "another API that is no JSON": ("/v1/api/chat", json.dumps(OLLAMA).encode()[:-1], (), "api"),
    "a response of later": ("/v1/responses", responses_request(background=True), (), "api"),
    "compressed": (CHAT, gzip.compress(chat_request()), ("Content-Encoding: gzip",), "request"),
    "no JSON": (CHAT, chat_request()[:-1], (), "request"),
}


@pytest.mark.parametrize("why", REQUESTS)
async def test_a_request_that_is_not_read_is_refused_or_counted_and_reported_once(why: str) -> None:
    path, body, headers, reason = REQUESTS[why]
    sent = whole(b'{"calls":  []}')
    async with serving(REFUSE) as (server, proxy):
        seen = await proxy.post(path, body, *headers)
        assert (400, "BAD_REQUEST", 0) == (seen.status, seen.header("tool-error"), len(server.seen))
        assert "refuses calls that" in json.loads(seen.body)["error"]["message"] or "refuses such calls" in str(
            seen.body
        )
    async with serving(PASS, sent, sent) as (server, proxy):
        for _ in range(2):
            seen = await proxy.post(path, body, *headers)
            assert (200, b'{"calls":  []}') == (seen.status, seen.body)
        assert [body, body] == [each.body for each in server.seen]
        assert [(reason, 2.0)] == await list_reasons(proxy)
        assert [reason] == [line["reason"] for line in list_reports(proxy)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", b'{"input": "what \\"tools\\" are"}'),
        ("/v1/embeddings", b'{"input": "x", "tools": []}'),
        ("/v1/messages/count_tokens", b'{"tools": [{"name": "x"}]}'),
    ],
)
async def test_a_request_without_calls_is_relayed_in_every_mode(path: str, body: bytes) -> None:
    async with serving(REFUSE, whole(b"{}")) as (server, proxy):
        assert 200 == (await proxy.post(path, body)).status
        assert [body] == [each.body for each in server.seen]
        assert [] == await list_reasons(proxy)


async def test_a_path_that_ends_in_a_slash_is_read() -> None:
    wrong = whole(chat_answer("".join(REPAIRABLE)))
    async with serving(REFUSE, wrong) as (_, proxy):
        assert b'{\\"city\\":\\"Oslo\\",\\"days\\":3}' in (await proxy.post(f"{CHAT}/", chat_request())).body


# --- answers ----------------------------------------------------------------------------------------------------------
ANSWERS: dict[str, tuple[bytes, str]] = {
    "no JSON": (whole(b"Busy."), "no_json"),
    "a list": (whole(b"[]"), "no_json"),
    "plain text": (answer("200 OK", b"{}", "Content-Type: text/plain"), "no_json"),
    "another success": (answer("203 Changed", b"{}", "Content-Type: text/plain"), "no_json"),
    "compressed": (whole(gzip.compress(chat_answer("{}")), "Content-Encoding: gzip"), "compressed"),
    "too long": (whole(chat_answer("x" * 3_000)), "too_long"),
    "cut": (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{}", "cut"),
}


@pytest.mark.parametrize("why", ANSWERS)
async def test_an_answer_that_is_not_read_is_refused_or_counted(why: str) -> None:
    sent, reason = ANSWERS[why]
    async with serving(REFUSE, sent) as (_, proxy):
        seen = await proxy.post(CHAT, chat_request())
        assert (502, "UPSTREAM_BAD_ANSWER") == (seen.status, seen.header("tool-error"))
        assert "could not be read" in json.loads(seen.body)["error"]["message"]
        assert [(reason, 1.0)] == await list_reasons(proxy)
    if reason == "cut":
        return  # its end is missing for the client, too
    async with serving(PASS, sent) as (_, proxy):
        assert sent.endswith((await proxy.post(CHAT, chat_request())).body)
        assert [(reason, 1.0)] == await list_reasons(proxy)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "end", [b"", b"data:[DONE]\n\n", b"data:  [DONE] \r\n\r\n", b"event: end\ndata: [DONE]\n\n", b"data: [DONE]"]
)
async def test_a_stream_ends_its_calls_properly_however_it_ends(api: str, end: bytes) -> None:
    path, request, write = APIS[api]

    def cut(arguments: tuple[str, str]) -> list[bytes]:
        ends = (
            b'"finish_reason": "tool_calls"',
            b'"usage"',
            b"response.completed",
            b"message_delta",
            b"message_stop",
            b"[DONE]",
        )
        return [*(event for event in write(arguments) if not any(each in event for each in ends)), end]

    async with serving(REFUSE, streamed(cut(WRONG))) as (_, proxy):
        seen = await proxy.post(path, request)
        assert b"The model's call is refused" in seen.body
        assert b"tool_use" not in seen.body
        assert api == "messages" or (502, "INVALID_ARGUMENTS") == (seen.status, seen.header("tool-error"))
    for model in (PASS, REFUSE):
        async with serving(model, streamed(cut(REPAIRABLE)), streamed(cut(REPAIRED))) as (_, proxy):
            seen = await proxy.post(path, request)
            assert "repaired" == proxy.lines()[-1]["outcome"]
            assert seen.body.endswith(end)


async def test_asks_a_model_again_whose_stream_ends_without_a_reason() -> None:
    first, second = (
        [event for event in chat_stream(each) if b'"tool_calls"}' not in event][:-2] for each in (WRONG, REPAIRED)
    )
    async with serving("{retries: 1}", streamed(first), streamed(second)) as (server, proxy):
        seen = await proxy.post(CHAT, chat_request(stream=True))
        assert (2, b"".join(second)) == (len(server.seen), seen.body)
    async with serving("{retries: 1}", streamed(first), streamed(first)) as (server, proxy):
        seen = await proxy.post(CHAT, chat_request(stream=True))
        assert (2, b"".join(first)) == (len(server.seen), seen.body)


STREAMS: dict[str, tuple[bytes, str]] = {
    "a call that is too long": (streamed(LONG), "too_long"),
    "an event that is too long": (streamed([b"data: {" + b"x" * 3_000]), "too_long"),
    "a call that breaks off": (break_off(chat_stream(WRONG)[:3]), "cut"),
    "an event that is no JSON": (streamed([b"data: {broken\n\n"]), "no_json"),
    "a number that is none": (streamed([data({"choices": [], "x": 1}).replace(b"1", b"NaN")]), "no_json"),
}


@pytest.mark.parametrize("why", STREAMS)
@pytest.mark.parametrize("text", [(), ("It ", "rains")])
async def test_a_stream_that_is_not_read_is_refused_or_counted(why: str, text: tuple[str, ...]) -> None:
    sent, reason = STREAMS[why]
    if text:
        _, _, body = sent.partition(b"\r\n\r\n")
        words = b"".join(chat_stream((), text=text)[:3])
        sent = break_off([words, *chat_stream(WRONG)[1:3]]) if reason == "cut" else streamed([words, body])
    async with serving(REFUSE, sent) as (_, proxy):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post(CHAT, chat_request(stream=True), "Connection: close"))
        seen = await reader.read()
        writer.close()
        assert [(reason, 1.0)] == await list_reasons(proxy)
    assert b"could not be read" in seen
    assert b"get_weather" not in seen
    assert text or seen.startswith(b"HTTP/1.1 502")
    if reason != "cut":
        async with serving(PASS, sent) as (_, proxy):
            assert sent.endswith((await proxy.post(CHAT, chat_request(stream=True))).body)
            assert [(reason, 1.0)] == await list_reasons(proxy)


async def test_long_reasoning_does_not_leave_a_call_unread() -> None:
    events = [data({"choices": [{"index": 0, "delta": {"role": "assistant"}}], "x": "y" * 3_000}), *chat_stream(WRONG)]
    async with serving("{max_answer: 2000, mode: refuse}", streamed(events)) as (_, proxy):
        seen = await proxy.post(CHAT, chat_request(stream=True))
    assert b'get_weather"' not in seen.body
    assert b"INVALID_ARGUMENTS" in seen.body


# --- older and unusual forms ------------------------------------------------------------------------------------------
def write_legacy(arguments: str) -> bytes:
    message = {"role": "assistant", "content": None, "function_call": {"name": "get_weather", "arguments": arguments}}
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "function_call"}]}).encode()


def stream_legacy(pieces: tuple[str, ...]) -> list[bytes]:
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"function_call": {"name": "get_weather", "arguments": ""}}, None)
    ]
    deltas += [({"function_call": {"arguments": piece}}, None) for piece in pieces]
    deltas.append(({}, "function_call"))
    return [
        *(data({"choices": [{"index": 0, "delta": delta, "finish_reason": why}]}) for delta, why in deltas),
        b"data: [DONE]\n\n",
    ]


async def test_the_older_function_call_is_read() -> None:
    request: dict[str, Any] = {"model": "m", "messages": [], "functions": [FUNCTION]}
    async with serving(REFUSE, whole(write_legacy('{"days": "3"}')), whole(write_legacy('{"days": "x"}'))) as (
        _,
        proxy,
    ):
        assert write_legacy('{"days":3}') == (await proxy.post(CHAT, json.dumps(request).encode())).body
        assert 502 == (await proxy.post(CHAT, json.dumps(request).encode())).status
    request["stream"] = True
    streams = streamed(stream_legacy(('{"days": ', '"3"}'))), streamed(stream_legacy(('{"days": ', '"x"}')))
    async with serving(REFUSE, *streams) as (_, proxy):
        wanted = b"".join(stream_legacy(('{"days":3}', "")))
        assert wanted == (await proxy.post(CHAT, json.dumps(request).encode())).body
        assert 502 == (await proxy.post(CHAT, json.dumps(request).encode())).status


async def test_data_in_several_lines_is_read_and_written_in_one() -> None:
    def write(arguments: tuple[str, str], break_: bytes) -> list[bytes]:
        return [event.replace(b', "choices"', b"," + break_ + b' "choices"') for event in chat_stream(arguments)]

    sent = [b"\xef\xbb\xbf", *write(REPAIRABLE, b"\ndata:")]
    async with serving(REFUSE, streamed(sent)) as (_, proxy):
        seen = await proxy.post(CHAT, chat_request(stream=True))
        assert "repaired" == proxy.lines()[-1]["outcome"]
    assert [*map(read_event, EventSplitter().feed(b"".join(write(REPAIRED, b""))))] == [
        *map(read_event, EventSplitter().feed(seen.body))
    ]


@pytest.mark.parametrize("done", [[], [b"data: [DONE]\n\n"]])
async def test_a_call_that_an_error_of_the_server_ends_is_not_asked_for_again(done: list[bytes]) -> None:
    failed = data({"error": {"message": "pop from empty list", "code": 500}})
    sent = [*chat_stream(WRONG)[:3], failed, *done]
    async with serving("{retries: 1}", streamed(sent)) as (server, proxy):
        seen = await proxy.post(CHAT, chat_request(stream=True))
        assert (1, b"".join(sent)) == (len(server.seen), seen.body)
    async with serving(REFUSE, streamed(sent)) as (_, proxy):
        assert 502 == (await proxy.post(CHAT, chat_request(stream=True))).status

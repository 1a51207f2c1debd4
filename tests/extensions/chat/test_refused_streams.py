"""`mode: refuse` for streams: an error takes the place of wrong calls, as the API has errors, and never a call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.extensions.chat.answers import EVENTS_TYPE, chat_request, messages_request, responses_request
from tests.extensions.chat.streams import chat_stream, messages_stream, responses_stream, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, post, replies, tool

CHAT = "/v1/chat/completions"
WRONG, RIGHT = ('{"days"', ": 3}"), ('{"city": "Oslo"', "}")
APIS: dict[str, tuple[str, bytes, Any]] = {
    "chat": (CHAT, chat_request(stream=True), chat_stream),
    "responses": ("/v1/responses", responses_request(stream=True), responses_stream),
    "messages": ("/v1/messages", messages_request(stream=True), messages_stream),
}


async def ask(
    answers: Sequence[Sequence[bytes]], api: str = "chat", model: str = "{mode: refuse}"
) -> tuple[Seen, int, dict[str, Any]]:
    path, request, _ = APIS[api]
    routes = f"  - {{path: /v1, upstream: tools, model: {model}}}"
    async with tool(replies(*map(streamed, answers))) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(path, request)
        return seen, len(server.seen), proxy.lines()[-1]


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_an_answer_that_begins_with_a_wrong_call_is_refused_before_it_begins(api: str) -> None:
    seen, _, line = await ask([APIS[api][2](WRONG)], api)
    assert (502, "INVALID_ARGUMENTS") == (seen.status, seen.header("tool-error"))
    error = json.loads(seen.body)["error"]
    assert ("INVALID_ARGUMENTS", "server_error") == (error["code"], error["type"])
    assert ("refused", "get_weather") == (line["outcome"], line["gen_ai.tool.name"])


@pytest.mark.parametrize("api", APIS)
async def test_an_error_ends_a_stream_whose_text_has_gone_out(api: str) -> None:
    events = APIS[api][2](WRONG, text=("It ", "rains"))
    begun = next(at for at, event in enumerate(events) if b"get_weather" in event)
    path, request, _ = APIS[api]
    go_on = asyncio.Event()

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{EVENTS_TYPE}\r\nContent-Length: {sum(map(len, events))}\r\n\r\n".encode())
        writer.write(b"".join(events[:begun]))
        await go_on.wait()
        writer.write(b"".join(events[begun:]))

    routes = "  - {path: /v1, upstream: tools, model: {mode: refuse}}"
    async with tool(script) as server, proxied(routes, server.url) as proxy, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post(path, request))
        text = b""
        while b"rains" not in text:
            text += await reader.read(65536)
        go_on.set()
        while b"0\r\n\r\n" not in text:
            text += await reader.read(65536)
        writer.close()
        line = proxy.lines()[-1]
    assert b'"name"' not in text
    told = json.loads(text.split(b"data: ")[-1].split(b"\n")[0])
    assert told.get("sequence_number") == (begun if api == "responses" else None)
    error = told if api == "responses" else told["error"]
    assert error["message"].startswith("The model's call is refused. ")
    assert "city" in error["message"]
    assert ("refused", "get_weather") == (line["outcome"], line["gen_ai.tool.name"])


@pytest.mark.parametrize("api", APIS)
async def test_valid_calls_pass_byte_for_byte(api: str) -> None:
    events = APIS[api][2](RIGHT)
    seen, _, _ = await ask([events], api)
    assert (200, b"".join(events)) == (seen.status, seen.body)


async def test_asks_the_model_again_before_it_rejects_an_answer() -> None:
    seen, asked, _ = await ask([chat_stream(WRONG), chat_stream(RIGHT)], model="{mode: refuse, retries: 1}")
    assert (200, 2) == (seen.status, asked)
    assert b"Oslo" in seen.body
    seen, asked, line = await ask([chat_stream(WRONG), chat_stream(WRONG)], model="{mode: refuse, retries: 1}")
    assert (502, "INVALID_ARGUMENTS", 2) == (seen.status, seen.header("tool-error"), asked)
    assert "2" == line["chat.attempts"]

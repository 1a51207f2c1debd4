"""Streamed answers: text passes as it comes, calls are held until they are whole, and what is not repaired keeps its
bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from proxy.core.json.contentcoding import EventSplitter
from tests.extensions.chat.answers import EVENTS_TYPE, ROUTES, chat_request, messages_request, responses_request
from tests.extensions.chat.streams import chat_stream, data, messages_stream, responses_stream, streamed
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, exchange, post, replies, tool

CHAT = "/v1/chat/completions"
Write = Callable[..., list[bytes]]
APIS: dict[str, tuple[str, bytes, Write]] = {
    "chat": (CHAT, chat_request(stream=True), chat_stream),
    "responses": ("/v1/responses", responses_request(stream=True), responses_stream),
    "messages": ("/v1/messages", messages_request(stream=True), messages_stream),
}


async def ask(
    events: Sequence[bytes], path: str = CHAT, request: bytes = chat_request(stream=True)
) -> tuple[Seen, dict[str, Any]]:
    async with tool(replies(streamed(events))) as server, proxied(ROUTES, server.url) as proxy:
        return await proxy.post(path, request), proxy.lines()[-1]


def list_values(body: bytes) -> Iterator[Any]:
    """The JSON of each event."""
    for event in EventSplitter().feed(body):
        line = next(line for line in event.split(b"\n") if line.startswith(b"data: "))
        if line != b"data: [DONE]":
            yield json.loads(line[6:])


def read_arguments(value: Any) -> Iterator[str]:
    """Every text of arguments at any place in an event, but not those of whole items."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if (key in ("arguments", "partial_json") and isinstance(inner, str)) or (
                key == "delta" and isinstance(inner, str)
            ):
                yield inner
            else:
                yield from read_arguments(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from read_arguments(inner)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("pieces", [('{"city": "Oslo"}',), ('{"ci', 'ty":', ' "Oslo"', ', "days": 2}')])
async def test_a_valid_call_keeps_its_events_byte_for_byte(api: str, pieces: tuple[str, ...]) -> None:
    path, request, write = APIS[api]
    seen, line = await ask(write(pieces), path, request)
    assert (b"".join(write(pieces)), None) == (seen.body, seen.header("tool-repairs"))
    assert ("delivered", "get_weather") == (line["outcome"], line["gen_ai.tool.name"])


@pytest.mark.parametrize("api", APIS)
async def test_a_repaired_call_is_sent_as_its_api_sends_calls(api: str) -> None:
    path, request, write = APIS[api]
    seen, line = await ask(write(('{"city": "Oslo"', ', "days": "', '3"}'), "GetWeather"), path, request)
    wanted = write(('{"city":"Oslo","days":3}', "", ""))
    assert b"".join(wanted) == seen.body
    assert ("repaired", "get_weather") == (line["outcome"], line["gen_ai.tool.name"])


@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_adds_missing_arguments_if_the_api_does_not_read_none_as_an_empty_object(api: str) -> None:
    path, request, write = APIS[api]
    free: dict[str, Any] = {"name": "now"}
    tools = (
        [{"type": "function", "function": free}] if api == "chat" else [{**free, "input_schema": {"type": "object"}}]
    )
    asked = json.dumps({**json.loads(request), "tools": tools}).encode()
    seen, line = await ask(write((), "Now"), path, asked)
    arguments = [text for value in list_values(seen.body) for text in read_arguments(value)]
    assert (["{}"] if api == "chat" else []) == [text for text in arguments if text]
    assert ("repaired", "now") == (line["outcome"], line["gen_ai.tool.name"])


@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_text_passes_as_it_comes_while_the_call_is_not_yet_there(api: str) -> None:
    path, request, write = APIS[api]
    events = write(('{"city": "Oslo", "days": "3"}',), text=("It ", "may "))
    begun = next(at for at, event in enumerate(events) if b"get_weather" in event)
    go_on = asyncio.Event()

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{EVENTS_TYPE}\r\nContent-Length: {sum(map(len, events))}\r\n\r\n".encode())
        writer.write(b"".join(events[: begun + 1]))
        await go_on.wait()
        writer.write(b"".join(events[begun + 1 :]))

    async with tool(script) as server, proxied(ROUTES, server.url) as proxy, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post(path, request))
        text = b""
        while events[begun - 1] not in text:
            text += await reader.read(65536)
        assert b"get_weather" not in text
        go_on.set()
        while b"0\r\n\r\n" not in text:
            text += await reader.read(65536)
        writer.close()
    assert b'{\\"city\\":\\"Oslo\\",\\"days\\":3}' in text


@pytest.mark.parametrize("size", [1, 7, 64])
async def test_it_does_not_matter_how_the_bytes_are_cut(size: int) -> None:
    events = chat_stream(('{"city": "Oslo", ', '"days": "3"}'), text=("It ", "may "))
    whole = b"".join(events).replace(b"\n", b"\r\n")

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{EVENTS_TYPE}\r\nContent-Length: {len(whole)}\r\n\r\n".encode())
        for start, end in pairwise((*range(0, len(whole), size), len(whole))):
            writer.write(whole[start:end])
            await writer.drain()

    async with tool(script) as server, proxied(ROUTES, server.url) as proxy:
        seen = await proxy.post(CHAT, chat_request(stream=True))
    wanted = b"".join(chat_stream(('{"city":"Oslo","days":3}', ""), text=("It ", "may "))).replace(b"\n", b"\r\n")
    assert wanted == seen.body


async def test_several_calls_are_validated_each_by_itself() -> None:
    def write(second: str, third: str) -> list[bytes]:
        parts = [
            {
                "index": at,
                "id": f"call_{at}",
                "type": "function",
                "function": {"name": "get_weather", "arguments": text},
            }
            for at, text in enumerate(('{"city": "A"}', second, third))
        ]
        return [
            *(
                data({"choices": [{"index": 0, "delta": {"tool_calls": [part]}, "finish_reason": None}]})
                for part in parts
            ),
            data({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            b"data: [DONE]\n\n",
        ]

    async with (
        tool(replies(streamed(write('{"city": "B", "days": "2"}', '{"days": 1}')))) as server,
        proxied(ROUTES, server.url) as proxy,
    ):
        seen = await proxy.post(CHAT, chat_request(stream=True))
        lines = proxy.lines()
    assert b"".join(write('{"city":"B","days":2}', '{"days": 1}')) == seen.body
    assert {
        ("call_0", "delivered", "enforce"),
        ("call_1", "repaired", "enforce"),
        ("call_2", "delivered", "report"),
    } == {(line["gen_ai.tool.call.id"], line["outcome"], line["validation.mode"]) for line in lines}


def write_unnumbered(*calls: tuple[str, ...]) -> list[bytes]:
    """Calls of Responses as llama.cpp sends them: events have no `output_index`, and items end after all have come."""
    kinds: list[tuple[str, dict[str, Any]]] = []
    items = []
    for at, pieces in enumerate(calls):
        item = {"id": f"fc_{at}", "call_id": f"call_{at}", "type": "function_call", "name": "get_weather"}
        kinds.append(("response.output_item.added", {"item": {**item, "arguments": ""}}))
        kinds += [
            ("response.function_call_arguments.delta", {"item_id": item["id"], "delta": piece}) for piece in pieces
        ]
        items.append({**item, "arguments": "".join(pieces)})
    kinds += [("response.output_item.done", {"item": item}) for item in items]
    text = {"id": "msg_1", "type": "message", "content": []}
    kinds.append(("response.completed", {"response": {"output": [text, *items]}}))
    return [data({"type": kind, **rest}, kind) for kind, rest in kinds]


async def test_calls_of_responses_without_numbers_are_distinguished_by_their_items() -> None:
    valid = ('{"city": "Oslo", ', '"days": 1}')
    sent = write_unnumbered(valid, ('{"city": "Bergen",', ' "days": "3"}'))
    seen, _ = await ask(sent, *APIS["responses"][:2])
    assert b"".join(write_unnumbered(valid, ('{"city":"Bergen","days":3}', ""))) == seen.body


async def test_calls_of_responses_that_nothing_tells_apart_pass_unchanged() -> None:
    events = [
        event.replace(b'"id": "fc_0", ', b"").replace(b'"item_id": "fc_0", ', b"")
        for event in write_unnumbered(('{"city": "Oslo", "days": "3"}',))
    ]
    seen, _ = await ask(events, *APIS["responses"][:2])
    assert b"".join(events) == seen.body


async def test_a_stream_that_ends_early_or_holds_no_events_passes_unchanged() -> None:
    events = chat_stream(('{"city": "Oslo", "days"', ': "3"}'))
    for body in (events[:3], [b"data: {broken\n\n", b"\x00\xff no event"], [b""], [b": hello\n\n", *events[:2]]):
        seen, _ = await ask(body)
        assert b"".join(body) == seen.body


async def test_a_call_that_is_too_long_to_be_held_passes_unchanged() -> None:
    events = chat_stream(('{"city": "Oslo", "days": "3", "x": "', *["y" * 100] * 20, '"}'))
    routes = "  - {path: /v1, upstream: tools, model: {max_answer: 1000}}"
    async with tool(replies(streamed(events))) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(CHAT, chat_request(stream=True))
    assert b"".join(events) == seen.body


async def test_a_stream_that_breaks_off_gives_what_came_and_breaks_off() -> None:
    events = chat_stream(('{"city": "Oslo", "days": "3"}',))

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\n{EVENTS_TYPE}\r\nContent-Length: 99999\r\n\r\n".encode() + b"".join(events[:4])
        )
        await writer.drain()
        writer.close()

    async with tool(script) as server, proxied(ROUTES, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post(CHAT, chat_request(stream=True)))
        text = b""
        try:
            async with asyncio.timeout(60):
                while piece := await reader.read(65536):
                    text += piece
        except ConnectionError:
            pass
        writer.close()
        line = proxy.lines()[-1]
    assert b"0\r\n\r\n" != text[-5:]
    assert "upstream_error" == line["outcome"]


async def test_a_client_that_goes_ends_the_stream() -> None:
    events = chat_stream(('{"city": "Oslo", "days": "3"}',), text=("It ",))

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\n{EVENTS_TYPE}\r\nContent-Length: 99999\r\n\r\n".encode() + b"".join(events[:3])
        )
        await reader.readexactly(1)

    async with tool(script) as server, proxied(ROUTES, server.url) as proxy, asyncio.timeout(60):
        asking = asyncio.create_task(exchange(proxy.port, post(CHAT, chat_request(stream=True))))
        await server.arrived.wait()
        asking.cancel()
        await server.gone.wait()
    assert server.gone.is_set()


async def test_arguments_that_came_with_the_start_of_their_block_are_repaired_there() -> None:
    def write(text: str) -> list[bytes]:
        begun, *_ = (event for event in messages_stream(()) if b"get_weather" in event)
        return [begun.replace(b'"input": {}', f'"input": {text}'.encode()), *messages_stream(())[-3:]]

    path, request, _ = APIS["messages"]
    seen, _ = await ask(write('{"city": "Oslo", "days": "3"}'), path, request)
    assert b"".join(write('{"city":"Oslo","days":3}')) == seen.body


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "spell",
    [
        lambda event: event,
        lambda event: event.replace(b"_", b"\\u005f"),
        lambda event: event.replace(b"function", b"f\\u0075nction").replace(b"tool", b"t\\u006Fol"),
        lambda event: event.replace(b"\n", b"\r\n"),
    ],
)
async def test_a_call_behind_text_is_found_however_it_is_spelt(api: str, spell: Callable[[bytes], bytes]) -> None:
    path, request, write = APIS[api]
    events = [spell(event) for event in write(('{"city": "Oslo", "days": "3"}',), text=["It ", "rains. "] * 50)]
    _, line = await ask(events, path, request)
    assert ("repaired", "get_weather") == (line["outcome"], line["gen_ai.tool.name"])


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_events_without_a_mark_are_those_that_are_cut_one_by_one(size: int) -> None:
    body = b"".join(chat_stream(("{}",), text=["It ", "rains. "] * 5)) + b": ping\n\ndata: {"
    splitter, passed = EventSplitter(), b""
    for at in range(0, len(body), size):
        plain = splitter.feed_plain(body[at : at + size], (b"_call",))
        passed += b"".join(splitter.feed(body[at : at + size])) if plain is None else plain
        assert body.startswith(passed)
        assert passed.endswith(b"\n\n") or not passed
    assert body == passed + splitter.take_rest()
    assert splitter.feed_plain(b"data: {_call", (b"_call",)) is None
    assert 0 == splitter.size

"""The calls of an answer in one piece: valid ones pass byte for byte, others are repaired, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.extensions.chat.answers import (
    ROUTES,
    chat_answer,
    chat_request,
    messages_answer,
    messages_request,
    responses_answer,
    responses_request,
    whole,
)
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, replies, tool

CHAT = "/v1/chat/completions"


async def ask(
    model_answer: bytes, path: str = CHAT, request: bytes = chat_request(), routes: str = ROUTES
) -> tuple[Seen, dict[str, Any]]:
    """Returns what the client gets for an answer of the model, and the line of the log."""
    async with tool(replies(whole(model_answer))) as server, proxied(routes, server.url) as proxy:
        seen = await proxy.post(path, request)
        return seen, proxy.lines()[-1]


Write = Callable[..., bytes]
APIS: dict[str, tuple[str, bytes, Write]] = {
    "chat": (CHAT, chat_request(), lambda text, name="get_weather": chat_answer(text, name)),
    "responses": ("/v1/responses", responses_request(), responses_answer),
    "messages": (
        "/v1/messages",
        messages_request(),
        lambda text, name="get_weather": messages_answer(json.loads(text), name),
    ),
}  # fmt: skip


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("arguments", ['{"city":  "Oslo"}', '{"days":3,"city":"Oslo"}', '{"city": "\\u00d8"}'])
async def test_a_valid_call_passes_byte_for_byte(api: str, arguments: str) -> None:
    path, request, write = APIS[api]
    seen, line = await ask(write(arguments), path, request)
    assert (write(arguments), None) == (seen.body, seen.header("tool-repairs"))
    assert ("delivered", "get_weather", "call_1" if api != "messages" else "toolu_1") == (
        line["outcome"], line["gen_ai.tool.name"], line["gen_ai.tool.call.id"],
    )  # fmt: skip


@pytest.mark.parametrize("api", APIS)
async def test_arguments_are_repaired_and_no_other_byte_changes(api: str) -> None:
    path, request, write = APIS[api]
    sent, wanted = write('{"city": "Oslo", "days": "3"}'), write('{"city":"Oslo","days":3}')
    seen, line = await ask(sent, path, request)
    if api == "messages":  # arguments are JSON there, which a repair writes in its own spacing
        wanted = sent.replace(b'{\n    "city": "Oslo",\n    "days": "3"\n   }', b'{"city":"Oslo","days":3}')
    assert wanted == seen.body
    assert "number_text;path=/days" == seen.header("tool-repairs") or "path=/days" in (
        seen.header("tool-repairs") or ""
    )
    assert "repaired" == line["outcome"]


@pytest.mark.parametrize("api", APIS)
async def test_a_misspelt_name_becomes_that_of_the_only_tool_meant(api: str) -> None:
    path, request, write = APIS[api]
    seen, _ = await ask(write('{"city": "Oslo"}', "Get-Weather"), path, request)
    assert (write('{"city": "Oslo"}'), "tool_name;path=") == (seen.body, seen.header("tool-repairs"))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ["functions.get_weather:0", "functions.get_weather"])
async def test_a_name_is_that_of_the_only_tool_that_it_wraps(api: str, name: str) -> None:
    path, request, write = APIS[api]
    seen, _ = await ask(write('{"city": "Oslo"}', name), path, request)
    assert (write('{"city": "Oslo"}'), "tool_name;path=") == (seen.body, seen.header("tool-repairs"))


@pytest.mark.parametrize(
    "sent",
    [
        chat_answer('{"city": "Oslo"}', "Get-Weather"),
        chat_answer('{"city": "Oslo"}', "functions.get_weather:0"),
        chat_answer({"city": "Oslo"}),
        chat_answer('{"city": "Oslo", "days": "3"}'),
    ],
)
async def test_nothing_is_repaired_at_the_level_off(sent: bytes) -> None:
    seen, _ = await ask(sent, routes="  - {path: /v1, upstream: tools, model: {}, repair: off}")
    assert (sent, None) == (seen.body, seen.header("tool-repairs"))


async def test_a_name_with_a_token_of_a_template_is_left() -> None:
    sent = chat_answer('{"city": "Oslo"}', "get_weather<|channel|>commentary")
    seen, line = await ask(sent)
    assert (sent, None, True) == (seen.body, seen.header("tool-repairs"), line["validation.mode"] == "report")


async def test_a_name_that_two_tools_may_be_is_left() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("get_weather", "getWeather")]
    sent = chat_answer('{"city": "Oslo"}', "GET-WEATHER")
    seen, line = await ask(sent, request=chat_request(tools=tools))
    assert (sent, None, True) == (seen.body, seen.header("tool-repairs"), line["validation.mode"] == "report")


async def test_broken_json_is_repaired_at_the_level_of_the_route() -> None:
    sent = chat_answer("```json\n{'city': 'Oslo',}\n```")
    lenient = "  - {path: /v1, upstream: tools, model: {}, repair: lenient}"
    left, _ = await ask(sent)
    made, _ = await ask(sent, routes=lenient)
    assert sent == left.body
    assert chat_answer('{"city": "Oslo"}') == made.body.replace(b'{\\"city\\":\\"Oslo\\"}', b'{\\"city\\": \\"Oslo\\"}')


async def test_arguments_that_came_as_an_object_become_text() -> None:
    seen, _ = await ask(chat_answer({"city": "Oslo"}))
    call = json.loads(seen.body)["choices"][0]["message"]["tool_calls"][0]["function"]
    assert {"city": "Oslo"} == json.loads(call["arguments"])
    assert "arguments_text;path=" == seen.header("tool-repairs")


async def test_no_arguments_become_an_empty_object() -> None:
    request = chat_request(tools=[{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}])
    for sent in ("", None):
        seen, _ = await ask(chat_answer(sent, "now"), request=request)
        assert chat_answer("{}", "now") == seen.body


async def test_returns_an_answer_that_cannot_be_repaired_unchanged_and_logs_it() -> None:
    sent = chat_answer('{"days": 3}')
    seen, line = await ask(sent)
    assert (sent, True, "INVALID_ARGUMENTS") == (seen.body, line["validation.mode"] == "report", line["error.code"])


async def test_a_tool_with_a_bad_schema_or_named_twice_is_not_validated() -> None:
    bad = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "nonsense"}}}
    one, two = (
        {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "title": each}}}
        for each in "ab"
    )
    sent = chat_answer('{"city": 3}')
    for tools in ([bad], [one, two]):
        seen, line = await ask(sent, request=chat_request(tools=tools))
        assert (sent, "passthrough") == (seen.body, line["outcome"])


async def test_logs_each_call_of_an_answer_and_changes_only_the_wrong_one() -> None:
    def write(days: str) -> bytes:
        calls = [
            {"id": f"call_{at}", "type": "function", "function": {"name": "get_weather", "arguments": text}}
            for at, text in enumerate(('{"city": "A"}', days, '{"city": "C"}'))
        ]
        return chat_answer("{}", tool_calls=calls)

    async with (
        tool(replies(whole(write('{"city": "B", "days": "2"}')))) as server,
        proxied(ROUTES, server.url) as proxy,
    ):
        seen = await proxy.post(CHAT, chat_request())
        lines = proxy.lines()
    assert write('{"city":"B","days":2}') == seen.body
    assert {"call_0": "delivered", "call_1": "repaired", "call_2": "delivered"} == {
        line["gen_ai.tool.call.id"]: line["outcome"] for line in lines
    }

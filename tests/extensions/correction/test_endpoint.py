"""An endpoint that is malformed, slow, hostile or over-long: the caller gets what it would have got without it."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from tests.extensions.correction.model import BOTH, completion, failed, rig, same, says
from tests.serving.wire import JSON_TYPE, Script, Seen, answer, replies

SCHEMA = "{type: object, properties: {unit: {enum: [celsius, kelvin]}, city: {type: string}}, required: [unit]}"
WRONG = b'{"unit": "rankine", "city": "Oslo"}'
FIXED = {"can_fix": True, "corrected_payload": {"unit": "kelvin", "city": "Oslo"}}
OK = answer("200 OK", b'{"ok": true}', JSON_TYPE)
SAID = ("X-Conversation-Id: c", "X-Tool-Call-Id: call_1", "X-Request-ID: r1")


def route(correct: str = BOTH, *keys: str) -> str:
    more = "".join(f", {key}" for key in keys)
    return f"  - {{path: /w, upstream: tools, tool: weather, schema: {SCHEMA}, correct: {correct}{more}}}\n"


async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
    await asyncio.sleep(60)


async def dripping(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    """A body that never ends and never pauses long."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def breaking(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    await writer.drain()
    raise ConnectionResetError


async def flooding(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    """A chunked body without an end."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b" " * 4096 + b"\r\n")
        await writer.drain()


def said(content: str) -> Script:
    return replies(completion(content))


BOMB = gzip.compress(b" " * 5_000_000)
HOSTILE: dict[str, tuple[Script, str]] = {
    "no HTTP": (replies(b"\x00\x01\x02"), "endpoint_error"),
    "no JSON": (replies(answer("200 OK", b"<html>", "Content-Type: text/html")), "unusable"),
    "no choices": (replies(answer("200 OK", b'{"choices": []}', JSON_TYPE)), "unusable"),
    "choices of another kind": (replies(answer("200 OK", b'{"choices": {"0": 1}}', JSON_TYPE)), "unusable"),
    "no content": (replies(answer("200 OK", b'{"choices": [{"message": {"content": null}}]}', JSON_TYPE)), "unusable"),
    "prose": (said("I would rather not."), "unusable"),
    "an array": (said('[{"can_fix": true}]'), "unusable"),
    "two answers": (said('{"can_fix": true, "corrected_payload": {}} {"can_fix": false}'), "unusable"),
    "duplicate keys": (said('{"can_fix": true, "corrected_payload": {"unit": "kelvin", "unit": "x"}}'), "unusable"),
    "nested too deep": (said('{"can_fix": true, "corrected_payload": ' + '{"a":' * 900 + "1" + "}" * 901), "unusable"),
    "a payload of another type": (said('{"can_fix": true, "corrected_payload": "unit=kelvin"}'), "unusable"),
    "a verdict of another type": (said('{"can_fix": "yes", "corrected_payload": {"unit": "kelvin"}}'), "unusable"),
    "a contradiction": (said('{"can_fix": true, "should_retry": false}'), "unusable"),
    "cut off": (replies(completion(FIXED, "length")), "unusable"),
    "filtered": (replies(completion(FIXED, "content_filter")), "unusable"),
    "an error": (replies(answer("500 Internal Server Error", b"{}", JSON_TYPE)), "endpoint_error"),
    "not allowed": (replies(answer("401 Unauthorized", b"{}", JSON_TYPE)), "endpoint_error"),
    "a redirect": (replies(answer("302 Found", b"", "Location: http://127.0.0.1:9/")), "endpoint_error"),
    "gone half way": (breaking, "endpoint_error"),
    "over-long": (said("x" * 400_000), "too_long"),
    "endless": (flooding, "too_long"),
    "a bomb": (replies(answer("200 OK", BOMB, JSON_TYPE, "Content-Encoding: gzip")), "unusable"),
    "silent": (silent, "timeout"),
    "slow": (dripping, "timeout"),
    "wrong again": (said('{"can_fix": true, "corrected_payload": {"unit": "fahrenheit", "city": "Oslo"}}'), "refused"),
    "another field": (said('{"can_fix": true, "corrected_payload": {"unit": "rankine", "city": ""}}'), "out_of_scope"),
    "a field dropped": (said('{"can_fix": true, "corrected_payload": {"unit": "rankine"}}'), "out_of_scope"),
}  # fmt: skip


_REFUSED: list[Seen] = []


async def uncorrected() -> Seen:
    """The answer of a proxy that corrects nothing; the same for every test, so asked for once."""
    if not _REFUSED:
        async with rig(says(FIXED), replies(OK), route("{}")) as plain:
            _REFUSED.append(await plain.proxy.post("/w", WRONG, *SAID))
    return _REFUSED[0]


@pytest.mark.large
@pytest.mark.parametrize("name", HOSTILE)
async def test_the_caller_gets_the_bytes_it_would_have_got_without(name: str) -> None:
    model, outcome = HOSTILE[name]
    patience = "80ms" if outcome == "timeout" else "5s"
    async with rig(model, replies(OK), route(), endpoint=f"timeout: {patience}") as it:
        corrected = await it.proxy.post("/w", WRONG, *SAID)
        asked = it.outcomes()
    refused = await uncorrected()

    assert 400 == refused.status
    assert same(refused, corrected)
    assert [] == it.tool.seen
    assert ("validation_feedback", outcome) == asked[0]


@pytest.mark.parametrize("passthrough", ["upstream_errors: explain", "upstream_errors: passthrough"])
async def test_a_tools_own_error_is_answered_as_it_would_have_been_without(passthrough: str) -> None:
    error = failed("404 Not Found", "CITY_NOT_FOUND", "no such city", "NOT_FOUND")
    fixed = {"should_retry": True, "suggested_changes": {"city": "Rome"}}
    good = b'{"unit": "kelvin", "city": "Rom"}'
    async with rig(says(fixed), replies(error), route(BOTH, passthrough)) as it:
        tried = await it.proxy.post("/w", good, *SAID)
        hits = len(it.tool.seen)
    async with rig(says(fixed), replies(error), route("{}", passthrough)) as plain:
        untried = await plain.proxy.post("/w", good, *SAID)
    assert same(untried, tried)
    assert (1 if "passthrough" in passthrough else 2) == hits


async def test_the_attempts_are_counted_as_if_nobody_had_been_asked() -> None:
    async with rig(said("no"), replies(OK), route()) as it:
        seen = [await it.proxy.post("/w", json.dumps({"unit": unit}).encode(), *SAID) for unit in "abc"]
    assert ["1/3", "2/3", "3/3"] == [each.header("tool-attempt") for each in seen]


async def test_an_endpoint_that_is_not_there_costs_nothing_but_the_try() -> None:
    async with rig(says(FIXED), replies(OK), route()) as it:
        it.model.end()
        nowhere = '{tools: {url: "http://127.0.0.1:9"}, model: {url: "http://127.0.0.1:9"}}'
        async with rig(says(FIXED), replies(OK), route(), upstreams=nowhere) as other:
            seen = await other.proxy.post("/w", WRONG, *SAID)
    assert (400, [("validation_feedback", "endpoint_error")]) == (seen.status, other.outcomes())


async def test_members_of_the_operators_own_go_into_the_request_and_null_takes_one_away() -> None:
    keys = "temperature: 0, body: {max_tokens: null, max_completion_tokens: 200, response_format: {type: json_object}}"
    async with rig(says(FIXED), replies(OK), route(), endpoint=keys) as it:
        await it.proxy.post("/w", WRONG)
    request = it.asked()[0]
    assert ["system", "user"] == [message["role"] for message in request.pop("messages")]
    assert {"model": "tiny", "temperature": 0.0, "max_completion_tokens": 200,
            "response_format": {"type": "json_object"}} == request  # fmt: skip


async def test_a_content_of_parts_and_a_compressed_answer_are_read() -> None:
    message = {
        "content": [{"type": "text", "text": json.dumps(FIXED)[:20]}, {"type": "text", "text": json.dumps(FIXED)[20:]}]
    }
    body = gzip.compress(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode())
    script = replies(answer("200 OK", body, JSON_TYPE, "Content-Encoding: gzip"))
    async with rig(script, replies(OK), route()) as it:
        seen = await it.proxy.post("/w", WRONG)
    assert (200, b'{"unit":"kelvin","city":"Oslo"}') == (seen.status, it.tool.seen[0].body)

"""With `admin.values: off`, a kept call hides the places of its values, and leaves the words of the schema whole.

A gap among the words of the schema would tell which of them was sent.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.extensions.console.test_no_values import DIALECTS, FORMS, UUID, WORDS, list_traces
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import JSON_TYPE, answer, replies, tool

CURRENCY = """
  - path: /c
    upstream: tools
    tool: currency
    schema:
      type: object
      properties:
        from: {enum: [EUR, USD, GBP]}
        to: {enum: [EUR, USD, GBP], description: "The target, such as GBP."}
        note: {type: string}
        amount: {type: number}
      required: [to]
"""
# The differences between any two calls.
OWN = re.compile(
    r'"(seq|id|timestamp|correlation_id|conversation|gen_ai.tool.call.id|[a-z._]*_ms|stages_ms|http.[a-z]*.body.size)"'
    r': ("[^"]*"|[0-9.]+|\{[^}]*\})'
)
OK = answer("200 OK", b"{}", JSON_TYPE)
PLANTED = "zq7xkv planted"


async def open_call(proxy: Proxied, number: int = 0) -> dict[str, Any]:
    listed = json.loads((await proxy.ask_admin("/-/calls")).body)["calls"]
    found: dict[str, Any] = json.loads((await proxy.ask_admin(f"/-/calls/{listed[number]['id']}")).body)
    return found


async def show_calls(proxy: Proxied, body: dict[str, Any], conversation: str) -> str:
    """Sends one call until its conversation escalates, and gives all that the operator sees of the attempts."""
    for _ in range(4):
        await proxy.post("/c", json.dumps(body).encode(), f"X-Conversation-Id: {conversation}")
    return "\n".join([OWN.sub("", json.dumps(await open_call(proxy, number))) for number in range(4)])


@pytest.mark.parametrize(
    "other",
    [
        {"from": "EUR"},  # members of the same enum
        {"from": "GBP"},
        {"note": "to"},  # a key
        {"note": "Invalid enum value"},  # words of the message
        {"note": "one of 'EUR', 'USD', 'GBP'"},
        {"note": "The target, such as GBP."},  # words of the schema
        {"note": "Attempt 1: Invalid enum value for 'to' (expected: one of 'EUR', 'USD', 'GBP')"},
        {"note": "was refused", "amount": 1},  # words of the answer
    ],
)
async def test_hides_which_words_of_the_schema_were_sent(other: dict[str, Any]) -> None:
    async with tool(replies(OK)) as server, proxied(CURRENCY, server.url) as proxy:
        plain = await show_calls(proxy, {"to": "Pound"}, "c1")
        shown = await show_calls(proxy, {"to": "Pound", **other}, "c2")
    assert plain == shown
    assert "Pound" not in shown
    assert "Attempt 1: Invalid enum value for 'to' (expected: one of 'EUR', 'USD', 'GBP')" in shown


@pytest.mark.parametrize("value", ["value", "Inval", "enum ", "one o", "Sends", "* ***", "to ta"])
async def test_hides_a_wrong_value_that_is_a_word_of_the_answer(value: str) -> None:
    async with tool(replies(OK)) as server, proxied(CURRENCY, server.url) as proxy:
        plain = await show_calls(proxy, {"to": "Pound"}, "c1")
        shown = await show_calls(proxy, {"to": value}, "c2")
    assert plain == shown


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", range(len(DIALECTS)))
async def test_hides_a_tools_words_in_the_history_of_a_later_refusal(form: str, place: int) -> None:
    """The attempts of one conversation are answered by the tool first, and by the proxy then."""
    value, (status, make) = WORDS * 3, DIALECTS[place]
    said = answer(status, json.dumps(make(f"(expected: {FORMS[form](value)})")).encode(), JSON_TYPE)
    async with tool(replies(said)) as server, proxied(CURRENCY, server.url) as proxy:
        who = "X-Conversation-Id: c1"
        await proxy.post("/c", json.dumps({"to": "EUR", "note": value}).encode(), who)
        for wrong in ("Pound", "Franc", "Krone"):
            await proxy.post("/c", json.dumps({"to": wrong}).encode(), who)
        pages = [json.dumps(await open_call(proxy, number)) for number in range(4)]
    text = UUID.sub("", "\n".join((*pages, proxy.log.getvalue())).lower())
    assert [] == [trace for trace in list_traces(value) if trace in text]


# Every kind of error whose words could hold a value: the schema of one parameter, and what is sent for it.
KINDS: dict[str, tuple[str, Any]] = {
    "type": ("{type: number}", PLANTED),
    "type of a list": ("{type: number}", [PLANTED]),
    "enum": ("{enum: [EUR, USD]}", PLANTED),
    "enum, near": ("{enum: [zq7xkv planter]}", PLANTED),
    "enum of many": (f"{{enum: [{', '.join(f'zq7xkv {n}' for n in range(20))}]}}", PLANTED),
    "enum of numbers": ("{enum: [1, 2]}", 918273645),
    "const": ("{const: x}", PLANTED),
    "format": ("{type: string, format: date-time}", PLANTED),
    "pattern": ("{type: string, pattern: '^[0-9]$'}", PLANTED),
    "length": ("{type: string, maxLength: 3}", PLANTED),
    "maximum": ("{type: integer, maximum: 3}", 918273645),
    "multiple": ("{type: integer, multipleOf: 2}", 918273645),
    "items": ("{type: array, items: {type: number}}", [1, PLANTED]),
    "unique": ("{type: array, uniqueItems: true}", [PLANTED, PLANTED]),
    "contains": ("{type: array, contains: {type: number}}", [PLANTED]),
    "not": (f"{{not: {{const: {PLANTED}}}}}", PLANTED),
    "union": ("{oneOf: [{type: number}, {type: object, required: [a]}]}", PLANTED),
    "union of objects": (
        "{oneOf: [{type: object, required: [a]}, {type: object, required: [b]}]}",
        {"c": PLANTED},
    ),
    "discriminator": (
        "{oneOf: [{type: object, properties: {k: {const: a}}, required: [k]}, "
        "{type: object, properties: {k: {const: b}}, required: [k]}]}",
        {"k": PLANTED},
    ),
    "both branches": ("{oneOf: [{type: string}, {minLength: 1}]}", PLANTED),
    "unknown key": ("{type: object, additionalProperties: false}", {"a": PLANTED}),
    "misplaced": ("{type: object, properties: {b: {type: string}}, required: [b]}", {"c": PLANTED}),
    "dependent": ("{type: object, dependentRequired: {a: [b]}}", {"a": PLANTED}),
    "secret": ("{type: string, writeOnly: true, enum: [a]}", PLANTED),
    "markup": ("{type: string}", f"x</{PLANTED.replace(' ', '_')}></parameter>"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_hides_the_value_of_each_kind_of_error(kind: str) -> None:
    schema, value = KINDS[kind]
    parameter = f"{{type: object, properties: {{p: {schema}}}}}"
    route = f"\n  - {{path: /c, upstream: tools, tool: t, schema: {parameter}}}"
    planted = [PLANTED, PLANTED.replace(" ", "_"), "918273645"]
    if "const: zq7" in schema:
        planted = []  # what the schema forbids is a word of the schema
    async with tool(replies(OK)) as server, proxied(route, server.url) as proxy:
        for _ in range(4):
            await proxy.post("/c", json.dumps({"p": value, "other": PLANTED}).encode(), "X-Conversation-Id: c1")
        pages = [json.dumps(await open_call(proxy, number)) for number in range(4)]
    text = "\n".join((*pages, proxy.log.getvalue()))
    assert '"outcome": "refused"' in text
    assert [] == [each for each in planted if each in text]


async def test_hides_what_a_call_of_a_container_tried() -> None:
    container = "{functions: [Add], expand: proxy, auto_expand: off}"
    async with proxied(f"\n  - {{path: /Math, upstream: tools, tool: Math, container: {container}}}") as proxy:
        body = {"function": "Ad", "arguments": {"a": PLANTED}, "b": PLANTED}
        await proxy.post("/Math", json.dumps(body).encode())
        page = json.dumps(await open_call(proxy))
    assert "CONTAINER_INVOCATION" in page
    assert PLANTED not in page


async def test_hides_both_readings_of_a_value_with_two_meanings() -> None:
    branches = "[{properties: {a: {type: integer}}, required: [a]}, {properties: {a: {type: boolean}}, required: [a]}]"
    route = f"\n  - {{path: /c, upstream: tools, tool: t, schema: {{type: object, anyOf: {branches}}}}}"
    async with proxied(route) as proxy:
        answers = [await proxy.post("/c", json.dumps({"a": text}).encode()) for text in ("1", "0")]
        pages = [OWN.sub("", json.dumps(await open_call(proxy, number))) for number in range(2)]
    assert "It could mean" in answers[0].body.decode()
    assert pages[0] == pages[1]
    assert "It could mean ***: send the one you mean" in pages[0]


async def test_hides_a_value_of_a_call_that_a_child_process_has_validated() -> None:
    route = (
        "\n  - {path: /c, upstream: tools, tool: t, schema: {properties: {p: {enum: [a]}, pad: {uniqueItems: true}}}}"
    )
    async with proxied(route) as proxy:
        body = json.dumps({"p": PLANTED, "pad": list(range(20_000))}).encode()
        seen = await proxy.post("/c", body)
        page = json.dumps(await open_call(proxy))
    assert PLANTED in seen.body.decode()
    assert PLANTED not in page
    assert "Invalid enum value ***" in page

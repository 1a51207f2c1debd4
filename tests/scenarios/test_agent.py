"""The text is enough: an agent that reads nothing else corrects each of its broken calls in one retry."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.config.load import load
from proxy.server import start_serving
from tests.scenarios.agent import Call, next_calls
from tests.scenarios.upstream import ScriptedUpstream, scripted_upstream

CONFIG = r"""
version: 1
listen: 127.0.0.1:0
admin: off
upstreams: {tools: {url: http://upstream.test}}
tools:
  write_file:
    schema:
      type: object
      properties:
        path: {type: string}
        content: {type: string, maxLength: 20}
        encoding: {enum: [utf-8, ascii]}
      required: [path, content]
      additionalProperties: false
  get_weather:
    schema:
      type: object
      properties:
        lat: {type: number, minimum: -90, maximum: 90}
        lon: {type: number}
        days: {type: integer, minimum: 1, maximum: 7}
      required: [lat, lon]
      additionalProperties: false
  book_table:
    schema:
      type: object
      properties:
        date: {type: string, format: date}
        guests: {type: array, items: {type: string}, minItems: 1, maxItems: 2, uniqueItems: true}
        code: {type: string, pattern: '^[A-Z]{3}-[0-9]{2}$'}
        pay:
          oneOf:
            - {type: object, properties: {kind: {const: card}, number: {type: string}}, required: [kind, number]}
            - {type: object, properties: {kind: {const: cash}}, required: [kind]}
      required: [date, guests]
      additionalProperties: false
  Add:
    schema: {type: object, properties: {a: {type: number}, b: {type: number}}, required: [a, b]}
  Math: {container: {functions: [Add]}}
routes:
  - {path: '/tools/{tool}', upstream: tools}
"""

FILE = {"path": ["notes.txt"], "content": ["a long story about nothing", "a short story"], "encoding": ["utf-8"]}
PLACE = {"lat": ["north", 95, 48.85], "lon": [2.35], "days": [9, 1.5, 3]}
TABLE = {
    "date": ["31.01.2026", "2026-01-31"],
    "guests": [[], ["Ann", "Bob", "Cy"], ["Ann", "Bob"]],
    "code": ["abc-1", "ABC-12"],
    "number": [4111, "4111"],
    "kind": ["paypal", "cash"],
}
SUM: dict[str, list[Any]] = {}

# The agent's first call, the wish behind it, and the calls that reach the tools after one retry.
LOOPS = {
    "an unknown key that resembles the missing one":
        ("write_file", '{"file_path": "notes.txt", "content": "x"}', FILE,
         [("write_file", '{"content": "x", "path": "notes.txt"}')]),
    "a missing field":
        ("write_file", '{"path": "notes.txt"}', FILE,
         [("write_file", '{"path": "notes.txt", "content": "a short story"}')]),
    "an enum value with a slip":
        ("write_file", '{"path": "n", "content": "x", "encoding": "uft8"}', FILE,
         [("write_file", '{"path": "n", "content": "x", "encoding": "utf-8"}')]),
    "a list for one value":
        ("write_file", '{"path": ["a", "b"], "content": "x"}', FILE,
         [("write_file", '{"path": "notes.txt", "content": "x"}')]),
    "a string that is too long":
        ("write_file", '{"path": "n", "content": "a long story about nothing"}', FILE,
         [("write_file", '{"path": "n", "content": "a short story"}')]),
    "a field nobody knows":
        ("write_file", '{"path": "n", "content": "x", "mode": "w"}', FILE,
         [("write_file", '{"path": "n", "content": "x"}')]),
    "null for a required value":
        ("write_file", '{"path": "n", "content": null}', FILE,
         [("write_file", '{"path": "n", "content": "a short story"}')]),
    "a wrapper around the arguments":
        ("write_file", '{"payload": {"path": "n", "content": "x"}}', FILE,
         [("write_file", '{"path": "n", "content": "x"}')]),
    "a text that was cut off":
        ("write_file", '{"path": "notes.txt", "content": "a short', FILE,
         [("write_file", '{"path": "notes.txt", "content": "a short story", "encoding": "utf-8"}')]),
    "words for a number":
        ("get_weather", '{"lat": "north", "lon": 2.35}', PLACE, [("get_weather", '{"lat": 48.85, "lon": 2.35}')]),
    "a number out of range":
        ("get_weather", '{"lat": 95, "lon": 2.35}', PLACE, [("get_weather", '{"lat": 48.85, "lon": 2.35}')]),
    "a fraction for an integer":
        ("get_weather", '{"lat": 1, "lon": 2, "days": 1.5}', PLACE,
         [("get_weather", '{"lat": 1, "lon": 2, "days": 3}')]),
    "two wrong values and one missing":
        ("get_weather", '{"lat": 95, "days": 9}', PLACE,
         [("get_weather", '{"lat": 48.85, "days": 3, "lon": 2.35}')]),
    "other names for both fields":
        ("get_weather", '{"latitude": 48.85, "longitude": 2.35}', PLACE,
         [("get_weather", '{"lat": 48.85, "lon": 2.35}')]),
    "a list for the arguments":
        ("get_weather", "[48.85, 2.35]", PLACE, [("get_weather", '{"lat": 48.85, "lon": 2.35, "days": 3}')]),
    "a date in another format":
        ("book_table", '{"date": "31.01.2026", "guests": ["Ann"]}', TABLE,
         [("book_table", '{"date": "2026-01-31", "guests": ["Ann"]}')]),
    "an empty list":
        ("book_table", '{"date": "2026-01-31", "guests": []}', TABLE,
         [("book_table", '{"date": "2026-01-31", "guests": ["Ann", "Bob"]}')]),
    "too many items":
        ("book_table", '{"date": "2026-01-31", "guests": ["Ann", "Bob", "Cy"]}', TABLE,
         [("book_table", '{"date": "2026-01-31", "guests": ["Ann", "Bob"]}')]),
    "a value that breaks a pattern":
        ("book_table", '{"date": "2026-01-31", "guests": ["Ann"], "code": "abc-1"}', TABLE,
         [("book_table", '{"date": "2026-01-31", "guests": ["Ann"], "code": "ABC-12"}')]),
    "a missing field of the branch that was chosen":
        ("book_table", '{"date": "2026-01-31", "guests": ["Ann"], "pay": {"kind": "card"}}', TABLE,
         [("book_table", '{"date": "2026-01-31", "guests": ["Ann"], "pay": {"kind": "card", "number": "4111"}}')]),
    "a branch that does not exist":
        ("book_table", '{"date": "2026-01-31", "guests": ["Ann"], "pay": {"kind": "paypal"}}', TABLE,
         [("book_table", '{"date": "2026-01-31", "guests": ["Ann"], "pay": {"kind": "cash"}}')]),
    "a tool's name with a slip":
        ("get_wether", '{"lat": 1, "lon": 2}', PLACE, [("get_weather", '{"lat": 1, "lon": 2}')]),
    "a container with parameters":
        ("Math", '{"function": "Add", "a": 5, "b": 10}', SUM, [("Math", "{}"), ("Add", '{"a": 5, "b": 10}')]),
    "a function called through its container":
        ("Math.Add", '{"a": 5, "b": 10}', SUM, [("Add", '{"a": 5, "b": 10}')]),
}  # fmt: skip


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedUpstream]:
    async with scripted_upstream([]) as running:
        yield running


@pytest.fixture
async def url(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[str]:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.replace("http://upstream.test", upstream.url))
    serving = await start_serving(load(config, {}), log_to=io.StringIO())
    yield serving.url
    await serving.stop(grace=1.0)


async def ask(client: ClientSession, url: str, call: Call) -> tuple[int, str]:
    """Status and `content` of a call's answer."""
    headers = {"Content-Type": "application/json", "X-Conversation-Id": "c"}
    async with client.post(f"{url}/tools/{call.tool}", data=call.text.encode(), headers=headers) as reply:
        return reply.status, (await reply.json(content_type=None)).get("content", "")


@pytest.mark.parametrize(("tool", "sent", "wish", "delivered"), LOOPS.values(), ids=LOOPS)
async def test_an_agent_that_reads_only_the_text_corrects_its_call_in_one_retry(
    url: str,
    upstream: ScriptedUpstream,
    tool: str,
    sent: str,
    wish: dict[str, list[Any]],
    delivered: list[tuple[str, str]],
) -> None:
    async with ClientSession() as client:
        status, content = await ask(client, url, Call(tool, sent))
        assert status in (400, 404)
        assert upstream.hits == []
        calls = next_calls(Call(tool, sent), content, wish)
        statuses = [(await ask(client, url, call))[0] for call in calls]
    assert [200] * len(delivered) == statuses, content
    assert [(f"/tools/{name}", text) for name, text in delivered] == [
        (hit.path, hit.body.decode()) for hit in upstream.hits
    ]

"""Calls that work at the server work here: defaults of required keys, keys that the server has to validate, roots that
are no objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.extensions.mcp.conversation import refusal, talk, text
from tests.extensions.mcp.server import McpServer, call

# As Playwright's server lists it: zod writes the schema of what it makes of a call, in which defaults are required.
SHOT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "scale": {"type": "string", "enum": ["css", "device"], "default": "css"},
        "full": {"type": "boolean"},
    },
    "required": ["scale"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("level", ["standard", "lenient"])
async def test_a_missing_required_key_takes_its_default(level: str) -> None:
    async with talk(McpServer([{"name": "shot", "inputSchema": SHOT}]), more=f"repair: {level}") as client:
        for sent in ({}, {"full": "true"}, {"scale": "device"}):
            await client.ask(call("shot", sent))

    assert [{"scale": "css"}, {"full": True, "scale": "css"}, {"scale": "device"}] == client.received


@pytest.mark.parametrize(
    ("tool", "repair"),
    [
        ({"name": "shot", "annotations": {"destructiveHint": True}}, "standard"),
        ({"name": "shot", "annotations": {"destructiveHint": True}}, "lenient"),
        ({"name": "shot"}, "basic"),
        ({"name": "shot"}, "{rules: {fill_required: off}}"),
        ({"name": "shot"}, "{level: lenient, rules: {fill_required: off}}"),
    ],
)
async def test_fills_no_default_for_destructive_tools_or_if_the_rule_is_off(tool: dict[str, Any], repair: str) -> None:
    server = McpServer([{**tool, "inputSchema": SHOT}])
    async with talk(server, more=f"repair: {repair}") as client:
        answer = await client.ask(call(tool["name"], {}))

    assert ((True, "INVALID_ARGUMENTS"), []) == (refusal(answer), client.received)
    assert "Its default is 'css'." in text(answer)


async def test_a_default_is_not_taken_if_the_key_was_sent_under_another_name() -> None:
    async with talk(McpServer([{"name": "shot", "inputSchema": {**SHOT, "additionalProperties": True}}])) as client:
        answer = await client.ask(call("shot", {"scal": "device"}))

    assert ((True, "INVALID_ARGUMENTS"), []) == (refusal(answer), client.received)


async def test_the_server_validates_undeclared_keys_if_the_operator_says_so() -> None:
    server = McpServer([{"name": "shot", "inputSchema": SHOT}])
    async with talk(server, more="unknown_keys: forward") as client:
        for sent in ({"scale": "css", "x": 1}, {"scale": "css", "full": "true", "x": {"y": 1}}):
            await client.ask(call("shot", sent))
        wrong = await client.ask(call("shot", {"scale": "huge", "x": 1}))

    assert [{"scale": "css", "x": 1}, {"scale": "css", "full": True, "x": {"y": 1}}] == client.received
    assert (True, "INVALID_ARGUMENTS") == refusal(wrong)


async def test_undeclared_keys_are_refused_otherwise() -> None:
    async with talk(McpServer([{"name": "shot", "inputSchema": SHOT}])) as client:
        answer = await client.ask(call("shot", {"scale": "css", "x": 1}))

    assert ((True, "INVALID_ARGUMENTS"), []) == (refusal(answer), client.received)


@pytest.mark.parametrize("sent", [{"params": {"paths": ["a", "b"]}}, {"paths": "['a', 'b']"}])
async def test_a_wrapper_and_a_list_in_python_are_read_at_standard(sent: dict[str, Any]) -> None:
    paths = {"type": "object", "properties": {"paths": {"type": "array", "items": {"type": "string"}}}}
    schema = {**paths, "required": ["paths"], "additionalProperties": False}
    async with talk(McpServer([{"name": "read", "inputSchema": schema}])) as client:
        await client.ask(call("read", sent))

    assert [{"paths": ["a", "b"]}] == client.received


@pytest.mark.parametrize("kind", ["array", "string", ["array", "null"]])
async def test_a_schema_whose_root_is_no_object_is_of_no_use(kind: object) -> None:
    items = {"type": "object", "properties": {"x": {"type": "integer"}}}
    async with talk(McpServer([{"name": "odd", "inputSchema": {"type": kind, "items": items}}])) as client:
        answer = await client.ask(call("odd", {"x": "5"}))

    assert ((True, "SCHEMA_UNKNOWN"), []) == (refusal(answer), client.received)
    assert "its root is not an object" in text(answer)


async def test_names_the_limits_of_javascripts_integers_only_if_they_are_broken() -> None:
    count = {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}
    schema = {"type": "object", "properties": {"n": count}, "required": ["n"]}
    async with talk(McpServer([{"name": "count", "inputSchema": schema}])) as client:
        missing = text(await client.ask(call("count", {})))
        beyond = text(await client.ask(call("count", {"n": 9007199254740992})))

    assert "9007199254740991" not in missing
    assert "must be at most 9007199254740991" in beyond

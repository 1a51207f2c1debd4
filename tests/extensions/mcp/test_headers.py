"""Headers that repeat the body (MCP 2026-07-28): a lie is refused, and a repair takes its headers with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.json.jsontext import parse
from proxy.core.model.values import Fields, RawRequest
from proxy.extensions.mcp.adapters.mcpmessage import (
    Mirror,
    decode_value,
    encode_value,
    find_mirrors,
    find_wrong_mirror,
    update_headers,
)
from tests.extensions.mcp.conversation import talk
from tests.extensions.mcp.server import MODERN, McpServer, call, modern, modern_headers

REGION: dict[str, Any] = {
    "name": "query",
    "inputSchema": {
        "type": "object",
        "properties": {
            "region": {"enum": ["us-west", "eu-north"], "x-mcp-header": "Region"},
            "limit": {"type": "integer", "x-mcp-header": "Limit"},
            "note": {"type": "string", "x-mcp-header": "Note"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        },
        "required": ["region"],
    },
}


async def sent(arguments: object, *headers: str) -> tuple[int, list[dict[str, str]], Any]:
    """The status, the `Mcp-` headers of what reached the server, and the answer."""
    message = call("query", arguments)
    async with talk(McpServer([REGION])) as client:
        seen = await client.send(modern(message), *modern_headers(message), *headers)
    arrived = [
        {name: value for name, value in one.headers if name.startswith(("mcp-p", "mcp-n"))}
        for one in client.server.calls
    ]
    return seen.status, arrived, json.loads(seen.body)


VERSION = {"mcp-protocol-version": MODERN, "mcp-name": "query"}


async def test_headers_that_agree_pass_unchanged() -> None:
    _, arrived, _ = await sent({"region": "eu-north", "limit": 3}, "Mcp-Param-Region: eu-north", "Mcp-Param-Limit: 3.0")

    assert [VERSION | {"mcp-param-region": "eu-north", "mcp-param-limit": "3.0"}] == arrived


async def test_a_repaired_value_is_repeated_as_it_was_repaired() -> None:
    _, arrived, _ = await sent(
        {"region": "EU-NORTH", "limit": "3", "dry": "true"},
        "Mcp-Param-Region: EU-NORTH",
        "Mcp-Param-Limit: 3",
        "Mcp-Param-Dry: true",
    )

    assert [VERSION | {"mcp-param-region": "eu-north", "mcp-param-limit": "3", "mcp-param-dry": "true"}] == arrived


async def test_a_value_that_was_dropped_takes_its_header_with_it() -> None:
    _, arrived, _ = await sent({"region": "eu-north", "limit": None}, "Mcp-Param-Region: eu-north")

    assert [VERSION | {"mcp-param-region": "eu-north"}] == arrived


async def test_arguments_inside_a_string_get_the_headers_they_lacked() -> None:
    _, arrived, _ = await sent('{"region": "eu-north", "note": "caf\u00e9"}')

    assert [VERSION | {"mcp-param-region": "eu-north", "mcp-param-note": "=?base64?Y2Fmw6k=?="}] == arrived


@pytest.mark.parametrize(
    ("arguments", "header"),
    [
        ({"region": "eu-north"}, "Mcp-Param-Region: us-west"),
        ({"region": "EU-NORTH"}, "Mcp-Param-Region: eu-north"),
        ({"region": "eu-north"}, "Mcp-Param-Limit: 3"),
        ({"region": "eu-north", "limit": None}, "Mcp-Param-Limit: 3"),
        ({"region": "eu-north", "limit": 3}, "Mcp-Param-Limit: 4"),
        ({"region": "eu-north", "note": "x"}, "Mcp-Param-Note: =?base64?eQ==?="),
        ({"region": "eu-north", "note": "x"}, "Mcp-Param-Note: =?base64?broken?="),
        ('{"region": "eu-north"}', "Mcp-Param-Region: us-west"),
    ],
)
async def test_a_lie_is_refused_and_reaches_nobody(arguments: object, header: str) -> None:
    status, arrived, answer = await sent(arguments, header)

    assert (400, -32020, 1) == (status, answer["error"]["code"], answer["id"])
    assert answer["error"]["message"].startswith("Header mismatch: ")
    assert [] == arrived


@pytest.mark.parametrize(
    "headers",
    [
        (f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list", "Mcp-Name: query"),
        (f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call", "Mcp-Name: other"),
        ("MCP-Protocol-Version: 2027-01-01", "Mcp-Method: tools/call", "Mcp-Name: query"),
        ("MCP-Protocol-Version: 2025-11-25", "Mcp-Method: tools/call", "Mcp-Name: query"),
    ],
)
async def test_a_lie_about_the_message_is_refused(headers: tuple[str, ...]) -> None:
    async with talk(McpServer([REGION])) as client:
        seen = await client.send(modern(call("query", {"region": "eu-north"})), *headers)

    assert (400, -32020) == (seen.status, json.loads(seen.body)["error"]["code"])
    assert [] == client.upstream.seen


async def test_a_lie_in_any_other_message_is_refused_too() -> None:
    read = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///a"}}
    async with talk() as client:
        seen = await client.send(
            modern(read), f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: resources/read", "Mcp-Name: file:///b"
        )

    assert (400, []) == (seen.status, client.upstream.seen)


async def test_old_revisions_have_no_such_headers() -> None:
    async with talk(McpServer([REGION])) as client:
        await client.send(call("query", {"region": "eu-north"}), "Mcp-Name: x", "Mcp-Param-Region: y")

    assert ("x", "y") == tuple(client.server.calls[0].header(name) for name in ("mcp-name", "mcp-param-region"))


async def test_a_name_beyond_ascii_is_decoded_before_it_is_compared() -> None:
    tool = {**REGION, "name": "qu\u00e9ry", "inputSchema": {"type": "object"}}
    message = call("qu\u00e9ry")
    async with talk(McpServer([tool])) as client:
        body = modern(message)
        seen = await client.send(
            body, f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/call", "Mcp-Name: " + encode_value("qu\u00e9ry")
        )

    assert (200, 1) == (seen.status, len(client.server.calls))


async def test_a_continuation_is_repaired_as_the_call_before_it_was() -> None:
    message = call("query", {"region": "EU-NORTH"}, inputResponses={"x": {}}, requestState="opaque")
    first = call("query", {"region": "EU-NORTH"})
    async with talk(McpServer([REGION])) as client:
        for one in (first, message):
            await client.send(modern(one), *modern_headers(one))
    before, after = (json.loads(seen.body)["params"] for seen in client.server.calls)

    assert {"region": "eu-north"} == before["arguments"] == after["arguments"]
    assert ("opaque", {"x": {}}) == (after["requestState"], after["inputResponses"])


# --- the pure parts ---------------------------------------------------------------------------------------------------
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_value_survives_its_header(value: str) -> None:
    header = encode_value(value)

    assert value == decode_value(header)
    assert header.isascii()
    assert header.isprintable() or "\t" in header
    assert header == header.strip()


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west", "us-west"),
        ("Hello, \u4e16\u754c", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_values_are_encoded_as_the_specification_shows(value: str, header: str) -> None:
    assert header == encode_value(value)


def test_mirrors_only_parameters_that_only_properties_lead_to() -> None:
    schema = {
        "properties": {
            "a": {"type": "string", "x-mcp-header": "A"},
            "o": {"properties": {"b": {"type": "number", "x-mcp-header": "B-b"}}},
            "l": {"items": {"x-mcp-header": "C"}},
            "u": {"anyOf": [{"x-mcp-header": "D"}]},
            "bad": {"x-mcp-header": "no spaces"},
            "empty": {"x-mcp-header": ""},
            "number": {"x-mcp-header": 7},
        },
        "allOf": [{"properties": {"e": {"x-mcp-header": "E"}}}],
    }

    expected = Mirror(("a",), "mcp-param-a"), Mirror(("o", "b"), "mcp-param-b-b", must=False)
    assert expected == find_mirrors(schema)
    assert () == find_mirrors(True)


@given(st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.booleans(), st.integers(), st.text())))
def test_headers_that_were_kept_true_never_lie(arguments: dict[str, Any]) -> None:
    wanted = tuple(Mirror((name,), f"mcp-param-{name}") for name in "abc")
    value = parse(json.dumps(arguments).encode())
    headers = update_headers((("mcp-name", "old"), ("mcp-param-a", "stale"), ("x", "y")), "new", wanted, value)
    request = RawRequest("POST", "/", "", Fields(headers), b"", {}, "")

    assert "" == find_wrong_mirror(request, wanted, value)
    assert ("new", "y") == (request.header("mcp-name"), request.header("x"))

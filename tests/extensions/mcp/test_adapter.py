"""The MCP adapter by itself: no message makes it fail, and its only changes are repairs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.adapters import find_adapter
from proxy.adapters.base import CallShape
from proxy.core.json.jsontext import TextLimits, dumps
from proxy.core.model import codes
from proxy.core.model.values import (
    CheckedCall,
    Document,
    Failure,
    Fields,
    HttpReply,
    JsonProblem,
    Passthrough,
    RawRequest,
    Repair,
    ToolCall,
    ToolResult,
)
from proxy.extensions.mcp.adapters.mcpmessage import Message, read_message

ADAPTER = find_adapter("mcp")
SHAPE = CallShape(text_repairs=frozenset({"code_fence"}))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
messages = st.fixed_dictionaries(
    {"method": st.sampled_from(["tools/call", "tools/list", "ping"])},
    optional={
        "id": st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=1),
        "params": values
        | st.fixed_dictionaries({}, optional={"name": values, "arguments": values, "_meta": values | st.just({})}),
        "jsonrpc": values,
    },
)
headers = st.lists(
    st.tuples(
        st.sampled_from(["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "accept"]),
        st.sampled_from(["2026-07-28", "2025-11-25", "tools/call", "ping", "text/event-stream", "", "=?base64?!?="]),
    ),
    max_size=4,
).map(tuple)


def request(body: bytes, fields: tuple[tuple[str, str], ...] = (), method: str = "POST") -> RawRequest:
    return RawRequest(method, "/mcp", "", Fields(fields), body, {}, "10.0.0.9")


def answer(raw: RawRequest, call: ToolCall | Failure) -> HttpReply:
    nobody = ToolCall("", Document(b"", None), "", decoded(request(b'{"method":"tools/call"}')).conversation)
    failure = call if isinstance(call, Failure) else Failure(codes.INVALID_ARGUMENTS, "no")
    result = ToolResult(call if isinstance(call, ToolCall) else nobody, failure)
    return ADAPTER.encode(result, "auto", "category", raw.header("accept") or "", raw)


def decoded(raw: RawRequest) -> ToolCall:
    call = ADAPTER.decode(raw, SHAPE, "fresh-1")
    assert isinstance(call, ToolCall)
    return call


@given(messages | values, headers)
def test_reads_any_message_and_can_answer_any_failure(message: Any, fields: tuple[tuple[str, str], ...]) -> None:
    raw = request(dumps(message), fields)
    found = ADAPTER.decode(raw, SHAPE, "fresh-1")
    if isinstance(found, Passthrough):
        return
    reply = answer(raw, found)
    if not reply.body:  # a notification
        assert reply.status >= 400
        assert "id" not in message
        return
    text = reply.body.split(b"\ndata: ")[-1] if ("Content-Type", "text/event-stream") in reply.headers else reply.body
    told = json.loads(text)

    assert "2.0" == told["jsonrpc"]
    assert ("result" in told) is (reply.status == 200)
    if "result" in told:
        assert told["id"] == message["id"]
        assert told["result"]["isError"] is True
        assert told["result"]["content"][0]["text"]
        assert "structuredContent" not in told["result"]


@given(st.binary(max_size=100))
def test_any_bytes_are_read(body: bytes) -> None:
    raw = request(body)
    found = ADAPTER.decode(raw, SHAPE, "fresh-1")

    if not isinstance(found, Passthrough):
        assert json.loads(answer(raw, found).body)["jsonrpc"] == "2.0"


objects = st.dictionaries(st.text(max_size=5), values, max_size=4)


@given(objects, objects, st.text(max_size=8), st.text(max_size=8), objects)
def test_a_repair_changes_arguments_and_name_and_nothing_else(
    before: dict[str, Any], after: dict[str, Any], name: str, meant: str, rest: dict[str, Any]
) -> None:
    message = {**rest, "id": 1, "method": "tools/call", "params": {**rest, "name": name, "arguments": before}}
    raw = request(json.dumps(message, indent=1).encode())
    call = decoded(raw)
    renamed = ToolCall(meant, call.arguments, call.call_id, call.conversation)
    checked = CheckedCall(renamed, dumps(after), after, (Repair("x", ()),))
    message["params"].update(name=meant, arguments=after)

    assert message == json.loads(ADAPTER.rewrite(raw, SHAPE, checked))


@given(objects, st.booleans())
def test_forwards_an_unrepaired_call_as_the_very_bytes(rest: dict[str, Any], given_: bool) -> None:
    params = {**rest, "name": "t", **({"arguments": {"a": 1}} if given_ else {})}
    if not given_:
        params.pop("arguments", None)
    raw = request(json.dumps({"id": 1, "method": "tools/call", "params": params}, indent=2).encode())
    call = decoded(raw)
    assert isinstance(call.arguments, Document)

    assert raw.body is ADAPTER.rewrite(raw, SHAPE, CheckedCall(call, call.arguments.text, call.arguments.value))


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_requests_without_a_message_pass(method: str) -> None:
    assert Passthrough() == ADAPTER.decode(request(b"", method=method), SHAPE, "fresh-1")


REVISIONS: list[tuple[tuple[tuple[str, str], ...], dict[str, Any], str, bool]] = [
    ((), {}, "", False),
    ((("mcp-protocol-version", "2025-11-25"),), {}, "2025-11-25", False),
    ((("mcp-protocol-version", "2026-07-28"),), {}, "2026-07-28", True),
    ((), {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, "2026-07-28", True),
    ((("mcp-protocol-version", "2027-01-01"),), {}, "2027-01-01", True),
    ((("mcp-protocol-version", "latest"),), {"io.modelcontextprotocol/protocolVersion": 7}, "", False),
]


@pytest.mark.parametrize(("fields", "meta", "revision", "modern"), REVISIONS)
def test_the_revision_is_a_property_of_each_message(
    fields: tuple[tuple[str, str], ...], meta: dict[str, Any], revision: str, modern: bool
) -> None:
    body = json.dumps({"id": 1, "method": "ping", "params": {"_meta": meta}}).encode()
    found = read_message(request(body, fields), TextLimits())

    assert isinstance(found, Message)
    assert (revision, modern) == (found.revision, found.modern)


def test_repairs_arguments_in_a_broken_string_if_that_is_allowed() -> None:
    raw = request(dumps({"id": 1, "method": "tools/call", "params": {"name": "t", "arguments": "```json\n{}\n```"}}))
    mended = decoded(raw).arguments
    left = ADAPTER.decode(raw, CallShape(), "fresh-1")

    assert Document(b"{}", {}, (Repair("parse_json_string", ()), Repair("code_fence", ()))) == mended
    assert isinstance(left, ToolCall)
    assert isinstance(left.arguments, Document)
    assert not isinstance(left.arguments, JsonProblem)
    assert "```json\n{}\n```" == left.arguments.value

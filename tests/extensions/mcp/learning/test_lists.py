"""Lists of tools as text: requests for them, and answers in both of their shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.json.contentcoding import list_data
from proxy.core.model.values import ABSENT, Fields, RawRequest
from proxy.extensions.mcp.adapters.mcplist import ToolsPage, find_answer, make_list_request, make_listing, read_page
from proxy.extensions.mcp.adapters.mcpmessage import Message
from proxy.extensions.mcp.core.listed_tools import ListedTool

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": 7,
}
CLIENT = RawRequest(
    "POST",
    "/mcp",
    "k=v",
    Fields(
        (
            ("authorization", "Bearer t"),
            ("accept", "text/event-stream"),
            ("accept-encoding", "gzip"),
            ("content-type", "application/json; charset=utf-8"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "add"),
            ("mcp-param-region", "eu"),
            ("mcp-session-id", "s"),
            ("if-none-match", "x"),
        )
    ),
    b"the call",
    {"team": "a"},
    "10.0.0.9",
)


def test_a_question_keeps_who_asks_and_drops_what_was_asked() -> None:
    made = make_list_request(CLIENT, Message(1, "tools/call", {"_meta": META}, "2026-07-28"), "next", "q-1")

    assert ("POST", "/mcp", "k=v", {"team": "a"}) == (made.method, made.path, made.query, made.params)
    assert {
        "authorization": "Bearer t",
        "mcp-session-id": "s",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-method": "tools/list",
    } == dict(made.headers)
    meta = {key: value for key, value in META.items() if key != "progressToken"}
    assert {"jsonrpc": "2.0", "id": "q-1", "method": "tools/list", "params": {"cursor": "next", "_meta": meta}} == (
        json.loads(made.body)
    )


def test_an_old_question_has_no_params_if_it_needs_none() -> None:
    made = make_list_request(CLIENT, Message(1, "tools/call"), None, "q-1")

    assert {"jsonrpc": "2.0", "id": "q-1", "method": "tools/list"} == json.loads(made.body)


PAGES: list[tuple[Any, ToolsPage | None]] = [
    ({"tools": []}, ToolsPage((), None, None)),
    ({"tools": [{"name": "a"}], "nextCursor": "", "ttlMs": 1500}, ToolsPage((ListedTool("a"),), "", 1.5)),
    ({"tools": [{"name": "a"}], "nextCursor": None, "ttlMs": -1}, ToolsPage((ListedTool("a"),), None, None)),
    ({"tools": [{}, 7, {"name": 7}, {"name": "a", "description": 7}]}, ToolsPage((ListedTool("a"),), None, None)),
    (
        {"tools": [{"name": "a", "inputSchema": True, "annotations": {"idempotentHint": True}, "description": "A"}]},
        ToolsPage((ListedTool("a", "A", True, ABSENT, {"idempotentHint": True}),), None, None),
    ),
    ({"tools": {}}, None),
    (None, None),
]


@pytest.mark.parametrize(("result", "page"), PAGES)
def test_a_page_is_read_as_far_as_it_is_one(result: Any, page: ToolsPage | None) -> None:
    assert page == read_page({"result": result})


def test_an_error_is_no_page() -> None:
    assert read_page({"error": {"code": 1}}) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"data: 1\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"data: 1\r\n\r\ndata:2\r\r", [b"1", b"2"]),
        (b"id: e\nevent: message\ndata: {\ndata: }\nretry: 5\n\n", [b"{\n}"]),
        (b": comment\n\ndata:\n\ndata: 1", []),
        (b"", []),
    ],
)
def test_events_are_read_as_the_specification_of_them_says(text: bytes, found: list[bytes]) -> None:
    assert found == list(list_data(text))


def test_an_answer_is_known_by_its_id_and_by_being_one() -> None:
    stream = b"".join(
        b"data: " + json.dumps(one).encode() + b"\n\n"
        for one in ({"id": 1, "method": "ping"}, {"id": "1", "result": 0}, {"id": 1, "result": {"x": 1}})
    )

    assert {"id": 1, "result": {"x": 1}} == find_answer("text/event-stream", stream, 1)
    assert find_answer("application/json", b'{"id": true, "result": {}}', 1) is None
    assert find_answer("application/json", b"<html>", 1) is None


def test_of_two_tools_with_one_name_the_first_counts() -> None:
    listing = make_listing([ToolsPage((ListedTool("a", "first"), ListedTool("a", "second")), None, None)], 3)

    assert (["first"], 3) == ([tool.description for tool in listing.tools.values()], listing.size)


def test_lists_that_differ_in_anything_that_counts_have_another_digest() -> None:
    made = [
        ListedTool("a"),
        ListedTool("b"),
        ListedTool("a", "described"),
        ListedTool("a", schema={}),
        ListedTool("a", output={}),
        ListedTool("a", schema=None),
        ListedTool("a", hints={"idempotentHint": True}),
    ]

    assert len(made) == len({make_listing([ToolsPage((tool,), None, None)], 1).digest for tool in made})


@given(st.binary(max_size=300), st.sampled_from(["application/json", "text/event-stream", ""]))
def test_no_body_makes_reading_fail(body: bytes, kind: str) -> None:
    found = find_answer(kind, body, 1)

    assert found is None or read_page(found) is None or isinstance(read_page(found), ToolsPage)

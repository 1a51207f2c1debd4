"""Lists are known by their bytes: the same list is read once, whoever asks and under which id."""

from __future__ import annotations

import json

import pytest

from proxy.core.model.values import JsonValue
from proxy.extensions.mcp.adapters.mcplist import ToolsPage
from proxy.extensions.mcp.server.lists.reading import ListReader
from proxy.offload.pool import OffloadPool


def answer(request_id: JsonValue, kind: str = "integer") -> bytes:
    schema = {"type": "object", "properties": {"n": {"type": kind}}, "examples": [{"id": kind}]}
    tools = [{"name": "add", "inputSchema": schema}]
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": {"tools": tools}}).encode()


def read(reader: ListReader, request_id: JsonValue, kind: str = "integer") -> ToolsPage:
    page = reader.read_small("application/json", answer(request_id, kind), request_id)
    assert isinstance(page, ToolsPage)
    return page


@pytest.mark.parametrize("ids", [(1, 2), ("a", "b"), (7, "seven"), ("integer", 3)])
def test_a_list_that_was_read_under_another_id_is_the_same_page(ids: tuple[JsonValue, JsonValue]) -> None:
    reader = ListReader(OffloadPool(size=1))

    assert read(reader, ids[0]) is read(reader, ids[1])


def test_an_id_that_a_list_holds_elsewhere_does_not_hide_what_differs() -> None:
    reader = ListReader(OffloadPool(size=1))

    assert read(reader, "integer").tools != read(reader, "string", "string").tools

"""`import mcp`: the tools that a server lists, in either era, page by page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.config.files.yaml12 import read_yaml
from proxy.config.load import load
from proxy.extensions.mcp.importing.mcp import read_mcp
from proxy.extensions.operations.importing.files import make_files, write_files
from proxy.extensions.operations.importing.harvest import Harvest, ImportProblem, read_record
from proxy.extensions.operations.importing.live import compare_source
from tests.extensions.mcp.server import ADD, NOW, McpServer, as_events, as_json, http, result
from tests.serving.wire import Seen, tool

BAD = {"name": "bad", "inputSchema": {"type": "nonsense"}}
BARE = {"name": "bare"}


async def read(server: McpServer, *headers: tuple[str, str]) -> Harvest:
    async with tool(server) as upstream:
        return await read_mcp(f"{upstream.url}/mcp", headers)


def old(session: str = "s1", events: bool = False) -> McpServer:
    """A server with sessions, which refuses what has none as the TypeScript SDK does."""
    ended: list[Seen] = []

    def refuse(seen: Seen) -> bytes | None:
        method = json.loads(seen.body).get("method") if seen.body else seen.start.split(" ")[0]
        if method == "DELETE":
            ended.append(seen)
            return http("200 OK", b"")
        if method == "initialize" or (session and seen.header("mcp-session-id") == session):
            return None
        return http("400 Bad Request", b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"no session"},"id":null}')

    def otherwise(message: Any, seen: Seen) -> bytes:
        if message["method"] != "initialize":
            return http("202 Accepted", b"")
        told = result(message, {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "old"}})
        line = f"Mcp-Session-Id: {session}"
        return as_events(told, more=(line,)) if events else as_json(told, line)

    server = McpServer(refuse=refuse, otherwise=otherwise, events=events)
    server.ended = ended  # type: ignore[attr-defined]
    return server


async def test_lists_tools_of_a_modern_server_without_a_session_page_by_page() -> None:
    server = McpServer(tools=(ADD, NOW), page=1)
    found = await read(server)
    assert ["add", "now"] == [each.name for each in found.tools]
    assert "an MCP server, revision 2026-07-28, 2 tools" == found.about
    assert 2 == len(server.listed)
    assert {"2026-07-28"} == {seen.header("mcp-protocol-version") for seen in server.listed}
    assert {"tools/list"} == {seen.header("mcp-method") for seen in server.listed}


@pytest.mark.parametrize("events", [False, True])
async def test_lists_tools_of_an_old_server_in_a_session_that_it_ends(events: bool) -> None:
    server = old(events=events)
    found = await read(server)
    assert ("an MCP server, revision 2025-06-18, 2 tools", ["add", "now"]) == (
        found.about,
        [each.name for each in found.tools],
    )
    assert [("s1", "2025-06-18")] == [
        (seen.header("mcp-session-id"), seen.header("mcp-protocol-version")) for seen in server.listed
    ]
    assert ["s1"] == [seen.header("mcp-session-id") for seen in server.ended]  # type: ignore[attr-defined]


async def test_leaves_a_stream_that_stays_open_after_the_answer() -> None:
    """Servers should end it (specification 2025-11-25, "Sending Messages"), and some do not."""

    def endless(seen: Seen) -> bytes:
        listed = as_events(result(json.loads(seen.body), {"tools": [ADD]}))
        return listed.removesuffix(b"0\r\n\r\n")

    assert ["add"] == [each.name for each in (await read(McpServer(refuse=endless))).tools]


async def test_a_tool_that_cannot_be_validated_is_left_out_by_name() -> None:
    found = await read(McpServer(tools=(ADD, BAD, BARE, ADD)))
    assert ["add"] == [each.name for each in found.tools]
    left = {each.name: each.why for each in found.left_out}
    assert left.pop("bad").startswith("its schema does not compile: /type: ")
    assert {"bare": "it is listed without a schema", "add": "it is listed twice: the first counts"} == left


async def test_writes_a_route_with_the_schemas_pinned(tmp_path: Path) -> None:
    async with tool(McpServer()) as upstream:
        found = await read_mcp(f"{upstream.url}/shop/mcp", ())
        url = upstream.url
    write_files(tmp_path, make_files(found), force=False)
    (route,) = read_yaml((tmp_path / "config.yaml").read_bytes()).value["routes"]
    pinned = {"add": {"schema": "schemas/add.yaml"}, "now": {"schema": "schemas/now.yaml"}}
    assert {"path": "/shop/mcp", "protocol": "mcp", "upstream": "tools", "mcp": {"tools": pinned}} == route
    assert url == load(tmp_path / "config.yaml", {}).config.upstreams["tools"].url
    assert ADD["inputSchema"] == read_yaml((tmp_path / "schemas" / "add.yaml").read_bytes()).value


async def test_reports_drift_of_listed_tools(tmp_path: Path) -> None:
    before = await read(McpServer())
    write_files(tmp_path, make_files(before), force=False)
    (recorded,) = read_record((tmp_path / "imported.json").read_bytes())
    changed = json.loads(json.dumps(ADD))
    changed["inputSchema"]["properties"]["a"]["type"] = "number"
    drifted = compare_source(recorded, await read(McpServer(tools=(changed, {**NOW, "name": "clock"}))))
    assert ['changed  /properties/a/type: "integer" is now "number"'] == [
        str(change) for change in drifted.changed["add"]
    ]
    assert ({"now": ""}, ("clock",), 0) == (drifted.gone, drifted.new, drifted.same)


async def test_headers_go_with_every_question() -> None:
    server = McpServer(page=1)
    await read(server, ("authorization", "Bearer planted-secret"))
    assert ["Bearer planted-secret"] * 2 == [seen.header("authorization") for seen in server.listed]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http("401 Unauthorized", b"", 'WWW-Authenticate: Bearer realm="x"'), "answers 401"),
        (http("404 Not Found", b"no"), "speaks no MCP"),
        (as_json({"jsonrpc": "2.0", "id": 1, "result": {}}), "speaks no MCP"),
        (http("200 OK", b"<html>", "Content-Type: text/html"), "speaks no MCP"),
    ],
)
async def test_explains_that_an_answer_is_no_mcp_server(answer: bytes, said: str) -> None:
    with pytest.raises(ImportProblem, match=said):
        await read(McpServer(refuse=lambda _: answer))

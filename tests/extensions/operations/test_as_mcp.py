"""Operations of an HTTP API as the tools of an MCP server: one route answers for the server and sends requests."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from proxy.cli.check import summarize
from proxy.config.load import load
from proxy.core.model.values import JsonValue
from proxy.server import Serving, start_serving
from tests.extensions.operations.served import TRIPS, ask, served
from tests.serving.wire import Seen, answer, replies, tool

ROUTE: Final = "  - {path: /mcp, upstream: tools, protocol: mcp, operations: all}\n"
OK: Final = answer("200 OK", b'{"id":7,"title":"Rome"}')
MODERN: Final = "2026-07-28"
META: Final[dict[str, Any]] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def rpc(port: int, method: str, params: Any = None, *headers: str) -> Seen:
    """The answer to a request of an old revision."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, **({} if params is None else {"params": params})}
    accept = "Accept: application/json, text/event-stream"
    return await ask(port, "POST", "/mcp", json.dumps(message).encode(), accept, *headers)


async def modern(port: int, method: str, params: dict[str, Any], *headers: str) -> Seen:
    """The answer to a request of 2026-07-28."""
    told = (f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {method}", *headers)
    return await rpc(port, method, {**params, "_meta": META}, *told)


async def call(port: int, name: str, arguments: Any, *headers: str) -> dict[str, Any]:
    """The result of a call."""
    seen = await rpc(port, "tools/call", {"name": name, "arguments": arguments}, *headers)
    found: dict[str, Any] = json.loads(seen.body)["result"]
    return found


def text_of(result: dict[str, Any]) -> str:
    """Returns what a model reads of a result that is one text."""
    (content,) = result["content"]
    assert "text" == content["type"]
    told: str = content["text"]
    return told


# --- the server that the proxy is -------------------------------------------------------------------------------------
async def test_a_session_of_an_old_revision_begins_and_ends_here() -> None:
    who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    async with tool(replies(OK)) as server, served(TRIPS, server.url, ROUTE) as port:
        begun = await rpc(port, "initialize", who)
        session = f"Mcp-Session-Id: {begun.header('mcp-session-id')}"
        ready = await ask(port, "POST", "/mcp", b'{"jsonrpc":"2.0","method":"notifications/initialized"}', session)
        pinged = await rpc(port, "ping", None, session)
        stream = await ask(port, "GET", "/mcp", b"", "Accept: text/event-stream", session)
        unknown = await rpc(port, "prompts/list", None, session)
        ended = await ask(port, "DELETE", "/mcp", b"", session)
        other = await rpc(port, "initialize", {**who, "protocolVersion": "2030-01-01"})

    version = json.loads(begun.body)["result"]["serverInfo"]["version"]
    server_info = {"name": "toolcall-proxy", "version": version}
    told = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server_info}
    assert told == json.loads(begun.body)["result"]
    assert (202, 405, 200) == (ready.status, stream.status, ended.status)
    assert {} == json.loads(pinged.body)["result"]
    assert -32601 == json.loads(unknown.body)["error"]["code"]
    assert "2025-11-25" == json.loads(other.body)["result"]["protocolVersion"]
    assert begun.header("mcp-session-id") != other.header("mcp-session-id")
    assert [] == server.seen


async def test_a_client_of_the_new_revisions_needs_no_session() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url, ROUTE) as port:
        found = json.loads((await modern(port, "server/discover", {})).body)["result"]
        listed = json.loads((await modern(port, "tools/list", {})).body)["result"]
        named = {"name": "get_trip", "arguments": {"trip-id": 7}}
        told = json.loads((await modern(port, "tools/call", named, "Mcp-Name: get_trip")).body)["result"]

    assert ([MODERN], {"tools": {}}) == (found["supportedVersions"], found["capabilities"])
    assert ("complete", 0, 10) == (listed["resultType"], listed["ttlMs"], len(listed["tools"]))
    assert ("complete", '{"id":7,"title":"Rome"}') == (told["resultType"], text_of(told))
    assert ["GET /trips/7 HTTP/1.1"] == [each.start for each in server.seen]
    assert not {name for name in server.seen[0].names() if name.startswith("mcp-")}


async def test_every_operation_is_listed_with_all_that_it_takes() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url, ROUTE) as port:
        listed = {each["name"]: each for each in json.loads((await rpc(port, "tools/list")).body)["result"]["tools"]}
        paged = json.loads((await rpc(port, "tools/list", {"cursor": "x"})).body)

    assert {
        "get_trip", "update_trip", "delete_trip", "replace_trip", "find_airports", "get_file", "set_labels", "login",
        "add_photo", "list_notes",
    } | set(listed) == set(listed)  # fmt: skip
    update = listed["update_trip"]["inputSchema"]
    assert ({"trip-id", "notify", "title", "budget", "tags"}, "object") == (set(update["properties"]), update["type"])
    assert {"trip-id", "notify", "title"} == set(update["required"])
    assert {"readOnlyHint": True} == listed["get_trip"]["annotations"]
    assert {"destructiveHint": True, "idempotentHint": True} == listed["delete_trip"]["annotations"]
    assert "annotations" not in listed["login"]
    assert "Invalid cursor: the list has one page" == paged["error"]["message"]
    assert [] == server.seen


# --- calls ------------------------------------------------------------------------------------------------------------
async def test_a_call_is_the_request_of_the_service_with_the_clients_own_headers() -> None:
    arguments = {"trip-id": 7, "notify": False, "title": "Rome", "x": 1.50}
    told = ("Authorization: Bearer t", "X-Trace: 1", "Mcp-Session-Id: s", "Accept-Encoding: gzip", "Last-Event-ID: 4")
    async with tool(replies(OK)) as server, served(TRIPS, server.url, ROUTE) as port:
        result = await call(port, "update_trip", arguments, *told)

    assert '{"id":7,"title":"Rome"}' == text_of(result)
    assert [("PATCH /trips/7?notify=false HTTP/1.1", b'{"title":"Rome","x":1.5}')] == [
        (each.start, each.body) for each in server.seen
    ]
    sent = server.seen[0]
    assert ("Bearer t", "1", "application/json") == tuple(
        sent.header(name) for name in ("authorization", "x-trace", "content-type")
    )
    assert (None, None, None) == tuple(
        sent.header(name) for name in ("mcp-session-id", "accept-encoding", "last-event-id")
    )
    assert "application/json, */*;q=0.5" == sent.header("accept")


@pytest.mark.parametrize(
    ("name", "arguments", "start", "body"),
    [
        ("get_trip", {"trip-id": "7"}, "GET /trips/7", b""),
        ("get_trip", '{"trip-id": 7}', "GET /trips/7", b""),
        ("find_airports", {"q": "xy", "limit": "5"}, "GET /airports?q=xy&limit=5", b""),
        ("login", {"user": "a&b", "days": "3"}, "POST /login", b"user=a%26b&days=3"),
        ("set_labels", {"body": '["a"]'}, "POST /labels", b'["a"]'),
        ("list_notes", {}, "GET /notes", b""),
    ],
)
async def test_a_damaged_call_is_repaired(name: str, arguments: Any, start: str, body: bytes) -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url, ROUTE) as port:
        result = await call(port, name, arguments)

    assert "isError" not in result, result
    assert [(f"{start} HTTP/1.1", body)] == [(each.start, each.body) for each in server.seen]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("get_trip", {}, "/trip-id"),
        ("get_trip", {"trip-id": "abc"}, "/trip-id"),
        ("get_file", {"name": "../admin", "kinds": [1]}, "/name"),
        ("get_file", {"name": "a%2Fb", "kinds": [1]}, "/name"),
        ("find_airports", {"q": "xy", "limit": 99}, "/limit"),
        ("add_photo", {"title": "Sea", "photo": "no base64!"}, "/photo"),
        ("no_tool_at_all", {}, "Unknown tool"),
    ],
)
async def test_a_wrong_call_never_arrives(name: str, arguments: Any, told: str) -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url, ROUTE) as port:
        result = await call(port, name, arguments)

    assert ([], True) == (server.seen, result["isError"])
    assert told in text_of(result)


async def test_attempts_of_one_session_count_together() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url, ROUTE) as port:
        for session, number in (("a", "1/3"), ("a", "2/3"), ("b", "1/3")):
            wrong = {"trip-id": f"x{number}"}
            told = text_of(await call(port, "get_trip", wrong, f"Mcp-Session-Id: {session}"))
            assert f"(attempt {number})" in told


async def test_on_a_report_only_route_what_no_request_can_hold_and_unknown_tools_are_still_refused() -> None:
    route = ROUTE.replace("operations: all", "operations: all, mode: report")
    async with tool(replies(OK)) as server, served(TRIPS, server.url, route) as port:
        passed = await call(port, "find_airports", {"q": "xy", "limit": 99})
        left = [
            await call(port, "get_file", {"name": "../admin", "kinds": [1]}),
            await call(port, "no_tool_at_all", {"a": 1}),
            await call(port, "login", [1]),
            await call(port, "rename_trip", [1]),
        ]

    assert "isError" not in passed
    assert [True] * 4 == [result["isError"] for result in left]
    assert ["GET /airports?q=xy&limit=99 HTTP/1.1"] == [each.start for each in server.seen]


# --- answers ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("reply", "content"),
    [
        (answer("200 OK", b'{"a": "\xc3\xa9"}'), {"type": "text", "text": '{"a": "\u00e9"}'}),
        (answer("200 OK", b"caf\xe9", "Content-Type: text/plain; charset=iso-8859-1"),
         {"type": "text", "text": "caf\u00e9"}),
        (answer("200 OK", b"\x89PNG", "Content-Type: image/png"),
         {"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"}),
        (answer("200 OK", b"%PDF\xff", "Content-Type: application/pdf"),
         {"type": "resource", "resource": {"uri": "tool-result:get_trip", "mimeType": "application/pdf",
                                           "blob": base64.b64encode(b"%PDF\xff").decode()}}),
        (answer("200 OK", gzip.compress(b'{"a":1}'), "Content-Type: application/json", "Content-Encoding: gzip"),
         {"type": "text", "text": '{"a":1}'}),
        (b"HTTP/1.1 204 No Content\r\n\r\n", {"type": "text", "text": "HTTP status 204, no content"}),
        (answer("303 See Other", b"", "Location: /trips/8"),
         {"type": "text", "text": "HTTP status 303, no content; location: /trips/8"}),
    ],
)  # fmt: skip
async def test_an_answer_of_the_service_is_the_result(reply: bytes, content: JsonValue) -> None:
    async with tool(replies(reply)) as server, served(TRIPS, server.url, ROUTE) as port:
        result = await call(port, "get_trip", {"trip-id": 7})

    assert {"content": [content]} == result


async def test_a_long_answer_is_read_whole_and_one_beyond_bounds_is_an_error() -> None:
    long = b"[" + b"1," * 1_000_000 + b"1]"
    endless = b"x" * (17 * 1024 * 1024)
    both = replies(answer("200 OK", long), answer("200 OK", endless))
    async with tool(both) as server, served(TRIPS, server.url, ROUTE) as port:
        whole = text_of(await call(port, "get_trip", {"trip-id": 7}))
        cut = await call(port, "get_trip", {"trip-id": 8})

    assert long == whole.encode()
    assert cut["isError"]
    assert "its answer is longer than 16,384 KiB" in text_of(cut)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (answer("404 Not Found", b'{"detail":"no trip 7"}'), "no trip 7"),
        (answer("422 Unprocessable Entity",
                b'{"detail":[{"loc":["path","trip-id"],"msg":"is too old","type":"value_error"}]}'), "/trip-id"),
        (answer("200 OK", b'{"success": false, "error": {"message": "sold out"}}'), "sold out"),
        (answer("500 Internal Server Error", b"boom"), "HTTP status 500"),
    ],
)  # fmt: skip
async def test_an_error_of_the_service_is_explained_as_on_every_http_route(reply: bytes, told: str) -> None:
    async with tool(replies(reply)) as server, served(TRIPS, server.url, ROUTE) as port:
        result = await call(port, "get_trip", {"trip-id": 7})

    assert result["isError"]
    assert told in text_of(result)


async def test_returns_an_error_of_the_service_unchanged_if_the_operator_wants_that() -> None:
    route = ROUTE.replace("operations: all", "operations: all, upstream_errors: passthrough")
    async with (
        tool(replies(answer("409 Conflict", b'{"a": 1}'))) as server,
        served(TRIPS, server.url, route) as port,
    ):
        result = await call(port, "get_trip", {"trip-id": 7})

    assert {"content": [{"type": "text", "text": '{"a": 1}'}], "isError": True} == result


async def test_a_service_out_of_reach_is_explained() -> None:
    async with tool(replies(OK)) as server:
        gone = server.url
    async with served(TRIPS, gone, ROUTE) as port:
        result = await call(port, "get_trip", {"trip-id": 7})

    assert result["isError"]
    assert "could not be reached" in text_of(result)


# --- what a config says of it -----------------------------------------------------------------------------------------
CONFIG: Final = """\
version: 1
listen: 127.0.0.1:0
admin: off
upstreams: {{shop: {{url: "{url}", headers: {{set: {{x-key: k}}}}}}}}
tools:
  find:
    description: Finds books.
    schema: {{type: object, properties: {{q: {{type: string}}}}, required: [q]}}
    request: {{method: GET, path: /books, parameters: [{{name: q, in: query}}]}}
  take:
    schema: {{type: object, properties: {{id: {{type: integer}}}}, required: [id]}}
    request: {{method: POST, path: "/books/{{id}}/take"}}
    attempts: {{max: 5}}
  plain: {{schema: {{type: object}}}}
routes:
  - {{path: /mcp, protocol: mcp, upstream: shop, operations: {operations}{more}}}
"""


@contextlib.asynccontextmanager
async def shop(folder: Path, url: str, operations: str = "all", more: str = "") -> AsyncIterator[Serving]:
    """A proxy with the config above."""
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(url=url, operations=operations, more=more))
    serving = await start_serving(load(config, {}))
    try:
        yield serving
    finally:
        await serving.stop(grace=0.5)


def port_of(serving: Serving) -> int:
    return int(serving.url.rsplit(":", 1)[1])


@pytest.mark.parametrize(
    ("operations", "more", "names"),
    [
        ("all", "", ["find", "take"]),
        ("[take]", "", ["take"]),
        ("all", ", mcp: {deny: [take]}", ["find"]),
        ("all", ", mcp: {collapse: {name: shop}}", ["shop"]),
    ],
)
async def test_a_config_says_which_tools_are_served(
    tmp_path: Path, operations: str, more: str, names: list[str]
) -> None:
    async with tool(replies(OK)) as server, shop(tmp_path, server.url, operations, more) as serving:
        listed = json.loads((await rpc(port_of(serving), "tools/list")).body)["result"]["tools"]

    assert names == [each["name"] for each in listed]


async def test_a_tool_keeps_what_the_catalogue_says_of_it_and_the_upstreams_headers_are_set(tmp_path: Path) -> None:
    async with tool(replies(OK)) as server, shop(tmp_path, server.url) as serving:
        wrong = await call(port_of(serving), "take", {"id": "x"})
        await call(port_of(serving), "take", {"id": 3})

    assert "(attempt 1/5)" in text_of(wrong)
    assert [("POST /books/3/take HTTP/1.1", b"", "k")] == [
        (each.start, each.body, each.header("x-key")) for each in server.seen
    ]


async def test_a_query_next_to_the_messages_is_refused() -> None:
    async with tool(replies(OK)) as server, served(TRIPS, server.url, ROUTE) as port:
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_notes", "arguments": {}}}
        seen = await ask(port, "POST", "/mcp?limit=99", json.dumps(message).encode())

    assert ([], 400) == (server.seen, seen.status)


def test_check_names_the_operations(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(url="http://127.0.0.1:9", operations="all", more=""))
    assert [
        "c.yaml: ok, 1 route, 2 tools",
        "  DELETE,GET,POST /mcp  call         find, take -> operations of /mcp",
    ] == summarize(load(config, {}), "c.yaml")


async def test_a_reload_serves_other_operations(tmp_path: Path) -> None:
    async with tool(replies(OK)) as server, shop(tmp_path, server.url) as serving:
        port = port_of(serving)
        before = await call(port, "take", {"id": 3})
        text = CONFIG.format(url=server.url, operations="[find]", more="")
        (tmp_path / "config.yaml").write_text(text)
        await serving.reloader.reload()
        listed = json.loads((await rpc(port, "tools/list")).body)["result"]["tools"]
        after = await call(port, "take", {"id": 3})

    assert (False, ["find"], True) == ("isError" in before, [each["name"] for each in listed], after["isError"])
    assert 1 == len(server.seen)

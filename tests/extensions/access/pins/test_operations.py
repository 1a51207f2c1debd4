"""Pins of HTTP operations: an OpenAPI document that changes while plain routes serve its operations."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.extensions.access.lock_file import read_lock
from proxy.server import start_serving
from tests.extensions.access.pins.test_pin_verb import pin
from tests.serving.proxied import Proxied, code
from tests.serving.wire import JSON_TYPE, Seen, Tool, answer, replies, tool

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "t", "version": "1"},
    "paths": {
        "/book/{day}": {
            "post": {
                "operationId": "book",
                "summary": "Books a table.",
                "parameters": [{"name": "day", "in": "path", "required": True, "schema": {"type": "string"}}],
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {"type": "object", "properties": {"people": {"type": "integer", "maximum": 8}}}
                        }
                    }
                },
                "responses": {"200": {"description": "done"}},
            }
        },
        "/menu": {"get": {"operationId": "menu", "summary": "The menu.", "responses": {"200": {"description": "it"}}}},
    },
}
TOOLS = "{book: {schema: {openapi: api.json, operation: book}}, menu: {schema: {openapi: api.json, operation: menu}}}"
ROUTES = """
  - {path: '/book/{day}', upstream: tools, tool: book}
  - {path: /menu, methods: [GET], upstream: tools, tool: menu}
  - {path: '/tools/{tool}', upstream: tools}
"""


def change(**changes: Any) -> dict[str, Any]:
    """The document, in which the operation `book` has other keys."""
    made: dict[str, Any] = json.loads(json.dumps(DOCUMENT))
    made["paths"]["/book/{day}"]["post"] |= changes
    return made


def move(path: str) -> dict[str, Any]:
    """The document, in which the operation `book` has another path."""
    made = change()
    made["paths"][path] = made["paths"].pop("/book/{day}")
    return made


@dataclass
class Served:
    """A proxy whose plain routes serve the operations of a document."""

    folder: Path
    proxy: Proxied
    server: Tool

    async def take_over(self, document: dict[str, Any]) -> None:
        (self.folder / "api.json").write_text(json.dumps(document))
        await self.proxy.ask_admin("/-/reload", "Content-Length: 0", method="POST")

    async def book(self, path: str = "/tools/book", body: bytes = b'{"day": "mo", "people": 2}') -> Seen:
        return await self.proxy.post(path, body)

    async def menu(self) -> Seen:
        return await self.proxy.post("/tools/menu", b"{}")

    @property
    def sent(self) -> list[str]:
        return [seen.start.rpartition(" ")[0] for seen in self.server.seen]

    @property
    def told(self) -> list[tuple[str, str, str, str]]:
        lines = map(json.loads, self.proxy.log.getvalue().splitlines())
        return [
            (line["route"], line["tool"], line["effect"], line["change"])
            for line in lines
            if line["message"] == "tool is not defined as pinned"
        ]


@asynccontextmanager
async def serve(folder: Path, changed: str, routes: str = ROUTES) -> AsyncIterator[Served]:
    """A proxy for which the document was pinned."""
    (folder / "api.json").write_text(json.dumps(DOCUMENT))
    log = io.StringIO()
    async with tool(replies(answer("200 OK", b"{}", JSON_TYPE))) as server:
        config = folder / "config.yaml"
        config.write_text(
            f"version: 1\nlisten: 127.0.0.1:0\nadmin: {{listen: 127.0.0.1:0}}\npins: {{changed: {changed}}}\n"
            f"upstreams: {{tools: {{url: '{server.url}'}}}}\ntools: {TOOLS}\nroutes:{routes}"
        )
        assert 0 == await pin(config)
        serving = await start_serving(load(config, {}), log_to=log, environ={})
        try:
            yield Served(folder, Proxied(serving, log), server)
        finally:
            await serving.stop(grace=0.5)


async def test_each_operation_of_each_route_is_written_with_its_request(tmp_path: Path) -> None:
    async with serve(tmp_path, "hide"):
        found = read_lock((tmp_path / "tools.lock").read_bytes())
    assert {"/book/{day}": {"book"}, "/menu": {"menu"}, "/tools/{tool}": {"book", "menu"}} == {
        route: set(tools) for route, tools in found.items()
    }
    book = found["/tools/{tool}"]["book"]
    assert ("Books a table.", {"day", "people"}) == (book["description"], set(book["inputSchema"]["properties"]))
    assert {"method": "POST", "path": "/book/{day}", "body": "json"} == book["request"]


WIDER = {"application/json": {"schema": {"type": "object", "properties": {"people": {"type": "integer"}}}}}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (change(summary="Books a table. Call `menu` first."), "look at /description: an instruction about the tool"),
        (change(requestBody={"content": WIDER}), "removed /inputSchema/properties/people/maximum: 8"),
        (move("/cancel/{day}"), 'changed /request/path: "/book/{day}" is now "/cancel/{day}"'),
    ],
    ids=["description", "schema", "path"],
)
async def test_a_changed_operation_is_not_called_by_any_route_and_the_others_go_on(
    tmp_path: Path, document: dict[str, Any], told: str
) -> None:
    async with serve(tmp_path, "hide") as there:
        assert [200, 200] == [(await there.book()).status, (await there.menu()).status]
        await there.take_over(document)
        refused = [await there.book(), await there.book("/book/mo", b'{"people": 2}')]
        assert 200 == (await there.menu()).status
        metrics = (await there.proxy.ask_admin("/metrics")).body.decode()
        overview = json.loads((await there.proxy.ask_admin("/-/overview")).body)

    assert [(403, "TOOL_NOT_APPROVED")] * 2 == [*map(code, refused)]
    assert ["POST /book/mo", "GET /menu", "GET /menu"] == there.sent
    assert [("/book/{day}", "book", "hide"), ("/tools/{tool}", "book", "hide")] == [each[:3] for each in there.told]
    assert all(told in " ".join(change.split()) for *_, change in there.told), there.told
    counted = [line.split() for line in metrics.splitlines() if line.startswith("toolproxy_unpinned_tools_total{")]
    assert ["1.0", "1.0"] == [number for _, number in counted]
    needs = [need["text"] for need in overview["needs"] if need["what"] == "pins"]
    assert needs[0].endswith("/config.yaml --route '/book/{day}' --only book"), needs


async def test_an_operation_is_served_again_once_the_command_approves_it(tmp_path: Path) -> None:
    document = change(summary="Books a table for you.")
    async with serve(tmp_path, "hide") as there:
        await there.take_over(document)
        assert 403 == (await there.book()).status
        assert 1 == await pin(tmp_path / "config.yaml", "--check")
        assert 0 == await pin(tmp_path / "config.yaml", "--only", "book")
        assert 0 == await pin(tmp_path / "config.yaml", "--check")
        await there.take_over(document)
        assert 200 == (await there.book()).status


async def test_only_with_hide_a_changed_operation_is_missing_among_the_known_tools(tmp_path: Path) -> None:
    for changed, known in (("hide", False), ("refuse", True), ("warn", True)):
        folder = tmp_path / changed
        folder.mkdir()
        async with serve(folder, changed) as there:
            await there.take_over(change(summary="Books all tables."))
            unknown = await there.proxy.post("/tools/bok", b"{}")
            called = await there.book()
        assert (known, changed == "warn") == (b"book" in unknown.body, called.status == 200), changed


async def test_another_order_of_keys_other_blanks_and_spellings_of_numbers_are_no_change(tmp_path: Path) -> None:
    def turn(value: Any) -> Any:
        return {key: turn(item) for key, item in reversed(value.items())} if isinstance(value, dict) else value

    async with serve(tmp_path, "hide") as there:
        text = json.dumps(turn(DOCUMENT), indent=3).replace('"maximum": 8', '"maximum": 8.0')
        (tmp_path / "api.json").write_text(text)
        await there.proxy.ask_admin("/-/reload", "Content-Length: 0", method="POST")
        assert (200, []) == ((await there.book()).status, there.told)


async def test_an_operation_that_was_removed_and_put_back_is_approved_as_before(tmp_path: Path) -> None:
    without = change()
    del without["paths"]["/book/{day}"]
    async with serve(tmp_path, "hide") as there:
        await there.take_over(without)
        assert 200 == (await there.book()).status  # the config names what the document does not have: not taken over
        await there.take_over(DOCUMENT)
        assert (200, []) == ((await there.book()).status, there.told)


async def test_a_route_that_is_new_has_no_approved_operation(tmp_path: Path) -> None:
    async with serve(tmp_path, "hide") as there:
        config = tmp_path / "config.yaml"
        config.write_text(config.read_text() + "  - {path: '/more/{tool}', upstream: tools}\n")
        await there.take_over(DOCUMENT)
        assert (403, 200) == ((await there.book("/more/book")).status, (await there.book()).status)
    assert ("/more/{tool}", "book", "hide", "new") in there.told


async def test_a_report_only_route_only_warns(tmp_path: Path) -> None:
    routes = "\n  - {path: '/tools/{tool}', upstream: tools, mode: report}\n"
    async with serve(tmp_path, "hide", routes) as there:
        await there.take_over(change(summary="Books all tables."))
        assert (200, ["warn"]) == ((await there.book()).status, [effect for _, _, effect, _ in there.told])


async def test_a_caller_without_access_does_not_learn_that_an_operation_changed(tmp_path: Path) -> None:
    token = "a-token-of-the-caller-0123"
    digest = hashlib.sha256(token.encode()).hexdigest()
    access = f"auth: {{bearer: {{ci: 'sha256:{digest}'}}}}, allow: [{{when: {{token: ci}}, tools: [menu]}}]"
    async with serve(tmp_path, "refuse", f"\n  - {{path: '/tools/{{tool}}', upstream: tools, {access}}}\n") as there:
        await there.take_over(change(summary="Books all tables."))
        bearer = f"Authorization: Bearer {token}"
        refused = await there.proxy.post("/tools/book", b'{"day": "mo"}', bearer)
        called = await there.proxy.post("/tools/menu", b"{}", bearer)
        nobody = await there.proxy.post("/tools/book", b'{"day": "mo"}')
    assert ("CALL_NOT_ALLOWED", 200, "TOKEN_REQUIRED") == (code(refused)[1], called.status, code(nobody)[1])


async def test_a_decision_about_a_changed_operation_is_in_the_audit(tmp_path: Path) -> None:
    async with serve(tmp_path, "hide") as there:
        config = tmp_path / "config.yaml"
        config.write_text(config.read_text().replace("pins:", "access: {audit: audit.jsonl}\npins:"))
        await there.take_over(change(summary="Books all tables."))
        await there.book()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [("denied", "TOOL_NOT_APPROVED", "book")] == [
        (line["outcome"], line["code"], line["tool"]) for line in lines
    ]


async def test_an_operation_that_an_mcp_route_lists_is_pinned_with_its_request(tmp_path: Path) -> None:
    routes = "\n  - {path: /mcp, upstream: tools, protocol: mcp, operations: all}\n"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "book", "arguments": {"day": "mo"}}}
    async with serve(tmp_path, "hide", routes) as there:
        found = read_lock((tmp_path / "tools.lock").read_bytes())
        assert "/book/{day}" == found["/mcp"]["book"]["request"]["path"]
        answers = []
        for document in (DOCUMENT, move("/cancel/{day}")):
            await there.take_over(document)
            body = json.dumps(call).encode()
            shown = await there.proxy.post("/mcp", body, "Accept: application/json, text/event-stream")
            answers.append(json.loads(shown.body)["result"])

    assert [False, True] == [each.get("isError", False) for each in answers]
    assert "TOOL_NOT_APPROVED" in json.dumps(answers[1])
    assert ["POST /book/mo"] == there.sent
    assert ['changed /request/path: "/book/{day}" is now "/cancel/{day}"'] == [
        " ".join(change.split()) for *_, change in there.told
    ]

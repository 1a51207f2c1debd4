"""Rules by the annotations that an MCP server lists for its tools: who sees the tools, who may call them, and the
annotations that count. These may be missing, changed, or not approved by anybody."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.check import summarize
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.extensions.access.core.access_rules import names_tool
from proxy.extensions.access.core.settings import AccessRule
from proxy.extensions.mcp.config.model import McpConfig
from proxy.server import start_serving
from tests.extensions.access.test_mcp_access import AUTH, BEARER, LIST, names
from tests.extensions.mcp import stdio_server
from tests.extensions.mcp.conversation import Talk, feedback, refusal, talk, text
from tests.extensions.mcp.server import ADD, McpServer, as_events, call, http, result
from tests.extensions.mcp.test_guided import DISCOVER, introduce
from tests.extensions.mcp.test_joined import Client
from tests.extensions.mcp.test_stdio import started, text_of
from tests.extensions.mcp.test_stdio_upstream import asked
from tests.serving.proxied import Proxied, proxied, proxied_by
from tests.serving.test_clocks import Clocks
from tests.serving.wire import JSON_TYPE, answer, replies, tool

RULES = "allow: [{when: {token: reader}, annotations: {readOnlyHint: true}}]"
MORE = f"{AUTH}, {RULES}"
TRUST = "trust_annotations: on"
PROCESS = [sys.executable, stdio_server.__file__]


def listed(name: str, **hints: Any) -> dict[str, Any]:
    """A tool as a server lists it, with its hints."""
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, "annotations": hints}


READ, WRITE = listed("read", readOnlyHint=True), listed("write", readOnlyHint=False)
SILENT = {**ADD, "name": "silent"}
BOTH_AT_ONCE = listed("both", readOnlyHint=True, destructiveHint=True)
NO_BOOLEAN = listed("text", readOnlyHint="true")
TOOLS = [READ, WRITE, SILENT, BOTH_AT_ONCE, NO_BOOLEAN]


@pytest.mark.parametrize("mode", ["", ", mode: report"])
@pytest.mark.parametrize("events", [False, True])
async def test_a_caller_sees_and_calls_what_its_server_says_to_be_read_only(events: bool, mode: str) -> None:
    async with talk(McpServer(TOOLS, events=events), TRUST, MORE + mode) as client:
        assert [b"read"] == [
            name
            for name in (b"read", b"write", b"silent", b"both", b"text")
            if b'"' + name + b'"' in (await client.send(LIST, BEARER)).body
        ]
        assert b"isError" not in (await client.send(call("read", {"at": 1}), BEARER)).body
        for name in ("write", "silent", "both", "text"):
            refused = await client.ask(call(name, {"at": 1}), BEARER)
            assert (True, "CALL_NOT_ALLOWED") == refusal(refused)
            assert False is feedback(refused)["retryable"]
            assert "cannot be mended by another call" in text(refused)

    assert [{"at": 1}] == client.received


async def test_validates_a_call_whose_client_never_requested_the_list() -> None:
    async with talk(McpServer(TOOLS), TRUST, MORE) as client:
        refused = await client.ask(call("write", {}), BEARER)
        served = await client.ask(call("read", {}), BEARER)

    assert ((True, "CALL_NOT_ALLOWED"), "{}", [{}]) == (refusal(refused), text(served), client.received)


async def test_checks_a_list_page_by_page() -> None:
    async with talk(McpServer(TOOLS, page=1), TRUST, MORE) as client:
        pages = [
            [tool["name"] for tool in (await client.ask({**LIST, **params}, BEARER))["result"]["tools"]]
            for params in ({}, *({"params": {"cursor": str(at)}} for at in range(1, 5)))
        ]
        refused = await client.ask(call("write", {}), BEARER)

    assert ([["read"], [], [], [], []], (True, "CALL_NOT_ALLOWED")) == (pages, refusal(refused))


async def test_never_calls_an_unlisted_tool_even_if_unknown_tools_are_forwarded() -> None:
    for mcp, mode in (("unknown_schema: forward", ""), ("", ", mode: report")):
        async with talk(McpServer(TOOLS), f"{TRUST}, {mcp}", MORE + mode) as client:
            refused = await client.ask(call("hidden_tool", {}), BEARER)
            assert (True, [], []) == (refused["result"]["isError"], client.received, client.server.calls)


@pytest.mark.parametrize("mode", ["", ", mode: report"])
async def test_nothing_is_called_while_no_list_can_be_had(mode: str) -> None:
    def refuse(seen: Any) -> bytes | None:
        return http("500 Internal Server Error", b"") if b"tools/list" in seen.body else None

    async with talk(McpServer(TOOLS, refuse=refuse), f"{TRUST}, unknown_schema: forward", MORE + mode) as client:
        refused = await client.ask(call("read", {}), BEARER)

    assert ((True, "CALL_NOT_ALLOWED"), []) == (refusal(refused), client.received)


async def test_the_newest_list_decides_over_a_call() -> None:
    clock, server = Clocks(), McpServer([READ])
    route = f"  - {{path: /mcp, upstream: tools, protocol: mcp, mcp: {{{TRUST}}}, {MORE}}}"
    async with tool(server) as upstream, proxied_by(clock, route, upstream.url) as proxy:
        client = Talk(proxy, upstream, server)
        assert "{}" == text(await client.ask(call("read", {}), BEARER))
        server.tools = [listed("read", readOnlyHint=False)]
        assert [] == await names(client)
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("read", {}), BEARER))
        server.tools = [READ]
        clock.monotonic += 2  # the proxy requests the list for a hidden tool at most once a second
        assert "{}" == text(await client.ask(call("read", {}), BEARER))

    assert [{}, {}] == client.received


async def test_a_name_with_another_hint_is_no_longer_called_once_the_server_says_that_its_list_has_changed() -> None:
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    server = McpServer([READ])

    def answer_call(message: dict[str, Any], _: Any) -> bytes:
        server.tools = [listed("read", destructiveHint=True)]
        return as_events(changed, result(message, {"content": []}))

    server.called = answer_call
    async with talk(server, TRUST, MORE) as client:
        await client.send(call("read", {}), BEARER)
        refused = await client.ask(call("read", {}), BEARER)

    assert ((True, "CALL_NOT_ALLOWED"), [{}]) == (refusal(refused), client.received)


async def test_a_renamed_tool_keeps_the_hints_of_the_one_that_its_server_lists() -> None:
    renames = "tools: {write: {as: read}, read: {as: look}}"
    async with talk(McpServer([READ, WRITE]), f"{TRUST}, {renames}", MORE) as client:
        assert ["look"] == await names(client)
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("read", {}), BEARER))
        assert "{}" == text(await client.ask(call("look", {}), BEARER))

    assert ["read"] == [json.loads(seen.body)["params"]["name"] for seen in client.server.calls]


async def test_callers_whose_rules_name_other_hints_see_other_lists() -> None:
    token = "wiper-token-01234567"
    auth = AUTH.replace("bearer: {", f"bearer: {{wiper: 'sha256:{hashlib.sha256(token.encode()).hexdigest()}', ")
    rules = RULES.replace("allow: [", "allow: [{when: {token: wiper}, annotations: {openWorldHint: false}}, ")
    wipe = listed("wipe", destructiveHint=True, openWorldHint=False)
    async with talk(McpServer([READ, wipe, SILENT]), TRUST, f"{auth}, {rules}") as client:
        others = await client.ask(LIST, f"Authorization: Bearer {token}")
        assert (["read"], ["wipe"]) == (await names(client), [tool["name"] for tool in others["result"]["tools"]])
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("wipe", {}), BEARER))


async def test_containers_their_search_and_guidance_show_the_same() -> None:
    many = [READ, WRITE, *(listed(f"tool_{number}", readOnlyHint=True) for number in range(30))]
    async with talk(McpServer(many), f"{TRUST}, collapse: {{name: everything}}", MORE) as client:
        shown = [
            (await client.send(message, BEARER)).body
            for message in (LIST, call("everything", {}), call("search_tools", {"query": "does write"}))
        ]
        assert [False] * 3 == [b"Does write" in body for body in shown]
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("write", {}), BEARER))
    for place in ("descriptions", "instructions"):
        server = introduce({})
        server.tools = [listed("read", readOnlyHint=True), WRITE]
        async with talk(server, TRUST, MORE, guidance=f"{{mcp: {place}}}") as client:
            seen = json.dumps([await client.ask_modern(message, BEARER) for message in (LIST, DISCOVER)])
            assert (True, False) == ("Does read" in seen, "Does write" in seen)


# --- other kinds of servers -------------------------------------------------------------------------------------------
async def test_each_of_several_joined_processes_lists_its_own_tools() -> None:
    upstreams = ", ".join(f"{name}: {{command: {json.dumps(PROCESS)}}}" for name in "ab")
    route = f"  - {{path: /mcp, protocol: mcp, servers: {{a: a, b: b}}, mcp: {{{TRUST}}}, {MORE}}}\n"
    async with proxied(route, upstreams=f"{{{upstreams}}}") as proxy:
        client = Client(proxy, BEARER)
        await client.begin()
        assert {"a_pid", "b_pid"} == await client.names()
        assert text(await client.ask(call("b_pid", {}))).isdigit()
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("b_echo", {"a": 5})))


async def test_over_stdio_a_rule_holds_for_the_one_client(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"version: 1\nupstreams: {{one: {{command: {json.dumps(PROCESS)}}}}}\n"
        f"routes: [{{path: /one, upstream: one, protocol: mcp, mcp: {{{TRUST}}}, "
        "allow: [{annotations: {readOnlyHint: true}}]}]\n"
    )
    async with started("stdio", "--config", str(config)) as client:
        await client.begin()
        assert ["pid"] == [entry["name"] for entry in (await client.ask(asked("tools/list", 1)))["result"]["tools"]]
        assert (await text_of(client, "pid")).isdigit()
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("echo", {"a": 5})))


OPENAPI = """
openapi: 3.1.0
info: {title: t, version: '1'}
paths:
  /books:
    get: {operationId: find, responses: {'200': {description: done}}}
    delete: {operationId: drop, responses: {'200': {description: done}}}
"""


async def test_operations_have_the_hints_of_their_methods_without_being_trusted(tmp_path: Path) -> None:
    document = tmp_path / "api.yaml"
    document.write_text(OPENAPI)
    tools = ", ".join(f"{name}: {{schema: {{openapi: '{document}', operation: {name}}}}}" for name in ("find", "drop"))
    route = f"  - {{path: /mcp, upstream: tools, protocol: mcp, operations: all, {MORE}}}"
    async with (
        tool(replies(answer("200 OK", b"{}", JSON_TYPE))) as server,
        proxied(route, server.url, tools=f"{{{tools}}}") as proxy,
    ):
        client = Client(proxy, BEARER)
        assert {"find"} == await client.names()
        assert "{}" == text(await client.ask(call("find", {})))
        assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("drop", {})))
    assert ["GET /books HTTP/1.1"] == [seen.start for seen in server.seen]


# --- what counts ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("said", "wanted", "fits"),
    [
        ({}, {"readOnlyHint": False}, True),
        ({}, {"readOnlyHint": True}, False),
        ({}, {"destructiveHint": True}, True),
        ({}, {"destructiveHint": False}, False),
        ({}, {"idempotentHint": False}, True),
        ({}, {"idempotentHint": True}, False),
        ({}, {"openWorldHint": True}, True),
        ({}, {"openWorldHint": False}, False),
        ({"destructiveHint": False}, {"destructiveHint": False}, True),
        ({"destructiveHint": False}, {"destructiveHint": False, "openWorldHint": False}, False),
        ({"readOnlyHint": True, "destructiveHint": True}, {"readOnlyHint": True}, False),
        (None, {"readOnlyHint": False}, False),
        (None, {"destructiveHint": True}, False),
        (None, {}, True),
    ],
)
def test_a_hint_that_is_missing_has_the_value_of_the_protocol_and_no_rule_holds_of_an_unknown_tool(
    said: Mapping[str, bool] | None, wanted: Mapping[str, bool], fits: bool
) -> None:
    assert fits is names_tool(AccessRule("rule", hints=wanted), "a", said)
    assert False is names_tool(AccessRule("rule", ("b",), hints=wanted), "a", said)


def write(folder: Path, route: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(
        f"version: 1\nupstreams: {{tools: {{url: http://127.0.0.1:9}}}}\nroutes:\n  - {{upstream: tools, {route}}}\n"
    )
    return path


HOLDS = "allow: [{annotations: {readOnlyHint: true}}]"


@pytest.mark.parametrize(
    ("route", "told"),
    [
        (
            f"path: /a, protocol: mcp, {HOLDS}",
            "does not trust those of its server  (add `mcp: {trust_annotations: on}`",
        ),
        (f"path: /a, tool: a, schema: {{}}, {HOLDS}", "no server lists its tools  (name the tools with `tools`"),
        (f"path: /a, passthrough: true, {HOLDS}", "`annotations` means nothing on route '/a'"),
        (f"path: /a, protocol: mcp, {HOLDS.replace('readOnlyHint', 'readonlyHint')}", "unknown key 'readonlyHint'"),
        (f"path: /a, protocol: mcp, {HOLDS.replace('true', 'maybe')}", "readOnlyHint"),
        ("path: /a, protocol: mcp, allow: [{annotations: {}}]", "annotations"),
    ],
)
def test_reports_a_rule_that_can_never_hold_with_its_line_and_the_fix(tmp_path: Path, route: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(write(tmp_path, route), {})
    (line,) = map(str, raised.value.mistakes)
    assert (True, True) == (line.startswith(f"{tmp_path}/config.yaml:4:"), told in line), line


def test_check_shows_what_its_server_has_to_say_of_a_tool(tmp_path: Path) -> None:
    rules = (
        "allow: [{annotations: {readOnlyHint: true, openWorldHint: false}, tools: ['get_*', find]}, "
        "{annotations: {destructiveHint: false}}]"
    )
    lines = summarize(load(write(tmp_path, f"path: /a, protocol: mcp, mcp: {{{TRUST}}}, {rules}"), {}), "config.yaml")
    at = lines.index("who may call what:")
    assert [
        "  /a     rule-1  anybody  get_*, find listed with readOnlyHint=true and openWorldHint=false  any arguments",
        "  /a     rule-2  anybody  every tool listed with destructiveHint=false                       any arguments",
    ] == lines[at + 2 : at + 4]


async def test_an_untrusted_annotation_opens_nothing_even_if_a_rule_names_it(tmp_path: Path) -> None:
    path = write(tmp_path, f"path: /mcp, protocol: mcp, mcp: {{{TRUST}}}, {HOLDS}")
    server = McpServer([READ])
    async with tool(server) as upstream:
        path.write_text(
            path.read_text().replace("http://127.0.0.1:9", upstream.url)
            + "listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\n"
        )
        loaded = load(path, {})
        (route,) = loaded.config.routes
        assert isinstance(route.listed, McpConfig)
        doubted = replace(route, listed=replace(route.listed, trust_annotations=False))
        config = replace(loaded.config, routes=(doubted,))
        serving = await start_serving(replace(loaded, config=config), log_to=io.StringIO())
        client = Talk(Proxied(serving, io.StringIO()), upstream, server)
        try:
            assert [] == await names(client)
            assert (True, "CALL_NOT_ALLOWED") == refusal(await client.ask(call("read", {})))
        finally:
            await serving.stop(grace=0.5)
    assert [] == client.received

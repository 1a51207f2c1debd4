"""The audit: each call is exactly one line with its outcome, whatever becomes of the call."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.call_record import AccessNote, CallRecord
from proxy.config.load import load
from proxy.core.model.values import Conversation, Document, Rung, ToolCall
from proxy.extensions.access.audit import CallAudit, find_outcome
from proxy.routing import RouteTable
from proxy.server.setup.services import SystemClock, SystemPacing
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics, Served
from tests.extensions.access.issuer import OK, guarded
from tests.extensions.access.test_access_config import write
from tests.extensions.access.test_mcp_access import AUTH as MCP_AUTH
from tests.extensions.access.test_mcp_access import BEARER, DROP, LIST
from tests.extensions.access.test_rules import AUTH, READER, TOOLS, call
from tests.extensions.chat.answers import ROUTES as MODEL
from tests.extensions.chat.answers import chat_answer, chat_request, whole
from tests.extensions.mcp.conversation import Talk
from tests.extensions.mcp.server import ADD, McpServer
from tests.extensions.mcp.server import call as mcp_call
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, replies, tool
from tests.steady import until

OUTCOMES = ("answered", "sent", "denied", "limited", "refused", "left")
RULES = """allow: [{name: readers, tools: [read_file, write_file]}],
    deny: [{name: no-etc, tools: [read_file], arguments: {properties: {path: {pattern: "^/etc/"}}}}]"""
ROUTE = f"  - {{path: '/files/{{tool}}', upstream: tools, auth: {AUTH}, {RULES}}}"


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def shown(file: Path, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(line.get(name, "") for name in names) for line in read(file)]


@pytest.mark.parametrize("report", ["", ", mode: report"])
async def test_each_call_has_one_line_with_its_outcome(tmp_path: Path, report: str) -> None:
    file = tmp_path / "audit"
    limits = ", limits: {rate: {calls: 1, per: 1h, by: tool}}" if not report else ""
    tools = TOOLS.replace("required: [path]}}", f"required: [path]}}{limits}}}", 1)
    route = ROUTE.replace(", allow", f"{report}, allow")
    async with (
        tool(replies(OK)) as server,
        proxied(route, server.url, tools=tools, access=f"{{audit: {file}}}") as proxy,
    ):
        await call(proxy, "read_file", {"path": "/etc/secret-value"})
        await call(proxy, "read_file", {"path": "/data/secret-value"})
        await call(proxy, "read_file", {"path": "/data/secret-value"})
        await call(proxy, "delete_file", {"secret_flag": True})
        await call(proxy, "write_file", {"path": 17, "size": "secret-value"})
        await call(proxy, "write_file", b"{secret-value")
        await call(proxy, "read_file", {"path": "/data/x"}, "unknown-token-0123456")
        await call(proxy, "nothing", {})
        await until(lambda: len(read(file)) == 8)
    second = "limited" if not report else "answered"
    bad = "denied" if report else "refused"
    assert [
        ("denied", "no-etc", "read_file"), ("answered", "readers", "read_file"), (second, "readers", "read_file"),
        ("denied", "", "delete_file"), (*(("refused", "") if not report else ("answered", "readers")), "write_file"),
        (*(("refused", "") if not report else ("answered", "readers")), "write_file"), ("denied", "", ""),
        ("refused" if not report else bad, "", "nothing"),
    ] == shown(file, "outcome", "rule", "tool")  # fmt: skip
    assert len(server.seen) == Counter(line["outcome"] for line in read(file))["answered"]
    assert 8 == len({line["request"] for line in read(file)})
    text = file.read_text()
    assert [False] * 3 == [word in text for word in ("secret-value", READER, "unknown-token")]


async def test_a_call_that_got_no_answer_is_sent_unless_it_certainly_was_not(tmp_path: Path) -> None:
    file = tmp_path / "audit"

    async def close(_reader: Any, writer: Any, _seen: Seen) -> None:
        writer.close()

    upstreams = "{tools: {url: '%s'}, off: {url: 'http://127.0.0.1:9'}}"
    routes = ROUTE + f"\n  - {{path: '/off/{{tool}}', upstream: off, auth: {AUTH}, tools: [write_file]}}"
    routes += f"\n  - {{path: /relay, upstream: off, auth: {AUTH}, passthrough: true}}"
    async with (
        tool(close) as server,
        proxied(routes, upstreams=upstreams % server.url, tools=TOOLS, access=f"{{audit: {file}}}") as proxy,
    ):
        await call(proxy, "write_file", {"path": "/a"})
        await call(proxy, "write_file", {"path": "/a"}, path="/off/")
        await proxy.post("/relay", b"x", f"Authorization: Bearer {READER}")
    assert [("sent", "/files/{tool}", "UPSTREAM_BAD_ANSWER"), ("refused", "/off/{tool}", "UPSTREAM_UNAVAILABLE"),
            ("refused", "/relay", "UPSTREAM_UNAVAILABLE")] == shown(file, "outcome", "route", "code")  # fmt: skip
    assert [("reader",)] * 3 == shown(file, "token")


async def leave(proxy: Proxied, request: bytes, when: Any) -> None:
    """Sends a request, and closes the connection once `when` holds."""
    _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request)
    await writer.drain()
    await until(when)
    writer.close()


async def test_a_client_that_leaves_costs_no_line(tmp_path: Path) -> None:
    file, ended = tmp_path / "audit", asyncio.Event()

    async def wait(_reader: Any, _writer: Any, _seen: Seen) -> None:
        await ended.wait()

    async with tool(wait) as server, proxied(ROUTE, server.url, tools=TOOLS, access=f"{{audit: {file}}}") as proxy:
        bearer = f"Authorization: Bearer {READER}"
        await leave(proxy, post("/files/write_file", b'{"path": "/a"}', bearer), lambda: len(server.seen) == 1)
        await until(lambda: len(read(file)) == 1)
        half = post("/files/write_file", b'{"path": "/a"}', bearer)[:-3]
        await leave(proxy, half, lambda: proxy.serving.handler.inflight)
        await until(lambda: len(read(file)) == 2)
        ended.set()
    assert [("sent",), ("left",)] == shown(file, "outcome")


async def test_a_call_that_continues_without_its_client_is_sent(tmp_path: Path) -> None:
    file, ended, server = tmp_path / "audit", asyncio.Event(), McpServer([ADD, DROP])

    async def wait(reader: Any, writer: Any, seen: Seen) -> None:
        if b"tools/call" in seen.body:
            await ended.wait()
        await server(reader, writer, seen)

    route = f"  - {{path: /mcp, upstream: tools, protocol: mcp, {MCP_AUTH}, deny: [{{tools: [drop_all]}}]}}"
    async with tool(wait) as upstream, proxied(route, upstream.url, access=f"{{audit: {file}}}") as proxy:
        accepts = "Accept: application/json, text/event-stream"
        sent = post("/mcp", json.dumps(mcp_call("add", {"a": 1, "b": 2})).encode(), BEARER, accepts)
        await leave(proxy, sent, lambda: any(b"tools/call" in seen.body for seen in upstream.seen))
        await until(lambda: len(read(file)) == 1)
        ended.set()
        client = Talk(proxy, upstream, server)
        await client.send(LIST, BEARER)
        await client.send(mcp_call("drop_all", {}), BEARER)
        await client.send(mcp_call("add", {"a": 1, "b": 2}), BEARER)
        await client.send(mcp_call("add", {"a": "x", "c": 2}), BEARER)
        await until(lambda: len(read(file)) == 5)
    assert [("sent", "add", ""), ("answered", "", ""), ("denied", "drop_all", "deny-1"), ("answered", "add", ""),
            ("refused", "add", "")] == shown(file, "outcome", "tool", "rule")  # fmt: skip


async def test_a_tool_that_answers_with_an_error_has_answered(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    failing = replies(answer("400 Bad Request", b'{"error": "secret-value"}', JSON_TYPE))
    async with tool(failing) as server, proxied(ROUTE, server.url, tools=TOOLS, access=f"{{audit: {file}}}") as proxy:
        await call(proxy, "write_file", {"path": "secret-value"})
    assert [("answered", "readers")] == shown(file, "outcome", "rule")
    assert "secret-value" not in file.read_text()


async def test_an_open_route_has_audit_lines_and_an_unknown_path_has_none(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    routes = "  - {path: /a, upstream: tools, tool: a, schema: {type: object}, cors: {origins: ['https://a.example']}}"
    async with tool(replies(OK)) as server, proxied(routes, server.url, access=f"{{audit: {file}}}") as proxy:
        await proxy.post("/a", b"{}")
        await proxy.post("/none", b"{}")
        await proxy.post("/a", b"{}", "Origin: https://b.example")
        preflight = (b"OPTIONS /a HTTP/1.1", b"Host: tools.test", b"Origin: https://a.example",
                     b"Access-Control-Request-Method: POST", b"Connection: close", b"", b"")  # fmt: skip
        assert 204 == (await exchange(proxy.port, b"\r\n".join(preflight))).status
    assert [("answered", ""), ("denied", "ORIGIN_NOT_ALLOWED")] == shown(file, "outcome", "code")


async def test_a_reload_takes_later_lines_to_another_file(tmp_path: Path) -> None:
    log = Log(io.StringIO(), "json", "info", lambda: 0.0)
    audit = CallAudit(SystemClock(), SystemPacing(), Metrics([Served("/a", "a")], "digest"), log)
    seen = []
    for number, where in enumerate(("one", "two", "", "one")):
        top = f"access: {{audit: {where}}}" if where else ""
        path = write(tmp_path, top, "mode: enforce")
        if number:  # requests of the route that the reload takes away are still under way
            path.write_text(path.read_text().replace("path: /a", "path: /b"))
        loaded = load(path, {})
        audit.adopt(loaded.config, RouteTable(()), "")
        seen.append(len(audit.observers))
        audit.finished(CallRecord(f"{number}", "/a", outcome="delivered"))
    await audit.close()
    log.close()
    assert [1, 1, 0, 1] == seen
    assert ([("0",), ("3",)], [("1",)]) == (shown(tmp_path / "one", "request"), shown(tmp_path / "two", "request"))


async def test_names_the_subject_of_a_token_in_at_most_200_characters(tmp_path: Path) -> None:
    async with guarded(access=f", audit: {tmp_path / 'audit'}") as there:
        assert 200 == (await there.call(there.issuer.sign(sub="x" * 500))).status
        assert 401 == (await there.call("x.y.z")).status
    assert [("answered", "x" * 200, "main"), ("denied", "", "")] == shown(
        tmp_path / "audit", "outcome", "subject", "issuer"
    )


async def test_each_call_of_a_model_has_a_line(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    calls = [("get_weather", '{"city": "secret-value"}'), ("get_weather", '{"days": 3}'), ("get_weather", "{}")]
    made = [
        {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": text}}
        for at, (name, text) in enumerate(calls)
    ]
    turn = json.loads(chat_answer("{}", "get_weather"))
    turn["choices"][0]["message"]["tool_calls"] = made
    async with (
        tool(replies(whole(json.dumps(turn).encode()))) as server,
        proxied(MODEL, server.url, access=f"{{audit: {file}}}") as proxy,
    ):
        await proxy.post("/v1/chat/completions", chat_request())
        await until(lambda: len(read(file)) == 3)
    assert [("answered", "get_weather")] * 3 == shown(file, "outcome", "tool")
    assert "secret-value" not in file.read_text()


def test_a_client_that_leaves_hides_no_refusal_and_no_call_that_continues() -> None:
    gone = CallRecord("r", "/a", outcome="client_gone")
    assert "left" == find_outcome(gone)
    assert "denied" == find_outcome(replace(gone, code="CALL_NOT_ALLOWED"))
    assert "limited" == find_outcome(replace(gone, code="CALL_RATE_EXCEEDED"))
    call = ToolCall("a", Document(b"{}", {}), "", Conversation("", Rung.ADDRESS))
    assert "sent" == find_outcome(replace(gone, call=call))


@pytest.mark.parametrize("outcome", ["delivered", "repaired", "corrected", "answered", "refused", "tool_error",
                                     "upstream_error", "passthrough", "client_gone"])  # fmt: skip
@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("status", [0, 200])
@pytest.mark.parametrize("code", ["", "CALL_NOT_ALLOWED", "CALL_RATE_EXCEEDED", "RESTARTING", "INVALID_ARGUMENTS"])
def test_every_outcome_of_a_request_is_one_of_the_audit(outcome: str, sent: bool, status: int, code: str) -> None:
    record = CallRecord("r", "/a", outcome=outcome, sent=sent, upstream_status=status, code=code)
    record.access = AccessNote({})
    assert find_outcome(record) in OUTCOMES
    if sent and not status and outcome != "tool_error" and outcome not in ("delivered", "repaired", "corrected"):
        assert find_outcome(record) in ("sent", "answered")

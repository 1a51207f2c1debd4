"""Requests that a server has to refuse since 2026-07-28, if the proxy is that server: a command, or several servers."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.extensions.mcp.conversation import BOTH, text
from tests.extensions.mcp.server import MODERN, call, modern, modern_headers
from tests.extensions.mcp.test_stdio_upstream import SERVER, asked
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import exchange, post

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ROUTES = {
    "command": "  - {path: /mcp, protocol: mcp, upstream: tools, mode: report}",
    "servers": "  - {path: /mcp, protocol: mcp, servers: {a: tools}, mcp: {prefix: clash}}",
}


@pytest.fixture(params=ROUTES)
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[Proxied]:
    async with serving(request.param) as made:
        yield made


@contextlib.asynccontextmanager
async def serving(kind: str) -> AsyncIterator[Proxied]:
    command = json.dumps([sys.executable, str(SERVER), "modern"])
    async with proxied(ROUTES[kind], upstreams=f"{{tools: {{command: {command}}}}}") as made:
        yield made


async def send(proxy: Proxied, message: Any, *headers: str) -> tuple[int, Any]:
    seen = await exchange(proxy.port, post("/mcp", json.dumps(message).encode(), BOTH, *headers))
    return seen.status, json.loads(seen.body)


def without(message: dict[str, Any], key: str) -> dict[str, Any]:
    """A message whose `_meta` lacks a key."""
    made = modern(message)
    del made["params"]["_meta"][key]
    return made


LIST = asked("tools/list")
HEADERS = (f"MCP-Protocol-Version: {MODERN}", "Mcp-Method: tools/list")


@pytest.mark.parametrize(
    ("message", "headers", "status", "code"),
    [
        (LIST, HEADERS, 400, -32602),
        (without(LIST, VERSION), HEADERS, 400, -32602),
        (without(LIST, CAPABILITIES), HEADERS, 400, -32602),
        (modern(LIST), HEADERS[:1], 400, -32020),
        (modern(LIST), HEADERS[1:], 400, -32020),
        (modern(call("echo", {"a": 1})), (HEADERS[0], "Mcp-Method: tools/call"), 400, -32020),
        (modern(LIST), (*HEADERS[:1], "Mcp-Method: tools/call"), 400, -32020),
        *[
            (modern(asked(method)), (HEADERS[0], f"Mcp-Method: {method}"), 404, -32601)
            for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
        ],
        (modern(asked("no/such")), (HEADERS[0], "Mcp-Method: no/such"), 404, -32601),
    ],
)
async def test_refuses_what_the_revision_forbids(
    proxy: Proxied, message: Any, headers: tuple[str, ...], status: int, code: int
) -> None:
    answered, answer = await send(proxy, message, *headers)
    assert (status, code, 1) == (answered, answer["error"]["code"], answer["id"])


@pytest.mark.parametrize("version", ["2099-01-01", "2025-11-25"])
async def test_refuses_another_revision_and_names_its_own(proxy: Proxied, version: str) -> None:
    message = modern({**LIST, "params": {"_meta": {VERSION: version}}})
    status, answer = await send(proxy, message, f"MCP-Protocol-Version: {version}", "Mcp-Method: tools/list")
    assert (400, -32022) == (status, answer["error"]["code"])
    assert {"supported": [MODERN], "requested": version} == answer["error"]["data"]


@pytest.mark.parametrize(("header", "status"), [("Mcp-Param-Region: eu", 200), ("X-Other: eu", 400)])
async def test_refuses_a_call_without_the_header_that_repeats_a_parameter(
    proxy: Proxied, header: str, status: int
) -> None:
    message = call("routed", {"region": "eu"})
    answered, answer = await send(proxy, modern(message), *modern_headers(message), header)
    assert status == answered
    assert -32020 == answer["error"]["code"] if status == 400 else '{"region": "eu"}' == text(answer)


async def test_expects_no_header_of_a_parameter_without_a_value(proxy: Proxied) -> None:
    message = call("routed", {})
    status, answer = await send(proxy, modern(message), *modern_headers(message))
    assert (200, "{}") == (status, text(answer))


async def test_a_session_of_an_old_revision_needs_no_envelope() -> None:
    command = json.dumps([sys.executable, str(SERVER)])
    async with proxied(ROUTES["command"], upstreams=f"{{tools: {{command: {command}}}}}") as proxy:
        begin = asked("initialize", 0, protocolVersion="2025-06-18", _meta={VERSION: "2025-06-18"})
        seen = await exchange(proxy.port, post("/mcp", json.dumps(begin).encode(), BOTH))
        session = f"Mcp-Session-Id: {seen.header('mcp-session-id')}"
        listed = asked("tools/list", 1, _meta={VERSION: "2025-06-18"})
        assert "result" in (await send(proxy, listed, session))[1]

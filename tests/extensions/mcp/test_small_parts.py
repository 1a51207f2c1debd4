"""Room for sessions, pages that repeat arguments in headers, tasks, and streams that a client comes back for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.core.model.values import UpstreamReply
from proxy.extensions.mcp.server.detached_calls import DetachedCalls
from tests.extensions.mcp.conversation import talk
from tests.extensions.mcp.server import call
from tests.serving.wire import exchange

CONFIG = """
version: 1
upstreams:
  tools: {url: "http://127.0.0.1:9"}
  small: {url: "http://127.0.0.1:9", pool: {connections: 7}}
  plain: {url: "http://127.0.0.1:9"}
  model: {url: "http://127.0.0.1:9"}
routes:
  - {path: /mcp, upstream: tools, protocol: mcp}
  - {path: /small, upstream: small, protocol: mcp}
  - {path: /plain, upstream: plain, passthrough: true}
  - {path: /v1, upstream: model, model: {}}
"""


def test_servers_behind_mcp_routes_have_room_for_the_streams_of_many_sessions(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    upstreams = load(path, {}).config.upstreams

    assert {"tools": 2048, "small": 7, "plain": 256, "model": 2048} == {
        name: upstream.pool_connections for name, upstream in upstreams.items()
    }


async def test_a_page_may_send_the_headers_that_repeat_arguments() -> None:
    async with talk(more="cors: {origins: ['https://page.test']}") as client:
        asked = (
            "OPTIONS /mcp HTTP/1.1\r\nHost: t\r\nOrigin: https://page.test\r\nAccess-Control-Request-Method: POST\r\n"
        )
        asked += "Access-Control-Request-Headers: mcp-param-region, x-other, mcp-method\r\n\r\n"
        seen = await exchange(client.proxy.port, asked.encode())

    allowed = {name.strip().lower() for name in (seen.header("access-control-allow-headers") or "").split(",")}
    assert ({"mcp-param-region", "mcp-method"}, False) == (
        allowed & {"mcp-param-region", "mcp-method"},
        "x-other" in allowed,
    )


async def test_a_refused_call_that_asks_for_a_task_is_an_error_that_tells_the_text() -> None:
    async with talk() as client:
        answer = await client.ask(call("add", {"a": 1}, task={"ttl": 1000}))

    assert (-32602, True) == (answer["error"]["code"], "Required field 'b' is missing" in answer["error"]["message"])
    assert [] == client.received


class Stream:
    """A stream that never ends after its first piece."""

    def __init__(self, first: bytes) -> None:
        self._pieces = [first]
        self.closed = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> bytes:
        if self._pieces:
            return self._pieces.pop()
        await asyncio.Event().wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("first", "let_go"),
    [(b"id: 7\r\ndata: {}\r\n\r\n", True), (b"event: message\nid:7\ndata: {}\n\n", True), (b"data: id: 7\n\n", False)],
)
async def test_a_stream_that_its_client_can_come_back_for_is_let_go(first: bytes, let_go: bool) -> None:
    detached, stream = DetachedCalls(), Stream(first)
    body = detached.outlives(UpstreamReply(200, (), stream)).body
    assert not isinstance(body, bytes)
    assert first == await anext(aiter(body))
    await body.aclose()  # type: ignore[attr-defined]  # as every answer's stream has it
    closed = stream.closed
    await detached.close()

    assert let_go == closed

"""Recorded conversations of real clients and servers, played through the proxy: what is not a call, and every call that
the server took, arrives byte for byte on both sides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.extensions.mcp.captures import NAMES, Exchange, Recorded, exchanges
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, tool

pytestmark = pytest.mark.large

ROUTE: Final = "  - {path: /mcp, upstream: tools, protocol: mcp}"
# Headers of one hop, and headers that the proxy itself writes.
OWN: Final = {"host", "connection", "keep-alive", "content-length", "transfer-encoding", "via", "x-request-id"}


@dataclass
class Player:
    """A script that answers each request as it was answered in the recording."""

    recorded: list[Exchange]
    seen: list[Seen] = field(default_factory=list)
    played: set[int] = field(default_factory=set)

    async def __call__(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        self.seen.append(seen)
        for number, exchange in enumerate(self.recorded):
            if number not in self.played and _is_same(exchange.request, seen):
                self.played.add(number)
                writer.write(exchange.answer.raw)
                return
        writer.write(self._listed(json.loads(seen.body)["id"]))

    def _listed(self, request_id: str) -> bytes:
        """The recorded list, as the answer to the proxy's own question."""
        found = next(one.answer for one in self.recorded if b'"tools/list"' in one.request.body)
        body = re.sub(rb'"id":("[^"]*"|[0-9]+)', b'"id":"' + request_id.encode() + b'"', found.body, count=1)
        kind = found.header("content-type") or ""
        return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _is_same(recorded: Recorded, seen: Seen) -> bool:
    session = "mcp-session-id"
    start = recorded.start == seen.start and recorded.body == seen.body
    return start and recorded.header(session) == seen.header(session)


async def _asked(port: int, recorded: Recorded, expected: Recorded) -> tuple[Seen, bool]:
    """Returns what the client gets for a recorded request: the head, and as many bytes of body as are `expected`;
    whether that is all."""
    length = len(expected.body)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(recorded.raw)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head.split("\r\n")[:-2]
        headers = tuple((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
        found = Seen(start, headers, b"")
        if found.header("transfer-encoding") != "chunked":
            return Seen(start, headers, await reader.readexactly(int(found.header("content-length") or 0))), True
        body, ended = b"", False
        while not ended and len(body) < length:
            size = int(await reader.readuntil(b"\r\n"), 16)
            body += (await reader.readexactly(size + 2))[:-2]
            ended = size == 0
        if len(body) == length and not ended and length:
            with contextlib.suppress(TimeoutError):  # where the recording breaks off, nothing more comes
                async with asyncio.timeout(300 if expected.whole else 0.05):
                    ended = await reader.readexactly(5) == b"0\r\n\r\n"
        return Seen(start, headers, body), ended
    finally:
        writer.close()


def _end_to_end(headers: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    kept = [field for field in headers if field[0] not in OWN and not field[0].startswith("x-forwarded-")]
    return sorted(field for field in kept if field != ("server", "toolcall-proxy"))


def _failed(answer: Recorded) -> bool:
    """Returns whether the recorded answer was an error."""
    return b'"isError":true' in answer.body or b'"error":' in answer.body


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_conversation_passes_byte_for_byte(name: str) -> None:
    recorded = exchanges(name)
    player = Player(recorded)
    refused = []
    async with tool(player) as upstream, proxied(ROUTE, upstream.url) as proxy:
        for exchange in recorded:
            before = len(player.seen)
            answer, ended = await _asked(proxy.port, exchange.request, exchange.answer)
            if answer.header("tool-error"):
                refused.append(exchange)
                _check_refusal(exchange, answer)
                continue
            sent = player.seen[-1]
            assert len(player.seen) > before
            assert exchange.request.body == sent.body
            assert _end_to_end(exchange.request.headers) == _end_to_end(sent.headers)
            assert exchange.answer.start.split(" ")[1] == answer.start.split(" ")[1]
            assert _end_to_end(exchange.answer.headers) == _end_to_end(answer.headers)
            assert exchange.answer.body == answer.body
            assert ended is exchange.answer.whole

    # Nothing was refused that its server would have taken.
    assert refused == [exchange for exchange in refused if _failed(exchange.answer)]


def _check_refusal(exchange: Exchange, answer: Seen) -> None:
    asked: dict[str, Any] = json.loads(exchange.request.body)
    told: dict[str, Any] = json.loads(answer.body)
    modern = exchange.request.header("mcp-protocol-version") == "2026-07-28"
    assert (200, "application/json") == (answer.status, answer.header("content-type"))
    assert {"jsonrpc", "id", "result"} == set(told)
    assert asked["id"] == told["id"]
    assert {"content", "isError", "_meta"} | ({"resultType"} if modern else set()) == set(told["result"])
    assert (None if modern else exchange.request.header("mcp-session-id")) == answer.header("mcp-session-id")

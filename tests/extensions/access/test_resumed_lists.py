"""Streams that a client reads on (`Last-Event-ID`): no list in them holds a tool that the caller may not call, and all
other bytes go on as they come."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import UpstreamReply
from proxy.extensions.mcp.adapters.mcplist import MAX_LIST
from proxy.extensions.mcp.core.listed_tools import LearnPolicy
from proxy.extensions.mcp.server.lists.shown_lists import filter_events
from tests.extensions.access.test_mcp_access import AUTH, BEARER, RULES
from tests.extensions.mcp.conversation import talk
from tests.extensions.mcp.server import ADD, McpServer, chunk, http
from tests.serving.wire import Seen, exchange

MORE = f"{AUTH}, {RULES}"
DROP = {"name": "drop_all", "inputSchema": {"type": "object"}}
LISTED = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": [ADD, DROP], "x": 1.50}}).encode()
SHOWN = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"tools": [ADD], "x": 1.50}}).encode()
PROGRESS = b'{"jsonrpc":"2.0",  "method":"notifications/progress","params":{"progressToken":"\\u0074ools"}}'
GET = "\r\n".join(
    ["GET /mcp HTTP/1.1", "Host: tools.test", "Accept: text/event-stream", "Accept-Encoding: gzip", "Last-Event-ID: e1"]
)


def read_on(*headers: str) -> bytes:
    return "\r\n".join([GET, BEARER, "Connection: close", *headers, "", ""]).encode()


def stream(pieces: Sequence[bytes], *headers: str) -> Any:
    """A server that answers who reads on with these pieces."""

    def answer(_message: Any, seen: Seen) -> bytes:
        assert ("e1", "identity") == (seen.header("last-event-id"), seen.header("accept-encoding"))
        lines = "".join(f"{line}\r\n" for line in ("Content-Type: text/event-stream", *headers))
        head = f"HTTP/1.1 200 OK\r\n{lines}Transfer-Encoding: chunked\r\n\r\n".encode()
        return head + b"".join(map(chunk, (*pieces, b"")))

    return McpServer([ADD, DROP], otherwise=answer)


def same(value: bytes) -> Any:
    return json.loads(value)


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_a_list_in_a_stream_that_is_read_on_is_the_callers(end: bytes, size: int) -> None:
    before = end.join([b": hello", b"", b"id: e2", b"data: " + PROGRESS, b"", b""])
    event = end.join([b"event: message", b"id: e3", b"data: " + LISTED, b"", b""])
    after = end.join([b"retry: 5", b"id: e4", b"data:", b"", b""])
    sent = before + event + after
    server = stream([sent[at : at + size] for at in range(0, len(sent), size)])
    async with talk(server, more=MORE) as client:
        seen = await exchange(client.proxy.port, read_on())

    assert (200, True) == (seen.status, seen.body.startswith(before))
    assert seen.body.endswith(after.lstrip(b"\n"))
    listed = seen.body[len(before) :].removesuffix(after).split(b"\n")
    assert ([b"event: message", b"id: e3"], same(SHOWN)) == (listed[:2], same(listed[2].removeprefix(b"data: ")))


@pytest.mark.parametrize("mode", ["", ", mode: report"])
async def test_lists_in_a_batch_or_in_several_lines_are_the_callers(mode: str) -> None:
    batch = b'[{"jsonrpc":"2.0","id":1,"result":{}},' + LISTED + b"]"
    lines = json.dumps(json.loads(LISTED), indent=1).replace("\n", "\ndata: ").encode()
    async with talk(stream([b"data: " + batch + b"\n\ndata: " + lines + b"\n\n"]), more=MORE + mode) as client:
        body = (await exchange(client.proxy.port, read_on())).body

    assert ([True, True], False) == ([b'"add"' in event for event in body.split(b"\n\n")[:2]], b"drop_all" in body)


async def test_a_list_behind_a_byte_order_mark_is_the_callers() -> None:
    async with talk(stream([b"\xef\xbb\xbfdata: " + LISTED + b"\n\n"]), more=MORE) as client:
        body = (await exchange(client.proxy.port, read_on())).body

    assert same(SHOWN) == same(body.strip().removeprefix(b"data: "))


@pytest.mark.parametrize(
    "text", [b'{"result": {"tools": [{"name": "drop_all"}]', b'{"id":1,"id":1,"result":{"tools":[]}}']
)
async def test_a_list_that_cannot_be_read_is_an_error(text: bytes) -> None:
    async with talk(stream([b"id: e2\ndata: " + text + b"\n\n"]), more=MORE) as client:
        body = (await exchange(client.proxy.port, read_on())).body

    assert (True, False) == (b'"code":-32603' in body, b"drop_all" in body)


async def test_an_event_without_an_end_and_a_coded_stream_hide_nothing() -> None:
    coded = gzip.compress(b"data: " + LISTED + b"\n\n")
    for server in (stream([b"data: " + LISTED]), stream([coded], "Content-Encoding: gzip")):
        async with talk(server, more=MORE) as client:
            body = (await exchange(client.proxy.port, read_on())).body
        assert (True, False) == (b'"add"' in body, b"drop_all" in body)


async def test_a_stream_of_a_route_that_hides_nothing_is_not_touched() -> None:
    def answer(_message: Any, seen: Seen) -> bytes:
        assert "gzip" == seen.header("accept-encoding")
        return http("200 OK", gzip.compress(LISTED), "Content-Type: text/event-stream", "Content-Encoding: gzip")

    async with talk(McpServer([ADD, DROP], otherwise=answer)) as client:
        assert LISTED == gzip.decompress((await exchange(client.proxy.port, read_on())).body)


# --- as it comes ------------------------------------------------------------------------------------------------------
RULED = LearnPolicy(ToolPolicy("", None, ""), allow=("add",))
EVENTS = (("Content-Type", "text/event-stream"),)


async def test_forwards_an_event_before_the_next_one_is_there() -> None:
    pieces: asyncio.Queue[bytes] = asyncio.Queue()

    async def body() -> AsyncIterator[bytes]:
        while True:
            yield await pieces.get()

    passed = filter_events(UpstreamReply(200, EVENTS, body()), RULED, lambda _: None).body
    assert not isinstance(passed, bytes)
    for event in (b"data: 1\n\n", b"data: " + PROGRESS + b"\r\n\r\n", b": still here\n\n"):
        await pieces.put(event)
        assert event == await anext(passed)


async def test_an_event_without_an_end_in_sight_ends_the_stream() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"data: "
        while True:
            yield b"x" * (1 << 20)

    passed = filter_events(UpstreamReply(200, EVENTS, body()), RULED, lambda _: None).body
    assert not isinstance(passed, bytes)
    (told,) = [piece async for piece in passed]
    assert f"more than {MAX_LIST >> 20} MiB" in told.decode()

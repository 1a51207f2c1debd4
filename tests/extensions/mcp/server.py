"""An MCP server of raw bytes for the tests: it lists the given tools, and records the requests that reach it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.serving.wire import Seen

Answer = Callable[[dict[str, Any], Seen], Awaitable[bytes] | bytes]

ADD: dict[str, Any] = {
    "name": "add",
    "description": "Adds two numbers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
NOW: dict[str, Any] = {"name": "now", "inputSchema": {"type": "object", "properties": {"zone": {"type": "string"}}}}


def http(status: str, body: bytes, *headers: str) -> bytes:
    """An HTTP answer."""
    lines = "".join(f"{line}\r\n" for line in (*headers, f"Content-Length: {len(body)}"))
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def as_json(message: object, *headers: str) -> bytes:
    """A JSON answer."""
    return http("200 OK", json.dumps(message).encode(), "Content-Type: application/json", *headers)


def as_events(*messages: object, more: tuple[str, ...] = ()) -> bytes:
    """An answer of server-sent events, one for each message, in chunks."""
    events = [f"event: message\r\nid: e{n}\r\ndata: {json.dumps(m)}\r\n\r\n".encode() for n, m in enumerate(messages)]
    lines = "".join(f"{line}\r\n" for line in ("Content-Type: text/event-stream", *more, "Transfer-Encoding: chunked"))
    return f"HTTP/1.1 200 OK\r\n{lines}\r\n".encode() + b"".join(map(chunk, (*events, b"")))


def chunk(data: bytes) -> bytes:
    """One chunk of a body; an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def result(message: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """A JSON-RPC answer."""
    return {"jsonrpc": "2.0", "id": message["id"], "result": value}


@dataclass
class McpServer:
    """A script for `tests.serving.wire.tool`. `tools` are listed, `page` at a time if that is set. `called` makes the
    answer to a call (default: its params as text). `listed` holds the requests for the list."""

    tools: Sequence[dict[str, Any]] = (ADD, NOW)
    page: int = 0
    ttl: int | None = None
    events: bool = False
    called: Answer | None = None
    otherwise: Answer | None = None
    refuse: Callable[[Seen], bytes | None] = lambda _: None
    listed: list[Seen] = field(default_factory=list)
    calls: list[Seen] = field(default_factory=list)

    async def __call__(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        message = json.loads(seen.body) if seen.body else {}
        answer = self.refuse(seen) or self._answer(message, seen)
        writer.write(answer if isinstance(answer, bytes) else await answer)
        await writer.drain()

    def _answer(self, message: Any, seen: Seen) -> Awaitable[bytes] | bytes:
        method = message.get("method") if isinstance(message, dict) else None
        if method == "tools/list":
            self.listed.append(seen)
            return self._told(result(message, self._list(message)))
        if method == "tools/call":
            self.calls.append(seen)
            if self.called is not None:
                return self.called(message, seen)
            text = json.dumps(message["params"].get("arguments"))
            return self._told(result(message, {"content": [{"type": "text", "text": text}]}))
        if self.otherwise is not None:
            return self.otherwise(message, seen)
        return http("202 Accepted", b"")

    def _told(self, message: object) -> bytes:
        return as_events(message) if self.events else as_json(message)

    def _list(self, message: dict[str, Any]) -> dict[str, Any]:
        start = int(message.get("params", {}).get("cursor", 0))
        end = start + self.page if self.page else len(self.tools)
        more = {"nextCursor": str(end)} if end < len(self.tools) else {}
        return {"tools": list(self.tools[start:end]), **more, **({} if self.ttl is None else {"ttlMs": self.ttl})}


MODERN = "2026-07-28"


def call(name: object, arguments: object = ..., id: object = 1, **params: object) -> dict[str, Any]:  # noqa: A002
    """A `tools/call`; without `arguments` it has none."""
    given = {} if arguments is ... else {"arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, **given, **params}}


def modern(message: dict[str, Any]) -> dict[str, Any]:
    """The same message in revision 2026-07-28."""
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    params = message.get("params", {})
    return {**message, "params": {**params, "_meta": {**meta, **params.get("_meta", {})}}}


def modern_headers(message: dict[str, Any], *more: str) -> tuple[str, ...]:
    """The headers that repeat it."""
    named = (f"Mcp-Name: {message['params']['name']}",) if message["method"] == "tools/call" else ()
    return (f"MCP-Protocol-Version: {MODERN}", f"Mcp-Method: {message['method']}", *named, *more)

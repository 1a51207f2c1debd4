"""A scripted tool service on a real socket: it plays answers in order and writes down every request it got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios.matching import json_text

# The answer of a tool once its script is played, or without one.
DEFAULT_ANSWER = {"status": 200, "body": {"ok": True}}


@dataclass
class Hit:
    """One request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ScriptedUpstream:
    """`script` holds the answers still to come: {status, headers, body} or {close: true} to break off."""

    script: list[dict[str, Any]]
    hits: list[Hit] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.hits.append(await _request(head, reader))
                answer = self.script.pop(0) if self.script else DEFAULT_ANSWER
                if answer.get("close"):
                    return
                writer.write(_reply(answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection
        finally:
            writer.close()


async def _request(head: bytes, reader: asyncio.StreamReader) -> Hit:
    line, *fields = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, path, _ = line.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (item.partition(":") for item in fields)}
    assert "transfer-encoding" not in headers, "the proxy sends whole bodies with a Content-Length"
    return Hit(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def _reply(answer: dict[str, Any]) -> bytes:
    body = json_text(answer.get("body", "")).encode()
    headers = {"content-type": "application/json", **answer.get("headers", {}), "content-length": str(len(body))}
    head = [f"HTTP/1.1 {answer.get('status', 200)} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def scripted_upstream(script: list[dict[str, Any]]) -> AsyncIterator[ScriptedUpstream]:
    """A scripted upstream that listens while the block runs."""
    upstream = ScriptedUpstream(list(script))
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        server.close()

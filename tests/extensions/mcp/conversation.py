"""A client of raw bytes for MCP routes: messages out, messages back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.extensions.mcp.server import McpServer, modern, modern_headers
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import Seen, Tool, exchange, post, tool

BOTH = "Accept: application/json, text/event-stream"


@dataclass
class Talk:
    """A proxy in front of a scripted MCP server. `headers` go with every message."""

    proxy: Proxied
    upstream: Tool
    server: McpServer
    headers: tuple[str, ...] = ()

    async def send(self, message: object, *headers: str) -> Seen:
        """Posts a message and gives the answer as it was on the wire."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await exchange(self.proxy.port, post("/mcp", body, BOTH, *self.headers, *headers))

    async def ask(self, message: object, *headers: str) -> Any:
        """Posts a message and gives the JSON-RPC answer to it."""
        return json.loads((await self.send(message, *headers)).body)

    async def ask_modern(self, message: dict[str, Any], *headers: str) -> Any:
        """The same in revision 2026-07-28."""
        return await self.ask(modern(message), *modern_headers(message, *headers))

    async def ask_operator(self, path: str, question: object) -> Seen:
        """Posts to the operator's port."""
        body = json.dumps(question).encode()
        return await exchange(self.proxy.admin, post(path, body).replace(b"Host: tools.test", b"Host: 127.0.0.1"))

    @property
    def received(self) -> list[Any]:
        """The arguments of the calls that reached the server."""
        return [json.loads(seen.body)["params"].get("arguments") for seen in self.server.calls]


@contextlib.asynccontextmanager
async def talk(server: McpServer | None = None, mcp: str = "", more: str = "", **keys: str) -> AsyncIterator[Talk]:
    """`mcp` holds further keys under `mcp` of the route, and `more` further keys of the route."""
    server = server or McpServer()
    route = f"  - {{path: /mcp, upstream: tools, protocol: mcp, mcp: {{{mcp}}}{more and ', '}{more}}}"
    async with tool(server) as upstream, proxied(route, upstream.url, **keys) as proxy:
        yield Talk(proxy, upstream, server)


def text(answer: Any) -> str:
    """Returns what the model reads of a result."""
    (part,) = answer["result"]["content"]
    return str(part["text"])


def feedback(answer: Any) -> Any:
    """The part for machines."""
    return answer["result"]["_meta"]["toolcall-proxy/feedback"]


def refusal(answer: Any) -> tuple[bool, str]:
    """Returns whether a result says that it failed, and our code."""
    return answer["result"].get("isError", False), feedback(answer)["code"]

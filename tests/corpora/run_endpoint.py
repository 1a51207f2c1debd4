"""Every recorded MCP server behind one route: all their tools at one address, each called once.

A tool must be listed under its server's name and its own, with its schema unchanged. A minimal call of each must reach
that server under the tool's own name, with the very arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from proxy.core.check.validation import SchemaError
from proxy.core.model.values import ABSENT
from proxy.extensions.second_judge.core.examples import make_minimal_example
from tests.corpora.calls import check_of, rows
from tests.extensions.mcp.server import as_json, call, http, result
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, exchange, post, tool

Found = Counter[str]
HEADERS = "Accept: application/json, text/event-stream"


class RecordedServers:
    """All servers at one port, each at its own path: `/NUMBER/mcp`."""

    def __init__(self, tools: list[list[dict[str, Any]]]) -> None:
        self._tools = tools
        self.received: list[tuple[int, str, Any]] = []

    async def __call__(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        number = int(seen.start.split(" ")[1].split("/")[1])
        message = json.loads(seen.body) if seen.body else {}
        match message.get("method"):
            case "initialize":
                about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
                answer = as_json(result(message, about))
            case "tools/list":
                answer = as_json(result(message, {"tools": self._tools[number]}))
            case "tools/call":
                params = message["params"]
                self.received.append((number, params["name"], params.get("arguments")))
                answer = as_json(result(message, {"content": [{"type": "text", "text": "done"}]}))
            case _:
                answer = http("202 Accepted", b"")
        writer.write(answer)
        await writer.drain()


def one_endpoint(data: Path) -> Iterator[tuple[str, Found]]:
    """Lists and calls everything through one route."""
    by_server: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows(data / "mcp-tools/tools.jsonl.gz"):
        entry = {"name": row["tool"], "description": row["description"], "inputSchema": row["inputSchema"]}
        by_server[row["server"]].append(entry)
    listed, called = asyncio.run(_measure(list(by_server.values())))
    yield f"mcp-tools, {len(by_server)} servers at one address, listed", listed
    yield "mcp-tools, one call of each at one address", called


@contextlib.asynccontextmanager
async def _endpoint(tools: list[list[dict[str, Any]]]) -> AsyncIterator[tuple[RecordedServers, int]]:
    servers = RecordedServers(tools)
    named = ", ".join(f"s{number}: {{upstream: tools, upstream_path: /{number}/mcp}}" for number in range(len(tools)))
    route = f"  - {{path: /mcp, protocol: mcp, servers: {{{named}}}, mcp: {{wait: 60s, servers_wait: 45s}}}}\n"
    async with tool(servers) as upstream, proxied(route, upstream.url) as proxy:
        yield servers, proxy.port


async def _measure(tools: list[list[dict[str, Any]]]) -> tuple[Found, Found]:
    async with _endpoint(tools) as (servers, port):
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c"}}
        seen = await _send(port, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        session = f"Mcp-Session-Id: {seen.header('mcp-session-id')}"
        listed, shown = await _list(port, session, tools)
        return listed, await _call_all(port, session, servers, shown)


async def _list(port: int, session: str, tools: list[list[dict[str, Any]]]) -> tuple[Found, dict[str, dict[str, Any]]]:
    found, question = Found(), {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    await _send(port, question, session)
    before = time.process_time()
    seen = await _send(port, question, session)
    found["milliseconds CPU of everybody for a list that is known"] = int((time.process_time() - before) * 1e3)
    found["KB"] = len(seen.body) // 1024
    shown = {each["name"]: each for each in json.loads(seen.body)["result"]["tools"]}
    for number, entries in enumerate(tools):
        for entry in {each["name"]: each for each in reversed(entries)}.values():
            found["wrong" if shown.get(f"s{number}_{entry['name']}", {}).get("inputSchema") != entry["inputSchema"]
                  else "listed"] += 1  # fmt: skip
    return found, shown


async def _call_all(port: int, session: str, servers: RecordedServers, shown: dict[str, dict[str, Any]]) -> Found:
    found, before = Found(), time.process_time()
    for name, entry in shown.items():
        try:
            example = make_minimal_example(check_of(entry["inputSchema"]))
        except SchemaError:
            example = ABSENT
        if not isinstance(example, dict):
            found["no example"] += 1
            continue
        plain = json.loads(json.dumps(example, default=str))
        servers.received.clear()
        seen = await _send(port, call(name, plain), session)
        server, _, own = name.removeprefix("s").partition("_")
        is_right = [(int(server), own, plain)] == servers.received
        found["delivered" if is_right else "wrong" if servers.received else "refused"] += 1
        if not is_right:
            print(f"  {name}: {seen.body[:300]!r}")
    found["milliseconds CPU of everybody for a first call"] = int(
        (time.process_time() - before) * 1e3 / max(len(shown), 1)
    )
    return found


async def _send(port: int, message: object, *headers: str) -> Seen:
    return await exchange(port, post("/mcp", json.dumps(message).encode(), HEADERS, *headers))


RUNS = (one_endpoint,)

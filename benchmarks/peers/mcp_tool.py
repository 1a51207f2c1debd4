"""An MCP server that answers every call at once, over HTTP (revision 2026-07-28) or as a command.

python -m benchmarks.peers.mcp_tool [PORT]
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from benchmarks.calls import ANSWER, SCHEMA
from benchmarks.upstream import Bare, has, run_on

_RESULTS: dict[str, dict[str, Any]] = {
    "tools/list": {"tools": [{"name": "forecast", "inputSchema": SCHEMA}], "ttlMs": 3_600_000},
    "tools/call": {"content": [{"type": "text", "text": ANSWER.decode()}]},
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
}


def answer(text: bytes) -> bytes:
    """Returns the answer to one message."""
    message = json.loads(text)
    found = _RESULTS.get(message["method"])
    said: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
    said = said if found is None else {"result": {**found, "resultType": "complete"}}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode()


class Server(Bare):
    """One connection."""

    def reply(self, body: bytes) -> bytes:
        """Returns the response to a request with this body."""
        text = answer(body)
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


async def serve(port: int) -> None:
    """Runs until it is ended."""
    server = await asyncio.get_running_loop().create_server(lambda: Server(b""), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_on("uvloop" if has("uvloop") else "asyncio", serve(int(sys.argv[1])))
    for line in sys.stdin.buffer:
        if b'"id"' in line:
            sys.stdout.buffer.write(answer(line) + b"\n")
            sys.stdout.buffer.flush()

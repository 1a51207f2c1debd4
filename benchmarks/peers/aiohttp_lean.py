"""The least that could be built of aiohttp's low-level server, a lean connection to the upstream and a generated check.

No routing, no attempts, no repairs, no metrics, no log: what is left of a call's price when all of that is free.

python aiohttp_lean.py PORT UPSTREAM_PORT SCHEMA
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import orjson
from aiohttp import web

from proxy.core.check.validation import compile_check
from proxy.core.model.values import JsonValue
from proxy.interfaces import UpstreamRequest
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import Http1Upstream

DROPPED = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


async def serve(port: int, upstream_port: int, schema: JsonValue) -> None:
    """Serves until it is ended."""
    upstream = Http1Upstream(UpstreamSettings("bench", f"http://127.0.0.1:{upstream_port}", keepalive=60.0))
    check = compile_check(schema)

    async def forward(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if not check.accepts(orjson.loads(body)):
            return web.Response(status=422)
        headers = tuple((name.lower(), value) for name, value in request.headers.items() if name.lower() not in DROPPED)
        reply = await upstream.relay(UpstreamRequest("bench", "POST", request.raw_path, headers, body, 30.0), None)
        kept = [(name, value) for name, value in reply.headers if name.lower() not in DROPPED]  # type: ignore[union-attr]
        return web.Response(status=reply.status, headers=kept, body=reply.body)  # type: ignore[union-attr]

    server = web.Server(forward, access_log=None)
    runner = web.ServerRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    factory = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(int(sys.argv[1]), int(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text())))

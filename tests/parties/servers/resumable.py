"""A server of the Python SDK whose streams can be read on (`Last-Event-ID`): it lists `read` and `wipe`.

Runs in `.parties/py1`. Prints its port as one line of JSON when it answers; ends when its input does.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

import asyncio
import contextlib
import json
import socket
import sys

import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount


class Events(EventStore):
    """Keeps all events in order."""

    def __init__(self):
        self.kept = []

    async def store_event(self, stream_id, message):
        self.kept.append((stream_id, message))
        return str(len(self.kept))

    async def replay_events_after(self, last_event_id, send_callback):
        at = int(last_event_id)
        stream_id = self.kept[at - 1][0]
        for number, (stream, message) in enumerate(self.kept[at:], at + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


server = Server("resumable")


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    anything = {"type": "object"}
    return [
        types.Tool(name="read", inputSchema=anything, annotations=types.ToolAnnotations(readOnlyHint=True)),
        types.Tool(name="wipe", description="Wipes the secret shelf.", inputSchema=anything),
    ]


async def serve() -> None:
    manager = StreamableHTTPSessionManager(server, event_store=Events())

    @contextlib.asynccontextmanager
    async def lifespan(_app):
        async with manager.run():
            yield

    app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan)
    listening = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    serving = asyncio.create_task(web.serve([listening]))
    while not web.started:
        await asyncio.sleep(0.01)
    print(json.dumps({"resumable": listening.getsockname()[1]}), flush=True)  # noqa: T201
    await asyncio.to_thread(sys.stdin.read)
    web.should_exit = True
    web.force_exit = True
    await serving


asyncio.run(serve())

"""Three MCP servers of the Python world in one process, each on its own loopback port.

    high     `mcp` 2.x, MCPServer: schemas from annotations, pydantic converts what it can
    low      `mcp` 2.x, lowlevel.Server: checks nothing at all; lists its tools on two pages
    fastmcp  PyPI fastmcp

Runs in `.parties/py2`. Prints the ports as one line of JSON when all of them answer; ends when its input does. With the
name of one of them as its argument, it is that server over stdio.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

import asyncio
import json
import logging
import socket
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import uvicorn
from fastmcp import Context as FastContext
from fastmcp import FastMCP
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    Tool,
)
from pydantic import BaseModel

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parent / "book.json").read_text(encoding="utf-8"))
# Its values are repeated in headers (`x-mcp-header`, 2026-07-28), which the server holds against the body.
SHIP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "enum": ["north", "south"], "x-mcp-header": "Region"},
        "crates": {"type": "integer", "x-mcp-header": "Crates"},
    },
    "required": ["region"],
}
STEPS = 4
# Key of a caller -> what its `steps` call waits for: so many steps it may take.
ALLOWED: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))


class Place(BaseModel):
    city: str
    floor: int


def book(
    title: str,
    copies: int,
    price: float,
    gift: bool,
    size: Literal["small", "large"],
    tags: list[str],
    place: Place,
    note: str | None = None,
    shelf: int = 0,
) -> str:
    """Orders a book and says what it was asked."""
    given = {"title": title, "copies": copies, "price": price, "gift": gift, "size": size, "tags": tags}
    return json.dumps({**given, "place": place.model_dump(), "note": note, "shelf": shelf})


def fail(reason: str) -> str:
    """Fails with a reason from its caller."""
    raise ValueError(f"the tool says: {reason}")


def release(key: str) -> str:
    """Lets a `steps` call take its next step."""
    ALLOWED[key].release()
    return "released"


async def take_steps(key: str, report: Any) -> str:
    """Reports a step, and continues only when the caller has received it."""
    for step in range(1, STEPS + 1):
        await report(step)
        await ALLOWED[key].acquire()
    return f"{STEPS} steps"


def high() -> Any:
    server = MCPServer("high")
    for tool in (book, fail, release):
        server.tool()(tool)

    @server.tool()
    async def steps(key: str, ctx: Context) -> str:
        """Takes steps, one each time it is released."""
        return await take_steps(key, lambda step: ctx.report_progress(step, STEPS))

    return server


def ship(arguments: Any, params: Any) -> CallToolResult | InputRequiredResult:
    """Asks the user first, and continues only if it is called a second time with the very same arguments."""
    state = json.dumps(arguments)
    if params.input_responses is None:
        form = ElicitRequestFormParams(message="Ship it?", requested_schema={"type": "object", "properties": {}})
        return InputRequiredResult(input_requests={"sure": ElicitRequest(params=form)}, request_state=state)
    told = state if params.request_state == state else f"other arguments than before: {state}"
    return CallToolResult(content=[TextContent(type="text", text=told)], is_error=params.request_state != state)


def low() -> Any:
    text = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
    reason = {"type": "object", "properties": {"reason": {"type": "string"}}, "required": ["reason"]}
    pages = {
        None: ([Tool(name="release", input_schema=text), Tool(name="steps", input_schema=text)], "second"),
        "second": (
            [
                Tool(name="book", input_schema=SCHEMA),
                Tool(name="fail", input_schema=reason),
                Tool(name="ship", input_schema=SHIP),
            ],
            None,
        ),
    }

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        tools, after = pages[params.cursor if params else None]
        return ListToolsResult(tools=tools, next_cursor=after)

    async def call_tool(ctx: Any, params: Any) -> CallToolResult | InputRequiredResult:
        arguments = params.arguments or {}
        if params.name == "ship":
            return ship(arguments, params)
        if params.name == "fail":
            told, wrong = f"the tool says: {arguments['reason']}", True
        elif params.name == "release":
            told, wrong = release(arguments["key"]), False
        elif params.name == "steps":
            told, wrong = (
                await take_steps(arguments["key"], lambda step: ctx.session.report_progress(step, STEPS)),
                False,
            )
        else:
            told, wrong = json.dumps(arguments), False
        return CallToolResult(content=[TextContent(type="text", text=told)], is_error=wrong)

    schemas = {"book": SCHEMA, "ship": SHIP}
    return Server("low", get_tool_input_schema=schemas.get, on_list_tools=list_tools, on_call_tool=call_tool)


def fast() -> Any:
    server = FastMCP("fastmcp")
    for tool in (book, fail, release):
        server.tool()(tool)

    @server.tool()
    async def steps(key: str, ctx: FastContext) -> str:
        """Takes steps, one each time it is released."""
        return await take_steps(key, lambda step: ctx.report_progress(step, STEPS))

    return server


async def serve(made: dict[str, Any]) -> None:
    ports, servers = {}, []
    for name, app in made.items():
        # Named as TCP, else asyncio does not switch Nagle's algorithm off and every answer waits for 40 ms.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.bind(("127.0.0.1", 0))
        listening.listen(256)
        ports[name] = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
        servers.append((server, asyncio.create_task(server.serve([listening]))))
    while not all(server.started for server, _ in servers):
        await asyncio.sleep(0.02)
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for server, _ in servers:
        server.should_exit = True
    await asyncio.gather(*(task for _, task in servers))


async def speak_stdio(name: str) -> None:
    if name == "high":
        await high().run_stdio_async()
    elif name == "low":
        server = low()
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    else:
        await fast().run_stdio_async(show_banner=False)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    if sys.argv[1:]:
        asyncio.run(speak_stdio(sys.argv[1]))
    else:
        apps = {"high": high().streamable_http_app(), "low": low().streamable_http_app()}
        asyncio.run(serve({**apps, "fastmcp": fast().http_app(path="/mcp")}))

"""The clients of `mcp` 2.x, in both eras, and of fastmcp: each asks every server what `task.json` says.

Runs in `.parties/py2`. Usage: py2.py CLIENT URLS CALLS, the last two as JSON; a list in place of an URL is a command
that speaks stdio. Prints what was answered as JSON.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

import asyncio
import json
import logging
import sys
import uuid
from typing import Any

import mcp
import mcp.client.session
from fastmcp import Client as FastClient
from fastmcp.client.transports import StdioTransport
from mcp_types import ElicitResult

LONG = "trigger-long-running-operation"
# A server that takes longer to start is taken for one of an older revision; on a busy machine that is any server.
mcp.client.session.DISCOVER_TIMEOUT_SECONDS = 300.0


def shape(result: Any) -> dict[str, Any]:
    """A result in a form that all clients share."""
    content = result.content
    texts = [part.text for part in content if getattr(part, "text", None) is not None]
    wrong = getattr(result, "is_error", None)
    return {"error": bool(wrong), "text": "\n".join(texts)}


async def attempt(call: Any, name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    try:
        return shape(await call(name, arguments, **more))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return {"raised": f"{type(error).__name__}: {error}"}


async def session(client: Any, call: Any, listed: Any, calls: list[Any]) -> dict[str, Any]:
    """One session: the list, every call, and steps whose progress releases the next."""
    names = [tool.name for tool in await listed()]
    told: dict[str, Any] = {"tools": names, "calls": [await attempt(call, name, args) for name, args in calls]}
    heard: list[float] = []
    if "steps" in names:
        key, released = str(uuid.uuid4()), []

        async def on_step(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)
            released.append(await attempt(call, "release", {"key": key}))

        told["steps"] = await attempt(call, "steps", {"key": key}, progress=on_step)
        while len(released) < len(heard):  # a client that is closed with a call under way breaks
            await asyncio.sleep(0.01)
    elif LONG in names:

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

        told["steps"] = await attempt(call, LONG, {"duration": 0.4, "steps": 4}, progress=on_progress)
    told["heard"] = heard
    return told


async def agreed(context: Any, params: Any) -> ElicitResult:
    """Returns what our user says when a server asks."""
    return ElicitResult(action="accept", content={})


async def with_mcp(url: Any, calls: list[Any], mode: str) -> dict[str, Any]:
    if isinstance(url, list):
        url = mcp.StdioServerParameters(command=url[0], args=url[1:])
    async with mcp.Client(url, mode=mode, read_timeout_seconds=300, elicitation_callback=agreed) as client:

        async def call(name: str, arguments: Any, progress: Any = None) -> Any:
            return await client.call_tool(name, arguments, progress_callback=progress)

        async def listed() -> Any:
            found, cursor = [], None
            while True:
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    return found

        told = await session(client, call, listed, calls)
        return {**told, "revision": client.protocol_version}


async def with_fastmcp(url: Any, calls: list[Any]) -> dict[str, Any]:
    if isinstance(url, list):
        url = StdioTransport(command=url[0], args=url[1:], keep_alive=False)
    async with FastClient(url, timeout=300) as client:

        async def call(name: str, arguments: Any, progress: Any = None) -> Any:
            return await client.call_tool_mcp(name, arguments, progress_handler=progress)

        return await session(client, call, client.list_tools, calls)


async def main(which: str, urls: dict[str, str], calls: dict[str, list[Any]]) -> None:
    async def one(name: str, url: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(300):
                if which == "fastmcp":
                    return await with_fastmcp(url, calls[name])
                return await with_mcp(url, calls[name], which)
        except BaseException as error:  # noqa: BLE001 - told, not hidden
            return {"broke": repr(error)}

    answers = await asyncio.gather(*(one(name, url) for name, url in urls.items()))
    sys.stdout.write(json.dumps(dict(zip(urls, answers, strict=True))))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])))

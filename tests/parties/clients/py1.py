"""The client of `mcp` 1.x: makes the given calls at every server.

Runs in `.parties/py1`. Usage: py1.py py1 URLS CALLS, the last two as JSON; a list in place of an URL is a command that
speaks stdio. Prints what was answered as JSON.
"""
# mypy: ignore-errors
# The parties are not dependencies of the product, so their types are not there to be checked.

import asyncio
import json
import logging
import sys
import uuid
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

LONG = "trigger-long-running-operation"


async def attempt(client: ClientSession, name: str, arguments: Any, progress: Any = None) -> dict[str, Any]:
    try:
        result = await client.call_tool(name, arguments, progress_callback=progress)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return {"raised": f"{type(error).__name__}: {error}"}
    texts = [part.text for part in result.content if getattr(part, "text", None) is not None]
    return {"error": result.isError, "text": "\n".join(texts)}


async def listed(client: ClientSession) -> list[str]:
    names, cursor = [], None
    while True:
        page = await client.list_tools(cursor)
        names += [tool.name for tool in page.tools]
        cursor = page.nextCursor
        if cursor is None:
            return names


async def sampled(context: Any, params: Any) -> types.CreateMessageResult:
    """Returns what our model says when a server asks for one."""
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(type="text", text="sampled here"), model="scripted"
    )


async def elicited(context: Any, params: Any) -> types.ElicitResult:
    """Returns what our user says when a server asks."""
    return types.ElicitResult(action="decline")


async def beside(client: ClientSession) -> dict[str, Any]:
    """Returns what a server has beside its tools."""
    resources = (await client.list_resources()).resources
    read = await client.read_resource(resources[0].uri) if resources else None
    prompts = (await client.list_prompts()).prompts
    plain = [prompt.name for prompt in prompts if prompt.name.endswith("simple-prompt")]
    said = {name: await client.get_prompt(name) for name in sorted(plain)}
    return {
        "resources": [str(resource.uri) for resource in resources],
        "templates": [found.uriTemplate for found in (await client.list_resource_templates()).resourceTemplates],
        "first": read.model_dump(mode="json") if read else None,
        "prompts": [prompt.name for prompt in prompts],
        "said": {name: answer.model_dump(mode="json") for name, answer in said.items()},
    }


def transport(url: Any) -> Any:
    """The server at an URL, or the one that a command starts."""
    if isinstance(url, list):
        return stdio_client(StdioServerParameters(command=url[0], args=url[1:]))
    return streamable_http_client(url)


async def session(url: Any, calls: list[Any]) -> dict[str, Any]:
    patience = timedelta(seconds=30)
    async with (
        transport(url) as (read, write, *_),
        ClientSession(
            read, write, read_timeout_seconds=patience, sampling_callback=sampled, elicitation_callback=elicited
        ) as client,
    ):
        opened = await client.initialize()
        names, heard, released = await listed(client), [], []
        told: dict[str, Any] = {"tools": names, "heard": heard, "revision": opened.protocolVersion}
        told["calls"] = [await attempt(client, name, arguments) for name, arguments in calls]

        async def on_step(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)
            # The client reads on only when this has returned.
            released.append(asyncio.create_task(attempt(client, "release", {"key": key})))

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

        if "steps" in names:
            key = str(uuid.uuid4())
            told["steps"] = await attempt(client, "steps", {"key": key}, on_step)
            await asyncio.gather(*released)
        elif long := [name for name in names if name.endswith(LONG)]:
            told["steps"] = await attempt(client, long[0], {"duration": 0.4, "steps": 4}, on_progress)
            told["beside"] = await beside(client)
        return told


async def main(urls: dict[str, str], calls: dict[str, list[Any]]) -> None:
    async def one(name: str, url: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(300):
                return await session(url, calls[name])
        except BaseException as error:  # noqa: BLE001 - told, not hidden
            return {"broke": repr(error)}

    answers = await asyncio.gather(*(one(name, url) for name, url in urls.items()))
    sys.stdout.write(json.dumps(dict(zip(urls, answers, strict=True))))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(json.loads(sys.argv[2]), json.loads(sys.argv[3])))

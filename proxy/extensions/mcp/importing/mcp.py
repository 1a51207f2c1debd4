"""Reads an MCP server's list of tools into a Harvest, in the revision that the server speaks.

The first request follows revision 2026-07-28: one request, no session. A server of an older revision refuses it
(specification 2026-07-28, "Versioning"). Then a session is opened for the request and closed again, because an open
session can keep resources of the server locked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from proxy import __version__
from proxy.core.json.jsontext import dumps, format_pointer
from proxy.core.model.values import ABSENT, Headers, JsonValue
from proxy.core.schema.dialects import normalise
from proxy.extensions.mcp.adapters.mcplist import MAX_PAGES, find_answer, read_page, read_tool
from proxy.extensions.mcp.adapters.mcpmessage import LIST, METHOD_HEADER, SESSION_HEADER, VERSION_HEADER, VERSION_META
from proxy.extensions.mcp.core.listed_tools import ListedTool
from proxy.extensions.operations.importing.fetch import Enough, FetchedAnswer, FetchSite
from proxy.extensions.operations.importing.harvest import FoundTool, Harvest, ImportProblem, LeftOut, Recorded
from proxy.plugin import SchemaError, compile_check

_MODERN: Final = "2026-07-28"
_OLD: Final = "2025-11-25"  # the newest with sessions; an older server answers with its own
_WHO: Final[dict[str, JsonValue]] = {"name": "toolcall-proxy", "version": __version__}
_META: Final[dict[str, JsonValue]] = {
    VERSION_META: _MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": _WHO,
}


async def read_mcp(url: str, headers: Headers = ()) -> Harvest:
    """Every tool that a server lists. `headers` go with each request. Raises ImportProblem."""
    server = FetchSite(url, headers)
    conversation = _Conversation(server)
    revision = _MODERN
    if (entries := await conversation.list_tools()) is None:
        revision = await conversation.open()
        try:
            entries = await conversation.list_tools()
        finally:
            await conversation.close()
    if entries is None:
        raise ImportProblem(f"{server.shown} lists no tools", "is this the path that MCP is spoken at?")
    tools = [tool for tool in map(read_tool, entries) if tool is not None]
    parts = urlsplit(url)
    about = f"an MCP server, revision {revision}, {len(tools)} tool{'s' * (len(tools) != 1)}"
    found, left = _sort_tools(tools)
    origin = f"{parts.scheme}://{parts.netloc}" + (f"?{parts.query}" if parts.query else "")
    names = tuple(dict.fromkeys(tool.name for tool in tools))
    listed = {str(entry["name"]): entry for entry in reversed(entries) if read_tool(entry) is not None}
    return Harvest("mcp", url, origin, about, found, (), left, (), names, parts.path or "/", listed)


def _sort_tools(tools: Iterable[ListedTool]) -> tuple[tuple[FoundTool, ...], tuple[LeftOut, ...]]:
    found: dict[str, FoundTool] = {}
    left: list[LeftOut] = []
    for tool in tools:
        name, schema = tool.name, tool.schema
        if why := _explain_unusable(schema):
            left.append(LeftOut(name, why, "write a schema for it by hand"))
        elif name in found:
            left.append(LeftOut(name, "it is listed twice: the first counts"))
        else:
            found[name] = FoundTool(name, tool.description, schema, name)
    return tuple(found.values()), tuple(left)


def _explain_unusable(schema: JsonValue) -> str:
    if schema is ABSENT:
        return "it is listed without a schema"
    try:
        compile_check(normalise(schema)[0])
    except SchemaError as error:
        where = f"{format_pointer(error.path)}: " if error.path else ""
        return f"its schema does not compile: {where}{error.message}"
    return ""


@dataclass(slots=True)
class _Conversation:
    """Requests to one server, without a session until `open` opens one."""

    server: FetchSite
    session: Headers = ()
    modern: bool = True
    sent_requests: int = 0

    async def list_tools(self) -> list[Any] | None:
        """The entries of all pages of the list; None where the server does not answer with a list."""
        entries: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            answer = await self.ask_page(cursor)
            page = None if answer is None else read_page(answer)
            if answer is None or page is None:
                return None
            entries += answer["result"]["tools"]
            cursor = page.cursor
            if cursor is None:
                return entries
        raise ImportProblem(f"{self.server.shown} names more than {MAX_PAGES} pages of tools")

    async def ask_page(self, cursor: str | None) -> dict[str, JsonValue] | None:
        params: dict[str, JsonValue] = {} if cursor is None else {"cursor": cursor}
        return await self.ask(LIST, {**params, "_meta": _META} if self.modern else params)

    async def open(self) -> str:
        """Opens a session; gives the revision that the server speaks."""
        self.modern = False
        params: dict[str, JsonValue] = {"protocolVersion": _OLD, "capabilities": {}, "clientInfo": _WHO}
        answer = await self.ask("initialize", params)
        result = answer.get("result") if answer is not None else None
        if not isinstance(result, dict):
            raise ImportProblem(f"{self.server.shown} speaks no MCP", "is this the path that MCP is spoken at?")
        revision = str(result.get("protocolVersion", _OLD))
        self.session = (*self.session, (VERSION_HEADER, revision))
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return revision

    async def close(self) -> None:
        """Ends the session, where there is one."""
        if any(name == SESSION_HEADER for name, _ in self.session):
            await self.server.fetch("DELETE", self.session)

    async def ask(self, method: str, params: dict[str, JsonValue]) -> dict[str, JsonValue] | None:
        """The answer to a request; None without a readable one."""
        self.sent_requests += 1
        number = self.sent_requests
        modern = ((VERSION_HEADER, _MODERN), (METHOD_HEADER, method)) if self.modern else ()
        message: dict[str, JsonValue] = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        reply = await self.post(
            message, modern, lambda media_type, body: find_answer(media_type, body, number) is not None
        )
        if reply.status in (401, 403):
            hint = "it wants to know who asks: --header 'Authorization: Bearer ...'"
            raise ImportProblem(f"{self.server.shown} answers {reply.status}", hint, asks_who=True)
        if method == "initialize" and (session := reply.headers.get(SESSION_HEADER)) is not None:
            self.session = ((SESSION_HEADER, session),)
        return find_answer(reply.headers.get("content-type", ""), reply.body, number) if reply.status == 200 else None

    async def post(
        self, message: dict[str, JsonValue], more: Headers = (), enough: Enough = lambda _media_type, _body: False
    ) -> FetchedAnswer:
        own = (("accept", "application/json, text/event-stream"), ("content-type", "application/json"))
        return await self.server.fetch("POST", (*own, *more, *self.session), dumps(message), enough)


async def read_again(recorded: Recorded, headers: Headers, _folder: Path) -> Harvest:
    """The current list of a recorded server. Raises ImportProblem."""
    return await read_mcp(recorded.source, headers)

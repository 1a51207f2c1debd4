"""The upstreams that the extension adds: processes, several servers as one, and HTTP operations as one server."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Final

from proxy import __version__
from proxy.config.model import UpstreamConfig
from proxy.core.json.jsontext import TextLimits, dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Fields,
    JsonProblem,
    JsonValue,
    RawRequest,
    UpstreamFault,
    UpstreamReply,
)
from proxy.extensions.mcp.adapters.mcpmessage import SESSION_HEADER, Message, MessageBatch, read_message
from proxy.extensions.mcp.config.model import Command, JoinedServers, ServedOperations
from proxy.extensions.mcp.upstream import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    OwnServer,
    choose_revision,
    describe_self,
    header_of,
    write_discovery,
    write_error,
    write_list,
    write_refusal,
    write_result,
)
from proxy.extensions.mcp.upstream.joined import JoinedServer, JoinedSettings, JoinedUpstream
from proxy.extensions.mcp.upstream.stdio import StdioSettings, StdioUpstream
from proxy.interfaces import GuardedUpstream, Upstream, UpstreamRequest
from proxy.plugin import Log, reveal

# --- operations of an HTTP API as one MCP server ----------------------------------------------------------------------
# An `Upstream` that lists the operations itself and sends calls to the service.
# `initialize`, `server/discover`, `ping` are answered here.
# `tools/list` has the operations, on one page.
# `tools/call` arrives as the service's own HTTP request and is forwarded to the service.
# `GET` gets 405: this server sends no messages without a request.
# A session is a random id that identifies one conversation. Nothing is stored under it, so any id is valid, after a
# restart and in each of several workers too.


@value_class
class OperationsSettings:
    """The config of such a server. `tools` are the operations by name, as `tools/list` shows them."""

    name: str
    tools: Mapping[str, Mapping[str, JsonValue]] = field(repr=False)
    version: str = ""


Answer = UpstreamReply | UpstreamFault

_CAPABILITIES: Final[dict[str, JsonValue]] = {"capabilities": {"tools": {}}}
_LIMITS: Final = TextLimits()


class OperationsUpstream(OwnServer):
    """Implements `Upstream`. `upstream` leads to the service."""

    def __init__(self, settings: OperationsSettings, upstream: GuardedUpstream) -> None:
        self._settings = settings
        self._upstream = upstream
        self._listed = dumps([dict(tool) for tool in settings.tools.values()])

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> Answer:
        if checked.call.tool not in self._settings.tools:
            return UpstreamReply(404, (), b"")
        return await self._upstream.send(checked, request)

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> Answer:
        whole = request.body if body is None else b"".join([piece async for piece in body])
        if request.method == "DELETE" and header_of(request, SESSION_HEADER):
            return UpstreamReply(200, (), b"")
        if request.method != "POST":
            return UpstreamReply(405, (("allow", "POST"),), b"")
        message = read_message(RawRequest("POST", request.target, "", Fields(request.headers), whole, {}, ""), _LIMITS)
        if isinstance(message, JsonProblem | MessageBatch):
            return write_refusal(400, INVALID_REQUEST, "Invalid Request: one JSON-RPC message is expected")
        if message.id is ABSENT or not message.method:  # a notification, or an answer: this server asks nothing
            return UpstreamReply(202, (), b"")
        return self._answer(message)

    async def close(self) -> None:
        """Closes nothing: the connections to the service are its own upstream's."""

    def _answer(self, message: Message) -> UpstreamReply:
        match message.method:
            case "tools/list" if isinstance(message.param("cursor"), str):
                return write_error(message, INVALID_PARAMS, "Invalid cursor: the list has one page")
            case "tools/list":
                return write_list(message, "tools", self._listed)
            case "ping":
                return write_result(message, {})
            case "initialize" if not message.modern:
                return self._initialize(message)
            case "server/discover" if message.modern:
                return write_discovery(message, _CAPABILITIES, self._settings.version)
            case method:
                return write_error(message, METHOD_NOT_FOUND, f"Method not found: {method}")

    def _initialize(self, message: Message) -> UpstreamReply:
        server = describe_self(self._settings.version)
        result = {"protocolVersion": choose_revision(message), **_CAPABILITIES, "serverInfo": server}
        reply = write_result(message, result)
        return replace(reply, headers=(*reply.headers, (SESSION_HEADER, secrets.token_hex(16))))


# --- the upstreams that the extension adds ----------------------------------------------------------------------------
# The variables that the SDKs of MCP hand on to a server that they start, and those for language and time zone.
_INHERITED: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES",
    "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
)  # fmt: skip


class McpUpstreams:
    """Implements `UpstreamKind`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._joined: dict[str, JoinedUpstream] = {}
        self._leaving: set[asyncio.Task[object]] = set()

    def make(self, entry: UpstreamConfig, upstreams: Mapping[str, GuardedUpstream], *, is_known: bool) -> Upstream:
        """Makes one upstream. Must be called inside the event loop."""
        match entry.added:
            case JoinedServers() as joined:
                return self._join(entry.name, joined, upstreams, is_known=is_known)
            case ServedOperations() as served:
                served_settings = OperationsSettings(entry.name, served.tools, __version__)
                return OperationsUpstream(served_settings, upstreams[served.upstream])
            case Command() as command:
                settings = make_stdio_settings(entry.name, command, partial(self._log_stderr, entry.name))
                return StdioUpstream(replace(settings, lost=partial(self._log_lost, entry.name)))
            case _:
                raise TypeError("an upstream without a URL, a command or other upstreams")

    def list_servers_down(self, name: str) -> dict[str, str]:
        """The servers of a joined upstream that are out of reach: name -> why."""
        joined = self._joined.get(name)
        return dict(joined.down) if joined is not None else {}

    def take_leaving(self) -> set[asyncio.Task[object]]:
        """The requests under way to servers that are no longer joined; each is given once."""
        leaving, self._leaving = self._leaving, set()
        return leaving

    def _join(
        self, name: str, entry: JoinedServers, upstreams: Mapping[str, GuardedUpstream], *, is_known: bool
    ) -> JoinedUpstream:
        """The upstream of several servers: the one that served this name before, where its open sessions can go on. Its
        guard is new, because the lists learned before are no longer valid."""
        settings = make_joined_settings(name, entry, partial(self._log_reach, name))
        known = self._joined.get(name) if is_known else None
        if known is None or not known.can_change(settings):
            known = self._joined[name] = JoinedUpstream(settings, upstreams)
        else:
            self._leaving |= known.change_servers(settings, upstreams)
        return known

    def _log_stderr(self, upstream: str, pid: int, line: str) -> None:
        if line:
            self._log.event("Tool server wrote to stderr", "info", upstream=upstream, pid=pid, line=line)

    def _log_lost(self, upstream: str, pid: int, why: str) -> None:
        self._log.event("Tool server sent an unknown answer", "warning", upstream=upstream, pid=pid, reason=why)

    def _log_reach(self, upstream: str, server: str, reason: str) -> None:
        """Logs why a server is out of reach, or with '' that it answers again."""
        if reason:
            self._log.event("Tool server out of reach", "warning", upstream=upstream, server=server, reason=reason)
        else:
            self._log.event("Tool server answers again", upstream=upstream, server=server)


def make_stdio_settings(name: str, command: Command, stderr: Callable[[int, str], None]) -> StdioSettings:
    """Makes the settings of a command's processes. They inherit the few variables that programs need to run, or all
    if the config says so."""
    names = os.environ if command.pass_all else _INHERITED
    inherited = {key: os.environ[key] for key in names if key in os.environ}
    return StdioSettings(
        name,
        command.words,
        {**inherited, **command.environment},
        cwd=command.cwd or None,
        max_children=command.max_children,
        idle=command.idle,
        shared=command.shared,
        single_client=command.single_client,
        stderr=stderr,
    )


def make_joined_settings(name: str, entry: JoinedServers, report: Callable[[str, str], None]) -> JoinedSettings:
    """Makes the settings of one upstream of several servers; `report` gets a server and why it is down."""
    servers = tuple(
        JoinedServer(
            one.name,
            one.upstream,
            one.path,
            one.prefix,
            tuple((key, reveal(value)) for key, value in one.headers.set),
            one.headers.remove,
            one.credentials,
        )
        for one in entry.entries
    )
    return JoinedSettings(name, servers, __version__, entry.always, entry.wait, report=report)

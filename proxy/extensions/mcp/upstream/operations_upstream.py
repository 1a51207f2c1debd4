"""Operations of an HTTP API as one MCP server, an `Upstream`: it lists them itself and sends calls to the service.

initialize, server/discover, ping     answered here
tools/list                            the operations, on one page
tools/call                            arrives as the service's own HTTP request and goes on to the service
GET                                   405: this server has no stream of its own messages

A session is a random id that identifies one conversation. Nothing is stored under it, so any id is valid, after a
restart and in each of several workers too.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import field, replace
from typing import Final

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
from proxy.extensions.mcp.upstream.own_answers import (
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
from proxy.interfaces import GuardedUpstream, UpstreamRequest


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
        """Sends a checked call to the service; 404 for a tool that is not an operation."""
        if checked.call.tool not in self._settings.tools:
            return UpstreamReply(404, (), b"")
        return await self._upstream.send(checked, request)

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> Answer:
        """Answers a message that is not a call."""
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

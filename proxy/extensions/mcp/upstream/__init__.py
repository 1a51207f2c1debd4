"""Answers that upstreams write themselves, where several MCP servers, or operations of an HTTP API, are one server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import ABSENT, Headers, JsonValue, UpstreamReply
from proxy.extensions.mcp.adapters.mcpmessage import MODERN, Message
from proxy.interfaces import UpstreamRequest

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
NO_SESSION: Final = -32001
NOT_INITIALIZED: Final = -32000
JSON: Final[Headers] = (("content-type", "application/json"),)

LATEST_WITH_SESSIONS: Final = "2025-11-25"
_OLD_REVISIONS: Final = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", LATEST_WITH_SESSIONS})
_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"


class OwnServer:
    """An upstream that is the HTTP server of its clients: no server behind it sees their headers."""

    @property
    def is_http_server(self) -> bool:
        """Returns whether it has clients over HTTP. A single client over stdio is answered by its own server."""
        return True

    def is_starting(self, session: str) -> bool:  # noqa: ARG002 - for those that start processes
        """Returns whether a client, in a session or '', has to wait for a process that has answered nothing yet."""
        return False


def choose_revision(message: Message) -> str:
    """The revision of an old-era client's session: the one that it asks for, else the latest."""
    revision = message.param("protocolVersion")
    return revision if isinstance(revision, str) and revision in _OLD_REVISIONS else LATEST_WITH_SESSIONS


def describe_self(version: str) -> dict[str, JsonValue]:
    """The proxy as a server or a client (`Implementation`)."""
    return {"name": "toolcall-proxy", "version": version}


def write_discovery(message: Message, described: Mapping[str, JsonValue], version: str) -> UpstreamReply:
    """The answer to `server/discover`, with the capabilities in `described`."""
    own: dict[str, JsonValue] = {"ttlMs": 0, "cacheScope": "private", "_meta": {_SERVER_INFO: describe_self(version)}}
    return write_result(message, {"supportedVersions": [MODERN], **described, **own})


def write_list(message: Message, name: str, entries: bytes, ttl: int = 0) -> UpstreamReply:
    """The answer to a request for a list: all `entries`, a JSON array. `ttl`: how long it may be kept, in ms."""
    more = b',"resultType":"complete","cacheScope":"private","ttlMs":' + dumps(ttl) if message.modern else b""
    head = b'{"jsonrpc":"2.0","id":' + dumps(message.id) + b',"result":{"' + name.encode() + b'":'
    return UpstreamReply(200, JSON, head + entries + more + b"}}")


def plain_request(request: UpstreamRequest) -> UpstreamRequest:
    """The client's request without body and resends, for the proxy's own requests."""
    return replace(request, body=b"", resend=False)


def write_result(message: Message, result: Mapping[str, JsonValue]) -> UpstreamReply:
    """The answer with a result; since 2026-07-28 it says that it is complete."""
    content: JsonValue = {"resultType": "complete", **result} if message.modern else dict(result)
    return UpstreamReply(200, JSON, dumps({"jsonrpc": "2.0", "id": message.id, "result": content}))


def write_error(message: Message, code: int, text: str, status: int = 0, data: JsonValue = ABSENT) -> UpstreamReply:
    """Returns the answer with an error; an unknown method has a separate status since 2026-07-28."""
    status = status or (404 if message.modern and code == METHOD_NOT_FOUND else 200)
    error: dict[str, JsonValue] = {"code": code, "message": text, **({} if data is ABSENT else {"data": data})}
    request_id = None if message.id is ABSENT else message.id
    return UpstreamReply(status, JSON, dumps({"jsonrpc": "2.0", "id": request_id, "error": error}))


def write_refusal(status: int, code: int, text: str) -> UpstreamReply:
    """An HTTP error with a JSON-RPC error that answers no request."""
    error: JsonValue = {"jsonrpc": "2.0", "error": {"code": code, "message": text}, "id": None}
    return UpstreamReply(status, JSON, dumps(error))


def header_of(request: UpstreamRequest, name: str) -> str:
    """A header of a request, or ''."""
    return next((value for key, value in request.headers if key == name), "")

"""Answers that a joined upstream writes itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from proxy.adapters.mcpmessage import Message
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Headers, JsonValue, UpstreamReply
from proxy.interfaces import UpstreamRequest

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
NO_SESSION: Final = -32001
NOT_INITIALIZED: Final = -32000
JSON: Final[Headers] = (("content-type", "application/json"),)


def plain_request(request: UpstreamRequest) -> UpstreamRequest:
    """A request whose body and resends belong to the client's call, not to questions of our own."""
    return replace(request, body=b"", resend=False)


def write_result(message: Message, result: Mapping[str, JsonValue]) -> UpstreamReply:
    """The answer with a result; since 2026-07-28 it says that it is complete."""
    told: JsonValue = {"resultType": "complete", **result} if message.modern else dict(result)
    return UpstreamReply(200, JSON, dumps({"jsonrpc": "2.0", "id": message.id, "result": told}))


def write_error(message: Message, code: int, text: str) -> UpstreamReply:
    """The answer with an error; an unknown method has a status of its own since 2026-07-28."""
    status = 404 if message.modern and code == METHOD_NOT_FOUND else 200
    error: JsonValue = {"jsonrpc": "2.0", "id": message.id, "error": {"code": code, "message": text}}
    return UpstreamReply(status, JSON, dumps(error))


def write_refusal(status: int, code: int, text: str) -> UpstreamReply:
    """An HTTP error with a JSON-RPC error that answers no request."""
    error: JsonValue = {"jsonrpc": "2.0", "error": {"code": code, "message": text}, "id": None}
    return UpstreamReply(status, JSON, dumps(error))


def header_of(request: UpstreamRequest, name: str) -> str:
    """A header of a request, or ''."""
    return next((value for key, value in request.headers if key == name), "")

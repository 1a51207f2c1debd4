"""Calls of an MCP route whose tools are HTTP operations: the request that goes out, and its answer as a tool's result.

An answer of the service is judged as on every HTTP route before it comes here (`core/tool_errors/classify.py`): what
arrives is a success, or an error that the operator wants unchanged.
"""

from __future__ import annotations

import codecs
from base64 import b64encode
from dataclasses import replace
from typing import Final

from proxy.adapters.mcpheaders import METHOD_HEADER, NAME_HEADER, PARAM_PREFIX
from proxy.adapters.mcpmessage import SESSION_HEADER, VERSION_HEADER
from proxy.core.contract.http_operation import HttpOperation
from proxy.core.model.codes import UPSTREAM_BAD_ANSWER
from proxy.core.model.values import CheckedCall, Executed, Fields, JsonValue, UpstreamFault, UpstreamReply
from proxy.interfaces import UpstreamRequest
from proxy.server.bound_route import RouteRequest
from proxy.server.mcp.lists.learner import decode_body, find_header
from proxy.upstream.faults import ReplyBroken, close_body

# Headers that are about MCP's own exchange; the answer is read here, so it comes without a coding.
_OF_MCP: Final = frozenset(
    [SESSION_HEADER, VERSION_HEADER, METHOD_HEADER, NAME_HEADER, "accept", "accept-encoding", "last-event-id"]
)  # fmt: skip
_ACCEPT: Final = ("accept", "application/json, */*;q=0.5")
# The longest answer that becomes a result: no model reads more.
MOST: Final = 16 * 1024 * 1024
_TEXTS: Final = ("json", "xml", "yaml", "javascript", "x-www-form-urlencoded", "csv", "ndjson")


def make_operation_request(call_route: RouteRequest, operation: HttpOperation, checked: CheckedCall) -> UpstreamRequest:
    """The service's own request for a checked call, with the client's headers but for those of MCP."""
    raw = call_route.raw
    kept = [(name, value) for name, value in raw.headers if name not in _OF_MCP and not name.startswith(PARAM_PREFIX)]
    plain = replace(raw, headers=Fields((*kept, _ACCEPT)))
    return replace(call_route, raw=plain).operation_request(operation, checked)


async def read_whole(reply: UpstreamReply) -> UpstreamReply | UpstreamFault:
    """An answer with its body in one piece, without a content coding; or why it cannot be had."""
    body = reply.body
    if not isinstance(body, bytes):
        whole = bytearray()
        try:
            async for piece in body:
                whole += piece
                if len(whole) > MOST:
                    return _unreadable("http_response_body_size", f"its answer is longer than {MOST >> 20} MiB")
        except ReplyBroken as broken:
            return broken.fault
        finally:
            await close_body(reply)
        body = bytes(whole)
    decoded = decode_body(reply, body)
    if decoded is None:
        return _unreadable("http_response_content_coding", "its answer has a content coding that cannot be read")
    return replace(reply, body=decoded)


def _unreadable(token: str, why: str) -> UpstreamFault:
    return UpstreamFault(UPSTREAM_BAD_ANSWER, token, Executed.UNKNOWN, why)


def make_result(tool: str, reply: UpstreamReply) -> dict[str, JsonValue]:
    """The result that an answer, read whole, is: its text; an image, a sound, or else the bytes as a resource."""
    body = reply.body if isinstance(reply.body, bytes) else b""
    failed: dict[str, JsonValue] = {"isError": True} if reply.status >= 400 else {}
    return {"content": [_content(tool, reply, body)], **failed}


def _content(tool: str, reply: UpstreamReply, body: bytes) -> dict[str, JsonValue]:
    content_type = find_header(reply, "content-type")
    media_type = content_type.partition(";")[0].strip().lower()
    if not body:
        location = find_header(reply, "location")
        pointed = f"; location: {location}" if location else ""
        return {"type": "text", "text": f"HTTP status {reply.status}, no content{pointed}"}
    if (text := _text(media_type, content_type, body)) is not None:
        return {"type": "text", "text": text}
    data = b64encode(body).decode()
    kind = media_type.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "data": data, "mimeType": media_type}
    named = {"uri": f"tool-result:{tool}", "mimeType": media_type or "application/octet-stream", "blob": data}
    return {"type": "resource", "resource": named}


def _text(media_type: str, content_type: str, body: bytes) -> str | None:
    """The text of a body; None where it is none."""
    is_text = media_type.startswith("text/") or media_type.rpartition("/")[2].rpartition("+")[2] in _TEXTS
    if not is_text and media_type:
        return None
    try:
        return body.decode(_charset(content_type))
    except UnicodeDecodeError:
        return body.decode("utf-8", "replace") if is_text else None


def _charset(content_type: str) -> str:
    """The charset that a Content-Type names, as far as Python knows it; else UTF-8."""
    parameters = (part.strip().partition("=") for part in content_type.split(";")[1:])
    named = next((value.strip('" ') for name, _, value in parameters if name.lower() == "charset"), "utf-8")
    try:
        return codecs.lookup(named).name
    except LookupError:
        return "utf-8"

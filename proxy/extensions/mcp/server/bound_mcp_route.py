"""Makes the upstream's request for a call of an MCP route: for an MCP server, or for an HTTP service's operation.

Headers that repeat parts of a message are kept equal to it when a repair changes the message. If the tools are
operations of an HTTP service, a call becomes the service's own request, and its answer becomes the tool's result. Such
an answer is classified first, as on every HTTP route (`core/tool_errors/classify.py`); only a success, or an error that
the config passes on unchanged, becomes a result here.
"""

from __future__ import annotations

import codecs
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from proxy.core.contract.listed_tool import Hints
from proxy.core.contract.policy import ToolPolicy, UnknownTool
from proxy.core.model.codes import UPSTREAM_BAD_ANSWER, UPSTREAM_REJECTED_ARGUMENTS
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Executed,
    Failure,
    Fields,
    Headers,
    JsonValue,
    RawRequest,
    ToolCall,
    UpstreamFault,
    UpstreamReply,
)
from proxy.driver import IN_TASK
from proxy.extensions.mcp.adapters.mcp import make_result_message, replace_tool_name
from proxy.extensions.mcp.adapters.mcpmessage import (
    CAPABILITIES_META,
    METHOD_HEADER,
    MODERN,
    NAME_HEADER,
    PARAM_PREFIX,
    SESSION_HEADER,
    VERSION_HEADER,
    VERSION_META,
    Message,
    find_missing_header,
    rename_in_headers,
    update_headers,
)
from proxy.extensions.mcp.server.lists.asking import Asking
from proxy.extensions.mcp.server.lists.learner import decode_body
from proxy.extensions.mcp.server.lists.reading import Catalogue
from proxy.extensions.mcp.server.watching import read_result_failure
from proxy.extensions.mcp.upstream import INVALID_PARAMS, METHOD_NOT_FOUND, OwnServer, write_error
from proxy.interfaces import CallAccess, GuardedUpstream, QuerySources, UpstreamRequest
from proxy.plugin import Check, OperationRule
from proxy.server.bound_route import RouteRequest
from proxy.upstream.faults import ReplyBroken, close_body

# --- holds requests of 2026-07-28 against what their server has to enforce --------------------------------------------
# Only if the proxy is that server (`OwnServer`): at a URL, servers do it themselves. A request that only its header
# claims for this revision could also bring a server that clients share into the era of sessions (specification,
# "Per-request protocol fields", "Server Validation", "Protocol Version Header").
_HEADER_MISMATCH: Final = -32020
_UNSUPPORTED_VERSION: Final = -32022
# Requests of older revisions (changelog of 2026-07-28).
_REMOVED: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)  # fmt: skip


def is_own_server(upstream: GuardedUpstream) -> bool:
    """Returns whether the proxy is the HTTP server of this upstream's clients."""
    inner = getattr(upstream, "unguarded", None)
    return isinstance(inner, OwnServer) and inner.is_http_server


def refuse_unfit(message: Message, request: RawRequest) -> UpstreamReply | None:
    """The refusal of a message that claims a revision without sessions and lacks what that revision requires; None for
    every other message."""
    named = message.meta.get(VERSION_META, ABSENT)
    is_of_session = request.header(SESSION_HEADER) is not None or message.method == "initialize"
    if not message.modern and (named is ABSENT or is_of_session):
        return None
    version = named if isinstance(named, str) else message.revision
    if version != MODERN:
        data: JsonValue = {"supported": [MODERN], "requested": version}
        return write_error(message, _UNSUPPORTED_VERSION, "Unsupported protocol version", 400, data)
    if message.id is ABSENT or not message.method:
        return None  # this revision defines no envelope for notifications
    if not isinstance(named, str) or not isinstance(message.meta.get(CAPABILITIES_META), dict):
        text = f"params._meta must have {VERSION_META!r}, a string, and {CAPABILITIES_META!r}, an object"
        return write_error(message, INVALID_PARAMS, text, 400)
    if missing := find_missing_header(request, message):
        return write_error(message, _HEADER_MISMATCH, missing, 400)
    if message.method in _REMOVED:
        return write_error(message, METHOD_NOT_FOUND, f"Method not found: {message.method}", 404)
    return None


# --- makes the upstream's request for a call of an MCP route ----------------------------------------------------------
@value_class
class _ListedCalls:
    """Implements `CallAccess` by the newest list's hints on a tool. The container and its search only show the caller's
    tools."""

    calls: CallAccess
    own: frozenset[str]
    find_hints: Callable[[str], Hints | None]

    @property
    def scope(self) -> str:
        return self.calls.scope

    def may_see(self, tool: str, hints: Hints | None = None) -> bool:  # noqa: ARG002 - the newest list
        return tool in self.own or self.calls.may_see(tool, self.find_hints(tool))

    def refuse_tool(self, tool: str, hints: Hints | None = None) -> Failure | None:  # noqa: ARG002 - the newest list
        return None if tool in self.own else self.calls.refuse_tool(tool, self.find_hints(tool))

    def refuse_call(self, checked: CheckedCall, hints: Hints | None = None) -> Failure | None:  # noqa: ARG002 - the newest list
        tool = checked.call.tool
        return None if tool in self.own else self.calls.refuse_call(checked, self.find_hints(tool))

    def refuse_answer(self, call: ToolCall, hints: Hints | None = None) -> Failure | None:  # noqa: ARG002 - the newest list
        return None if call.tool in self.own else self.calls.refuse_answer(call, self.find_hints(call.tool))


@value_class
class McpRouteRequest:
    """Implements `CallRoute` for one decoded call. `catalogue` is None if no list of tools was learned. `own`: the
    names of tools that the proxy itself lists; `is_hidden`: whether the caller may not see the tool. `passed_on` is
    called once the server has the call."""

    call_route: RouteRequest
    call: ToolCall
    tools: Mapping[str, ToolPolicy]
    catalogue: Catalogue | None
    asking: Asking
    own: frozenset[str]
    is_hidden: bool
    passed_on: Callable[[], None] | None

    @property
    def headers(self) -> Headers:
        return self.call_route.raw.headers

    @property
    def _operations(self) -> Mapping[str, OperationRule]:
        return self.call_route.binding.route.operations

    @property
    def unknown(self) -> UnknownTool:
        unknown, servers = self.call_route.unknown, self.asking.upstream.list_servers()
        return replace(unknown, servers=servers) if servers else unknown

    @property
    def peer(self) -> str:
        return self.call_route.peer

    @property
    def caller(self) -> str:
        return self.call_route.caller

    @property
    def calls(self) -> CallAccess | None:
        """The caller's access to calls; None: unlimited. Every caller may use the tools that the proxy itself lists."""
        calls = self.call_route.calls
        return None if calls is None else _ListedCalls(calls, self.own, self.asking.find_hints)

    def refuse_hidden(self, tool: str) -> Failure | None:
        calls = self.calls
        return calls.refuse_tool(tool) if calls is not None and self.is_hidden else None

    def find_user_query(self, sources: QuerySources) -> str:
        return self.call_route.find_user_query(sources)

    def can_forward_unknown(self, tool: str) -> bool:
        """Returns whether a call of an unknown tool is forwarded. Never if the tools are operations: no server behind
        them could know the tool."""
        return not self._operations and self.call_route.can_forward_unknown(tool)

    def request(self, checked: CheckedCall) -> UpstreamRequest:
        """Makes the request for a checked call. Headers that repeat a changed part of the body are changed with it."""
        if (operation := self._operations.get(checked.call.tool)) is not None:
            return replace(make_operation_request(self.call_route, operation, checked), passed_on=self.passed_on)
        binding, raw, tool = self.call_route.binding, self.call_route.raw, checked.call.tool
        body, names = raw.body, self.asking.rules.names
        if checked.repairs or checked.call is not self.call:
            body = binding.adapter.rewrite(raw, binding.route.shape, checked)
        listed = (names.find(tool) or tool) if names.renamed else tool
        was_changed = body is not raw.body
        renamed = body if listed == tool else replace_tool_name(body, listed)
        sent = binding.make_outgoing(raw, self.call_route.hop_fields, tool, renamed, math.inf, self.passed_on)
        if was_changed and self.asking.message.modern:
            mirrors = self.catalogue.mirrors(tool) if self.catalogue is not None else ()
            return replace(sent, headers=update_headers(sent.headers, listed, mirrors, checked.value))
        return sent if listed == tool else replace(sent, headers=rename_in_headers(sent.headers, listed))

    def find_complaint(self, checked: CheckedCall, reply: UpstreamReply) -> Failure | None:
        """Returns the failure where a result with `isError` rejects the arguments. Always None if the tools are
        operations: an HTTP service rejects arguments by its status."""
        if self._operations:
            return None
        body = decode_body(reply, reply.body) if isinstance(reply.body, bytes) else None
        if body is None or reply.status >= 300:
            return None
        policy = self.tools.get(checked.call.tool)
        check = policy.check if policy is not None else None
        failure = read_result_failure(body, self.asking.message.id, check, checked.value)
        return failure if failure is not None and failure.code is UPSTREAM_REJECTED_ARGUMENTS else None

    def find_answer_check(self, tool: str) -> Check | None:
        return None if self.catalogue is None else self.catalogue.tools.output_check(tool)

    def make_message(self, result: dict[str, JsonValue]) -> dict[str, JsonValue] | None:
        """Returns the JSON-RPC answer with a result. None if the tools are operations: a service answers in HTTP."""
        return None if self._operations else make_result_message(self.asking.message, result)


# --- operations of an HTTP service ------------------------------------------------------------------------------------
# Headers that concern MCP's own exchange. The answer is read here, so it is requested without a coding.
_OF_MCP: Final = frozenset(
    [SESSION_HEADER, VERSION_HEADER, METHOD_HEADER, NAME_HEADER, "accept", "accept-encoding", "last-event-id"]
)  # fmt: skip
_ACCEPT: Final = ("accept", "application/json, */*;q=0.5")
# The longest answer in bytes that becomes a result; no model reads more.
MOST: Final = 16 * 1024 * 1024
_TEXTS: Final = ("json", "xml", "yaml", "javascript", "x-www-form-urlencoded", "csv", "ndjson")


def make_operation_request(call_route: RouteRequest, operation: OperationRule, checked: CheckedCall) -> UpstreamRequest:
    """Returns the service's own request for a checked call. It has the client's headers except those of MCP."""
    raw = call_route.raw
    kept = [(name, value) for name, value in raw.headers if name not in _OF_MCP and not name.startswith(PARAM_PREFIX)]
    plain = replace(raw, headers=Fields((*kept, _ACCEPT)))
    return replace(call_route, raw=plain).operation_request(operation, checked)


async def read_whole(reply: UpstreamReply, most: int = MOST) -> UpstreamReply | UpstreamFault:
    """Reads an answer's whole body and decodes its content coding. Returns a fault if the body is longer than `most`
    bytes, breaks off, or cannot be decoded."""
    body = reply.body
    if not isinstance(body, bytes):
        whole = bytearray()
        try:
            await IN_TASK
            async for piece in body:
                whole += piece
                if len(whole) > most:
                    break
        except ReplyBroken as broken:
            return broken.fault
        finally:
            await close_body(reply)
        body = bytes(whole)
    if len(body) > most:
        return _unreadable("http_response_body_size", f"its answer is longer than {most >> 10:,} KiB")
    decoded = decode_body(reply, body)
    if decoded is None:
        return _unreadable("http_response_content_coding", "its answer has a content coding that cannot be read")
    return replace(reply, body=decoded)


def _unreadable(token: str, why: str) -> UpstreamFault:
    return UpstreamFault(UPSTREAM_BAD_ANSWER, token, Executed.UNKNOWN, why)


def make_result(tool: str, reply: UpstreamReply) -> dict[str, JsonValue]:
    """The tool result for an answer that was read whole: a text, an image, a sound, or else the bytes as a resource."""
    body = reply.body if isinstance(reply.body, bytes) else b""
    failed: dict[str, JsonValue] = {"isError": True} if reply.status >= 400 else {}
    return {"content": [_content(tool, reply, body)], **failed}


def _content(tool: str, reply: UpstreamReply, body: bytes) -> dict[str, JsonValue]:
    content_type = reply.header("content-type")
    media_type = content_type.partition(";")[0].strip().lower()
    if not body:
        location = reply.header("location")
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
    """Returns the body as text; None if it is not text."""
    is_text = media_type.startswith("text/") or media_type.rpartition("/")[2].rpartition("+")[2] in _TEXTS
    if not is_text and media_type:
        return None
    try:
        return body.decode(_charset(content_type))
    except UnicodeDecodeError:
        return body.decode("utf-8", "replace") if is_text else None


def _charset(content_type: str) -> str:
    """Returns the charset that a Content-Type names if Python knows it, else UTF-8."""
    parameters = (part.strip().partition("=") for part in content_type.split(";")[1:])
    named = next((value.strip('" ') for name, _, value in parameters if name.lower() == "charset"), "utf-8")
    try:
        return codecs.lookup(named).name
    except LookupError:
        return "utf-8"

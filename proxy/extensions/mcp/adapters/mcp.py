"""The MCP adapter: Streamable HTTP in both of its eras. Only `tools/call` is a call; other messages pass. Pure.

    decode    turns a POST with `tools/call` into a call, and lets everything else pass as it is
    rewrite   keeps the client's own bytes, with repairs spliced in
    encode    writes a failed call as HTTP 200 with `isError: true`: a 4xx ends the whole run in three agent frameworks,
              and a JSON-RPC error hides the text from the model in two (specification 2025-11-25, "Error Handling")

Failures that concern no call (credentials, origins, an unreadable body) get an HTTP status with a JSON-RPC error as
body. A batch that calls a tool is refused whole. Servers run every element of a batch, so an array must not bypass the
check, and no revision since 2025-06-18 has batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from proxy.adapters.ladder import CALL_ID_HEADER, find_call_id, find_conversation
from proxy.core.envelope import FORMATS, Detail
from proxy.core.envelope.parts import make_failure_headers, write_body, write_message
from proxy.core.envelope.view import FailureView
from proxy.core.json.jsonspan import cut_value, find_span, replace_value
from proxy.core.json.jsontext import dumps, parse, read_document
from proxy.core.model import codes
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Conversation,
    Document,
    Failure,
    Fields,
    Headers,
    HttpReply,
    JsonProblem,
    JsonValue,
    Passthrough,
    RawRequest,
    Repair,
    ToolCall,
    ToolResult,
)
from proxy.extensions.mcp.adapters.mcpmessage import (
    SESSION_HEADER,
    Message,
    MessageBatch,
    find_disagreement,
    guess_message,
    is_bare,
    read_message,
)
from proxy.plugin import CallShape, find_nameless

_NAME: Final = ("params", "name")
# `arguments` may be missing if the tool needs none; such a call is clean, not empty.
_NO_ARGUMENTS: Final = Document(b"{}", {})

# Failures before a call exists -> JSON-RPC's code (JSON-RPC 2.0 section 5.1; MCP 2026-07-28, "Error Codes").
_RPC_CODES: Final = {codes.BAD_REQUEST: -32600, codes.HEADER_MISMATCH: -32020}
_PARSE_ERROR: Final = -32700
INTERNAL_ERROR: Final = -32603
_INVALID_PARAMS: Final = -32602
# Failures about the client, not about the call: they get an HTTP status even if a call can be named.
_ABOUT_THE_CLIENT: Final = frozenset(
    {codes.TOKEN_REQUIRED, codes.TOKEN_UNCHECKED, codes.ORIGIN_NOT_ALLOWED, codes.HEADER_MISMATCH, codes.BAD_REQUEST}
)
_ARGUMENTS: Final = ("params", "arguments")
_BATCH: Final = "A batch must not call tools: send each tools/call in a separate request."


class McpAdapter:
    """Implements `Adapter` for routes with `protocol: mcp`."""

    name = "mcp"

    def decode(self, request: RawRequest, shape: CallShape, fresh_id: str) -> ToolCall | Passthrough | Failure:
        """The call in a request; Passthrough for every other message, and for GET and DELETE without one."""
        if is_bare(request):
            return Passthrough()
        match read_message(request, shape.text):
            case JsonProblem() as problem:
                return _decode_unreadable(request, shape, problem, fresh_id)
            case MessageBatch(may_pass):
                return Passthrough() if may_pass else Failure(codes.BAD_REQUEST, _BATCH)
            case found:
                return decode_message(found, request, shape, fresh_id)

    def rewrite(self, request: RawRequest, shape: CallShape, checked: CheckedCall) -> bytes:  # noqa: ARG002 - Adapter's signature
        """The client's body with repaired arguments and a repaired tool name."""
        if not checked.enforced:
            return request.body
        made = _replace_arguments(replace_tool_name(request.body, checked.call.tool), checked.arguments)
        return request.body if made == request.body else made

    def encode(
        self,
        result: ToolResult,
        envelope: str,  # noqa: ARG002 - MCP has one
        error_status: str,  # noqa: ARG002 - and its own rules for statuses
        accept: str = "",
        request: RawRequest | None = None,
        detail: Detail = "compact",
    ) -> HttpReply:
        """Encodes a failed call as an MCP result, and any other failed request as an HTTP error."""
        message = guess_message(request) if request is not None and not is_bare(request) else None
        headers = make_failure_headers(result, f"mcp/{FORMATS['mcp'].version}", FORMATS["mcp"].media_type)
        about_client = result.failure.code in _ABOUT_THE_CLIENT or _is_challenge(result.failure)
        if message is None or not message.is_call or message.id is ABSENT or about_client:
            return _encode_refusal(result, message, request, headers)
        if message.param("task") is not ABSENT and not message.modern:  # the SDKs read a task or an error here
            built: Any = FORMATS["mcp"].build(result)
            error: dict[str, JsonValue] = {"code": _INVALID_PARAMS, "message": str(built["content"][0]["text"])}
            return write_answer({"jsonrpc": "2.0", "id": message.id, "error": error}, message, request, accept, headers)
        answer = make_result_message(message, FORMATS["mcp"].build(result, detail))
        return write_answer(answer, message, request, accept, headers)


def _is_challenge(failure: Failure) -> bool:
    """Returns whether the client has to get another token: MCP answers that with HTTP 403 (2025-11-25, "Scope Challenge
    Handling")."""
    return any(name == "WWW-Authenticate" for name, _ in failure.headers)


def decode_message(
    found: Message, request: RawRequest, shape: CallShape, fresh_id: str
) -> ToolCall | Passthrough | Failure:
    """The call in a readable message, or how else to treat it."""
    if wrong := find_disagreement(request, found):
        return Failure(codes.HEADER_MISMATCH, wrong)
    if not found.is_call:
        return Passthrough()
    name, arguments = found.param("name"), found.param("arguments")
    call_id = find_call_id(request, ("id",), {"id": found.id}, fresh_id)
    document = _NO_ARGUMENTS
    if arguments is not ABSENT:
        document = _read_arguments(cut_value(request.body, _ARGUMENTS), arguments, shape)
    return ToolCall(
        name if isinstance(name, str) else "",
        document,
        call_id,
        _find_conversation(found, request, shape),
        resend_id=_find_resend_id(found, request, call_id),
        violations=find_nameless(_NAME, name),
    )


def _read_arguments(text: bytes, value: JsonValue, shape: CallShape) -> Document:
    """The arguments with their bytes. The rule `parse_json_string` handles JSON within a string, unless its text has to
    be repaired first."""
    if isinstance(value, str) and shape.text_repairs:
        inner = read_document(value.encode("utf-8", "surrogatepass"), shape.text, shape.text_repairs)
        if isinstance(inner, Document) and inner.repairs and isinstance(inner.value, dict):
            return Document(inner.text, inner.value, (Repair("parse_json_string", ()), *inner.repairs))
    return Document(text, value)


def _decode_unreadable(
    request: RawRequest, shape: CallShape, problem: JsonProblem, fresh_id: str
) -> ToolCall | Failure:
    """The result for a body that two parsers could read differently: a call to refuse if the body names one, otherwise
    a failure."""
    seen = guess_message(request)
    if seen is None or not seen.is_call or seen.id is ABSENT:
        return Failure(codes.BAD_REQUEST, f"The body is not a JSON-RPC message: {problem.reason}.")
    name = seen.param("name")
    call_id = find_call_id(request, ("id",), {"id": seen.id}, fresh_id)
    conversation, resend_id = _find_conversation(seen, request, shape), _find_resend_id(seen, request, call_id)
    named = name if isinstance(name, str) else ""
    if problem.path is not None:  # the place in the message; the model only knows its arguments
        below = problem.path[len(_ARGUMENTS) :] if problem.path[: len(_ARGUMENTS)] == _ARGUMENTS else None
        problem = replace(problem, path=below)
    return ToolCall(named, problem, call_id, conversation, request.body, resend_id=resend_id)


def _find_resend_id(found: Message, request: RawRequest, call_id: str) -> str | None:
    """The id by which a repeated message is recognised as a resend. None: the client's own call id decides; otherwise
    the message id within its session. '' without a session: clients that start again for each call reuse their ids."""
    if request.header(CALL_ID_HEADER) is not None:
        return None
    session = "" if found.modern else request.header(SESSION_HEADER)
    return f"{session}\n{call_id}" if session else ""


def _find_conversation(found: Message, request: RawRequest, shape: CallShape) -> Conversation:
    """The conversation of a message. `_meta` may hold a trace; session ids have no meaning since 2026-07-28."""
    headers: Headers = request.headers
    if request.header(SESSION_HEADER) is not None and found.modern:
        headers = tuple([field for field in headers if field[0] != SESSION_HEADER])
    traced = found.meta.get("traceparent")
    if isinstance(traced, str) and request.header("traceparent") is None:
        headers = (*headers, ("traceparent", traced))
    seen = request if headers is request.headers else replace(request, headers=Fields(headers))
    return find_conversation(seen, shape.ladder, found.params)


def replace_tool_name(text: bytes, tool: str) -> bytes:
    """Returns the body of a call with another tool name; unchanged if it has that name, or no name."""
    try:
        start, end = find_span(text, _NAME)
    except LookupError:
        return text
    return text if parse(text[start:end]) == tool else text[:start] + dumps(tool) + text[end:]


def _replace_arguments(text: bytes, arguments: bytes) -> bytes:
    """Returns the body with these arguments; unchanged if it neither has nor needs arguments."""
    try:
        find_span(text, _ARGUMENTS)
    except LookupError:
        if arguments == _NO_ARGUMENTS.text:
            return text
    return replace_value(text, _ARGUMENTS, arguments)


# --- answers ----------------------------------------------------------------------------------------------------------
def make_result_message(message: Message, result: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The JSON-RPC answer to a message, with a result; since 2026-07-28 a result says that it is complete. A message
    without a usable id is answered under null (JSON-RPC 2.0 section 5)."""
    whole = {"resultType": "complete", **result} if message.modern else result
    return {"jsonrpc": "2.0", "id": None if message.id is ABSENT else message.id, "result": whole}


def write_answer(
    answer: dict[str, JsonValue], message: Message, request: RawRequest | None, accept: str, headers: Headers = ()
) -> HttpReply:
    """An answer of the proxy: JSON, or an event for clients that accept nothing else. Old ones get their session id."""
    body = write_body(answer)
    session = request.header(SESSION_HEADER) if request is not None and not message.modern else None
    if session is not None:
        headers = (*headers, ("Mcp-Session-Id", session))
    if _takes_json(accept):
        return HttpReply(200, headers, body)
    kept = tuple(field for field in headers if field[0] != "Content-Type")
    return HttpReply(200, (("Content-Type", "text/event-stream"), *kept), b"event: message\ndata: " + body + b"\n\n")


def _takes_json(accept: str) -> bool:
    accept = accept.lower()
    return "text/event-stream" not in accept or "application/json" in accept or "*/*" in accept


def _encode_refusal(
    result: ToolResult, message: Message | None, request: RawRequest | None, headers: Headers
) -> HttpReply:
    """An answer to something that is not a call: an HTTP status, and a JSON-RPC error with the id if there is one. A
    notification gets the status only, because nothing may be sent in response to it (JSON-RPC 2.0 section 4.1)."""
    failure = result.failure
    written = None if request is None else parse(request.body)
    if message is not None and message.method and isinstance(written, dict) and "id" not in written:
        return HttpReply(failure.http_status, tuple(field for field in headers if field[0] != "Content-Type"), b"")
    code = _RPC_CODES.get(failure.code, INTERNAL_ERROR)
    if failure.code is codes.BAD_REQUEST and isinstance(written, JsonProblem):
        code = _PARSE_ERROR
    error = {"code": code, "message": write_message(FailureView(result, "full"))}
    request_id = message.id if message is not None and message.id is not ABSENT else None
    body = {"jsonrpc": "2.0", "id": request_id, "error": error}
    return HttpReply(failure.http_status, headers, write_body(body))


ADAPTER: Final = McpAdapter()

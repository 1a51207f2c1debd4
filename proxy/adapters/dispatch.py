"""The dispatch adapter: one route, many tools. The body holds the tool's name and its arguments, each at a pointer.

Examples are `{"tool": "weather", "arguments": {...}}` with `/tool` and `/arguments`, and OpenAI's shape with
`/function/name` and `/function/arguments`. There the arguments are JSON text in a string (`arguments_encoding:
json_string`); the text is decoded, checked, and put back as a string.

The client's own body goes upstream. A repair changes only the bytes of the arguments (and of a trimmed tool name): the
new bytes are spliced into the body, and every other member keeps its text. If the route's `upstream_path` contains
`{tool}`, the upstream has one path per tool and gets only the arguments. `server/` does that, since it needs no
knowledge of the shape.
"""

from __future__ import annotations

from proxy.adapters.base import Adapter, CallShape, find_nameless
from proxy.adapters.ladder import find_call_id, find_conversation
from proxy.core.json.jsonspan import find_span, replace_value
from proxy.core.json.jsontext import NO_ARGUMENTS, dumps, find_at_pointer, find_case_duplicate, parse, read_document
from proxy.core.json.strictreader import UnreadDocument
from proxy.core.model.values import (
    ABSENT,
    Absent,
    CheckedCall,
    Document,
    Failure,
    JsonProblem,
    JsonValue,
    Passthrough,
    Pointer,
    RawRequest,
    ToolCall,
)


# --- the plain adapter ------------------------------------------------------------------------------------------------
class PlainAdapter(Adapter):
    """Implements `Adapter` for routes whose body is the arguments and nothing else."""

    name = "plain"

    def decode(self, request: RawRequest, shape: CallShape, fresh_id: str) -> ToolCall | Passthrough | Failure:
        """The call in a request. Unreadable arguments are part of the call: `decide` refuses them, and says where."""
        body = request.body
        arguments = read_document(body, shape.text, shape.text_repairs) if body.strip() else NO_ARGUMENTS
        value, unread = ABSENT, b""
        if isinstance(arguments, JsonProblem):
            unread = body
        elif type(arguments) is not UnreadDocument or shape.looks_into_body:
            value = arguments.value
        return ToolCall(
            shape.find_tool(request),
            arguments,
            find_call_id(request, shape.call_id_pointer, value, fresh_id),
            find_conversation(request, shape.ladder, value),
            unread,
            request.params,
            request.query,
        )

    def rewrite(self, request: RawRequest, shape: CallShape, checked: CheckedCall) -> bytes:  # noqa: ARG002 - Adapter's signature
        """The body to send: the arguments, in the client's own bytes unless something was repaired."""
        return checked.arguments if checked.enforced else request.body


# --- the dispatch adapter ---------------------------------------------------------------------------------------------
_NO_BODY = JsonProblem("the body is empty, but must name a tool", 1, 1)


class DispatchAdapter(Adapter):
    """Implements `Adapter` for routes whose body names the tool."""

    name = "dispatch"

    def decode(self, request: RawRequest, shape: CallShape, fresh_id: str) -> ToolCall | Passthrough | Failure:
        """The call in a body. A body that is unreadable, or names no tool, is a call of the tool ''."""
        body = _read(request.body, shape) if request.body.strip() else _NO_BODY
        if isinstance(body, JsonProblem):
            call_id = find_call_id(request, None, ABSENT, fresh_id)
            return ToolCall("", body, call_id, find_conversation(request, shape.ladder), request.body)
        arguments = _read_arguments(body, shape)
        pointer = shape.tool_pointer
        return ToolCall(
            _read_tool(request, body.value, shape),
            arguments,
            find_call_id(request, shape.call_id_pointer, body.value, fresh_id),
            find_conversation(request, shape.ladder, body.value),
            body.text if isinstance(arguments, JsonProblem) else b"",
            violations=() if pointer is None else find_nameless(pointer, _find_at(body.value, pointer)),
        )

    def rewrite(self, request: RawRequest, shape: CallShape, checked: CheckedCall) -> bytes:
        """The client's body with repaired arguments and a repaired tool name."""
        if not checked.enforced:
            return request.body
        if not checked.repairs and _names(request.body, shape, checked.call.tool):
            return request.body
        body = read_document(request.body, shape.text, shape.text_repairs)
        if isinstance(body, JsonProblem):  # unreachable: `decode` has read the body already
            raise AssertionError("a checked call came from a body that cannot be read")
        text = body.text
        if shape.tool_pointer is not None:
            text = replace_value(text, shape.tool_pointer, dumps(checked.call.tool))
        if not checked.repairs:
            return text
        pointer, arguments = shape.arguments_pointer or (), checked.arguments
        if shape.arguments_encoding == "json_string" and isinstance(_find_at(body.value, pointer), str | Absent):
            arguments = dumps(arguments.decode())  # as the client sent them
        return replace_value(text, pointer, arguments)


def _read(text: bytes, shape: CallShape) -> Document | JsonProblem:
    """Reads a body; refuses one whose call two parsers could read differently."""
    body = read_document(text, shape.text, shape.text_repairs)
    if isinstance(body, Document):
        for pointer in (shape.tool_pointer or (), shape.arguments_pointer or ()):
            if (problem := find_case_duplicate(body.value, pointer)) is not None:
                return problem
    return body


def _read_tool(request: RawRequest, body: JsonValue, shape: CallShape) -> str:
    if shape.tool_pointer is None:
        return shape.find_tool(request)
    found = _find_at(body, shape.tool_pointer)
    return found if isinstance(found, str) else ""


def _read_arguments(body: Document, shape: CallShape) -> Document | JsonProblem:
    """The arguments as a document: their exact bytes within the body, or the text within a string."""
    pointer = shape.arguments_pointer or ()
    value = _find_at(body.value, pointer)
    if value is ABSENT:
        return Document(NO_ARGUMENTS.text, NO_ARGUMENTS.value, body.repairs)
    if shape.arguments_encoding == "json_string" and isinstance(value, str):
        inner = read_document(value.encode(), shape.text, shape.text_repairs) if value.strip() else NO_ARGUMENTS
        if isinstance(inner, JsonProblem):
            return inner
        return Document(inner.text, inner.value, (*body.repairs, *inner.repairs))
    start, end = find_span(body.text, pointer)
    return Document(body.text[start:end], value, body.repairs)


def _find_at(value: JsonValue, path: Pointer) -> JsonValue:
    try:
        return find_at_pointer(value, path)
    except LookupError:
        return ABSENT


def _names(body: bytes, shape: CallShape, tool: str) -> bool:
    if shape.tool_pointer is None:
        return True
    start, end = find_span(body, shape.tool_pointer)
    name = body[start:end]
    return name == dumps(tool) or bool(parse(name) == tool)

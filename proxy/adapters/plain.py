"""The plain adapter: one route serves one tool (or `/tools/{tool}`), and the whole body is the arguments."""

from __future__ import annotations

from proxy.adapters.base import Adapter, CallShape
from proxy.adapters.ladder import find_call_id, find_conversation
from proxy.core.json.jsontext import NO_ARGUMENTS, read_document
from proxy.core.json.strictreader import UnreadDocument
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Failure,
    JsonProblem,
    Passthrough,
    RawRequest,
    ToolCall,
)


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
            shape.tool if shape.tool is not None else request.params.get(shape.tool_param or "", ""),
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

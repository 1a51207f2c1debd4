"""The interface of protocol adapters: they turn requests into calls, and answers into what the client can read. Pure.

An adapter knows one wire protocol, and nothing about schemas, attempts or the network.
`tests/contract/test_adapters.py` runs the same suite over every entry of `ADAPTERS`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal, Protocol

from proxy.core.contract.request_rules import OperationRule
from proxy.core.envelope import Detail, render_failure
from proxy.core.json.jsontext import TextLimits, name_json_type
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Failure,
    HttpReply,
    JsonValue,
    Passthrough,
    Pointer,
    RawRequest,
    ToolCall,
    ToolResult,
    Violation,
)


def find_nameless(pointer: Pointer, value: JsonValue) -> tuple[Violation, ...]:
    """Returns the error of a `value` that is no tool name; nothing if it is one."""
    if isinstance(value, str) and value:
        return ()
    # Not a JSON Pointer, which would be shortened like a file path.
    place = " in ".join(f"'{step}'" for step in reversed(pointer)) or "the body"
    wants = "set it to the tool's exact name"
    if value is ABSENT:
        return (Violation(codes.REQUIRED_MISSING, pointer, f"{place} is missing, {wants}"),)
    found = "is empty" if value == "" else f"is of type {name_json_type(value)}"
    return (Violation(codes.TYPE_MISMATCH, pointer, f"{place} {found}, {wants}"),)


@value_class
class ConversationSource:
    """One rung of the conversation ladder (docs/contract.md). `kind` is header, body, trace, session or address;
    `name` is a header name or a JSON Pointer, for the kinds that need one."""

    kind: Literal["header", "meta", "body", "trace", "session", "address"]
    name: str = ""


DEFAULT_LADDER: tuple[ConversationSource, ...] = (
    ConversationSource("header", "x-conversation-id"),
    ConversationSource("trace"),
    ConversationSource("session", "mcp-session-id"),
    ConversationSource("address"),
)


@value_class
class CallShape:
    """The places of a call within a route's requests. Exactly one of `tool`, `tool_param` and `tool_pointer` is set.

    `arguments_pointer` is None if the whole body is the arguments. `text_repairs` names the text repairs that the
    route allows; `text` limits what is read. `operation` is set where path, query, headers and body are the arguments.
    """

    tool: str | None = None
    tool_param: str | None = None
    tool_pointer: Pointer | None = None
    arguments_pointer: Pointer | None = None
    arguments_encoding: Literal["json", "json_string"] = "json"
    call_id_pointer: Pointer | None = None
    ladder: tuple[ConversationSource, ...] = DEFAULT_LADDER
    text: TextLimits = field(default_factory=TextLimits)
    text_repairs: frozenset[str] = frozenset()
    operation: OperationRule | None = None

    def find_tool(self, request: RawRequest) -> str:
        """Returns the tool that the route or the path names; '' if neither does."""
        return self.tool if self.tool is not None else request.params.get(self.tool_param or "", "")

    @property
    def looks_into_body(self) -> bool:
        """Returns whether the body may hold the conversation or the id of a call."""
        return self.call_id_pointer is not None or any(source.kind in ("body", "meta") for source in self.ladder)


class Adapter(Protocol):
    """One wire protocol."""

    name: str

    def decode(self, request: RawRequest, shape: CallShape, fresh_id: str) -> ToolCall | Passthrough | Failure:
        """The call in a request, or why there is none. `fresh_id` names a call that the client did not name."""

    def rewrite(self, request: RawRequest, shape: CallShape, checked: CheckedCall) -> bytes:
        """The body to send upstream: the client's own bytes unless something was repaired."""

    def encode(
        self,
        result: ToolResult,
        envelope: str,
        error_status: str,
        accept: str = "",
        request: RawRequest | None = None,  # noqa: ARG002 - for protocols that have errors of their own
        detail: Detail = "compact",
    ) -> HttpReply:
        """Returns a failure in the form that clients of this protocol read: its own errors, or the route's envelope
        (`envelope` is a format name or 'auto', docs/contract.md). `accept` is the request's Accept header, `request`
        the request as far as it was read; `detail` says how much the part for machines holds."""
        return render_failure(result, envelope, error_status, accept, detail)

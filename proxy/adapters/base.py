"""What a protocol adapter is: it turns requests into calls, and answers into what its client can read. Pure.

An adapter knows one wire protocol and nothing of schemas, attempts or the network. `tests/contract/test_adapters.py`
runs the same suite over every entry of `ADAPTERS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from proxy.core.jsontext import TextLimits
from proxy.core.model import (
    CheckedCall,
    Failure,
    HttpReply,
    Passthrough,
    Pointer,
    RawRequest,
    ToolCall,
    ToolResult,
)


@dataclass(frozen=True, slots=True)
class ConversationSource:
    """One rung of the conversation ladder: `kind` header, body, trace, session or address; `name` a header name or
    a JSON Pointer where the kind needs one (contract section 4)."""

    kind: Literal["header", "meta", "body", "trace", "session", "address"]
    name: str = ""


DEFAULT_LADDER: tuple[ConversationSource, ...] = (
    ConversationSource("header", "x-conversation-id"),
    ConversationSource("trace"),
    ConversationSource("session", "mcp-session-id"),
    ConversationSource("address"),
)


# The same for MCP: clients tell their conversations in `_meta`, each under a key of its own.
MCP_LADDER: tuple[ConversationSource, ...] = (
    ConversationSource("header", "x-conversation-id"),
    ConversationSource("meta", "vscode.conversationId"),
    ConversationSource("meta", "openai/session"),
    ConversationSource("meta", "ai.opencode/sessionID"),
    ConversationSource("meta", "antigravity.google/conversation_id"),
    ConversationSource("meta", "threadId"),
    ConversationSource("trace"),
    ConversationSource("session", "mcp-session-id"),
    ConversationSource("address"),
)


@dataclass(frozen=True, slots=True)
class CallShape:
    """Where a route's requests hold the call. Exactly one of `tool`, `tool_param` and `tool_pointer` is set.

    `arguments_pointer` is None where the whole body is the arguments. `text_repairs` names the classes of text
    repair the route allows; `text` bounds what is read.
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


class Adapter(Protocol):
    """One wire protocol."""

    name: str

    def decode(self, request: RawRequest, shape: CallShape, fresh_id: str) -> ToolCall | Passthrough | Failure:
        """The call in a request, or why there is none. `fresh_id` names the call if the client did not."""

    def rewrite(self, request: RawRequest, shape: CallShape, checked: CheckedCall) -> bytes:
        """The body to send upstream: the client's own bytes when nothing was repaired."""

    def encode(
        self,
        result: ToolResult,
        envelope: str,
        error_status: str,
        accept: str = "",
        request: RawRequest | None = None,
    ) -> HttpReply:
        """A failure as this protocol's clients read it (`envelope` is a format name or 'auto', contract section 1).
        `accept` is the request's Accept header, `request` what is answered, as far as it was read."""

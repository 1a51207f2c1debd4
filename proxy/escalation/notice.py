"""What a human is told of an escalation: what the model is told, in parts (Acode FR-041..FR-044)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from proxy.core.contract.attempts import hash_conversation
from proxy.core.envelope.parts import sanitise_arguments
from proxy.core.envelope.sentence import summarize_escalation, write_sentence
from proxy.core.model.values import JsonValue, ToolResult

EVENT: Final = "tool_call.escalated"


def make_notice(result: ToolResult, route: str, request_id: str, wall: float) -> JsonValue:
    """One escalation as a JSON value. `wall` in Unix seconds. Arguments are sanitised as they are for the model; the
    conversation is its hash, as `/-/attempts` shows it."""
    attempt = result.attempt
    return {
        "type": EVENT,
        "timestamp": datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "data": {
            "summary": summarize_escalation(result),
            "status": "blocked",
            "tool": result.call.tool,
            "route": route,
            "conversation": hash_conversation(result.call.conversation),
            "identified_by": result.call.conversation.rung.value,
            "tool_call_id": result.call.call_id,
            "request_id": request_id,
            "attempts": attempt.number if attempt else None,
            "max_attempts": attempt.limit if attempt else None,
            "history": list(result.history),
            "original_call": {"tool": result.call.tool, "arguments": sanitise_arguments(result)},
            "content": write_sentence(result),
        },
    }

"""The formats of model vendors' tool messages, MCP's results, and RFC 9457 problem details for plain HTTP clients."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from proxy.core.envelope import parts
from proxy.core.envelope.sentence import sentence, summarize_escalation
from proxy.core.envelope.tool_result import make_error_part
from proxy.core.envelope.view import FailureView
from proxy.core.model.values import JsonValue


def write_openai(view: FailureView) -> JsonValue:
    """An OpenAI tool message; that API refuses keys it does not know, so there is no machine part."""
    return {"role": "tool", "tool_call_id": view.result.call.call_id, "content": sentence(view)}


def write_anthropic(view: FailureView) -> JsonValue:
    """An Anthropic `tool_result` content block."""
    return {
        "type": "tool_result",
        "tool_use_id": view.result.call.call_id,
        "content": sentence(view),
        "is_error": True,
    }


# Where MCP lets anybody add something of his own (specification, "_meta": a prefix, a slash, a name).
MCP_FEEDBACK: Final = "toolcall-proxy/feedback"


def write_mcp(view: FailureView) -> dict[str, JsonValue]:
    """MCP's `CallToolResult`: the sentence as text, the part for machines in `_meta`.

    Never `structuredContent`: one SDK holds it against the tool's outputSchema and throws our text away, one framework
    shows its model nothing else.
    """
    return {
        "content": [{"type": "text", "text": sentence(view)}],
        "isError": True,
        "_meta": {MCP_FEEDBACK: make_error_part(view)},
    }


def write_problem(view: FailureView) -> dict[str, JsonValue]:
    """RFC 9457 problem details: `detail` is the sentence, everything for machines is an extension member."""
    result = view.result
    failure, attempt = result.failure, result.attempt
    escalation: dict[str, JsonValue] = {"state": parts.choose_status(result)} if result.escalated else {}
    if result.escalated and view.full:
        escalation |= {
            "summary": summarize_escalation(result),
            "history": list(result.history),
            "original_call": {"tool": result.call.tool, "arguments": parts.sanitise_arguments(result)},
        }
    return {
        "type": "urn:toolcall-proxy:error:" + failure.code.name.lower().replace("_", "-"),
        "title": failure.code.meaning.rstrip("."),
        "status": HTTPStatus.OK.value,
        "detail": sentence(view),
        "code": failure.code.name,
        "error_type": failure.code.error_type.value,
        "category": failure.code.category.value,
        "retryable": failure.may_retry,
        "errors": parts.list_errors(view),
        "attempt": attempt.number if attempt else None,
        "max_attempts": attempt.limit if attempt else None,
        **escalation,
    }

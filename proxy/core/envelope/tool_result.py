"""`tool_result`, the default format: carries what all four seeds ask for at once (contract section 1)."""

from __future__ import annotations

from proxy.core.codes import ErrorType
from proxy.core.envelope import parts
from proxy.core.model import JsonValue, ToolResult
from proxy.core.sentence import compose, summary


def tool_result(result: ToolResult) -> JsonValue:
    """A tool message (Acode) that is also a GoMind and Compozy answer, with the errors for machines beside it."""
    return {
        "role": "tool",
        "tool_call_id": result.call.call_id,
        "is_error": True,
        "content": compose(result),
        "success": False,
        "error": error(result),
        "remediation_hint": parts.hint(result),
        "format_version": 1,
    }


def error(result: ToolResult) -> dict[str, JsonValue]:
    """The machine part: what happened, error by error, and where the model stands."""
    failure, attempt = result.failure, result.attempt
    found: dict[str, JsonValue] = {
        "error_type": failure.code.error_type.value,
        "code": failure.code.name,
        "message": parts.message(result),
        "category": failure.code.category.value,
        "retryable": failure.may_retry,
        "errors": parts.errors(result),
        "retry_guidance": parts.guidance(result),
        "attempt": attempt.number if attempt else None,
        "max_attempts": attempt.limit if attempt else None,
        "status": parts.status(result),
        "details": parts.details(result),
    }
    found |= parts.container_parts(result)
    if failure.code.error_type is ErrorType.ESCALATION:
        found |= {
            "summary": summary(result),
            "history": list(result.history),
            "original_call": {"tool": result.call.tool, "arguments": parts.sent(result)},
        }
    return found

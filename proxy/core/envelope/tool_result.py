"""`tool_result`, the default format: carries what all four seeds ask for at once (contract section 1)."""

from __future__ import annotations

from proxy.core.codes import ErrorType
from proxy.core.envelope import parts
from proxy.core.model import JsonValue
from proxy.core.sentence import sentence, summary
from proxy.core.telling import Telling


def tool_result(telling: Telling) -> JsonValue:
    """A tool message (Acode) that is also a GoMind and Compozy answer, with the errors for machines beside it."""
    return {
        "role": "tool",
        "tool_call_id": telling.result.call.call_id,
        "is_error": True,
        "content": sentence(telling),
        "success": False,
        "error": error(telling),
        "remediation_hint": parts.hint(telling),
        "format_version": 1,
    }


def error(telling: Telling) -> dict[str, JsonValue]:
    """The machine part: what happened, error by error, and where the model stands."""
    result = telling.result
    failure, attempt = result.failure, result.attempt
    found: dict[str, JsonValue] = {
        "error_type": failure.code.error_type.value,
        "code": failure.code.name,
        "message": parts.message(result),
        "category": failure.code.category.value,
        "retryable": failure.may_retry,
        "errors": parts.errors(telling),
        "retry_guidance": parts.guidance(telling),
        "attempt": attempt.number if attempt else None,
        "max_attempts": attempt.limit if attempt else None,
        "status": parts.status(result),
        "details": parts.details(telling),
    }
    found |= parts.container_parts(telling)
    if failure.code.error_type is ErrorType.ESCALATION:
        found |= {
            "summary": summary(result),
            "history": list(result.history),
            "original_call": {"tool": result.call.tool, "arguments": parts.sent(result)},
        }
    return found

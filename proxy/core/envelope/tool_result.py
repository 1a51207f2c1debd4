"""`write_tool_result`, the default format: carries what all four seeds ask for at once (contract section 1)."""

from __future__ import annotations

from typing import Final

from proxy.core.envelope import parts
from proxy.core.envelope.sentence import sentence, summarize_escalation
from proxy.core.envelope.view import FailureView
from proxy.core.model.codes import ErrorType
from proxy.core.model.values import JsonValue

# The version of the formats that have a part for machines: since 2 it holds the sentence's words in `full` alone.
VERSION: Final = 2
# Details of an escalation that have a place of their own here.
_OWN_PLACE: Final = frozenset({"history", "original_call", "status"})


def write_tool_result(view: FailureView) -> JsonValue:
    """A tool message (Acode) that is also a GoMind and Compozy answer, with the errors for machines beside it."""
    return {
        "role": "tool",
        "tool_call_id": view.result.call.call_id,
        "is_error": True,
        "content": sentence(view),
        "success": False,
        "error": make_error_part(view),
        **({"remediation_hint": parts.choose_hint(view)} if view.full else {}),
        "format_version": VERSION,
    }


def make_error_part(view: FailureView) -> dict[str, JsonValue]:
    """The machine part: what happened, error by error, and where the model stands. Compact: without the words that the
    sentence has."""
    result = view.result
    failure, attempt = result.failure, result.attempt
    found: dict[str, JsonValue] = {
        "error_type": failure.code.error_type.value,
        "code": failure.code.name,
        "message": parts.write_message(view),
        "category": failure.code.category.value,
        "retryable": failure.may_retry,
        "errors": parts.list_errors(view),
        **({"retry_guidance": parts.write_retry_guidance(view)} if view.full else {}),
        "attempt": attempt.number if attempt else None,
        "max_attempts": attempt.limit if attempt else None,
        "status": parts.choose_status(result),
        "details": parts.make_details(view),
    }
    if not view.full:
        return found | parts.describe_container(view)
    found |= parts.make_container_parts(view)
    if failure.code.error_type is ErrorType.ESCALATION:
        found["details"] = {key: item for key, item in parts.make_details(view).items() if key not in _OWN_PLACE}
        found |= {
            "summary": summarize_escalation(result),
            "history": list(result.history),
            "original_call": {"tool": result.call.tool, "arguments": parts.sanitise_arguments(result)},
        }
    return found

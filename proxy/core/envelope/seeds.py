"""The formats of four agent systems: GoMind, HPD, Acode, Compozy. Their keys are kept to the letter."""

from __future__ import annotations

from proxy.core.codes import REQUIRED_MISSING, ErrorType
from proxy.core.envelope import parts
from proxy.core.model import JsonValue, ToolResult, Violation
from proxy.core.preview import sanitise
from proxy.core.sentence import aggregate, compose, hidden, hider_of, told


def gomind(result: ToolResult) -> JsonValue:
    """GoMind's `ToolResponse`: `details` stays a flat map of strings, and holds the sentence as `feedback`."""
    failure = result.failure
    return {
        "success": False,
        "error": {
            "code": failure.code.name,
            "message": parts.message(result),
            "category": failure.code.category.value,
            "retryable": failure.may_retry,
            "details": {**parts.details(result), "feedback": compose(result)},
        },
    }


def compozy(result: ToolResult) -> JsonValue:
    """Compozy's uniform tool error (gap 6). `details` is free there, so it also holds the errors for machines."""
    return {
        "success": False,
        "error": {
            "code": result.failure.code.name,
            "message": compose(result),
            "details": {**parts.details(result), "errors": parts.errors(result)},
        },
        "remediation_hint": parts.hint(result),
    }


def acode(result: ToolResult) -> JsonValue:
    """Acode's ToolResult message: nothing but the sentence (FR-026..FR-030)."""
    return {"role": "tool", "tool_call_id": result.call.call_id, "content": compose(result), "is_error": True}


def hpd(result: ToolResult) -> JsonValue:
    """HPD's flat objects, switched on by `error_type`."""
    failure = result.failure
    if failure.container is not None and failure.code.error_type is ErrorType.CONTAINER:
        return {"error_type": ErrorType.CONTAINER.value, **parts.container_parts(result)}
    if failure.code.error_type in (ErrorType.VALIDATION, ErrorType.ESCALATION):
        return {
            "error_type": failure.code.error_type.value,
            "errors": _hpd_errors(result),
            "retry_guidance": compose(result) if result.escalated or result.repeated else parts.guidance(result),
        }
    return {
        "error_type": failure.code.error_type.value,
        "error_message": parts.message(result),
        "error_code": failure.code.name,
        "retry_guidance": parts.hint(result),
    }


def _hpd_errors(result: ToolResult) -> list[JsonValue]:
    shown, _ = aggregate(result.failure.violations, result.limits.max_errors)
    if shown:
        return [_hpd_error(violation, result) for violation in shown]
    return [
        {
            "property": "",
            "attempted_value": None,
            "error_message": parts.message(result),
            "error_code": result.failure.code.name,
        }
    ]


def _hpd_error(violation: Violation, result: ToolResult) -> JsonValue:
    """`property` is the dotted path; a missing field is said in HPD's words, the rest in ours."""
    limits, hiding = result.limits, hider_of(violation, result.limits)
    name = parts.text(".".join(map(str, violation.path[:64])), result)
    said = told(violation, hiding)
    if violation.code is REQUIRED_MISSING:
        said = f"{name} is required" + (f". {hidden(violation.hint, hiding)}" if violation.hint else "")
    return {
        "property": name,
        "attempted_value": sanitise(violation.value, limits, path=violation.path, sensitive=violation.sensitive),
        "error_message": said,
        "error_code": violation.code.hpd,
    }

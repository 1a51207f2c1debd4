"""The formats of four agent systems: GoMind, HPD, Acode, Compozy. Their keys are kept to the letter."""

from __future__ import annotations

from proxy.core.codes import REQUIRED_MISSING, ErrorType
from proxy.core.envelope import parts
from proxy.core.graphemes import cut
from proxy.core.model import JsonValue, ToolResult
from proxy.core.preview import sanitise
from proxy.core.sentence import sentence, told
from proxy.core.telling import SHOWN, Shown, Telling


def gomind(telling: Telling) -> JsonValue:
    """GoMind's `ToolResponse`: `details` stays a flat map of strings, and holds the sentence as `feedback`."""
    result = telling.result
    failure = result.failure
    return {
        "success": False,
        "error": {
            "code": failure.code.name,
            "message": parts.message(result),
            "category": failure.code.category.value,
            "retryable": failure.may_retry,
            "details": {**parts.details(telling), "feedback": sentence(telling)},
        },
    }


def compozy(telling: Telling) -> JsonValue:
    """Compozy's uniform tool error (gap 6). `details` is free there, so it also holds the errors for machines."""
    return {
        "success": False,
        "error": {
            "code": telling.result.failure.code.name,
            "message": sentence(telling),
            "details": {**parts.details(telling), "errors": parts.errors(telling)},
        },
        "remediation_hint": parts.hint(telling),
    }


def acode(telling: Telling) -> JsonValue:
    """Acode's ToolResult message: nothing but the sentence (FR-026..FR-030)."""
    return {"role": "tool", "tool_call_id": telling.result.call.call_id, "content": sentence(telling), "is_error": True}


def hpd(telling: Telling) -> JsonValue:
    """HPD's flat objects, switched on by `error_type`."""
    result = telling.result
    failure = result.failure
    if failure.container is not None and failure.code.error_type is ErrorType.CONTAINER:
        return {"error_type": ErrorType.CONTAINER.value, **parts.container_parts(telling)}
    if failure.code.error_type in (ErrorType.VALIDATION, ErrorType.ESCALATION):
        return {
            "error_type": failure.code.error_type.value,
            "errors": _hpd_errors(telling),
            "retry_guidance": sentence(telling) if result.escalated or result.repeated else parts.guidance(telling),
        }
    return {
        "error_type": failure.code.error_type.value,
        "error_message": parts.message(result),
        "error_code": failure.code.name,
        "retry_guidance": parts.hint(telling),
    }


def _hpd_errors(telling: Telling) -> list[JsonValue]:
    result = telling.result
    if telling.shown:
        return [_hpd_error(shown, result) for shown in telling.shown]
    return [
        {
            "property": "",
            "attempted_value": None,
            "error_message": parts.message(result),
            "error_code": result.failure.code.name,
        }
    ]


def _hpd_error(shown: Shown, result: ToolResult) -> JsonValue:
    """`property` is the dotted path; a missing field is said in HPD's words, the rest in ours."""
    violation, said = shown.violation, told(shown)
    name = parts.text(".".join(map(str, violation.path[:64])), result)
    if violation.code is REQUIRED_MISSING:
        said = f"{name} is required" + (f". {cut(shown.hint, SHOWN)}" if violation.hint else "")
    return {
        "property": name,
        "attempted_value": sanitise(violation.value, result.limits, path=violation.path, sensitive=violation.sensitive),
        "error_message": said,
        "error_code": violation.code.hpd,
    }

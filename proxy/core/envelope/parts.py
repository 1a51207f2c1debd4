"""What several wire formats show of a failure: its errors, details, guidance and escalation."""

from __future__ import annotations

from typing import Final

from proxy.core import container
from proxy.core.codes import ErrorType
from proxy.core.graphemes import encodable, escape
from proxy.core.model import Absent, JsonValue, ToolResult, Violation
from proxy.core.preview import sanitise, shown_text
from proxy.core.sentence import actual_of, aggregate, hidden, hider_of, original_call, remedy, shown_path, summary

# HPD's `retry_guidance` of a validation error, word for word.
VALIDATION_GUIDANCE: Final = (
    "The provided arguments are invalid. Please review the errors, correct the arguments based on the function "
    "schema, and try again."
)
# One detail or hint, in code points: an upstream's own words can be long.
_DETAIL: Final = 600


def text(value: str, result: ToolResult, limit: int = _DETAIL) -> str:
    """A text from outside as it may be shown: bounded, masked, without control characters."""
    return escape(shown_text(value, limit, result.limits))


def errors(result: ToolResult) -> list[JsonValue]:
    """The violations in the order of the sentence, at most `max_errors` of them (Acode FR-002..FR-007)."""
    shown, _ = aggregate(result.failure.violations, result.limits.max_errors)
    return [_error(violation, result) for violation in shown]


def _error(violation: Violation, result: ToolResult) -> JsonValue:
    limits, hiding = result.limits, hider_of(violation, result.limits)
    return {
        "code": violation.code.name,
        "path": shown_path(violation.path),
        "message": hidden(violation.message, hiding),
        "severity": violation.severity.value,
        "expected": hidden(violation.expected, hiding),
        "actual": actual_of(violation, limits),
        "hint": hidden(violation.hint, hiding),
    }


def message(result: ToolResult) -> str:
    """One line that says what happened, without the errors."""
    return summary(result) if result.escalated else text(result.failure.message, result)


def hint(result: ToolResult) -> str:
    """The single most useful thing to do: the call's own hint, else the first error's, else the code's remedy."""
    if result.escalated:
        return remedy(result)
    shown, _ = aggregate(result.failure.violations, 1)
    own = text(result.failure.hint, result) or next(
        (hidden(found.hint, hider_of(found, result.limits)) for found in shown), ""
    )
    return own or remedy(result)


def guidance(result: ToolResult) -> str:
    """`retry_guidance`: HPD's words where HPD has some."""
    failure = result.failure
    if result.escalated:
        return remedy(result)
    if failure.container is not None:
        return container.guidance(failure.container.container)
    return (
        VALIDATION_GUIDANCE if failure.code.error_type is ErrorType.VALIDATION and failure.violations else hint(result)
    )


def details(result: ToolResult) -> dict[str, JsonValue]:
    """A flat string-to-string map, as GoMind clients decode it (`Details map[string]string`)."""
    flat = {str(key): text(str(value), result) for key, value in result.failure.details.items()}
    flat.setdefault("hint", hint(result))
    _, left_out = aggregate(result.failure.violations, result.limits.max_errors)
    if left_out:
        flat["more_errors"] = str(left_out)
    if result.repeated:
        flat["repeated"] = "true"
    if result.escalated:
        flat["original_call"] = original_call(result, result.limits)
        flat["history"] = "\n".join(map(escape, result.history))
    return dict(flat)


def status(result: ToolResult) -> str:
    """`blocked` at the escalation (Acode FR-045), `retry` where another call can succeed, else `failed`."""
    if result.blocked:
        return "blocked"
    return "retry" if result.failure.may_retry else "failed"


def container_parts(result: ToolResult) -> dict[str, JsonValue]:
    """Exactly HPD's keys of a container error; empty for every other failure."""
    misuse = result.failure.container
    if misuse is None:
        return {}
    return {
        "container_name": misuse.container.name,
        "attempted_parameters": sanitise(misuse.attempted, result.limits),
        "available_functions": [function.name for function in misuse.container.functions],
        "error_message": text(result.failure.message, result),
        "retry_guidance": guidance(result),
    }


def sent(result: ToolResult) -> JsonValue:
    """The arguments as the model sent them, sanitised; None where they could not be read."""
    value = result.failure.sent
    return None if isinstance(value, Absent) else sanitise(value, result.limits)


def clean(value: JsonValue) -> JsonValue:
    """`value` with every text in it valid Unicode: header values and names can carry lone surrogates."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value

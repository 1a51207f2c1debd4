"""What several wire formats show of a failure: its errors, details, guidance and escalation."""

from __future__ import annotations

from typing import Final

from proxy.core import container
from proxy.core.codes import ErrorType
from proxy.core.graphemes import cut, encodable, escape
from proxy.core.jsontext import dumps_known
from proxy.core.model import Absent, JsonValue, ToolResult
from proxy.core.preview import sanitise, shown_text
from proxy.core.sentence import original_call, remedy, summary
from proxy.core.telling import SHOWN, Shown, Telling

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


def errors(telling: Telling) -> list[JsonValue]:
    """The violations in the order of the sentence, at most `max_errors` of them (Acode FR-002..FR-007)."""
    return [_error(shown) for shown in telling.shown]


def _error(shown: Shown) -> JsonValue:
    return {
        "code": shown.violation.code.name,
        "path": shown.path,
        "message": cut(shown.message, SHOWN),
        "severity": shown.violation.severity.value,
        "expected": cut(shown.expected, SHOWN),
        "actual": shown.actual,
        "hint": cut(shown.hint, SHOWN),
    }


def message(result: ToolResult) -> str:
    """One line that says what happened, without the errors."""
    return summary(result) if result.escalated else text(result.failure.message, result)


def hint(telling: Telling) -> str:
    """The single most useful thing to do: the call's own hint, else the first error's, else the code's remedy."""
    result = telling.result
    if result.escalated:
        return remedy(result)
    return text(result.failure.hint, result) or telling.first_hint or remedy(result)


def guidance(telling: Telling) -> str:
    """`retry_guidance`: HPD's words where HPD has some."""
    result = telling.result
    failure = result.failure
    if result.escalated:
        return remedy(result)
    if failure.container is not None:
        return container.guidance(failure.container.container)
    return (
        VALIDATION_GUIDANCE if failure.code.error_type is ErrorType.VALIDATION and failure.violations else hint(telling)
    )


def details(telling: Telling) -> dict[str, JsonValue]:
    """A flat string-to-string map, as GoMind clients decode it (`Details map[string]string`)."""
    result = telling.result
    flat = {str(key): text(str(value), result) for key, value in result.failure.details.items()}
    flat.setdefault("hint", hint(telling))
    if telling.left_out:
        flat["more_errors"] = str(telling.left_out)
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


def container_parts(telling: Telling) -> dict[str, JsonValue]:
    """Exactly HPD's keys of a container error; empty for every other failure."""
    result = telling.result
    misuse = result.failure.container
    if misuse is None:
        return {}
    return {
        "container_name": misuse.container.name,
        "attempted_parameters": sanitise(misuse.attempted, result.limits),
        "available_functions": [function.name for function in misuse.container.functions],
        "error_message": text(result.failure.message, result),
        "retry_guidance": guidance(telling),
    }


def sent(result: ToolResult) -> JsonValue:
    """The arguments as the model sent them, sanitised; None where they could not be read."""
    value = result.failure.sent
    return None if isinstance(value, Absent) else sanitise(value, result.limits)


def written(body: JsonValue) -> bytes:
    """An answer's body as JSON in UTF-8; a lone surrogate, which header values and names can carry, becomes U+FFFD."""
    try:
        return dumps_known(body)
    except UnicodeEncodeError:
        return dumps_known(_clean(body))


def _clean(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value

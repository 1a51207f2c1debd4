"""Failure -> the answer a client reads (`render_failure`), and its formats, a function for each.

They are the default, those of model vendors' tool messages, MCP's results, RFC 9457 problem details for plain HTTP
clients, and those of four agent systems (GoMind, HPD, Acode, Compozy). `write_tool_result` is the default: it carries
what all four seeds ask for at once (docs/contract.md). The keys of each format are kept to the letter of its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from proxy.core.display.graphemes import cut
from proxy.core.display.preview import sanitise_value
from proxy.core.envelope import parts
from proxy.core.envelope.feedback import render_feedback
from proxy.core.envelope.view import SHOWN, Detail, FailureView, Shown
from proxy.core.model import codes
from proxy.core.model.codes import REQUIRED_MISSING, ErrorCode, ErrorType
from proxy.core.model.values import HttpReply, JsonValue, ToolResult, value_class

# The version of the formats that have a part for machines: since 2 it is short unless the route says `full`.
VERSION: Final = 2
# Details of an escalation that have a separate place here.
_OWN_PLACE: Final = frozenset({"history", "original_call", "status"})
# Words of one error beside a feedback that has them all, in code points.
_BRIEF: Final = 80


def write_tool_result(view: FailureView) -> JsonValue:
    """A tool message (Acode) that is also a GoMind and Compozy answer, with the errors for machines beside it."""
    return {
        "role": "tool",
        "tool_call_id": view.result.call.call_id,
        "is_error": True,
        "content": render_feedback(view),
        "success": False,
        "error": make_error_part(view),
        **({"remediation_hint": parts.choose_hint(view)} if view.full else {}),
        "format_version": VERSION,
    }


def make_error_part(view: FailureView) -> dict[str, JsonValue]:
    """The machine part: the failure, error by error, and the model's attempt. Compact: without the feedback's words."""
    result = view.result
    failure, attempt = result.failure, result.attempt
    message, status = parts.write_message(view), parts.choose_status(result)
    found: dict[str, JsonValue] = {
        "error_type": str(failure.code.error_type),
        "code": failure.code.name,
        "message": message,
        "category": str(failure.code.category),
        "retryable": failure.may_retry,
        "errors": parts.list_errors(view),
        **({"retry_guidance": parts.write_retry_guidance(view)} if view.full else {}),
        "attempt": attempt.number if attempt else None,
        "max_attempts": attempt.limit if attempt else None,
        "status": status,
        "details": parts.make_details(view),
    }
    if not view.full:
        return found | parts.describe_container(view)
    found |= parts.make_container_parts(view)
    if failure.code.error_type is ErrorType.ESCALATION:
        found["details"] = {key: item for key, item in parts.make_details(view).items() if key not in _OWN_PLACE}
        found |= parts.show_escalation(result)
    return found


def write_openai(view: FailureView) -> dict[str, JsonValue]:
    """An OpenAI tool message; that API refuses keys it does not know, so there is no machine part."""
    return {"role": "tool", "tool_call_id": view.result.call.call_id, "content": render_feedback(view)}


def write_anthropic(view: FailureView) -> JsonValue:
    """An Anthropic `tool_result` content block."""
    return {
        "type": "tool_result",
        "tool_use_id": view.result.call.call_id,
        "content": render_feedback(view),
        "is_error": True,
    }


# The key under which MCP allows additions of our own (specification, "_meta": a prefix, a slash, a name).
MCP_FEEDBACK: Final = "toolcall-proxy/feedback"


def write_mcp(view: FailureView) -> dict[str, JsonValue]:
    """MCP's `CallToolResult`: the feedback as text, the part for machines in `_meta`. Never `structuredContent`: an SDK
    checks it by the tool's outputSchema and drops our text, one framework shows its model nothing else."""
    return {
        "content": [{"type": "text", "text": render_feedback(view)}],
        "isError": True,
        "_meta": {MCP_FEEDBACK: make_error_part(view)},
    }


def write_problem(view: FailureView) -> dict[str, JsonValue]:
    """RFC 9457 problem details: `detail` is the feedback, everything for machines is an extension member."""
    result = view.result
    failure, attempt = result.failure, result.attempt
    escalation: dict[str, JsonValue] = {"state": parts.choose_status(result)} if result.escalated else {}
    if result.escalated and view.full:
        escalation |= parts.show_escalation(result)
    return {
        "type": "urn:toolcall-proxy:error:" + failure.code.name.lower().replace("_", "-"),
        "title": failure.code.meaning.rstrip("."),
        "status": HTTPStatus.OK.value,
        "detail": render_feedback(view),
        "code": failure.code.name,
        "error_type": failure.code.error_type.value,
        "category": failure.code.category.value,
        "retryable": failure.may_retry,
        "errors": parts.list_errors(view),
        "attempt": attempt.number if attempt else None,
        "max_attempts": attempt.limit if attempt else None,
        **escalation,
    }


def write_gomind(view: FailureView) -> JsonValue:
    """GoMind's `ToolResponse`, with GoMind's code if it has one; the header `Tool-Error` has ours. `details` stays a
    flat map of strings, and holds the feedback as `feedback`."""
    result = view.result
    failure = result.failure
    return {
        "success": False,
        "error": {
            "code": _choose_gomind_code(view).name,
            "message": parts.write_message(view),
            "category": failure.code.category.value,
            "retryable": failure.may_retry,
            "details": {"hint": parts.choose_hint(view), **parts.make_details(view), "feedback": render_feedback(view)},
        },
    }


# GoMind's "Common Tool Error Codes" for what the proxy itself finds.
_GOMIND_CODES: Final = {
    codes.UNKNOWN_TOOL: codes.RESOURCE_NOT_FOUND, codes.CONTAINER_INVOCATION: codes.INVALID_REQUEST,
    codes.CONTAINER_NOT_EXPANDED: codes.INVALID_REQUEST, codes.TOKEN_REQUIRED: codes.UNAUTHORIZED,
    codes.UPSTREAM_TIMEOUT: codes.REQUEST_TIMEOUT, codes.UPSTREAM_UNAVAILABLE: codes.SERVICE_UNAVAILABLE,
    codes.UPSTREAM_BAD_ANSWER: codes.SERVICE_UNAVAILABLE, codes.CIRCUIT_OPEN: codes.SERVICE_UNAVAILABLE,
    codes.OVERLOADED: codes.SERVICE_UNAVAILABLE, codes.RESTARTING: codes.SERVICE_UNAVAILABLE,
}  # fmt: skip


def _choose_gomind_code(view: FailureView) -> ErrorCode:
    """By its first error a call misses a field, is no JSON, or has a value in the wrong form."""
    code = view.result.failure.code
    if code not in (codes.INVALID_ARGUMENTS, codes.UPSTREAM_REJECTED_ARGUMENTS):
        return _GOMIND_CODES.get(code, code)
    first = view.shown[0].violation.code if view.shown else codes.INVALID_JSON
    if first is codes.INVALID_JSON:
        return codes.INVALID_REQUEST
    return codes.MISSING_REQUIRED_FIELD if first is REQUIRED_MISSING else codes.INVALID_FORMAT


def write_compozy(view: FailureView) -> JsonValue:
    """Compozy's uniform tool error (gap 6). `details` is free there, so it also holds the errors for machines."""
    return {
        "success": False,
        "error": {
            "code": view.result.failure.code.name,
            "message": render_feedback(view),
            "details": {**parts.make_details(view), "errors": parts.list_errors(view)},
        },
        "remediation_hint": parts.choose_hint(view),
    }


def write_hpd(view: FailureView) -> JsonValue:
    """HPD's flat objects, switched on by `error_type`."""
    result = view.result
    failure = result.failure
    if failure.container is not None and failure.code.error_type is ErrorType.CONTAINER:
        found = {"error_type": ErrorType.CONTAINER.value, **parts.make_container_parts(view)}
        if result.repeated:
            found["retry_guidance"] = render_feedback(view)
        function, sent = failure.container.function, failure.container.attempted
        # HPD's guidance leads to a function that was named exactly; one named nearly, or in dot notation, gets a key.
        if function and not (isinstance(sent, dict) and function in sent.values()) and failure.hint:
            found["suggestion"] = parts.show_text(failure.hint, result)
        return found
    if failure.code.error_type in (ErrorType.VALIDATION, ErrorType.ESCALATION):
        return {
            "error_type": failure.code.error_type.value,
            "errors": _hpd_errors(view),
            **({"status": parts.choose_status(result)} if result.escalated else {}),
            **({"history": list(result.history)} if result.escalated and view.full else {}),
            "retry_guidance": render_feedback(view)
            if result.escalated or result.repeated
            else parts.write_retry_guidance(view),
        }
    return {
        "error_type": failure.code.error_type.value,
        "error_message": parts.write_message(view, whole=True),
        "error_code": failure.code.name,
        "retry_guidance": parts.choose_hint(view, whole=True),
    }


def _hpd_errors(view: FailureView) -> list[JsonValue]:
    result = view.result
    if not view.shown:
        message = parts.write_message(view, whole=True)
        code = result.failure.code.name
        return [{"property": "", "attempted_value": None, "error_message": message, "error_code": code}]
    found = [_hpd_error(shown, result) for shown in view.shown]
    if view.full or not (result.escalated or result.repeated):
        return found
    for error in found:  # the guidance is the whole feedback: words are shortened, and a large value is left out
        value = error["attempted_value"]
        if isinstance(value, (dict, list)) and len(parts.write_body(value)) > _BRIEF:
            error["attempted_value"] = "<object>" if isinstance(value, dict) else "<list>"
        error["error_message"] = cut(error["error_message"], _BRIEF)
    return parts.cut_errors(found)


def _hpd_error(shown: Shown, result: ToolResult) -> dict[str, JsonValue]:
    """`property` is the dotted path; a missing field is described in HPD's words, the rest in the proxy's."""
    violation, message = shown.violation, cut(shown.message, SHOWN)
    name = parts.show_text(".".join(map(str, violation.path[:64])), result)
    if violation.code is REQUIRED_MISSING:
        message = f"{name} is required" + (f". {cut(shown.hint, SHOWN)}" if violation.hint else "")
    elif shown.hint:
        message = f"{message.rstrip('.')}. {cut(shown.hint, SHOWN)}"
    return {
        "property": name,
        "attempted_value": sanitise_value(
            violation.value, result.limits, path=violation.path, sensitive=violation.sensitive
        ),
        "error_message": message,
        "error_code": violation.code.hpd,
    }


# --- the table --------------------------------------------------------------------------------------------------------
@value_class
class Format:
    """One wire format: the function that makes its body from a `FailureView`, its version, its media type."""

    make: Callable[[FailureView], JsonValue]
    version: int = 1
    media_type: str = "application/json"

    def build(self, result: ToolResult, detail: Detail = "compact") -> JsonValue:
        """The body of the answer to a failed call."""
        return self.make(FailureView(result, detail))


FORMATS: Final[dict[str, Format]] = {
    "tool_result": Format(write_tool_result, VERSION),
    "gomind": Format(write_gomind, VERSION),
    "hpd": Format(write_hpd, VERSION),
    "acode": Format(lambda view: {**write_openai(view), "is_error": True}),  # nothing but the feedback (FR-026..FR-030)
    "compozy": Format(write_compozy, VERSION),
    "openai": Format(write_openai),
    "anthropic": Format(write_anthropic),
    "mcp": Format(write_mcp, VERSION),
    "problem": Format(write_problem, VERSION, "application/problem+json"),
}

# The format name that leaves the choice to the request's Accept header.
AUTO: Final = "auto"
_DEFAULT: Final = "tool_result"


@lru_cache(maxsize=64)  # clients send the same few
def prefers_problem(accept: str) -> bool:
    """Returns whether an Accept header requests problem details, with no less weight than JSON (RFC 9110, 12.5.1)."""
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((item[2:] for item in parameters if item.startswith("q=")), "1")
        weights[media_type] = float(weight) if re.fullmatch(r"[01](?:\.[0-9]{0,3})?", weight) else 0.0
    wanted = weights.get("application/problem+json", 0.0)
    return wanted > 0 and wanted >= weights.get("application/json", 0.0)


def choose_format(name: str, accept: str) -> str:
    """The format's name behind `name`, which may be `auto`: problem details where the client asks for them, else the
    default. A name that is not a format (the config refuses those) gives the default as well."""
    if name == AUTO:
        return "problem" if prefers_problem(accept[:4096]) else _DEFAULT
    return name if name in FORMATS else _DEFAULT


def render_failure(
    result: ToolResult,
    format: str,  # noqa: A002
    error_status: str,
    accept: str = "",
    detail: Detail = "compact",
) -> HttpReply:
    """The HTTP answer to a failed call.

    `format` is a name in `FORMATS` or `auto`; `error_status` is `category` or `ok` (always 200, because some agent
    frameworks drop the body of a 4xx). `accept` is the request's Accept header, `detail` the extent of the part for
    machines. Never raises.
    """
    name = choose_format(format, accept)
    chosen = FORMATS[name]
    status = 200 if error_status == "ok" else result.failure.http_status
    body = chosen.build(result, detail)
    if name == "problem":
        body["status"] = status  # RFC 9457, 3.1.2: the same as the status line
    headers = parts.make_failure_headers(result, f"{name}/{chosen.version}", chosen.media_type)
    return HttpReply(status, headers, parts.write_body(body))

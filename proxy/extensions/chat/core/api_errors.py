"""The proxy's errors in each API's own format, so that clients raise their usual exceptions.

OpenAI API reference, "Error codes" and the `error` event of Responses; Anthropic API reference, "Errors".
"""

from __future__ import annotations

from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue
from proxy.extensions.chat.core.events import read_event, write_event
from proxy.extensions.chat.core.model_request import Api

# Status -> the type of Anthropic's errors; 5xx are `api_error`.
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}


def make_error(api: Api, status: int, code: str, message: str) -> JsonValue:
    """The body of an answer with this status."""
    if api is Api.MESSAGES:
        kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def write_error_event(api: Api, code: str, message: str, after: bytes) -> bytes:
    """The event that ends a streamed answer, behind the event `after`. Those of Responses are numbered."""
    if api is Api.RESPONSES:
        before = read_event(after)
        number = before.get("sequence_number") if isinstance(before, dict) else None
        error: dict[str, JsonValue] = {"type": "error", "code": code, "message": message, "param": None}
        return write_event(dumps({**error, "sequence_number": number + 1 if isinstance(number, int) else 0}), "error")
    name = "error" if api is Api.MESSAGES else ""
    return write_event(dumps(make_error(api, 502, code, message)), name)

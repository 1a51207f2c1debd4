"""Reads the JSON in server-sent events, and writes it again with changes. The rest of an event keeps every byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.core.json.contentcoding import DATA
from proxy.core.json.jsonspan import replace_value, replace_values
from proxy.core.json.jsontext import TRUSTED, dumps, parse
from proxy.core.model.values import JsonProblem, JsonValue, Pointer
from proxy.extensions.chat.core.model_request import Api

COMMENT: Final = b": keep-alive\n\n"


def read_event(event: bytes) -> JsonValue:
    """The JSON value of an event's data; None if it is not a JSON object."""
    if event.startswith(b"data: {") and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        found = [event[len(b"data: ") : -2]]  # one line, as servers write it
    else:
        found = DATA.findall(event)
    if not found or not found[0].lstrip().startswith(b"{"):
        return None
    value = parse(b"\n".join(found), TRUSTED)
    return None if isinstance(value, JsonProblem) else value


def is_unreadable(event: bytes) -> bool:
    """Returns whether an event that `read_event` cannot read has data, other than the word for the end."""
    return not is_done(event) and any(data.strip() for data in DATA.findall(event))


def is_done(event: bytes) -> bool:
    """Returns whether the data of an event is the word for the end."""
    return [data.strip() for data in DATA.findall(event)] == [b"[DONE]"]


def change_event(event: bytes, changes: Mapping[Pointer, bytes]) -> bytes:
    """An event that `read_event` could read, with these values in its data; one that is not there is added."""
    found = [*DATA.finditer(event)]
    if not found or not changes:
        return event
    data = b" ".join(line[1] for line in found)  # no line ends within a text
    try:
        data = replace_values(data, changes)
    except LookupError:
        for place, value in changes.items():
            data = replace_value(data, place, value)
    return event[: found[0].start(1)] + data + event[found[-1].end(1) :]


def write_event(data: bytes, name: str = "") -> bytes:
    """An event of the proxy's own."""
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (head, data)


# --- the proxy's errors in each API's own format ----------------------------------------------------------------------
# The proxy's errors in each API's own format, so that clients raise their usual exceptions.
#
# OpenAI API reference, "Error codes" and the `error` event of Responses; Anthropic API reference, "Errors".

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

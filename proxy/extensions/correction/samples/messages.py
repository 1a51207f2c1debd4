"""The requests that a sample tool reads, and the answers that it writes.

A JSON body is read into a typed request, as strictly as Go's encoding/json and with its messages. A service written in
Go answers `"48.85"` for a float64 with `json: cannot unmarshal string into Go struct field WeatherRequest.lat of type
float64`, and so do these tools. As in Go, unknown keys are ignored, null leaves a field unset, and the first wrong
field ends the reading.

A tool answers with a `SampleAnswer`, or with a `SampleError` that becomes one. The envelope is GoMind's ToolResponse
(Intelligent Error Handling, part 1), so the proxy's tests read real answers of that kind.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from proxy.core.model.value_class import value_class


@value_class
class Field:
    """One field of a request: its Go type (float64, int or string) and whether it must be there."""

    go_type: str
    required: bool = True


_JSON_NAME: Final = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def read_request(name: str, fields: Mapping[str, Field], body: bytes) -> dict[str, Any] | SampleError:
    """The sent fields of the request type `name`, or the error that a Go service would give."""
    try:
        sent = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return _refuse_unreadable("unexpected end of JSON input" if not body.strip() else f"invalid JSON: {error}")
    if not isinstance(sent, dict):
        return _refuse_unreadable(f"json: cannot unmarshal {_name_json_type(sent)} into Go value of type main.{name}")
    found: dict[str, Any] = {}
    for key, declared in fields.items():
        value = sent.get(key)
        if value is None:
            continue
        if not _fits(value, declared.go_type):
            seen = f"number {value}" if _name_json_type(value) == "number" else _name_json_type(value)
            return _refuse_unreadable(
                f"json: cannot unmarshal {seen} into Go struct field {name}.{key} of type {declared.go_type}"
            )
        found[key] = value
    missing = [key for key, declared in fields.items() if declared.required and key not in found]
    if missing:
        return SampleError("MISSING_REQUIRED_FIELD", f"{missing[0]} is required", details={"field": missing[0]})
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"invalid character {name[0]!r} looking for beginning of value")


def _name_json_type(value: object) -> str:
    return _JSON_NAME.get(type(value), "null")


def _fits(value: Any, go_type: str) -> bool:
    kind = type(value)  # not isinstance, because True is an int in Python and never a number in Go
    if go_type == "string":
        return kind is str
    if go_type == "int":
        return kind is int and -(2**63) <= value < 2**63
    return kind in (int, float) and abs(value) <= sys.float_info.max


def _refuse_unreadable(reason: str) -> SampleError:
    return SampleError("INVALID_REQUEST", f"Failed to parse request body: {reason}", retryable=False)


# GoMind `HTTPStatusForCategory`.
_STATUS: Final = {"INPUT_ERROR": 400, "NOT_FOUND": 404, "AUTH_ERROR": 401, "RATE_LIMIT": 429, "SERVICE_ERROR": 503}


@value_class
class SampleAnswer:
    """An HTTP answer: status and JSON body."""

    status: int
    body: bytes


@value_class
class SampleError:
    """The error of a tool (GoMind ToolError). `status`, if given, replaces the status of the category."""

    code: str
    message: str
    category: str = "INPUT_ERROR"
    retryable: bool = True
    details: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None


def write_success(data: Mapping[str, Any]) -> SampleAnswer:
    """A 200 with `{"success": true, "data": ...}`."""
    return SampleAnswer(200, _write_json({"success": True, "data": data}))


def write_refusal(fault: SampleError) -> SampleAnswer:
    """A fault as `{"success": false, "error": ...}` with the status of its category."""
    error = {
        "code": fault.code,
        "message": fault.message,
        "category": fault.category,
        "retryable": fault.retryable,
        "details": dict(fault.details),
    }
    return SampleAnswer(fault.status or _STATUS[fault.category], _write_json({"success": False, "error": error}))


def write_plain(data: Mapping[str, Any]) -> SampleAnswer:
    """A 200 whose body is `data` itself."""
    return SampleAnswer(200, _write_json(data))


def _write_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"

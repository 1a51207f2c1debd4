"""A sample tool answers with a `SampleAnswer`, or with a `SampleError` that becomes one. The envelope is GoMind's
ToolResponse (Intelligent Error Handling, part 1), so that the proxy's reading of it is exercised by real answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# GoMind `HTTPStatusForCategory`.
_STATUS: Final = {"INPUT_ERROR": 400, "NOT_FOUND": 404, "AUTH_ERROR": 401, "RATE_LIMIT": 429, "SERVICE_ERROR": 503}


@dataclass(frozen=True, slots=True)
class SampleAnswer:
    """An HTTP answer: status and JSON body."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SampleError:
    """Why a tool could not do what was asked (GoMind ToolError). `status` replaces the category's own where given."""

    code: str
    message: str
    category: str = "INPUT_ERROR"
    retryable: bool = True
    details: Mapping[str, str] = field(default_factory=dict)
    status: int | None = None


def write_success(data: Mapping[str, Any]) -> SampleAnswer:
    """A 200 with `{"success": true, "data": ...}`."""
    return SampleAnswer(200, _json({"success": True, "data": data}))


def write_refusal(fault: SampleError) -> SampleAnswer:
    """A fault as `{"success": false, "error": ...}` with the status of its category."""
    error = {
        "code": fault.code,
        "message": fault.message,
        "category": fault.category,
        "retryable": fault.retryable,
        "details": dict(fault.details),
    }
    return SampleAnswer(fault.status or _STATUS[fault.category], _json({"success": False, "error": error}))


def write_plain(data: Mapping[str, Any]) -> SampleAnswer:
    """A 200 whose body is `data` itself."""
    return SampleAnswer(200, _json(data))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"

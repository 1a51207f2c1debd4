"""Handles an answer of this proxy in an agent host: hand on the tool's result, let the model try again, or stop.

Pure functions without dependencies. The wheel holds this file as `toolcall_proxy.client` as well, so that an agent host
needs nothing else of the package. `read` takes whatever response an HTTP client gives (httpx, requests, aiohttp's after
reading, urllib): anything with a status, headers and a body.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

# The header that says that an answer is the proxy's own, and whose header tells which attempt it was.
_ERROR: Final = "tool-error"
_ATTEMPT: Final = "tool-attempt"
# The codes of failures that a better call, or the same call later, can mend, for formats that do not say so.
_RETRYABLE: Final = frozenset(
    ["INVALID_ARGUMENTS", "CONTAINER_INVOCATION", "UNKNOWN_TOOL", "UPSTREAM_REJECTED_ARGUMENTS", "UPSTREAM_TIMEOUT",
     "UPSTREAM_UNAVAILABLE", "BODY_TOO_LARGE"]
)  # fmt: skip


@dataclass(frozen=True)
class ToolAnswer:
    """The tool's own answer. `value` is its JSON, or its text if it is not JSON."""

    value: Any
    status: int = 200


# The short name for agent hosts.
Answer = ToolAnswer


@dataclass(frozen=True)
class Retry:
    """The call was not delivered, and another one by the model can succeed: `text` is what the model has to read."""

    text: str
    code: str = ""
    attempt: str = ""


@dataclass(frozen=True)
class Blocked:
    """The call was not delivered, and trying again is of no use: `text` is for the model, and for its user."""

    text: str
    code: str = ""


def read(response: Any) -> Answer | Retry | Blocked:
    """Returns what became of a call, from the response to it. Raises nothing for any status."""
    found = getattr(response, "headers", None)
    headers = {} if found is None else {str(name).lower(): str(value) for name, value in found.items()}
    status = getattr(response, "status_code", None)
    status = int(status if status is not None else getattr(response, "status", 200))
    text = _read_text(response)
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if _ERROR not in headers:
        return Answer(value, status)
    code, attempt, message = headers[_ERROR], headers.get(_ATTEMPT, ""), _find_message(value)
    if _may_retry(value, code, attempt):
        return Retry(message, code, attempt)
    return Blocked(message, code)


def _read_text(response: Any) -> str:
    for name in ("content", "body", "text"):
        found = getattr(response, name, None)
        if isinstance(found, bytes):
            return found.decode("utf-8", "replace")
        if isinstance(found, str):
            return found
    return ""


def _find_message(value: Any) -> str:
    """The text for the model, in any of the proxy's formats."""
    if not isinstance(value, dict):
        return str(value)
    content, error = value.get("content"), value.get("error")
    parts = content if isinstance(content, list) else ()
    inner = error if isinstance(error, dict) else {}
    details = inner.get("details")
    # GoMind keeps what is wrong in a flat map.
    if isinstance(details, dict) and details and not content and inner.get("message"):
        return "\n".join([str(inner["message"]), *(f"{name}: {text}" for name, text in details.items())])
    texts = (
        content,
        "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict)),
        value.get("detail"),
        value.get("error_message"),
        inner.get("message"),
        value.get("message"),
    )
    return next((text for text in texts if isinstance(text, str) and text), json.dumps(value))


def _may_retry(value: Any, code: str, attempt: str) -> bool:
    """Returns whether another call can succeed: as the attempt says, else the answer itself, else its code."""
    number, _, limit = attempt.partition("/")
    if number.isdecimal() and limit.isdecimal():
        return int(number) < int(limit)
    inner = value.get("error") if isinstance(value, dict) else None
    retryable = inner.get("retryable") if isinstance(inner, dict) else None
    return retryable if isinstance(retryable, bool) else code in _RETRYABLE

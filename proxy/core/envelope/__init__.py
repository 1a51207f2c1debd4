"""Failure -> the answer a client reads. One failure inside, many wire formats outside (contract section 1).

Each format is a function from `ToolResult` to a JSON value and one line in `FORMATS`; its shape is published as
`schemas/envelopes/<format>.schema.json`, and every answer in the tests is held against it. Formats are versioned
(Acode NFR-020): a change that an existing client could stumble over raises the number in `Tool-Format`.

Files: `formats.py` the formats; `parts.py` what several of them show; `headers.py` the response headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.core.envelope import formats
from proxy.core.envelope.formats import VERSION
from proxy.core.envelope.headers import make_failure_headers, prefers_problem
from proxy.core.envelope.parts import write_body
from proxy.core.envelope.view import Detail, FailureView
from proxy.core.model.value_class import value_class
from proxy.core.model.values import HttpReply, JsonValue, ToolResult

__all__ = ["AUTO", "FORMATS", "Detail", "Format", "choose_format", "render_failure"]


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
    "tool_result": Format(formats.write_tool_result, VERSION),
    "gomind": Format(formats.write_gomind, VERSION),
    "hpd": Format(formats.write_hpd, VERSION),
    "acode": Format(formats.write_acode),
    "compozy": Format(formats.write_compozy, VERSION),
    "openai": Format(formats.write_openai),
    "anthropic": Format(formats.write_anthropic),
    "mcp": Format(formats.write_mcp, VERSION),
    "problem": Format(formats.write_problem, VERSION, "application/problem+json"),
}

# The format name that leaves the choice to the request's Accept header.
AUTO: Final = "auto"
_DEFAULT: Final = "tool_result"


def choose_format(name: str, accept: str) -> str:
    """The format's name behind `name`, which may be `auto`: problem details where the client asks for them, else the
    default. A name that is not a format (the config refuses those) gives the default as well."""
    if name == AUTO:
        return "problem" if prefers_problem(accept) else _DEFAULT
    return name if name in FORMATS else _DEFAULT


def render_failure(
    result: ToolResult,
    format: str,  # noqa: A002
    error_status: str,
    accept: str = "",
    detail: Detail = "compact",
) -> HttpReply:
    """The HTTP answer to a failed call.

    `format` is a name in `FORMATS` or `auto`, `error_status` is `category` or `ok` (always 200, because some agent
    frameworks drop the body of a 4xx), `accept` the request's Accept header, `detail` how much the part for machines
    holds. Never raises.
    """
    name = choose_format(format, accept)
    chosen = FORMATS[name]
    status = 200 if error_status == "ok" else result.failure.http_status
    body = chosen.build(result, detail)
    if name == "problem":
        body["status"] = status  # RFC 9457, 3.1.2: the same as the status line
    headers = make_failure_headers(result, f"{name}/{chosen.version}", chosen.media_type)
    return HttpReply(status, headers, write_body(body))

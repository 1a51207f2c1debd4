"""Failure -> the answer a client reads. One failure inside, many wire formats outside (contract section 1).

Each format is a function from `ToolResult` to a JSON value and one line in `FORMATS`; its shape is published as
`schemas/envelopes/<format>.schema.json`, and every answer in the tests is held against it. Formats are versioned
(Acode NFR-020): a change that an existing client could stumble over raises the number in `Tool-Format`.

Files: `parts.py` what several formats show; `tool_result.py` the default; `seeds.py` gomind, hpd, acode, compozy;
`vendors.py` openai, anthropic, mcp, problem; `headers.py` the response headers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proxy.core.envelope import seeds, vendors
from proxy.core.envelope.headers import failure_headers, prefers_problem
from proxy.core.envelope.parts import written
from proxy.core.envelope.tool_result import tool_result
from proxy.core.model import HttpReply, JsonValue, ToolResult
from proxy.core.telling import Telling

__all__ = ["AUTO", "FORMATS", "Format", "choose", "render"]


@dataclass(frozen=True, slots=True)
class Format:
    """One wire format: how to make its body of what the answer tells, its version, its media type."""

    make: Callable[[Telling], JsonValue]
    version: int = 1
    media_type: str = "application/json"

    def build(self, result: ToolResult) -> JsonValue:
        """The body of the answer to a failed call."""
        return self.make(Telling(result))


FORMATS: Final[dict[str, Format]] = {
    "tool_result": Format(tool_result),
    "gomind": Format(seeds.gomind),
    "hpd": Format(seeds.hpd),
    "acode": Format(seeds.acode),
    "compozy": Format(seeds.compozy),
    "openai": Format(vendors.openai),
    "anthropic": Format(vendors.anthropic),
    "mcp": Format(vendors.mcp),
    "problem": Format(vendors.problem, media_type="application/problem+json"),
}

# The format name that leaves the choice to the request's Accept header.
AUTO: Final = "auto"
_DEFAULT: Final = "tool_result"


def choose(name: str, accept: str) -> str:
    """The format's name behind `name`, which may be `auto`: problem details where the client asks for them, else the
    default. A name that is no format (the config refuses those) gives the default as well."""
    if name == AUTO:
        return "problem" if prefers_problem(accept) else _DEFAULT
    return name if name in FORMATS else _DEFAULT


def render(result: ToolResult, format: str, error_status: str, accept: str = "") -> HttpReply:  # noqa: A002
    """The HTTP answer to a failed call.

    `format` is a name in `FORMATS` or `auto`, `error_status` is `category` or `ok` (always 200, because some agent
    frameworks drop the body of a 4xx), `accept` the request's Accept header. Never raises.
    """
    name = choose(format, accept)
    chosen = FORMATS[name]
    status = 200 if error_status == "ok" else result.failure.http_status
    body = chosen.build(result)
    if name == "problem":
        body["status"] = status  # RFC 9457, 3.1.2: the same as the status line
    headers = failure_headers(result, f"{name}/{chosen.version}", chosen.media_type)
    return HttpReply(status, headers, written(body))

"""`wrap_success`: puts a tool's JSON answer into GoMind's `ToolResponse`, `{"success": true, "data": ...}`.

The answer's own bytes stand between two texts, so every number keeps its digits and every key its place. Warnings about
the call stand behind them, as `warnings`. Answers that stream, that are not one complete JSON text, or that have a
`success` of their own are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.core.envelope import parts
from proxy.core.model.values import FeedbackLimits, UpstreamReply, Violation
from proxy.core.tool_errors.answers import read_json_answer

_BEFORE, _WARNINGS, _AFTER = b'{"success": true, "data": ', b', "warnings": ', b"}"
# Headers about the tool's bytes that no longer hold for ours (RFC 9110 section 8, RFC 9530).
_OF_ITS_BYTES: Final = frozenset(
    ["content-length", "content-encoding", "etag", "accept-ranges", "content-md5", "digest", "content-digest",
     "repr-digest"]
)  # fmt: skip


def wrap_answer(
    reply: UpstreamReply, warnings: Sequence[Violation] = (), limits: FeedbackLimits | None = None
) -> UpstreamReply:
    """The answer in GoMind's envelope, or unchanged where it cannot be wrapped without loss. `limits` say how much of
    the warnings is shown."""
    answer = read_json_answer(reply)
    if answer is None or (isinstance(answer.value, dict) and isinstance(answer.value.get("success"), bool)):
        return reply
    headers = tuple((name, value) for name, value in reply.headers if name.lower() not in _OF_ITS_BYTES)
    told = _WARNINGS + parts.write_body(parts.list_warnings(warnings, limits or FeedbackLimits())) if warnings else b""
    return UpstreamReply(reply.status, headers, _BEFORE + answer.text + told + _AFTER)

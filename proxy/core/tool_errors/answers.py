"""A tool's successful answers: reads them as JSON, checks whether they keep the tool's `response_schema`, wraps them.

Only whole, successful JSON answers are read, not errors, streams, other media types and undecodable bodies. An answer
is never repaired. `wrap_success` puts its bytes as they are into GoMind's `ToolResponse`,
`{"success": true, "data": ...}`, with warnings about the call behind them, unless it has a `success`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.core.contract.policy import AnswerPolicy
from proxy.core.envelope import parts
from proxy.core.explain.explain import list_violations
from proxy.core.json.contentcoding import Undecodable, decode, is_coded
from proxy.core.json.jsontext import parse
from proxy.core.model.values import FeedbackLimits, JsonProblem, JsonValue, UpstreamReply, Violation

# Other successful answers have no body, or only a part of one (RFC 9110 section 15.3).
_WHOLE: Final = frozenset({200, 201, 202, 203})
# The most bytes that a coded answer may decode to.
_LONGEST: Final = 16 * 1024 * 1024
_BEFORE, _WARNINGS, _AFTER = b'{"success": true, "data": ', b', "warnings": ', b"}"


def read_json_answer(reply: UpstreamReply) -> tuple[bytes, JsonValue] | None:
    """The JSON of a whole, successful answer: its text without content coding, and its value; None without one."""
    fields = {name.lower(): value for name, value in reversed(reply.headers)}
    media_type = fields.get("content-type", "").split(";")[0].strip().lower()
    is_json = media_type == "application/json" or media_type.endswith("+json")
    if reply.status not in _WHOLE or not isinstance(reply.body, bytes) or not is_json:
        return None
    coding = fields.get("content-encoding", "")
    text = decode(reply.body, coding, _LONGEST) if is_coded(coding) else reply.body
    if isinstance(text, Undecodable):
        return None
    value = parse(text)
    return None if isinstance(value, JsonProblem) else (text, value)


def find_broken_answer(reply: UpstreamReply, policy: AnswerPolicy) -> tuple[Violation, ...] | None:
    """The violations of an answer, () for a correct one; None for an answer that is not judged."""
    found = read_json_answer(reply)
    if found is None:
        return None
    _, value = found
    return () if policy.check.accepts(value) else list_violations(policy.check, value, ())


def wrap_answer(
    reply: UpstreamReply, warnings: Sequence[Violation] = (), limits: FeedbackLimits | None = None
) -> UpstreamReply:
    """The answer in GoMind's envelope, or unchanged if it cannot be wrapped without loss. `limits` bound warnings."""
    found = read_json_answer(reply)
    if found is None or (isinstance(found[1], dict) and isinstance(found[1].get("success"), bool)):
        return reply
    text = _BEFORE + found[0]
    if warnings:
        text += _WARNINGS + parts.write_body(parts.list_warnings(warnings, limits or FeedbackLimits()))
    return reply.with_body(text + _AFTER)

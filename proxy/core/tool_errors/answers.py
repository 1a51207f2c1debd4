"""A tool's successful answers: reads them as JSON, checks whether they keep the tool's `response_schema`, wraps them.

Only whole, successful JSON answers are read, not errors, streams, other media types and undecodable bodies. An answer
is never repaired. `wrap_success` puts its bytes as they are into GoMind's `ToolResponse`,
`{"success": true, "data": ...}`, with warnings about the call behind them, unless it has a `success` of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.core.contract.policy import AnswerPolicy
from proxy.core.envelope import parts
from proxy.core.envelope.view import show_path
from proxy.core.explain.explain import list_violations
from proxy.core.json.contentcoding import Undecodable, decode, is_coded
from proxy.core.json.jsontext import parse
from proxy.core.model import codes
from proxy.core.model.values import Failure, FeedbackLimits, JsonProblem, JsonValue, UpstreamReply, Violation

# Other successful answers have no body, or only a part of one (RFC 9110 section 15.3).
_WHOLE: Final = frozenset({200, 201, 202, 203})
# The most bytes that a coded answer may decode to.
_LONGEST: Final = 16 * 1024 * 1024
# The most places of a wrong answer that are named.
_NAMED: Final = 5
_BEFORE, _WARNINGS, _AFTER = b'{"success": true, "data": ', b', "warnings": ', b"}"
# Headers about the tool's bytes that no longer hold for ours (RFC 9110 section 8, RFC 9530).
OF_ITS_BYTES: Final = frozenset(
    ["content-length", "content-encoding", "etag", "accept-ranges", "content-md5", "digest", "content-digest",
     "repr-digest"]
)  # fmt: skip


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


def make_unfit_failure(broken: tuple[Violation, ...]) -> Failure:
    """The failure for an answer that was not handed on: codes and places, no part of the answer itself."""
    named = [f"{each.code.name} {show_path(each.path) or 'the whole answer'}" for each in broken[:_NAMED]]
    more = [f"+{len(broken) - _NAMED} more"] if len(broken) > _NAMED else []
    details = {"answer_errors": ", ".join(named + more), "executed": "yes"}
    return Failure(codes.UPSTREAM_UNFIT_ANSWER, codes.UPSTREAM_UNFIT_ANSWER.meaning, details=details)


def wrap_answer(
    reply: UpstreamReply, warnings: Sequence[Violation] = (), limits: FeedbackLimits | None = None
) -> UpstreamReply:
    """The answer in GoMind's envelope, or unchanged where it cannot be wrapped without loss; `limits` are for the
    warnings."""
    found = read_json_answer(reply)
    if found is None or (isinstance(found[1], dict) and isinstance(found[1].get("success"), bool)):
        return reply
    headers = tuple((name, value) for name, value in reply.headers if name.lower() not in OF_ITS_BYTES)
    text = _BEFORE + found[0]
    if warnings:
        text += _WARNINGS + parts.write_body(parts.list_warnings(warnings, limits or FeedbackLimits()))
    return UpstreamReply(reply.status, headers, text + _AFTER)

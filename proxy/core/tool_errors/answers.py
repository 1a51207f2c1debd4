"""A tool's successful answers: reads them as JSON, checks whether they keep the tool's `response_schema`, wraps them.

Only whole, successful JSON answers are read; errors, streams (server-sent events, long bodies), other media types and
undecodable bodies are not judged. An answer is never changed or repaired.

`wrap_success` puts an answer into GoMind's `ToolResponse`, `{"success": true, "data": ...}`. The answer's own bytes
stand between two texts, so every number keeps its digits and every key its place. Warnings about the call stand behind
them, as `warnings`. Answers that cannot be read, or that have a `success` of their own, are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

from proxy.core.contract.policy import AnswerPolicy
from proxy.core.envelope import parts
from proxy.core.envelope.view import show_path
from proxy.core.explain.explain import list_violations
from proxy.core.json.contentcoding import Undecodable, decode, is_coded
from proxy.core.json.jsontext import parse
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Failure, FeedbackLimits, JsonProblem, JsonValue, UpstreamReply, Violation

# Other successful answers have no body, or only a part of one (RFC 9110 section 15.3).
_WHOLE: Final = frozenset({200, 201, 202, 203})
# The most bytes that a coded answer may decode to.
_LONGEST: Final = 16 * 1024 * 1024
# The most places of a wrong answer that are named.
_NAMED: Final = 5
_BEFORE, _WARNINGS, _AFTER = b'{"success": true, "data": ', b', "warnings": ', b"}"
# Headers about the tool's bytes that no longer hold for ours (RFC 9110 section 8, RFC 9530).
_OF_ITS_BYTES: Final = frozenset(
    ["content-length", "content-encoding", "etag", "accept-ranges", "content-md5", "digest", "content-digest",
     "repr-digest"]
)  # fmt: skip


@value_class
class JsonAnswer:
    """A whole JSON answer: its text without content coding, and its value."""

    text: bytes = field(repr=False)
    value: JsonValue = field(repr=False)


def read_json_answer(reply: UpstreamReply) -> JsonAnswer | None:
    """The JSON of a successful answer, or None without one."""
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
    return None if isinstance(value, JsonProblem) else JsonAnswer(text, value)


def find_broken_answer(reply: UpstreamReply, policy: AnswerPolicy) -> tuple[Violation, ...] | None:
    """The violations of an answer, () for a correct one; None for an answer that is not judged."""
    found = read_json_answer(reply)
    if found is None:
        return None
    return () if policy.check.accepts(found.value) else list_violations(policy.check, found.value, ())


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
    answer = read_json_answer(reply)
    if answer is None or (isinstance(answer.value, dict) and isinstance(answer.value.get("success"), bool)):
        return reply
    headers = tuple((name, value) for name, value in reply.headers if name.lower() not in _OF_ITS_BYTES)
    listed = (
        _WARNINGS + parts.write_body(parts.list_warnings(warnings, limits or FeedbackLimits())) if warnings else b""
    )
    return UpstreamReply(reply.status, headers, _BEFORE + answer.text + listed + _AFTER)

"""Reads a tool's answer as JSON, and checks whether it keeps the tool's `response_schema`.

Only whole, successful JSON answers are read; errors, streams (server-sent events, long bodies), other media types and
undecodable bodies are not judged. An answer is never changed or repaired.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from proxy.core.contract.policy import AnswerPolicy
from proxy.core.envelope.view import show_path
from proxy.core.explain.explain import list_violations
from proxy.core.json.contentcoding import Undecodable, decode, is_coded
from proxy.core.json.jsontext import parse
from proxy.core.model import codes
from proxy.core.model.values import Failure, JsonProblem, JsonValue, UpstreamReply, Violation

# Other successful answers have no body, or only a part of one (RFC 9110 section 15.3).
_WHOLE: Final = frozenset({200, 201, 202, 203})
# The most bytes that a coded answer may decode to.
_LONGEST: Final = 16 * 1024 * 1024
# The most places of a wrong answer that are named.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """A whole JSON answer: its text without content coding, and its value."""

    text: bytes = field(repr=False)
    value: JsonValue = field(repr=False)


def read_json_answer(reply: UpstreamReply) -> JsonAnswer | None:
    """The JSON of a successful answer, or None without one."""
    if reply.status not in _WHOLE or not isinstance(reply.body, bytes) or not _is_json(reply):
        return None
    coding = next((value for name, value in reply.headers if name.lower() == "content-encoding"), "")
    text = decode(reply.body, coding, _LONGEST) if is_coded(coding) else reply.body
    if isinstance(text, Undecodable):
        return None
    value = parse(text)
    return None if isinstance(value, JsonProblem) else JsonAnswer(text, value)


def _is_json(reply: UpstreamReply) -> bool:
    typed = next((value for name, value in reply.headers if name.lower() == "content-type"), "")
    media_type = typed.split(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


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

"""What a tool answered, as JSON, and whether that is what it may answer (`response_schema`).

Only whole, successful JSON answers are read: errors, streams (server-sent events, long bodies), other media types and
what cannot be decoded are nobody's business here. Nothing of an answer is ever changed or repaired.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from proxy.core import codes
from proxy.core.contentcoding import Undecodable, decode, is_coded
from proxy.core.explain import violations
from proxy.core.jsontext import parse
from proxy.core.model import Failure, JsonProblem, JsonValue, UpstreamReply, Violation
from proxy.core.policy import AnswerPolicy
from proxy.core.telling import shown_path

# Other successes have no body, or a part of one (RFC 9110 section 15.3).
_WHOLE: Final = frozenset({200, 201, 202, 203})
# The most that a coded answer may hold.
_LONGEST: Final = 16 * 1024 * 1024
# How many places of a wrong answer are named.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """A whole JSON answer: its text without content coding, and what it means."""

    text: bytes = field(repr=False)
    value: JsonValue = field(repr=False)


def json_answer(reply: UpstreamReply) -> JsonAnswer | None:
    """The JSON of a successful answer, None where it is none."""
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


def broken_answer(reply: UpstreamReply, policy: AnswerPolicy) -> tuple[Violation, ...] | None:
    """What an answer breaks, () where it is as it should be; None where there is nothing to judge."""
    found = json_answer(reply)
    if found is None:
        return None
    return () if policy.check.accepts(found.value) else violations(policy.check, found.value, ())


def unfit(broken: tuple[Violation, ...]) -> Failure:
    """Why an answer was not handed on: codes and places, nothing of the answer itself."""
    named = [f"{each.code.name} {shown_path(each.path) or 'the whole answer'}" for each in broken[:_NAMED]]
    more = [f"+{len(broken) - _NAMED} more"] if len(broken) > _NAMED else []
    details = {"answer_errors": ", ".join(named + more), "executed": "yes"}
    return Failure(codes.UPSTREAM_UNFIT_ANSWER, codes.UPSTREAM_UNFIT_ANSWER.meaning, details=details)

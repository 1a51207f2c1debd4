"""Whether a tool's answer is what the tool may answer. Where nothing is said about that, nothing is looked at."""

from __future__ import annotations

from proxy.core.answers import broken_answer, unfit
from proxy.core.model import UpstreamReply
from proxy.core.policy import AnswerPolicy
from proxy.story.case import Case, Setback


def held_back(case: Case, wanted: AnswerPolicy, reply: UpstreamReply) -> Setback | None:
    """Why a successful answer is not handed on; None where it is. The model is not to blame, so it costs no attempt."""
    broken = broken_answer(reply, wanted)
    case.record.answer = "unread" if broken is None else "broken" if broken else "passed"
    case.record.answer_violations = broken or ()
    if not broken or not wanted.enforce or case.report_only:
        return None
    case.record.answer = "refused"
    return Setback(unfit(broken), "tool_error")

"""Notes the calls of an answer in records: the first in the record of the request, each further one in its own."""

from __future__ import annotations

from dataclasses import replace

from proxy.core.contract.policy import Mode
from proxy.core.display.preview import clean_text
from proxy.extensions.chat.core.model_request import ModelRequest
from proxy.extensions.chat.server.asking_again import FinalAnswer
from proxy.extensions.chat.server.call_judge import JudgedCall
from proxy.interfaces import CallRecord
from proxy.server.listed_request import ListedRequest


def note_calls(listed: ListedRequest, asked: ModelRequest, found: FinalAnswer, now: float) -> None:
    """Notes the calls of the answer that the client reads. The request's own record is told at its end, the others at
    once; `now` in seconds on the monotonic clock."""
    notes = {"gen_ai.request.model": clean_text(asked.model, 60)}
    if found.attempts > 1:
        notes |= {"chat.attempts": str(found.attempts), "chat.tokens_again": str(found.tokens_again)}
    listed.record.notes = {**listed.record.notes, **notes}
    blank = replace(listed.record, stages={}, response_bytes=0, ended=now)
    for position, each in enumerate(found.answer.calls):
        record = replace(blank) if position else listed.record
        _fill_record(record, each)
        if position:
            listed.tell(record)


def _fill_record(record: CallRecord, judged: JudgedCall) -> None:
    record.tool, record.call_id, record.call = judged.tool, judged.call.call_id, judged.call
    record.conversation_rung = judged.call.conversation.rung
    record.policy, record.checked, record.repairs = judged.policy, judged.checked, judged.repairs
    record.schema_id = "" if judged.policy is None else judged.policy.schema_id
    if judged.failure is not None:  # it goes on as it is: what is wrong is told as on a route that only reports
        record.mode, record.outcome, record.would_refuse = Mode.REPORT, "delivered", True
        record.code, record.violations = judged.failure.code.name, judged.failure.violations
    elif judged.checked is not None:
        record.outcome = "repaired" if judged.repairs else "delivered"
        record.violations = judged.checked.warnings

"""Notes the calls of an answer in records: the first in the record of the request, each further one in its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from proxy.core.contract.policy import Mode
from proxy.core.display.preview import clean_text
from proxy.core.model.values import Attempt
from proxy.extensions.chat.config.model_section import ModelSettings
from proxy.extensions.chat.core.model_request import ModelRequest
from proxy.extensions.chat.core.next_question import REPEAT
from proxy.extensions.chat.server.asking_again import FinalAnswer, Spending, explain_call
from proxy.extensions.chat.server.call_judge import JudgedCall
from proxy.interfaces import CallRecord, ReplacedAnswer
from proxy.server.listed_routes import ListedRequest

# The most calls that are kept of a replaced answer.
_MOST_CALLS: Final = 20


def note_calls(
    listed: ListedRequest, request: ModelRequest, found: FinalAnswer, now: float, settings: ModelSettings
) -> None:
    """Notes the calls of the client's answer, and in the request's own record those of the answers before it. That
    record is reported at the end of the request, the others at once; `now` in seconds on the monotonic clock. Of an
    answer that mode `refuse` holds back, only the wrong calls are noted."""
    notes = {"gen_ai.request.model": clean_text(request.model, 60)}
    if found.spent.answers > 1 or found.spent.lost:
        notes |= {"chat.attempts": str(found.spent.answers), "chat.tokens_again": str(found.spent.reported)}
    listed.record.notes = {**listed.record.notes, **notes}
    blank = replace(listed.record, stages={}, response_bytes=0, ended=now)
    listed.record.replaced = _list_replaced(blank, found.spent, settings.retries)
    is_refused = settings.mode == "refuse" and found.answer.failed is not None
    calls = [each for each in found.answer.calls if each.failure is not None or not is_refused]
    for position, each in enumerate(calls):
        record = replace(blank) if position else listed.record
        _fill_record(record, each, is_refused=is_refused)
        if position:
            listed.tell(record)


def _list_replaced(blank: CallRecord, spent: Spending, retries: int) -> list[ReplacedAnswer]:
    """The answers before the last one; the tokens of each are those of the answer behind it."""
    made = []
    for at, (answer, next_) in enumerate(pairwise(spent.counted), 1):
        records = []
        for each in answer.calls[:_MOST_CALLS]:
            records.append(record := replace(blank))
            _fill_record(record, each, is_refused=True)
            if each.failure is not None:
                record.result = explain_call(each, Attempt(at, retries + 1))
        made.append(ReplacedAnswer(records, REPEAT, next_.tokens))
    return made


def _fill_record(record: CallRecord, judged: JudgedCall, *, is_refused: bool) -> None:
    record.tool, record.call_id, record.call = judged.tool, judged.call.call_id, judged.call
    record.conversation_rung = judged.call.conversation.rung
    record.policy, record.checked, record.repairs = judged.policy, judged.checked, judged.repairs
    record.schema_id = "" if judged.policy is None else judged.policy.schema_id
    if judged.failure is not None:
        record.code, record.violations = judged.failure.code.name, judged.failure.violations
        record.outcome = "refused"
    if judged.failure is not None and not is_refused:  # it goes on, like a call on a report-only route
        record.mode, record.outcome, record.would_refuse = Mode.REPORT, "delivered", True
    elif judged.checked is not None:
        record.outcome = "repaired" if judged.repairs else "delivered"
        record.violations = judged.checked.warnings

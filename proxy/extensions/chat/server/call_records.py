"""Notes the calls of an answer in records: the first in the record of the request, each further one in its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from proxy.call.context import (
    add_notes,
    record_call,
    record_delivery,
    record_failure,
    record_forward,
    record_replaced,
)
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
    add_notes(listed.record, notes)
    blank = replace(listed.record, stages={}, response_bytes=0, ended=now)
    record_replaced(listed.record, _list_replaced(blank, found.spent, settings.retries))
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
            result = None if each.failure is None else explain_call(each, Attempt(at, retries + 1))
            records.append(record := replace(blank, result=result))
            _fill_record(record, each, is_refused=True)
        made.append(ReplacedAnswer(records, REPEAT, next_.tokens))
    return made


def _fill_record(record: CallRecord, judged: JudgedCall, *, is_refused: bool) -> None:
    """Records a call and its verdict. A wrong call that is not refused goes on, like one on a report-only route."""
    failure, repairs = judged.failure, judged.repairs
    goes_on = failure is not None and not is_refused
    record_call(record, judged.call, judged.policy, repairs, Mode.REPORT if goes_on else Mode.ENFORCE)
    if failure is not None and is_refused:
        record_failure(record, failure, "refused")
    elif goes_on or judged.checked is not None:  # else the schema of its tool cannot be used
        record_forward(record, judged.checked, failure, repairs)
        record_delivery(record, "repaired" if repairs else "delivered")

"""Records corrections: span events and questions in the call's record, whole prompts and answers in a file for
inspection.

`CorrectionRecorder` writes the seeds' span events and a `CorrectionQuestion` for each question. They hold no value:

    layer 3   validation_feedback_started -> validation_feedback_success | validation_feedback_failed
    layer 4   contextual_re_resolution.start -> contextual_re_resolution.complete

The seeds also give the model's analysis as an attribute. It quotes arguments ("100 x 468.285"), so it goes only to the
debug log.

`DebugLog` (GoMind's debug store) writes whole prompts and answers as JSON Lines, readable only by the owner (0600) and
bounded: once the file reaches half of `max_size` it replaces `<file>.1`. Entries hold no secrets, but they hold
argument values and tools' answers, so the log is off unless the config names a file. A file that cannot be written
affects no call.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from proxy.call.context import record_questions
from proxy.call_record import CallRecord, Event
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Failure, JsonValue, ToolCall
from proxy.extensions.correction.core.settings import DebugStore
from proxy.extensions.correction.core.words import CorrectionQuestion, Layer, QuestionOutcome
from proxy.extensions.correction.rules import find_status, is_type_error
from proxy.extensions.correction.verdicts import ModelVerdict
from proxy.file_writing import move_file, open_to_append

# The outcome of a question until its proposed call has run.
_PROPOSED: Final = "proposed"


class CorrectionRecorder:
    """Writes into one call's record. `now` is the monotonic clock of the record, in seconds."""

    def __init__(self, record: CallRecord, now: Callable[[], float]) -> None:
        self._record = record
        self._now = now
        self._questions: list[CorrectionQuestion] = []

    def count(self, layer: Layer) -> int:
        """Returns how many questions of a layer were asked about this call."""
        return sum(question.layer is layer for question in self._questions)

    def note_start(self, layer: Layer, call: ToolCall, failure: Failure, independent: bool) -> None:
        """Records the beginning of a question."""
        if layer is Layer.VALIDATION_FEEDBACK:
            self._add_event(
                "validation_feedback_started", layer, call, 1,
                type_error=is_type_error(failure), reason=failure.code.name,
            )  # fmt: skip
        else:
            self._add_event(
                "contextual_re_resolution.start", layer, call, 1,
                http_status=find_status(failure), independent_step=independent,
            )  # fmt: skip

    def note_answer(
        self, call: ToolCall, question: CorrectionQuestion, verdict: ModelVerdict | None, parameters: int
    ) -> None:
        """Records the answer to a question, or its absence. `parameters`: how many would change."""
        self.note_skipped(question)
        proposed = question.outcome is QuestionOutcome.DELIVERED
        if question.layer is Layer.SEMANTIC_RETRY:
            self._add_event(
                "contextual_re_resolution.complete", question.layer, call,
                should_retry=verdict is not None and verdict.should_retry,
                is_transient_error=verdict is not None and verdict.transient,
                parameter_count=parameters, independent_step=question.independent,
                reason=_PROPOSED if proposed else question.outcome.value,
            )  # fmt: skip
        elif not proposed:
            self._note_failure(call, question.outcome)

    def note_skipped(self, question: CorrectionQuestion) -> None:
        """Records a question that could not be asked."""
        self._questions.append(question)
        record_questions(self._record, self._questions)

    def note_result(self, call: ToolCall, delivered: bool) -> None:
        """Records the outcome of the last question: its proposed call has run."""
        last = self._questions[-1]
        if not delivered:
            self._questions[-1] = replace(last, outcome=QuestionOutcome.REFUSED)
            record_questions(self._record, self._questions)
        if last.layer is Layer.VALIDATION_FEEDBACK:
            if delivered:
                self._add_event("validation_feedback_success", last.layer, call)
            else:
                self._note_failure(call, QuestionOutcome.REFUSED)

    def _note_failure(self, call: ToolCall, why: QuestionOutcome) -> None:
        self._add_event("validation_feedback_failed", Layer.VALIDATION_FEEDBACK, call, reason=why.value)

    def _add_event(self, name: str, layer: Layer, call: ToolCall, ahead: int = 0, **more: str | int | bool) -> None:
        number = self.count(layer) + ahead
        attributes = {"capability": call.tool, "step_id": call.call_id, "retry_number": number, **more}
        record_questions(self._record, self._questions, Event(name, self._now(), attributes))


class DebugLog:
    """Writes entries to a file, one after the other. `report` receives the error of a failed write."""

    def __init__(self, store: DebugStore, report: Callable[[OSError], None]) -> None:
        self._path = Path(store.file)
        self._half = store.max_size // 2
        self._report = report
        self._lock = asyncio.Lock()

    async def add(self, entry: dict[str, JsonValue]) -> None:
        """Writes one entry. An entry longer than half of `max_size` is replaced by a note of its length."""
        line = dumps(entry) + b"\n"
        if len(line) > self._half:
            line = dumps({"at": entry.get("at"), "left_out_bytes": len(line)}) + b"\n"
        async with self._lock:
            try:
                await asyncio.to_thread(self._append, line)
            except OSError as error:
                self._report(error)

    def _append(self, line: bytes) -> None:
        handle = open_to_append(self._path)
        try:
            full = os.fstat(handle).st_size + len(line) > self._half
            if not full:
                os.write(handle, line)
        finally:
            os.close(handle)
        if full:
            move_file(self._path, self._path.with_name(f"{self._path.name}.1"))
            self._append(line)

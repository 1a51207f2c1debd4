"""How a correction is written down: the seeds' span events, and a `CorrectionQuestion` for each one asked. Never a
value.

    layer 3   validation_feedback_started -> validation_feedback_success | validation_feedback_failed
    layer 4   contextual_re_resolution.start -> contextual_re_resolution.complete

The seeds also give the model's analysis as an attribute. It quotes arguments ("100 x 468.285"), so it is in the debug
store alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from proxy.core.contract.correction import Asked, Layer
from proxy.core.model.values import Failure, ToolCall
from proxy.correction.rules import find_status, is_type_error
from proxy.correction.verdicts import ModelVerdict
from proxy.interfaces import CallRecord, CorrectionQuestion, Event

# What came of a question for now, while the proposed call is yet to be tried.
_PROPOSED: Final = "proposed"


class Marks:
    """Writes into one call's record. `now` is the monotonic clock of the record, in seconds."""

    def __init__(self, record: CallRecord, now: Callable[[], float]) -> None:
        self._record = record
        self._now = now

    def count(self, layer: Layer) -> int:
        """How many questions of a layer were asked about this call."""
        return sum(question.layer is layer for question in self._record.questions)

    def started(self, layer: Layer, call: ToolCall, failure: Failure, independent: bool) -> None:
        """A question begins."""
        if layer is Layer.VALIDATION_FEEDBACK:
            self._event(
                "validation_feedback_started", layer, call, 1,
                type_error=is_type_error(failure), reason=failure.code.name,
            )  # fmt: skip
        else:
            self._event(
                "contextual_re_resolution.start", layer, call, 1,
                http_status=find_status(failure), independent_step=independent,
            )  # fmt: skip

    def answered(
        self, call: ToolCall, question: CorrectionQuestion, verdict: ModelVerdict | None, parameters: int
    ) -> None:
        """A question has its answer, or will have none. `parameters`: how many would change."""
        self._record.questions = (*self._record.questions, question)
        proposed = question.outcome is Asked.DELIVERED
        if question.layer is Layer.SEMANTIC_RETRY:
            self._event(
                "contextual_re_resolution.complete", question.layer, call,
                should_retry=verdict is not None and verdict.should_retry,
                is_transient_error=verdict is not None and verdict.transient,
                parameter_count=parameters, independent_step=question.independent,
                reason=_PROPOSED if proposed else question.outcome.value,
            )  # fmt: skip
        elif not proposed:
            self._failed(call, question.outcome)

    def skipped(self, question: CorrectionQuestion) -> None:
        """A question that could not be asked."""
        self._record.questions = (*self._record.questions, question)

    def tried(self, call: ToolCall, delivered: bool) -> None:
        """The proposed call has been tried: the last question's outcome is known now."""
        last = self._record.questions[-1]
        if not delivered:
            self._record.questions = (*self._record.questions[:-1], replace(last, outcome=Asked.REFUSED))
        if last.layer is Layer.VALIDATION_FEEDBACK:
            if delivered:
                self._event("validation_feedback_success", last.layer, call)
            else:
                self._failed(call, Asked.REFUSED)

    def _failed(self, call: ToolCall, why: Asked) -> None:
        self._event("validation_feedback_failed", Layer.VALIDATION_FEEDBACK, call, reason=why.value)

    def _event(self, name: str, layer: Layer, call: ToolCall, ahead: int = 0, **more: str | int | bool) -> None:
        number = self.count(layer) + ahead
        told = {"capability": call.tool, "step_id": call.call_id, "retry_number": number, **more}
        self._record.events = (*self._record.events, Event(name, self._now(), told))

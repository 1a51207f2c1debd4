"""Whatever was asked about a call, the labels of its metrics are those of the catalogue."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from proxy.call_record import CallRecord, Event
from proxy.extensions.correction.core.words import BudgetKind, CorrectionQuestion, Layer, QuestionOutcome
from proxy.extensions.correction.correctors import EVENTS, METRICS, CorrectionMetrics
from proxy.server.setup.services import SystemClock, SystemPacing
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics, Served
from proxy.telemetry.metrics_page import write_page
from tests.generated import examples

COUNTS = st.sampled_from([0, 7])
QUESTIONS = st.builds(
    CorrectionQuestion, st.sampled_from(list(Layer)), st.sampled_from(list(QuestionOutcome)),
    st.sampled_from([0.0, 0.5]), st.booleans(), st.none() | st.sampled_from(list(BudgetKind)), COUNTS, COUNTS,
)  # fmt: skip
CALLS = st.fixed_dictionaries(
    {
        "tool": st.sampled_from(["weather", "invented"]),
        "call_id": st.sampled_from(["", "c"]),
        "questions": st.lists(QUESTIONS),
        "events": st.lists(st.builds(Event, st.text(max_size=12) | st.sampled_from(EVENTS), st.just(0.0))),
    }
)


@settings(max_examples=examples(50))
@given(st.lists(CALLS, max_size=4))
def test_no_question_or_event_has_a_label_that_is_not_in_the_catalogue(calls: list[dict[str, Any]]) -> None:
    metrics = Metrics([Served("/weather", "weather")], "digest")
    log = Log(io.StringIO(), "json", "info", lambda: 0.0)
    observer = CorrectionMetrics(SystemClock(), SystemPacing(), metrics, log)
    log.close()
    for call in calls:
        record = CallRecord("r", "/weather")
        for name, value in call.items():
            setattr(record, name, value)
        observer.finished(record)
    page = write_page(metrics)[1].decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]

    counted = [call for call in calls if call["call_id"]]
    for row in METRICS:
        own = [sample for sample in samples if sample.name.startswith(row.name)]
        wrong = [
            (label, value)
            for sample in own
            for label, value in sample.labels.items()
            if label != "le" and row.label(label).values and value not in row.label(label).values
        ]
        assert [] == wrong
        assert {sample.labels["tool"] for sample in own if "tool" in sample.labels} <= {"weather", "_other"}
    asked = sum(sample.value for sample in samples if sample.name == "toolproxy_correction_questions_total")
    assert sum(len(call["questions"]) for call in counted) == asked

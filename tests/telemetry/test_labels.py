"""The labels of any request are those of the catalogue: no client adds a new series."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from proxy.call_record import CallRecord, Event
from proxy.core.contract.container import EVENTS
from proxy.core.model.codes import VIOLATION_CODES
from proxy.core.model.values import Repair, Violation
from proxy.core.rules.rules import RULES
from proxy.core.tool_errors.backoff import Reason, ResendDenied
from proxy.telemetry.metric_table import METRICS, OTHER
from proxy.telemetry.metrics import Metrics, Served
from proxy.telemetry.metrics_page import write_page
from tests.generated import examples
from tests.telemetry.all_metrics import list_metrics

NAMES = st.text(max_size=12)
OUTCOMES = st.sampled_from(METRICS["toolproxy_requests_total"].label("outcome").values)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "method": NAMES,
    "tool": st.one_of(st.just("weather"), NAMES),
    "call_id": NAMES,
    "mode": st.sampled_from(["enforce", "report"]),
    "schema_id": st.sampled_from(["", "s"]),
    "outcome": OUTCOMES,
    "code": st.one_of(NAMES, st.sampled_from(["CALL_CAP_EXCEEDED", "INVALID_ARGUMENTS"])),
    "status": st.sampled_from([200, 400, 503]),
    "repairs": st.lists(st.builds(Repair, st.sampled_from(sorted(RULES)), st.just(()))),
    "violations": st.lists(st.builds(Violation, st.sampled_from(list(VIOLATION_CODES.values())), st.just(()), NAMES)),
    "would_refuse": st.booleans(),
    "attempt": st.integers(0, 4),
    "repeated": st.booleans(),
    "escalated": st.booleans(),
    "corrected_after": st.integers(0, 99),
    "container_event": st.sampled_from(["", *EVENTS]),
    "upstream": st.sampled_from(["", "tools"]),
    "upstream_status": st.sampled_from([0, 101, 200, 404, 599]),
    "upstream_error": st.sampled_from(["", "connection_refused"]),
    "resends": st.lists(st.sampled_from(list(Reason))),
    "resend_denied": st.one_of(st.none(), st.sampled_from(list(ResendDenied))),
    "events": st.lists(st.builds(Event, NAMES, st.just(0.0))),
}


@settings(max_examples=examples(50))
@given(st.lists(st.fixed_dictionaries(FIELDS), max_size=4))
def test_no_record_has_a_label_that_is_not_in_the_catalogue(requests: list[dict[str, Any]]) -> None:
    metrics = Metrics([Served("/weather", "weather")], "digest")
    for fields in requests:
        record = CallRecord("r", "/weather")
        for name, value in fields.items():
            setattr(record, name, value)
        metrics.finished(record)
    page, described = write_page(metrics)[1].decode(), list_metrics()

    found = [
        (sample.name, label, value)
        for family in text_string_to_metric_families(page)
        if (metric := described.get(family.name) or described.get(f"{family.name}_total")) is not None
        for sample in family.samples
        for label, value in sample.labels.items()
        if label != "le" and (allowed := metric.label(label).values) and value not in allowed
    ]
    assert [] == found
    tools = {line.split('tool="')[1].split('"')[0] for line in page.splitlines() if 'tool="' in line}
    assert tools <= {"weather", OTHER}

"""The counts of each call, and the page that shows them."""

from __future__ import annotations

from collections import Counter as Counted
from dataclasses import fields, replace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.call_record import CallRecord, HookFailure
from proxy.core.contract.refusals import REFUSED_BY_TOOL
from proxy.core.model.codes import ATTEMPTS_EXHAUSTED, CONSTRAINT, ERROR_CODES, INVALID_ARGUMENTS, Severity
from proxy.core.model.values import Failure, Repair, Rung, ToolCall, ToolResult, Violation
from proxy.core.tool_errors.backoff import Reason
from proxy.telemetry.metric_table import MetricRow
from proxy.telemetry.metrics import KIND_FIELDS, Counter, Histogram, Metrics, Served
from proxy.telemetry.metrics_page import show, write_page


def shown(metric: Counter | Histogram) -> dict[str, float]:
    """The samples of one metric, as a scrape shows them."""
    return {f"{sample.name}{sorted(sample.labels.values())}": sample.value for sample in show(metric).samples}


def test_a_value_belongs_to_the_first_bound_not_below_it() -> None:
    histogram = Histogram(MetricRow("h", "histogram", "Values.", bounds=(1.0, 2.0)))
    for value in (0.0, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)

    assert {
        "h_bucket['1.0']": 2.0,
        "h_bucket['2.0']": 4.0,
        "h_bucket['+Inf']": 5.0,
        "h_count[]": 5.0,
        "h_sum[]": 7.0,
    } == shown(histogram)


def test_the_same_labels_are_the_same_series() -> None:
    counter = Counter(MetricRow("calls_total", "counter", "Calls.", ("tool",)))
    counter.series["a",] += 1
    counter.series["b",] += 3
    counter.series["a",] += 1

    assert {"calls_total['a']": 2.0, "calls_total['b']": 3.0} == shown(counter)


def test_the_names_that_a_config_or_a_server_brings_count_from_then_on() -> None:
    metrics = Metrics([Served("/weather", "weather")], "digest")
    record = CallRecord("r", "/new", tool="new", outcome="delivered")
    metrics.finished(record)
    metrics.learn_tools("/new", ["new"])
    metrics.finished(record)
    metrics.finished(record)
    metrics.note_config([Served("/weather", "weather")], "digest", 0.0)
    metrics.finished(record)

    page = write_page(metrics)[1].decode().splitlines()
    assert [
        'toolproxy_requests_total{outcome="delivered",route="/new",tool="_other"} 2.0',
        'toolproxy_requests_total{outcome="delivered",route="/new",tool="new"} 2.0',
    ] == [line for line in page if line.startswith("toolproxy_requests_total{")]


def test_a_scrape_shows_counters_and_histograms_as_prometheus_wants_them() -> None:
    metrics = Metrics([Served("/weather", "weather")], "digest")
    for seconds in (0.004, 0.006, 400.0):
        record = CallRecord("r", "/weather", "POST", "weather", outcome="delivered", status=200, ended=seconds)
        metrics.finished(record)
    families = {
        family.name: family for family in text_string_to_metric_families(write_page(metrics)[1].decode())
    }  # fmt: skip
    requests, durations = families["toolproxy_requests"], families["http_server_request_duration_seconds"]
    counted = {sample.labels["le"]: sample.value for sample in durations.samples if sample.name.endswith("_bucket")}

    assert ("counter", "histogram") == (requests.type, durations.type)
    assert [({"route": "/weather", "tool": "weather", "outcome": "delivered"}, 3.0)] == [
        (sample.labels, sample.value) for sample in requests.samples
    ]
    assert (1.0, 2.0, 2.0, 3.0) == tuple(counted[bound] for bound in ("0.005", "0.01", "300.0", "+Inf"))
    assert [3.0, 400.01] == [
        sample.value for sample in durations.samples if sample.name.endswith(("_count", "_sum"))
    ]  # fmt: skip


class WatchedRecord(CallRecord):
    """A record that notes which of its fields are read."""

    def __getattribute__(self, name: str) -> Any:
        CallRecord.__getattribute__(self, "read").add(name)
        return CallRecord.__getattribute__(self, name)


@pytest.mark.parametrize("outcome", ["delivered", "refused", "tool_error", "upstream_error", "passthrough"])
def test_counts_together_only_requests_whose_labels_agree(outcome: str) -> None:
    record = WatchedRecord.__new__(WatchedRecord)
    record.read: set[str] = set()  # type: ignore[attr-defined, misc]
    record.__init__(  # type: ignore[misc]
        "id", "/weather", "POST", "weather", "call", outcome=outcome, status=200, upstream="tools", upstream_status=200,
        conversation_rung=Rung.HEADER, container_event="opened", answer="valid", corrected_after=1, attempt=1,
    )  # fmt: skip
    Metrics([Served("/weather", "weather")], "digest").finished(record)

    own = {each.name for each in fields(record)}
    unusual = {
        "code",
        "violations",
        "repairs",
        "resends",
        "hook_failures",
    }  # the kind holds the parts of these that count
    times = {"stages", "upstream_seconds", "ended", "started"}
    assert record.read & own - unusual - times - {"call_id"} <= set(KIND_FIELDS)


def test_counts_each_error_repair_and_failure_of_calls_of_one_kind() -> None:
    record = CallRecord("r", "/weather", "POST", "weather", "call", outcome="refused", code=INVALID_ARGUMENTS.name)
    warned, wrong = Violation(CONSTRAINT, (), "w", severity=Severity.WARNING), Violation(CONSTRAINT, (), "w")
    blocked = Failure(ATTEMPTS_EXHAUSTED, "m", details={"blocked": REFUSED_BY_TOOL})
    different: tuple[dict[str, Any], ...] = (
        {"violations": (wrong,)}, {"violations": (warned, wrong)}, {"repairs": (Repair("enum_case", ()),)},
        {"attempt": 1, "stages": {"decide": 0.1}}, {"attempt": 1}, {"resends": (Reason.UNSENT,), "upstream": "tools"},
        {"hook_failures": (HookFailure("h", "before", "timeout"),)}, {"code": ATTEMPTS_EXHAUSTED.name},
        {"code": ATTEMPTS_EXHAUSTED.name, "result": ToolResult(cast(ToolCall, None), blocked)},
    )  # fmt: skip
    alone: Counted[tuple[str, str]] = Counted()
    metrics = Metrics([Served("/weather", "weather")], "digest")
    for changed in different:
        single = Metrics([Served("/weather", "weather")], "digest")
        for each in (single, metrics, metrics):
            each.finished(replace(record, **changed))
        alone.update(list_counts(single))
    assert {key: 2 * count for key, count in alone.items()} == list_counts(metrics)


def list_counts(metrics: Metrics) -> dict[tuple[str, str], float]:
    shown = [each for each in metrics.list_shown() if isinstance(each, Counter)]
    return {(each.described.name, str(labels)): count for each in shown for labels, count in each.series.items()}


def test_settles_counts_before_a_read() -> None:
    metrics = Metrics([Served("/weather", "weather")], "digest")
    code = next(iter(ERROR_CODES))
    times = CallRecord("r", "/weather", tool="weather", stages={"total": 0.5}, upstream_seconds=0.25, ended=1.0)
    for number in range(600):
        sent = replace(times, outcome="delivered", upstream="tools")
        record = sent if number % 3 else replace(times, outcome="refused", code=code)
        metrics.finished(record)
        if number % 100 == 50:
            assert number + 1 == sum(metrics.settle().requests.series.values())

    assert {
        ("/weather", "weather", "delivered"): 400,
        ("/weather", "weather", "refused"): 200,
    } == metrics.settle().requests.series
    page = write_page(metrics)[1].decode()
    assert 'http_client_request_duration_seconds_sum{error_type="",' in page
    client = next(line for line in page.splitlines() if line.startswith("http_client_request_duration_seconds_sum"))
    assert 100.0 == float(client.split()[-1])
    assert 'toolproxy_overhead_seconds_count{stage="total"} 600.0' in page

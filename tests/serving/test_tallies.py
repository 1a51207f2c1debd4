"""What is counted for each call, and how a scrape shows it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from proxy.interfaces import CallRecord
from proxy.telemetry.metrics import Metrics, Served
from proxy.telemetry.tallies import Count, Family, Spread


def test_a_value_belongs_to_the_first_bound_not_below_it() -> None:
    spread = Spread((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.5):
        spread.observe(value)

    assert ([2, 4, 5], 7.0) == (spread.cumulative(), spread.total)


def test_the_same_labels_are_the_same_series() -> None:
    family = Family("calls", "Calls.", ("tool",), Count)
    family.of("a").inc()
    family.of("a").inc()
    family.of("b").inc()

    assert {("a",): 2.0, ("b",): 1.0} == {labels: count.value for labels, count in family.series.items()}


def test_a_scrape_shows_counters_and_histograms_as_prometheus_wants_them() -> None:
    metrics = Metrics([Served("/weather", "weather")], "digest")
    for seconds in (0.004, 0.006, 400.0):
        record = CallRecord("r", "/weather", "POST", "weather", outcome="delivered", status=200, ended=seconds)
        metrics.finished(record)
    families = {
        family.name: family for family in text_string_to_metric_families(metrics.page()[1].decode())
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

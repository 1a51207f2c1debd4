"""The page of metrics as Prometheus reads it, of one process and of several workers. Uses prometheus_client.

The pages of workers are merged into one, as if one process had counted: counters and histograms are summed. The last
page of an ended worker still counts: otherwise the sum would fall, Prometheus would take that for a restart, and `rate`
would count everything again. Gauges are summed too, except those that show a state, for which the worst worker decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from proxy.telemetry.metrics import Counter, Gauge, Histogram, Metrics

Merge = Callable[[Iterable[float]], float]

# Gauges that are not summed, by sample name.
_STATES: Final[Mapping[str, Merge]] = {
    "toolproxy_config_last_reload_successful": min,
    "toolproxy_config_last_reload_success_timestamp_seconds": min,
    "toolproxy_config_restart_needed": max,
    "toolproxy_draining": max,
    "toolproxy_state_backend_up": min,
    "toolproxy_upstream_breaker_state": max,
    "process_start_time_seconds": min,
    "process_max_fds": min,
}
_INFO: Final = "_info"
_LASTING: Final = frozenset({"counter", "histogram", "summary"})


def write_page(metrics: Metrics) -> tuple[str, bytes]:
    """Content type and text of the page of one process."""
    registry = CollectorRegistry()
    registry.register(_Shown(metrics))
    ProcessCollector(registry=registry)
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def show(metric: Counter | Histogram | Gauge) -> Metric:
    """A metric with its samples, as the library writes it."""
    match metric:
        case Counter():
            return _show_counter(metric)
        case Histogram():
            return _show_histogram(metric)
        case Gauge():
            return _show_gauge(metric)


class _Shown:
    """Implements the library's `Collector`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return map(show, self._metrics.list_shown())


def _show_counter(counter: Counter) -> Metric:
    row = counter.described
    shown = CounterMetricFamily(row.name, row.meaning, labels=row.labels)
    for labels, value in counter.series.items():
        shown.add_metric(labels, value)
    return shown


def _show_histogram(histogram: Histogram) -> Metric:
    row = histogram.described
    shown = HistogramMetricFamily(row.name, row.meaning, labels=row.labels)
    bounds = [*map(floatToGoString, row.bounds), "+Inf"]
    for labels, series in histogram.series.items():
        *counts, total = series
        shown.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
    return shown


def _show_gauge(gauge: Gauge) -> Metric:
    row = gauge.described
    if row.kind == "info":
        info = InfoMetricFamily(row.name.removesuffix("_info"), row.meaning, labels=row.labels)
        for values in gauge.read():
            info.add_metric(values, {})
        return info
    shown = GaugeMetricFamily(row.name, row.meaning, labels=row.labels)
    for values, value in gauge.read().items():
        shown.add_metric(values, value)
    return shown


def merge_pages(living: Iterable[bytes], gone: Iterable[bytes] = ()) -> tuple[str, bytes]:
    """Content type and text of one page for all workers. `living` are the pages of the workers that run, `gone` the
    last pages of those that ended, of which only counters and histograms are used."""
    found = _Merged()
    for text in living:
        found.add(text, lambda _: True)
    for text in gone:
        found.add(text, lambda metric: metric.type in _LASTING and not metric.name.startswith("process_"))
    return CONTENT_TYPE_LATEST, generate_latest(found)


class _Merged:
    """A collector of metrics in order of appearance, with samples by name and labels."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}

    def add(self, text: bytes, wanted: Callable[[Metric], bool]) -> None:
        for metric in text_string_to_metric_families(text.decode()):
            if not wanted(metric):
                continue
            self._metrics.setdefault(metric.name, metric)
            values = self._values.setdefault(metric.name, {})
            for sample in metric.samples:
                values.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)

    def collect(self) -> Iterable[Metric]:
        for name, metric in self._metrics.items():
            whole: Any = Metric(metric.name, metric.documentation, metric.type)
            for (sample, labels), values in self._values[name].items():
                merge: Merge = max if sample.endswith(_INFO) else _STATES.get(sample, sum)
                whole.add_sample(sample, dict(labels), merge(values))
            yield whole

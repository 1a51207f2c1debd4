"""The page of metrics as Prometheus reads it. Uses prometheus_client."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from proxy.telemetry.metrics import Counter, Gauge, Histogram, Metrics


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

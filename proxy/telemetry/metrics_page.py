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


class _Shown:
    """Implements the library's `Collector`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return map(show, self._metrics.list_shown())


def show(metric: Counter | Histogram | Gauge) -> Metric:
    """A metric with its samples, as the library writes it."""
    row = metric.described
    if isinstance(metric, Histogram):
        histogram = HistogramMetricFamily(row.name, row.meaning, labels=row.labels)
        bounds = [*map(floatToGoString, row.bounds), "+Inf"]
        for labels, (*counts, total) in metric.series.items():
            histogram.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        return histogram
    if row.kind == "info":
        info = InfoMetricFamily(row.name.removesuffix("_info"), row.meaning, labels=row.labels)
        for labels in metric.read() if isinstance(metric, Gauge) else ():
            info.add_metric(labels, {})
        return info
    family = CounterMetricFamily if isinstance(metric, Counter) else GaugeMetricFamily
    shown = family(row.name, row.meaning, labels=row.labels)
    for labels, value in (metric.series if isinstance(metric, Counter) else metric.read()).items():
        shown.add_metric(labels, value)
    return shown

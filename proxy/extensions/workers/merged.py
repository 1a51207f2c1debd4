"""Merges the metrics pages of several workers into one, as if one process had counted.

Counters and histograms are summed. The last page of an ended worker still counts: otherwise the sum would fall,
Prometheus would take that for a restart, and `rate` would count everything again. Gauges are summed too, except those
that show a state, for which the worst worker decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import prometheus_client
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

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


def merge_pages(living: Iterable[bytes], ended: Iterable[bytes] = ()) -> tuple[str, bytes]:
    """Content type and text of one page for all workers. `living` are the pages of the running workers, `ended` the
    last pages of the others, of which only counters and histograms count."""
    found = _Merged()
    for text in living:
        found.add(text, lambda _: True)
    for text in ended:
        found.add(text, lambda metric: metric.type in _LASTING and not metric.name.startswith("process_"))
    return prometheus_client.CONTENT_TYPE_LATEST, generate_latest(found)


class _Merged:
    """A collector of metrics in order of appearance, with samples by name and labels."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}

    def add(self, text: bytes, counts: Callable[[Metric], bool]) -> None:
        for metric in text_string_to_metric_families(text.decode()):
            if not counts(metric):
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

"""All metrics: those of the main job, of the extensions, and of the client library."""

from __future__ import annotations

from typing import Final

from proxy.plugins import list_plugins
from proxy.telemetry.metric_table import METRICS, MetricRow


def list_metrics() -> dict[str, MetricRow]:
    """All metrics, those of extensions too, whose modules it imports."""
    added = [metric for plugin in list_plugins() for metric in plugin.list_metrics()]
    return {**METRICS, **{metric.name: metric for metric in added}}


# Metrics of the process that the client library adds (on Linux), under the names that all exporters share.
OF_THE_PROCESS: Final = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)

"""The plugin `traces`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from proxy.plugin import TracesCalls

if TYPE_CHECKING:
    from proxy.extensions.traces.otlp import Traces
    from proxy.interfaces import Clock
    from proxy.telemetry.logs import Log
    from proxy.telemetry.metric_table import MetricRow
    from proxy.telemetry.metrics import Metrics


class TracesPlugin(TracesCalls):
    """Exports spans of requests."""

    name = "traces"
    adds = "spans of requests, by OTLP over HTTP"

    def list_metrics(self) -> Sequence[MetricRow]:
        from proxy.extensions.traces.tracing import METRICS

        return METRICS

    def make_tracer(self, environ: Mapping[str, str], log: Log, metrics: Metrics, clock: Clock) -> Traces | None:
        from proxy.extensions.traces.tracing import make_tracer

        return make_tracer(environ, log, metrics, clock)

    def find_missing(self) -> str:
        from proxy.extensions.traces.tracing import find_missing

        return find_missing()

"""Makes traces as the standard variables `OTEL_*` say. OpenTelemetry is imported only then."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from proxy.interfaces import Clock
from proxy.plugin import Label, Log, MetricRow, Metrics
from proxy.server.http.request_head import random_bits

if TYPE_CHECKING:
    from proxy.extensions.recording.otlp import Traces

_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN: Final = "http/protobuf"
RESULTS: Final = ("exported", "failed", "dropped")
SPANS: Final = MetricRow(
    "toolproxy_spans_total", "counter", "Finished spans; none without traces.", ("result",),
    {"result": Label("`failed`: the collector did not take them; `dropped`: the queue was full.", RESULTS)},
)  # fmt: skip
METRICS: Final = (SPANS,)


def find_missing() -> str:
    """The missing libraries, in words; '' where all are installed."""
    try:
        found = find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
    except ModuleNotFoundError:  # even the parent packages are missing
        found = False
    return "" if found else "the libraries of OpenTelemetry are not installed"


def make_tracer(environ: Mapping[str, str], log: Log, metrics: Metrics, clock: Clock) -> Traces | None:
    """A `MakeTracer` (server/setup/added.py)."""
    if (why := _find_fault(environ)) is not None:
        log.event("Traces are off", "error", reason=why)
        return None
    from proxy.extensions.recording.otlp import make_traces

    series = metrics.add_counter(SPANS).series
    for result in RESULTS:
        series[result,] = 0.0

    def count(result: str, number: int) -> None:
        series[result,] += number

    return make_traces(clock, random_bits, metrics.knows, count, log.event)


def _find_fault(environ: Mapping[str, str]) -> str | None:
    """Returns why requested traces cannot be made, or None."""
    if find_missing():
        return "the extra is not installed: pip install '.[otel]' in a clone"
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _SPOKEN)
    if protocol != _SPOKEN:
        return f"OTEL_EXPORTER_OTLP_PROTOCOL asks for {protocol!r}: say {_SPOKEN}, and its port (usually 4318)"
    return None

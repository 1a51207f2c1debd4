"""Whether traces are on, and the running proxy's end of them. The config says `auto`, `otlp` or `off`
(`telemetry.traces`); `auto` does what the standard variables `OTEL_*` ask for, as an operator who sets them expects.

OpenTelemetry is imported only where traces are on: off, they cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxy.config.sections.top_level import has_otel
from proxy.interfaces import Clock, Observer
from proxy.server.handler import BeginTrace
from proxy.server.identity import random_bits
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from proxy.telemetry.otlp import Traces

# The longest time that a collector may delay the end of a drain or of the process.
FLUSH: Final = 3.0
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN: Final = "http/protobuf"


@dataclass(frozen=True, slots=True)
class Tracing:
    """Traces where they are on; every method does nothing where they are off."""

    traces: Traces | None = None
    observers: tuple[Observer, ...] = field(default=())

    @property
    def begin(self) -> BeginTrace | None:
        """Begins the trace of a request."""
        return None if self.traces is None else self.traces.begin

    async def flush(self) -> None:
        """Exports what is queued, within FLUSH seconds."""
        if self.traces is not None:
            await self.traces.flush(FLUSH)

    async def close(self) -> None:
        """Exports what is queued and ends, within FLUSH seconds."""
        if self.traces is not None:
            await self.traces.close(FLUSH)


def is_tracing_wanted(setting: str, environ: Mapping[str, str]) -> bool:
    """Whether traces are to be made: `setting` is `telemetry.traces`. OTEL_SDK_DISABLED goes before everything."""
    if setting == "off" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = [name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").lower().split(",")]
    asked = "otlp" in exporters or (exporters == [""] and any(environ.get(name) for name in _ENDPOINTS))
    return setting == "otlp" or asked


def find_tracing_fault(environ: Mapping[str, str]) -> str | None:
    """Returns why requested traces cannot be made, or None."""
    if not has_otel():
        return "the extra is not installed: pip install 'toolcall-proxy[otel]'"
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _SPOKEN)
    if protocol != _SPOKEN:
        return f"OTEL_EXPORTER_OTLP_PROTOCOL asks for {protocol!r}: say {_SPOKEN}, and its port (usually 4318)"
    return None


def begin_tracing(setting: str, environ: Mapping[str, str], log: Log, metrics: Metrics, clock: Clock) -> Tracing:
    """Traces as config and environment want them. Where they cannot be made, the log says why and calls go on."""
    if not is_tracing_wanted(setting, environ):
        return Tracing()
    if (why := find_tracing_fault(environ)) is not None:
        log.event("Traces are off", "error", reason=why)
        return Tracing()
    from proxy.telemetry.otlp import make_traces

    traces = make_traces(clock, random_bits, metrics.knows, metrics.spans(), log.event)
    return Tracing() if traces is None else Tracing(traces, (traces,))

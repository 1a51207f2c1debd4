"""Observers of finished calls that a config turns on, all of them extensions'; one of them traces (`Tracer`).

`telemetry.traces` is `auto`, `otlp` or `off`; `auto` does what the standard variables `OTEL_*` ask for, as an operator
who sets them expects. Off, traces cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from proxy.config.model import Config
from proxy.extensions import EXTENSIONS, find_tracer, load_place
from proxy.interfaces import Clock, Observer, Pacing, Trace
from proxy.routing import RouteTable
from proxy.telemetry.logs import Log
from proxy.telemetry.metrics import Metrics

# The longest time that a collector may delay the end of a drain or of the process.
FLUSH: Final = 3.0
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracer(Observer, Protocol):
    """Traces requests: an observer that begins the trace of each, as an extension makes it."""

    def begin(self, traceparent: str | None, tracestate: str | None) -> Trace:
        """Starts the trace of a request."""

    async def flush(self, within: float) -> None:
        """Exports what is queued, within so many seconds."""

    async def close(self, within: float) -> None:
        """Exports what is queued and ends, within so many seconds."""


# How an extension makes its tracer: from the environment, the log, the metrics that it may add its rows to, and the
# clock. None, with a log line, where it cannot be made.
MakeTracer = Callable[[Mapping[str, str], Log, Metrics, Clock], Tracer | None]


def is_tracing_wanted(setting: str, environ: Mapping[str, str]) -> bool:
    """Whether traces are wanted: `setting` is `telemetry.traces`. OTEL_SDK_DISABLED overrides everything."""
    if setting == "off" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = [name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").lower().split(",")]
    is_configured = "otlp" in exporters or (exporters == [""] and any(environ.get(name) for name in _ENDPOINTS))
    return setting == "otlp" or is_configured


def make_tracer(setting: str, environ: Mapping[str, str], log: Log, metrics: Metrics, clock: Clock) -> Tracer | None:
    """What traces as config and environment want it, None where they do not. If it cannot be made, the log says why and
    calls go on."""
    if not is_tracing_wanted(setting, environ):
        return None
    row = find_tracer()
    if not row.is_installed:
        log.event("Traces are off", "error", reason=f"`traces` {row.absence}")
        return None
    make: MakeTracer = load_place(row.tracer)
    return make(environ, log, metrics, clock)


class ConfiguredObserver(Protocol):
    """What an extension adds to observe finished calls. It gets each config, and outlives a reload."""

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers that the config asks for; none where it asks for none, so that no request pays for them."""

    def adopt(self, config: Config, table: RouteTable, digest: str) -> None:
        """Observes by this config from now on."""

    async def close(self) -> None:
        """Writes what is queued, and ends."""


# How an extension makes its observer: from the clock, chance, and the metrics that it may add its rows to.
MakeObserver = Callable[[Clock, Pacing, Metrics], ConfiguredObserver]


class ExtensionObservers:
    """The observers that extensions add, each made for the first config that has a section of its extension."""

    def __init__(self, clock: Clock, pacing: Pacing, metrics: Metrics) -> None:
        self._world = (clock, pacing, metrics)
        self._made: dict[str, ConfiguredObserver] = {}

    def adopt(self, config: Config, table: RouteTable, digest: str) -> None:
        """Tells each observer of a config."""
        for row in EXTENSIONS:
            if row.observer and row.name not in self._made and not row.sections.keys().isdisjoint(config.sections):
                make: MakeObserver = load_place(row.observer)
                self._made[row.name] = make(*self._world)
        for each in self._made.values():
            each.adopt(config, table, digest)

    @property
    def observers(self) -> tuple[Observer, ...]:
        """All that the config asks for."""
        return tuple(one for each in self._made.values() for one in each.observers)

    async def close(self) -> None:
        """Ends each."""
        for each in self._made.values():
            await each.close()

"""Observers of finished calls that a config turns on: traces (`Tracing`) and recordings (`Recorder`).

`telemetry.traces` is `auto`, `otlp` or `off`; `auto` does what the standard variables `OTEL_*` ask for, as an operator
who sets them expects. OpenTelemetry is imported only if traces are on: off, they cost nothing.

`record` writes calls to a file (docs/console.md), and a reload may change everything about it. With several workers
each has a file of its own: FILE.PID.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.adapters.base import CallShape
from proxy.config.model import Config, RecordConfig
from proxy.config.sections.top_level import has_otel
from proxy.core.model.values import Document
from proxy.interfaces import CallRecord, Clock, Observer
from proxy.recording.line import write_line
from proxy.recording.record_file import RecordFile
from proxy.routing import RouteTable
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
    """The traces of a running proxy. While traces are off, every method does nothing."""

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
    """Whether traces are wanted: `setting` is `telemetry.traces`. OTEL_SDK_DISABLED overrides everything."""
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
    """Makes traces as config and environment want them. If they cannot be made, the log says why and calls go on."""
    if not is_tracing_wanted(setting, environ):
        return Tracing()
    if (why := find_tracing_fault(environ)) is not None:
        log.event("Traces are off", "error", reason=why)
        return Tracing()
    from proxy.telemetry.otlp import make_traces

    traces = make_traces(clock, random_bits, metrics.knows, metrics.spans(), log.event)
    return Tracing() if traces is None else Tracing(traces, (traces,))


class Recorder:
    """Implements `Observer`. `wall` in seconds since the epoch; `chance` gives a number of at least 0 and below 1;
    `counts` are those of the metric."""

    def __init__(
        self, wall: Callable[[], float], chance: Callable[[], float], counts: MutableMapping[tuple[str, ...], float]
    ) -> None:
        self._wall = wall
        self._chance = chance
        self._counts = counts
        self._entry: RecordConfig | None = None
        self._file: RecordFile | None = None
        self._shapes: dict[str, CallShape] = {}
        self._digest = ""

    def adopt(self, config: Config, table: RouteTable, digest: str) -> None:
        """Records by this config from now on."""
        self._shapes, self._digest = {route.name: route.shape for route in table.routes}, digest
        if config.record == self._entry:
            return
        if self._file is not None:
            self._file.close(0)
        self._entry, self._file = config.record, None
        if config.record is not None:
            path = Path(config.record.file)
            if config.workers > 1:
                path = path.with_name(f"{path.name}.{os.getpid()}")
            self._file = RecordFile(path, config.record.max_size, config.record.keep, self._counts)

    @property
    def observers(self) -> tuple[Observer, ...]:
        """This recorder if the config records calls, else nothing, so that no request pays for it."""
        return () if self._file is None else (self,)

    def finished(self, record: CallRecord) -> None:
        """Records a call if the sample includes it."""
        entry, file, call, policy = self._entry, self._file, record.call, record.policy
        if entry is None or file is None or call is None or policy is None:
            return
        share = entry.share_of(record.outcome)
        if share < 1 and self._chance() >= share:
            return
        shape = self._shapes.get(record.route)
        if shape is None:
            return
        sent = call.arguments.text if isinstance(call.arguments, Document) else call.raw
        head = {
            "at": datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds"),
            "route": record.route, "tool": record.tool, "schema_id": record.schema_id, "config": self._digest[:12],
            "attempt": record.attempt, "outcome": record.outcome,
        }  # fmt: skip
        whole = entry.values == "full"
        make = partial(write_line, head, sent, shape, policy, whole=whole, longest=entry.longest)
        file.add(make, len(sent) + 500)

    async def close(self) -> None:
        """Writes what is queued, then closes the file."""
        if self._file is not None:
            await asyncio.to_thread(self._file.close)

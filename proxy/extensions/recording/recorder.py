"""Records finished calls as the section `record` wants them (docs/recording.md). A reload may change all of it.

With several workers each has a file of its own: FILE.PID.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from proxy.adapters.base import CallShape
from proxy.config.context import Context
from proxy.config.files.source import Files
from proxy.config.model import Config, UpstreamConfig
from proxy.config.sections.units import read_size
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Document
from proxy.extensions.recording.line import describe_call, write_line
from proxy.extensions.recording.record_file import RESULTS, RecordFile
from proxy.interfaces import CallRecord, Clock, Observer, Pacing
from proxy.routing import RouteTable
from proxy.telemetry.logs import Log
from proxy.telemetry.metric_table import Label, MetricRow
from proxy.telemetry.metrics import Metrics

# --- the section `record` of the config -------------------------------------------------------------------------------
_SIZES: Final = ("longest", "max_size")
_OUTCOMES: Final = ("refused", "repaired", "failed", "delivered")


@value_class
class RecordConfig:
    """Recorded calls: the file (an absolute path), whether arguments are whole or stand-ins, the recorded share of
    calls by outcome, and bounds in bytes. `keep`: how many older files are kept, packed."""

    file: str
    values: Literal["standins", "full"] = "standins"
    refused: float = 1.0
    repaired: float = 1.0
    failed: float = 1.0
    delivered: float = 0.01
    longest: int = 64 * 1024
    max_size: int = 64 * 1024 * 1024
    keep: int = 4

    def share_of(self, outcome: str) -> float:
        """The recorded share of the calls with this outcome."""
        if outcome in ("tool_error", "upstream_error"):
            return self.failed
        if outcome in ("repaired", "corrected"):
            return self.repaired
        return self.refused if outcome == "refused" else self.delivered


def read_record(context: Context, _files: Files, _upstreams: Mapping[str, UpstreamConfig]) -> RecordConfig | None:
    """Reads which calls are recorded; None without any."""
    written = context.structure.entry("record")
    if not isinstance(written, dict) or not isinstance(written.get("file"), str):
        return None
    found: dict[str, Any] = {name: written[name] for name in ("file", "values", "keep") if name in written}
    found |= {name: read_size(written[name]) for name in _SIZES if name in written}
    sample = written.get("sample", {})
    found |= {name: float(sample[name]) for name in _OUTCOMES if name in sample}
    return RecordConfig(**found)


def find_record(config: Config) -> RecordConfig | None:
    """The recording of a config; None where it records nothing."""
    found: RecordConfig | None = config.sections.get("record")
    return found


# --- records finished calls as the section `record` wants them (docs/recording.md) ------------------------------------
RECORDED: Final = MetricRow(
    "toolproxy_recorded_total",
    "counter",
    "Calls recorded to a file (`record`).",
    ("result",),
    {"result": Label("`dropped`: the queue was full; `failed`: the file cannot be written.", RESULTS)},
)
METRICS: Final = (RECORDED,)


def make_recorder(clock: Clock, pacing: Pacing, metrics: Metrics, _log: Log) -> Recorder:
    """The recorder of a proxy, which records nothing yet."""
    return Recorder(clock.wall, pacing.chance, metrics.add_counter(RECORDED).series)


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
        record = find_record(config)
        if record == self._entry:
            return
        if self._file is not None:
            self._file.close(0)
        self._entry, self._file = record, None
        if record is not None:
            path = Path(record.file)
            if config.workers > 1:
                path = path.with_name(f"{path.name}.{os.getpid()}")
            self._file = RecordFile(path, record.max_size, record.keep, self._counts)

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
        at = datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds")
        head = describe_call(record, at, self._digest[:12])
        whole = entry.values == "full"
        make = partial(write_line, head, sent, shape, policy, whole=whole, longest=entry.longest)
        file.add(make, len(sent) + 500)

    async def close(self) -> None:
        """Writes the queue, then closes the file."""
        if self._file is not None:
            await asyncio.to_thread(self._file.close)

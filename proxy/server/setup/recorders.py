"""Records calls to a file where the config says `record` (docs/console.md): `Recorder`, an observer.

A reload may change everything about it. Above several workers each worker has a file of its own: FILE.PID.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from proxy.adapters.base import CallShape
from proxy.config.model import Config, RecordConfig
from proxy.core.model.values import Document
from proxy.interfaces import CallRecord, Observer
from proxy.recording.line import write_line
from proxy.recording.writer_thread import RecordFile
from proxy.routing import RouteTable


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
        """Records by another config from here on."""
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
        """This recorder where the config records, else nothing: then no request is told to it."""
        return () if self._file is None else (self,)

    def finished(self, record: CallRecord) -> None:
        """Records a call, if it is one of the sample."""
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
        told = {
            "at": datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds"),
            "route": record.route, "tool": record.tool, "schema_id": record.schema_id, "config": self._digest[:12],
            "attempt": record.attempt, "outcome": record.outcome,
        }  # fmt: skip
        whole = entry.values == "full"
        make = partial(write_line, told, sent, shape, policy, whole=whole, longest=entry.longest)
        file.add(make, len(sent) + 500)

    async def close(self) -> None:
        """Writes what is queued, and ends."""
        if self._file is not None:
            await asyncio.to_thread(self._file.close)

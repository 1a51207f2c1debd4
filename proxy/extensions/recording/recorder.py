"""Records finished calls as the section `record` wants them (docs/recording.md). A reload may change all of it.

With several workers each has its own file: FILE.PID.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal

from proxy.call_record import CallRecord
from proxy.config.keys.kinds import SAME_OWNER, SIZE, ConfigKey, choice, decimal, mapping, number, text
from proxy.config.model import Config
from proxy.core.json.jsontext import dumps
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Document
from proxy.extensions.recording.line import RecordedLine, describe_call, read_line, write_line
from proxy.file_writing import move_file, open_replacement, open_to_append
from proxy.interfaces import Clock, Observer, Pacing
from proxy.plugin import CallShape, Label, Log, MetricRow, Metrics
from proxy.routing import RouteTable

# --- the file of recorded calls ---------------------------------------------------------------------------------------
# The file of recorded calls: a thread writes it, and the console reads the last lines of a tool from it.
#
#     `RecordFile.add`, in the caller: queues a function that makes a line, or drops it if the queue is full.
#     `RecordFile._run`, in the thread: makes the lines (substitutes are judged here), writes and rotates.
#
# A full disk costs lines, never calls. No link is followed, and new files have mode 0600 (`proxy/file_writing.py`).
# Beyond `max_size` it becomes FILE.1.gz, that FILE.2.gz, and so on, `keep` of them. Lines are counted: written,
# dropped (queue full), failed (cannot be written).
#
# `read_last_lines` reads the file, the files that other workers write beside it (FILE.PID), and the packed older
# ones, newest first.

MOST_LINES: Final = 1000
MOST_BYTES: Final = 4 * 1024 * 1024
RESULTS: Final = ("written", "dropped", "failed")

MakeLine = Callable[[], bytes]


class RecordFile:
    """One file of recorded calls. The numbers of lines by result (RESULTS) are added to `counts`."""

    def __init__(self, path: Path, max_size: int, keep: int, counts: MutableMapping[tuple[str, ...], float]) -> None:
        self.path = path
        self._counts = counts
        for result in RESULTS:
            counts.setdefault((result,), 0.0)
        self._max_size = max_size
        self._keep = keep
        self._queue: deque[tuple[MakeLine, int]] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="record", daemon=True)
        self._thread.start()

    def add(self, make: MakeLine, size: int) -> None:
        """Queues a line of about `size` bytes."""
        with self._lock:
            if len(self._queue) >= MOST_LINES or self._size + size > MOST_BYTES:
                self._counts["dropped",] += 1
                return
            self._queue.append((make, size))
            self._size += size
        self._work.set()

    def close(self, within: float = 2.0) -> None:
        """Writes the queue and ends; gives up after `within` seconds."""
        self._closing = True
        self._work.set()
        self._thread.join(within)

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._work.clear()
            while self._queue:
                with self._lock:
                    make, size = self._queue.popleft()
                    self._size -= size
                try:
                    self._write(make())
                    self._counts["written",] += 1
                except Exception:  # noqa: BLE001 - an exception costs this line alone, and is counted
                    self._counts["failed",] += 1
            if self._closing:
                return

    def _write(self, line: bytes) -> None:
        descriptor = open_to_append(self.path)
        try:
            if os.fstat(descriptor).st_size + len(line) > self._max_size:
                os.close(descriptor)
                descriptor = -1
                self._rotate()
                descriptor = open_to_append(self.path)
            os.write(descriptor, line)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _rotate(self) -> None:
        """Packs the full file, and moves the older ones on; the oldest goes."""
        for place in range(self._keep, 0, -1):
            older = self._name_packed(place)
            if os.path.lexists(older):
                if place == self._keep:
                    older.unlink()
                else:
                    move_file(older, self._name_packed(place + 1))
        if self._keep:
            with (
                self.path.open("rb") as full,
                open_replacement(self._name_packed(1)) as raw,
                gzip.GzipFile(mode="wb", fileobj=raw) as packed,
            ):
                shutil.copyfileobj(full, packed)
        self.path.unlink()

    def _name_packed(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}.gz")


def read_last_lines(path: Path, route: str, tool: str, most: int) -> list[RecordedLine]:
    """At most `most` lines of a tool on a route, the latest last. A file that cannot be read counts as empty."""
    found: list[RecordedLine] = []
    for file in _list_newest_first(path):
        if len(found) >= most:
            break
        kept = deque(_read_lines(file, route, tool), most - len(found))
        found[:0] = kept
    return found


def _list_newest_first(path: Path) -> list[Path]:
    beside = (one for one in path.parent.glob(f"{path.name}.*") if one.suffix == ".gz" or one.suffix[1:].isdecimal())
    dated = [(each.stat().st_mtime_ns, each) for each in (path, *beside) if each.is_file()]
    return [each for _, each in sorted(dated, reverse=True)]


def _read_lines(path: Path, route: str, tool: str) -> Iterator[RecordedLine]:
    """The lines of a tool in a file. An unfinished line is left out, and so is the rest of a broken file."""
    named = dumps(tool)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for text in lines:
                if named not in text:
                    continue
                line = read_line(text)
                if isinstance(line, RecordedLine) and (line.route, line.tool) == (route, tool):
                    yield line
    except (OSError, EOFError):
        return


# --- the section `record` of the config -------------------------------------------------------------------------------


@value_class
class RecordConfig:
    """Which calls are recorded and where, as `RECORD` describes it."""

    file: str = ""
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
        if outcome in ("tool_error", "withheld", "upstream_error"):
            return self.failed
        if outcome in ("repaired", "corrected"):
            return self.repaired
        return self.refused if outcome == "refused" else self.delivered


_SHARE: Final = decimal(minimum=0, maximum=1, x_expects="a number from 0 to 1")
_SAMPLE: Final = mapping(
    RecordConfig,
    ConfigKey("refused", _SHARE, "Refused calls."),
    ConfigKey("repaired", _SHARE, "Repaired and corrected calls."),
    ConfigKey("failed", _SHARE, "Calls failed by the tool or its service."),
    ConfigKey("delivered", _SHARE, "All other calls."),
    make=dict,
    x_expects="a mapping of refused, repaired, failed and delivered",
)
_RECORD: Final = mapping(
    RecordConfig,
    ConfigKey(
        "file",
        text(minLength=1, x_expects="a path"),
        "One JSON line a call; with several workers each has its own (`FILE.PID`).",
        default=None,
    ),
    ConfigKey(
        "values",
        choice("standins", "full", x_expects="standins or full"),
        "`standins`: texts become x and 1 if the verdict stays the same; `full`: arguments as they came. Both replace "
        "values that the schema marks secret.",
    ),
    ConfigKey("sample", _SAMPLE, "The share of calls recorded, 0 to 1, by outcome.", field=SAME_OWNER),
    ConfigKey("longest", SIZE, "The longest arguments recorded; a longer call's line has none."),
    ConfigKey("max_size", SIZE, "At this size the file is packed and a new one begun."),
    ConfigKey("keep", number(minimum=0, maximum=1000, x_expects="a number from 0 to 1000"), "Packed files kept."),
    required=["file"],
    x_expects="a mapping with file",
)
RECORD: Final = ConfigKey(
    "record", _RECORD, "Records calls, for `replay` and `diff` (docs/recording.md). Default: nothing is written."
)


def find_record(config: Config) -> RecordConfig | None:
    """The recording of a config; None where it records nothing."""
    found: RecordConfig | None = config.sections.get("record")
    return found


# --- the recorder -----------------------------------------------------------------------------------------------------
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

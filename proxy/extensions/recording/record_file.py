"""The file of recorded calls: a thread writes it, and the console reads the last lines of a tool from it.

    RecordFile.add     in the caller: queues a function that makes a line, or drops it where the queue is full
    RecordFile._run    in the thread: makes the lines (stand-ins are judged here), writes and rotates

A full disk costs lines, never calls. No link is followed, and new files have mode 0600 (`proxy/file_writing.py`).
Beyond `max_size` it becomes FILE.1.gz, that FILE.2.gz, and so on, `keep` of them. Lines are counted: written, dropped
(queue full), failed (cannot be written).

`read_last_lines` reads the file, the files that other workers write beside it (FILE.PID), and the packed older ones,
newest first.
"""

from __future__ import annotations

import gzip
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.extensions.recording.line import RecordedLine, read_line
from proxy.file_writing import move_file, open_replacement, open_to_append

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
        for number in range(self._keep, 0, -1):
            older = self._name_packed(number)
            if os.path.lexists(older):
                if number == self._keep:
                    older.unlink()
                else:
                    move_file(older, self._name_packed(number + 1))
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

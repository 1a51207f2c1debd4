"""Writes the log's lines without blocking the event loop.

A write to a pipe that nobody reads, or to a disk that hangs, blocks its caller. So lines go into a bounded queue, and
a thread writes the queued lines to the stream's file descriptor:

    write(line)   in the caller: queues a line, or drops it if the queue is full
    _run          in the thread: writes all that is queued, and reports how many lines were lost in between

A `Sink` is the target of the lines, such as the stream of the log. Lost lines are counted by reason (DROP_REASONS).
The queue is written PAUSE seconds after its first line, so that the lines of many calls go out in one write. A process
that is killed loses the lines of that time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TextIO

QUEUE_FULL: Final = "queue_full"
WRITE_FAILED: Final = "write_failed"
DROP_REASONS: Final = (QUEUE_FULL, WRITE_FAILED)

# Room for about 4,000 lines of calls.
QUEUE_BYTES: Final = 2 * 1024 * 1024
PAUSE: Final = 0.05
# The capacity of a pipe on Linux: with a slow reader the queue empties piece by piece.
_PIECE: Final = 64 * 1024

# Makes the line that reports how many lines were lost since the last such line, by reason.
Notice = Callable[[Mapping[str, int]], bytes]


class Sink(Protocol):
    """The target of a queue. `note_loss` may be called in any thread, all others only in the writer's."""

    def prepare(self) -> bool:
        """Gets ready for whole lines; gives whether the last line there was cut. Raises OSError."""

    def write(self, text: bytes) -> int:
        """Writes the beginning of a text; gives how many bytes of it. Raises OSError."""

    def note_loss(self, reason: str, lines: int, why: str) -> None:
        """Learns that lines were lost: one of DROP_REASONS, how many, and what the system says."""

    def note_recovery(self, lost: Mapping[str, int]) -> None:
        """Learns that lines are written again, and how many were lost before, by reason."""

    def close(self) -> None:
        """Ends. Raises OSError."""


class DescriptorSink:
    """Implements `Sink`: a duplicate of a file descriptor. The line that reports losses says all about them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._torn = False

    def prepare(self) -> bool:
        """Returns whether the last write ended within a line."""
        return self._torn

    def write(self, text: bytes) -> int:
        """Writes to the descriptor."""
        written = os.write(self._descriptor, text)
        self._torn = text[written - 1 : written] != b"\n"
        return written

    def note_loss(self, reason: str, lines: int, why: str) -> None:
        """Does nothing."""

    def note_recovery(self, lost: Mapping[str, int]) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Closes the duplicate."""
        os.close(self._descriptor)


class StreamWriter:
    """Writes to a stream without a file descriptor, which is in memory and cannot block."""

    def __init__(self, stream: TextIO) -> None:
        self.dropped: Counter[str] = Counter()
        self._stream = stream

    def write(self, line: bytes) -> None:
        """Writes at once."""
        try:
            self._stream.write(line.decode())
            self._stream.flush()
        except Exception as error:  # noqa: BLE001 - whatever the stream raises: no line may fail a call
            self.drop(WRITE_FAILED, type(error).__name__)

    def drop(self, reason: str, why: str) -> None:  # noqa: ARG002 - only a queue reports why
        """Counts a line that is lost."""
        self.dropped[reason] += 1

    def close(self, within: float) -> None:
        """Does nothing: no line is queued."""


class QueueWriter:
    """Writes to a sink, from its own thread."""

    def __init__(self, sink: Sink, notice: Notice, queue_bytes: int = QUEUE_BYTES, pause: float = PAUSE) -> None:
        self.dropped: Counter[str] = Counter()
        self._sink = sink
        self._notice = notice
        self._room = self._size = queue_bytes
        self._pause = pause
        self._lock = threading.Lock()
        self._queue: list[bytes] = []
        self._awake = False
        # The thread waits for two locks that others release. Events wait in Python, which costs each call more.
        self._work = threading.Lock()
        self._work.acquire()
        self._end = threading.Lock()
        self._end.acquire()
        self._reported: Counter[str] = Counter()  # used only by the writer's thread
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queues a line, or drops it if the queue is full."""
        size = len(line)
        with self._lock:
            if self._room < size:
                self._count(QUEUE_FULL, 1, "the queue is full")
                return
            self._room -= size
            self._queue.append(line)
            self._wake()

    def drop(self, reason: str, why: str) -> None:
        """Counts a line that is lost, and reports it in its place."""
        with self._lock:
            self._count(reason, 1, why)
            self._wake()

    def close(self, within: float) -> None:
        """Writes the queued lines and ends; gives up after `within` seconds. Later lines are lost."""
        with self._lock:
            if self._end.locked():
                self._end.release()
            self._wake()
        self._thread.join(within)

    def _wake(self) -> None:
        """Wakes the thread; the caller holds the lock."""
        if not self._awake:
            self._awake = True
            self._work.release()

    def _run(self) -> None:
        ends = False
        while not ends:
            self._work.acquire()
            ends = self._end.acquire(timeout=self._pause)
            self._write_queue()
        self._write_queue()  # lines that arrived during the last write
        with self._lock:
            self._room, self._awake = 0, True  # takes no further line, and does not wake again
        with suppress(OSError):
            self._sink.close()

    def _count(self, reason: str, lines: int, why: str) -> None:
        """Counts lost lines; the caller holds the lock."""
        self.dropped[reason] += lines
        self._sink.note_loss(reason, lines, why)

    def _write_queue(self) -> None:
        with self._lock:
            queue, self._queue, self._awake = self._queue, [], False
        text, start = b"".join(queue), 0
        while start < len(text):
            end = text.rfind(b"\n", start, start + _PIECE) + 1 or text.index(b"\n", start) + 1
            left, why = self._send(text[start:end])
            with self._lock:
                self._room += end - start
                if left:
                    self._count(WRITE_FAILED, left.count(b"\n"), why)
            start = end
        with self._lock:  # losses are reported once the queue has room for more than a few lines
            lost = self.dropped - self._reported if self.dropped and self._room * 2 > self._size else None
        if lost and not self._send(self._notice(lost))[0]:
            self._reported += lost
            self._sink.note_recovery(lost)

    def _send(self, text: bytes) -> tuple[bytes, str]:
        """Writes whole lines; returns the unwritten rest, and why. A cut line gets a line end before the next."""
        left = text
        try:
            left = b"\n" + text if text and self._sink.prepare() else text
            while left:
                try:
                    left = left[self._sink.write(left) :]
                except BlockingIOError:  # another process that shares the stream made it non-blocking
                    time.sleep(self._pause)
        except OSError as error:
            return left[-len(text) :], error.strerror or type(error).__name__
        return b"", ""


def open_writer(stream: TextIO, notice: Notice) -> StreamWriter | QueueWriter:
    """Makes the writer for a stream, with a queue if the stream has a file descriptor. Its methods never raise or
    block."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):  # io.UnsupportedOperation is both of the first two
        return StreamWriter(stream)
    return QueueWriter(DescriptorSink(descriptor), notice)

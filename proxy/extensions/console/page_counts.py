"""The counts of the console's pages, from the start of the process on: requests over time, faults of upstreams,
mistakes.

`CountBars` reads counters four times a minute: those of the metrics, so that a call costs nothing here, and those of
mistakes (`mistake_counts.py`). Intervals without a call are not kept; the last interval holds the counts since the last
reading. Of each upstream the last 50 faults are kept.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from proxy.call_record import CallRecord
from proxy.extensions.console.mistake_counts import MistakeCounts
from proxy.server.admin.page import ConsoleData, Counts

EVERY: Final = 15.0
# An hour of intervals.
KEPT: Final = 240


# The most numbers of all kept intervals together (about 3 MB); beyond it the oldest intervals go.
MOST_NUMBERS: Final = 20_000


class Bar(NamedTuple):
    """One interval: when it ended (seconds since the epoch), and its counts: of requests by route, tool and outcome, of
    mistakes by `mistake_counts.Key`."""

    at: float
    counts: dict[tuple[Any, ...], int]


class CountBars:
    """Calls `read`, which gives all counts so far, every `EVERY` seconds. `wall` gives seconds since the epoch."""

    def __init__(self, read: Callable[[], Counts], wall: Callable[[], float], most: int = MOST_NUMBERS) -> None:
        self._read = read
        self._wall = wall
        self._most = most
        self._bars: deque[Bar] = deque(maxlen=KEPT)
        self._before: dict[tuple[Any, ...], float] = dict(read())
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Starts reading. Must be called inside the event loop."""
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._tick)

    def end(self) -> None:
        """Stops reading."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Closes the interval."""
        counts = self._count_since()
        if counts:
            self._bars.append(Bar(self._wall(), counts))
            self._before = dict(self._read())
            while sum(len(bar.counts) for bar in self._bars) > self._most:
                self._bars.popleft()

    def within(self, seconds: float) -> Iterator[Bar]:
        """The intervals of the last `seconds`, oldest first, with the current one."""
        now = self._wall()
        yield from (bar for bar in self._bars if bar.at > now - seconds)
        if counts := self._count_since():
            yield Bar(now, counts)

    def sum_within(self, seconds: float) -> Counter[tuple[Any, ...]]:
        """The counts of the last `seconds`."""
        found: Counter[tuple[Any, ...]] = Counter()
        for bar in self.within(seconds):
            found.update(bar.counts)
        return found

    def total(self) -> Counter[tuple[Any, ...]]:
        """All counts so far."""
        return Counter({key: int(number) for key, number in self._read().items()})

    def _count_since(self) -> dict[tuple[Any, ...], int]:
        before = self._before
        return {
            key: int(number - before.get(key, 0)) for key, number in self._read().items() if number > before.get(key, 0)
        }

    def _tick(self) -> None:
        self.look()
        self.begin()


FAULTS: Final = 50
# The most upstreams whose faults are kept, those of earlier configs included.
_UPSTREAMS: Final = 200


class ConsoleCounts:
    """Implements `PageCounts`. `read` gives the counts of all requests so far, `wall` seconds since the epoch; with
    `values` the operator may see values."""

    def __init__(self, read: Callable[[], Counts], wall: Callable[[], float], values: bool) -> None:
        self.mistakes = MistakeCounts(wall, values=values)
        self.bars = CountBars(read, wall)
        self.mistake_bars = CountBars(lambda: self.mistakes.totals, wall)
        self._wall = wall
        self._faults: dict[str, deque[tuple[float, str]]] = {}

    def begin(self) -> None:
        """Starts reading the counters."""
        self.bars.begin()
        self.mistake_bars.begin()

    def end(self) -> None:
        """Ends reading them."""
        self.bars.end()
        self.mistake_bars.end()

    def finished(self, record: CallRecord) -> None:
        """Counts one finished request."""
        if record.violations or record.repairs or record.corrected_after:
            self.mistakes.count_call(record)
        if record.upstream_error and (record.upstream in self._faults or len(self._faults) < _UPSTREAMS):
            faults = self._faults.setdefault(record.upstream, deque(maxlen=FAULTS))
            faults.append((self._wall(), record.upstream_error))

    def count_faults(self, upstream: str, since: float) -> Counter[str]:
        """Returns how many faults of each kind an upstream had since then (seconds since the epoch)."""
        return Counter(error for at, error in self._faults.get(upstream, ()) if at >= since)


def find_counts(data: ConsoleData | None) -> ConsoleCounts | None:
    """The counts for the pages; None with `console: off`."""
    return data.counts if data is not None and isinstance(data.counts, ConsoleCounts) else None


def make_stamp(at: float) -> str:
    """A time of day as answers give it (RFC 3339, UTC, milliseconds)."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")

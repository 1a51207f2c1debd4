"""Counters, histograms and gauges that cost a call next to nothing: a number in a slot, added to without a lock.

Only the event loop's thread counts here, so there is nobody to lock out. What a scrape shows is worked out when
somebody scrapes (`exposition.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar


class Count:
    """One series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self) -> None:
        """Counts one."""
        self.value += 1.0


class Spread:
    """One series of a histogram. `bounds` in ascending order; a value belongs to the first bound not below it, and
    what is above all of them to one bucket more."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[int]:
        """How many values were at most each bound, and how many there were (OpenMetrics, "Histogram")."""
        found, sum_ = [], 0
        for count in self.buckets:
            sum_ += count
            found.append(sum_)
        return found


class Gauge:
    """One series of a gauge: `read` gives its value whenever somebody scrapes."""

    __slots__ = ("read",)

    def __init__(self, value: float = 0.0) -> None:
        self.read: Callable[[], float] = lambda: value

    def set(self, value: float) -> None:
        """Has this value from here on."""
        self.read = lambda: value


S = TypeVar("S", Count, Spread, Gauge)


class Family(Generic[S]):
    """All series of one metric, by their labels' values in the order of `labels`."""

    __slots__ = ("_make", "labels", "meaning", "name", "series")

    def __init__(self, name: str, meaning: str, labels: tuple[str, ...], make: Callable[[], S]) -> None:
        self.name, self.meaning, self.labels = name, meaning, labels
        self.series: dict[tuple[str, ...], S] = {}
        self._make: Callable[[], S] = make

    def of(self, *labels: str) -> S:
        """The series of these labels' values; a new one where there is none yet."""
        try:
            return self.series[labels]
        except KeyError:
            made = self.series[labels] = self._make()
            return made


class Tally:
    """The series in which a finished request counts: one more in each of `counts`, its length in `server`, and that of
    its upstream's part in `client` where it has one."""

    __slots__ = ("client", "counts", "server")

    def __init__(self, counts: tuple[Count, ...], server: Spread, client: Spread | None) -> None:
        self.counts, self.server, self.client = counts, server, client

"""How many calls of each tool ended how, every 15 seconds: the bars of the overview.

The counters of the metrics are looked at four times a minute, so a call costs nothing here; intervals without a call
are not kept. The last interval is what has been counted since the last look.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

EVERY: Final = 15.0
# An hour of intervals.
KEPT: Final = 240

# (route, tool, outcome) -> how many
Counts = Mapping[tuple[str, ...], float]


class Bar(NamedTuple):
    """One interval: when it ended (seconds since the epoch), and the requests in it by route, tool and outcome."""

    at: float
    counts: dict[tuple[str, ...], int]


class RequestBars:
    """Looks at `read`, which gives all requests so far, every `EVERY` seconds. `wall` in seconds since the epoch."""

    def __init__(self, read: Callable[[], Counts], wall: Callable[[], float]) -> None:
        self._read = read
        self._wall = wall
        self._bars: deque[Bar] = deque(maxlen=KEPT)
        self._before: dict[tuple[str, ...], float] = dict(read())
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Starts looking. Must be called inside the event loop."""
        self._timer = asyncio.get_running_loop().call_later(EVERY, self._went_off)

    def end(self) -> None:
        """Stops looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Closes the interval."""
        counts = self._since()
        if counts:
            self._bars.append(Bar(self._wall(), counts))
            self._before = dict(self._read())

    def within(self, seconds: float) -> Iterator[Bar]:
        """The intervals of the last `seconds`, oldest first, the one that runs included."""
        now = self._wall()
        yield from (bar for bar in self._bars if bar.at > now - seconds)
        if counts := self._since():
            yield Bar(now, counts)

    def total(self) -> Counter[tuple[str, ...]]:
        """All requests so far."""
        return Counter({key: int(number) for key, number in self._read().items()})

    def _since(self) -> dict[tuple[str, ...], int]:
        before = self._before
        return {
            key: int(number - before.get(key, 0)) for key, number in self._read().items() if number > before.get(key, 0)
        }

    def _went_off(self) -> None:
        self.look()
        self.begin()

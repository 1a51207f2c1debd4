"""The proxy's timeline for the operator: how many calls of each tool ended how, every 15 seconds, and what happened to
the proxy itself.

`RequestBars` reads the counters of the metrics four times a minute, so a call costs nothing here. Intervals without a
call are not kept; the last interval holds what was counted since the last reading.

`ChangeLog` keeps 50 reloads, 200 changes of breakers, 50 faults of each upstream, and the begin of a drain. A change
holds names, times and places in the config, never a value of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

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
    """Calls `read`, which gives the counts of all requests so far, every `EVERY` seconds. `wall` gives seconds since
    the epoch."""

    def __init__(self, read: Callable[[], Counts], wall: Callable[[], float]) -> None:
        self._read = read
        self._wall = wall
        self._bars: deque[Bar] = deque(maxlen=KEPT)
        self._before: dict[tuple[str, ...], float] = dict(read())
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

    def within(self, seconds: float) -> Iterator[Bar]:
        """The intervals of the last `seconds`, oldest first, with the current one."""
        now = self._wall()
        yield from (bar for bar in self._bars if bar.at > now - seconds)
        if counts := self._count_since():
            yield Bar(now, counts)

    def total(self) -> Counter[tuple[str, ...]]:
        """All requests so far."""
        return Counter({key: int(number) for key, number in self._read().items()})

    def _count_since(self) -> dict[tuple[str, ...], int]:
        before = self._before
        return {
            key: int(number - before.get(key, 0)) for key, number in self._read().items() if number > before.get(key, 0)
        }

    def _tick(self) -> None:
        self.look()
        self.begin()


RELOADS: Final = 50
BREAKER_CHANGES: Final = 200
FAULTS: Final = 50
# The most upstreams whose faults are kept, those of earlier configs included.
_UPSTREAMS: Final = 200

ChangeEvent = Literal["reload", "breaker", "drain"]


class LoggedChange(NamedTuple):
    """One change: its number, its time (seconds since the epoch), the event, and its fields."""

    seq: int
    at: float
    event: ChangeEvent
    data: dict[str, Any]


class ChangeLog:
    """`wall` gives seconds since the epoch."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.last = 0
        self._wall = wall
        self._reloads: deque[LoggedChange] = deque(maxlen=RELOADS)
        self._breakers: deque[LoggedChange] = deque(maxlen=BREAKER_CHANGES)
        self._drains: deque[LoggedChange] = deque(maxlen=1)
        self._faults: dict[str, deque[tuple[float, str]]] = {}

    def add_fault(self, upstream: str, error: str) -> None:
        """Adds a fault of an upstream: `error` is a proxy error type."""
        if upstream in self._faults or len(self._faults) < _UPSTREAMS:
            self._faults.setdefault(upstream, deque(maxlen=FAULTS)).append((self._wall(), error))

    def add_reload(self, result: str, digest: str, mistakes: Sequence[str], changed: Sequence[str]) -> None:
        """Adds an attempt to reload the config; `changed` names what differs from the config before."""
        self._add(self._reloads, "reload", {"result": result, "digest": digest, "mistakes": list(mistakes)[:20],
                                            "changed": list(changed)[:50]})  # fmt: skip

    def add_breaker_change(self, upstream: str, state: str) -> None:
        """Adds a circuit breaker's change of state."""
        self._add(self._breakers, "breaker", {"upstream": upstream, "state": state})

    def add_drain(self) -> None:
        """Adds the begin of a drain."""
        self._add(self._drains, "drain", {})

    def reloads(self) -> list[dict[str, Any]]:
        """Reloads, the latest first."""
        return [_show(change) for change in reversed(self._reloads)]

    def breaker_changes(self, upstream: str) -> list[dict[str, Any]]:
        """Changes of one breaker, the latest first."""
        return [_show(change) for change in reversed(self._breakers) if change.data["upstream"] == upstream]

    def faults(self, upstream: str, since: float) -> Mapping[str, int]:
        """How many faults of each kind an upstream had since then (seconds since the epoch)."""
        found: dict[str, int] = {}
        for at, error in self._faults.get(upstream, ()):
            if at >= since:
                found[error] = found.get(error, 0) + 1
        return found

    def after(self, seq: int) -> Iterator[LoggedChange]:
        """Changes with a higher number, oldest first."""
        later = [each for kept in (self._reloads, self._breakers, self._drains) for each in kept if each.seq > seq]
        return iter(sorted(later))

    def _add(self, kept: deque[LoggedChange], event: ChangeEvent, data: dict[str, Any]) -> None:
        self.last += 1
        kept.append(LoggedChange(self.last, self._wall(), event, data))


def make_stamp(at: float) -> str:
    """A time of day as answers give it (RFC 3339, UTC, milliseconds)."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _show(change: LoggedChange) -> dict[str, Any]:
    return {"timestamp": make_stamp(change.at), **change.data}

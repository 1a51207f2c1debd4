"""State in this process: bounded tables with a time to live. The default store, and the fallback of every other.

Each table is an ordered dict in order of last use: looking up, adding and evicting cost the same with one key or a
hundred thousand (Acode NFR-003). An expired entry is dropped when it is looked up; eviction removes the others and
bounds memory. Every method works under a lock and awaits nothing, so it is atomic for one
event loop and for threads alike (Acode NFR-008).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from proxy.core.contract import attempts as contract
from proxy.interfaces import Clock, Episode, FailedAttempt, FailureRecorded, Rate, RateExceeded
from proxy.plugin import KeepsState

if TYPE_CHECKING:
    from proxy.plugin import Changed

V = TypeVar("V")


class _Table(Generic[V]):
    """Holds at most `max_keys` values, each until it expires; evicts the least recently used one."""

    def __init__(self, clock: Clock, max_keys: int) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self.entries: OrderedDict[str, tuple[V, float]] = OrderedDict()

    def get(self, key: str) -> V | None:
        entry = self.entries.get(key)
        if entry is None:
            return None
        if entry[1] <= self._clock.now():
            del self.entries[key]
            return None
        self.entries.move_to_end(key)
        return entry[0]

    def put(self, key: str, value: V, ttl: float) -> None:
        self.entries[key] = (value, self._clock.now() + ttl)
        self.entries.move_to_end(key)
        if len(self.entries) > self._max_keys:
            self.entries.popitem(last=False)

    def swap(self, key: str, value: V) -> None:
        """Replaces the value of a present key, and keeps its time to live."""
        self.entries[key] = (value, self.entries[key][1])

    def pop(self, key: str) -> V | None:
        value = self.get(key)
        if value is not None:
            del self.entries[key]
        return value

    def items(self) -> list[tuple[str, V]]:
        now = self._clock.now()
        return [(key, value) for key, (value, expires) in self.entries.items() if expires > now]


class KeptInMemory(KeepsState):
    """Keeps state in this process."""

    name, adds, backend = "memory", "state in this process", "memory"

    def make_store(self, clock: Clock, max_keys: int, settings: object, changed: Changed) -> MemoryStore:  # noqa: ARG002
        return MemoryStore(clock, max_keys)


class MemoryStore:
    """A `StateStore` in this process. `max_keys` bounds episodes, counts and rates separately."""

    def __init__(self, clock: Clock, max_keys: int) -> None:
        self._lock = Lock()
        self._episodes: _Table[Episode] = _Table(clock, max_keys)
        self._used: _Table[int] = _Table(clock, max_keys)
        self._rates = RateTable(clock, max_keys)

    def is_known(self, key: str) -> bool:
        """Returns whether the key has an episode or a count, which may have expired."""
        return key in self._episodes.entries or key in self._used.entries

    async def look(self, key: str, if_known: bool = False) -> Episode | None:
        with self._lock:
            episode = self._episodes.get(key)
            return None if if_known and episode is not None and episode.count == 0 else episode

    async def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> FailureRecorded:
        with self._lock:
            recorded = contract.add(self._episodes.get(key), attempt)
            self._episodes.put(key, recorded.episode, ttl)
            return recorded

    async def clear(self, key: str, forget: bool = False) -> Episode | None:
        with self._lock:
            episode = self._episodes.pop(key) if forget else self._episodes.get(key)
            if episode is None or forget or episode.count == 0:
                return episode
            self._episodes.swap(key, contract.clear_episode(episode))
            return episode

    async def reserve(self, key: str, limit: int, ttl: float) -> int | None:
        with self._lock:
            used = self._used.get(key) or 0
            if used >= limit:
                return None
            self._used.put(key, used + 1, ttl)
            return used + 1

    async def release(self, key: str) -> None:
        with self._lock:
            used = self._used.get(key)
            if used is not None and used > 1:
                self._used.swap(key, used - 1)
            elif used is not None:
                self._used.pop(key)

    async def count_taken(self, key: str, enough: int | None = None) -> int:  # noqa: ARG002 - memory always knows the whole count
        with self._lock:
            return self._used.get(key) or 0

    async def list_episodes(self) -> Sequence[tuple[str, Episode]]:
        with self._lock:
            return self._episodes.items()

    async def take_rates(self, rates: Sequence[Rate]) -> RateExceeded | None:
        with self._lock:
            return self._rates.take(rates)

    async def close(self) -> None:
        """Does nothing: memory needs no release."""


# --- rates ------------------------------------------------------------------------------------------------------------
# How soon the next call may come goes by the generic cell rate algorithm (ITU-T I.371, "GCRA"). A key holds one number,
# the theoretical arrival time: when the next call would come if all came evenly. A call that comes `burst` intervals or
# more before the time after it is too early. Times are whole microseconds. The Redis extension repeats `take` in Lua,
# because it must run next to the data; its tests compare the two.


def take(arrivals: Sequence[int | None], rates: Sequence[Rate], now: int) -> list[int] | RateExceeded:
    """The arrival times after one more call at the time `now`, or why it may not be made: all rates have to allow it.

    A time further ahead than a burst can have moved it is from before the clock jumped back, or of another config: the
    key begins again."""
    after: list[int] = []
    worst = RateExceeded(0, 0)
    for index, (arrival, rate) in enumerate(zip(arrivals, rates, strict=True)):
        room = rate.interval * rate.burst
        begun = now if arrival is None or arrival > now + room else max(arrival, now)
        after.append(begun + rate.interval)
        wait = begun + rate.interval - room - now
        if wait > worst.wait:
            worst = RateExceeded(index, wait)
    return worst if worst.wait else after


class RateTable:
    """The arrival times of at most `max_keys` keys, those that were used last."""

    def __init__(self, clock: Clock, max_keys: int) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self.arrivals: OrderedDict[str, int] = OrderedDict()

    def take(self, rates: Sequence[Rate]) -> RateExceeded | None:
        """Counts one call under each key, or under none."""
        known = self.arrivals
        found = take([known.get(rate.key) for rate in rates], rates, int(self._clock.now() * 1_000_000))
        if isinstance(found, RateExceeded):
            for rate in rates:
                if rate.key in known:
                    known.move_to_end(rate.key)
            return found
        for rate, arrival in zip(rates, found, strict=True):
            known[rate.key] = arrival
            known.move_to_end(rate.key)
        while len(known) > self._max_keys:
            known.popitem(last=False)
        return None

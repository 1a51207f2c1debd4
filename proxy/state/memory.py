"""State in this process: bounded tables with a time to live. The default, and the fallback of every other store.

Each table is an ordered dict in order of last use: looking up, adding and evicting the least recently used entry cost
the same with one key or a hundred thousand (Acode NFR-003). An entry is dropped when found expired; entries nobody
asks for again leave by eviction, which bounds memory whatever happens. Every method does its whole work without
awaiting, under a lock, so it is atomic for one event loop and for threads alike (Acode NFR-008).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Final, Generic, TypeVar

from proxy.core import contract
from proxy.interfaces import Ahead, Clock, Episode, FailedAttempt, FailureRecorded

V = TypeVar("V")


class _Table(Generic[V]):
    """At most `max_keys` values, each until its time has come; the least recently used one leaves first."""

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
        """A new value for a present key; its time to live runs on."""
        self.entries[key] = (value, self.entries[key][1])

    def pop(self, key: str) -> V | None:
        value = self.get(key)
        if value is not None:
            del self.entries[key]
        return value

    def items(self) -> list[tuple[str, V]]:
        now = self._clock.now()
        return [(key, value) for key, (value, expires) in self.entries.items() if expires > now]


class MemoryStore:
    """A `StateStore` in this process. `max_keys` bounds episodes, call counts and marks, each for itself."""

    shared: Final = False

    def __init__(self, clock: Clock, max_keys: int) -> None:
        self._lock = Lock()
        self._episodes: _Table[Episode] = _Table(clock, max_keys)
        self._used: _Table[int] = _Table(clock, max_keys)
        self._marks: _Table[bool] = _Table(clock, max_keys)

    async def open(self) -> None:
        """Always ready."""

    def is_idle(self) -> bool:
        return not self._episodes.entries  # one that has expired counts until it is asked for

    def knows(self, key: str) -> bool:
        if key not in self._episodes.entries:  # as nearly always: a look that nothing can come between
            return False
        with self._lock:
            return self._episodes.get(key) is not None

    def look_ahead(self, key: str) -> Ahead | None:  # noqa: ARG002 - of the protocol
        """Nothing: `knows` tells of every episode there is."""
        return None

    def clear_soon(self, key: str, ahead: Ahead | None = None) -> Ahead | None:  # noqa: ARG002 - as above
        """Nothing, for the same reason."""
        return None

    async def look(self, key: str) -> Episode | None:
        with self._lock:
            return self._episodes.get(key)

    async def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> FailureRecorded:
        with self._lock:
            recorded = contract.add(self._episodes.get(key), attempt)
            self._episodes.put(key, recorded.episode, ttl)
            return recorded

    async def clear(self, key: str) -> Episode | None:
        with self._lock:
            return self._episodes.pop(key)

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

    async def taken(self, key: str) -> int:
        with self._lock:
            return self._used.get(key) or 0

    async def mark(self, key: str, ttl: float) -> None:
        with self._lock:
            self._marks.put(key, True, ttl)

    async def marked(self, key: str) -> bool:
        with self._lock:
            return self._marks.get(key) is not None

    async def episodes(self) -> Sequence[tuple[str, Episode]]:
        with self._lock:
            return self._episodes.items()

    async def close(self) -> None:
        """Nothing to release."""

    # --- what a shared store said: kept in case it goes away ----------------------------------------------------------
    def learn_episode(self, key: str, episode: Episode | None, ttl: float) -> None:
        """Makes an episode what it is elsewhere; `ttl` in seconds, of no meaning without an episode."""
        with self._lock:
            if episode is None:
                self._episodes.pop(key)
            else:
                self._episodes.put(key, episode, ttl)

    def learn_used(self, key: str, used: int, ttl: float) -> None:
        """Makes a call count what it is elsewhere. `ttl` in seconds; 0 lets the time of a present count run on."""
        with self._lock:
            if used <= 0:
                self._used.pop(key)
            elif ttl > 0:
                self._used.put(key, used, ttl)
            elif self._used.get(key) is not None:
                self._used.swap(key, used)

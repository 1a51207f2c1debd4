"""The journal: the counts of this process while the shared store was away, to be merged into it later.

Failed calls are kept with their hashes, so that adding one twice changes nothing; call counts are kept as differences.
The journal is bounded: the least recently changed entry is dropped first, and is never merged.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final, TypeVar

from proxy.core.contract.attempts import KEPT_ATTEMPTS
from proxy.core.model.value_class import value_class
from proxy.extensions.redis.remote import MissedChanges
from proxy.interfaces import Clock, FailedAttempt

V = TypeVar("V")

# Seconds for which the end of an episode is kept: by default nothing lives longer in the store (`caps.ttl`, a day).
_WORTH_KNOWING: Final = 86_400.0


@value_class
class JournalBatch:
    """A part of the journal: episodes, and call counts as (key, difference, seconds to live; 0 keeps the time)."""

    episodes: tuple[tuple[str, MissedChanges], ...]
    counts: tuple[tuple[str, int, float], ...]

    def __len__(self) -> int:
        return len(self.episodes) + len(self.counts)


class Journal:
    """Belongs to one event loop. A kept entry has a point in time as its `ttl`; `take` makes it seconds again."""

    def __init__(self, clock: Clock, max_keys: int) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self._episodes: OrderedDict[str, MissedChanges] = OrderedDict()
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._episodes) + len(self._counts)

    def note_failure(self, key: str, attempt: FailedAttempt, ttl: float) -> None:
        """Records a failed call; its `seen` is 0 where it belongs to the attempt before it."""
        before = self._episodes.get(key) or MissedChanges(False, (), 0.0)
        attempts = (*before.attempts, attempt)[-KEPT_ATTEMPTS:]
        self._episodes[key] = replace(before, attempts=attempts, ttl=self._clock.now() + ttl)
        self._bound(self._episodes, key)

    def note_ending(self, key: str) -> None:
        """Records that an episode ended by a delivered call."""
        self._episodes[key] = MissedChanges(True, (), self._clock.now() + _WORTH_KNOWING)
        self._bound(self._episodes, key)

    def note_reservation(self, key: str, ttl: float) -> None:
        """Records a slot that was taken."""
        self._counts[key] = (self._counts.get(key, (0, 0.0))[0] + 1, self._clock.now() + ttl)
        self._bound(self._counts, key)

    def note_release(self, key: str) -> None:
        """Records a slot that was given back; the count keeps its time to live."""
        change, expires = self._counts.get(key, (0, 0.0))
        self._counts[key] = (change - 1, expires)
        self._bound(self._counts, key)

    def take(self, most: int) -> JournalBatch:
        """Removes and gives the oldest entries, at most so many of each kind, without the expired ones."""
        now = self._clock.now()
        episodes = [(key, replace(one, ttl=one.ttl - now)) for key, one in _take_oldest(self._episodes, most)]
        counts = [(key, change, max(0.0, until - now)) for key, (change, until) in _take_oldest(self._counts, most)]
        return JournalBatch(
            tuple(one for one in episodes if one[1].ttl > 0),
            tuple(one for one in counts if one[1] < 0 or (one[1] > 0 and one[2] > 0)),
        )

    def put_back(self, batch: JournalBatch, sent: bool) -> None:
        """Takes back a batch that was not merged; newer entries win. With `sent` it may have been merged: its
        differences are dropped then, and its attempts kept, because they can be merged twice."""
        for key, old in batch.episodes:
            new = self._episodes.get(key) or MissedChanges(False, (), 0.0)
            if not new.cleared:
                attempts, expires = (*old.attempts, *new.attempts)[-KEPT_ATTEMPTS:], self._clock.now() + old.ttl
                self._episodes[key] = MissedChanges(old.cleared, attempts, max(expires, new.ttl))
                self._bound(self._episodes, key)
        for key, change, ttl in () if sent else batch.counts:
            newer, until = self._counts.get(key, (0, 0.0))
            self._counts[key] = (change + newer, max(until, self._clock.now() + ttl if ttl else 0.0))
            self._bound(self._counts, key)

    def _bound(self, table: OrderedDict[str, Any], key: str) -> None:
        table.move_to_end(key)
        if len(table) > self._max_keys:
            table.popitem(last=False)


def _take_oldest(table: OrderedDict[str, V], most: int) -> list[tuple[str, V]]:
    return [table.popitem(last=False) for _ in range(min(most, len(table)))]

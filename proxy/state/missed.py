"""What this process counted while the shared store was away, in a form that can be added to it afterwards.

Attempts are kept with their digests, so that adding one twice changes nothing; call counts are kept as a difference.
Bounded like every table: the least recently changed entry leaves first, and is then simply not added.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from proxy.core.contract import KEPT_ATTEMPTS
from proxy.interfaces import Clock, FailedAttempt
from proxy.state.remote import Missed

V = TypeVar("V")

# How long an ended episode is worth telling of: nothing lives longer in the store by default (`caps.ttl`, a day).
_WORTH_KNOWING: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Batch:
    """What is added in one go: episodes, differences of call counts (change, seconds to live; 0: as it is), marks
    (seconds to live)."""

    episodes: tuple[tuple[str, Missed], ...]
    counts: tuple[tuple[str, int, float], ...]
    marks: tuple[tuple[str, float], ...]

    def __len__(self) -> int:
        return len(self.episodes) + len(self.counts) + len(self.marks)


class Journal:
    """Not thread-safe: one event loop writes and reads it. `ttl` of what is kept is a point in time until taken."""

    def __init__(self, clock: Clock, max_keys: int) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self._episodes: OrderedDict[str, Missed] = OrderedDict()
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._marks: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._episodes) + len(self._counts) + len(self._marks)

    def failed(self, key: str, attempt: FailedAttempt, repeated: bool, ttl: float) -> None:
        """A failed attempt was counted here."""
        before = self._episodes.get(key) or Missed(False, (), 0, 0.0)
        self._episodes[key] = replace(
            before,
            attempts=before.attempts if repeated else (*before.attempts, attempt)[-KEPT_ATTEMPTS:],
            repeats=before.repeats + repeated,
            ttl=self._clock.now() + ttl,
        )
        self._bound(self._episodes, key)

    def cleared(self, key: str) -> None:
        """A call was delivered: what came before is over."""
        self._episodes[key] = Missed(True, (), 0, self._clock.now() + _WORTH_KNOWING)
        self._bound(self._episodes, key)

    def reserved(self, key: str, ttl: float) -> None:
        """A slot was taken here."""
        self._counts[key] = (self._counts.get(key, (0, 0.0))[0] + 1, self._clock.now() + ttl)
        self._bound(self._counts, key)

    def released(self, key: str) -> None:
        """A slot was given back here, wherever it was taken; the count's time runs on."""
        change, expires = self._counts.get(key, (0, 0.0))
        self._counts[key] = (change - 1, expires)
        self._bound(self._counts, key)

    def marked(self, key: str, ttl: float) -> None:
        """A fact was remembered here."""
        self._marks[key] = self._clock.now() + ttl
        self._bound(self._marks, key)

    def take(self, most: int) -> Batch:
        """Takes the oldest entries out, at most so many of each kind; what has expired is left out."""
        now = self._clock.now()
        episodes = [(key, replace(one, ttl=one.ttl - now)) for key, one in _oldest(self._episodes, most)]
        counts = [(key, change, max(0.0, until - now)) for key, (change, until) in _oldest(self._counts, most)]
        marks = [(key, expires - now) for key, expires in _oldest(self._marks, most)]
        return Batch(
            tuple(one for one in episodes if one[1].ttl > 0),
            tuple(one for one in counts if one[1] < 0 or (one[1] > 0 and one[2] > 0)),
            tuple(one for one in marks if one[1] > 0),
        )

    def put_back(self, batch: Batch, sent: bool) -> None:
        """What could not be added waits again, before what has been written since. `sent`: it may have been added, so
        differences are left out; attempts and marks can be added twice."""
        for key, old in batch.episodes:
            new = self._episodes.get(key) or Missed(False, (), 0, 0.0)
            if not new.cleared:
                attempts, expires = (*old.attempts, *new.attempts)[-KEPT_ATTEMPTS:], self._clock.now() + old.ttl
                self._episodes[key] = Missed(old.cleared, attempts, old.repeats + new.repeats, max(expires, new.ttl))
                self._bound(self._episodes, key)
        for key, change, ttl in () if sent else batch.counts:
            newer, until = self._counts.get(key, (0, 0.0))
            self._counts[key] = (change + newer, max(until, self._clock.now() + ttl if ttl else 0.0))
            self._bound(self._counts, key)
        for key, ttl in batch.marks:
            self.marked(key, ttl)

    def _bound(self, table: OrderedDict[str, Any], key: str) -> None:
        table.move_to_end(key)
        if len(table) > self._max_keys:
            table.popitem(last=False)


def _oldest(table: OrderedDict[str, V], most: int) -> list[tuple[str, V]]:
    return [table.popitem(last=False) for _ in range(min(most, len(table)))]

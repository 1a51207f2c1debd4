"""`Remote`: the interface of a store outside this process, from which `FallbackStore` makes a `StateStore`.

Every method except `close` and `list_episodes` only queues an operation and gives a future. They take effect in the
order of the calls; a future fails only with `Unreachable`.
"""

from __future__ import annotations

from asyncio import Future
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from proxy.core.contract.attempts import KEPT_ATTEMPTS
from proxy.core.model.value_class import value_class
from proxy.interfaces import Clock, Episode, FailedAttempt, FailureRecorded, Rate, RateExceeded


class Unreachable(Exception):  # noqa: N818 - a condition of the network, not an error of the proxy
    """The remote store gave no answer. `reason` holds no secret; `sent` says that the operation may have been done."""

    def __init__(self, reason: str, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


@value_class
class SeenEpisode:
    """A running episode and for how many seconds it will still be remembered."""

    episode: Episode
    ttl: float


@value_class
class SlotCount:
    """The number of used slots, and the count's remaining time to live in seconds (0 if no slot is used)."""

    used: int
    ttl: float


@value_class
class MissedChanges:
    """The changes of an episode while the remote store was away: it was first ended if `cleared`, then these calls
    failed. A call with `seen` 0 belongs to the attempt before it. `ttl` is in seconds from now."""

    cleared: bool
    attempts: tuple[FailedAttempt, ...]
    ttl: float


class Remote(Protocol):
    """A store that several processes share."""

    def look(self, key: str) -> Future[SeenEpisode | None]:
        """The running episode."""

    def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> Future[FailureRecorded]:
        """Adds a failed attempt as `core.contract.attempts.add` does."""

    def clear(self, key: str, forget: bool) -> Future[Episode | None]:
        """Ends the episode and gives it as it was. The counts of refused arguments stay, unless `forget` is set."""

    def reserve(self, key: str, limit: int, ttl: float) -> Future[int | None]:
        """Takes a slot; gives the number of used slots, or None where all were used."""

    def release(self, key: str) -> Future[int]:
        """Releases a slot; gives the number of used slots."""

    def count_taken(self, key: str) -> Future[SlotCount]:
        """Reads how many slots are used."""

    def take_rates(self, rates: Sequence[Rate]) -> Future[RateExceeded | None]:
        """Counts one call under each key, or under none, as `take` of `state/memory.py` does."""

    def merge(self, key: str, missed: MissedChanges) -> Future[None]:
        """Adds the missed changes to the episode."""

    def merge_used(self, key: str, change: int, ttl: float) -> Future[None]:
        """Adds to the number of used slots beyond any cap, because these calls have been made."""

    def probe(self, key: str) -> Future[None]:
        """Writes a throwaway key to the server that holds `key`, to test whether it works."""

    async def list_episodes(self, most: int) -> Sequence[tuple[str, Episode]]:
        """Reads running episodes, at most so many. Raises Unreachable."""

    async def close(self) -> None:
        """Lets the queued operations run, and closes the connections."""


# --- the journal ------------------------------------------------------------------------------------------------------
# The journal: the counts of this process while the shared store was away, to be merged into it later.
#
# Failed calls are kept with their hashes, so that adding one twice changes nothing; call counts are kept as
# differences. The journal is bounded: the least recently changed entry is dropped first, and is never merged.

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

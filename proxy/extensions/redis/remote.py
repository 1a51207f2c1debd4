"""`Remote`: the interface of a store outside this process, from which `FallbackStore` makes a `StateStore`.

Every method except `close` and `list_episodes` only queues an operation and gives a future. They take effect in the
order of the calls; a future fails only with `Unreachable`.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import Protocol

from proxy.core.model.value_class import value_class
from proxy.interfaces import Episode, FailedAttempt, FailureRecorded, Rate, RateExceeded


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
    """The number of used slots, and the count's remaining time to live in seconds (0 where no slot is used)."""

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

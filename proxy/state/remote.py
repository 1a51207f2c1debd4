"""What a store outside of this process has to offer, so that `FallbackStore` can make a `StateStore` of it.

Every method but `close` and `episodes` only puts an operation into line and gives a future. Operations take effect in
the order in which they were asked for; a future fails with `Unreachable` and with nothing else.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.interfaces import Episode, FailedAttempt, FailureRecorded


class Unreachable(Exception):  # noqa: N818 - a condition of the network, no defect
    """The remote store gave no answer. `reason` names no secret; `sent` says that the operation may have been done."""

    def __init__(self, reason: str, sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent = sent


@dataclass(frozen=True, slots=True)
class Seen:
    """A running episode and for how many seconds it will still be remembered."""

    episode: Episode
    ttl: float


@dataclass(frozen=True, slots=True)
class Missed:
    """What became of an episode while the remote store was away: first ended (or not), then these new attempts, and so
    many repetitions. `ttl` in seconds from now."""

    cleared: bool
    attempts: tuple[FailedAttempt, ...]
    repeats: int
    ttl: float


class Remote(Protocol):
    """A store that several processes share."""

    def look(self, key: str) -> Future[Seen | None]:
        """The running episode."""

    def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> Future[FailureRecorded]:
        """Adds a failed attempt as `core.contract.add` does."""

    def clear(self, key: str) -> Future[Episode | None]:
        """Ends the episode; gives what it was."""

    def reserve(self, key: str, limit: int, ttl: float) -> Future[int | None]:
        """Takes a slot; gives how many are used now, or None when all are."""

    def release(self, key: str) -> Future[int]:
        """Gives a slot back; gives how many are still used."""

    def taken(self, key: str) -> Future[int]:
        """How many slots are used now."""

    def mark(self, key: str, ttl: float) -> Future[None]:
        """Remembers a fact."""

    def marked(self, key: str) -> Future[float]:
        """For how many seconds the fact will still be remembered; 0 where it is not."""

    def merge(self, key: str, missed: Missed) -> Future[None]:
        """Adds what was missed to the episode."""

    def merge_used(self, key: str, change: int, ttl: float) -> Future[None]:
        """Adds to the number of used slots, whatever the cap: these calls have been made."""

    def probe(self, key: str) -> Future[None]:
        """Writes something that matters to nobody where `key` would be written: whether the store works."""

    async def episodes(self, most: int) -> Sequence[tuple[str, Episode]]:
        """Running episodes, at most so many. Raises Unreachable."""

    async def close(self) -> None:
        """Ends the connections. What is still in line is tried first."""

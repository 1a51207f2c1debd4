"""Redis or Valkey as a `Remote`, and the store that is made of it."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence
from typing import Final

from proxy.extensions.redis import operations
from proxy.extensions.redis.client import Connections
from proxy.extensions.redis.fallback import FallbackStore
from proxy.extensions.redis.operations import Keys, OperationQueue
from proxy.extensions.redis.remote import MissedChanges, SeenEpisode, SlotCount
from proxy.extensions.redis.settings import RedisSettings
from proxy.interfaces import Clock, Episode, FailedAttempt, FailureRecorded, Rate, RateExceeded
from proxy.state import Changed

# Episodes read at a time for the operator, so that calls are served between two pages.
_PAGE: Final = 100


def make_store(clock: Clock, max_keys: int, settings: RedisSettings, changed: Changed) -> FallbackStore:
    """A `MakeStore` (state/__init__.py)."""
    return FallbackStore(RedisRemote(settings), clock, max_keys, changed)


class RedisRemote:
    """Implements `Remote`."""

    def __init__(self, settings: RedisSettings) -> None:
        self._keys = Keys(settings.prefix)
        self._connections = Connections(settings)
        self._queue = OperationQueue(self._connections.run, settings.most_waiting)

    def look(self, key: str) -> Future[SeenEpisode | None]:
        return self._queue.submit(operations.look(self._keys.episode(key)))

    def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> Future[FailureRecorded]:
        return self._queue.submit(operations.fail(self._keys.episode(key), attempt, ttl))

    def clear(self, key: str, forget: bool) -> Future[Episode | None]:
        return self._queue.submit(operations.clear(self._keys.episode(key), forget))

    def reserve(self, key: str, limit: int, ttl: float) -> Future[int | None]:
        return self._queue.submit(operations.reserve(self._keys.count(key), limit, ttl))

    def release(self, key: str) -> Future[int]:
        return self._queue.submit(operations.release(self._keys.count(key)))

    def count_taken(self, key: str) -> Future[SlotCount]:
        return self._queue.submit(operations.count_taken(self._keys.count(key)))

    def take_rates(self, rates: Sequence[Rate]) -> Future[RateExceeded | None]:
        return self._queue.submit(operations.take_rates([self._keys.rate(rate.key) for rate in rates], rates))

    def merge(self, key: str, missed: MissedChanges) -> Future[None]:
        return self._queue.submit(operations.merge(self._keys.episode(key), missed))

    def merge_used(self, key: str, change: int, ttl: float) -> Future[None]:
        return self._queue.submit(operations.merge_used(self._keys.count(key), change, ttl))

    def probe(self, key: str) -> Future[None]:
        return self._queue.submit(operations.probe(self._keys.probe(key)))

    async def list_episodes(self, most: int) -> Sequence[tuple[str, Episode]]:
        """Running episodes, found by SCAN: one that begins or ends meanwhile may be missing or present."""
        names = await self._connections.scan(self._keys.episodes, most)
        found: list[tuple[str, Episode]] = []
        for first in range(0, len(names), _PAGE):
            page = names[first : first + _PAGE]
            seen = await asyncio.gather(*(self._queue.submit(operations.look(name)) for name in page))
            found += [(self._keys.key_of(name), one.episode) for name, one in zip(page, seen, strict=True) if one]
        return found

    async def close(self) -> None:
        """Waits for the queued operations, no longer than their timeouts, and closes the connections."""
        await self._queue.idle()
        await self._connections.close()

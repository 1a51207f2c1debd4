"""Redis or Valkey as a `Remote`: what it stores, how it is asked, how it is reached. The room of the library `redis`.

`scripts.py` is what runs in the server, `operations.py` what goes in and comes out, `lane.py` the order and the
batches, `client.py` the connections.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence
from typing import Final

from proxy.interfaces import Episode, FailedAttempt, FailureRecorded
from proxy.state.redis import operations
from proxy.state.redis.client import Connections
from proxy.state.redis.lane import Lane
from proxy.state.redis.operations import Keys
from proxy.state.remote import Missed, Seen
from proxy.state.settings import RedisSettings

# Episodes read in one go for the operator: calls have their turn between two pages.
_PAGE: Final = 100


class RedisRemote:
    """Implements `Remote`."""

    def __init__(self, settings: RedisSettings) -> None:
        self._keys = Keys(settings.prefix)
        self._connections = Connections(settings)
        self._lane = Lane(self._connections.run, settings.most_waiting)

    def look(self, key: str) -> Future[Seen | None]:
        return self._lane.submit(operations.look(self._keys.episode(key)))

    def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> Future[FailureRecorded]:
        return self._lane.submit(operations.fail(self._keys.episode(key), attempt, ttl))

    def clear(self, key: str) -> Future[Episode | None]:
        return self._lane.submit(operations.clear(self._keys.episode(key)))

    def reserve(self, key: str, limit: int, ttl: float) -> Future[int | None]:
        return self._lane.submit(operations.reserve(self._keys.count(key), limit, ttl))

    def release(self, key: str) -> Future[int]:
        return self._lane.submit(operations.release(self._keys.count(key)))

    def taken(self, key: str) -> Future[int]:
        return self._lane.submit(operations.taken(self._keys.count(key)))

    def mark(self, key: str, ttl: float) -> Future[None]:
        return self._lane.submit(operations.mark(self._keys.mark(key), ttl))

    def marked(self, key: str) -> Future[float]:
        return self._lane.submit(operations.marked(self._keys.mark(key)))

    def merge(self, key: str, missed: Missed) -> Future[None]:
        return self._lane.submit(operations.merge(self._keys.episode(key), missed))

    def merge_used(self, key: str, change: int, ttl: float) -> Future[None]:
        return self._lane.submit(operations.merge_used(self._keys.count(key), change, ttl))

    def probe(self, key: str) -> Future[None]:
        return self._lane.submit(operations.probe(self._keys.probe(key)))

    async def episodes(self, most: int) -> Sequence[tuple[str, Episode]]:
        """Found by SCAN: an episode that begins or ends meanwhile may be there or not."""
        names = await self._connections.scan(self._keys.episodes, most)
        found: list[tuple[str, Episode]] = []
        for first in range(0, len(names), _PAGE):
            page = names[first : first + _PAGE]
            seen = await asyncio.gather(*(self._lane.submit(operations.look(name)) for name in page))
            found += [(self._keys.key_of(name), one.episode) for name, one in zip(page, seen, strict=True) if one]
        return found

    async def close(self) -> None:
        """Waits for what is in line, which takes no longer than its timeouts."""
        await self._lane.idle()
        await self._connections.close()

"""A concurrency limit with a bounded queue: calls enter in order of arrival, and none waits longer than it asked to."""

from __future__ import annotations

import asyncio
from collections import deque


class ConcurrencyLimiter:
    """Allows `limit` holders at a time, with at most `queue` more waiting. Belongs to one event loop."""

    def __init__(self, limit: int, queue: int) -> None:
        self._free = limit
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Takes a free slot without waiting; False where all are taken or others wait already."""
        if self._free <= 0 or self._waiting:
            return False
        self._free -= 1
        return True

    async def acquire(self, within: float) -> bool:
        """Takes a slot, waiting at most `within` seconds; False where none became free. Release what you took."""
        if self.try_acquire():
            return True
        if len(self._waiting) >= self._queue or within <= 0:
            return False
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(within):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the slot arrived just as the wait ended
                self.release()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def release(self) -> None:
        """Frees a slot: the longest waiting caller gets it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

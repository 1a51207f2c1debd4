"""A bound on what is under way at a time: first come, first served, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections import deque


class Turnstile:
    """Lets `limit` through at a time; `queue` more may wait. Belongs to one event loop."""

    def __init__(self, limit: int, queue: int) -> None:
        self._free = limit
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()

    def pass_at_once(self) -> bool:
        """Takes a place that is free, if nobody waits for it."""
        if self._free <= 0 or self._waiting:
            return False
        self._free -= 1
        return True

    async def enter(self, within: float) -> bool:
        """Takes a place, in at most so many seconds; False where there was none. Each place taken is to be left."""
        if self.pass_at_once():
            return True
        if len(self._waiting) >= self._queue or within <= 0:
            return False
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(within):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the place came together with the end of the wait
                self.leave()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def leave(self) -> None:
        """Gives a place to whoever has waited longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

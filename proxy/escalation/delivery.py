"""A bounded queue in front of one webhook: what is put in is posted by one task, in order, and tried again.

A call that escalates only puts its notice into the queue. Where the queue is full the notice is lost, which is said.
A post is tried again after 1, 5, 30 and 120 seconds unless the receiver took it (2xx) or does not want it (4xx other
than 408, 425 and 429); each try is signed anew under the same `webhook-id`, so that a receiver can tell it is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Headers, JsonValue
from proxy.escalation.signing import read_key, sign_headers
from proxy.interfaces import Clock, Pacing

# Posts a notice as `dumps` writes it, with these headers; gives the answer's status, 0 where none came. Raises nothing.
Post = Callable[[JsonValue, Headers], Awaitable[int]]
# What became of a notice: its id, `delivered`, `refused`, `given_up` or `queue_full`, and the last status.
Told = Callable[[str, str, int], None]

PAUSES: Final = (1.0, 5.0, 30.0, 120.0)
MOST_WAITING: Final = 256
_MAY_BE_TAKEN_LATER: Final = frozenset({0, 408, 425, 429})


class Delivery:
    """Posts notices one after the other. `begin` and `end` belong to the process's life."""

    def __init__(self, post: Post, secret: str, clock: Clock, pacing: Pacing, told: Told) -> None:
        self._post = post
        self._key = read_key(secret)
        self._clock = clock
        self._pacing = pacing
        self._told = told
        self._queue: asyncio.Queue[tuple[str, JsonValue]] = asyncio.Queue(MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def put(self, notice: JsonValue) -> None:
        """Queues a notice; waits for nothing."""
        message_id = f"msg_{self._pacing.fresh_key()}"
        try:
            self._queue.put_nowait((message_id, notice))
        except asyncio.QueueFull:
            self._told(message_id, "queue_full", 0)
            return
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def settled(self, seconds: float) -> None:
        """Returns when everything in the queue was tried to its end, or after so many seconds; then posts no more."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=seconds)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while not self._queue.empty():
            message_id, notice = self._queue.get_nowait()
            status, taken = await self._deliver(message_id, notice)
            self._told(message_id, taken, status)

    async def _deliver(self, message_id: str, notice: JsonValue) -> tuple[int, str]:
        status, body = 0, dumps(notice)
        for pause in (*PAUSES, None):
            headers = sign_headers(self._key, message_id, self._clock.wall(), body)
            status = await self._post(notice, headers)
            if 200 <= status < 300:
                return status, "delivered"
            if status < 500 and status not in _MAY_BE_TAKEN_LATER:
                return status, "refused"
            if pause is not None:
                await self._pacing.sleep(pause * (0.5 + self._pacing.chance()))
        return status, "given_up"

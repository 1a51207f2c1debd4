"""The operation queue: while one batch is under way the next one fills, and operations run in the order of submission.

Operations submitted during a round trip go out together with the next one. So a busy process needs few round trips
and one connection, and an idle one sends at once. When a batch gets no answer, everything in the queue fails at once:
nobody waits for a store that is away.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from proxy.state.redis.operations import Operation
from proxy.state.remote import Unreachable

R = TypeVar("R")

# Operations per batch: about 5 ms of work for client and server, so that no batch delays the others.
_MOST_AT_ONCE: Final = 256

Run = Callable[[Sequence[Operation[Any]]], Awaitable[list[Any]]]


class OperationQueue:
    """Sends operations through `run`. Beyond `most_waiting` queued operations, one more is refused at once."""

    def __init__(self, run: Run, most_waiting: int) -> None:
        self._run = run
        self._most_waiting = most_waiting
        self._waiting: deque[tuple[Operation[Any], Future[Any]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(self, operation: Operation[R]) -> Future[R]:
        """Queues an operation. It runs even if its caller goes away."""
        loop = asyncio.get_running_loop()
        future: Future[R] = loop.create_future()
        if len(self._waiting) >= self._most_waiting:
            future.set_exception(Unreachable("too many operations are waiting", sent=False))
            return future
        self._waiting.append((operation, future))
        if self._task is None:
            self._task = loop.create_task(self._work())
        return future

    async def idle(self) -> None:
        """Waits until nothing is queued or under way."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
                try:
                    replies = await self._run([operation for operation, _ in batch])
                except Unreachable as why:
                    _refuse(batch, why)
                    self._refuse_all(why)
                else:
                    for (operation, future), reply in zip(batch, replies, strict=True):
                        _settle(operation, future, reply)
        finally:
            self._task = None

    def _refuse_all(self, why: Unreachable) -> None:
        waiting, self._waiting = self._waiting, deque()
        _refuse(waiting, Unreachable(why.reason, sent=False))


def _refuse(batch: Sequence[tuple[Operation[Any], Future[Any]]], why: Unreachable) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(Unreachable(why.reason, why.sent))


def _settle(operation: Operation[R], future: Future[R], reply: Any) -> None:
    if future.done():  # the caller is gone
        return
    if isinstance(reply, Unreachable):
        future.set_exception(reply)
        return
    try:
        future.set_result(operation.read(reply))
    except (ValueError, KeyError, TypeError, IndexError):
        future.set_exception(Unreachable("a reply could not be read: is the prefix used by something else?", sent=True))

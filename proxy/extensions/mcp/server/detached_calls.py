"""Calls whose client has left. Since revision 2026-07-28 that cancels them; in older ones they continue here.

"Disconnection SHOULD NOT be interpreted as the client cancelling its request" (specification 2025-11-25, "Sending
Messages to the Server", 6): the upstream keeps its connection until the tool is done, and the answer is dropped.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Final

from proxy.core.model.values import Delivered, Outcome, UpstreamReply
from proxy.driver import IN_TASK, Driver, Signal
from proxy.upstream import ReplyBroken
from proxy.upstream.faults import close_stream

# The most tasks that run in the background; beyond it the oldest is cancelled.
_MOST: Final = 1_000
# The longest time in seconds that a call runs on after its client has left, where its route sets no limit.
_LONGEST_ALONE: Final = 1800.0
# The field that gives a server-sent event its id (WHATWG HTML, "Parsing an event stream").
_EVENT_ID: Final = re.compile(rb"[\r\n]id: ?[^\r\n]")
_ID_PREFIX: Final = 5


class _Running(Driver[Outcome]):
    """Runs a call that continues without its client. `advanced` is set once it has ended or needs a task."""

    __slots__ = ("advanced",)

    def __init__(self, call: Coroutine[object, object, Outcome]) -> None:
        super().__init__(call)
        self.advanced = Signal()

    def on_advance(self) -> None:
        self.advanced.set()


class DetachedCalls:
    """Runs calls in the background after their clients have disconnected. `close` cancels them all."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def run(self, call: Coroutine[object, object, Outcome]) -> Outcome:
        """Returns the outcome of a call. If the caller is cancelled, the call continues in the background."""
        running, task = _Running(call), None
        running.drive()
        try:
            await running.advanced
            if running.result is not None:
                return running.result
            await IN_TASK
            task = asyncio.create_task(running.go_on())
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.keep(_finish(asyncio.create_task(running.go_on()) if task is None else task))
            raise

    async def run_to_end(self, rest: Coroutine[object, object, None]) -> None:
        """Runs a coroutine to its end, even if the caller is cancelled."""
        await asyncio.shield(self._keep_task(rest))

    def outlives(self, reply: UpstreamReply) -> UpstreamReply:
        """Returns the answer with a stream that is read to its end even if its client disconnects earlier."""
        return reply if isinstance(reply.body, bytes) else replace(reply, body=_Outliving(reply.body, self))

    async def close(self) -> None:
        """Cancels the calls that are still running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def keep(self, rest: Coroutine[object, object, None]) -> None:
        """Runs a coroutine in the background, for a limited time."""
        task = self._keep_task(rest)
        limit = asyncio.get_running_loop().call_later(_LONGEST_ALONE, task.cancel)
        task.add_done_callback(lambda _: limit.cancel())

    def _keep_task(self, rest: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(rest)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if len(self._tasks) > _MOST:
            next(iter(self._tasks)).cancel()
        return task


async def _finish(call: asyncio.Task[Outcome]) -> None:
    try:
        outcome = await call
    except asyncio.CancelledError:
        call.cancel()
        raise
    if isinstance(outcome, Delivered) and not isinstance(outcome.reply.body, bytes):
        await read_out(outcome.reply.body)


async def read_out(body: AsyncIterator[bytes]) -> None:
    """Reads an unwanted answer to its end."""
    try:
        with suppress(ReplyBroken):
            async for _ in body:
                pass
    finally:
        await close_stream(body)


class _Outliving:
    """A stream whose rest is read in the background if its reader leaves early. A separate task waits for each piece,
    so that cancelling the reader does not cancel the read."""

    def __init__(self, body: AsyncIterator[bytes], detached: DetachedCalls) -> None:
        self._body = body
        self._detached = detached
        self._piece: asyncio.Task[bytes | None] | None = None
        self._ended = False
        self._tail = b"\n"
        self._resumes = False

    def __aiter__(self) -> _Outliving:
        return self

    async def __anext__(self) -> bytes:
        if self._piece is None:
            self._piece = asyncio.create_task(self._next())
        try:
            data = await asyncio.shield(self._piece)
        except ReplyBroken:
            self._ended = True
            raise
        self._piece = None
        if data is None:
            self._ended = True
            raise StopAsyncIteration
        self._resumes = self._resumes or _EVENT_ID.search(self._tail + data) is not None
        self._tail = data[-_ID_PREFIX:] or self._tail
        return data

    async def aclose(self) -> None:
        """Leaves the stream. The rest of an unfinished answer is read in the background.

        A stream whose events have ids is closed instead. Its server keeps later events for a client that returns with
        the last id, but only after the connection has ended.
        """
        if self._ended:
            return
        self._ended = True
        if self._resumes:
            if self._piece is not None:
                self._piece.cancel()
                await asyncio.gather(self._piece, return_exceptions=True)
            await close_stream(self._body)
            return
        self._detached.keep(self._rest())

    async def _next(self) -> bytes | None:
        """Returns the next piece; None at the end."""
        async for data in self._body:
            return data
        return None

    async def _rest(self) -> None:
        try:
            with suppress(ReplyBroken):
                if self._piece is not None:
                    await self._piece
                await read_out(self._body)
        except asyncio.CancelledError:
            if self._piece is not None:
                self._piece.cancel()
            raise

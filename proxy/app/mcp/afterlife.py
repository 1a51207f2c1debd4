"""Calls whose client has gone. Since 2026-07-28 that cancels them, in older revisions it must not: they run on here.

"Disconnection SHOULD NOT be interpreted as the client cancelling its request" (specification 2025-11-25, "Sending
Messages to the Server", 6): the upstream keeps its connection until the tool is done, and the answer is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Final

from proxy.core.model import Delivered, Outcome, UpstreamReply
from proxy.upstream import ReplyBroken

# Calls that nobody waits for: beyond this the oldest end.
_MOST: Final = 1_000


class Afterlife:
    """Keeps calls going without a client. `close` ends them all."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def run(self, call: Coroutine[object, object, Outcome]) -> Outcome:
        """What comes of a call. Where the caller is cancelled, the call goes on without it."""
        task = asyncio.create_task(call)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.keep(_finish(task))
            raise

    def outlives(self, reply: UpstreamReply) -> UpstreamReply:
        """An answer that is read to its end although its client leaves before."""
        return reply if isinstance(reply.body, bytes) else replace(reply, body=_Outliving(reply.body, self))

    async def close(self) -> None:
        """Ends what is still going on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def keep(self, rest: Coroutine[object, object, None]) -> None:
        """Lets something go on by itself."""
        task = asyncio.create_task(rest)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if len(self._tasks) > _MOST:
            next(iter(self._tasks)).cancel()


async def _finish(call: asyncio.Task[Outcome]) -> None:
    try:
        outcome = await call
    except asyncio.CancelledError:
        call.cancel()
        raise
    if isinstance(outcome, Delivered) and not isinstance(outcome.reply.body, bytes):
        await read_out(outcome.reply.body)


async def read_out(body: AsyncIterator[bytes]) -> None:
    """Reads an answer that nobody wants to its end."""
    try:
        with suppress(ReplyBroken):
            async for _ in body:
                pass
    finally:
        close = getattr(body, "aclose", None)
        if close is not None:
            await close()


class _Outliving:
    """A stream that its reader may leave: the rest is read out behind his back.

    Each piece is waited for in a task of its own, so that cancelling the reader does not cancel the wait.
    """

    def __init__(self, body: AsyncIterator[bytes], afterlife: Afterlife) -> None:
        self._body = body
        self._afterlife = afterlife
        self._piece: asyncio.Task[bytes | None] | None = None
        self._ended = False

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
        return data

    async def aclose(self) -> None:
        """Leaves it; what has not ended yet goes on."""
        if not self._ended:
            self._ended = True
            self._afterlife.keep(self._rest())

    async def _next(self) -> bytes | None:
        """The next piece; None at the end."""
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

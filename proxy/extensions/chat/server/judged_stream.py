"""A streamed answer on its way to the client: text passes as it comes, calls are held until they are whole.

    JudgedStream  the bytes that the client gets
      _take       one event: it passes, or is held
      _release    the calls are judged, and their events follow

A stream that breaks off, ends early or grows too long while a call is held goes on as it came. Comments keep the
connection busy meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

from proxy.core.model.values import UpstreamReply
from proxy.extensions.chat.core.events import COMMENT, EventSplitter
from proxy.extensions.chat.core.found_calls import FoundCall
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.streamed_calls import HeldCalls
from proxy.extensions.chat.core.streamed_text import HeldText
from proxy.extensions.chat.core.written_calls import NewCall
from proxy.extensions.chat.server.call_judge import JudgedCall
from proxy.upstream import ReplyBroken
from proxy.upstream.faults import close_body

# Seconds of silence after which a comment goes to a client that waits for a held call.
_SILENCE: Final = 10.0

JudgeCalls = Callable[[list[FoundCall]], Awaitable[list[JudgedCall]]]
# Finds the valid calls with which a text ends, and the text before them.
FindInText = Callable[[str], Awaitable[tuple[str, list[JudgedCall]] | None]]


class JudgedStream:
    """The body of one answer. `find` looks for calls in its text (None: nobody does). `limit` bounds what is held, in
    bytes; `judged` are the calls once they were released."""

    def __init__(self, api: Api, reply: UpstreamReply, judge: JudgeCalls, find: FindInText | None, limit: int) -> None:
        self.judged: list[JudgedCall] = []
        self._reply = reply
        self._judge = judge
        self._find: FindInText = find or _find_nothing
        self._limit = limit
        self._held = HeldCalls(api)
        self._text = HeldText(api, is_off=find is None)
        self._splitter = EventSplitter()
        self._is_over = False  # whether what comes passes unread

    async def read(self) -> AsyncGenerator[bytes, None]:
        """The bytes for the client. Raises ReplyBroken where the answer breaks off, after all that came of it."""
        pieces = _read_pieces(self._reply, self._is_waiting)
        try:
            async for piece in pieces:
                if piece is None:
                    yield COMMENT
                elif out := await self._take(piece):
                    yield out
            if left := self._give_up():
                yield left
        except ReplyBroken:
            if left := self._give_up():
                yield left
            raise
        finally:
            await pieces.aclose()
            await close_body(self._reply)

    def _is_waiting(self) -> bool:
        return (self._held.is_holding or self._text.is_holding) and not self._is_over

    async def _take(self, piece: bytes) -> bytes:
        """What passes now that these bytes have come."""
        if self._is_over:
            return piece
        out: list[bytes] = []
        for event in self._splitter.feed(piece):
            out += await self._take_event(event)
        if self._held.size + self._text.size + len(self._splitter.rest) > self._limit:
            out.append(self._give_up())
        elif self._is_over:
            out.append(self._splitter.rest)
            self._splitter.rest = b""
        return b"".join(out)

    async def _take_event(self, event: bytes) -> list[bytes]:
        """What passes now that this event has come."""
        if self._is_over:
            return [event]
        if self._held.take(event):
            text = self._text.give_up()  # a call in its own form: the text before it is none
            return [*text, *(await self._release() if self._held.is_complete else ())]
        passing = self._text.take(event)
        return [*passing, *(await self._release_text() if self._text.is_complete else ())]

    async def _release_text(self) -> list[bytes]:
        """The events of a text that has ended, with the calls in it, if it has any."""
        found = await self._find(self._text.text)
        if found is None:
            return self._text.give_up()
        self._is_over = True
        before, self.judged = found
        made = [NewCall(each.found.call_id, each.tool, each.arguments) for each in self.judged]
        return self._text.write(before, made)

    async def _release(self) -> list[bytes]:
        self._is_over = True
        self.judged = await self._judge(self._held.list_calls())
        return self._held.write([each.change for each in self.judged])

    def _give_up(self) -> bytes:
        """All that was held, as it came; from here on everything passes."""
        held = b"" if self._is_over else b"".join((*self._text.give_up(), *self._held.events))
        left, self._splitter.rest, self._is_over = held + self._splitter.rest, b"", True
        return left


async def _find_nothing(_text: str) -> None:
    """Finds no call in any text."""


async def _read_pieces(reply: UpstreamReply, is_waiting: Callable[[], bool]) -> AsyncGenerator[bytes | None, None]:
    """The pieces of a body; None for each silence while the client waits for a held call."""
    if isinstance(reply.body, bytes):
        yield reply.body
        return
    source: AsyncIterator[bytes] = aiter(reply.body)
    while True:
        coming = asyncio.ensure_future(anext(source, None))
        try:
            while not coming.done():
                silence = _SILENCE if is_waiting() else None
                if not (await asyncio.wait({coming}, timeout=silence))[0]:
                    yield None
        finally:
            coming.cancel()
        if (piece := coming.result()) is None:
            return
        yield piece

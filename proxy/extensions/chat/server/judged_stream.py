"""A streamed answer on its way to the client: text passes as it comes, calls are held until they are whole.

    JudgedStream  the bytes that the client gets
      _take       one event: it passes, or is held
      _release    the calls are judged, and their events follow
      _ask_on     another answer takes the place of one whose calls are wrong, where only its opening has come

A stream that breaks off, ends early or grows too long while a call is held goes on as it came. Comments keep the
connection busy meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from proxy.core.model.values import JsonValue, UpstreamReply
from proxy.extensions.chat.core.events import COMMENT, EventSplitter
from proxy.extensions.chat.core.found_calls import FoundCall
from proxy.extensions.chat.core.model_request import Api
from proxy.extensions.chat.core.next_question import sum_usage
from proxy.extensions.chat.core.stream_usage import add_usage, find_usage, is_opening
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


# Asks the model again for the sake of these calls, with the usage so far; gives the next answer, if there is one.
AskOn = Callable[[list[JudgedCall], dict[str, JsonValue]], Awaitable["JudgedStream | None"]]


@dataclass(frozen=True, slots=True)
class StreamSteps:
    """What happens to an answer: its calls are judged, looked for in its text (None: not), noted when they go out, and
    the model is asked again for better ones (None: not), for which it has `deadline` seconds."""

    judge: JudgeCalls
    find: FindInText | None
    note: Callable[[list[JudgedCall]], None]
    again: AskOn | None
    deadline: float = 0.0


class JudgedStream:
    """The body of one answer. `limit` bounds what is held, in bytes; `judged` are the calls once they were released.
    `is_cut`: it ended while something was held."""

    def __init__(
        self, api: Api, reply: UpstreamReply, steps: StreamSteps, limit: int, usage: dict[str, JsonValue] | None = None
    ) -> None:
        self.judged: list[JudgedCall] = []
        self.is_cut = False
        self._api = api
        self._reply = reply
        self._steps = steps
        self._limit = limit
        self._usage = usage or {}  # of the answers before this one
        self._held = HeldCalls(api)
        self._text = HeldText(api, is_off=steps.find is None)
        self._splitter = EventSplitter()
        # What has to wait because another answer, the next one or that before, may stand in its place; None where none
        # can any more.
        self._opening: list[bytes] | None = None if steps.again is None and usage is None else []
        self._after: list[bytes] = []  # what came behind refused calls
        self._says_something = False
        self._is_refused = False
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
                if self._is_refused:
                    async for part in self._ask_on(pieces):
                        yield part
                    return
            if left := self._give_up():
                self.is_cut = True
                yield left
        except ReplyBroken:
            if left := self._give_up():
                self.is_cut = True
                yield left
            raise
        finally:
            await pieces.aclose()
            await close_body(self._reply)

    def _is_waiting(self) -> bool:
        return self._is_refused or ((self._held.is_holding or self._text.is_holding) and not self._is_over)

    async def _take(self, piece: bytes) -> bytes:
        """What passes now that these bytes have come."""
        if self._is_over and not self._usage:
            return piece
        out: list[bytes] = []
        for event in self._splitter.feed(piece):
            out += await self._take_event(event)
        if self._held.size + self._text.size + len(self._splitter.rest) > self._limit:
            opening, self._opening = self._opening or [], None
            out = [*opening, *out, self._give_up()]
        elif self._is_over and not self._usage and not self._is_refused:
            out.append(self._splitter.rest)
            self._splitter.rest = b""
        return self._open(out)

    def _open(self, events: list[bytes]) -> bytes:
        """The events that go out now: none, as long as they are the opening of an answer that may be replaced."""
        if self._usage:
            events = [add_usage(event, self._usage) for event in events]
        if self._opening is None:
            return b"".join(events)
        if not self._opening and not self._is_refused and all(event.startswith(b":") for event in events):
            return b"".join(events)  # comments before anything else
        self._opening += events
        if self._is_refused or not (self._says_something or self._is_over):
            return b""
        out, self._opening = b"".join(self._opening), None
        return out

    async def _take_event(self, event: bytes) -> list[bytes]:
        """What passes now that this event has come."""
        if self._is_refused:
            self._after.append(event)
            return []
        if self._is_over:
            return [event]
        if self._held.take(event):
            text = self._text.give_up()  # a call in its own form: the text before it is none
            return [*text, *(await self._release() if self._held.is_complete else ())]
        passing = self._text.take(event)
        self._says_something = self._says_something or not all(is_opening(self._api, each) for each in passing)
        return [*passing, *(await self._release_text() if self._text.is_complete else ())]

    async def _release_text(self) -> list[bytes]:
        """The events of a text that has ended, with the calls in it, if it has any."""
        found = await self._steps.find(self._text.text) if self._steps.find is not None else None
        if found is None:
            return self._text.give_up()
        self._is_over = True
        before, self.judged = found
        self._steps.note(self.judged)
        made = [NewCall(each.found.call_id, each.tool, each.arguments) for each in self.judged]
        return self._text.write(before, made)

    async def _release(self) -> list[bytes]:
        self._is_over = True
        self.judged = await self._steps.judge(self._held.list_calls())
        is_replaceable = self._steps.again is not None and self._opening is not None and not self._says_something
        if is_replaceable and any(each.failure is not None for each in self.judged):
            self._is_refused = True
            return []
        self._steps.note(self.judged)
        return self._write_held()

    def _write_held(self) -> list[bytes]:
        return self._held.write([each.change for each in self.judged])

    async def _ask_on(self, pieces: AsyncGenerator[bytes | None, None]) -> AsyncGenerator[bytes, None]:
        """The model is asked again: its next answer, or this one where there is none."""
        rest = b"".join((*self._after, self._splitter.rest))
        try:
            async for piece in pieces:  # the usage stands at the end
                if piece is None:
                    yield COMMENT
                rest += piece or b""
                if self._held.size + len(rest) > self._limit:
                    yield self._write_refused(rest)
                    async for more in pieces:
                        yield more or COMMENT
                    return
        except ReplyBroken:
            yield self._write_refused(rest)
            raise
        own = find_usage((*(self._opening or ()), *self._held.events, *EventSplitter().feed(rest)))
        asking = asyncio.ensure_future(self._begin_next(sum_usage(self._usage, own)))
        try:
            while not (await asyncio.wait({asking}, timeout=_SILENCE))[0]:
                yield COMMENT
            if (begun := asking.result()) is None:
                yield self._write_refused(rest)
                return
            first, body, self.judged = begun
            async with aclosing(body):
                yield first
                async for part in body:
                    yield part
        finally:
            asking.cancel()

    async def _begin_next(
        self, usage: dict[str, JsonValue]
    ) -> tuple[bytes, AsyncGenerator[bytes, None], list[JudgedCall]] | None:
        """The next answer from its first bytes on, and its calls; None where nothing comes of it in time."""
        body: AsyncGenerator[bytes, None] | None = None
        try:
            async with asyncio.timeout(self._steps.deadline):
                if self._steps.again is None or (next_ := await self._steps.again(self.judged, usage)) is None:
                    return None
                body = next_.read()
                while (first := await anext(body, b"")).startswith(b":"):
                    pass  # this answer keeps the connection busy itself
        except (ReplyBroken, TimeoutError):
            return None
        return (first, body, next_.judged) if first and not next_.is_cut else None

    def _write_refused(self, rest: bytes) -> bytes:
        """All of an answer that goes on as it is; `rest` came behind its calls."""
        self._steps.note(self.judged)
        splitter = EventSplitter()
        events = [*self._write_held(), *splitter.feed(rest)]
        if self._usage:
            events = [add_usage(event, self._usage) for event in events]
        return b"".join((*(self._opening or ()), *events, splitter.rest))

    def _give_up(self) -> bytes:
        """All that was held, as it came; from here on everything passes."""
        opening, self._opening = self._opening or [], None
        held = b"" if self._is_over else b"".join((*opening, *self._text.give_up(), *self._held.events))
        left, self._splitter.rest, self._is_over = held + self._splitter.rest, b"", True
        return left


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

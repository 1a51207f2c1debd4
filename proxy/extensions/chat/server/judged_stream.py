"""A streamed answer on its way to the client: text passes as it comes, calls are held until they are whole.

    JudgedStream  the bytes that the client gets
      _take       one event: it passes, or is held
      _release    the calls are judged, and their events follow; further calls are held again
      _ask_on     replaces an answer whose calls are wrong: by another one, while only its opening has come, or by an
                  error, where wrong calls are refused

A stream that breaks off or grows too long while a call is held is forwarded as it came, or an error replaces the call
if wrong calls are refused. The proper end of a body ends its calls. Comments keep the connection busy in the meantime.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from enum import Enum, auto
from typing import Final

from proxy.core.json.contentcoding import EventSplitter
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, UpstreamReply
from proxy.extensions.chat.core.events import COMMENT, is_unreadable, read_event
from proxy.extensions.chat.core.found_calls import FoundCall, NewCall
from proxy.extensions.chat.core.model_request import Api, sum_usage
from proxy.extensions.chat.core.streamed_calls import MARKS, HeldCalls
from proxy.extensions.chat.core.streamed_text import HeldText
from proxy.extensions.chat.core.text_watch import TextWatch
from proxy.extensions.chat.core.whole_bodies import add_usage, find_usage, is_error, is_opening
from proxy.extensions.chat.server.asking_again import LostAnswer
from proxy.extensions.chat.server.call_judge import JudgedCall
from proxy.extensions.chat.server.stream_pieces import SILENCE, read_pieces, take_turns
from proxy.upstream import ReplyBroken
from proxy.upstream.faults import close_body

# Bytes of a begun event beyond which further pieces of it are no longer looked through for whole events.
_SHORT: Final = 1024

JudgeCalls = Callable[[list[FoundCall]], Awaitable[list[JudgedCall]]]
# Finds the valid calls that a text is, in markup.
FindInText = Callable[[str], Awaitable[list[JudgedCall] | None]]
# Asks the model again because of these calls, with the usage that their answer reports, and its events; gives the next
# answer.
AskOn = Callable[[list[JudgedCall], dict[str, JsonValue], list[bytes]], Awaitable["JudgedStream | LostAnswer"]]


@value_class
class StreamSteps:
    """The steps for an answer. `judge` judges its calls; `watch` sees in which places of its text they may begin (None:
    in none), and `find` finds them there. `holds_text`: they may replace it, so the text waits. `again` (None: never)
    asks the model for better ones, within `deadline` seconds. `note` receives at the end of an answer its calls, its
    usage, that of an unusable next answer, and why a call may be unread (`too_long`, `cut`, `no_json`). `write_error`
    makes the event that ends the stream in place of wrong or unread calls, behind the last event that has gone out
    (None: such calls pass)."""

    judge: JudgeCalls
    find: FindInText
    watch: TextWatch | None
    holds_text: bool
    note: Callable[[list[JudgedCall], dict[str, JsonValue], dict[str, JsonValue], str], None]
    again: AskOn | None
    deadline: float = 0.0
    write_error: Callable[[JudgedCall | str, bytes], bytes] | None = None


class _State(Enum):
    READING = auto()  # events pass, or are held where they may belong to a call
    REFUSED = auto()  # the held calls are wrong, and later events wait behind them
    PASSING = auto()  # everything passes unread
    REPLACED = auto()  # another answer took its place
    ENDED = auto()  # an error of the proxy ended it


class JudgedStream:
    """The body of one answer. `limit` bounds what is held, in bytes; `usage` is that of the answers before this one,
    None for the first. `judged` are the released calls; `refused` is the wrong call, or the reason for unread
    ones, if an error has to replace the answer before its first byte. `is_void`: it ended while something was held, or
    began with an error.
    `is_taken`: the client gets this answer."""

    def __init__(
        self, api: Api, reply: UpstreamReply, steps: StreamSteps, limit: int, usage: dict[str, JsonValue] | None = None
    ) -> None:
        self.judged: list[JudgedCall] = []
        self.refused: JudgedCall | str | None = None
        self.is_void = False
        self.is_taken = usage is None
        self._api = api
        self._reply = reply
        self._steps = steps
        self._limit = limit
        self._usage = usage or {}
        self._own_usage: dict[str, JsonValue] = {}
        self._lost: dict[str, JsonValue] = {}  # the usage of an unusable next answer
        self._held = HeldCalls(api)
        self._text = HeldText(api, steps.watch, holds=steps.holds_text)
        self._splitter = EventSplitter()
        self._state = _State.READING
        # Events that wait because another answer or an error may still replace them; None once nothing can.
        waits = steps.again is not None or usage is not None or steps.write_error is not None
        self._opening: list[bytes] | None = [] if waits else None
        self._opening_size = 0
        self._wrong: list[JudgedCall] = []  # the calls of a refused answer
        self._after: list[bytes] = []  # the events behind them
        self._says_something = False
        self._unread = ""  # why held events passed
        self._has_ended = False  # whether the body has ended properly
        self._has_begun = False  # whether anything has gone out
        self._latest = b""  # the last event that went out, beside comments

    async def read(self) -> AsyncGenerator[bytes, None]:
        """The bytes for the client. Raises ReplyBroken where the answer breaks off, behind its last bytes."""
        pieces = read_pieces(self._reply, self._is_waiting)
        try:
            async for part in self._read_parts(pieces):
                self._has_begun = True
                yield part
        except ReplyBroken:
            if self._state is not _State.ENDED and (left := self._give_up()):
                self.is_void = True
                yield left
            raise
        finally:
            if self.is_taken and self._state is not _State.REPLACED:
                self._steps.note(self.judged, self._own_usage, self._lost, self._unread)
            await pieces.aclose()
            await close_body(self._reply)

    async def _read_parts(self, pieces: AsyncGenerator[bytes | None, None]) -> AsyncGenerator[bytes, None]:
        async for piece in pieces:
            if piece is None:
                yield COMMENT
            elif out := await self._take(piece):
                yield out
            if self._state is _State.REFUSED:
                async for part in self._ask_on(pieces):
                    yield part
            if self._state in (_State.REPLACED, _State.ENDED):
                return
        if out := await self._end():
            yield out
        if self._state is _State.REFUSED:
            async for part in self._ask_on(pieces):
                yield part
        if self._state not in (_State.REPLACED, _State.ENDED) and (left := self._give_up()):
            self.is_void = True
            yield left

    async def _end(self) -> bytes:
        """Takes the proper end of the body, which also ends its calls."""
        out: list[bytes] = []
        if self._state is _State.READING and (rest := self._splitter.take_rest()):
            out = await self._take_event(rest)
        self._held.end()
        self._has_ended = True
        if self._state is _State.READING and self._held.is_complete:
            out += await self._release()
        is_silent = self.refused is not None or not (out or self._state is _State.REFUSED)
        return b"" if is_silent else self._open(out)

    def _is_waiting(self) -> bool:
        holds = self._held.is_holding or self._text.is_holding or bool(self._opening)
        return self._state is _State.REFUSED or (holds and self._state is _State.READING)

    async def _take(self, piece: bytes) -> bytes:
        """Takes these bytes, and gives those that pass."""
        if self._state is _State.PASSING and not self._usage:
            return piece
        if (plain := self._pass_plain(piece)) is not None:
            return plain
        out: list[bytes] = []
        async for event in take_turns(self._splitter.feed(piece)):
            if b'"usage"' in event:
                self._own_usage |= find_usage((event,))
            out += await self._take_event(event)
            if self._state is _State.ENDED:
                opening, self._opening = self._opening or [], None
                return b"" if self.refused is not None else self._join(opening) + self._open(out)
        return self._open(out) if self._state is _State.REFUSED else self._bound(out)

    def _bound(self, out: list[bytes]) -> bytes:
        """The events that go out, with those that wait if they are too many."""
        if self._count_held() <= self._limit:
            return self._open(out)
        opening, self._opening = self._opening or [], None
        passed = self._join(opening) + self._open(out)
        left = self._give_up("too_long") if self._count_held() > self._limit else b""
        return b"" if self.refused is not None else passed + left

    def _pass_plain(self, piece: bytes) -> bytes | None:
        """The events of a piece, of which none has to be read; None if one may have to be."""
        is_idle = self._state is _State.READING and self._opening is None
        is_begun = self._splitter.size > len(piece) + _SHORT  # a long event is looked through once
        if not is_idle or is_begun or self._held.is_holding or not self._text.is_over:
            return None
        passed = self._splitter.feed_plain(piece, MARKS[self._api])
        if passed:
            last = passed[passed.rfind(b"\n\n", 0, -2) + 2 :]
            self._join(EventSplitter().feed(passed) if last.startswith(b":") else [last])
        return passed

    def _count_held(self) -> int:
        opening = self._opening_size if self._opening else 0
        return self._held.size + self._text.size + self._splitter.size + opening

    def _open(self, events: list[bytes]) -> bytes:
        """The events that go out: none in the opening of an answer that may be replaced."""
        if self._usage:
            events = [add_usage(event, self._usage) for event in events]
        if self._opening is None:
            return self._join(events)
        is_refused = self._state is _State.REFUSED
        if not self._opening and not is_refused and all(event.startswith(b":") for event in events):
            return b"".join(events)  # comments before anything else
        self._opening += events
        self._opening_size += sum(map(len, events))
        if is_refused or not (self._says_something or self._state is _State.PASSING):
            return b""
        out, self._opening = self._join(self._opening), None
        return out

    def _join(self, events: list[bytes]) -> bytes:
        self._latest = next((event for event in reversed(events) if not event.startswith(b":")), self._latest)
        return b"".join(events)

    async def _take_event(self, event: bytes) -> list[bytes]:
        """Takes this event, and gives those that pass."""
        if self._state is _State.REFUSED:
            self._after.append(event)
            return []
        if self._state is _State.PASSING:
            return [event]
        value = read_event(event)
        if value is None and not self._held.is_holding and is_unreadable(event):
            self._unread = "no_json"
            if self._steps.write_error is not None:
                return [self._refuse(self._unread)]
        if self._held.take(event, value):
            text = self._text.give_up()  # a call in its own form: the text before it has none
            self._says_something = self._says_something or not all(map(self._is_opening, text))
            return [*text, *(await self._release() if self._held.is_complete else ())]
        self.is_void = self.is_void or (not (self.is_taken or self._says_something) and is_error(value))
        passing = self._text.take(event, value)
        self._says_something = self._says_something or not all(map(self._is_opening, passing))
        return [*passing, *(await self._release_text() if self._text.is_complete else ())]

    def _is_opening(self, event: bytes) -> bool:
        """Returns whether no other answer could contradict an event. Reasoning waits if one may follow."""
        return is_opening(self._api, event, with_reasoning=self._can_ask())

    async def _release_text(self) -> list[bytes]:
        """The events of a text that has ended, with its calls, if any."""
        self._says_something = True
        calls = await self._steps.find(self._text.text)
        if calls is None:
            return self._text.give_up()
        self.judged += calls
        made = [NewCall(each.found.call_id, each.tool, each.arguments) for each in calls]
        return self._text.write(made)

    async def _release(self) -> list[bytes]:
        """Returns the events of whole calls; none if they are wrong and may be replaced."""
        calls = await self._steps.judge(self._held.list_calls())
        is_wrong = any(call.failure is not None for call in calls)
        if is_wrong and self._has_ended and not self.is_taken:
            return []  # the answer before this one stays
        if is_wrong and (self._can_ask() or self._steps.write_error is not None):
            self._state, self._wrong = _State.REFUSED, calls
            return []
        return await self._write_calls(calls)

    def _can_ask(self) -> bool:
        return self._steps.again is not None and self._opening is not None and not self._says_something

    async def _write_calls(self, calls: list[JudgedCall]) -> list[bytes]:
        """The held events with their repaired calls; from here on further calls are held."""
        self.judged += calls
        self._says_something = True
        held, self._held = self._held, HeldCalls(self._api)
        return [event async for event in take_turns(held.write([each.change for each in calls]))]

    async def _ask_on(self, pieces: AsyncGenerator[bytes | None, None]) -> AsyncGenerator[bytes, None]:
        """Replaces refused calls: by the next answer, by an error, or by the calls themselves."""
        rest, broken = bytearray(b"".join((*self._after, self._splitter.take_rest()))), None
        self._after = []
        if self._can_ask():
            try:
                async for piece in pieces:  # the usage is at the end
                    if piece is None:
                        yield COMMENT
                    rest += piece or b""
                    if self._held.size + len(rest) > self._limit:
                        break
                else:
                    async for part in self._replace(bytes(rest)):
                        yield part
            except ReplyBroken as error:
                broken = error
        if self._state is _State.REFUSED and self._steps.write_error is not None:
            self.judged += self._wrong
            if out := self._refuse(next(call for call in self._wrong if call.failure is not None)):
                yield out
        if self._state is _State.REFUSED:
            self._state = _State.READING
            if out := self._open(await self._write_calls(self._wrong)):
                yield out
            if out := await self._take(bytes(rest)):
                yield out
        if broken is not None and self._state is not _State.ENDED:
            raise broken

    async def _replace(self, rest: bytes) -> AsyncGenerator[bytes, None]:
        """The next answer, if there is one. `rest` came behind the calls of this one."""
        later = EventSplitter().feed(rest)
        self._own_usage |= find_usage(later)
        asking = asyncio.ensure_future(self._begin_next([*(self._opening or ()), *self._held.events, *later]))
        try:
            while not (await asyncio.wait({asking}, timeout=SILENCE))[0]:
                yield COMMENT
            if (begun := asking.result()) is None:
                return
            first, body, next_ = begun
            self._state, self.judged, next_.is_taken = _State.REPLACED, next_.judged, True
            async with aclosing(body):
                yield first
                async for part in body:
                    yield part
        finally:
            asking.cancel()

    async def _begin_next(self, events: list[bytes]) -> tuple[bytes, AsyncGenerator[bytes, None], JudgedStream] | None:
        """The answer behind that of these events, from its first bytes on; None if it is unusable or late."""
        if self._steps.again is None:
            raise AssertionError("only where the model may be asked again")
        next_: JudgedStream | LostAnswer = LostAnswer()
        try:
            async with asyncio.timeout(self._steps.deadline):
                next_ = await self._steps.again(self._wrong, self._own_usage, events)
                if isinstance(next_, JudgedStream):
                    body = next_.read()
                    while (first := await anext(body, b"")).startswith(b":"):
                        pass  # this answer keeps the connection busy itself
                    if first and not next_.is_void:
                        return first, body, next_
                    await body.aclose()
        except (ReplyBroken, TimeoutError):
            pass
        if isinstance(next_, JudgedStream) and isinstance(next_.refused, JudgedCall):
            self._wrong, self._steps = next_.judged, next_._steps
            self._own_usage, self._lost = next_._own_usage, next_._lost
        elif found := next_.usage if isinstance(next_, LostAnswer) else sum_usage(next_._own_usage, next_._lost):
            self._count_lost(found)
        return None

    def _count_lost(self, usage: JsonValue) -> None:
        """Adds the usage of an unusable next answer to that of this one."""
        self._lost = usage if isinstance(usage, dict) else {}
        self._opening = None if self._opening is None else [add_usage(each, usage) for each in self._opening]
        summed = sum_usage(self._usage, self._lost)
        self._usage = summed if isinstance(summed, dict) else {}

    def _refuse(self, why: JudgedCall | str) -> bytes:
        """The error event in the place of wrong or unread calls; none, and `refused`, if nothing has gone out."""
        if self._steps.write_error is None:
            raise AssertionError("only where wrong calls are refused")
        self._state = _State.ENDED
        if self._has_begun:
            latest = EventSplitter().feed(self._latest)
            return self._steps.write_error(why, latest[-1] if latest else b"")
        self.refused = why
        return b""

    def _give_up(self, why: str = "cut") -> bytes:
        """The held bytes unchanged, and from here on everything passes. If wrong calls are refused, an error takes
        their place."""
        is_cut = self._held.is_holding or (why == "too_long" and self._splitter.size > 0)
        if is_cut or self._text.is_holding:
            self._unread = why
        if is_cut and self._steps.write_error is not None:
            return self._refuse(why)
        opening, self._opening = self._opening or [], None
        held, self._held, self._state = self._held, HeldCalls(self._api), _State.PASSING
        return b"".join((*opening, *self._text.give_up(), *held.events, self._splitter.take_rest()))

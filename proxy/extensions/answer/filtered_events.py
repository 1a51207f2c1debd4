"""Filters a stream of server-sent events: each event is handed on as soon as it is complete.

An event that is not changed keeps its bytes. No more than `most` bytes of an event are kept in memory; of a longer one,
only the beginning is filtered.
"""

from __future__ import annotations

import re
import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from proxy.core.json.contentcoding import DATA, MOST_MEMBERS, EventSplitter
from proxy.core.model.value_class import value_class
from proxy.core.model.values import UpstreamReply
from proxy.upstream.faults import close_stream

# --- a whole answer, read within bounds -------------------------------------------------------------------------------
_GZIP: Final = frozenset(["gzip", "x-gzip"])
# zlib's formats: gzip, its own, and raw deflate, which some servers send for it.
_GZIP_BITS: Final = 31
_ZLIB_BITS: Final = 15
_RAW_BITS: Final = -15


@value_class
class BoundedAnswer:
    """The part of an answer that was read: its `raw` bytes, and the `text` that they decode to, None if they cannot be
    decoded. `is_whole`: both are complete."""

    raw: bytes
    text: bytes | None
    is_whole: bool


async def read_answer(reply: UpstreamReply, most: int) -> BoundedAnswer:
    """Reads at most `most` bytes of an answer, and of what they decode to. A stream is closed. Raises ReplyBroken for a
    broken one."""
    coding = reply.header("content-encoding").strip().lower()
    raw, is_whole = await _gather(reply.body, most) if not isinstance(reply.body, bytes) else (reply.body, True)
    if coding in ("", "identity"):
        return BoundedAnswer(raw, raw, is_whole)
    text, is_decoded = decode_beginning(raw, coding, most)
    return BoundedAnswer(raw, text, is_whole and is_decoded)


async def _gather(body: AsyncIterator[bytes], most: int) -> tuple[bytes, bool]:
    """The beginning of a stream, and whether it is all of it."""
    found = bytearray()
    try:
        async for piece in body:
            found += piece
            if len(found) > most:
                return bytes(found[:most]), False
    finally:
        await close_stream(body)
    return bytes(found), True


def decode_beginning(raw: bytes, coding: str, most: int) -> tuple[bytes | None, bool]:
    """At most `most` bytes of what a coded body decodes to, and whether that is all; None if it cannot be decoded."""
    if coding in _GZIP:
        return _inflate(raw, _GZIP_BITS, most)
    if coding != "deflate":
        return None, False
    found = _inflate(raw, _ZLIB_BITS, most)
    return found if found[0] is not None else _inflate(raw, _RAW_BITS, most)


def _inflate(raw: bytes, bits: int, most: int) -> tuple[bytes | None, bool]:
    """The same for one format. A gzip body may have several members (RFC 1952 section 2.2)."""
    whole = bytearray()
    for _ in range(MOST_MEMBERS):
        stream = zlib.decompressobj(bits)
        try:
            whole += stream.decompress(raw, most - len(whole) + 1)
        except zlib.error:
            return None, False
        if len(whole) > most:
            return bytes(whole[:most]), False
        if not stream.eof:
            return bytes(whole), False
        raw = stream.unused_data
        if raw and bits != _GZIP_BITS:
            return None, False
        if not raw:
            return bytes(whole), True
    return None, False


_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


@value_class
class EventChange:
    """The result for an event: its new `data`, None for the same bytes. `is_dropped`: it is left out. `ends`: nothing
    follows it."""

    data: bytes | None = None
    is_dropped: bool = False
    ends: bool = False


# Takes the data of an event, whether that is all of it, and the size of the event in bytes.
FilterEvent = Callable[[bytes, bool, int], Awaitable[EventChange]]


class FilteredEvents:
    """A stream with filtered events. Has the methods that the stream of an answer needs: iteration and `aclose`."""

    def __init__(self, body: AsyncIterator[bytes], most: int, change: FilterEvent) -> None:
        self._body = body
        self._most = most
        self._change = change
        self._splitter = EventSplitter()
        self._events = deque[bytes]()
        self._skips = self._has_ended = self._is_over = False

    def __aiter__(self) -> FilteredEvents:
        return self

    async def __anext__(self) -> bytes:
        while not self._is_over:
            event, is_whole = await self._read_event()
            if not event:
                self._is_over = True
                break
            if self._skips:  # the rest of an event whose beginning was handed on
                self._skips = not is_whole
                continue
            self._skips = not is_whole
            shown = await self._filter(event, is_whole=is_whole)
            if shown:
                return shown
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Closes the stream early."""
        self._is_over = True
        await close_stream(self._body)

    async def _read_event(self) -> tuple[bytes, bool]:
        """The next event with the empty line behind it, or the beginning of a longer one and False. b'' at the end."""
        while not self._events:
            if self._splitter.size > self._most:
                beginning = self._splitter.take_rest()
                self._splitter.feed(beginning[-3:])  # the end of the event may begin here
                return beginning, False
            if self._has_ended:
                return self._splitter.take_rest(), True
            try:
                self._events.extend(self._splitter.feed(await anext(self._body)))
            except StopAsyncIteration:
                self._has_ended = True
        return self._events.popleft(), True

    async def _filter(self, event: bytes, *, is_whole: bool) -> bytes:
        data = b"\n".join(DATA.findall(event))
        if not data and is_whole:
            return event  # a comment
        change = await self._change(data, is_whole, len(event))
        self._is_over = self._is_over or change.ends
        if change.is_dropped:
            return b""
        return event if change.data is None else write_event(event, change.data)


def write_event(event: bytes, data: bytes) -> bytes:
    """An event with other data."""
    lines = _LINE_END.split(event.removeprefix(_BOM))
    others = [line for line in lines if line and not line.startswith(b"data:")]
    return b"\n".join([*others, *(b"data: " + line for line in data.split(b"\n"))]) + b"\n\n"

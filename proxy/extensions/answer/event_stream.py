"""Filters a stream of server-sent events: each event is handed on as soon as it is complete.

An event that is not changed keeps its bytes. No more than `most` bytes of an event are kept in memory; of a longer one,
only the beginning is filtered.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.upstream.faults import close_stream

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
# The end of the last line of an event, and the empty line behind it.
_EVENT_END: Final = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")


@value_class
class EventChange:
    """What becomes of an event: its new `data`, None for the same bytes. `is_dropped`: it is left out. `ends`: nothing
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
        self._waiting = bytearray()
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
        self._waiting.clear()
        await close_stream(self._body)

    async def _read_event(self) -> tuple[bytes, bool]:
        """The next event with the empty line behind it, or the beginning of a longer one and False. b'' at the end."""
        searched = 0
        while True:
            found = _EVENT_END.search(self._waiting, max(0, searched - 4))
            # A CR may be the first half of a CRLF whose second half has not come yet.
            is_sure = found is not None and (found.end() < len(self._waiting) or found[0][-1:] == b"\n")
            if found is not None and (is_sure or self._has_ended):
                return self._take(found.end()), True
            if len(self._waiting) > self._most:
                return self._take(len(self._waiting)), False
            if self._has_ended:
                return self._take(len(self._waiting)), True
            searched = len(self._waiting)
            try:
                self._waiting += await anext(self._body)
            except StopAsyncIteration:
                self._has_ended = True

    def _take(self, end: int) -> bytes:
        event = bytes(self._waiting[:end])
        del self._waiting[:end]
        return event

    async def _filter(self, event: bytes, *, is_whole: bool) -> bytes:
        lines = _LINE_END.split(event)
        data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        if not data and is_whole:
            return event  # a comment
        change = await self._change(b"\n".join(data), is_whole, len(event))
        self._is_over = self._is_over or change.ends
        if change.is_dropped:
            return b""
        return event if change.data is None else write_event(lines, change.data)


def write_event(lines: list[bytes], data: bytes) -> bytes:
    """The lines of an event with other data."""
    others = [line for line in lines if line and not line.startswith(b"data:")]
    return b"\n".join([*others, *(b"data: " + line for line in data.split(b"\n"))]) + b"\n\n"

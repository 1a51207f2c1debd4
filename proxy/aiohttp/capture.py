"""Captures the answer of a handler as it is written: whole, or as a stream at the pace of its reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from aiohttp.abc import AbstractStreamWriter

from proxy.core.model.values import Headers
from proxy.upstream import ReplyBroken
from proxy.upstream.http1.faults import INCOMPLETE

if TYPE_CHECKING:
    from multidict import CIMultiDict

# Pieces of a stream that wait for their reader; the handler waits then.
_MOST_WAITING: Final = 16
# Header fields by which aiohttp frames a message; the server that sends the answer writes its own.
_FRAMING: Final = frozenset({"connection", "transfer-encoding", "date", "server"})


class ResponseCapture(AbstractStreamWriter):
    """Stands where aiohttp writes a response to its client. `status` and `headers` count once `begun` is set."""

    def __init__(self, upstream: str) -> None:
        self.begun = asyncio.Event()
        self.status = 0
        self.headers: Headers = ()
        self._upstream = upstream
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING)
        self._broken = False

    # --- what aiohttp calls -------------------------------------------------------------------------------------------
    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """The head of the response."""
        self.status = int(status_line.split(" ", 2)[1])
        self.headers = tuple((name, value) for name, value in headers.items() if name.lower() not in _FRAMING)
        self.begun.set()

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """A piece of the body. Waits while many wait to be read."""
        if chunk:
            await self._pieces.put(bytes(chunk))

    async def write_eof(self, chunk: bytes = b"") -> None:
        """The last piece."""
        await self.write(chunk)
        await self._pieces.put(None)

    async def drain(self) -> None:
        """`write` has waited already."""

    def enable_chunking(self) -> None:
        """Does nothing: the server that sends the answer writes the chunks."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """Refuses: the request shows no accepted codings, so only a handler that does not look calls this."""
        raise NotImplementedError("a guarded handler does not compress its answer: leave that to what is in front")

    # --- what the reader calls ----------------------------------------------------------------------------------------
    @property
    def endless(self) -> bool:
        """Whether the answer is a stream of events, which may never end."""
        types = [value for name, value in self.headers if name.lower() == "content-type"]
        return bool(types) and types[-1].lower().startswith("text/event-stream")

    def break_off(self) -> None:
        """The handler has failed after its answer began."""
        self._broken = True
        if self._pieces.full():  # nobody may wait here: the reader hears of it instead of the last piece
            self._pieces.get_nowait()
        self._pieces.put_nowait(None)

    async def next_piece(self) -> bytes | None:
        """The next piece of the body, None behind the last one. Raises ReplyBroken where the handler has failed."""
        piece = await self._pieces.get()
        if piece is None and self._broken:
            raise ReplyBroken(INCOMPLETE.of(self._upstream))
        return piece


class CapturedStream:
    """The body of an answer that is not kept in memory: `first` are the bytes that came already."""

    def __init__(self, capture: ResponseCapture, first: bytes, handler: asyncio.Task[None]) -> None:
        self._capture = capture
        self._first = first
        self._handler = handler

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        piece = await self._capture.next_piece()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Ends the handler, whose answer nobody reads any more."""
        self._handler.cancel()

"""One connection to an upstream: an asyncio protocol that carries one exchange at a time.

    NEW --begin--> ACTIVE --finish_exchange--> IDLE --begin--> ACTIVE ...
    any state --fail, abort, retire, connection lost--> CLOSED

`begin` writes a request, `wait_ready` waits for as much of the answer as the caller keeps in memory, and `read_more`
gives a longer body piece by piece. Bytes outside of an exchange, invalid HTTP within one, and cancelling all close the
connection: it is reused only after a complete exchange.

Reading pauses while more bytes wait than the caller keeps; writing waits while the upstream does not read.
"""

from __future__ import annotations

import asyncio
import math
import select
import ssl
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Final, cast

from proxy.core.model.values import Executed
from proxy.driver import Signal
from proxy.upstream.faults import (
    FINELY_CHUNKED,
    RESPONSE_TIMEOUT,
    SPOKE_FIRST,
    SURPLUS,
    ExchangeError,
    FaultKind,
    lost_fault,
)
from proxy.upstream.http1.messages import END, AnswerReader

# Bytes of a streamed body held for a caller that reads slowly.
_HIGH_WATER: Final = 64 * 1024
# Bodies up to this go out in one piece with their head: one system call, and one packet where it fits.
_ONE_WRITE: Final = 64 * 1024
# Chunked framing parsed for one connection in one turn of the loop, and the size of a parsed piece that may hold some.
FRAMING_PER_TURN: Final = 16 * 1024
_PIECE: Final = 8 * 1024


class ConnectionState(Enum):
    """The state of a connection."""

    NEW = auto()  # has carried no exchange yet
    ACTIVE = auto()  # an exchange is under way
    IDLE = auto()  # between two exchanges
    CLOSED = auto()  # will carry no further exchange


# Constants, because CPython 3.11 looks up a member of an enum more slowly than it calls a function.
_ACTIVE: Final = ConnectionState.ACTIVE
_IDLE: Final = ConnectionState.IDLE
_CLOSED: Final = ConnectionState.CLOSED


class UpstreamConnection(asyncio.Protocol):
    """Carries one exchange at a time. Made by the pool, which `gone` tells once when the state becomes CLOSED.

    `ready` is set once the answer is complete, begins to stream, or has failed. `keep` is how many bytes of a body are
    collected; -1: the answer streams. `alarm` fires when the answer is overdue or, between exchanges, when the
    connection has been idle too long. `fault` is why the connection closed, `exchanges` how many it has begun. `lost`
    is done once the socket is closed. `stop_upload` ends the upload under way when the connection closes. These are
    plain attributes because every call reads them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, gone: Callable[[UpstreamConnection], None]) -> None:
        self.loop = loop
        self._gone = gone
        self.state = ConnectionState.NEW
        self.alarm = Alarm(loop, self._ring)
        self.ready = Signal()
        self.fault: FaultKind | None = None
        self._transport: asyncio.Transport | None = None
        self._poll: Callable[[int], list[tuple[int, int]]] = lambda _: []  # Windows has no select.poll
        self._reader: AnswerReader | None = None
        self.keep = 0
        self.exchanges = 0
        self._reading = True
        self._rest = b""  # bytes for the next turns of the loop, while the socket is not read
        self._resuming: asyncio.Handle | None = None
        self._drained: asyncio.Future[None] | None = None
        self.lost: asyncio.Future[None] = loop.create_future()
        self._clean = False
        self.stop_upload: Callable[[], object] | None = None

    # --- an exchange --------------------------------------------------------------------------------------------------
    def begin(self, reader: AnswerReader, head: bytes, body: bytes, keep: int, due: float) -> bool:
        """Writes a request; False if the connection turned out to be dead and nothing was written.

        A body of up to `keep` bytes is collected; a longer or endless one streams, and with -1 every one does. `due` is
        the time, on the loop's clock, by which the answer (or only its head, if it streams) has to be there.
        """
        transport = self._transport
        # A reused socket is polled for an end or unexpected bytes that the loop has not read yet.
        closed = transport is None or self.state is _CLOSED or transport.is_closing()
        if transport is None or closed or (self.exchanges and self._poll(0)):
            self.abort()
            return False
        self.exchanges += 1
        self.state, self._reader, self.keep, self.ready = _ACTIVE, reader, keep, Signal()
        self.alarm.at(due)
        if len(body) <= _ONE_WRITE:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        return True

    async def wait_ready(self) -> None:
        """Waits until the answer is complete or begins to stream. Raises ExchangeError."""
        reader = self.reader
        while self.fault is None and not reader.complete and not (reader.has_head and reader.size > self.keep):
            self.ready = Signal()
            await self.ready
        if self.fault is not None:
            raise ExchangeError(self.fault)

    async def read_more(self, idle_timeout: float) -> bytes:
        """The next piece of a streamed body, b'' at its end. Raises ExchangeError after the bytes before it."""
        reader = self.reader
        if self._awaits_more(reader):
            self.alarm.at(self.loop.time() + idle_timeout)
            while self._awaits_more(reader):
                self.ready = Signal()
                await self.ready
            self.alarm.at(math.inf)
        if reader.size:
            data = reader.take()
            self._read_on()
            return data
        if self.fault is not None:
            raise ExchangeError(self.fault)
        return b""

    def _awaits_more(self, reader: AnswerReader) -> bool:
        return not reader.size and not reader.complete and self.fault is None

    def write(self, data: bytes) -> None:
        """Sends more of a request's body, or of a tunnel. Raises ExchangeError if the connection is gone."""
        if self.fault is not None or self._transport is None or self._transport.is_closing():
            raise ExchangeError(self.fault or lost_fault(None, self.reader.begun, first=False))
        self._transport.write(data)

    async def drain(self, idle_timeout: float) -> None:
        """Waits while the upstream does not read. Raises ExchangeError after `idle_timeout` seconds."""
        if self._drained is None:
            return
        try:
            async with asyncio.timeout(idle_timeout):
                await asyncio.shield(self._drained)
        except TimeoutError:
            self.fail(RESPONSE_TIMEOUT)
            raise ExchangeError(RESPONSE_TIMEOUT) from None

    @property
    def reader(self) -> AnswerReader:
        """The answer of the exchange under way."""
        if self._reader is None:
            raise RuntimeError("no exchange is under way")
        return self._reader

    # --- between exchanges --------------------------------------------------------------------------------------------
    def finish_exchange(self, until: float) -> bool:
        """Ends the exchange; True if the connection may carry another (RFC 9112 section 9.3), until that loop time."""
        reader, transport = self._reader, self._transport
        if (
            transport is None
            or reader is None
            or self.fault is not None
            or not reader.complete
            or not reader.keep_alive
            or transport.is_closing()
            or self.stop_upload is not None  # the answer came before the whole request was sent
            or transport.get_write_buffer_size()
        ):
            self.abort()
            return False
        self.state, self._reader = _IDLE, None
        self.alarm.at(until)
        if self._rest or not self._reading:
            self._read_on()
        return True

    # --- the end ------------------------------------------------------------------------------------------------------
    def fail(self, fault: FaultKind) -> None:
        """Closes the connection because of a fault, which every waiting caller gets."""
        if self.fault is None:
            self.fault = fault
        self.abort()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Closes an idle connection in order, with TLS's close_notify."""
        self._leave()
        if self._transport is not None:
            self._transport.close()

    def _leave(self) -> None:
        self.alarm.off()
        self.ready.set()
        self._rest = b""
        if self._reader is not None:
            self._reader.drop()
        if self.stop_upload is not None:
            self.stop_upload()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self.state is not _CLOSED:
            self.state = _CLOSED
            self._gone(self)

    # --- what the loop calls ------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock.fileno(), select.POLLIN | getattr(select, "POLLRDHUP", 0))
            self._poll = poll.poll

    def data_received(self, data: bytes) -> None:
        if self.state is _CLOSED:
            return
        reader = self._reader
        if reader is None:
            self.fail(SPOKE_FIRST if not self.exchanges else replace(SURPLUS, executed=Executed.NO))
            return
        if self._rest:  # TLS may still hold bytes of a paused connection
            self._rest += data
            return
        try:
            if len(data) <= _PIECE:
                reader.feed(data)
            else:
                self._rest = _feed_some(reader, data)
        except ExchangeError as broken:
            self.fail(broken.fault)
            return
        is_fine = reader.chunked and self.keep >= 0 and reader.is_finely_chunked
        if is_fine and not reader.endless and reader.size <= self.keep:
            self.fail(FINELY_CHUNKED)
        elif reader.complete:
            self.ready.set()
        elif reader.has_head:  # a part of the body says whether the answer streams
            if self.keep >= 0 and (max(reader.length or 0, reader.size) > self.keep or reader.endless):
                self.keep = -1
            if self.keep < 0:
                self.ready.set()
                if reader.size > _HIGH_WATER:
                    self._pause()
        if self._rest:  # the caller's turn comes before the rest is read
            self._pause()
            self._read_on()

    def _pause(self) -> None:
        if self._reading and self._transport is not None:
            self._transport.pause_reading()
            self._reading = False

    def _read_on(self) -> None:
        """Continues reading, unless enough waits for the caller: first arrived bytes, in the next turn, then the
        socket."""
        if self._reader is not None and self.keep < 0 and self._reader.size > _HIGH_WATER:
            return
        if self._rest:
            if self._resuming is None:
                self._resuming = self.loop.call_soon(self._take_rest)
        elif not self._reading and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._reading = True

    def _take_rest(self) -> None:
        self._resuming = None
        if self._rest:
            rest, self._rest = self._rest, b""
            self.data_received(rest)
            self._read_on()

    def _end_rest(self) -> None:
        """Reads all that waits: nothing comes behind it."""
        while self._rest:
            rest, self._rest = self._rest, b""
            self.data_received(rest)

    def eof_received(self) -> None:
        # Without TLS's close_notify an attacker may have cut the answer (RFC 9112 section 9.8).
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        try:
            self._clean = tls is None or tls.read(1) == b""  # b"" after close_notify; otherwise OpenSSL raises
        except ssl.SSLError:
            self._clean = False
        self._end_rest()
        reader = self._reader
        if reader is None:
            self.retire()
        elif reader.eof(self._clean):
            self.ready.set()
        else:  # the answer cannot come any more, so the rest of the request is not sent
            self.fail(lost_fault(None, reader.begun, self.exchanges == 1))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_rest()
        reader = self._reader
        if reader is not None and self.fault is None and not reader.eof(self._clean and exc is None):
            self.fault = lost_fault(exc, reader.begun, self.exchanges == 1)
        self._leave()
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        self._drained = self.loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def _ring(self) -> None:
        if self._reader is None:
            self.retire()
        else:
            self.fail(RESPONSE_TIMEOUT)


def _feed_some(reader: AnswerReader, data: bytes) -> bytes:
    """Feeds the bytes of an answer to its reader, no more chunked framing than one turn of the loop may hold, and gives
    what is left for the next one. Otherwise a few answers in tiny chunks would delay everybody else. Raises
    ExchangeError."""
    at = framing = 0
    while at < len(data) and (framing + _PIECE <= FRAMING_PER_TURN or reader.complete):
        before = reader.framed - reader.content
        end = len(data)
        if reader.chunked or not reader.has_head:
            head_end = 0 if reader.has_head else data.find(END, at, at + _PIECE) + len(END)
            end = head_end if head_end >= len(END) else at + _PIECE
        reader.feed(data[at:end])
        at = end
        framing += reader.framed - reader.content - before
    return data[at:]


class Alarm:
    """Calls `ring` once at the due time, in seconds of the loop's clock, and never early. It is cheap to set: each call
    sets it twice, and it almost never fires.

    Setting a later time leaves the running loop timer in place; that timer notices that it fired early, and starts
    again for the rest. A busy connection therefore creates a loop timer every few seconds instead of two per call.
    """

    __slots__ = ("_due", "_handle", "_loop", "_ring", "_set_for")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._due = math.inf
        self._set_for = math.inf
        self._handle: asyncio.TimerHandle | None = None

    def at(self, due: float) -> None:
        """Replaces the due time; `math.inf` means never."""
        self._due = due
        if due < self._set_for:
            self._start(due)

    def off(self) -> None:
        """Cancels the timer for good."""
        self._due = math.inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _start(self, due: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._set_for = due
        self._handle = self._loop.call_at(due, self._wake)

    def _wake(self) -> None:
        self._handle = None
        self._set_for = math.inf
        if self._due == math.inf:
            return
        if self._loop.time() < self._due:
            self._start(self._due)
            return
        self._due = math.inf
        self._ring()

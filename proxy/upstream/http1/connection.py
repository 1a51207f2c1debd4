"""One connection to an upstream: an asyncio protocol that carries one exchange at a time.

An exchange begins with `begin`, which writes the request; `ready` waits until as much of the answer is there as the
caller asked for, `more` gives a body piece by piece. What the upstream sends outside an exchange, and any breach of
HTTP within one, ends the connection. So does cancelling: a connection whose exchange did not come to its end is never
used again.

Reading stops when more is waiting than the caller keeps, writing waits when the upstream does not read.
"""

from __future__ import annotations

import asyncio
import math
import select
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Final, cast

from proxy.core.model import Executed
from proxy.upstream.http1.alarm import Alarm
from proxy.upstream.http1.answer import AnswerReader
from proxy.upstream.http1.faults import RESPONSE_TIMEOUT, SPOKE_FIRST, SURPLUS, Broken, Fault, lost_fault

# Bytes of a streamed body held for a caller that reads slowly.
_HIGH_WATER: Final = 64 * 1024
# Bodies up to this go out in one piece with their head: one system call, and one packet where it fits.
_ONE_WRITE: Final = 64 * 1024


class Connection(asyncio.Protocol):
    """Made by the pool. `gone` is called once, as soon as it can carry no further exchange.

    `coming` is done when the answer of the exchange that `begin` began has come or begins to stream, or will not come.
    `alarm` is when the answer has to be there or, between exchanges, when the connection has lain idle long enough.
    `fault` is what ended the connection. These are attributes, because every call asks them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, gone: Callable[[Connection], None]) -> None:
        self._loop = loop
        self._gone: Callable[[Connection], None] | None = gone
        self.alarm = Alarm(loop, self._ring)
        self.coming: asyncio.Future[None] = loop.create_future()
        self.fault: Fault | None = None
        self._transport: asyncio.Transport | None = None
        self._look: Callable[[int], list[tuple[int, int]]] = _hears_nothing
        self._reader: AnswerReader | None = None
        self._keep = 0
        self._streamed = False
        self._exchanges = 0
        self._reading = True
        self._drained: asyncio.Future[None] | None = None
        self._lost = loop.create_future()
        self._clean = False
        self._stop_upload: Callable[[], object] | None = None

    # --- an exchange --------------------------------------------------------------------------------------------------
    def begin(self, reader: AnswerReader, head: bytes, body: bytes, keep: int, due: float) -> bool:
        """Writes a request; False where the connection was found dead with nothing written.

        `keep` is the length of the body that `ready` waits for; a longer or endless one is streamed, with -1 any.
        `due` is when, on the loop's clock, all this has to be there.
        """
        transport = self._transport
        # An idle socket may have something to tell that the loop has not heard yet: an end, or unasked bytes.
        if transport is None or self._gone is None or transport.is_closing() or (self._exchanges and self._look(0)):
            self.abort()
            return False
        self._exchanges += 1
        self._reader, self._keep, self._streamed = reader, keep, keep < 0
        self.coming = self._loop.create_future()
        self.alarm.at(due)
        if len(body) <= _ONE_WRITE:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        return True

    async def ready(self) -> None:
        """Waits until the answer is complete, or streams. Raises Broken."""
        reader = self.reader
        while self.fault is None and not reader.complete and not (reader.has_head and reader.size > self._keep):
            await self._wait()
        if self.fault is not None:
            raise Broken(self.fault)

    async def more(self, idle_timeout: float) -> bytes:
        """The next piece of a streamed body, b'' at its end. Raises Broken, after what came before the break."""
        reader = self.reader
        if self._awaits_more(reader):
            self.alarm.at(self._loop.time() + idle_timeout)
            while self._awaits_more(reader):
                await self._wait()
            self.alarm.at(math.inf)
        if reader.size:
            data = reader.take()
            if not self._reading and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
                self._reading = True
            return data
        if self.fault is not None:
            raise Broken(self.fault)
        return b""

    def _awaits_more(self, reader: AnswerReader) -> bool:
        return not reader.size and not reader.complete and self.fault is None

    def write(self, data: bytes) -> None:
        """Sends more of a request's body, or of a tunnel. Raises Broken where the connection is gone."""
        if self.fault is not None or self._transport is None or self._transport.is_closing():
            raise Broken(self.fault or lost_fault(None, self.reader.begun, first=False))
        self._transport.write(data)

    async def drain(self, idle_timeout: float) -> None:
        """Waits while the upstream does not read. Raises Broken(RESPONSE_TIMEOUT) when it does not for too long."""
        if self._drained is None:
            return
        try:
            async with asyncio.timeout(idle_timeout):
                await asyncio.shield(self._drained)
        except TimeoutError:
            self.fail(RESPONSE_TIMEOUT)
            raise Broken(RESPONSE_TIMEOUT) from None

    def uploading(self, stop: Callable[[], object] | None) -> None:
        """The request's body is still on its way; `stop` ends that with the connection. None: it is out."""
        self._stop_upload = stop

    @property
    def reader(self) -> AnswerReader:
        """The answer of the exchange under way."""
        if self._reader is None:
            raise RuntimeError("no exchange is under way")
        return self._reader

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it lives on."""
        return self._loop

    @property
    def first(self) -> bool:
        """Whether it has carried no exchange yet."""
        return self._exchanges == 0

    @property
    def ended(self) -> bool:
        """Whether it has told the pool that it is gone."""
        return self._gone is None

    # --- between exchanges --------------------------------------------------------------------------------------------
    def finish(self) -> bool:
        """Ends the exchange; whether the connection may carry another (RFC 9112 section 9.3). The alarm stays
        as it is, since it is set anew by whoever has the connection next."""
        reader, transport = self._reader, self._transport
        if (
            transport is None
            or reader is None
            or self.fault is not None
            or not reader.complete
            or not reader.keep_alive
            or transport.is_closing()
            or self._stop_upload is not None  # it answered before it had read the request
            or transport.get_write_buffer_size()
        ):
            self.abort()
            return False
        self._reader = None
        if not self._reading:
            transport.resume_reading()
            self._reading = True
        return True

    # --- the end ------------------------------------------------------------------------------------------------------
    def fail(self, fault: Fault) -> None:
        """Ends the connection and tells whoever waits why."""
        if self.fault is None:
            self.fault = fault
        self.abort()

    def abort(self) -> None:
        """Closes at once, whatever is under way."""
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    def retire(self) -> None:
        """Closes an idle connection in peace: TLS says goodbye."""
        self._leave()
        if self._transport is not None:
            self._transport.close()

    async def closed(self) -> None:
        """Waits until the socket is closed."""
        await self._lost

    def _leave(self) -> None:
        self.alarm.off()
        self._wake()
        if self._reader is not None:
            self._reader.drop()
        if self._stop_upload is not None:
            self._stop_upload()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self._gone is not None:
            gone, self._gone = self._gone, None
            gone(self)

    # --- what the loop calls ------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock.fileno(), select.POLLIN | getattr(select, "POLLRDHUP", 0))
            self._look = poll.poll

    def data_received(self, data: bytes) -> None:
        if self._gone is None:
            return
        reader = self._reader
        if reader is None:
            self.fail(SPOKE_FIRST if self.first else replace(SURPLUS, executed=Executed.NO))
            return
        try:
            reader.feed(data)
        except Broken as broken:
            self.fail(broken.fault)
            return
        if reader.complete:
            self._wake()
        elif reader.has_head:
            self._came(reader)

    def _came(self, reader: AnswerReader) -> None:
        """A part of the body is there, and not the end."""
        if not self._streamed and (max(reader.length or 0, reader.size) > self._keep or reader.endless):
            self._keep, self._streamed = -1, True
        if self._streamed:
            self._wake()
            if reader.size > _HIGH_WATER and self._reading and self._transport is not None:
                self._transport.pause_reading()
                self._reading = False

    def eof_received(self) -> None:
        self._clean = self._said_goodbye()
        reader = self._reader
        if reader is None:
            self.retire()
        elif reader.eof(self._clean):
            self._wake()
        else:  # at once: an answer cannot come any more, and the rest of the request need not go out
            self.fail(lost_fault(None, reader.begun, self._exchanges == 1))

    def _said_goodbye(self) -> bool:
        """Without TLS's close_notify the end may have been cut in by somebody on the way (RFC 9112 section 9.8)."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        if tls is None:
            return True
        try:
            return bool(tls.read(1) == b"")  # after close_notify; else OpenSSL would want more bytes
        except ssl.SSLError:
            return False

    def connection_lost(self, exc: Exception | None) -> None:
        reader = self._reader
        if reader is not None and self.fault is None and not reader.eof(self._clean and exc is None):
            self.fault = lost_fault(exc, reader.begun, self._exchanges == 1)
        self._leave()
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    # --- waiting ------------------------------------------------------------------------------------------------------
    def _wait(self) -> asyncio.Future[None]:
        """A future that is done when something has come; a cancelled one is left behind, nobody wakes it."""
        self.coming = self._loop.create_future()
        return self.coming

    def _wake(self) -> None:
        if not self.coming.done():
            self.coming.set_result(None)

    def _ring(self) -> None:
        if self._reader is None:
            self.retire()
        else:
            self.fail(RESPONSE_TIMEOUT)


def _hears_nothing(timeout: int) -> list[tuple[int, int]]:  # noqa: ARG001 - as of select.poll, which Windows has not
    return []

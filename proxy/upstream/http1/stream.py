"""Bodies piece by piece: those of answers, of uploads, and the tunnel of a switched protocol.

Reading ahead stops at the connection's high-water mark. A stream has no total timeout; an idle timeout runs while a
reader waits for the next piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from proxy.upstream.faults import BODY_BROKE, ExchangeError, ReplyBroken
from proxy.upstream.http1.connection import UpstreamConnection


class AnswerStream:
    """Iterates over an answer's body. Raises ReplyBroken; a reader that stops early calls `aclose`.

    `done` receives the connection once the body has been read to its end.
    """

    def __init__(
        self,
        connection: UpstreamConnection,
        upstream: str,
        idle_timeout: float,
        done: Callable[[UpstreamConnection], None],
    ) -> None:
        self._connection = connection
        self._upstream = upstream
        self._idle_timeout = idle_timeout
        self._done = done
        self._ended = False

    def __aiter__(self) -> AnswerStream:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            raise StopAsyncIteration
        try:
            data = await self._connection.read_more(self._idle_timeout)
        except ExchangeError as broken:
            self._ended = True
            raise ReplyBroken(broken.fault.of(self._upstream)) from broken
        except BaseException:
            await self.aclose()
            raise
        if not data:
            self._ended = True
            self._done(self._connection)
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Ends the answer. A body that was not read to its end costs the connection."""
        if not self._ended:
            self._ended = True
            self._connection.abort()

    def __del__(self) -> None:
        # A reader that forgets `aclose` must not cost the pool a connection.
        if not self._ended and not self._connection.loop.is_closed():
            self._connection.abort()


class Tunnel(AnswerStream):
    """The connection after `101 Switching Protocols`: iterate to receive, `send` to write."""

    async def send(self, data: bytes) -> None:
        """Sends bytes, and waits while the upstream does not read. Raises ReplyBroken."""
        try:
            self._connection.write(data)
            await self._connection.drain(self._idle_timeout)
        except ExchangeError as broken:
            raise ReplyBroken(broken.fault.of(self._upstream)) from broken


LAST_CHUNK: Final = b"0\r\n\r\n"


def encode_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body. `data` is not empty."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def start_upload(
    connection: UpstreamConnection, body: AsyncIterator[bytes], timeout: float, idle_timeout: float
) -> asyncio.Task[None]:
    """Sends a streamed request body in chunks, as a task beside the exchange, so that an early answer is seen
    in the meantime. The task's exception is what the body's own iterator raised.

    It reads from the client no faster than the upstream reads. It ends with the exchange, finished or not (RFC 9112
    section 7.5 lets a client stop once the answer has come). `timeout` is the time for the answer, in seconds from the
    last chunk on; `idle_timeout` is how long the upstream may stop reading.
    """

    async def send() -> None:
        try:
            async for piece in body:
                if piece:
                    connection.write(encode_chunk(piece))
                    await connection.drain(idle_timeout)
            connection.write(LAST_CHUNK)
            connection.stop_upload = None
        except ExchangeError:
            return  # the exchange has the fault already
        if not connection.reader.has_head:
            connection.alarm.at(connection.loop.time() + timeout)

    def note_end(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            connection.fail(BODY_BROKE)

    upload = connection.loop.create_task(send())
    upload.add_done_callback(note_end)
    connection.stop_upload = upload.cancel
    return upload

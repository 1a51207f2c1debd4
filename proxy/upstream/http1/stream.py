"""Answer bodies read piece by piece, and the tunnel of a switched protocol.

Reading ahead stops at the connection's high-water mark. A stream has no total timeout; an idle timeout runs while a
reader waits for the next piece (operations.md, HTTP correctness).
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.upstream.faults import ReplyBroken
from proxy.upstream.http1.connection import UpstreamConnection
from proxy.upstream.http1.faults import ExchangeError


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

"""A streamed request body: a task beside the exchange sends it, so that an early answer is seen meanwhile.

It reads from the client no faster than the upstream reads. It ends with the exchange, finished or not (RFC 9112
section 7.5 lets a client stop once the answer has come).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from proxy.upstream.http1.connection import UpstreamConnection
from proxy.upstream.http1.faults import BODY_BROKE, ExchangeError
from proxy.upstream.http1.wire import LAST_CHUNK, encode_chunk


class Upload:
    """Sends `body` in chunks. `timeout` is the time for the answer, in seconds from the last chunk on; `idle_timeout`
    is how long the upstream may stop reading."""

    def __init__(
        self, connection: UpstreamConnection, body: AsyncIterator[bytes], timeout: float, idle_timeout: float
    ) -> None:
        self._connection = connection
        self._body = body
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._task = connection.loop.create_task(self._run())
        self._task.add_done_callback(self._ended)
        connection.set_upload(self._task.cancel)

    @property
    def error(self) -> BaseException | None:
        """The exception that the body's own iterator raised, if any."""
        return self._task.exception() if self._task.done() and not self._task.cancelled() else None

    async def _run(self) -> None:
        connection = self._connection
        try:
            async for piece in self._body:
                if piece:
                    connection.write(encode_chunk(piece))
                    await connection.drain(self._idle_timeout)
            connection.write(LAST_CHUNK)
            connection.set_upload(None)
        except ExchangeError:
            return  # the exchange has the fault already
        if not connection.reader.has_head:
            connection.alarm.at(connection.loop.time() + self._timeout)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._connection.fail(BODY_BROKE)

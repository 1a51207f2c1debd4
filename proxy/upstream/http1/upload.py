"""A request body that is streamed: one task beside the exchange, so that an early answer is seen while it runs.

It reads from the client no faster than the upstream does. It ends with the exchange, done or not (RFC 9112 section
7.5 lets a client stop when the answer is there).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from proxy.upstream.http1.connection import Connection
from proxy.upstream.http1.faults import BODY_BROKE, Broken
from proxy.upstream.http1.wire import LAST_CHUNK, chunk


class Upload:
    """Sends `body` in chunks. `timeout` is the time for the answer, in seconds from the last chunk on; `idle_timeout`
    the longest time that the upstream may not read."""

    def __init__(self, connection: Connection, body: AsyncIterator[bytes], timeout: float, idle_timeout: float) -> None:
        self._connection = connection
        self._body = body
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._task = connection.loop.create_task(self._run())
        self._task.add_done_callback(self._ended)
        connection.uploading(self._task.cancel)

    @property
    def error(self) -> BaseException | None:
        """What the body's own iterator raised."""
        return self._task.exception() if self._task.done() and not self._task.cancelled() else None

    async def _run(self) -> None:
        connection = self._connection
        try:
            async for piece in self._body:
                if piece:
                    connection.write(chunk(piece))
                    await connection.drain(self._idle_timeout)
            connection.write(LAST_CHUNK)
            connection.uploading(None)
        except Broken:
            return  # the exchange knows
        if not connection.reader.has_head:
            connection.alarm.at(connection.loop.time() + self._timeout)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._connection.fail(BODY_BROKE)

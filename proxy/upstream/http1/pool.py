"""The connections to one upstream: idle ones used again, new ones up to a limit, then a queue in order of arrival.

A freed connection, or the right to make one, is handed to whoever has waited longest; nobody overtakes. The idle
connection used last is used next, so that the others can grow old and go. One is used again only if it is younger
than the idle limit, and its socket is silent (`Connection.begin` looks).
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from proxy.upstream.http1.connection import Connection
from proxy.upstream.http1.faults import CLOSED, CONNECT_TIMEOUT, CONNECTION_LIMIT, GIVEN_UP, UNAVAILABLE, Broken

Dial = Callable[[Callable[[], Connection], float], Awaitable[Connection]]


class Pool:
    """At most `limit` connections, made by `dial`; idle ones are closed after `idle` seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dial: Dial, limit: int, idle: float) -> None:
        self._loop = loop
        self._dial = dial
        self._limit = limit
        self._idle_limit = idle
        self._open = 0
        self._idle: dict[Connection, float] = {}
        self._all: set[Connection] = set()
        self._queue: OrderedDict[asyncio.Future[Connection | None], None] = OrderedDict()
        self._closed = False

    @property
    def open(self) -> int:
        """Connections there are or are being made."""
        return self._open

    def idle(self, now: float) -> Connection | None:
        """An idle connection, if there is one; the caller gives it back, or it ends. `now`: on the loop's clock."""
        while self._idle:
            connection, until = self._idle.popitem()
            if now < until:
                return connection
            connection.retire()
        return None

    async def take(self, within: float) -> Connection:
        """An idle connection or a new one, in at most so many seconds. Raises Broken."""
        if self._closed:
            raise Broken(CLOSED)
        now = self._loop.time()
        connection = self.idle(now)
        if connection is not None:
            return connection
        until = now + within
        if self._open >= self._limit:
            connection = await self._queued(within)
            if connection is not None:
                return connection
        else:
            self._open += 1
        return await self._make(until - self._loop.time())

    def give_back(self, connection: Connection, idle: float | None = None) -> None:
        """Takes a connection whose exchange came to its end. `idle`: the upstream's own idle time in seconds."""
        if not connection.finish():
            return
        limit = self._idle_limit if idle is None else min(self._idle_limit, idle)
        if self._closed or limit <= 0:
            connection.retire()
        else:
            self._park(connection, self._loop.time() + limit)

    async def close(self) -> None:
        """Closes every connection; who waits for one is told."""
        self._closed = True
        while (waiting := self._longest_waiting()) is not None:
            waiting.set_exception(Broken(CLOSED))
        leaving = list(self._all)
        for connection in leaving:
            if connection in self._idle:
                connection.retire()
            else:
                connection.fail(GIVEN_UP)
        for connection in leaving:
            await connection.closed()

    # --- new ones -----------------------------------------------------------------------------------------------------
    async def _make(self, within: float) -> Connection:
        """Connects; the caller has counted the connection already."""
        try:
            if within <= 0:
                raise Broken(CONNECT_TIMEOUT)
            connection = await self._dial(lambda: Connection(self._loop, self._gone), within)
            if connection.ended:
                raise Broken(connection.fault or UNAVAILABLE)
        except BaseException:
            self._free()
            raise
        self._all.add(connection)
        return connection

    def _free(self) -> None:
        """One connection less; the next in the queue may make one."""
        self._open -= 1
        waiting = self._longest_waiting()
        if waiting is not None:
            self._open += 1
            waiting.set_result(None)

    def _gone(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        if connection in self._all:  # one that broke while it was made is freed by `_make`
            self._all.discard(connection)
            self._free()

    # --- waiting ------------------------------------------------------------------------------------------------------
    async def _queued(self, within: float) -> Connection | None:
        """A connection that was given back, or None for the right to make one."""
        waiting: asyncio.Future[Connection | None] = self._loop.create_future()
        self._queue[waiting] = None
        try:
            async with asyncio.timeout(within):
                return await waiting
        except BaseException as error:
            self._unqueue(waiting)
            if isinstance(error, TimeoutError):
                raise Broken(CONNECTION_LIMIT) from None
            raise

    def _unqueue(self, waiting: asyncio.Future[Connection | None]) -> None:
        """Whoever gives up while something is already handed to them passes it on."""
        self._queue.pop(waiting, None)
        if waiting.cancelled() or waiting.exception() is not None:
            return
        connection = waiting.result()
        if connection is None:
            self._free()
        else:
            self._park(connection, self._loop.time() + self._idle_limit)

    def _park(self, connection: Connection, until: float) -> None:
        """Hands a free connection to whoever waits, or lays it by."""
        waiting = self._longest_waiting() if self._queue else None
        if waiting is not None:
            waiting.set_result(connection)
            connection.alarm.at(math.inf)
        else:
            self._idle[connection] = until
            connection.alarm.at(until)

    def _longest_waiting(self) -> asyncio.Future[Connection | None] | None:
        while self._queue:
            waiting, _ = self._queue.popitem(last=False)
            if not waiting.done():
                return waiting
        return None

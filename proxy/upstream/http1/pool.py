"""The connection pool of one upstream: reuses idle connections, opens new ones up to a limit, and queues after that.

Waiting callers are served in order of arrival: each gets a freed connection, or the right to open one. The most
recently used idle connection is reused first, so that the others grow old and close. A connection is reused only
while it is younger than the idle limit and its socket is silent (`Connection.begin` checks).

Some upstreams (llama.cpp) close a connection right behind a streamed answer, whatever they said. A request that meets
the end is lost: a POST that may have arrived is not sent again (RFC 9110 section 9.2.2). Once an upstream was seen to
do so, its connections rest behind streams until one outlives its rest.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from proxy.upstream.faults import CLOSED, CONNECT_TIMEOUT, CONNECTION_LIMIT, GIVEN_UP, UNAVAILABLE, ExchangeError
from proxy.upstream.http1.connection import ConnectionState, UpstreamConnection

# Seconds behind a stream: a close within the first is the upstream's way to end one, and a rest lasts the second.
_SOON: Final = 1.0
_REST: Final = 0.1

Dial = Callable[[Callable[[], UpstreamConnection], float], Awaitable[UpstreamConnection]]


class Pool:
    """Holds at most `limit` connections, made by `dial`; closes idle ones after `idle` seconds.

    `open` is how many are open or being opened; `idle` has those that wait for a request, each with its end.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, dial: Dial, limit: int, idle: float) -> None:
        self._loop = loop
        self._dial = dial
        self._limit = limit
        self._idle_limit = idle
        self.open = 0
        self.idle: dict[UpstreamConnection, float] = {}
        self._all: set[UpstreamConnection] = set()
        self._queue: OrderedDict[asyncio.Future[UpstreamConnection | None], None] = OrderedDict()
        self._closed = False
        self._streamed: tuple[UpstreamConnection | None, float] = (None, -math.inf)  # the latest, and when it ended
        self._rests = False

    def take_idle(self, now: float) -> UpstreamConnection | None:
        """Takes an idle connection, or gives None; the caller gives it back. `now` is on the loop's clock."""
        while self.idle:
            connection, until = self.idle.popitem()
            if now < until:
                return connection
            connection.retire()
        return None

    async def take(self, within: float) -> UpstreamConnection:
        """Takes an idle connection or opens a new one, within so many seconds. Raises ExchangeError."""
        if self._closed:
            raise ExchangeError(CLOSED)
        now = self._loop.time()
        if (connection := self.take_idle(now)) is not None:
            return connection
        until = now + within
        if self.open >= self._limit:
            if (connection := await self._wait_in_queue(within)) is not None:
                return connection
        else:
            self.open += 1
        return await self._make(until - self._loop.time())

    def give_back(self, connection: UpstreamConnection, idle: float | None = None, *, streamed: bool = False) -> None:
        """Frees a connection whose exchange is complete. `idle` is the upstream's own idle time in seconds; `streamed`:
        the length of the answer was not said before it."""
        now = self._loop.time()
        limit = self._idle_limit if idle is None else min(self._idle_limit, idle)
        if not connection.finish_exchange(now + limit):
            return
        if self._closed or limit <= 0:
            connection.retire()
            return
        if streamed:
            self._streamed = (connection, now)
        if streamed and self._rests:
            connection.alarm.at(math.inf)
            self._loop.call_later(_REST, self._end_rest, connection, now + limit)
        else:
            self._park(connection, now + limit)

    def _end_rest(self, connection: UpstreamConnection, until: float) -> None:
        if connection.state is ConnectionState.IDLE:
            self._rests = False
            connection.alarm.at(until)
            self._park(connection, until)

    async def close(self) -> None:
        """Closes every connection. Callers that wait for one get an ExchangeError."""
        self._closed = True
        while (waiting := self._longest_waiting()) is not None:
            waiting.set_exception(ExchangeError(CLOSED))
        leaving = list(self._all)
        for connection in leaving:
            if connection in self.idle:
                connection.retire()
            else:
                connection.fail(GIVEN_UP)
        for connection in leaving:
            await connection.lost

    # --- new ones -----------------------------------------------------------------------------------------------------
    async def _make(self, within: float) -> UpstreamConnection:
        """Opens a connection that the caller has already counted."""
        try:
            if within <= 0:
                raise ExchangeError(CONNECT_TIMEOUT)
            connection = await self._dial(lambda: UpstreamConnection(self._loop, self._forget), within)
            if connection.state is ConnectionState.CLOSED:
                raise ExchangeError(connection.fault or UNAVAILABLE)
        except BaseException:
            self._free()
            raise
        self._all.add(connection)
        return connection

    def _free(self) -> None:
        """Counts one connection less, and lets the next waiting caller open one."""
        self.open -= 1
        waiting = self._longest_waiting()
        if waiting is not None:
            self.open += 1
            waiting.set_result(None)

    def _forget(self, connection: UpstreamConnection) -> None:
        now, until = self._loop.time(), self.idle.pop(connection, math.inf)
        if self._streamed[0] is connection and now < min(until, self._streamed[1] + _SOON):
            self._rests = True
        if connection in self._all:  # `_make` frees one that broke while it was being opened
            self._all.discard(connection)
            self._free()

    # --- waiting ------------------------------------------------------------------------------------------------------
    async def _wait_in_queue(self, within: float) -> UpstreamConnection | None:
        """Waits for a freed connection; None is the right to open one."""
        waiting: asyncio.Future[UpstreamConnection | None] = self._loop.create_future()
        self._queue[waiting] = None
        try:
            async with asyncio.timeout(within):
                return await waiting
        except BaseException as error:
            self._queue.pop(waiting, None)
            if not waiting.cancelled() and waiting.exception() is None:  # passes on what was already handed over
                connection = waiting.result()
                if connection is None:
                    self._free()
                else:
                    until = self._loop.time() + self._idle_limit
                    connection.alarm.at(until)
                    self._park(connection, until)
            if isinstance(error, TimeoutError):
                raise ExchangeError(CONNECTION_LIMIT) from None
            raise

    def _park(self, connection: UpstreamConnection, until: float) -> None:
        """Hands a free connection to the longest waiting caller, or keeps it idle until its alarm."""
        waiting = self._longest_waiting() if self._queue else None
        if waiting is not None:
            waiting.set_result(connection)
            connection.alarm.at(math.inf)
        else:
            self.idle[connection] = until

    def _longest_waiting(self) -> asyncio.Future[UpstreamConnection | None] | None:
        while self._queue:
            waiting, _ = self._queue.popitem(last=False)
            if not waiting.done():
                return waiting
        return None

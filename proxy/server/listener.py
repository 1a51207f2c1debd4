"""The listener: aiohttp's low-level server. It creates connections, checks their timeouts and closes them.

`connection.py` holds what happens on one connection.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Final, cast

from aiohttp.web_server import Server

from proxy.server.connection import Begin, Connection, Service, respond
from proxy.server.service import Handle, RefuseHead, Timeouts

if TYPE_CHECKING:
    from aiohttp import web

# The timer checks all connections at least once a second, and four times within the shortest timeout.
_CHECK_INTERVAL: Final = 1.0
_CHECKS_PER_TIMEOUT: Final = 4
# How often `await_requests` and `await_responses` look at the connections, in seconds.
_POLL_INTERVAL: Final = 0.02


class Listener(Server):
    """Creates a `Connection` for each client. `handle` answers requests, `refuse` answers bytes that are not HTTP.
    `begin` may begin calls without a task."""

    def __init__(
        self, handle: Handle, refuse: RefuseHead, timeouts: Timeouts | None = None, begin: Begin | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(respond, handler_cancellation=True, loop=loop)
        self.service = Service(handle, refuse, timeouts or Timeouts(), begin)
        self._clock = loop
        self._open: set[Connection] = set()
        # Connections that were accepted and are not open yet: their TLS handshake is under way.
        self._arriving: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._emptied: asyncio.Future[None] | None = None
        self._next_check: asyncio.TimerHandle | None = None

    def __call__(self) -> Connection:
        """Creates the protocol of an accepted connection."""
        connection = Connection(self, self.service, self._clock)
        self._arriving.add(connection)
        return connection

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Registers an open connection. aiohttp calls this."""
        super().connection_made(handler, transport)
        connection = cast(Connection, handler)
        self._arriving.discard(connection)
        self._open.add(connection)
        if self._next_check is None:
            self._schedule_check()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forgets a closed connection. aiohttp calls this."""
        super().connection_lost(handler, exc)
        self._open.discard(cast(Connection, handler))
        if self._open:
            return
        if self._next_check is not None:
            self._next_check.cancel()
            self._next_check = None
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    async def await_requests(self, kept: float, fresh: float) -> None:
        """Gives clients time to send a request before their connections are closed: `kept` seconds if any connection
        is open, and up to `fresh` seconds while one has sent no request yet, is in the middle of a head, or is still
        in its TLS handshake."""
        now = self._clock.time()
        until, since = now + fresh, now - fresh
        if self._open or self._arriving:
            await asyncio.sleep(kept)
        while self._clock.time() < until and (  # noqa: ASYNC110 - connections set no event
            any(each.expects_request() for each in self._open)
            or any(each.idle_since >= since for each in self._arriving)  # an older handshake has probably failed
        ):
            await asyncio.sleep(_POLL_INTERVAL)

    async def await_responses(self) -> None:
        """Returns when no connection has a request that is under way, queued, or waiting in the kernel's buffer."""
        while any(each.is_occupied() for each in tuple(self._open)):  # noqa: ASYNC110 - as above
            await asyncio.sleep(_POLL_INTERVAL)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - applies to each of two steps
        """Closes idle connections at once and all others after their response. After `timeout` seconds it cancels
        the requests that remain; after `timeout` seconds more it returns."""
        for connection in tuple(self._open):
            connection.finish()
        await self._until_empty(timeout)
        for connection in tuple(self._open):
            connection.give_up()
        await self._until_empty(timeout)

    async def _until_empty(self, timeout: float | None) -> None:  # noqa: ASYNC109 - as above
        if self._open:
            self._emptied = self._clock.create_future()
            await asyncio.wait([self._emptied], timeout=timeout)

    def _schedule_check(self) -> None:
        times = self.service.timeouts
        pause = min(_CHECK_INTERVAL, min(times.head, times.idle, times.send) / _CHECKS_PER_TIMEOUT)
        self._next_check = self._clock.call_later(pause, self._check)

    def _check(self) -> None:
        """Checks the timeouts of all connections. One timer serves all of them, so that a request costs no timer."""
        now = self._clock.time()
        for connection in tuple(self._open):
            connection.check_timeouts(now)
        if self._open:
            self._schedule_check()

"""`Http1Upstream` sends requests over HTTP/1.1, with one connection pool per upstream.

    send / relay        one exchange; the border where ExchangeError becomes an UpstreamFault
    start               the same as `send` if nothing has to be waited for before the request goes out
      Pool.take         an idle connection, a new one, or a place in the queue
      UpstreamConnection.begin       writes the request, or reports that the connection was dead and nothing went out
      UpstreamConnection.wait_ready  waits for the answer: whole, or as a stream
      Pool.give_back    frees the connection

Nothing is sent twice: a second connection is tried only if `begin` wrote nothing. The rules of docs/upstream.md
decide above this layer whether a failed call may be sent again.

`Pool` reuses idle connections, opens new ones up to a limit, and queues after that. Waiting callers are served in order
of arrival: each gets a freed connection, or the right to open one. The most recently used idle connection is reused
first, so that the others grow old and close. A connection is reused only while it is younger than the idle limit and
its socket is silent (`UpstreamConnection.begin` checks).

Some upstreams (llama.cpp) close a connection right behind a streamed answer, whatever they said. A request that meets
the end is lost: a POST that may have arrived is not sent again (RFC 9110 section 9.2.2). Once an upstream was seen to
do so, its connections rest behind streams until one outlives its rest.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from proxy.core.model.value_class import value_class
from proxy.core.model.values import CheckedCall, UpstreamFault, UpstreamReply
from proxy.driver import Signal
from proxy.interfaces import UpstreamRequest
from proxy.upstream.faults import CLOSED, CONNECT_TIMEOUT, CONNECTION_LIMIT, GIVEN_UP, UNAVAILABLE, ExchangeError
from proxy.upstream.http1.connection import ConnectionState, UpstreamConnection
from proxy.upstream.http1.dial import Dialer, UpstreamSettings, read_origin
from proxy.upstream.http1.messages import CHUNKED, AnswerLimits, AnswerReader, ReadHeads, write_head
from proxy.upstream.http1.stream import AnswerStream, Tunnel, start_upload

_AT_ONCE: Final = -1  # for `UpstreamConnection.begin`: stream every answer
_LIMITS: Final = AnswerLimits()


class Http1Upstream:
    """Implements `Upstream`. Made inside a running event loop; `close` it.

    `send` allows `request.timeout` seconds for connecting, the request, and the whole answer (or its head, where the
    body streams). `relay` allows them for the head of the answer, counted from the end of the request's body; its
    answer streams unless it arrived whole.
    """

    def __init__(self, settings: UpstreamSettings, limits: AnswerLimits = _LIMITS) -> None:
        self._settings = settings
        self._limits = limits
        self._heads = ReadHeads()
        self._loop = asyncio.get_running_loop()
        self._origin = read_origin(settings.url, settings.socket)
        dial = Dialer(self._origin, settings.tls, settings.server_name).dial
        self._pool = Pool(self._loop, dial, settings.connections, settings.keepalive)

    def count_connections(self) -> tuple[int, int, int]:
        return self._pool.open, len(self._pool.idle), self._settings.connections

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamReply | UpstreamFault:  # noqa: ARG002 - the proof of the check
        try:
            body = request.body
            head = self._write_head(request, len(body))
            due = self._loop.time() + request.timeout
            reader = AnswerReader(request.method, self._limits, heads=self._heads)
            connection = await self._begin(reader, head, body, self._settings.buffer, due)
        except ExchangeError as broken:
            return self.tell_fault(broken)
        if request.passed_on is not None:
            request.passed_on()
        try:
            return await self._reply(connection, request)
        except ExchangeError as broken:
            return self.tell_fault(broken)

    def start(
        self,
        checked: CheckedCall,  # noqa: ARG002 - as above
        request: UpstreamRequest,
    ) -> Http1Exchange | None:
        """Implements `StartsExchanges`: sends a checked call on an idle connection; None (nothing sent) without one."""
        try:
            head = self._write_head(request, len(request.body))
        except ExchangeError:  # `send` tells why
            return None
        reader = AnswerReader(request.method, self._limits, heads=self._heads)
        now = self._loop.time()
        connection = self._pool.take_idle(now)
        if connection is None:
            return None
        if not connection.begin(reader, head, request.body, self._settings.buffer, now + request.timeout):
            return None
        if request.passed_on is not None:
            request.passed_on()
        return Http1Exchange(self, connection, request, connection.ready)

    def _write_head(self, request: UpstreamRequest, length: int, upgrade: str = "") -> bytes:
        target = request.target if request.is_from_root else self._origin.prefix + request.target
        if self._origin.query:
            target = self._origin.add_query(target)
        authority, headers = self._origin.authority, request.headers
        return write_head(request.method, target, authority, headers, length, upgrade, request.client_names)

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> UpstreamReply | UpstreamFault:
        """Sends what is not a call, streaming both ways; `request.body` is used if `body` is None.

        An `upgrade` among the request's headers requests that protocol; if the upstream agrees, the answer is 101 with
        a `Tunnel` as its body. What `body` raises before the answer begins is raised here.
        """
        try:
            upgrade = next((value for name, value in request.headers if name == "upgrade"), "")
            head = self._write_head(request, len(request.body) if body is None else CHUNKED, upgrade)
            due = self._loop.time() + request.timeout
            reader = AnswerReader(request.method, self._limits, bool(upgrade), self._heads)
            connection = await self._begin(reader, head, request.body if body is None else b"", _AT_ONCE, due)
            if body is None:
                if request.passed_on is not None:
                    request.passed_on()
                return await self._reply(connection, request)
            # The answer may come while the body is still being sent.
            connection.alarm.at(math.inf)
            upload = start_upload(connection, body, request.timeout, self._settings.idle_timeout)
            try:
                return await self._reply(connection, request)
            except ExchangeError:
                if upload.done() and not upload.cancelled() and (error := upload.exception()) is not None:
                    raise error from None
                raise
        except ExchangeError as broken:
            return self.tell_fault(broken)

    def tell_fault(self, broken: ExchangeError) -> UpstreamFault:
        """Returns what an exchange that has failed says of this upstream."""
        return broken.fault.of(self._settings.name)

    async def close(self) -> None:
        await self._pool.close()

    async def _begin(self, reader: AnswerReader, head: bytes, body: bytes, keep: int, due: float) -> UpstreamConnection:
        while True:
            connection = await self._pool.take(min(self._settings.connect_timeout, due - self._loop.time()))
            if connection.begin(reader, head, body, keep, due):
                return connection
            if not connection.exchanges:
                raise ExchangeError(connection.fault or UNAVAILABLE)

    async def _reply(self, connection: UpstreamConnection, request: UpstreamRequest) -> UpstreamReply:
        try:
            await connection.wait_ready()
        except BaseException:
            connection.abort()
            raise
        return self.take_reply(connection, request)

    def take_reply(self, connection: UpstreamConnection, request: UpstreamRequest) -> UpstreamReply:
        """The answer of an exchange that is ready; a whole one frees its connection. Raises ExchangeError."""
        if connection.fault is not None:
            connection.abort()
            raise ExchangeError(connection.fault)
        reader = connection.reader
        if reader.complete and reader.size <= self._settings.buffer:
            self._pool.give_back(connection)
            return UpstreamReply(reader.status, reader.headers, reader.take())
        connection.alarm.at(math.inf)
        connection.keep = _AT_ONCE
        kind = Tunnel if reader.switched else AnswerStream
        silence = self._settings.idle_timeout if request.silence is None else request.silence
        stream = kind(connection, self._settings.name, silence, self._pool.give_back)
        return UpstreamReply(reader.status, reader.headers, stream)


@value_class
class Http1Exchange:
    """Implements `interfaces.StartedExchange`: a request that has gone out on an idle connection."""

    upstream: Http1Upstream
    connection: UpstreamConnection
    request: UpstreamRequest
    ready: Signal

    def take(self) -> UpstreamReply | UpstreamFault:
        try:
            return self.upstream.take_reply(self.connection, self.request)
        except ExchangeError as broken:
            return self.upstream.tell_fault(broken)

    def abort(self) -> None:
        self.connection.abort()


# --- the pool ---------------------------------------------------------------------------------------------------------
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

    def give_back(self, connection: UpstreamConnection) -> None:
        """Frees a connection whose exchange is complete."""
        reader, now = connection.reader, self._loop.time()
        limit = self._idle_limit if reader.idle is None else min(self._idle_limit, reader.idle)
        if not connection.finish_exchange(now + limit):
            return
        if self._closed or limit <= 0:
            connection.retire()
            return
        streamed = connection.keep == _AT_ONCE and reader.length is None
        if streamed:
            self._streamed = (connection, now)
        if streamed and self._rests:
            connection.alarm.at(math.inf)
            self._loop.call_later(_REST, self._end_rest, connection, now + limit)
        elif self._queue:
            self._park(connection, now + limit)
        else:
            self.idle[connection] = now + limit

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

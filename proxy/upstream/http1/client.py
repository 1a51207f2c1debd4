"""`Http1Upstream` sends requests over HTTP/1.1, with one connection pool per upstream.

    send / relay        one exchange; the border where ExchangeError becomes an UpstreamFault
    start               the same as `send` where nothing has to be waited for before the request goes out
      Pool.take         an idle connection, a new one, or a place in the queue
      Connection.begin  writes the request, or reports that the connection was dead and nothing went out
      Connection.wait_ready  waits for the answer: whole, or as a stream
      Pool.give_back    frees the connection

Nothing is sent twice: a second connection is tried only where `begin` wrote nothing. The rules of contract section 7
decide above this layer whether a failed call may be sent again.

`write_head` writes a request as bytes (RFC 9112). The framing is written here alone, whatever the headers say: Host,
the length or coding of the body, and Connection for an upgrade. Text that would end a line early is refused, not
cleaned: a checked request cannot hold it, so it is an attack.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable
from itertools import compress
from typing import Final

from proxy.core.model.fields import NO_NAMES, OF_THE_SENDER, FieldNames
from proxy.core.model.values import CheckedCall, Headers, UpstreamFault, UpstreamReply
from proxy.interfaces import UpstreamRequest
from proxy.upstream.faults import UNAVAILABLE, UNSENDABLE, ExchangeError
from proxy.upstream.http1.answer import AnswerLimits, AnswerReader, ReadHeads
from proxy.upstream.http1.connection import UpstreamConnection
from proxy.upstream.http1.dial import Dialer, UpstreamSettings, read_origin
from proxy.upstream.http1.pool import Pool
from proxy.upstream.http1.stream import AnswerStream, Tunnel, start_upload

# Methods whose missing body is stated as length 0 (RFC 9110 section 8.6).
_LENGTH_ANYWAY: Final = frozenset(["POST", "PUT", "PATCH"])
_METHOD: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2: a token
_TARGET: Final = re.compile(r"[/*][!-~]*")  # origin-form or `*`: no space, no control, ASCII

# The rows of the headers of a request, each with a place for its value; and which of the headers they are, where some
# are left out.
Layout = tuple[str, tuple[bool, ...] | None]
# Layouts that are remembered, by a client's names and the names that are sent: routes have few that differ, but a
# client may leave out others with each request (`Connection`). And the characters of one.
_MOST_LAYOUTS: Final = 512
_LONGEST_LAYOUT: Final = 2048
layouts: dict[tuple[FieldNames, tuple[str, ...]], Layout] = {}

CHUNKED: Final = -1


def write_head(
    method: str,
    target: str,
    authority: str,
    headers: Headers,
    length: int,
    upgrade: str = "",
    client: FieldNames = NO_NAMES,
) -> bytes:
    """The bytes of a request up to its body.

    `length` is the body's in bytes, or `CHUNKED`. A `host` among `headers` replaces `authority`. `upgrade` is the
    protocol to ask for. `client`: the names of the client's headers, which stand as it wrote them.
    Raises ExchangeError(UNSENDABLE) where a line would break.
    """
    if not _TARGET.fullmatch(target) or not (method in _LENGTH_ANYWAY or _METHOD.fullmatch(method)):
        raise ExchangeError(UNSENDABLE)
    names, values = zip(*headers, strict=True) if headers else ((), ())
    rows, sent = layouts.get((client, names)) or _lay_out(client, names)
    if sent is not None:
        authority = next((value for name, value in headers if name == "host"), authority)
        values = tuple(compress(values, sent))
    texts = authority + "".join(values) + upgrade
    if "\n" in texts or "\r" in texts or "\0" in texts:
        raise ExchangeError(UNSENDABLE)
    framing = ""
    if length == CHUNKED:
        framing = "transfer-encoding: chunked\r\n"
    elif length or method in _LENGTH_ANYWAY:
        framing = f"content-length: {length}\r\n"
    if upgrade:
        framing += f"connection: upgrade\r\nupgrade: {upgrade}\r\n"
    # surrogateescape: bytes of a client's header that are not UTF-8 go out as they came.
    head = f"{method} {target} HTTP/1.1\r\nhost: {authority}\r\n{rows % values}{framing}\r\n"
    return head.encode("utf-8", "surrogateescape")


def _lay_out(client: FieldNames, names: tuple[str, ...]) -> Layout:
    """The rows of headers with these names, kept for the next request. Raises ExchangeError(UNSENDABLE) where a name
    would break one."""
    sent = tuple([name not in OF_THE_SENDER for name in names])
    spelt = [client.spellings.get(name, name).replace("%", "%%") for name in compress(names, sent)]
    if re.search("[\r\n\0]", "".join(spelt)):
        raise ExchangeError(UNSENDABLE)
    layout = "".join([f"{name}: %s\r\n" for name in spelt]), None if all(sent) else sent
    if client.is_shared and len(layout[0]) <= _LONGEST_LAYOUT:
        if len(layouts) >= _MOST_LAYOUTS:
            layouts.clear()
        layouts[client, names] = layout
    return layout


_AT_ONCE: Final = -1  # for `Connection.begin`: stream every answer
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
        """Implements `CountsConnections`."""
        return self._pool.open, len(self._pool.idle), self._settings.connections

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamReply | UpstreamFault:  # noqa: ARG002 - the proof of the check
        """Sends a checked call once and gives the answer. Cancelling the caller cancels the upstream request."""
        try:
            body, keep = request.body, self._settings.buffer
            head = self._write_head(request, len(body))
            now = self._loop.time()
            due = now + request.timeout
            reader = AnswerReader(request.method, self._limits, heads=self._heads)
            # The usual case takes one await: an idle connection exists, and the answer comes whole.
            connection = self._pool.take_idle(now)
            if connection is None or not connection.begin(reader, head, body, keep, due):
                connection = await self._begin(reader, head, body, keep, due)
            if request.passed_on is not None:
                request.passed_on()
            try:
                await connection.coming
            except BaseException:
                connection.abort()
                raise
            return self.take_whole(connection, reader) or await self._reply(connection, request)
        except ExchangeError as broken:
            return broken.fault.of(self._settings.name)

    def start(
        self,
        checked: CheckedCall,  # noqa: ARG002 - as above
        request: UpstreamRequest,
        on_ready: Callable[[], None],
    ) -> Http1Exchange | None:
        """Implements `StartsExchanges`: sends a checked call on an idle connection; None where there is none, and
        nothing was sent."""
        try:
            head = self._write_head(request, len(request.body))
        except ExchangeError:  # `send` tells why
            return None
        now = self._loop.time()
        connection = self._pool.take_idle(now)
        if connection is None:
            return None
        keep = self._settings.buffer
        reader = AnswerReader(request.method, self._limits, heads=self._heads)
        if not connection.begin(reader, head, request.body, keep, now + request.timeout, on_ready):
            return None
        if request.passed_on is not None:
            request.passed_on()
        return Http1Exchange(self, connection, reader, request)

    async def await_started(
        self, connection: UpstreamConnection, request: UpstreamRequest
    ) -> UpstreamReply | UpstreamFault:
        """The answer of a started exchange, as `send` gives it."""
        try:
            return await self._reply(connection, request)
        except ExchangeError as broken:
            return broken.fault.of(self._settings.name)

    def _write_head(self, request: UpstreamRequest, length: int, upgrade: str = "") -> bytes:
        target = request.target if request.is_from_root else self._origin.prefix + request.target
        authority, headers = self._origin.authority, request.headers
        return write_head(request.method, target, authority, headers, length, upgrade, request.client_names)

    def take_whole(self, connection: UpstreamConnection, reader: AnswerReader) -> UpstreamReply | None:
        """The answer, where it has come whole and may be kept in memory; its connection is free again."""
        if reader.complete and reader.size <= self._settings.buffer and connection.fault is None:
            self._pool.give_back(connection, reader.idle)
            return UpstreamReply(reader.status, reader.headers, reader.take())
        return None

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> UpstreamReply | UpstreamFault:
        """Sends what is not a call, streaming both ways; `request.body` is used if `body` is None.

        An `upgrade` among the request's headers asks for that protocol; where the upstream agrees, the answer is 101
        with a `Tunnel` as its body. What `body` raises before the answer begins is raised here.
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
            return broken.fault.of(self._settings.name)

    async def close(self) -> None:
        """Closes all connections."""
        await self._pool.close()

    async def _begin(self, reader: AnswerReader, head: bytes, body: bytes, keep: int, due: float) -> UpstreamConnection:
        """Writes the request to a connection that is alive."""
        while True:
            connection = self._pool.take_idle(self._loop.time())
            if connection is None:
                within = min(self._settings.connect_timeout, due - self._loop.time())
                connection = await self._pool.take(within)
            if connection.begin(reader, head, body, keep, due):
                return connection
            if not connection.exchanges:
                raise ExchangeError(connection.fault or UNAVAILABLE)

    async def _reply(self, connection: UpstreamConnection, request: UpstreamRequest) -> UpstreamReply:
        """The answer of the exchange under way."""
        try:
            await connection.wait_ready()
        except BaseException:
            connection.abort()
            raise
        reader = connection.reader
        if reader.complete and reader.size <= self._settings.buffer:
            body = reader.take()
            self._give_back(connection)
            return UpstreamReply(reader.status, reader.headers, body)
        connection.alarm.at(math.inf)
        kind = Tunnel if reader.switched else AnswerStream
        silence = self._settings.idle_timeout if request.silence is None else request.silence
        stream = kind(connection, self._settings.name, silence, self._give_back)
        return UpstreamReply(reader.status, reader.headers, stream)

    def _give_back(self, connection: UpstreamConnection) -> None:
        reader = connection.reader
        self._pool.give_back(connection, reader.idle, streamed=reader.length is None)


class Http1Exchange:
    """Implements `interfaces.StartedExchange`: a request that has gone out on an idle connection."""

    __slots__ = ("_connection", "_reader", "_reply", "_request", "_upstream")

    def __init__(
        self, upstream: Http1Upstream, connection: UpstreamConnection, reader: AnswerReader, request: UpstreamRequest
    ) -> None:
        self._upstream = upstream
        self._connection = connection
        self._reader = reader
        self._request = request
        self._reply: UpstreamReply | None = None

    def take(self) -> UpstreamReply | None:
        """The answer, where it is whole; None where it streams, or something is wrong."""
        self._reply = self._upstream.take_whole(self._connection, self._reader)
        return self._reply

    async def wait(self) -> UpstreamReply | UpstreamFault:
        """The answer, as `Upstream.send` gives it: the one that was taken, or the one that comes."""
        if self._reply is not None:
            return self._reply
        self._connection.on_ready = None
        return await self._upstream.await_started(self._connection, self._request)

    def abort(self) -> None:
        """Ends the exchange: nobody waits for its answer."""
        if self._reply is None:
            self._connection.on_ready = None
            self._connection.abort()

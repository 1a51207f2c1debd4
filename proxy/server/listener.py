"""The listener: aiohttp's low-level server. It creates connections, checks their timeouts and closes them.

`connection.py` holds what happens on one connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import struct
import sys
import weakref
from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from aiohttp.web_server import Server

from proxy.config.model import Address, ServerTls
from proxy.server.connection import Connection, Service, respond
from proxy.server.http.reading import Begin
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
        """Waits for requests before connections are closed: `kept` seconds if any connection is open. It waits up to
        `fresh` seconds while one has sent no request yet, is in the middle of a head, or in its TLS handshake."""
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


# --- opens and closes ports -------------------------------------------------------------------------------------------
# Opens and closes ports. Closing a port loses no connection that the kernel has already accepted for it.
#
# The kernel completes handshakes on its own and queues the connections; closing a listening socket resets those that
# are still queued. Therefore `Port.close` first drops the packets that begin a handshake, gives handshakes under way
# time to end, and empties the queue before it closes the socket. A client whose first packet was dropped sends it
# again after a second and then finds the port closed.

# How many connections the kernel queues: enough for a burst.
_BACKLOG: Final = 1024
# How long a TCP handshake that has begun may still take, and a TLS handshake on a queued connection, in seconds.
_HANDSHAKE: Final = 0.05
_TLS_HANDSHAKE: Final = 2.0
# Seconds that a new connection has for its handshake of TLS: asyncio gives a minute.
NEW_TLS_HANDSHAKE: Final = 10.0
# A classic packet filter (socket(7), SO_ATTACH_FILTER) for a listening socket: load the flags of the TCP header; where
# SYN is set drop the packet, else take it whole.
_SO_ATTACH_FILTER: Final = 26
_DROP_SYN: Final = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
# Why a port could not be opened and what to do, where the system's message does not say it.
_REMEDIES: Final = {
    errno.EADDRINUSE: "another process listens there  (end it, or choose another address)",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "this process may not  (ports below 1024 need the right to; a unix socket a folder it can write to)",
    errno.ENOENT: "its folder does not exist",
}


class ListenError(OSError):
    """An address that cannot be listened at. The text names the key of the config and the reason."""


@dataclass(slots=True)
class Port:
    """One open port: its server, the connections on it, and its address."""

    server: asyncio.Server
    listener: Listener
    address: Address
    tls: ssl.SSLContext | None = None
    _queues: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The port's address, such as http://127.0.0.1:8080, or unix:/path."""
        return str(self.address) if self.address.unix else f"http{'s' if self.tls else ''}://{self.address}"

    async def close(self) -> None:
        """Stops accepting. Serves the connections that were queued. A second call has no effect."""
        queues, self._queues = self._queues, []
        if [queue for queue in queues if _drop_handshakes(queue)]:
            await asyncio.sleep(_HANDSHAKE)
        self.server.close()
        loop = asyncio.get_running_loop()
        wait = _TLS_HANDSHAKE if self.tls else None
        waiting = [
            loop.connect_accepted_socket(self.listener, connection, ssl=self.tls, ssl_handshake_timeout=wait)
            for queue in queues
            for connection in _empty_queue(queue)
        ]
        await asyncio.gather(*waiting, return_exceptions=True)  # an exception means that the client has gone


def _empty_queue(queue: socket.socket) -> list[socket.socket]:
    queue.setblocking(False)
    waiting: list[socket.socket] = []
    with queue, contextlib.suppress(OSError):  # the queue is empty
        while True:
            waiting.append(queue.accept()[0])
    return waiting


def _drop_handshakes(queue: socket.socket) -> bool:
    """Makes a listening socket drop the first packet of every handshake, and returns whether it could. Otherwise a
    connection could arrive after the queue was emptied and before the socket is closed. Only Linux has the filter."""
    if sys.platform != "linux" or queue.family == socket.AF_UNIX:
        return False
    code = array("B", b"".join(struct.pack("HBBI", *step) for step in _DROP_SYN))
    program = struct.pack("HL", len(_DROP_SYN), code.buffer_info()[0])
    try:
        queue.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
    except OSError:  # a sandbox may forbid it
        return False
    return True


async def open_port(
    listener: Listener,
    address: Address,
    *,
    key: str,
    shared: bool = False,
    tls: ssl.SSLContext | None = None,
    mode: int | None = None,
    held: socket.socket | None = None,
) -> Port:
    """Listens at an address; port 0 takes any free one. `shared`: other processes listen there too (SO_REUSEPORT).
    `mode`: the permissions of a unix socket, None for what the umask leaves. `key`: where the config says the address.
    `held`: a socket that listens already; it is closed if it is not at this address.

    Raises ListenError.
    """
    if held is not None and held.getsockname() == (address.host, address.port):
        server = await asyncio.get_running_loop().create_server(listener, sock=held, backlog=_BACKLOG)
        return Port(server, listener, address, None, _queues(server))
    try:
        if held is not None:
            held.close()
        try:
            return await _open(listener, address, shared=shared, tls=tls, mode=mode)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not address.or_free:
                raise
            return await _open(listener, replace(address, port=0), shared=shared, tls=tls, mode=mode)
    except OSError as error:
        why = _REMEDIES.get(error.errno or 0) or error.strerror or str(error)
        raise ListenError(f"`{key}` {address}: {why}") from error


async def _open(
    listener: Listener, address: Address, *, shared: bool, tls: ssl.SSLContext | None, mode: int | None
) -> Port:
    loop = asyncio.get_running_loop()
    wait = None if tls is None else NEW_TLS_HANDSHAKE
    if address.unix:
        # The umask limits the permissions of the socket from the first moment on.
        umask = None if mode is None else os.umask(0o777 & ~mode)
        try:
            server = await loop.create_unix_server(
                listener, address.unix, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=wait
            )
        finally:
            if umask is not None:
                os.umask(umask)
        return Port(server, listener, address, tls, _queues(server))
    if (family := _literal(address.host)) is not None:
        # The socket is bound here: the loop would resolve the number like a name, and load the IDNA tables for it.
        bound = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG, reuse_port=shared)
        server = await loop.create_server(listener, sock=bound, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=wait)
    else:
        server = await loop.create_server(
            listener, address.host, address.port, backlog=_BACKLOG, reuse_port=shared or None, ssl=tls,
            ssl_handshake_timeout=wait,
        )  # fmt: skip
    found = Address(address.host, server.sockets[0].getsockname()[1])
    return Port(server, listener, found, tls, _queues(server))


def _literal(host: str) -> socket.AddressFamily | None:
    """The family of a numeric address; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return None


def _queues(server: asyncio.Server) -> list[socket.socket]:
    """Second handles of the listening sockets: closing the server closes its own before their queue can be emptied."""
    return [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]


# --- TLS for calls that come in: TLS 1.2 or newer, HTTP/1.1, a certificate of the client where the config asks --------
def make_server_context(tls: ServerTls) -> ssl.SSLContext:
    """A context for a listening port. Raises OSError or ssl.SSLError where a file cannot be used."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # of TLS 1.2: a client could have keys made again without end
    context.set_alpn_protocols(["http/1.1"])  # a client that speaks HTTP/2 too must not choose it
    renew(context, tls)
    if tls.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(tls.client_ca)
    return context


def renew(context: ssl.SSLContext, tls: ServerTls) -> None:
    """Shows the files' present certificate to every new connection. Raises as `make_server_context`."""
    # Without a password OpenSSL would ask the terminal for one.
    context.load_cert_chain(tls.cert, tls.key or None, lambda: "")

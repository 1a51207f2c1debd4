"""Opening and closing ports. A port is closed without losing a connection that a client was told it has.

The kernel completes handshakes on its own and queues the connections; closing the socket resets those that nobody has
taken out yet. So the queue is emptied once more, in the same instant in which the socket is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from proxy.app.listener import Listener
from proxy.config.model import Address

# Connections the kernel keeps until we take them: a burst's worth.
_BACKLOG: Final = 1024
# Why a port could not be opened, and what to do, where the system's own words leave that open.
_REMEDIES: Final = {
    errno.EADDRINUSE: "another process listens there  (end it, or choose another address)",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "this process may not  (ports below 1024 need the right to; a unix socket a folder it can write to)",
    errno.ENOENT: "its folder does not exist",
}


class ListenError(OSError):
    """An address that nothing can be served at; the text says which key of the config it is, and why."""


@dataclass(slots=True)
class Port:
    """One open port: its server, the connections on it, and where it is."""

    server: asyncio.Server
    listener: Listener
    address: Address
    tls: ssl.SSLContext | None = None
    _queues: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it is, such as http://127.0.0.1:8080, or unix:/path."""
        return str(self.address) if self.address.unix else f"http{'s' if self.tls else ''}://{self.address}"

    async def close(self) -> None:
        """Accepts nothing more. Connections that were queued are served; closing twice does no harm."""
        self.server.close()
        waiting = [connection for queue in self._queues for connection in _emptied(queue)]
        self._queues.clear()
        loop = asyncio.get_running_loop()
        for connection in waiting:
            await loop.connect_accepted_socket(self.listener, connection, ssl=self.tls)


def _emptied(queue: socket.socket) -> Iterator[socket.socket]:
    """The connections that wait on a listening socket, which is closed then."""
    queue.setblocking(False)
    with queue:
        while True:
            try:
                yield queue.accept()[0]
            except OSError:  # none left
                return


async def open_port(
    listener: Listener,
    address: Address,
    *,
    key: str,
    shared: bool = False,
    tls: ssl.SSLContext | None = None,
    mode: int | None = None,
) -> Port:
    """Listens at an address; port 0 takes any free one. `shared`: other processes listen there too (SO_REUSEPORT).
    `mode`: the permissions of a unix socket, None for what the umask leaves. `key`: where the config says the address.

    Raises ListenError.
    """
    try:
        return await _opened(listener, address, shared=shared, tls=tls, mode=mode)
    except OSError as error:
        why = _REMEDIES.get(error.errno or 0) or error.strerror or str(error)
        raise ListenError(f"`{key}` {address}: {why}") from error


async def _opened(
    listener: Listener, address: Address, *, shared: bool, tls: ssl.SSLContext | None, mode: int | None
) -> Port:
    loop = asyncio.get_running_loop()
    if address.unix:
        with _permitting(mode):
            server = await loop.create_unix_server(listener, address.unix, backlog=_BACKLOG, ssl=tls)
        return Port(server, listener, address, tls, _queues(server))
    if (family := _literal(address.host)) is not None:
        # Bound here, as the loop would look the number up like a name, and load the tables of international ones.
        bound = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG, reuse_port=shared)
        server = await loop.create_server(listener, sock=bound, backlog=_BACKLOG, ssl=tls)
    else:
        server = await loop.create_server(
            listener, address.host, address.port, backlog=_BACKLOG, reuse_port=shared or None, ssl=tls
        )
    found = Address(address.host, server.sockets[0].getsockname()[1])
    return Port(server, listener, found, tls, _queues(server))


def _literal(host: str) -> socket.AddressFamily | None:
    """The family of an address written in numbers; None of a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return family
    return None


@contextlib.contextmanager
def _permitting(mode: int | None) -> Iterator[None]:
    """What is made inside has at most these permissions. Set before, not after: there is no moment with others."""
    if mode is None:
        yield
        return
    before = os.umask(0o777 & ~mode)
    try:
        yield
    finally:
        os.umask(before)


def _queues(server: asyncio.Server) -> list[socket.socket]:
    """Second handles of the listening sockets: the server closes its own before the queue could be emptied."""
    return [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]

"""Reads the address of an upstream, and connects to it by TCP or unix socket, with or without TLS.

Every failure to connect says `executed: no`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, unquote_plus, urlsplit

from proxy.core.model.value_class import value_class
from proxy.upstream.faults import CONNECT_ERRORS, ExchangeError, connect_fault
from proxy.upstream.http1.connection import UpstreamConnection

_PORTS: Final = {"http": 80, "https": 443}


@value_class
class UpstreamSettings:
    """One upstream. Times in seconds, sizes in bytes.

    `url` is http or https with an optional path prefix; `socket` is a unix socket to use instead of the network.
    `keepalive` is how long an idle connection is kept: less than the 5 s after which uvicorn closes its side, so that
    no POST meets a dead socket. An answer longer than `buffer` is streamed instead of kept in memory; `idle_timeout` is
    the longest silence within such a stream. `tls` is a ready context, or None for the system's trust store.
    `server_name` is the name in the certificate, where it differs from the URL's host.
    """

    name: str
    url: str
    socket: str | None = None
    tls: ssl.SSLContext | None = None
    connect_timeout: float = 2.0
    keepalive: float = 4.0
    idle_timeout: float = 300.0
    connections: int = 256
    buffer: int = 1024 * 1024
    server_name: str | None = None


@value_class
class Origin:
    """`host` and `port` to connect to, or the path of a unix `socket`; `authority` is the Host header.

    `prefix` goes before every target and does not end in a slash; `query` goes with every target. `literal` says that
    the host is an IP address.
    """

    host: str
    port: int
    tls: bool
    authority: str
    prefix: str = ""
    socket: str | None = None
    literal: bool = False
    query: str = ""

    def add_query(self, target: str) -> str:
        """A target with the origin's own query. A parameter of the same name in the target is dropped, because servers
        differ in which of two they read."""
        path, _, sent = target.partition("?")
        own = set(_read_names(self.query))
        kept = [pair for pair in sent.split("&") if pair and own.isdisjoint(_read_names(pair))]
        return f"{path}?{'&'.join([self.query, *kept])}"


# Some servers begin a parameter at `;` too.
_PAIRS: Final = re.compile("[&;]")


def _read_names(query: str) -> Iterator[str]:
    """The names in a query, without regard to their case, which some servers ignore."""
    return (unquote_plus(pair.partition("=")[0]).casefold() for pair in _PAIRS.split(query))


def read_origin(url: str, socket: str | None = None) -> Origin:
    """Reads `http://host:port/prefix?query`, `https://...`, `unix:/path` or `http+unix://%2Fpath/prefix`.

    `socket` is a unix socket to use instead of the network; the URL then gives the Host header, the scheme and the
    prefix. Raises ValueError, which does not quote the URL: it may hold a secret.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "unix":
        return Origin("localhost", 0, False, "localhost", socket="/" + rest.lstrip("/"))
    if scheme == "http+unix":
        parts = urlsplit(url)
        return Origin(
            "localhost", 0, False, "localhost", parts.path.rstrip("/"), unquote(parts.netloc), query=parts.query
        )
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise ValueError("an upstream's URL is http://host:port, https://host:port, unix:/path or http+unix://")
    host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    name = host if host.isascii() else host.encode("idna").decode("ascii")
    shown = f"[{name}]" if ":" in name else name
    authority = shown if port == _PORTS[parts.scheme] else f"{shown}:{port}"
    try:
        ipaddress.ip_address(name)
        literal = True
    except ValueError:
        literal = False
    return Origin(name, port, parts.scheme == "https", authority, parts.path.rstrip("/"), socket, literal, parts.query)


# Seconds for the peer's close_notify when TLS is closed in order; nobody waits for it.
_TLS_GOODBYE: Final = 1.0

Factory = Callable[[], UpstreamConnection]


class Dialer:
    """Connects to one origin. `tls` applies to https; `server_name` is the name in the certificate."""

    def __init__(self, origin: Origin, tls: ssl.SSLContext | None, server_name: str | None = None) -> None:
        self._origin = origin
        self._options: dict[str, Any] = {}
        if origin.tls:
            self._options = {
                "ssl": tls or ssl.create_default_context(),
                "server_hostname": server_name or origin.host,
                "ssl_shutdown_timeout": _TLS_GOODBYE,
            }

    async def dial(self, make: Factory, within: float) -> UpstreamConnection:
        """A new connection, in at most so many seconds. Raises ExchangeError."""
        try:
            async with asyncio.timeout(within):
                return await self._connect(make, within)
        except CONNECT_ERRORS as error:
            raise ExchangeError(connect_fault(error, self._origin.tls)) from error

    async def _connect(self, make: Factory, within: float) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        if self._origin.socket is not None:
            return (await loop.create_unix_connection(make, self._origin.socket, **self._options))[1]
        origin = self._origin
        addresses = [(origin.host, origin.port)]
        if not origin.literal:  # a name is resolved for each connection, because its address changes with its pod
            found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys((str(address[0]), origin.port) for *_, address in found))
        refused: Exception | None = None
        for at, (host, port) in enumerate(addresses):
            try:
                # The first of several addresses gets half of the time, so that the others still have some.
                async with asyncio.timeout(within / 2 if at < len(addresses) - 1 else None):
                    return (await loop.create_connection(make, host, port, **self._options))[1]
            except ssl.SSLError:
                raise  # a server answered, so the network is not at fault
            except OSError as error:
                refused = refused or error
        raise refused or OSError("its name has no address")


def make_client_context(
    authorities: Path | None = None,
    certificate: Path | None = None,
    key: Path | None = None,
    password: str | None = None,
    *,
    verify: bool = True,
) -> ssl.SSLContext:
    """Makes a context that trusts `authorities` (a PEM file) instead of the system's store, and presents `certificate`.

    `certificate` and `key` are PEM files; the key may be in the certificate's file. Host names are checked, and TLS
    is at least 1.2. Without `verify` every certificate is accepted, so nothing protects against a man in the middle.
    Raises OSError or ssl.SSLError if a file cannot be read.
    """
    context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])  # keeps a server that also speaks HTTP/2 from choosing it
    if certificate is not None:
        # Without a password OpenSSL would ask on the terminal.
        context.load_cert_chain(certificate, key, password if password is not None else lambda: "")
    return context

"""What an upstream's connections are made from. Values alone; `app/outbound.py` fills them from the config."""

from __future__ import annotations

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One upstream. Times in seconds, sizes in bytes.

    `url` is http or https with an optional path prefix; `socket` a unix socket to use instead of the network.
    `keepalive` is how long an idle connection is kept: less than the 5 s after which uvicorn closes its side, so that a
    POST does not hit a dead socket. `buffer` is the longest answer kept in memory, longer ones stream; `idle_timeout`
    is the longest silence within a stream. `tls` is a ready context, or None for the system's trust store;
    `server_name` is what the certificate has to carry where that is not the url's host.
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

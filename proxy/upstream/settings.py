"""The settings of an upstream's connections: values only, filled from the config by `server/setup/upstreams.py`."""

from __future__ import annotations

import ssl

from proxy.core.model.value_class import value_class


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

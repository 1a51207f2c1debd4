"""The connections to one upstream, as the config describes them: its address, unix socket, TLS and limits."""

from __future__ import annotations

import ssl
from pathlib import Path

from proxy.config.model import Upstream as UpstreamEntry
from proxy.config.model import UpstreamTls
from proxy.config.secrets import reveal
from proxy.interfaces import Upstream
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import Http1Upstream, client_context


def make_upstream(entry: UpstreamEntry) -> Upstream:
    """Connections of our own. Must be called inside the event loop."""
    return Http1Upstream(settings_of(entry))


def settings_of(entry: UpstreamEntry) -> UpstreamSettings:
    """What every implementation of `Upstream` is made from. Reads certificates, which `load` has read before."""
    return UpstreamSettings(
        entry.name,
        reveal(entry.url),
        socket=entry.socket or None,
        tls=None if entry.tls is None else _context(entry.tls),
        server_name=(entry.tls.server_name or None) if entry.tls is not None else None,
        connect_timeout=entry.connect_timeout,
        keepalive=entry.pool_idle,
        idle_timeout=entry.idle_timeout,
        connections=entry.pool_connections,
        buffer=entry.buffer,
    )


def _context(tls: UpstreamTls) -> ssl.SSLContext:
    return client_context(_path(tls.ca), _path(tls.cert), _path(tls.key), verify=tls.verify)


def _path(text: str) -> Path | None:
    return Path(text) if text else None

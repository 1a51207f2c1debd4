"""Imports aiohttp without reading the system's certificates, which `aiohttp.connector` does when it is imported.

That takes 20 ms of CPU and 1 MB, and a plain config makes no TLS connection with aiohttp's client.

The context that the connector makes is a stand-in: its first TLS connection makes the usual one. It is there for hooks
of the operator's own as well, which may use aiohttp's client.
"""

from __future__ import annotations

import ssl
import sys
from functools import cache
from typing import Any, Final

_make_usual: Final = ssl.create_default_context


class LazyContext(ssl.SSLContext):
    """A context for clients that makes `ssl.create_default_context()` at its first connection, and leaves all to it."""

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        """Begins a connection over buffers, as asyncio and uvloop do."""
        return _find_usual().wrap_bio(*args, **named)

    def wrap_socket(self, *args: Any, **named: Any) -> ssl.SSLSocket:
        """Begins a connection over a socket."""
        return _find_usual().wrap_socket(*args, **named)


@cache
def _find_usual() -> ssl.SSLContext:
    context = _make_usual()
    context.set_alpn_protocols(["http/1.1"])  # as the connector does
    return context


def _make_lazy(*_args: Any, **_named: Any) -> ssl.SSLContext:
    return LazyContext(ssl.PROTOCOL_TLS_CLIENT)


def _import_aiohttp() -> None:
    if "aiohttp" in sys.modules:
        return
    ssl.create_default_context = _make_lazy
    try:
        import aiohttp  # noqa: F401
    finally:
        ssl.create_default_context = _make_usual


_import_aiohttp()

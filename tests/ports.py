"""Ports that a program must be told beforehand, because it cannot listen on port 0 and say which one it got.

A port that was merely found free can be taken by a test that runs beside, or by any outgoing connection. So each one
is held: a socket bound with SO_REUSEADDR that does not listen keeps the kernel from giving the port to anyone who asks
for port 0 or connects, while a server that sets SO_REUSEADDR, as servers do, may still listen there.
"""

from __future__ import annotations

import atexit
import contextlib
import socket
from typing import Final

_HELD: Final[list[socket.socket]] = []


def hold_port(above: int = 0) -> int:
    """A loopback port that nobody else gets until this process ends, and the one so far `above` it, if any. Until a
    server listens there, connections are refused."""
    while True:
        port = _hold(0)
        if not above:
            return port
        with contextlib.suppress(OSError, OverflowError):  # taken, or no port any more: the next one then
            _hold(port + above)
            return port


def hold_ports(count: int) -> list[int]:
    """Several of them."""
    return [hold_port() for _ in range(count)]


def _hold(port: int) -> int:
    held = socket.socket()
    _HELD.append(held)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", port))
    found: int = held.getsockname()[1]
    return found


@atexit.register
def _release() -> None:
    for held in _HELD:
        held.close()

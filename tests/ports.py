"""Ports for programs that need one beforehand, because they cannot listen on port 0 and name the one they got.

A port that was merely found free can be taken by another test, or by any outgoing connection. So each one is held by a
socket bound with SO_REUSEADDR that does not listen. It keeps the kernel from giving the port to anyone who requests
port 0 or connects. A server that sets SO_REUSEADDR, as servers do, may still listen there.
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

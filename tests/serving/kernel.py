"""The kernel's counts of a connection: the bytes that a program has read from it, and those that may wait unsent."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import socket
import struct
import sys
import termios
from pathlib import Path

import pytest

# The proxy's own buffers for one direction of a connection may hold this many bytes: one read, and what it bounds.
PROXYS_SHARE = 1024 * 1024
# struct tcp_info of Linux (uapi/linux/tcp.h): tcpi_bytes_received, 64 bits.
_RECEIVED_AT = 128
needs_tcp_info = pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO with byte counts is Linux's")


def received(link: object) -> int:
    """The bytes that have arrived at a socket, or at a transport's or stream's, read or not."""
    with _own_handle(link) as plain:
        info = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("Q", info, _RECEIVED_AT)[0])


def bytes_read(link: object) -> int:
    """The bytes that the program has read from a socket, or from a transport's or stream's."""
    waiting = array.array("i", [0])
    with _own_handle(link) as plain:
        fcntl.ioctl(plain.fileno(), termios.FIONREAD, waiting)
    return received(link) - waiting[0]


def find_far_end(link: object) -> socket.socket:
    """The socket of this process at the other end of a transport's or stream's loopback connection; close it. Raises
    LookupError."""
    with _own_handle(link) as plain:
        ends = plain.getpeername(), plain.getsockname()
    for name in [path.name for path in Path("/proc/self/fd").iterdir()]:
        with contextlib.suppress(OSError):  # no socket, or not a connected one
            found = socket.socket(fileno=os.dup(int(name)))
            with contextlib.suppress(OSError):
                if (found.getsockname(), found.getpeername()) == ends:
                    return found
            found.close()
    raise LookupError(f"no socket of this process is the other end of {ends}")


def send_buffer() -> int:
    """The most bytes that the kernel keeps of what a program has sent on one connection."""
    return int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2])


def _own_handle(link: object) -> socket.socket:
    plain = link if isinstance(link, socket.socket) else link.get_extra_info("socket")  # type: ignore[attr-defined]
    return socket.socket(fileno=os.dup(plain.fileno()))

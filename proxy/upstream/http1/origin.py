"""An upstream's URL, read into the parts that a connection needs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """`host` and `port` to connect to, or the path of a unix `socket`; `authority` is the Host header.

    `prefix` goes before every target and does not end in a slash. `literal` says that the host is an IP address.
    """

    host: str
    port: int
    tls: bool
    authority: str
    prefix: str = ""
    socket: str | None = None
    literal: bool = False


def read_origin(url: str, socket: str | None = None) -> Origin:
    """Reads `http://host:port/prefix`, `https://...`, `unix:/path` or `http+unix://%2Fpath/prefix`.

    `socket` is a unix socket to use instead of the network; the URL then gives the Host header, the scheme and the
    prefix. Raises ValueError, which does not quote the URL: it may hold a secret.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "unix":
        return Origin("localhost", 0, False, "localhost", socket="/" + rest.lstrip("/"))
    if scheme == "http+unix":
        parts = urlsplit(url)
        return Origin("localhost", 0, False, "localhost", parts.path.rstrip("/"), unquote(parts.netloc))
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise ValueError("an upstream's URL is http://host:port, https://host:port, unix:/path or http+unix://")
    host, port = parts.hostname, parts.port or _PORTS[parts.scheme]
    name = host if host.isascii() else host.encode("idna").decode("ascii")
    shown = f"[{name}]" if ":" in name else name
    authority = shown if port == _PORTS[parts.scheme] else f"{shown}:{port}"
    return Origin(name, port, parts.scheme == "https", authority, parts.path.rstrip("/"), socket, _is_address(name))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True

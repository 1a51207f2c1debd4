"""What a store outside of this process has to be told. Apart from the code that uses it, which needs a library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to the store. Paths of PEM files; `ca` '' trusts what the system trusts."""

    ca: str = ""
    cert: str = ""
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where the store is and how to get in. Timeouts in seconds: of a new connection, and of one round trip.

    `topology` single: `hosts` has one entry, or `unix_socket` is set; sentinel: `hosts` are the sentinels, which know
    the primary by `service`; cluster: `hosts` are some of the nodes. `most_waiting` bounds the operations in line:
    beyond it the store counts as away.
    """

    topology: Literal["single", "sentinel", "cluster"] = "single"
    hosts: tuple[tuple[str, int], ...] = (("127.0.0.1", 6379),)
    unix_socket: str = ""
    database: int = 0
    service: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    tls: Tls | None = None
    prefix: str = "toolproxy"
    connect_timeout: float = 0.1
    operation_timeout: float = 0.05
    most_waiting: int = 4096

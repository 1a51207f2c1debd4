"""The settings of the store. They stand apart from the code that needs the client library."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from proxy.config.model import UpstreamTls
from proxy.core.model.value_class import value_class


@value_class
class RedisSettings:
    """Address and credentials of the store. Timeouts are in seconds: for a new connection, and for one round trip.

    `topology` single: `hosts` has one entry, or `unix_socket` is set; sentinel: `hosts` are the sentinels, which know
    the primary by the name `service`; cluster: `hosts` are some of the nodes. `most_waiting` bounds the queue of
    operations; beyond it the store counts as away.
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
    tls: UpstreamTls | None = None
    prefix: str = "toolproxy"
    connect_timeout: float = 0.1
    operation_timeout: float = 0.05
    most_waiting: int = 4096

"""The settings of a joined upstream: values only, filled in by `server/upstream_setup.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.core.model.values import Headers


@dataclass(frozen=True, slots=True)
class JoinedServer:
    """One of the servers. `upstream` is the connection to it, `target` the path of its endpoint; `prefix` stands before
    the names of its tools and prompts. The client's credentials go on to it only with `credentials`."""

    name: str
    upstream: str
    target: str = "/mcp"
    prefix: str = ""
    headers_set: Headers = field(default=(), repr=False)
    headers_remove: frozenset[str] = frozenset()
    credentials: bool = False


@dataclass(frozen=True, slots=True)
class JoinedSettings:
    """All servers of one route. Times in seconds.

    With `always` every name has its server's prefix, else only names that two servers have. A server that takes longer
    than `wait` to list its tools is left out of that list, and `start_wait` is how long `initialize` waits for all.
    `report` hears the name of a server that cannot be reached, and why; '' means that it answers again.
    """

    name: str
    servers: tuple[JoinedServer, ...]
    version: str = ""
    always: bool = True
    wait: float = 4.0
    start_wait: float = 10.0
    idle: float = 1800.0
    again: float = 5.0
    most_sessions: int = 20_000
    report: Callable[[str, str], None] = lambda server, reason: None  # noqa: ARG005

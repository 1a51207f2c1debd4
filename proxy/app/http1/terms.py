"""What the connections of one listener share: who answers, how long they wait, and what they remember."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from proxy.app.http1.answer import Answer, Dates
from proxy.app.http1.fields import FieldLines
from proxy.app.http1.request import Request
from proxy.core.codes import ErrorCode

if TYPE_CHECKING:
    from proxy.app.http1.connection import Connection

# Answers a request; None where the answer went out piece by piece. Raises CancelledError when the client has gone.
Handle = Callable[[Request], Awaitable[Answer | None]]


class RefuseHead(Protocol):
    """Makes the answer for bytes that are no valid HTTP."""

    def __call__(self, code: ErrorCode, message: str, status: int | None = None) -> Answer:
        """`status` overrides the code's."""


class Tunnel(Protocol):
    """Takes a connection's bytes once they are no HTTP any more."""

    @property
    def held(self) -> int:
        """Bytes that nobody has taken yet."""

    def feed(self, data: bytes) -> None:
        """What arrived."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a connection waits, in seconds: for the `head` of a request once it has begun, between requests
    (`idle`), and for a client that does not read its answer (`send`).

    A client's pooled connection has to outlive ours towards load balancers (Google's keep theirs 600 s); draining
    closes idle connections itself, so a long `idle` costs nothing.
    """

    head: float = 15.0
    idle: float = 620.0
    send: float = 60.0


@dataclass(slots=True)
class Terms:
    """What all connections of a listener share. `open` are those there are; `emptied` is done once none is left, where
    somebody waits for that."""

    handle: Handle
    refuse: RefuseHead
    patience: Patience
    open: set[Connection] = field(default_factory=set)
    emptied: asyncio.Future[None] | None = None
    lines: FieldLines = field(default_factory=FieldLines)
    dates: Dates = field(default_factory=Dates)

    def left(self, connection: Connection) -> None:
        """A connection is no longer open; whoever waits for the last one is told."""
        self.open.discard(connection)
        if not self.open and self.emptied is not None and not self.emptied.done():
            self.emptied.set_result(None)

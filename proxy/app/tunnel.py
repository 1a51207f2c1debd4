"""WebSockets on passthrough routes (RFC 6455): after `101 Switching Protocols` both ways are bytes, and nobody's HTTP.

    asks_for_websocket     whether a request asks
    agreed                 whether the upstream's answer belongs to that request (`Sec-WebSocket-Accept`)
    run                    carries bytes both ways until one side ends, falls silent, or does not read

Nothing is looked into and nothing kept: each side is read no faster than the other one reads. When one side ends, the
other is closed behind the bytes that were under way, so that a Close frame always arrives.
"""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from typing import Final, Protocol, cast

from proxy.app.headers import nominated, reply_headers
from proxy.app.heads import is_word
from proxy.app.http1.connection import Connection
from proxy.app.http1.request import Request
from proxy.core.codes import UPSTREAM_BAD_ANSWER
from proxy.core.model import Executed, Headers, UpstreamFault, UpstreamReply
from proxy.interfaces import CallRecord
from proxy.upstream import ReplyBroken

# RFC 6455 section 1.3.
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# What has to go to the upstream for it to agree; everything else of the handshake is an ordinary header.
UPGRADE: Final[Headers] = (("upgrade", "websocket"),)


NOT_AGREED: Final = UpstreamFault(
    UPSTREAM_BAD_ANSWER, "http_upgrade_failed", Executed.UNKNOWN, "the upstream switched protocols without proof"
)


class Far(Protocol):
    """The upstream's end: what comes is iterated over, what goes is sent."""

    def __aiter__(self) -> Far:
        """Itself."""

    async def __anext__(self) -> bytes:
        """What came. Raises ReplyBroken."""

    async def send(self, data: bytes) -> None:
        """Sends, and waits while the upstream does not read. Raises ReplyBroken."""

    async def aclose(self) -> None:
        """Ends it."""


def asks_for_websocket(request: Request) -> bool:
    """Whether a request is the client's handshake (RFC 6455 section 4.1)."""
    headers = request.headers
    return (
        request.method == "GET"
        and request.version == 1
        and is_word(headers.get("upgrade") or "", "websocket")
        and "upgrade" in nominated(headers)
        and headers.get("sec-websocket-key") is not None
    )


def agreed(request: Request, reply: UpstreamReply) -> bool:
    """Whether a 101 is the answer to this handshake: it proves that it read the key (RFC 6455 section 4.2.2)."""
    key = (request.headers.get("sec-websocket-key") or "").encode("utf-8", "surrogateescape")
    proof = b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    said = [value.strip() for name, value in reply.headers if name.lower() == "sec-websocket-accept"]
    return said == [proof]


class Near:
    """The client's end: takes what arrives. While too much of it waits, the connection does not read its socket."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pieces: list[bytes] = []
        self._came = asyncio.Event()
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes that nobody has taken yet."""
        return self._held

    def feed(self, data: bytes) -> None:
        """What arrived."""
        self._pieces.append(data)
        self._held += len(data)
        self._came.set()

    async def take(self) -> bytes:
        """Everything that waits; waits for something."""
        await self._came.wait()
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._came.clear()
        self._held = 0
        self._connection.throttle()
        return data


async def run(request: Request, reply: UpstreamReply, record: CallRecord) -> None:
    """Answers 101 and carries bytes until one side ends. A client that leaves cancels this like any other request."""
    record.status = reply.status
    far = cast(Far, reply.body)  # `Upstream.relay`: a 101 has a tunnel as its body
    headers = [*reply_headers(reply.headers), ("X-Request-ID", record.request_id)]
    tasks: list[asyncio.Task[None]] = []
    broken = None
    try:
        request.begin(101, [*headers, ("Connection", "Upgrade"), ("Upgrade", "websocket")])
        near = Near(request.connection)
        request.connection.begin_tunnel(near)
        tasks = [
            asyncio.create_task(_outward(near, far, record)),
            asyncio.create_task(_inward(far, request.connection, record)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        broken = _break_of(tasks)
    except ConnectionResetError as error:  # the client has gone, and its cancellation is still on the way
        raise asyncio.CancelledError from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await far.aclose()
    if broken is not None:  # it must not look to the client as if it had ended in peace
        record.outcome, record.upstream_error = "upstream_error", broken.fault.token
        request.abort()


async def _outward(near: Near, far: Far, record: CallRecord) -> None:
    """From the client to the upstream."""
    while True:
        data = await near.take()
        record.request_bytes += len(data)
        await far.send(data)


async def _inward(far: Far, connection: Connection, record: CallRecord) -> None:
    """From the upstream to the client."""
    async for data in far:
        record.response_bytes += len(data)
        connection.write(data)
        await connection.drained()


def _break_of(tasks: list[asyncio.Task[None]]) -> ReplyBroken | None:
    """How the upstream broke off, if it did. Raises what is a defect of ours; a client that has gone is none."""
    for task in tasks:
        if not task.done() or task.cancelled():
            continue
        error = task.exception()
        if isinstance(error, ReplyBroken):
            return error
        if error is not None and not isinstance(error, ConnectionError):
            raise error
    return None

"""WebSockets on passthrough routes (RFC 6455): after `101 Switching Protocols` bytes are copied both ways.

    asks_for_websocket     whether a request asks
    is_agreed              whether the upstream's answer belongs to that request (`Sec-WebSocket-Accept`)
    run                    carries bytes both ways until one side ends, falls silent, or does not read

Nothing is looked into and nothing kept: each side is read no faster than the other one reads. When one side ends, the
other is closed behind the bytes that were under way, so that a Close frame always arrives.
"""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import HttpVersion11

from proxy.core.model.codes import UPSTREAM_BAD_ANSWER
from proxy.core.model.values import Executed, Fields, Headers, UpstreamFault, UpstreamReply
from proxy.interfaces import CallRecord
from proxy.server.http.framing import ResponseStream, write
from proxy.server.http.headers import list_nominated, make_reply_headers
from proxy.server.http.request_head import RequestHead, is_word
from proxy.upstream import ReplyBroken
from proxy.upstream.http1 import Tunnel

if TYPE_CHECKING:
    from aiohttp import web

# RFC 6455 section 1.3.
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# What has to go to the upstream for it to agree; everything else of the handshake is an ordinary header.
UPGRADE: Final[Headers] = (("upgrade", "websocket"),)


NOT_AGREED: Final = UpstreamFault(
    UPSTREAM_BAD_ANSWER, "http_upgrade_failed", Executed.UNKNOWN, "the upstream switched protocols without proof"
)


# Bytes of the client that may wait for the upstream; beyond them its socket is not read.
MAX_HELD: Final = 64 * 1024


def asks_for_websocket(request: RequestHead, fields: Fields) -> bool:
    """Whether a request is the client's handshake (RFC 6455 section 4.1)."""
    return (
        request.method == "GET"
        and request.version == HttpVersion11
        and is_word(fields.get("upgrade") or "", "websocket")
        and "upgrade" in list_nominated(fields)
        and fields.get("sec-websocket-key") is not None
    )


def is_agreed(fields: Fields, reply: UpstreamReply) -> bool:
    """Whether a 101 is the answer to this handshake: it proves that it read the key (RFC 6455 section 4.2.2)."""
    key = (fields.get("sec-websocket-key") or "").encode("utf-8", "surrogateescape")
    proof = b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    proofs = [value.strip() for name, value in reply.headers if name.lower() == "sec-websocket-accept"]
    return proofs == [proof]


class Near:
    """The client's side, in place of aiohttp's parser: takes the bytes that arrive. While too many wait, the client's
    socket is not read. `held` are the bytes that wait."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.held = 0
        self._transport = transport
        self._pieces: list[bytes] = []
        self._came = asyncio.Event()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Takes the bytes that arrived. The connection stays open."""
        self._pieces.append(data)
        self.held += len(data)
        self._came.set()
        if self.held > MAX_HELD and self._transport.is_reading():
            self._transport.pause_reading()
        return False, b""

    def feed_eof(self) -> None:
        """Cancels the reader, because the client has gone."""

    async def take(self) -> bytes:
        """Returns all waiting bytes; waits until there are some."""
        await self._came.wait()
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._came.clear()
        self.held = 0
        if not (self._transport.is_reading() or self._transport.is_closing()):
            self._transport.resume_reading()
        return data


async def run(request: web.BaseRequest, reply: UpstreamReply, record: CallRecord) -> web.StreamResponse:
    """Answers 101 and carries bytes until one side ends. A client that leaves cancels this like any other request."""
    record.status = reply.status
    far = cast(Tunnel, reply.body)  # `Upstream.relay`: a 101 has a tunnel as its body
    headers = [*make_reply_headers(reply.headers), ("X-Request-ID", record.request_id)]
    stream = ResponseStream(101, [*headers, ("Connection", "Upgrade"), ("Upgrade", "websocket")], closes=True)
    tasks: list[asyncio.Task[None]] = []
    broken = None
    try:
        await stream.prepare(request)
        if request.transport is None:
            raise ConnectionResetError("the client has gone")
        near = Near(request.transport)
        request.protocol.set_parser(cast(Any, near))  # `Near` has every attribute that is used
        tasks = [
            asyncio.create_task(_outward(near, far, record)),
            asyncio.create_task(_inward(far, request, record)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        broken = _break_of(tasks)
    except ConnectionError as error:  # the client has gone, and its cancellation is still on the way
        raise asyncio.CancelledError from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await far.aclose()
    stream.ended = True
    if broken is not None:  # the client must see that the connection broke
        record.outcome, record.upstream_error = "upstream_error", broken.fault.token
        stream.abort()
    return stream


async def _outward(near: Near, far: Tunnel, record: CallRecord) -> None:
    """From the client to the upstream."""
    while True:
        data = await near.take()
        record.request_bytes += len(data)
        await far.send(data)


async def _inward(far: Tunnel, request: web.BaseRequest, record: CallRecord) -> None:
    """From the upstream to the client."""
    async for data in far:
        record.response_bytes += len(data)
        write(request, data)
        await request.writer.drain()


def _break_of(tasks: list[asyncio.Task[None]]) -> ReplyBroken | None:
    """Returns how the upstream broke off, if it did. Raises internal errors; a client that has gone is not one."""
    for task in tasks:
        if not task.done() or task.cancelled():
            continue
        error = task.exception()
        if isinstance(error, ReplyBroken):
            return error
        if error is not None and not isinstance(error, ConnectionError):
            raise error
    return None

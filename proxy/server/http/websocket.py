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

from aiohttp.http import HttpVersion11

from proxy.call.context import record_fault, record_response
from proxy.call_record import CallRecord
from proxy.core.model.codes import UPSTREAM_BAD_ANSWER
from proxy.core.model.values import Executed, Fields, Headers, UpstreamFault, UpstreamReply
from proxy.server.http.framing import ResponseStream, write
from proxy.server.http.headers import list_nominated, make_reply_headers
from proxy.server.http.request_head import RequestHead, is_word
from proxy.upstream import ReplyBroken
from proxy.upstream.http1 import Tunnel

if TYPE_CHECKING:
    from aiohttp import web

# RFC 6455 section 1.3.
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# The fields that the upstream needs to agree; everything else of the handshake is an ordinary header.
UPGRADE: Final[Headers] = (("upgrade", "websocket"),)


NOT_AGREED: Final = UpstreamFault(
    UPSTREAM_BAD_ANSWER, "http_upgrade_failed", Executed.UNKNOWN, "the upstream switched protocols without proof"
)


# Bytes of the client that may wait for the upstream; beyond them its socket is not read.
MAX_HELD: Final = 64 * 1024


def asks_for_websocket(request: RequestHead, fields: Fields) -> bool:
    """Returns whether a request is the client's handshake (RFC 6455 section 4.1)."""
    return (
        request.method == "GET"
        and request.version == HttpVersion11
        and is_word(fields.get("upgrade") or "", "websocket")
        and "upgrade" in list_nominated(fields)
        and fields.get("sec-websocket-key") is not None
    )


def is_agreed(fields: Fields, reply: UpstreamReply) -> bool:
    """Returns whether a 101 answers this handshake: it proves that it read the key (RFC 6455 section 4.2.2)."""
    key = (fields.get("sec-websocket-key") or "").encode("utf-8", "surrogateescape")
    proof = b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    proofs = [value.strip() for name, value in reply.headers if name.lower() == "sec-websocket-accept"]
    return proofs == [proof]


class Near:
    """The client's side, in place of aiohttp's parser: takes the bytes that arrive. While too many wait, the client's
    socket is not read. `held` are the bytes that wait, `received` those that were taken."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.held = self.received = 0
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
        self.received += self.held
        self.held = 0
        if not (self._transport.is_reading() or self._transport.is_closing()):
            self._transport.resume_reading()
        return data


async def run(request: web.BaseRequest, reply: UpstreamReply, record: CallRecord) -> web.StreamResponse:
    """Answers 101 and carries bytes until one side ends. A client that leaves cancels this like any other request."""
    far = cast(Tunnel, reply.body)  # `Upstream.relay`: a 101 has a tunnel as its body
    headers = [*make_reply_headers(reply.headers), ("X-Request-ID", record.request_id)]
    stream = ResponseStream(101, [*headers, ("Connection", "Upgrade"), ("Upgrade", "websocket")], closes=True)
    near = Near(cast(asyncio.Transport, request.transport))  # used once `prepare` has found that it is there

    async def send() -> None:
        while True:
            await far.send(await near.take())

    async def receive() -> None:
        async for data in far:
            stream.size += len(data)
            write(request, data)
            await request.writer.drain()

    tasks: list[asyncio.Task[None]] = []
    try:
        await stream.prepare(request)
        request.protocol.set_parser(cast(Any, near))  # `Near` has every attribute that is used
        tasks = [asyncio.create_task(send()), asyncio.create_task(receive())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        errors = [task.exception() for task in tasks if task.done() and not task.cancelled()]
    except ConnectionError as error:  # the client has gone, and its cancellation is still on the way
        raise asyncio.CancelledError from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await far.aclose()
        record_response(record, reply.status, stream.size, near.received)
    stream.ended = True
    for broken in errors:
        if isinstance(broken, ReplyBroken):  # the client must see that the connection broke
            record_fault(record, broken.fault.token)
            stream.abort()
        elif broken is not None and not isinstance(broken, ConnectionError):
            raise broken
    return stream

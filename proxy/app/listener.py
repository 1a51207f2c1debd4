"""The listening side of aiohttp: its low-level server, with what it does badly for a proxy done otherwise.

Every byte passes the gate first (`gate.py`), so that aiohttp's parser, which is lenient here and there, only ever sees
requests that everybody reads the same way. What the gate or the parser refuses becomes JSON like every other answer
and is counted; aiohttp would answer in plain text, pass every handler by, and log a traceback.

Also here, because aiohttp has none of it: a time limit on the head of a request and on clients that do not read their
answer; answers to refused uploads that arrive (RFC 9112 section 9.6: half-close, then read on for a moment); tunnels.
A client that leaves cancels its handler (`handler_cancellation`).
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler, RequestPayloadError, _ErrInfo

from proxy.app.gate import Gate
from proxy.app.heads import LATE, Malformed
from proxy.config.model import Listen
from proxy.core.codes import BAD_REQUEST, HEADERS_TOO_LARGE, INTERNAL_ERROR, ErrorCode

Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

# How long a refused upload is read and thrown away so that its sender gets to read the answer.
LINGER: Final = 2.0
MAX_HEAD_FIELD: Final = 16 * 1024
MAX_HEAD_FIELDS: Final = 128
# Bytes of further requests held while one is answered; beyond, the socket is not read.
MAX_HELD: Final = 64 * 1024

# How often a client that is not read from is looked after, in seconds.
_LOOK: Final = 1.0

# llhttp and aiohttp say in words what was too much; both mean 431 (RFC 6585 section 5).
_TOO_MANY: Final = ("Too many headers", "Got more than")


class RefuseHead(Protocol):
    """Makes the answer for a request that is no valid HTTP."""

    def __call__(self, code: ErrorCode, message: str, status: int | None = None) -> web.Response:
        """`status` overrides the code's."""


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


def patience_of(listen: Listen) -> Patience:
    """The limits of a configured address."""
    return Patience(listen.head_timeout, listen.idle_timeout, listen.send_timeout)


class Tunnel(Protocol):
    """Takes a connection's bytes once they are no HTTP any more."""

    @property
    def held(self) -> int:
        """Bytes that nobody has taken yet."""

    def feed(self, data: bytes) -> None:
        """What arrived."""


class MalformedError(Exception):
    """Carries what the gate said through aiohttp to `handle_error`."""

    def __init__(self, what: Malformed) -> None:
        super().__init__(what.message)
        self.what = what


class Listener(web.Server):
    """A server whose protocol answers parser errors with `refuse`."""

    def __init__(self, handle: Handle, refuse: RefuseHead, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
        super().__init__(
            handle,
            handler_cancellation=True,
            auto_decompress=False,
            access_log=None,
            keepalive_timeout=self.patience.idle,
            lingering_time=LINGER,
            max_line_size=MAX_HEAD_FIELD,
            max_field_size=MAX_HEAD_FIELD,
            max_headers=MAX_HEAD_FIELDS,
        )
        self.refuse = refuse

    def __call__(self) -> RequestHandler:
        """Makes the protocol of one connection."""
        return Connection(self, self.refuse, self.patience, loop=asyncio.get_running_loop(), **self._kwargs)


class Connection(RequestHandler):
    """The protocol of one client's connection: gate, then aiohttp, one request at a time."""

    __slots__ = ("_body", "_busy", "_dead", "_gate", "_late", "_patience", "_refuse", "_stalled", "_tunnel", "_unheard")

    def __init__(self, server: web.Server, refuse: RefuseHead, patience: Patience, **options: Any) -> None:
        super().__init__(server, **options)
        self._refuse = refuse
        self._patience = patience
        self._gate = Gate()
        self._body: StreamReader | None = None
        self._busy = False  # a request is with aiohttp and not answered
        self._dead = False  # nothing that still arrives means anything
        self._tunnel: Tunnel | None = None
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unheard: asyncio.TimerHandle | None = None

    # --- what arrives -------------------------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        """Takes what arrived. Empty: aiohttp goes on with what its own parser holds."""
        if not data:
            super().data_received(data)
        elif self._tunnel is not None:
            self._tunnel.feed(data)
        elif not (self._dead or self._close or self._force_close):
            self._gate.add(data)
            self._pump()

    def _pump(self) -> None:
        """Hands to aiohttp what may go there now: the body under way, or the next request if none is."""
        gate = self._gate
        while not self._dead and (gate.in_body or not self._busy):
            beginning = not gate.in_body
            piece = gate.take()
            if isinstance(piece, Malformed):
                self._malformed(piece)
            elif piece is None:
                break
            else:
                self._hand_on(piece, beginning)
        self._watch_head()
        if gate.held > MAX_HELD and not self._buffer_paused:
            self._pause_reading_for_buffer()

    def _hand_on(self, piece: bytes, beginning: bool) -> None:
        super().data_received(piece)
        if beginning:
            self._busy = True
        if self._messages:
            message, body = self._messages[-1]
            if isinstance(message, _ErrInfo):  # aiohttp has something against it that the gate had not
                self._die()
            elif beginning:
                self._body = body

    def _malformed(self, what: Malformed) -> None:
        """Bytes that break the framing of a body end that body; others are answered in the place of a request."""
        in_body = self._gate.in_body
        self._die()
        if in_body:
            return
        self._busy = True
        # A body that never ends makes aiohttp linger, which lets the sender read the answer.
        lingering = StreamReader(self, MAX_HELD, loop=self._loop)
        self._messages.append((_ErrInfo(status=400, exc=MalformedError(what), message=what.message), lingering))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _die(self) -> None:
        """The connection carries no further request. aiohttp would leave the reader of a broken body waiting."""
        self._dead = True
        self._gate.rest()
        if self._body is not None and not self._body.is_eof():
            self._body.set_exception(RequestPayloadError())
            self._body.feed_eof()

    # --- time ---------------------------------------------------------------------------------------------------------
    def _watch_head(self) -> None:
        """A head that has begun has to end in time. Only slow ones ever cost a timer."""
        begun = not (self._dead or self._busy or self._tunnel) and self._gate.held > 0
        if begun and self._late is None:
            self._late = self._loop.call_later(self._patience.head, self._head_is_late)
        elif not begun and self._late is not None:
            self._late.cancel()
            self._late = None

    def _head_is_late(self) -> None:
        self._late = None
        if not self._dead and self.transport is not None:
            self._malformed(LATE)

    def _pause_transport_reading(self) -> None:
        """Nothing is read for a while: for as long, the loop does not hear either that the client has gone."""
        super()._pause_transport_reading()
        if self._unheard is None:
            self._unheard = self._loop.call_later(_LOOK, self._is_client_there)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp says so twice for every body, and lets its parser run for it; here only where something is held."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def _resume_transport_reading(self) -> None:
        self._hear()
        super()._resume_transport_reading()

    def _hear(self) -> None:
        if self._unheard is not None:
            self._unheard.cancel()
            self._unheard = None

    def _is_client_there(self) -> None:
        self._unheard = None
        if self.transport is None:
            return
        if _has_left(self.transport.get_extra_info("socket")):
            self.transport.abort()
        else:
            self._unheard = self._loop.call_later(_LOOK, self._is_client_there)

    def hold(self) -> None:
        """Reads no more from the client until `release`."""
        self._pause_reading_for_buffer()

    def release(self) -> None:
        """Reads from the client again."""
        self._resume_reading_for_buffer()

    def pause_writing(self) -> None:
        """The client does not read: from now on its time runs."""
        super().pause_writing()
        self._stalled = self._loop.call_later(self._patience.send, self._give_up)

    def resume_writing(self) -> None:
        """The client reads."""
        super().resume_writing()
        self._calm()

    def _give_up(self) -> None:
        self._stalled = None
        if self.transport is not None:
            self.transport.abort()

    def _calm(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client has gone."""
        self._dead = True
        self._calm()
        self._hear()
        self._watch_head()
        super().connection_lost(exc)

    # --- answers ------------------------------------------------------------------------------------------------------
    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Sends the answer; then it is the next request's turn."""
        unread = self._gate.in_body
        if (self._dead or unread) and not resp.prepared:
            resp.force_close()
        result = await super().finish_response(request, resp, start_time)
        if self._dead or not resp.keep_alive or self._gate.in_body:
            self._half_close(unread)
        else:
            self._busy, self._body = False, None
            if self._gate.held:  # what has come meanwhile
                self._pump()
            if self._buffer_paused and self._gate.held <= MAX_HELD:
                self._resume_reading_for_buffer()
        return result

    def _half_close(self, unread: bool) -> None:
        """Tells the client that this was the last answer, while what it still sends is read and thrown away: closing
        at once would reset the connection and take the answer with it."""
        ends = self._dead or unread
        self._dead = True
        self._gate.rest()
        if ends and self._tunnel is None and self.transport is not None and self.transport.can_write_eof():
            with suppress(OSError):  # the client has gone already
                self.transport.write_eof()

    @property
    def held(self) -> int:
        """Bytes that arrived and wait here: further requests, or what a tunnel has not sent on."""
        return self._gate.held if self._tunnel is None else self._tunnel.held

    async def drained(self) -> None:
        """Waits while the client does not read. Raises ConnectionError when it has gone."""
        await self._drain_helper()

    def begin_tunnel(self, tunnel: Tunnel) -> None:
        """From now on all bytes go to `tunnel`, those first that came behind the request."""
        self._tunnel = tunnel
        if rest := self._gate.rest():
            tunnel.feed(rest)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that makes no sense. Closes the connection."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, it cannot be replaced")
        if isinstance(exc, MalformedError):
            response = self._refuse(exc.what.code, exc.what.message, exc.what.status)
        else:
            words = message or (str(exc) if exc is not None else "")
            response = self._refuse(_code(status, exc, words), _reason(words) if status < 500 else "")
        response.force_close()
        response.headers["Connection"] = "close"  # aiohttp takes the unread request for one of HTTP/1.0
        return response


def _has_left(client: socket.socket | None) -> bool:
    """Whether the other end of a socket is closed, without reading what may still be in it."""
    if client is None or client.fileno() < 0 or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(client.fileno(), getattr(select, "POLLRDHUP", 0))  # POLLHUP and POLLERR are always told
    return bool(poll.poll(0))


def _code(status: int, exc: BaseException | None, words: str) -> ErrorCode:
    if status >= 500:  # no handler of ours lets an exception out; this is the last net
        return INTERNAL_ERROR
    too_large = isinstance(exc, LineTooLong) or words.startswith(_TOO_MANY)
    return HEADERS_TOO_LARGE if too_large else BAD_REQUEST


def _reason(words: str) -> str:
    """The parser's first line, without the excerpt of the request that follows it."""
    first = words.strip().split("\n")[0].split(":")[0]
    return first[:100]

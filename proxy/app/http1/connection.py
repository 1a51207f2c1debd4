"""One client's connection: bytes through the gate, one request at a time, answers in their order.

    data_received    what arrived: more of a body, or a request, or what waits until the one under way is answered
    _next            the next request, in a task of its own; what is none is answered here, and was the last
    _serve           one request to its end
    _over            then the next one, or the end of the connection

Bytes that nobody has taken yet are bounded: beyond `MAX_HELD` the socket is not read. For as long the loop does not
hear either that the client has gone, so that is looked after. A client that leaves cancels its request.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from proxy.app.gate import Gate
from proxy.app.headers import Caller
from proxy.app.heads import LATE, Malformed
from proxy.app.http1.answer import Answer, begun, is_bodiless, whole
from proxy.app.http1.request import Request, Upload
from proxy.app.http1.stream import Stream
from proxy.app.http1.terms import Terms, Tunnel
from proxy.core.codes import INTERNAL_ERROR

# How long a refused upload is read and thrown away so that its sender gets to read the answer.
LINGER: Final = 2.0
# Bytes held for one connection: further requests, a body or a tunnel's bytes that nobody takes.
MAX_HELD: Final = 64 * 1024
# How often a client that is not read from is looked after, in seconds.
_LOOK: Final = 1.0
# Closing a socket at once resets its connection (SO_LINGER: on, for no time at all).
_RESET: Final = struct.pack("ii", 1, 0)


class Connection(asyncio.Protocol):
    """The protocol of one connection. `peer` is the client's address ('' for a unix socket), `scheme` how it came;
    `request` the one under way, in `task`. `caller` is a place for what the handler knows of the client."""

    __slots__ = (
        "_closes", "_dead", "_drain", "_ending", "_gate", "_idle", "_idle_since", "_late", "_linger", "_loop",
        "_stalled", "_terms", "_throttled", "_tunnel", "_unframed", "_unheard", "caller", "peer", "request", "scheme",
        "task", "transport",
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._loop = asyncio.get_running_loop()
        self._gate = Gate(terms.lines)
        self.transport: asyncio.Transport | None = None
        self.request: Request | None = None
        self.task: asyncio.Task[None] | None = None
        self.peer = ""
        self.scheme = "http"
        self.caller: Caller | None = None
        self._tunnel: Tunnel | None = None
        self._dead = False  # nothing that still arrives means anything
        self._closes = False  # the answer under way is the last
        self._unframed = False  # and its end is that of the connection
        self._ending = False  # so is whichever comes next: the listener shuts down
        self._throttled = False
        self._drain: asyncio.Future[None] | None = None  # set while the client does not read
        self._idle_since = 0.0
        self._idle: asyncio.TimerHandle | None = None
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._unheard: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None

    # --- its beginning and its end ------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        # A unix socket's other end is no address: its client may have given it any name, with a line end in it.
        self.peer = str(peer[0]) if isinstance(peer, (tuple, list)) else ""
        self.scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        plain = transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._idle_since = self._loop.time()
        self._idle = self._loop.call_later(self._terms.patience.idle, self._is_idle)
        self._terms.open.add(self)

    def connection_lost(self, exc: BaseException | None) -> None:  # noqa: ARG002 - however it went
        """The client has gone, or was let go."""
        self._dead = True
        self.transport = None
        for timer in (self._idle, self._late, self._stalled, self._unheard, self._linger):
            if timer is not None:
                timer.cancel()
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
        if self.request is not None and self.request.upload is not None:
            self.request.upload.fail()
        if self.task is not None:
            self.task.cancel()
        self._terms.left(self)

    def finish(self) -> None:
        """Takes no further request: closes now, or with the answer under way."""
        self._ending = True
        if self.request is None and self._linger is None:
            self.close()

    def close(self) -> None:
        """Ends the connection behind what is still to be sent, which a client that does not read it cannot put off."""
        self._dead = True
        if self.transport is None:
            return
        if self._stalled is None and self.transport.get_write_buffer_size():
            self._stalled = self._loop.call_later(self._terms.patience.send, self.abort)
        self.transport.close()

    def abort(self) -> None:
        """Ends the connection at once, so that nobody takes what was sent for a whole answer."""
        self._dead = True
        if self.transport is None:
            return
        plain = self.transport.get_extra_info("socket")
        if self._unframed and plain is not None:  # nothing else tells its reader that this is not the end
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    # --- what arrives -------------------------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        """Takes what arrived."""
        if self._tunnel is not None:
            self._tunnel.feed(data)
        elif not self._dead:
            self._gate.add(data)
            if self.request is None:
                self._next()
            elif self._gate.in_body:
                self._more(self.request)
        if self.held > MAX_HELD:
            self.throttle()

    def _next(self) -> None:
        """Begins the next request, if one is there."""
        head = self._gate.head()
        if head is None:
            if self._gate.held and self._late is None:  # a head that has begun has to end in time
                self._late = self._loop.call_later(self._terms.patience.head, self._head_is_late)
            return
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if isinstance(head, Malformed):
            self._malformed(head)
            return
        request = self.request = Request(head, self)
        if head.length:
            self._body(request)
        self.task = self._loop.create_task(self._serve(request))

    def _body(self, request: Request) -> None:
        """The body as far as it has come with its head: nearly always all of it."""
        piece = self._gate.body()
        if isinstance(piece, bytes) and not self._gate.in_body:
            request.whole = piece
            return
        request.whole, request.upload = None, Upload(self)
        self._took(request.upload, piece)

    def _more(self, request: Request) -> None:
        """More of the body under way. Where its request is answered already, or is not read, nobody wants it."""
        if request.upload is not None:
            self._took(request.upload, self._gate.body())

    def _took(self, upload: Upload, piece: bytes | Malformed) -> None:
        if isinstance(piece, Malformed):  # what follows can be no request: nobody knows where it would begin
            self._dead = True
            self._gate.rest()
            upload.fail()
            return
        upload.feed(piece)
        if not self._gate.in_body:
            upload.end()

    def _malformed(self, what: Malformed) -> None:
        """Answers in the place of a request that there is none."""
        self._dead = True
        self._gate.rest()
        answer = self._terms.refuse(what.code, what.message, what.status)
        answer.headers.append(("Connection", "close"))
        if self.transport is not None:
            # As the oldest client could read it: nobody knows the version of what is no HTTP.
            self.transport.write(whole(answer, "", 0, self._terms.dates, keep_alive=False))
        self._half_close()

    def _head_is_late(self) -> None:
        self._late = None
        if not self._dead and self.request is None:
            self._malformed(LATE)

    # --- reading no faster than others take ---------------------------------------------------------------------------
    @property
    def held(self) -> int:
        """Bytes that arrived and wait here: further requests, or what a reader of a body or a tunnel has not taken."""
        if self._tunnel is not None:
            return self._tunnel.held
        upload = self.request.upload if self.request is not None else None
        return self._gate.held if upload is None else self._gate.held + upload.held

    def throttle(self) -> None:
        """Reads from the client, or does not: by how much is held."""
        transport, full = self.transport, self.held > MAX_HELD and not self._dead
        if full == self._throttled or transport is None or transport.is_closing():
            return
        self._throttled = full
        if full:
            transport.pause_reading()
            self._unheard = self._loop.call_later(_LOOK, self._is_client_there)
        else:
            transport.resume_reading()
            if self._unheard is not None:
                self._unheard.cancel()
                self._unheard = None

    def _is_client_there(self) -> None:
        if self.transport is None:
            return
        if _has_left(self.transport.get_extra_info("socket")):
            self.abort()
        else:
            self._unheard = self._loop.call_later(_LOOK, self._is_client_there)

    # --- answering ----------------------------------------------------------------------------------------------------
    async def _serve(self, request: Request) -> None:
        """One request to its end."""
        written = False
        try:
            answer = await self._terms.handle(request)
            written = True
            if answer is not None:
                self._answer(request, answer)
            if self._drain is not None:
                await self.drained()
        except asyncio.CancelledError:  # the client has gone, or the listener ends
            if request.begun and not written and self._tunnel is None:  # half an answer, as below
                self.abort()
            self.close()
            raise
        except Exception:  # noqa: BLE001 - no handler of ours lets one out; this is the last net
            if request.begun:  # half an answer is out, or its client has gone: the end must not look clean
                self.abort()
                return
            try:
                self._answer(request, self._terms.refuse(INTERNAL_ERROR, ""))
            except BaseException:  # not even that can be said: nobody waits for it
                self.abort()
                raise
        self._over()

    def _answer(self, request: Request, answer: Answer) -> None:
        """Sends a whole answer, in one piece with its head."""
        keep_alive = request.keep_alive and not (answer.closes or self._dead or self._gate.in_body)
        data = whole(answer, request.method, request.version, self._terms.dates, keep_alive=keep_alive)
        request.begun, self._closes = True, not keep_alive
        if self.transport is not None:  # else nobody is there to read it
            self.transport.write(data)

    def begin(
        self, request: Request, status: int, headers: Sequence[tuple[str, str]], length: int | None, *, closes: bool
    ) -> Stream:
        """Sends the head of an answer whose body is written into the stream. Raises ConnectionResetError."""
        bodiless = is_bodiless(status, request.method)
        unframed = length is None and not bodiless and not request.version
        keep_alive = request.keep_alive and not (closes or unframed)
        dates = self._terms.dates
        head = begun(status, headers, length, request.method, request.version, dates, keep_alive=keep_alive)
        self._closes, self._unframed = not keep_alive, unframed
        self.write(head)
        request.begun = True
        return Stream(self, length, chunked=length is None and not bodiless and not unframed, bodiless=bodiless)

    def begin_tunnel(self, tunnel: Tunnel) -> None:
        """From now on all bytes go to `tunnel`, those first that came behind the request. The connection ends with
        it."""
        self._tunnel, self._closes = tunnel, True
        if rest := self._gate.rest():
            tunnel.feed(rest)

    def write(self, data: bytes) -> None:
        """Sends bytes. Raises ConnectionResetError when the client has gone."""
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the client has gone")
        self.transport.write(data)

    def _over(self) -> None:
        """The answer is out: it is the next request's turn, or this was the last one."""
        unread, gate, last = self._gate.in_body, self._gate, self._closes or self._ending
        self.request = self.task = None
        if self.transport is None:
            return
        if self._tunnel is None and (self._dead or unread or (last and gate.held)):
            self._half_close()
        elif last:
            self.close()
        else:
            self._idle_since = self._loop.time()
            if gate.held:  # what has come meanwhile
                self._next()
            if self._throttled:
                self.throttle()

    def _half_close(self) -> None:
        """Tells the client that this was the last answer, while what it still sends is read and thrown away: closing
        at once would reset the connection and take the answer with it (RFC 9112 section 9.6)."""
        self._dead = True
        self._gate.rest()
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if transport.can_write_eof():
            with suppress(OSError):  # the client has gone already
                transport.write_eof()
        self.throttle()
        self._linger = self._loop.call_later(LINGER, self.close)

    # --- writing no faster than the client reads ----------------------------------------------------------------------
    def pause_writing(self) -> None:
        """The client does not read: from now on its time runs."""
        self._drain = self._loop.create_future()
        self._stalled = self._loop.call_later(self._terms.patience.send, self.abort)

    def resume_writing(self) -> None:
        """The client reads. What is left when the connection ends has to go in the same time."""
        if self._stalled is not None and not (self.transport is not None and self.transport.is_closing()):
            self._stalled.cancel()
            self._stalled = None
        if self._drain is not None:
            if not self._drain.done():
                self._drain.set_result(None)
            self._drain = None

    async def drained(self) -> None:
        """Waits while the client does not read. Raises ConnectionResetError when it has gone."""
        if self._drain is not None:
            await asyncio.shield(self._drain)
        if self.transport is None:
            raise ConnectionResetError("the client has gone")

    def _is_idle(self) -> None:
        """Closes a connection on which nothing was asked for long enough. A head that has begun has its own time."""
        left = self._idle_since + self._terms.patience.idle - self._loop.time()
        if self.request is None and not self._gate.held and left <= 0:
            self.close()
            return
        self._idle = self._loop.call_later(left if left > 0 else self._terms.patience.idle, self._is_idle)


def _has_left(client: socket.socket | None) -> bool:
    """Whether the other end of a socket is closed, without reading what may still be in it."""
    if client is None or client.fileno() < 0 or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(client.fileno(), getattr(select, "POLLRDHUP", 0))  # POLLHUP and POLLERR are always told
    return bool(poll.poll(0))

"""One client's connection: timeouts, answers to malformed heads, half-closed and lingering connections, and clients
that do not read.

aiohttp's `RequestHandler` serves the requests of a connection one after the other; `http/reading.py` reads them.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp.http import HttpVersion11

from proxy.core.model.codes import INTERNAL_ERROR
from proxy.core.model.value_class import value_class
from proxy.server.http.framing import Response, abort, has_begun, write_response
from proxy.server.http.headers import Caller
from proxy.server.http.reading import Begin, ConnectionPhase, ReadingConnection, poll_link
from proxy.server.http.request_head import LATE_HEAD, BadRequest, explain_fault
from proxy.server.service import BegunRequest, Handle, RefuseHead, Timeouts

if TYPE_CHECKING:
    from aiohttp import web

# How long a client may go on sending after the last response of its connection, in seconds (RFC 9112 section 9.6).
LINGER: Final = 2.0
# When to look whether a probe was answered with a reset, in seconds.
_PROBED_AFTER: Final = 0.1
_PROBE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

# Bytes, or the end of the connection, wait in the kernel's buffer.
_UNREAD: Final = getattr(select, "POLLIN", 0)


@value_class
class Service:
    """The shared parts of a listener's connections."""

    handle: Handle
    refuse: RefuseHead
    timeouts: Timeouts
    begin: Begin | None = None


# Constants, because CPython 3.11 looks up a member of an enum more slowly than it calls a function.
_IDLE: Final = ConnectionPhase.IDLE
_BUSY: Final = ConnectionPhase.BUSY
_LAST: Final = ConnectionPhase.LAST
_TUNNEL: Final = ConnectionPhase.TUNNEL
_LINGERING: Final = ConnectionPhase.LINGERING
_CLOSED: Final = ConnectionPhase.CLOSED
_ANSWERING: Final = frozenset({_BUSY, _LAST, _TUNNEL})


class Connection(ReadingConnection):
    """The protocol of one connection, which extends the part that reads.

    `request` is the one being answered. Ends: `idle_since` is when the connection became idle; `half_closed` says that
    the client sends no more and waits for its response. `begun` is the call under way that began without a task.
    """

    __slots__ = (
        "__weakref__",
        "begun",
        "caller",
        "closing_since",
        "half_closed",
        "idle_since",
        "request",
        "service",
        "side_task",
        "slow_reader",
    )

    def __init__(self, manager: web.Server, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self.service = service
        self.caller: Caller | None = None  # kept by `find_caller`
        self.request: web.BaseRequest | None = None
        self.begun: BegunRequest | None = None
        self.half_closed = False
        self.idle_since = loop.time()
        self.closing_since: float | None = None
        self.slow_reader: asyncio.TimerHandle | None = None
        self.side_task: asyncio.Task[None] | None = None
        super().__init__(manager, loop, service.begin)

    # --- opening and closing ------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts serving a client that has connected."""
        self.link = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancels what is being answered: the connection has ended."""
        self.state = _CLOSED
        if self.slow_reader is not None:
            self.slow_reader.cancel()
        if self.side_task is not None:
            self.side_task.cancel()
        begun, self.begun, self.held = self.begun, None, None
        if begun is not None:
            begun.cancel()
        super().connection_lost(exc)

    def expects_request(self) -> bool:
        """Returns whether the client has just connected, or is in the middle of a head."""
        return not self.has_parsed or (self.state is _IDLE and self.head_since is not None)

    def is_occupied(self) -> bool:
        """Returns whether a request is under way, queued, or unread in the kernel's buffer."""
        if self.request is not None or self.queued or self.held is not None or self.rest:
            return True
        return self.state in (_IDLE, _LAST) and self.link is not None and poll_link(self.link, _UNREAD)

    def finish(self) -> None:
        """Closes the connection: now, or after the response to the request that occupies it."""
        if self.state in (_IDLE, _LAST) and not self.is_occupied():
            self.force_close()
        elif self.state in (_IDLE, _BUSY):
            self.state = _LAST

    def give_up(self) -> None:
        """Cancels the request under way and closes the connection."""
        if self.request is not None:
            self.request.task.cancel()
        self.force_close()

    def check_timeouts(self, now: float) -> None:
        """Ends the connection, or its request, if a timeout has passed or the client has gone."""
        link, times = self.link, self.service.timeouts
        if link is None:
            return
        if link.is_closing() or (self.state is _LINGERING and link.get_write_buffer_size()):
            self.closing_since = self.closing_since or now
            if now - self.closing_since >= times.send:
                link.abort()
        elif self.state is _IDLE and not self.queued:
            if self.head_since is None:
                if now - self.idle_since >= times.idle:
                    self.force_close()
            elif now - self.head_since >= times.head:
                self.state = _LINGERING
                self.side_task = self.loop.create_task(self._refuse_late_head())
        elif self.state in _ANSWERING:
            self._abort_if_gone()

    def _abort_if_gone(self) -> None:
        """Aborts a connection whose client has gone unnoticed, because the socket is not being read."""
        link = self.link
        if link is None or link.is_closing():
            return
        if self.half_closed:
            if poll_link(link, 0):
                link.abort()
        elif not link.is_reading() and poll_link(link, getattr(select, "POLLRDHUP", 0)):
            link.abort()

    # --- calls that began without a task ------------------------------------------------------------------------------
    def answer(self, data: bytes) -> bool:
        """Writes the response to the call that began without a task. False: not now, or none may follow it."""
        if self.state is not _BUSY or self.held is None or self.half_closed or self.slow_reader is not None:
            return False
        if self.link is not None and not self.link.is_closing():
            self.link.write(data)
        self.begun = self.held = None
        self.note_consumed()
        self.state, self.idle_since = _IDLE, self.loop.time()
        return True

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's own type says more than aiohttp's
        """The client has closed its sending side. Returns whether the connection stays open for the response (RFC 9112
        section 9.6).

        A client that has gone and one that merely sends no more look alike until they are sent something. Therefore
        they get an interim response: the kernel of a client that has gone answers it with a reset.
        """
        waits = self.queued or self.held is not None or self.state in (_BUSY, _LAST)
        whole = self.broken or self.body is None or self.body.is_eof()
        begun = self.request is not None and has_begun(self.request)
        if (
            not waits
            or not whole
            or begun
            or self.ssl_context is not None
            or self.link is None
            or poll_link(self.link, 0)
        ):
            return False
        self.half_closed = True
        self.hand_over()
        if self.request is not None:
            self._probe(self.request)
        return True

    def _probe(self, request: web.BaseRequest) -> None:
        if self.link is None:
            return
        if request.version == HttpVersion11:  # HTTP/1.0 knows no interim responses
            self.link.write(_PROBE)
        self.loop.call_later(_PROBED_AFTER, self._abort_if_gone)

    # --- answering ----------------------------------------------------------------------------------------------------
    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request and ends its connection where that was the last one."""
        self.request = request
        self.queued -= 1
        if self.state is _IDLE:
            self.state = _BUSY
        if self.half_closed:
            self._probe(request)
        begun, self.begun = self.begun, None
        try:
            try:
                response = await (self.service.handle(request) if begun is None else begun.resume(request))
                if isinstance(response, Response):
                    self._encode(request, response)
                else:
                    await response.prepare(request)
            except Exception as error:  # noqa: BLE001 - the border: whatever it is, the client gets an answer
                response = self._answer_defect(request, error)
            if isinstance(response, Response):
                response.send(request)
            if self.slow_reader is not None or not isinstance(response, Response):
                await response.write_eof()
        except asyncio.CancelledError:  # the client has gone, or the listener shuts down
            if has_begun(request):  # half a response was sent and must not look like a whole one
                abort(self.link, request)
            raise
        except ConnectionError:
            abort(self.link, request)
            raise
        finally:
            self.request = None
        if response.keep_alive and self.state is _BUSY and request.content.is_eof():
            self._await_next()
        else:
            await self._end(request)
        return response

    def _answer_defect(self, request: web.BaseRequest, error: Exception) -> Response:
        """The response to a request that could not be answered. Raises ConnectionError if another one has begun."""
        if has_begun(request):
            raise ConnectionError("the response broke off") from error
        response = self.service.refuse(BadRequest(INTERNAL_ERROR, ""))
        self._encode(request, response)
        return response

    def _encode(self, request: web.BaseRequest, response: Response) -> None:
        if self.state is _LAST or (self.half_closed and not self.queued):
            response.closes = True
        response.encode(request)

    def _await_next(self) -> None:
        self.state = _IDLE
        self.idle_since = self.loop.time()
        if self.head_since is not None:
            self.head_since = self.idle_since
        if self.half_closed and not self.queued:
            self.close()

    async def _end(self, request: web.BaseRequest) -> None:
        single = not request.keep_alive or request.version != HttpVersion11  # the client expects no second response
        expected = single and request.content.is_eof() and self.head_since is None
        if self.state is not _TUNNEL and not expected:
            await self.linger()
        self.close()

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Hands all further bytes of the connection to `parser`: they are no longer HTTP."""
        self.state = _TUNNEL
        super().set_parser(parser, data_received_cb)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,  # noqa: ARG002 - `explain_fault` has the status
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - as above
    ) -> web.StreamResponse:
        """Creates the response to bytes that the parser refused. Raises ConnectionError where a response was begun."""
        if has_begun(request) or not self.broken:
            raise ConnectionError("the response broke off")
        self.queued -= 1
        return LastResponse(self, self.service.refuse(explain_fault(exc)))

    async def _refuse_late_head(self) -> None:
        response = LastResponse(self, self.service.refuse(LATE_HEAD))
        if self.link is not None:
            self.link.write(write_response(response.status, response.fields, response.payload, "", 0, keep_alive=False))
            await self.linger()
            self.force_close()

    async def linger(self) -> None:
        """Closes the sending side and throws away what the client still sends, for up to LINGER seconds. Closing both
        sides at once would reset the connection, and the client could lose the response (RFC 9112 section 9.6)."""
        link = self.link
        if link is None or link.is_closing():
            return
        self.state = _LINGERING
        if link.can_write_eof():
            with suppress(OSError):  # the client has gone already
                link.write_eof()
        if not self.half_closed:
            if not link.is_reading():
                link.resume_reading()
            await asyncio.sleep(LINGER)  # cancelled when the client has gone

    # --- back-pressure ------------------------------------------------------------------------------------------------
    def pause_writing(self) -> None:
        """Starts the timeout of a client that does not read."""
        super().pause_writing()
        if self.link is not None:
            self.slow_reader = self.loop.call_later(self.service.timeouts.send, self.link.abort)

    def resume_writing(self) -> None:
        """Stops the timeout: the client reads again."""
        super().resume_writing()
        if self.slow_reader is not None:
            self.slow_reader.cancel()
            self.slow_reader = None


def respond(request: web.BaseRequest) -> Coroutine[Any, Any, web.StreamResponse]:
    """Answers a request on the connection that it came by."""
    connection: Any = request.protocol  # a `cast` costs each request a function call
    answer: Coroutine[Any, Any, web.StreamResponse] = connection.respond(request)
    return answer


class LastResponse(Response):
    """A response after which the connection lingers and closes."""

    def __init__(self, connection: Connection, response: Response) -> None:
        super().__init__(response.status, [*response.fields, ("Connection", "close")], response.payload, closes=True)
        self.connection = connection

    async def write_eof(self, data: bytes = b"") -> None:
        """Waits until the response is on its way, then lingers."""
        await super().write_eof(data)
        await self.connection.linger()

"""One client's connection: aiohttp's `RequestHandler` with the limits and endings that it lacks.

aiohttp's parser reads the bytes, and its `RequestHandler` serves the requests of a connection one after the other.
This file adds:

    Connection           timeouts, the size limit of a head, answers to malformed heads, half-closed and lingering
                         connections, clients that do not read
      ConnectionPhase    what a connection is doing
      WatchedProtocol    shows it the bytes before the parser reads them

aiohttp documents some of the names that this rests on, and not the following. Therefore it is pinned to a minor
version, and `check_aiohttp` refuses to start with another:

    RequestHandler   the keywords of its constructor; `handle_error`, `set_parser`, `close`, `force_close`,
                     `pause_reading`, `resume_reading`; `ssl_context`; BaseProtocol(loop, parser) as its base
    its parser       `feed_data`, `feed_eof`, `message_consumed`, `pause_reading`, `set_upgraded`
    StreamReader     `is_eof`, `read_nowait`, `set_exception`, `total_bytes`
    StreamWriter     `output_size`
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import aiohttp
from aiohttp import HttpVersion11
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse

from proxy.core.model.codes import INTERNAL_ERROR
from proxy.core.model.value_class import value_class
from proxy.server.http.framing import Response, abort, has_begun, write_response
from proxy.server.http.headers import Caller
from proxy.server.http.request_head import (
    FRAMING_TOO_LONG,
    HEAD_TOO_LONG,
    LATE_HEAD,
    MAX_FIELD,
    MAX_FIELDS,
    MAX_HEAD,
    MAX_TARGET,
    BadRequest,
    explain_fault,
)

if TYPE_CHECKING:
    from aiohttp import web

# How long a client may go on sending after the last response of its connection, in seconds (RFC 9112 section 9.6).
LINGER: Final = 2.0
# The buffer for a body that its reader has not taken yet, in bytes. The socket is paused once it holds twice as many.
MAX_HELD: Final = 64 * 1024
# A chunked body may spend this many bytes on chunk sizes, extensions and trailers for each byte of content, and
# MAX_HEAD more. Chunks of a single byte spend five.
_FRAMING_PER_BYTE: Final = 16
# A body that is read whole may spend this many bytes on its framing, and a quarter of its content.
_MAX_WHOLE_FRAMING: Final = 64 * 1024
# Chunked framing that one connection may have parsed in one turn of the loop, and the piece in which bytes are parsed
# that may hold some.
FRAMING_PER_TURN: Final = 16 * 1024
PIECE: Final = 8 * 1024
# When to look whether a probe was answered with a reset, in seconds.
_PROBED_AFTER: Final = 0.1
_PROBE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

# Longer than any connection lives, in seconds.
_NEVER: Final = 10 * 365 * 24 * 3600.0
# The length of `GET / HTTP/1.0`: no head can end before it.
_SHORTEST_HEAD: Final = 14
# Bytes, or the end of the connection, wait in the kernel's buffer.
_UNREAD: Final = getattr(select, "POLLIN", 0)
_AIOHTTP: Final = "3.14"


def check_aiohttp(version: str = aiohttp.__version__) -> None:
    """Raises ImportError for another minor version of aiohttp."""
    if version.split(".")[:2] != _AIOHTTP.split("."):
        raise ImportError(
            f"aiohttp {version} is installed, and connections are built on aiohttp {_AIOHTTP}, whose insides they use: "
            f'pip install "aiohttp~={_AIOHTTP}.0"'
        )


# Answers a request. Raises CancelledError when the client has gone.
Handle = Callable[[BaseRequest], Awaitable[StreamResponse]]


class BegunCall(Protocol):
    """A call that began without a task (`fast_call.py`). `is_sent`: its tool has it, and it needs no task yet."""

    is_sent: bool

    def resume(self, request: web.BaseRequest) -> Awaitable[StreamResponse]:
        """The response to the call, which goes on in a task."""

    def cancel(self) -> None:
        """Ends the call: its client has gone."""


# Begins a call while its bytes are read (`fast_call.py`): from its head as the parser gives it, its body and its
# connection. None for a request that needs a task from its beginning.
Begin = Callable[[Any, StreamReader, "Connection"], BegunCall | None]
# Creates the response to bytes that are not valid HTTP, and to a request whose handler failed.
RefuseHead = Callable[[BadRequest], Response]


@value_class
class Timeouts:
    """How long a connection waits, in seconds: for the rest of a `head` that has begun, between two requests (`idle`),
    and for a client that does not read its response (`send`).

    `idle` is longer than load balancers keep their connections to us (Google's: 600 s), so that they close first and
    never send a request on a connection that we are closing. Draining closes idle connections itself.
    """

    head: float = 15.0
    idle: float = 620.0
    send: float = 60.0


@value_class
class Service:
    """What the connections of a listener share."""

    handle: Handle
    refuse: RefuseHead
    timeouts: Timeouts
    begin: Begin | None = None


class ConnectionPhase(Enum):
    """What a connection is doing."""

    IDLE = auto()  # it waits for a request; a part of its head may have arrived
    BUSY = auto()  # a request is being answered; others may queue behind it
    LAST = auto()  # the request that is being answered, or comes next, is the last one
    TUNNEL = auto()  # a WebSocket: the bytes are no longer HTTP
    LINGERING = auto()  # the last response was sent; whatever the client still sends is thrown away
    CLOSED = auto()


# Constants, because CPython 3.11 looks up a member of an enum more slowly than it calls a function.
_IDLE: Final = ConnectionPhase.IDLE
_BUSY: Final = ConnectionPhase.BUSY
_LAST: Final = ConnectionPhase.LAST
_TUNNEL: Final = ConnectionPhase.TUNNEL
_LINGERING: Final = ConnectionPhase.LINGERING
_CLOSED: Final = ConnectionPhase.CLOSED
_ANSWERING: Final = frozenset({_BUSY, _LAST, _TUNNEL})


# What a parser's `feed_data` returns: the requests that began in the bytes, each with its body; whether the last one
# asks for a WebSocket; and the bytes behind it.
Parsed = tuple[Any, bool, bytes]
NOTHING_PARSED: Parsed = ((), False, b"")


class WatchedProtocol(BaseProtocol):
    """The base class behind `RequestHandler`, which creates its parser itself and hands it to `BaseProtocol`. Here a
    stand-in takes the parser's place: it has the methods that `RequestHandler` calls, and gives the connection what
    `feed_data` gets."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, parser: Any = None) -> None:
        connection = cast(Connection, self)
        connection.note_consumed = parser.message_consumed
        watch = SimpleNamespace(
            feed_data=partial(connection.feed_parser, parse=parser.feed_data),
            feed_eof=parser.feed_eof,
            message_consumed=parser.message_consumed,
            pause_reading=parser.pause_reading,
            set_upgraded=parser.set_upgraded,
        )
        super().__init__(loop, cast(Any, watch))


class Connection(RequestHandler, WatchedProtocol):
    """The protocol of one connection.

    Requests: `queued` counts those that were parsed and not started; `has_parsed` says that there was one; `request` is
    the one being answered; `body` is that of the latest. Heads: an unfinished one began at `head_since`, has
    `head_size` bytes so far and ends in `head_end` (three bytes). Bodies: `body_open` says that the latest is
    incomplete, `body_read` counts its bytes with their framing, `chunked` says that it comes in chunks. Ends:
    `idle_since` is when the connection became idle; `half_closed` says that the client sends no more and waits for its
    response; `broken` says that bytes arrived that are not HTTP, behind which no request can be found. Calls that began
    without a task: `begun` is the one under way, `held` its message and body, which aiohttp has not been given.
    """

    __slots__ = (
        "__weakref__",
        "begun",
        "body",
        "body_open",
        "body_read",
        "broken",
        "caller",
        "chunked",
        "closing_since",
        "finely_chunked",
        "half_closed",
        "has_parsed",
        "head_end",
        "head_since",
        "head_size",
        "held",
        "idle_since",
        "link",
        "loop",
        "note_consumed",
        "paused",
        "queued",
        "request",
        "rest",
        "resuming",
        "service",
        "side_task",
        "slow_reader",
        "state",
    )  # fmt: skip

    def __init__(self, manager: web.Server, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self.service = service
        self.loop = loop
        self.state = _IDLE
        self.link: asyncio.Transport | None = None  # aiohttp drops its own reference before the connection has ended
        self.caller: Caller | None = None  # kept by `find_caller`
        self.request: web.BaseRequest | None = None
        self.begun: BegunCall | None = None
        self.held: Any = None
        self.note_consumed: Callable[[], None]
        self.body: StreamReader | None = None
        self.finely_chunked: StreamReader | None = None  # the latest body with too many chunks to be read whole
        self.queued = self.head_size = self.body_read = 0
        self.body_open = self.chunked = False
        self.broken = self.half_closed = self.has_parsed = self.paused = False
        self.idle_since = loop.time()
        self.head_since: float | None = None
        self.head_end = b""
        self.closing_since: float | None = None
        self.rest = b""  # bytes for the next turns of the loop, while the socket is not read
        self.resuming: asyncio.Handle | None = None
        self.slow_reader: asyncio.TimerHandle | None = None
        self.side_task: asyncio.Task[None] | None = None
        super().__init__(
            manager,
            loop=loop,
            # `check_timeouts` closes idle connections. aiohttp's own timer must never end: it hears of no fast call.
            keepalive_timeout=_NEVER,
            access_log=None,  # type: ignore[arg-type]  # documented by aiohttp: no access log
            lingering_time=0,
            auto_decompress=False,
            read_bufsize=MAX_HELD,
            max_line_size=MAX_TARGET,
            max_field_size=MAX_FIELD,
            max_headers=MAX_FIELDS,
        )

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
        """Whether the client has just connected, or is in the middle of a head."""
        return not self.has_parsed or (self.state is _IDLE and self.head_since is not None)

    def is_occupied(self) -> bool:
        """Whether a request is under way, queued, or unread in the kernel's buffer."""
        if self.request is not None or self.queued or self.held is not None or self.rest:
            return True
        return self.state in (_IDLE, _LAST) and self.link is not None and _poll(self.link, _UNREAD)

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
            if _poll(link, 0):
                link.abort()
        elif not link.is_reading() and _poll(link, getattr(select, "POLLRDHUP", 0)):
            link.abort()

    # --- reading ------------------------------------------------------------------------------------------------------
    def feed_parser(self, data: bytes, parse: Callable[[bytes], Parsed]) -> Parsed:
        """Parses what has arrived, and notes which requests, or which part of a head or body, it was. After the last
        response, and after bytes that are not HTTP, it is thrown away. Raises HttpProcessingError where the bytes are
        not HTTP, or a head or the framing of a body is too long."""
        if self.held is not None:
            if not data:
                held, self.held = self.held, None
                self.queued += 1
                return [held], False, b""
            self.hand_over()  # what comes now queues behind it
        if self.broken or self.state is _LINGERING:
            return NOTHING_PARSED
        try:
            parsed = self._parse_some(data, parse)
        except HttpProcessingError:
            self.broken, self.has_parsed, self.rest = True, True, b""
            self.queued += 1
            if self.body is not None and not self.body.is_eof():
                self.body.set_exception(RequestPayloadError("the body is not framed as HTTP requires"))
            raise
        return NOTHING_PARSED if parsed[0] and self._begin_call(parsed) else parsed

    def _parse_some(self, data: bytes, parse: Callable[[bytes], Parsed]) -> Parsed:
        """Parses no more chunked framing than one turn of the loop may hold, and keeps what follows for the next one.
        Otherwise a few clients with tiny chunks would delay everybody else. Raises HttpProcessingError."""
        data, self.rest = self.rest + data, b""
        if len(data) <= PIECE or not self._may_be_chunked(data):
            parsed = parse(data)
            self._note_parsed(data, parsed)
            return parsed
        at = framing = 0
        parsed = NOTHING_PARSED
        while not parsed[0] and not parsed[1] and at < len(data) and framing + PIECE <= FRAMING_PER_TURN:
            piece, body = data[at : at + PIECE], self.body
            content = 0 if body is None else body.total_bytes
            parsed = parse(piece)
            self._note_parsed(piece, parsed)
            at += len(piece)
            framing += len(piece) - (body.total_bytes - content if body is not None else 0)
            if self.paused:
                break
        if parsed[1]:
            return parsed[0], True, parsed[2] + data[at:]
        messages = list(parsed[0])
        if messages and self.body is not None and self.body_open and not self.chunked:
            left = int(messages[-1][0].headers.get("Content-Length", 0)) - self.body.total_bytes
            piece = data[at : at + left]
            self._note_parsed(piece, parse(piece))
            at += len(piece)
        if at < len(data):
            self._keep_rest(data[at:])
        return messages, False, b""

    def _may_be_chunked(self, data: bytes) -> bool:
        if self.body_open:
            return self.chunked
        return self.head_since is not None or b"chunked" in data[:MAX_HEAD].lower()

    def _keep_rest(self, rest: bytes) -> None:
        """Keeps bytes for the next turn, and does not read the socket before they are parsed."""
        self.rest = rest
        if self.link is not None:
            self.link.pause_reading()
        if self.resuming is None and not self.paused:
            self.resuming = self.loop.call_soon(self._parse_rest)

    def _parse_rest(self) -> None:
        self.resuming = None
        if not self.paused and self.link is not None and not self.link.is_closing():
            self.data_received(b"")
            self._read_on()

    def _read_on(self) -> None:
        """Reads the socket again, unless bytes of it still wait."""
        if self.link is not None and not (self.rest or self.paused or self._buffer_paused):
            self.link.resume_reading()

    def _begin_call(self, parsed: Parsed) -> bool:
        """Begins the call in what was parsed; whether it needs no task yet."""
        messages, upgraded, _ = parsed
        begin = self.service.begin
        if (
            begin is None
            or self.state is not _IDLE
            or self.queued != 1
            or len(messages) != 1
            or self.body_open
            or self.head_since is not None
            or self.half_closed
            or self.rest
            or self.slow_reader is not None
            or upgraded
        ):
            return False
        message, body = messages[0]
        if message.should_close or message.upgrade or message.version != HttpVersion11:
            return False
        self.begun = begun = begin(message, body, self)
        if begun is None or not begun.is_sent:
            return False
        self.state, self.queued, self.held = _BUSY, 0, messages[0]
        return True

    def answer(self, data: bytes) -> bool:
        """Writes the response to the call that began without a task. False: it may not be written now, or no other may
        follow it."""
        if self.state is not _BUSY or self.held is None or self.half_closed or self.slow_reader is not None:
            return False
        if self.link is not None and not self.link.is_closing():
            self.link.write(data)
        self.begun = self.held = None
        self.note_consumed()
        self._await_next()
        return True

    def hand_over(self) -> None:
        """Gives aiohttp the request whose call began without a task: its own task goes on with it."""
        if self.held is not None:
            self.data_received(b"")

    def _note_parsed(self, data: bytes, parsed: Parsed) -> None:
        """Notes what bytes completed, or are a part of. Raises HttpProcessingError as `feed_parser`."""
        messages, upgraded, _ = parsed
        if not messages and data and self.body_open and self.body is not None:
            self.body_read += len(data)
            self.body_open = not self.body.is_eof()
            framing = self.body_read - self.body.total_bytes
            if self.chunked and framing > _MAX_WHOLE_FRAMING + self.body.total_bytes // 4:
                self.finely_chunked = self.body
            if self.body_open and self.chunked and framing > MAX_HEAD + _FRAMING_PER_BYTE * self.body.total_bytes:
                raise HttpProcessingError(message=FRAMING_TOO_LONG)
        elif not messages and data:
            self.head_since = self.loop.time() if self.head_since is None else self.head_since
            self.head_size += len(data)
            self.head_end = (self.head_end + data)[-3:]
            if self.head_size > MAX_HEAD:
                raise HttpProcessingError(message=HEAD_TOO_LONG)
        if not messages:
            return
        self.has_parsed = True
        self.queued += len(messages)
        message, self.body = messages[-1]
        head_end, before = self.head_end, self.head_size - len(self.head_end)
        self.head_since, self.head_size, self.head_end = None, 0, b""
        self.body_open, self.body_read, self.chunked = not self.body.is_eof(), len(data), message.chunked
        if upgraded or len(messages) > 1 or message.chunked or self.body_open:
            return
        # The request ends within these bytes. Bytes behind its end belong to the next head. The blank line that ends
        # this head may have begun in the bytes before.
        latest = head_end + data
        blank = latest.find(b"\r\n\r\n", max(_SHORTEST_HEAD - before, 0))
        if 0 <= blank < len(latest) - 4 - self.body.total_bytes:
            self.head_since = self.loop.time()
            # After an upgrade that aiohttp does not know, llhttp stops and drops the rest of the same bytes.
            if message.upgrade:
                self.state = _LAST

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio's own type says more than aiohttp's
        """The client has closed its sending side. Returns whether the connection stays open for the response (RFC 9112
        section 9.6).

        A client that has gone and one that merely sends no more look alike until they are sent something. Therefore
        they get an interim response: the kernel of a client that has gone answers it with a reset.
        """
        waits = self.queued or self.held is not None or self.state in (_BUSY, _LAST)
        whole = self.broken or self.body is None or self.body.is_eof()
        begun = self.request is not None and has_begun(self.request)
        if not waits or not whole or begun or self.ssl_context is not None or self.link is None or _poll(self.link, 0):
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
        """The response to a request that could not be answered. Raises ConnectionError where another response has
        begun."""
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
        """Makes the connection idle after a response."""
        self.state = _IDLE
        self.idle_since = self.loop.time()
        if self.head_since is not None:
            self.head_since = self.idle_since
        if self.half_closed and not self.queued:
            self.close()

    async def _end(self, request: web.BaseRequest) -> None:
        """Closes the connection after its last response."""
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
        """Answers a head that did not arrive in time."""
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
    def pause_reading(self) -> None:
        """Pauses the socket: the buffer of a body is full."""
        self.paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resumes the socket if it was paused. aiohttp calls this after every body; its own method would then run the
        parser on no bytes."""
        if self.paused:
            self.paused = False
            super().resume_reading(resume_parser)
            if self.rest and self.link is not None:
                self.link.pause_reading()

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


def _poll(link: asyncio.Transport, events: int) -> bool:
    """Whether one of the poll events `events` has happened at a connection, or its other end is gone: POLLHUP and
    POLLERR always count. Nothing is read from it."""
    client: socket.socket | None = link.get_extra_info("socket")
    if client is None or client.fileno() < 0 or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(client.fileno(), events)
    return bool(poll.poll(0))

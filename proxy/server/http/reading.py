"""Makes requests of a client's bytes: aiohttp's parser, with the limits and the fairness that it lacks.

    ReadingConnection    the part of a connection that reads: limits of heads and of chunked framing, how much of it one
                         turn of the loop parses, when the socket is paused, and which requests begin without a task
      ConnectionPhase    what a connection is doing
      WatchedProtocol    has it parse the bytes that aiohttp gives its parser

aiohttp documents some of the names that this and `server/connection.py` rest on, and not the following. Therefore it is
pinned to a minor version, and `check_aiohttp` refuses to start with another:

    RequestHandler   the keywords of its constructor; `handle_error`, `set_parser`, `close`, `force_close`,
                     `pause_reading`, `resume_reading`; `ssl_context`; BaseProtocol(loop, parser) as its base;
                     `_buffer_paused`, `_resume_reading_for_buffer`; `data_received` gives all bytes to the parser
    its parser       `feed_data`, `feed_eof`, `message_consumed`, `pause_reading`, `set_upgraded`
    StreamReader     `is_eof`, `read_nowait`, `set_exception`, `total_bytes`; `_buffer`, the pieces that were not read
    StreamWriter     `output_size`
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from enum import Enum, auto
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import aiohttp
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpVersion11
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from proxy.server.http.request_head import FRAMING_TOO_LONG, HEAD_TOO_LONG, MAX_FIELD, MAX_FIELDS, MAX_HEAD, MAX_TARGET

if TYPE_CHECKING:
    from aiohttp import web

# The buffer for a body that its reader has not taken yet, in bytes. The socket is paused once it holds twice as many.
MAX_HELD: Final = 64 * 1024
# A chunked body may spend this many bytes on chunk sizes, extensions and trailers for each byte of content, and
# MAX_HEAD more. Chunks of a single byte spend five.
_FRAMING_PER_BYTE: Final = 16
# A body that is read whole may spend this many bytes on its framing, and a quarter of its content.
_MAX_WHOLE_FRAMING: Final = 64 * 1024
# Chunked framing parsed for one connection in one turn of the loop, and the size of a parsed piece that may hold some.
FRAMING_PER_TURN: Final = 16 * 1024
PIECE: Final = 8 * 1024
# Longer than any connection lives, in seconds.
_NEVER: Final = 10 * 365 * 24 * 3600.0
# The length of `GET / HTTP/1.0`: no head can end before it.
_SHORTEST_HEAD: Final = 14
_AIOHTTP: Final = "3.14"


def check_aiohttp(version: str = aiohttp.__version__) -> None:
    """Raises ImportError for another minor version of aiohttp."""
    if version.split(".")[:2] != _AIOHTTP.split("."):
        raise ImportError(
            f"aiohttp {version} is installed, and connections are built on aiohttp {_AIOHTTP}, whose insides they use: "
            f'pip install "aiohttp~={_AIOHTTP}.0"'
        )


class ConnectionPhase(Enum):
    """The state of a connection."""

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
_LINGERING: Final = ConnectionPhase.LINGERING


# The result of a parser's `feed_data`: the requests that began in the bytes, each with its body; whether the last one
# requests a WebSocket; and the bytes behind it.
Parsed = tuple[Any, bool, bytes]
NOTHING_PARSED: Parsed = ((), False, b"")
# Begins a request without a task, while its connection reads it: from its head as the parser gives it, its whole body
# and its connection.
Begin = Callable[[Any, StreamReader, Any], None]


class WatchedProtocol(BaseProtocol):
    """The base class behind `RequestHandler`, which creates its parser itself and hands it to `BaseProtocol`. Here a
    substitute takes the parser's place: it has the methods that `RequestHandler` calls, and gives the connection what
    `feed_data` gets."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, parser: Any = None) -> None:
        connection = cast(ReadingConnection, self)
        connection.parse, connection.note_consumed = parser.feed_data, parser.message_consumed
        watch = SimpleNamespace(
            feed_data=connection.take_parsed,
            feed_eof=parser.feed_eof,
            message_consumed=parser.message_consumed,
            pause_reading=parser.pause_reading,
            set_upgraded=parser.set_upgraded,
        )
        super().__init__(loop, cast(Any, watch))


class ReadingConnection(RequestHandler, WatchedProtocol):
    """The part of a connection that reads.

    Requests: `queued` counts those that were parsed and not started; `has_parsed` says that there was one; `body` is
    that of the latest. Heads: an unfinished one began at `head_since`, has `head_size` bytes so far and ends in
    `head_end`. Bodies: `body_open` says that the latest is incomplete, `body_read` counts its bytes with their framing,
    `chunked` says that it comes in chunks. `broken` says that bytes arrived that are not HTTP, behind which no request
    can be found.

    Calls that begin without a task: `begin` begins them. `held` is the message and the body of the one under way,
    which aiohttp does not have. `ahead` is the parsed result that aiohttp has not asked for yet.
    """

    __slots__ = (
        "ahead",
        "begin",
        "body",
        "body_open",
        "body_read",
        "broken",
        "chunked",
        "finely_chunked",
        "has_parsed",
        "head_end",
        "head_since",
        "head_size",
        "held",
        "link",
        "loop",
        "note_consumed",
        "parse",
        "paused",
        "queued",
        "rest",
        "resuming",
        "state",
    )

    def __init__(self, manager: web.Server, loop: asyncio.AbstractEventLoop, begin: Begin | None) -> None:
        self.loop = loop
        self.begin = begin
        self.held: Any = None
        self.ahead: Parsed | HttpProcessingError | None = None
        self.state = ConnectionPhase.IDLE
        self.link: asyncio.Transport | None = None  # aiohttp drops its own reference before the connection has ended
        self.parse: Callable[[bytes], Parsed]
        self.note_consumed: Callable[[], None]
        self.body: StreamReader | None = None
        self.finely_chunked: StreamReader | None = None  # the latest body with too many chunks to be read whole
        self.queued = self.head_size = self.body_read = 0
        self.body_open = self.chunked = False
        self.broken = self.has_parsed = self.paused = False
        self.head_since: float | None = None
        self.head_end = b""
        self.rest = b""  # bytes for the next turns of the loop, while the socket is not read
        self.resuming: asyncio.Handle | None = None
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

    def data_received(self, data: bytes) -> None:
        """Begins a call if it is the only one in the bytes. aiohttp gets all other bytes."""
        if self.held is not None:
            self.hand_over()  # these bytes queue behind it
        begin, link = self.begin, self.link
        if begin is not None and self.state is _IDLE and not self.queued and link is not None and not link.is_closing():
            parsed = self._parse_arrived(data)
            is_alone = self.head_since is None and not (self.body_open or self.rest)
            if is_alone and type(parsed) is tuple and len(parsed[0]) == 1 and not parsed[1]:
                message, body = held = parsed[0][0]
                if not (message.should_close or message.upgrade) and message.version is HttpVersion11:
                    self.state, self.queued, self.held = _BUSY, 0, held
                    begin(message, body, self)
                    return
            self.ahead = parsed
        super().data_received(data)

    def hand_over(self) -> None:
        """Hands aiohttp the request whose call began without a task, so that aiohttp's task continues it."""
        if self.held is not None:
            self.ahead, self.held = ([self.held], False, b""), None
            self.queued += 1
            super().data_received(b"")

    def take_parsed(self, data: bytes) -> Parsed:
        """Returns aiohttp's substitute for its parser's result. Raises HttpProcessingError if the bytes are no HTTP, or
        a head or the framing of a body is too long."""
        ahead, self.ahead = self.ahead, None
        parsed = self._parse_arrived(data) if ahead is None else ahead
        if isinstance(parsed, HttpProcessingError):
            raise parsed
        return parsed

    def _parse_arrived(self, data: bytes) -> Parsed | HttpProcessingError:
        """Parses the bytes that have arrived, and notes which requests, or which part of a head or body, they were.
        Drops bytes after the last response, and after bytes that are not HTTP."""
        if self.broken or self.state is _LINGERING:
            return NOTHING_PARSED
        try:
            if len(data) > PIECE or self.rest:
                return self._parse_some(data)
            parsed = self.parse(data)
            self._note_parsed(data, parsed)
        except HttpProcessingError as error:
            self.broken, self.has_parsed, self.rest = True, True, b""
            self.queued += 1
            if self.body is not None and not self.body.is_eof():
                self.body.set_exception(RequestPayloadError("the body is not framed as HTTP requires"))
            return error
        return parsed

    def _parse_some(self, data: bytes) -> Parsed:
        """Parses no more chunked framing than one turn of the loop may hold, and keeps what follows for the next one.
        Otherwise a few clients with tiny chunks would delay everybody else. Raises HttpProcessingError."""
        if self.rest and not data:  # the parser may hold requests that it had no room for, which come first
            parsed = self.parse(b"")
            self._note_parsed(b"", parsed)
            if parsed[0] or parsed[1] or self.paused:
                if parsed[1]:
                    return parsed[0], True, parsed[2] + self._take_rest()
                self._keep_rest(self.rest)
                return parsed
        data = self._take_rest() + data
        if len(data) <= PIECE or (self.body_open and not self.chunked):
            parsed = self.parse(data)
            self._note_parsed(data, parsed)
            return parsed
        at = framing = 0
        parsed = NOTHING_PARSED
        while not parsed[0] and not parsed[1] and at < len(data) and framing + PIECE <= FRAMING_PER_TURN:
            piece, body = data[at : at + PIECE], self.body
            content = 0 if body is None else body.total_bytes
            parsed = self.parse(piece)
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
            self._note_parsed(piece, self.parse(piece))
            at += len(piece)
        if at < len(data):
            self._keep_rest(data[at:])
        return messages, False, b""

    def _take_rest(self) -> bytes:
        rest, self.rest = self.rest, b""
        return rest

    def _keep_rest(self, rest: bytes) -> None:
        """Keeps bytes for the next turn, and does not read the socket before they are parsed."""
        self.rest = rest
        if self.link is not None:
            self.link.pause_reading()
        if self.resuming is None and not (self.paused or self._buffer_paused):
            self.resuming = self.loop.call_soon(self._parse_rest)

    def _parse_rest(self) -> None:
        self.resuming = None
        if self.link is not None and not (self.paused or self._buffer_paused or self.link.is_closing()):
            self.data_received(b"")
            self._read_on()

    def _read_on(self) -> None:
        """Reads the socket again, unless bytes of it still wait."""
        if self.link is not None and not (self.rest or self.paused or self._buffer_paused):
            self.link.resume_reading()

    def _note_parsed(self, data: bytes, parsed: Parsed) -> None:
        """Notes what bytes completed, or are a part of. Raises HttpProcessingError."""
        if parsed[0]:
            self._note_requests(data, parsed)
        elif data and self.body_open and self.body is not None:
            self.body_read += len(data)
            self.body_open = not self.body.is_eof()
            framing = self.body_read - self.body.total_bytes
            if self.chunked and framing > _MAX_WHOLE_FRAMING + self.body.total_bytes // 4:
                self.finely_chunked = self.body
            if self.body_open and self.chunked and framing > MAX_HEAD + _FRAMING_PER_BYTE * self.body.total_bytes:
                raise HttpProcessingError(message=FRAMING_TOO_LONG)
        elif data:
            self.head_since = self.loop.time() if self.head_since is None else self.head_since
            self.head_size += len(data)
            self.head_end = (self.head_end + data)[-3:]
            if self.head_size > MAX_HEAD:
                raise HttpProcessingError(message=HEAD_TOO_LONG)

    def _note_requests(self, data: bytes, parsed: Parsed) -> None:
        messages, upgraded, _ = parsed
        message, body = messages[-1]
        self.has_parsed, self.body, self.chunked = True, body, message.chunked
        self.queued += len(messages)
        self.body_open, self.body_read = not body.is_eof(), min(len(data), PIECE)
        start, self.head_since = _SHORTEST_HEAD, None
        if self.head_size:  # the blank line that ends this head may have begun in the bytes before
            data, start = self.head_end + data, max(start - self.head_size + len(self.head_end), 0)
            self.head_size, self.head_end = 0, b""
        if upgraded or len(messages) > 1 or message.chunked or self.body_open:
            return
        # The request ends within these bytes. Bytes behind its end belong to the next head.
        if 0 <= data.find(b"\r\n\r\n", start) < len(data) - 4 - body.total_bytes:
            self.head_since = self.loop.time()
            # After an upgrade that aiohttp does not know, llhttp stops and drops the rest of the same bytes.
            if message.upgrade:
                self.state = _LAST

    def pause_reading(self) -> None:
        """Pauses the socket: the buffer of a body is full."""
        self.paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resumes the socket if it was paused. aiohttp calls this after every body; its own method would then run the
        parser on no bytes."""
        if self.paused:
            self.paused = False
            # A reader that takes what is parsed at once would otherwise have all of it parsed in one turn.
            super().resume_reading(resume_parser and not self.rest)
            if self.rest:
                self._keep_rest(self.rest)

    def _resume_reading_for_buffer(self) -> None:
        """Resumes the socket after requests that queued, unless bytes of it still wait."""
        super()._resume_reading_for_buffer()
        if self.rest:
            self._keep_rest(self.rest)


def poll_link(link: asyncio.Transport, events: int) -> bool:
    """Returns whether one of the poll events `events` has happened at a connection, or its other end is gone: POLLHUP
    and POLLERR always count. Nothing is read from it."""
    client: socket.socket | None = link.get_extra_info("socket")
    if client is None or client.fileno() < 0 or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(client.fileno(), events)
    return bool(poll.poll(0))

"""A handler of the application in place of a service on the network: `HandlerUpstream` implements `Upstream` in this
process.

    HandlerUpstream    calls the handler that the application's router has chosen for the request (`CURRENT`); by the
                       rules of resending more than once
    make_checked_request   the client's request with the checked arguments as its body, which the handler gets
    ResponseCapture    catches the handler's answer as it is written: whole, or as a stream at the pace of its reader
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy

from proxy.core.model.values import CheckedCall, Headers, UpstreamFault, UpstreamReply
from proxy.interfaces import UpstreamRequest
from proxy.upstream import ReplyBroken
from proxy.upstream.faults import RESPONSE_TIMEOUT
from proxy.upstream.http1.faults import INCOMPLETE, UNSENDABLE

if TYPE_CHECKING:
    from multidict import CIMultiDict


AppHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A request, and the handler that the application has for it."""

    request: web.Request
    handler: AppHandler


CURRENT: Final[ContextVar[Resolved]] = ContextVar("proxy.aiohttp")


class HandlerUpstream:
    """Implements `Upstream` over the handler of the request under way. `buffer` is the longest answer kept in memory,
    in bytes; longer ones and streams of events are handed on as they come."""

    def __init__(self, name: str, buffer: int) -> None:
        self._name = name
        self._buffer = buffer

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamReply | UpstreamFault:  # noqa: ARG002 - the proof of the check
        """Calls the handler once with a checked call. Cancelling the caller cancels the handler."""
        return await self._exchange(request)

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> UpstreamReply | UpstreamFault:
        """Calls the handler with a request that is not a call. Streamed bodies do not pass here: the application gives
        the requests of passthrough routes to their handlers directly."""
        return await self._exchange(request) if body is None else UNSENDABLE.of(self._name)

    async def close(self) -> None:
        """Does nothing."""

    async def _exchange(self, request: UpstreamRequest) -> UpstreamReply | UpstreamFault:
        capture, resolved = ResponseCapture(self._name), CURRENT.get()
        inner = make_checked_request(resolved.request, request, capture)
        handler = asyncio.create_task(_run(resolved.handler, inner, capture))
        try:
            async with asyncio.timeout(request.timeout):
                return await self._read_reply(capture, handler)
        except TimeoutError:
            handler.cancel()
            return RESPONSE_TIMEOUT.of(self._name)
        except BaseException:
            handler.cancel()
            raise

    async def _read_reply(self, capture: ResponseCapture, handler: asyncio.Task[None]) -> UpstreamReply:
        await capture.begun.wait()
        body = b""
        while not capture.endless and len(body) <= self._buffer:
            piece = await capture.next_piece()
            if piece is None:
                return UpstreamReply(capture.status, capture.headers, body)
            body += piece
        return UpstreamReply(capture.status, capture.headers, CapturedStream(capture, body, handler))


async def _run(handler: AppHandler, request: web.Request, capture: ResponseCapture) -> None:
    """Runs a handler and writes its answer as aiohttp does; a failure is an answer with status 500."""
    try:
        response = await _answer(handler, request)
        await response.prepare(request)
        await response.write_eof()
    except Exception:
        request.app.logger.exception("Error handling request")
        if capture.begun.is_set():
            capture.break_off()
            return
        failed = web.Response(status=500, text="500 Internal Server Error")
        await failed.prepare(request)
        await failed.write_eof()


async def _answer(handler: AppHandler, request: web.Request) -> web.StreamResponse:
    try:
        response = await handler(request)
    except web.HTTPException as error:
        return error
    if isinstance(response, web.FileResponse):
        raise TypeError("a guarded handler gives no FileResponse, which writes past the guard to the client's socket")
    return response


# Headers that are written anew, or have no use within one process.
_DROPPED: Final = frozenset({"host", "content-length", "transfer-encoding", "accept-encoding", "content-encoding"})


class CheckedRequest(web.Request):
    """A request whose body was checked. The application's `on_response_prepare` runs once, when the answer goes to the
    client, and not when the answer is captured here."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        pass


def make_checked_request(original: web.Request, sent: UpstreamRequest, writer: AbstractStreamWriter) -> web.Request:
    """The client's request with the headers and the body that an upstream would receive (`sent`).

    Path, query, match and what other middlewares stored in the request are the original's. The handler's answer is
    written to `writer`.
    """
    headers = CIMultiDict((name, value) for name, value in sent.headers if name.lower() not in _DROPPED)
    if (host := original.headers.get("Host")) is not None:
        headers["Host"] = host
    headers["Content-Length"] = str(len(sent.body))
    message = RawRequestMessage(
        original.method,
        original.raw_path,
        original.version,
        CIMultiDictProxy(headers),
        tuple((name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers.items()),
        False,  # the answer to the client decides whether the connection closes
        None,
        False,
        False,
        original.rel_url,
    )
    loop = asyncio.get_running_loop()
    body = StreamReader(original.protocol, len(sent.body) + 1, loop=loop)
    body.feed_data(sent.body)
    body.feed_eof()
    made = CheckedRequest(
        message,
        body,
        original.protocol,
        writer,
        original.task,
        loop,
        client_max_size=original.client_max_size,
        state=dict(original),
    )
    made._match_info = original.match_info  # aiohttp's `clone` does the same; there is no public way
    return made


# The most pieces of a stream that wait for their reader; beyond it the handler waits.
_MOST_WAITING: Final = 16
# Header fields by which aiohttp frames a message; the server that sends the answer writes its own.
_FRAMING: Final = frozenset({"connection", "transfer-encoding", "date", "server"})


class ResponseCapture(AbstractStreamWriter):
    """The writer to which aiohttp writes a response. `status` and `headers` are valid once `begun` is set."""

    def __init__(self, upstream: str) -> None:
        self.begun = asyncio.Event()
        self.status = 0
        self.headers: Headers = ()
        self._upstream = upstream
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_WAITING)
        self._broken = False

    # --- what aiohttp calls -------------------------------------------------------------------------------------------
    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """Takes the head of the response."""
        self.status = int(status_line.split(" ", 2)[1])
        self.headers = tuple((name, value) for name, value in headers.items() if name.lower() not in _FRAMING)
        self.begun.set()

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Takes a piece of the body. Waits while too many pieces are unread."""
        if chunk:
            await self._pieces.put(bytes(chunk))

    async def write_eof(self, chunk: bytes = b"") -> None:
        """Takes the last piece."""
        await self.write(chunk)
        await self._pieces.put(None)

    async def drain(self) -> None:
        """Does nothing: `write` waits already."""

    def enable_chunking(self) -> None:
        """Does nothing: the server that sends the answer writes the chunks."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """Raises NotImplementedError: the request accepts no content codings, so no handler should compress."""
        raise NotImplementedError("a guarded handler does not compress its answer: leave that to what is in front")

    # --- what the reader calls ----------------------------------------------------------------------------------------
    @property
    def endless(self) -> bool:
        """Whether the answer is a stream of events, which may never end."""
        types = [value for name, value in self.headers if name.lower() == "content-type"]
        return bool(types) and types[-1].lower().startswith("text/event-stream")

    def break_off(self) -> None:
        """Ends the answer of a handler that failed after its answer began."""
        self._broken = True
        if self._pieces.full():  # this must not wait: the last piece gives way to the end
            self._pieces.get_nowait()
        self._pieces.put_nowait(None)

    async def next_piece(self) -> bytes | None:
        """The next piece of the body, None behind the last one. Raises ReplyBroken where the handler has failed."""
        piece = await self._pieces.get()
        if piece is None and self._broken:
            raise ReplyBroken(INCOMPLETE.of(self._upstream))
        return piece


class CapturedStream:
    """The body of an answer that is not kept in memory; `first` holds the bytes read so far."""

    def __init__(self, capture: ResponseCapture, first: bytes, handler: asyncio.Task[None]) -> None:
        self._capture = capture
        self._first = first
        self._handler = handler

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        piece = await self._capture.next_piece()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Cancels the handler: nobody reads its answer any more."""
        self._handler.cancel()

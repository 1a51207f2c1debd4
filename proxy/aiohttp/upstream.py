"""A handler of the application in the place of a service on the network: `Upstream`, answered in this process.

Which handler that is, the application's own router has said before the guard was asked; `CURRENT` holds it for the
request under way. A call may be sent to it more than once, by the rules of resending.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from proxy.aiohttp.capture import CapturedStream, ResponseCapture
from proxy.aiohttp.request import checked_request
from proxy.core.model.values import CheckedCall, UpstreamFault, UpstreamReply
from proxy.interfaces import UpstreamRequest
from proxy.upstream.faults import RESPONSE_TIMEOUT
from proxy.upstream.http1.faults import UNSENDABLE

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
        """There is nothing to close."""

    async def _exchange(self, request: UpstreamRequest) -> UpstreamReply | UpstreamFault:
        capture, resolved = ResponseCapture(self._name), CURRENT.get()
        inner = checked_request(resolved.request, request, capture)
        handler = asyncio.create_task(_run(resolved.handler, inner, capture))
        try:
            async with asyncio.timeout(request.timeout):
                return await self._reply(capture, handler)
        except TimeoutError:
            handler.cancel()
            return RESPONSE_TIMEOUT.of(self._name)
        except BaseException:
            handler.cancel()
            raise

    async def _reply(self, capture: ResponseCapture, handler: asyncio.Task[None]) -> UpstreamReply:
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

"""The body of an answer that is handed on chunk by chunk: large ones and server-sent events.

Nothing is buffered beyond what the socket gave. There is no total timeout on a stream, only one between two chunks
(operations.md, HTTP correctness).
"""

from __future__ import annotations

import asyncio

import aiohttp

from proxy.core.model import UpstreamFault, UpstreamReply
from proxy.upstream.faults import CLIENT_ERRORS, fault_of


class ReplyBroken(Exception):  # noqa: N818 - it names an event, not a mistake of ours
    """A streamed answer broke off after its head was handed on. `fault` says how."""

    def __init__(self, fault: UpstreamFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class ReplyStream:
    """An asynchronous iterator over an answer's body. Raises ReplyBroken; whoever stops early calls `aclose`."""

    def __init__(self, response: aiohttp.ClientResponse, upstream: str, first: bytes, idle_timeout: float) -> None:
        self._response = response
        self._upstream = upstream
        self._first = first
        self._idle_timeout = idle_timeout

    def __aiter__(self) -> ReplyStream:
        return self

    async def __anext__(self) -> bytes:
        if self._first:
            chunk, self._first = self._first, b""
            return chunk
        try:
            async with asyncio.timeout(self._idle_timeout):
                chunk = await self._response.content.readany()
        except CLIENT_ERRORS as error:
            self._response.close()
            raise ReplyBroken(fault_of(error, self._upstream)) from error
        if not chunk:
            self._response.release()
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """Ends the answer. A body that was not read to its end costs the connection."""
        self._response.close()


async def close_body(reply: UpstreamReply) -> None:
    """Gives up an answer whose body nobody will read to its end."""
    close = getattr(reply.body, "aclose", None)
    if close is not None:
        await close()

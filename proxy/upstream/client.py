"""`Upstream` over aiohttp's client, one session per upstream, with the defaults that bite a proxy switched off.

Off are: the shared cookie jar (it would carry one caller's cookie into another's request), redirects, proxies and
credentials from the environment, decompression, made-up headers, and the silent second try of idempotent methods on a
broken connection: what is sent again is decided by the rules of contract section 7 alone. Idle connections are
dropped after 4 s, before a uvicorn upstream drops them at 5 s, so that a POST does not hit a dead socket.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import aiohttp
from yarl import URL

from proxy.core.model import CheckedCall, UpstreamFault, UpstreamReply
from proxy.interfaces import UpstreamRequest
from proxy.upstream.faults import CLIENT_ERRORS, CONNECTION_LIMIT, UNASKED_UPGRADE, fault_of
from proxy.upstream.stream import ReplyStream

# aiohttp warns when more bytes than this are handed over in one piece.
_ONE_PIECE: Final = 1024 * 1024

_OWN_HEADERS: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One upstream. Times in seconds, sizes in bytes.

    `url` is http or https with an optional path prefix; `socket` a unix socket to use instead of the network.
    `buffer` is the longest answer kept in memory, longer ones stream; `idle_timeout` is the longest silence within
    a stream. `tls` is a ready context, or None for the system's trust store; `server_name` is what the certificate
    has to carry where that is not the url's host.
    """

    name: str
    url: str
    socket: str | None = None
    tls: ssl.SSLContext | None = None
    connect_timeout: float = 2.0
    keepalive: float = 4.0
    idle_timeout: float = 300.0
    connections: int = 256
    buffer: int = 1024 * 1024
    server_name: str | None = None


class AiohttpUpstream:
    """Implements `Upstream`. Made inside a running event loop; `close` it."""

    def __init__(self, settings: UpstreamSettings) -> None:
        self._settings = settings
        self._base = settings.url.rstrip("/")
        self._busy = 0
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=settings.connect_timeout, sock_connect=settings.connect_timeout
        )
        self._session = aiohttp.ClientSession(
            connector=_connector(settings),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=_OWN_HEADERS,
            timeout=self._timeout,
            max_line_size=16 * 1024,
            max_field_size=16 * 1024,
        )
        # There is no public switch; tests/contract/test_upstream.py holds the behaviour.
        self._session._retry_connection = False

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamReply | UpstreamFault:  # noqa: ARG002 - the proof of the check
        """Sends a checked call once and gives the answer. Cancelling the caller cancels the upstream request."""
        return await self._exchange(request, None)

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> UpstreamReply | UpstreamFault:
        """Sends what is not a call, streaming both ways; `request.body` is used if `body` is None.

        `request.timeout` runs anew with each piece of the body. What its own iterator raises is raised here.
        """
        return await self._exchange(request, body)

    async def close(self) -> None:
        """Closes all connections."""
        await self._session.close()

    async def _exchange(
        self, request: UpstreamRequest, body: AsyncIterator[bytes] | None
    ) -> UpstreamReply | UpstreamFault:
        self._busy += 1
        upload = None
        try:
            async with asyncio.timeout(request.timeout) as deadline:
                upload = _Upload(body, deadline, request.timeout) if body is not None else None
                return await self._once(request, upload)
        except CLIENT_ERRORS as error:
            if upload is not None and upload.error is not None:
                raise upload.error from None
            if isinstance(error, aiohttp.ConnectionTimeoutError) and self._busy > self._settings.connections:
                return CONNECTION_LIMIT.of(self._settings.name)
            return fault_of(error, self._settings.name)
        finally:
            self._busy -= 1

    async def _once(self, request: UpstreamRequest, upload: _Upload | None) -> UpstreamReply | UpstreamFault:
        response = await self._session.request(
            request.method,
            URL(self._base + request.target, encoded=True),
            headers=request.headers,
            data=aiter(upload) if upload is not None else _payload(request.body),
            allow_redirects=False,
            server_hostname=self._settings.server_name,
        )
        try:
            if response.status == 101:
                response.close()
                return UNASKED_UPGRADE.of(self._settings.name)
            return UpstreamReply(response.status, tuple(response.headers.items()), await self._body(response))
        except BaseException:
            response.close()
            raise

    async def _body(self, response: aiohttp.ClientResponse) -> bytes | ReplyStream:
        """The body whole if it is finite and short, else a stream that begins with what was read so far."""
        read = b""
        endless = response.content_type == "text/event-stream"
        if not endless and (response.content_length or 0) <= self._settings.buffer:
            while chunk := await response.content.readany():
                read = read + chunk if read else chunk
                if len(read) > self._settings.buffer:
                    break
            else:
                return read
        return ReplyStream(response, self._settings.name, read, self._settings.idle_timeout)


class _Upload:
    """A streamed body that moves the deadline on as long as it comes: an upload may take as long as it takes.

    `error` is what the body's own iterator raised. aiohttp would call that a broken connection.
    """

    def __init__(self, body: AsyncIterator[bytes], deadline: asyncio.Timeout, seconds: float) -> None:
        self._body = body
        self._deadline = deadline
        self._seconds = seconds
        self.error: Exception | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        try:
            async for chunk in self._body:
                self._deadline.reschedule(now() + self._seconds)
                yield chunk
        except Exception as error:
            self.error = error
            raise
        self._deadline.reschedule(now() + self._seconds)


def _connector(settings: UpstreamSettings) -> aiohttp.BaseConnector:
    if settings.socket is not None:
        return aiohttp.UnixConnector(
            settings.socket, limit=settings.connections, keepalive_timeout=settings.keepalive
        )  # fmt: skip
    return aiohttp.TCPConnector(
        limit=settings.connections,
        keepalive_timeout=settings.keepalive,
        ttl_dns_cache=30,  # a service's address changes when its pod moves
        ssl=settings.tls or True,
    )


def _payload(body: bytes) -> bytes | io.BytesIO | None:
    return io.BytesIO(body) if len(body) > _ONE_PIECE else body or None

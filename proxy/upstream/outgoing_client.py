"""Requests of the proxy's own that are not calls: descriptions to import, a model endpoint, webhooks.

`OutgoingClient` asks one server and gives a whole answer within bounds of time and size, or an `UpstreamFault`.
`post_json` posts one value to one address.

aiohttp's client speaks HTTP. All automatic behavior is switched off. The client keeps no cookies, follows no redirects,
takes no proxy or password from the environment, and adds no headers but those that frame the message. A body stays in
its content coding, so that the caller decodes it within its own bound.

Each exchange has its own connection. A question to a model takes seconds, a connection milliseconds. A server may
close an idle connection just when a POST goes out on it, and aiohttp rightly does not send that POST twice.

A checked call never goes out here. It may be sent again only if no byte of it went out, and only the connection in
`proxy/upstream/http1/` knows that.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import field
from typing import Final

import aiohttp
from yarl import URL

from proxy.core.json.jsontext import dumps
from proxy.core.model.codes import BAD_REQUEST, UPSTREAM_BAD_ANSWER
from proxy.core.model.values import Executed, Headers, JsonValue, UpstreamFault, UpstreamReply, value_class
from proxy.interfaces import UpstreamRequest
from proxy.upstream import UpstreamSettings
from proxy.upstream.faults import (
    CONNECT_TIMEOUT,
    CONNECTION_LIMIT,
    INCOMPLETE,
    NOT_HTTP,
    RESPONSE_TIMEOUT,
    TLS_ALERT,
    TLS_UNTRUSTED,
    UNANSWERED,
    UNSENDABLE,
    FaultKind,
    connect_fault,
)
from proxy.upstream.http1.dial import Origin, read_origin

# The bounds are those of answers to calls (`upstream/http1/messages.py`): bytes of one header, and number of headers.
_MAX_FIELD: Final = 32 * 1024
_MAX_FIELDS: Final = 128
# Headers that aiohttp adds to a request by default.
_AUTOMATIC: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

# (Content type of an answer, the part of its body that has arrived) -> whether that part is enough.
Enough = Callable[[str, bytearray], bool]
TOO_LARGE: Final = FaultKind(
    UPSTREAM_BAD_ANSWER, "http_response_body_size", Executed.UNKNOWN, "its answer is too large"
)  # fmt: skip

TOO_MUCH: Final = FaultKind(
    BAD_REQUEST, "http_request_error", Executed.NO, "what was to be sent to it is too large"
)  # fmt: skip

# An exchange raises these. A header with a line break raises ValueError, a host name that IDNA cannot encode raises
# UnicodeError (a ValueError). A socket that breaks during a write raises OSError, and TimeoutError is an OSError too.
ERRORS: Final = (aiohttp.ClientError, OSError, ValueError)


@value_class
class WholeReply(UpstreamReply):
    """An answer with its whole body, still in its content coding."""

    body: bytes = field(repr=False)


def _never(_content_type: str, _body: bytearray) -> bool:
    return False


class OutgoingClient:
    """Asks one server. `settings` give its address, its TLS, how many exchanges go on at a time, and the name for
    faults.

    Raises ValueError for an invalid URL, and for TLS over a unix socket, which aiohttp's client does not speak.
    """

    def __init__(self, settings: UpstreamSettings) -> None:
        self.name = settings.name
        self._settings = settings
        self._origin = read_origin(settings.url, settings.socket)
        if self._origin.socket is not None and self._origin.tls:
            raise ValueError("TLS over a unix socket is for calls only: give an http URL, or a host and a port")
        self._base = f"{'https' if self._origin.tls else 'http'}://{self._origin.authority}{self._origin.prefix}"
        self._places = asyncio.Semaphore(settings.connections)

    async def fetch(self, request: UpstreamRequest, limit: int, enough: Enough = _never) -> WholeReply | UpstreamFault:
        """Sends a request and returns the answer with its whole body.

        The head of the answer must arrive within `request.timeout` seconds; after that no pause may be longer than the
        settings' `idle_timeout`. A body of more than `limit` bytes is a fault. `enough` sees the body after each piece;
        once it returns True, the rest is not read. Header names keep the server's spelling.
        """
        try:
            async with asyncio.timeout(min(self._settings.connect_timeout, request.timeout)):
                await self._places.acquire()
        except TimeoutError:
            return CONNECTION_LIMIT.of(self.name)
        try:
            async with self._session() as session:
                return await self._exchange(session, request, limit, enough)
        finally:
            self._places.release()

    def _session(self) -> aiohttp.ClientSession:
        settings = self._settings
        return aiohttp.ClientSession(
            connector=_connector(self._origin, settings),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=_AUTOMATIC,
            max_line_size=_MAX_FIELD,
            max_field_size=_MAX_FIELD,
            max_headers=_MAX_FIELDS,
            timeout=aiohttp.ClientTimeout(
                total=None, connect=settings.connect_timeout, sock_read=settings.idle_timeout
            ),
        )

    async def _exchange(
        self, session: aiohttp.ClientSession, request: UpstreamRequest, limit: int, enough: Enough
    ) -> WholeReply | UpstreamFault:
        name, begun = self.name, False
        target = self._origin.add_query(request.target) if self._origin.query else request.target
        try:
            async with asyncio.timeout(request.timeout):
                response = await session.request(
                    request.method,
                    URL(self._base + target, encoded=True),
                    headers=request.headers,
                    data=request.body or None,
                    allow_redirects=False,
                    server_hostname=self._settings.server_name,
                )
            begun = True
            async with response:
                body = await _read_body(response, limit, enough)
        except ERRORS as error:
            return find_fault_row(error, begun=begun, tls=self._origin.tls).of(name)
        if body is None:
            return TOO_LARGE.of(name)
        headers = tuple((key.decode("latin-1"), _text(value)) for key, value in response.raw_headers)
        return WholeReply(response.status, headers, body)


def _connector(origin: Origin, settings: UpstreamSettings) -> aiohttp.BaseConnector:
    if origin.socket is not None:
        return aiohttp.UnixConnector(origin.socket, force_close=True)
    return aiohttp.TCPConnector(
        ssl=settings.tls or True,
        force_close=True,
        use_dns_cache=False,  # a service's address changes when its pod moves
        resolver=aiohttp.ThreadedResolver(),  # the system's own: /etc/hosts and search domains count
    )


async def _read_body(response: aiohttp.ClientResponse, limit: int, enough: Enough) -> bytes | None:
    """Reads the body, or as much of it as is enough; None for a body of more than `limit` bytes."""
    body = bytearray()
    content_type = response.headers.get("Content-Type", "")
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limit:
            return None
        if enough(content_type, body):
            break
    return bytes(body)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:  # latin-1 maps each byte to one character
        return value.decode("latin-1")


def find_fault_row(error: Exception, *, begun: bool, tls: bool) -> FaultKind:
    """Finds the fault for an exception of one exchange. `begun`: the head of the answer has arrived. The texts of the
    exceptions stay out, because they may name addresses and quote what a server sent."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return CONNECT_TIMEOUT
        case aiohttp.ClientConnectorCertificateError():
            return TLS_UNTRUSTED
        case aiohttp.ClientConnectorError():
            return connect_fault(error.os_error, tls)
        case TimeoutError():
            return RESPONSE_TIMEOUT
        case aiohttp.ClientResponseError():
            return NOT_HTTP
        case ValueError() | aiohttp.InvalidURL():
            return UNSENDABLE
        case _ if begun:
            return INCOMPLETE
        case _:  # in TLS 1.3 a server can refuse our certificate after our side has finished its handshake
            return TLS_ALERT if isinstance(error.__cause__, ssl.SSLError) else UNANSWERED


# The bounds of `post_json`, in bytes.
MAX_POSTED: Final = 1024 * 1024
MAX_ANSWER: Final = 64 * 1024

_HEADERS: Final = (
    ("content-type", "application/json"),
    ("accept-encoding", "identity"),
    ("user-agent", "toolcall-proxy"),
)


async def post_json(
    client: OutgoingClient, target: str, value: JsonValue, *, headers: Headers = (), seconds: float = 5.0
) -> WholeReply | UpstreamFault:
    """Posts a value to a path of the client's server and returns the answer, whatever its status.

    `seconds` is the time for the whole exchange. A value of more than MAX_POSTED bytes is not sent; an answer of more
    than MAX_ANSWER bytes is a fault. Nothing is sent twice. `headers` have lower-case names and replace the default
    ones of the same name.
    """
    own = {name for name, _ in headers}
    fields = (*(pair for pair in _HEADERS if pair[0] not in own), *headers)
    request = UpstreamRequest(client.name, "POST", target, fields, dumps(value), seconds)
    if len(request.body) > MAX_POSTED:
        return TOO_MUCH.of(client.name)
    try:
        async with asyncio.timeout(seconds):
            return await client.fetch(request, MAX_ANSWER)
    except TimeoutError:
        return RESPONSE_TIMEOUT.of(client.name)

"""One server that the proxy itself asks: a whole answer within bounds of time and size, or an `UpstreamFault`.

    fetch       one exchange: a place among the connections, the request, the head, the body up to a limit

aiohttp's client does the HTTP. It is set up to do nothing nobody asked for: no cookies are kept, no redirect is
followed, no proxy or password is taken from the environment, no header is added but those that frame the message, and
a body stays in its content coding, so that the caller decodes it within a bound of its own.

Each exchange has a connection of its own. A question to a model takes seconds, a connection milliseconds; and one that
lies idle may be closed by the server just when a POST goes out on it, which aiohttp rightly does not send twice.

One JSON value to one address, and whether it was taken: what a webhook needs.
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
from proxy.upstream.faults import CONNECTION_LIMIT, RESPONSE_TIMEOUT, FaultKind
from proxy.upstream.http1.dial import Origin, read_origin
from proxy.upstream.http1.faults import (
    CONNECT_TIMEOUT,
    INCOMPLETE,
    NOT_HTTP,
    TLS_ALERT,
    TLS_UNTRUSTED,
    UNANSWERED,
    UNSENDABLE,
    connect_fault,
)
from proxy.upstream.settings import UpstreamSettings

# As for answers to calls (`upstream/http1/answer.py`): a field of a head, and how many there may be.
_MAX_FIELD: Final = 32 * 1024
_MAX_FIELDS: Final = 128
# What aiohttp adds to a request unless told otherwise.
_AUTOMATIC: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

# The content type of an answer and what has come of its body -> whether nothing more is wanted.
Enough = Callable[[str, bytearray], bool]
TOO_LARGE: Final = FaultKind(
    UPSTREAM_BAD_ANSWER, "http_response_body_size", Executed.UNKNOWN, "its answer is too large"
)  # fmt: skip

TOO_MUCH: Final = FaultKind(
    BAD_REQUEST, "http_request_error", Executed.NO, "what was to be sent to it is too large"
)  # fmt: skip

# Everything that an exchange may raise, ClientError and TimeoutError first among it: a header with a line break is a
# ValueError, a host name IDNA cannot encode a UnicodeError, a socket that breaks while it is written to an OSError.
ERRORS: Final = (aiohttp.ClientError, OSError, ValueError)


@value_class
class WholeReply(UpstreamReply):
    """An answer whose body came whole, still in its content coding."""

    body: bytes = field(repr=False)


def _never(_content_type: str, _body: bytearray) -> bool:
    return False


class OutgoingClient:
    """Asks one server. `settings` say where it is, how TLS is done, and how many exchanges go on at a time; their name
    stands in faults.

    Raises ValueError for a URL that is none, and for TLS over a unix socket, which aiohttp's client does not speak.
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
        """Sends a request and gives the answer with its whole body.

        `request.timeout` are the seconds until the head of the answer has come; after that no pause may be longer than
        the settings' `idle_timeout`. More than `limit` bytes of body are a fault. `enough` is asked after each piece:
        where it says so, the rest of the body is not waited for. Names of the answer's headers are as they came.
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
        try:
            async with asyncio.timeout(request.timeout):
                response = await session.request(
                    request.method,
                    URL(self._base + request.target, encoded=True),
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
    """The body, or what of it is enough; None where it has more than `limit` bytes."""
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
    except UnicodeDecodeError:  # a character for each byte
        return value.decode("latin-1")


def find_fault_row(error: Exception, *, begun: bool, tls: bool) -> FaultKind:
    """The row for an exception of one exchange. `begun`: the head of the answer had come. The words of the exceptions
    stay out: they may name addresses, and quote what a server sent."""
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
        case _:  # TLS 1.3 lets a server refuse our certificate only after our side has finished its handshake
            return TLS_ALERT if isinstance(error.__cause__, ssl.SSLError) else UNANSWERED


# In bytes.
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
    """Posts a value to a path of the client's server and gives the answer, whatever its status.

    `seconds` is the time for all of it, connection and answer included. A value of more than MAX_POSTED bytes is not
    sent; an answer of more than MAX_ANSWER bytes is a fault. Nothing is sent twice. `headers` have lower-case names and
    go before ours.
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

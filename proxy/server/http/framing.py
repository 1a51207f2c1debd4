"""Responses as bytes: status line, fields, framing (RFC 9112 sections 4 and 6, RFC 9110 section 8.6).

The caller gives status, fields and body. This file writes everything about the message itself: its length or chunks,
`Date`, `Server`, whether the connection continues, and no body if HTTP has none. Both classes are aiohttp's
`StreamResponse` with a head of our own, because aiohttp drops header bytes that are not UTF-8.

    Response         a whole response, written in one piece
    ResponseStream   a response that is written piece by piece, at the client's pace
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from aiohttp.http import HttpVersion11
from aiohttp.web_response import StreamResponse

from proxy.core.model.fields import Headers

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.abc import AbstractStreamWriter

    from proxy.server.http.request_head import RequestHead

SERVER: Final = "toolcall-proxy"
_SERVER_ROW: Final = f"Server: {SERVER}"

LAST_CHUNK: Final = b"0\r\n\r\n"
# RFC 9110 sections 15.3.5 and 15.4.5; a status below 200 has no body either.
_NO_BODY: Final = frozenset({204, 304})
# Fields of the message that are ours to write unless they are there.
_OF_THE_MESSAGE: Final = frozenset({"connection", "content-length", "content-type", "date", "server"})
# The characters that no field may hold (RFC 9110 section 5.5): a line end would make two of it, or another response.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Tools repeat their fields, so the rows of the latest ones are kept. Not those that are new each time, or secret.
_ONE_OF_ITS_KIND: Final = frozenset({"x-request-id", "set-cookie"})
_LONGEST_ROW: Final = 160
_MOST_ROWS: Final = 256
_LONGEST_HEAD: Final = 1024
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}
# Closing a socket at once resets its connection (SO_LINGER: on, for no time at all).
_RESET: Final = struct.pack("ii", 1, 0)


class _OwnHead(StreamResponse):
    """The shared interface of both responses to aiohttp. `lasts`: the connection continues; `sent_to`: the request
    whose client has the head."""

    lasts = False
    closes = False
    sent_to: web.BaseRequest | None = None

    def __init__(self, status: int) -> None:  # aiohttp's own makes headers that nobody reads
        self._status = status

    @property
    def keep_alive(self) -> bool:
        """Returns whether the connection stays open."""
        return self.lasts

    @property
    def prepared(self) -> bool:
        """Returns whether the head has gone out."""
        return self.sent_to is not None


class Response(_OwnHead):
    """A whole response. `closes`: the connection ends with it. Fields may be added to `fields` until it is encoded.
    `known`: the head of an earlier response, which `fields` extend."""

    encoded = b""

    def __init__(
        self,
        status: int,
        fields: list[tuple[str, str]],
        payload: bytes,
        *,
        closes: bool = False,
        known: KnownHead | None = None,
    ) -> None:
        self._status = status
        self.fields = fields
        self.payload = payload
        self.closes = closes
        self.known = known

    def encode(self, request: RequestHead) -> bytes:
        """The bytes of the response to a request. Raises ValueError if a field holds a control character."""
        minor = 1 if request.version == HttpVersion11 else 0
        lasts = request.keep_alive and (minor == 1 or is_lasting(request)) and request.content.is_eof()
        self.lasts = lasts and not self.closes
        if self.known is not None and self.lasts and minor == 1:
            self.encoded = self.known.write(self.fields, self.payload)
            return self.encoded
        fields = self.fields if self.known is None else [*self.known.crossing, *self.fields]
        self.encoded = write_response(self.status, fields, self.payload, request.method, minor, keep_alive=self.lasts)
        return self.encoded

    def try_encode(self, request: RequestHead) -> bytes:
        """Returns the bytes of the response; none if a task has to write it."""
        try:
            return b"" if self.closes else self.encode(request)
        except ValueError:  # the task refuses it
            return b""

    def send(self, request: web.BaseRequest) -> None:
        """Sends the response, unless it has gone out. Raises as `prepare`."""
        if self.sent_to is None:
            encoded = self.encoded or self.encode(request)
            self.sent_to = request
            write(request, encoded)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Sends the response. Raises ConnectionError when the client has gone, ValueError as `encode`."""
        self.send(request)
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 - the body is there from the beginning
        """Waits until the client has read enough of it. Raises ConnectionError when it has gone."""
        if self.sent_to is not None and self.sent_to.protocol.writing_paused:
            await self.sent_to.writer.drain()


class ResponseStream(_OwnHead):
    """A response whose body comes piece by piece: `length` bytes, or in chunks; in HTTP/1.0, which knows no chunks, to
    the end of the connection. More than `length` bytes never go out: the client would read them as another response.
    `closes`: the connection ends with it; `size` counts the bytes of its body."""

    def __init__(
        self, status: int, fields: Sequence[tuple[str, str]], length: int | None = None, *, closes: bool = False
    ) -> None:
        super().__init__(status)
        self.fields = fields
        self.left = length
        self.size = 0
        self.closes = closes
        self.ended = False
        self.in_chunks = False
        self.bodiless = False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Sends the head. Raises ConnectionError when the client has gone, ValueError for control characters."""
        if self.sent_to is not None:
            return request.writer
        status, minor = self.status, find_minor_version(request)
        self.bodiless = is_bodiless(status, request.method)
        self.in_chunks = self.left is None and not self.bodiless and minor == 1
        unframed = self.left is None and not self.bodiless and minor == 0
        self.lasts = is_lasting(request) and not (self.closes or unframed)
        rows, there = _rows(status, self.fields, minor)
        if self.in_chunks:
            rows.append("Transfer-Encoding: chunked")
        elif self.left is not None and not self.bodiless:
            rows.append(f"Content-Length: {self.left}")
        head = _head(rows, there, minor, keep_alive=self.lasts, typed=self.bodiless or self.left == 0)
        self.sent_to = request
        write(request, head)
        return request.writer

    async def write(self, data: bytes) -> None:  # type: ignore[override]  # bytes are all that is written here
        """Sends a piece, and waits while the client does not read. Raises ConnectionError when it has gone."""
        self.size += len(data)
        if self.left is not None:
            data = data[: self.left]
            self.left -= len(data)
        if data and not self.bodiless:
            await self._send(b"%x\r\n%b\r\n" % (len(data), data) if self.in_chunks else data)

    async def write_eof(self, data: bytes = b"") -> None:
        """Ends the body, with a last piece where there is one. Raises as `write`."""
        if self.ended:
            return
        if data:
            await self.write(data)
        self.ended = True
        await self._send(LAST_CHUNK if self.in_chunks else b"")

    async def _send(self, data: bytes) -> None:
        if self.sent_to is None:
            raise RuntimeError("the head of a stream goes out before its body")
        if data:
            write(self.sent_to, data)
        await self.sent_to.writer.drain()

    def abort(self) -> None:
        """Ends the connection at once, so that the client does not take what was sent for a whole response."""
        self.ended, self.lasts = True, False
        if self.sent_to is not None:
            abort(self.sent_to.transport, self.sent_to)


def write(request: web.BaseRequest, data: bytes) -> None:
    """Sends bytes of a response as they are: `writer` would frame them. Raises ConnectionResetError if it fails."""
    transport = request.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client has gone")
    request.writer.output_size += len(data)
    transport.write(data)


def abort(transport: asyncio.Transport | None, request: web.BaseRequest) -> None:
    """Ends a connection in the middle of a response. In HTTP/1.0 the end of the connection may be that of the body, so
    that only a reset tells its reader that something is missing."""
    if transport is None:
        return
    plain = transport.get_extra_info("socket")
    if plain is not None and request.version != HttpVersion11:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()


def has_begun(request: web.BaseRequest) -> bool:
    """Returns whether bytes of the response were sent, so that no other response is possible."""
    return request.writer.output_size > 0


def is_lasting(request: RequestHead) -> bool:
    """Returns whether the client wants to go on with its connection (RFC 9112 section 9.3). `close` goes before all
    else, which llhttp has otherwise for HTTP/1.0."""
    if not request.keep_alive:
        return False
    if request.version == HttpVersion11:
        return True
    wishes = ",".join(request.headers.getall("Connection", ())).split(",")
    return all(wish.strip(" \t").lower() != "close" for wish in wishes)


def find_minor_version(request: RequestHead) -> int:
    """Returns 1 for HTTP/1.1, and 0 for HTTP/1.0 and unsupported versions, which the oldest client can read."""
    return 1 if request.version == HttpVersion11 else 0


def is_bodiless(status: int, method: str) -> bool:
    """Returns whether a response ends with its head, whatever that says of a body."""
    return method == "HEAD" or status < 200 or status in _NO_BODY


def write_response(
    status: int, fields: Sequence[tuple[str, str]], body: bytes, method: str, minor: int, *, keep_alive: bool
) -> bytes:
    """The bytes of a whole response. Raises ValueError where a field holds a control character."""
    rows, there = _rows(status, fields, minor)
    bodiless = is_bodiless(status, method)
    if "content-length" not in there and (not bodiless or (body and status >= 200 and status not in _NO_BODY)):
        rows.append(f"Content-Length: {len(body)}")
    head = _head(rows, there, minor, keep_alive=keep_alive, typed=bodiless or not body)
    return head if bodiless else head + body


class KnownHeads:
    """The heads of the latest answers, for those that come again with other ids, lengths and dates. Kept are those of
    whole answers with a body and a type, in HTTP/1.1, on connections that stay open."""

    def __init__(self) -> None:
        self._heads: dict[tuple[int, Headers], KnownHead] = {}

    def find(self, status: int, fields: Headers) -> KnownHead | None:
        """The head of an answer whose upstream sent `fields`; None if it is not known."""
        return self._heads.get((status, fields))

    def learn(self, status: int, fields: Headers, crossing: Sequence[tuple[str, str]]) -> None:
        """Keeps the head of an answer. `crossing`: those of its fields that the client is sent."""
        if status < 200 or status in _NO_BODY or sum(len(name) + len(value) for name, value in fields) > _LONGEST_HEAD:
            return
        if any(name.lower() in _ONE_OF_ITS_KIND for name, _ in fields):  # new each time, or secret
            return
        try:
            rows, there = _rows(status, crossing, 1)
        except ValueError:  # a control character, which is refused when the answer is written
            return
        if "content-type" not in there or not there.isdisjoint(("connection", "content-length")):
            return
        named = "server" in there
        before = "\r\n".join(rows if named else rows[:-1])
        behind = "" if named else f"{_SERVER_ROW}\r\n"
        if len(self._heads) >= _MOST_ROWS:
            self._heads.clear()
        before, behind = f"{before}\r\n", f"{behind}Content-Length: "
        self._heads[status, fields] = KnownHead(before, behind, "date" in there, tuple(crossing))


class KnownHead(NamedTuple):
    """The rows of a head `before` and `behind` those that differ each time. `crossing`: the fields in these rows."""

    before: str
    behind: str
    is_dated: bool
    crossing: Headers

    def write(self, added: Sequence[tuple[str, str]], body: bytes) -> bytes:
        """The bytes of a whole answer, with what is `added` to its fields (without control characters)."""
        head, date = self.before, "" if self.is_dated else f"{make_date_row(int(time.time()))}\r\n"
        for name, value in added:
            head += f"{name}: {value}\r\n"
        return f"{head}{self.behind}{len(body)}\r\n{date}\r\n".encode("utf-8", "surrogateescape") + body


# --- heads ------------------------------------------------------------------------------------------------------------
def _rows(status: int, fields: Sequence[tuple[str, str]], minor: int) -> tuple[list[str], set[str]]:
    """The status line and the fields, and those fields that describe the message. Raises ValueError for a bad field."""
    rows = [f"HTTP/1.{minor} {status} {_PHRASES.get(status, '')}"]
    there: set[str] = set()
    for field in fields:
        lower, row = _known_rows.get(field) or _make_row(field)
        if lower in _OF_THE_MESSAGE:
            if lower == "content-length" and (status < 200 or status in _NO_BODY):
                continue
            there.add(lower)
        rows.append(row)
    if "server" not in there:
        rows.append(_SERVER_ROW)
    return rows, there


def _head(rows: list[str], there: set[str], minor: int, *, keep_alive: bool, typed: bool) -> bytes:
    """The bytes of a head. `typed`: the body has a type, or there is none."""
    if not typed and "content-type" not in there:
        rows.append("Content-Type: application/octet-stream")
    if "date" not in there:
        rows.append(make_date_row(int(time.time())))
    if keep_alive != (minor == 1) and "connection" not in there:  # sent only if it differs from the version's default
        rows.append("Connection: keep-alive" if keep_alive else "Connection: close")
    return ("\r\n".join(rows) + "\r\n\r\n").encode("utf-8", "surrogateescape")


def _make_row(field: tuple[str, str]) -> tuple[str, str]:
    """The name of a field in lower case, and its row. Raises ValueError where it holds a control character."""
    name, value = field
    lower, row = name.lower(), f"{name}: {value}"
    if _CONTROL.search(row):
        raise ValueError("a field of a response holds a control character")
    if lower not in _ONE_OF_ITS_KIND and len(row) <= _LONGEST_ROW:
        if len(_known_rows) >= _MOST_ROWS:
            _known_rows.clear()
        _known_rows[field] = lower, row
    return lower, row


_known_rows: dict[tuple[str, str], tuple[str, str]] = {}
_last_date = (-1, "")


def make_date_row(second: int) -> str:
    """The `Date` field of a second since the Unix epoch (RFC 9110 section 5.6.7), made once a second."""
    global _last_date  # noqa: PLW0603 - one clock for all connections
    known, row = _last_date
    if second != known:
        at = time.gmtime(second)
        day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04}"
        row = f"Date: {day} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"
        _last_date = (second, row)
    return row

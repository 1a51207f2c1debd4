"""The messages of HTTP/1.1 as bytes: `write_head` writes a request, `AnswerReader` reads one answer. Knows no socket
and no clock.

Only this file writes the framing of a request, whatever its headers say: Host, the length or coding of the body, and
Connection for an upgrade (RFC 9112). Text that would end a line early is refused, not cleaned: a checked request cannot
hold it, so it is an attack.

llhttp (through `httptools`) reads the head of an answer and the chunks, and is strict about both. Content-Length
together with Transfer-Encoding, a second length, obs-fold, a bare CR or LF and odd chunk sizes are errors. This file
refuses what llhttp lets pass: other protocols and versions, line breaks before the answer, a NUL in the reason. So it
does for transfer codings other than one `chunked`, a chunked HTTP/1.0 answer (RFC 9112 section 6.1), and statuses
outside 100..599 (RFC 9110 section 15).

llhttp receives the head up to its empty line and not a byte more; the bytes of the body are counted here. So bytes
after the end of an answer are always noticed, also if llhttp would start a new message or skip a line break. A
parser serves one answer: no pause or error reaches the next one, and the reference cycle between parser and reader
ends with it.

Most services answer call after call with the same head, at least within a second: `ReadHeads` keeps what was read of
the latest ones.
"""

from __future__ import annotations

import re
from itertools import compress
from typing import Final, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from proxy.core.model.fields import NO_NAMES, OF_THE_SENDER, FieldNames
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Headers
from proxy.upstream.faults import (
    ENDLESS_INTERIM,
    HEAD_TOO_LARGE,
    NOT_HTTP,
    SURPLUS,
    TRANSFER_CODING,
    UNASKED_UPGRADE,
    UNSENDABLE,
    ExchangeError,
)

# --- a request -------------------------------------------------------------------------------------------------------
# Methods whose missing body is stated as length 0 (RFC 9110 section 8.6).
_LENGTH_ANYWAY: Final = frozenset(["POST", "PUT", "PATCH"])
_METHOD: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2: a token
_TARGET: Final = re.compile(r"[/*][!-~]*")  # origin-form or `*`: no space, no control, ASCII

# The rows of the headers of a request, each with a place for its value; and which of the headers they are, if not all.
Layout = tuple[str, tuple[bool, ...] | None]
# Layouts that are remembered, by a client's names and the names that are sent: routes have few that differ, but a
# client may leave out others with each request (`Connection`). And the characters of one.
_MOST_LAYOUTS: Final = 512
_LONGEST_LAYOUT: Final = 2048
layouts: dict[tuple[FieldNames, tuple[str, ...]], Layout] = {}

CHUNKED: Final = -1


def write_head(
    method: str,
    target: str,
    authority: str,
    headers: Headers,
    length: int,
    upgrade: str = "",
    client: FieldNames = NO_NAMES,
) -> bytes:
    """The bytes of a request up to its body.

    `length` is the body's in bytes, or `CHUNKED`. A `host` among `headers` replaces `authority`. `upgrade` is the
    protocol to ask for. `client`: the names of the client's headers, which are as it wrote them.
    Raises ExchangeError(UNSENDABLE) where a line would break.
    """
    if not _TARGET.fullmatch(target) or not (method in _LENGTH_ANYWAY or _METHOD.fullmatch(method)):
        raise ExchangeError(UNSENDABLE)
    names, values = zip(*headers, strict=True) if headers else ((), ())
    rows, sent = layouts.get((client, names)) or _lay_out(client, names)
    if sent is not None:
        authority = next((value for name, value in headers if name == "host"), authority)
        values = tuple(compress(values, sent))
    texts = authority + "".join(values) + upgrade
    if "\n" in texts or "\r" in texts or "\0" in texts:
        raise ExchangeError(UNSENDABLE)
    framing = ""
    if length == CHUNKED:
        framing = "transfer-encoding: chunked\r\n"
    elif length or method in _LENGTH_ANYWAY:
        framing = f"content-length: {length}\r\n"
    if upgrade:
        framing += f"connection: upgrade\r\nupgrade: {upgrade}\r\n"
    # surrogateescape: bytes of a client's header that are not UTF-8 go out as they came.
    head = f"{method} {target} HTTP/1.1\r\nhost: {authority}\r\n{rows % values}{framing}\r\n"
    return head.encode("utf-8", "surrogateescape")


def _lay_out(client: FieldNames, names: tuple[str, ...]) -> Layout:
    """The rows of headers with these names, kept for the next request. Raises ExchangeError(UNSENDABLE)."""
    sent = tuple([name not in OF_THE_SENDER for name in names])
    spelt = [client.spellings.get(name, name).replace("%", "%%") for name in compress(names, sent)]
    if re.search("[\r\n\0]", "".join(spelt)):
        raise ExchangeError(UNSENDABLE)
    layout = "".join([f"{name}: %s\r\n" for name in spelt]), None if all(sent) else sent
    if client.is_shared and len(layout[0]) <= _LONGEST_LAYOUT:
        if len(layouts) >= _MOST_LAYOUTS:
            layouts.clear()
        layouts[client, names] = layout
    return layout


# --- an answer -------------------------------------------------------------------------------------------------------
END: Final = b"\r\n\r\n"
_STARTS: Final = (b"HTTP/1.1 ", b"HTTP/1.0 ")
_START_LENGTH: Final = 9
_BLANK: Final = b" \t"
_TIMEOUT_HINT: Final = re.compile(rb"(?:^|[,;\s])timeout=(\d{1,9})\b", re.IGNORECASE)
# Heads that an upstream's `ReadHeads` keeps, and the longest one, in bytes.
_MOST_HEADS: Final = 64
_LONGEST_HEAD: Final = 2048
# Bytes of framing that a chunked answer may spend per byte of body. A one-byte chunk costs five.
_CHUNK_OVERHEAD: Final = 8
MAX_FRAMING: Final = 64 * 1024  # of an answer that is read whole, and a quarter of its content


@value_class
class AnswerLimits:
    """The most that an upstream may send before the body of its answer.

    `head` limits the bytes of status line and headers together, and those of the trailers. `fields` limits the number
    of header fields, `interim` the number of 1xx answers before the final one.
    """

    head: int = 32 * 1024
    fields: int = 128
    interim: int = 16


class ReadHead(NamedTuple):
    """The parsed head of a final answer with a known length. `left`: the bytes of its body."""

    status: int
    headers: Headers
    length: int
    left: int | None
    keep_alive: bool
    idle: float | None


class ReadHeads(dict[bytes, ReadHead]):
    """The latest parsed heads, by their bytes. All readers that share it have the same limits."""

    def keep(self, head: bytes, read: ReadHead) -> None:
        """Keeps what was read of a head, unless it is long or belongs to one client."""
        if len(head) > _LONGEST_HEAD or b"\nset-cookie" in head.lower():
            return
        if len(self) >= _MOST_HEADS:
            self.clear()
        self[head] = read


class AnswerReader:
    """Reads the bytes of one answer; every method raises ExchangeError if they are not valid HTTP.

    `status` and `headers` are valid once `has_head` is true; `complete` marks the end of the answer. `size` counts the
    body bytes that nobody has taken yet. `length` is the Content-Length of an answer framed by it. Of a `chunked` one,
    `framed` counts the bytes and `content` those of its body. `idle` is how many seconds the connection may lie idle.
    """

    # Defaults are on the class because each call makes a reader, and most answers change few of them.
    begun = has_head = complete = keep_alive = switched = chunked = False
    status = size = framed = content = 0
    headers: Headers = ()
    length: int | None = None
    idle: float | None = None
    _parser: HttpResponseParser | None = None
    _fields: list[tuple[bytes, bytes]]
    _parts: list[bytes]
    _start = _tail = b""
    _again = _old = False
    _left: int | None = None
    _coding: bytes | None = None
    _interim = _overhead = _seen = 0

    def __init__(
        self, method: str, limits: AnswerLimits, upgrade: bool = False, heads: ReadHeads | None = None
    ) -> None:
        self._method = method
        self._limits = limits
        self._upgrade = upgrade
        self._heads = ReadHeads() if heads is None else heads

    def _new_head(self) -> None:
        self._parser = HttpResponseParser(self)
        self._fields = []
        self.status = self._seen = 0
        self.length = self.idle = self._coding = None

    # --- bytes in -----------------------------------------------------------------------------------------------------
    def feed(self, data: bytes) -> None:
        """Takes the next bytes from the upstream."""
        if self.complete:
            raise ExchangeError(SURPLUS)
        if not self.begun:
            self.begun = True
            self._parts = []
            end = data.find(END) + 4
            known = self._heads.get(data[:end]) if self._method != "HEAD" else None
            if known is None:
                self._new_head()
            else:
                self.status, self.headers, self.length, self._left, self.keep_alive, self.idle = known
                self.has_head, self.complete = True, known.left == 0
                data = data[end:]
        while not self.has_head and data:
            data = self._read_head(data)
        if data:
            self._read_body(data)

    def eof(self, clean: bool) -> bool:
        """Returns whether the end of the connection ends the answer. `clean` is False for a connection that broke."""
        if self.has_head and not self.chunked and self._left is None:
            self.complete = clean
        return self.complete

    @property
    def endless(self) -> bool:
        """Returns whether the answer is an event stream, which may never end."""
        types = [value for name, value in self.headers if name.lower() == "content-type"]
        return bool(types) and types[-1].lower().startswith("text/event-stream")

    @property
    def is_finely_chunked(self) -> bool:
        """Returns whether the answer has too many small chunks to be read whole."""
        return self.framed - self.content > MAX_FRAMING + self.content // 4

    def take(self) -> bytes:
        """The body bytes that arrived since the last call."""
        parts, self._parts, self.size = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drop(self) -> None:
        """Drops the parser of an answer that will not be read to its end, and the reference cycle with it."""
        self._parser = None

    # --- the head -----------------------------------------------------------------------------------------------------
    def _read_head(self, data: bytes) -> bytes:
        """Reads more of the head; gives the bytes after its empty line, if `data` reaches it."""
        if self._seen < _START_LENGTH and (self._seen or not data.startswith(_STARTS[0])):
            # llhttp accepts line breaks before the answer, RTSP, ICE, HTTP/0.9 and 2.0.
            self._start += data[: _START_LENGTH - len(self._start)]
            if not self._start.startswith(_STARTS) and not any(known.startswith(self._start) for known in _STARTS):
                raise ExchangeError(NOT_HTTP)
            self._old = self._start.startswith(_STARTS[1])
        tail = self._tail
        end = (tail + data).find(END) + 4 - len(tail) if tail else data.find(END) + 4
        ended = end > 3 - len(tail)
        piece, rest = (data[:end], data[end:]) if ended else (data, b"")
        starts = not self._seen
        self._seen += len(piece)
        if self._seen > self._limits.head:
            raise ExchangeError(HEAD_TOO_LARGE)
        if b"\0" in piece:
            raise ExchangeError(NOT_HTTP)
        self._parse(piece)
        if not ended:
            self._tail = (tail + data)[-3:]
            return b""
        self._tail = b""
        self._end_head()
        is_framed = self.has_head and not self.chunked and not self.switched and self._method != "HEAD"
        if starts and is_framed and self.length is not None:
            read = ReadHead(self.status, self.headers, self.length, self._left, self.keep_alive, self.idle)
            self._heads.keep(piece, read)
        return rest

    def _parse(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            raise ExchangeError(SURPLUS)
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            pass  # 101 with its Upgrade header: `_end_head` decides
        except HttpParserError as error:
            if self.status != 101:  # llhttp stops at a 101 that names no protocol as well
                raise ExchangeError(NOT_HTTP) from error

    def _end_head(self) -> None:
        status = self.status
        fields, self._fields = self._fields, []
        if len(fields) > self._limits.fields:
            raise ExchangeError(HEAD_TOO_LARGE)
        for name, value in fields:
            match name.lower():
                case b"content-length":
                    self.length = int(value.strip(_BLANK))
                case b"transfer-encoding":
                    self._coding = value.strip(_BLANK).lower() if self._coding is None else b"more than one"
                case b"keep-alive":
                    self.idle = read_idle_time(value)
                case _:
                    pass
        # llhttp leaves the blanks between a value and its line break. Bytes that are not UTF-8 go on as they came.
        self.headers = tuple(
            [(name.decode(), value.rstrip(_BLANK).decode("utf-8", "surrogateescape")) for name, value in fields]
        )
        if not 100 <= status <= 599:
            raise ExchangeError(NOT_HTTP)
        if status == 101:
            if not self._upgrade or not any(name.lower() == "upgrade" for name, _ in self.headers):
                raise ExchangeError(UNASKED_UPGRADE)
            self.switched = True
        elif status < 200:  # RFC 9110 section 15.2
            self._interim += 1
            if self._interim > self._limits.interim:
                raise ExchangeError(ENDLESS_INTERIM)
            self._start = b""
            self.headers = ()
            self._new_head()
            return
        self.has_head = True
        self._frame()

    def _frame(self) -> None:
        """Decides how the body ends (RFC 9112 section 6.3)."""
        if self.switched:
            self.keep_alive = False
        elif self._method == "HEAD" or self.status in (204, 304):
            self._left = 0
        elif self._coding is not None:
            if self._coding != b"chunked" or self._old:
                raise ExchangeError(TRANSFER_CODING)
            self.chunked = True
            return
        else:
            self._left = self.length
            self.keep_alive = self.keep_alive and self.length is not None
        self._parser = None
        self.complete = self._left == 0

    # --- the body -----------------------------------------------------------------------------------------------------
    def _read_body(self, data: bytes) -> None:
        if not self.chunked:
            size, left = len(data), self._left
            if left is not None:
                if size > left:
                    raise ExchangeError(SURPLUS)
                self._left, self.complete = left - size, size == left
            self._parts.append(data)
            self.size += size
            return
        self.framed += len(data)
        self._overhead += len(data)  # `on_body` subtracts the content again, with an allowance for its framing
        self._parse(data)
        if self._again:
            raise ExchangeError(SURPLUS)
        if self._overhead > self._limits.head:
            raise ExchangeError(HEAD_TOO_LARGE)
        self._tail = (self._tail + data[-5:])[-5:]
        if self.complete:
            self._parser = None
            # An answer ends with exactly one empty line; llhttp would skip further line breaks.
            if not self._tail.endswith(END) or self._tail.startswith(b"\n"):
                raise ExchangeError(SURPLUS)

    # --- what llhttp calls --------------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """Notes a second message within one answer."""
        self._again = self.complete

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps a header field. Trailers arrive here too, and nobody reads them (RFC 9110 section 6.5.1)."""
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Reads whether the connection may be reused; llhttp says it only inside its callbacks."""
        if self._parser is not None:
            self.status = self._parser.get_status_code()
            self.keep_alive = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """Keeps the content of a chunk, or a part of it."""
        self.content += len(data)
        self._overhead = max(self._overhead - len(data) * (1 + _CHUNK_OVERHEAD), -self._limits.head)
        self._parts.append(data)
        self.size += len(data)

    def on_message_complete(self) -> None:
        """Marks the end of a chunked body; other framings end by byte count."""
        self.complete = self.chunked


def read_idle_time(hint: bytes) -> float | None:
    """Returns how long to keep a connection whose upstream says `Keep-Alive: timeout=N`: well below N, in seconds."""
    found = _TIMEOUT_HINT.search(hint)
    return None if found is None else max(int(found[1]) - 1.0, int(found[1]) / 2)

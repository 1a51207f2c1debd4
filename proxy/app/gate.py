"""Stands between the socket and everything else, and lets through only what has one reading. Pure.

    Gate.add     what arrived
    Gate.head    the next request's head, once it is there
    Gate.body    the next bytes of its body, without their framing

Requests come out one at a time: whoever takes does not take the next head before the last one is answered, so that
requests sent in one packet are judged one by one. Of a chunked body the data alone comes out: extensions and trailers
end here (RFC 9112 section 7.1 lets a recipient drop both).
"""

from __future__ import annotations

import re
from typing import Final

from proxy.app.heads import CHUNKED, FIELD, MAX_HEAD, TOO_LARGE, Head, Malformed, judge, stray
from proxy.app.http1.fields import FieldLines

_BAD_CHUNK: Final = Malformed("The body's chunks are not framed as HTTP wants it.")
_BAD_TRAILER: Final = Malformed("The body ends in trailers that are no headers, or that frame the message.")
_LONG_TRAILER: Final = Malformed("The body ends in too many trailers.")

# RFC 9112 section 7.1: a size in hex and extensions, without the white space that section 7.1.1 calls bad. 4 GiB each.
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;" + _TOKEN + rb"(?:=(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?)*")
_MAX_SIZE_LINE: Final = 512
_MAX_TRAILERS: Final = 8 * 1024
_PLAIN_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,8}")
# Fields that must not come after the body (RFC 9110 section 6.5.1).
_NO_TRAILER: Final = (b"content-length", b"transfer-encoding", b"host", b"connection", b"upgrade", b"content-encoding")


class Gate:
    """The bytes of one connection. Once it has said Malformed, it says nothing else. `lines` are those read before, on
    this connection or another."""

    __slots__ = ("_buffer", "_chunks", "_left", "_lines", "_scanned", "_skipped")

    def __init__(self, lines: FieldLines) -> None:
        self._lines = lines
        self._buffer = b""
        self._scanned = 0
        self._skipped = False
        self._left = 0
        self._chunks: Chunks | None = None

    @property
    def in_body(self) -> bool:
        """Whether a body has begun and not ended."""
        return self._left > 0 or self._chunks is not None

    @property
    def held(self) -> int:
        """Bytes that wait here."""
        return len(self._buffer)

    def add(self, data: bytes) -> None:
        """Takes what arrived."""
        self._buffer = self._buffer + data if self._buffer else data

    def rest(self) -> bytes:
        """Gives up everything that is held: what follows an upgrade is no HTTP."""
        rest, self._buffer = self._buffer, b""
        return rest

    def head(self) -> Head | Malformed | None:
        """The next head; None where more has to arrive first. Not to be asked while a body is under way."""
        buffer = self._buffer
        if not buffer:
            return None
        if not self._skipped and buffer.startswith(b"\r\n"):
            # RFC 9112 section 2.2: one empty line before a request is an old client's habit.
            self._buffer = buffer = buffer[2:]
            self._skipped = True
        end = buffer.find(b"\r\n\r\n", max(self._scanned - 3, 0))
        if end < 0:
            return self._part(buffer)
        head = judge(buffer[: end + 2], self._lines) if end <= MAX_HEAD else TOO_LARGE
        if isinstance(head, Malformed):
            return head
        self._scanned, self._skipped = 0, False
        if head.length == CHUNKED:
            self._chunks = Chunks()
        else:
            self._left = head.length
        self._buffer = buffer[end + 4 :]
        return head

    def body(self) -> bytes | Malformed:
        """What is there of the body under way: b'' where nothing is. `in_body` tells whether more is to come."""
        chunks = self._chunks
        if chunks is None:
            buffer, left = self._buffer, self._left
            if len(buffer) <= left:
                self._buffer, self._left = b"", left - len(buffer)
                return buffer
            self._buffer, self._left = buffer[left:], 0
            return buffer[:left]
        piece = chunks.feed(self.rest())
        if chunks.ended:
            self._buffer, self._chunks = chunks.held, None
        return piece

    def _part(self, buffer: bytes) -> Malformed | None:
        """What is wrong with a head already, before its end is there."""
        new, self._scanned = max(self._scanned - 1, 0), len(buffer)
        if len(buffer) > MAX_HEAD:
            return TOO_LARGE
        return stray(buffer, new)


class Chunks:
    """A chunked body. `ended`: its last chunk has come, and `held` is what came behind it."""

    __slots__ = ("_left", "_trailers", "ended", "held")

    def __init__(self) -> None:
        self.ended = False
        self.held = b""
        self._left = 0  # bytes of the chunk under way, with its line end
        self._trailers = -1  # bytes of them so far, once the last chunk has come

    def feed(self, data: bytes) -> bytes | Malformed:
        """The data of the chunks, as far as it has come."""
        data = self.held + data if self.held else data
        out: list[bytes] = []
        at = 0
        while not self.ended:
            step = self._data(data, at, out) if self._left else self._line(data, at)
            if isinstance(step, Malformed):
                return step
            if not step:
                break
            at += step
        self.held = data[at:]
        return b"".join(out)

    def _data(self, data: bytes, at: int, out: list[bytes]) -> int | Malformed:
        """Bytes of a chunk; the two of its line end are looked at once both are there."""
        there = len(data) - at
        if self._left > 2:
            used = min(there, self._left - 2)
            out.append(data[at : at + used])
            self._left -= used
            return used
        if there < 2:
            return _BAD_CHUNK if there and data[at] != 0x0D else 0
        if data[at : at + 2] != b"\r\n":
            return _BAD_CHUNK
        self._left = 0
        return 2

    def _line(self, data: bytes, at: int) -> int | Malformed:
        """A chunk's size, or a trailer."""
        end = data.find(b"\r\n", at, at + _MAX_SIZE_LINE if self._trailers < 0 else at + _MAX_TRAILERS)
        if end < 0:
            return self._part_of_line(data[at:])
        line = data[at:end]
        if self._trailers >= 0:
            wrong = self._trailer(line)
            return end + 2 - at if wrong is None else wrong
        found = _SIZE.fullmatch(line)
        if found is None:
            return _BAD_CHUNK
        size = int(found[1], 16)
        if size:
            self._left = size + 2
        else:
            self._trailers = 0
        return end + 2 - at

    def _part_of_line(self, part: bytes) -> int | Malformed:
        if self._trailers >= 0:
            if len(part) + self._trailers > _MAX_TRAILERS:
                return _LONG_TRAILER
            return 0 if stray(part) is None else _BAD_TRAILER
        if len(part) >= _MAX_SIZE_LINE or stray(part) is not None:
            return _BAD_CHUNK
        # Nobody should wait for the end of a line that cannot become a size.
        begun = part.partition(b";")[0].removesuffix(b"\r")
        return 0 if not begun or _PLAIN_SIZE.fullmatch(begun) else _BAD_CHUNK

    def _trailer(self, line: bytes) -> Malformed | None:
        """Holds one line after the last chunk to the rules; the empty one ends the body."""
        if not line:
            self.ended = True
            return None
        self._trailers += len(line) + 2
        if self._trailers > _MAX_TRAILERS:
            return _LONG_TRAILER
        name = line.partition(b":")[0].lower()
        return _BAD_TRAILER if name in _NO_TRAILER or not FIELD.fullmatch(line + b"\r\n") else None

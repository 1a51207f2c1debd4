"""Content codings (RFC 9110 section 8.4.1), of which gzip and deflate are decoded within a bound.

A coded body is decoded before its validation, and the decoded body is forwarded without the header, so the bytes that
were checked are the bytes that are sent.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import pairwise
from typing import Final

# --- server-sent events as bytes --------------------------------------------------------------------------------------
# An empty line behind a line; the groups are atomic, so that CR LF is one line end.
_END: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LONGEST_END: Final = len(b"\r\n\r\n")
# One line of an event's data.
DATA: Final = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|(?<=[\r\n]))data:[ ]?([^\r\n]*)")
_ESCAPED: Final = re.compile(rb"\\u00[5-7]")


class EventSplitter:
    """Cuts a stream into events, each with the empty line that ends it. `size` is that of the event without an end."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def size(self) -> int:
        """The number of bytes behind the last event."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The events that end in these bytes."""
        known = max(0, len(self._rest) - _LONGEST_END + 1)  # no event ends before it
        self._rest += data
        ends = [*_find_ends(self._rest, known)]
        events = [bytes(self._rest[start:end]) for start, end in pairwise((0, *ends))]
        if ends:
            del self._rest[: ends[-1]]
        return events

    def feed_plain(self, data: bytes, marks: Iterable[bytes]) -> bytes | None:
        """The events that end in these bytes, in one piece; None, and nothing is taken, if a mark may be in them. An
        escaped letter or `_` may belong to a mark."""
        data = bytes(self._rest) + data if self._rest else data
        if b"\r" in data or any(mark in data for mark in marks) or (b"\\u00" in data and _ESCAPED.search(data)):
            return None
        end = data.rfind(b"\n\n") + 1
        end += end > 0
        self._rest[:] = data[end:]
        return data[:end]

    def take_rest(self) -> bytes:
        """Removes the event without an end, and returns it."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest


def _find_ends(data: bytearray, at: int) -> Iterator[int]:
    """The places behind the empty lines from a place on."""
    if data.find(b"\r", at) >= 0:
        yield from (found.end() for found in _END.finditer(data, at))
        return
    while (found := data.find(b"\n\n", at)) >= 0:  # a tenth of the time
        at = found + 2
        yield at


def list_data(body: bytes) -> Iterator[bytes]:
    """The data of every complete event of a whole body that has some."""
    for event in EventSplitter().feed(body):
        data = b"\n".join(DATA.findall(event))
        if data.strip(b"\n"):
            yield data


# --- content codings (RFC 9110 section 8.4.1) -------------------------------------------------------------------------
class Undecodable(Enum):
    """The reason why a body cannot be decoded."""

    UNKNOWN = "unknown content coding"
    BROKEN = "broken content coding"
    TOO_LARGE = "too large when decoded"


_GZIP_BITS: Final = 31
_ZLIB_BITS: Final = 15
_RAW_BITS: Final = -15
# The most members of a gzip body. Each costs a copy of what follows it, so thousands of empty ones would take seconds.
MOST_MEMBERS: Final = 1000
_IDENTITY: Final = ("", "identity")
_KNOWN: Final = frozenset({*_IDENTITY, "gzip", "x-gzip", "deflate"})


def is_coded(coding: str) -> bool:
    """Returns whether a Content-Encoding value names any coding at all."""
    return coding.strip().lower() not in _IDENTITY


def is_known(coding: str) -> bool:
    """Returns whether `decode` supports this coding."""
    return coding.strip().lower() in _KNOWN


def decode(body: bytes, coding: str, limit: int) -> bytes | Undecodable:
    """The body without its coding. `limit` is the most bytes that may come out."""
    coding = coding.strip().lower()
    if coding in _IDENTITY:
        return body
    if coding != "deflate":
        return _inflate(body, _GZIP_BITS, limit) if coding in _KNOWN else Undecodable.UNKNOWN
    found = _inflate(body, _ZLIB_BITS, limit)  # RFC 9110 means zlib's format; some senders omit its wrapper
    return _inflate(body, _RAW_BITS, limit) if found is Undecodable.BROKEN else found


def _inflate(body: bytes, bits: int, limit: int) -> bytes | Undecodable:
    """One compressed stream; in gzip, up to `MOST_MEMBERS` members, one after the other (RFC 1952 section 2.2)."""
    whole = b""
    for _ in range(MOST_MEMBERS):
        stream, left = zlib.decompressobj(bits), limit - len(whole)
        try:
            plain = stream.decompress(body, left + 1)
        except zlib.error:
            return Undecodable.BROKEN
        if len(plain) > left:
            return Undecodable.TOO_LARGE
        whole, body = whole + plain, stream.unused_data
        if not stream.eof or (body and bits != _GZIP_BITS):
            return Undecodable.BROKEN
        if not body:
            return whole
    return Undecodable.BROKEN

"""What JSON may be wrapped in: content codings (RFC 9110 section 8.4.1), of which gzip and deflate are decoded within a
bound and others are unknown, and server-sent events.

A coded body is decoded before anything is judged, and the decoded body is forwarded without the header. So the bytes
that were checked are the bytes that are sent, and a small body that unpacks to gigabytes is refused (operations.md,
HTTP correctness).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import Enum
from typing import Final


class Undecodable(Enum):
    """Why a body cannot be decoded."""

    UNKNOWN = "unknown content coding"
    BROKEN = "broken content coding"
    TOO_LARGE = "too large when decoded"


_GZIP_BITS: Final = 31
_ZLIB_BITS: Final = 15
_RAW_BITS: Final = -15
_IDENTITY: Final = ("", "identity")
_KNOWN: Final = frozenset({*_IDENTITY, "gzip", "x-gzip", "deflate"})


def is_coded(coding: str) -> bool:
    """Whether a Content-Encoding value names any coding at all."""
    return coding.strip().lower() not in _IDENTITY


def is_known(coding: str) -> bool:
    """Whether `decode` supports this coding."""
    return coding.strip().lower() in _KNOWN


def decode(body: bytes, coding: str, limit: int) -> bytes | Undecodable:
    """The body without its coding. `limit` is the most bytes that may come out."""
    match coding.strip().lower():
        case "" | "identity":
            return body
        case "gzip" | "x-gzip":
            return _members(body, limit)
        case "deflate":
            # RFC 9110 means zlib's format; some senders omit its wrapper.
            found = _inflate(body, _ZLIB_BITS, limit)
            return _inflate(body, _RAW_BITS, limit) if found is Undecodable.BROKEN else found
        case _:
            return Undecodable.UNKNOWN


def _inflate(body: bytes, bits: int, limit: int) -> bytes | Undecodable:
    found = _one(body, bits, limit)
    if isinstance(found, Undecodable):
        return found
    return found[0] if not found[1] else Undecodable.BROKEN


def _members(body: bytes, limit: int) -> bytes | Undecodable:
    """A gzip body: one or more members, one after the other (RFC 1952 section 2.2)."""
    whole = b""
    while body or not whole:
        found = _one(body, _GZIP_BITS, limit - len(whole))
        if isinstance(found, Undecodable):
            return found
        whole += found[0]
        body = found[1]
        if not found[0] and not body:
            break
    return whole


def _one(body: bytes, bits: int, limit: int) -> tuple[bytes, bytes] | Undecodable:
    """Decodes one compressed stream; gives its content and the bytes behind it."""
    stream = zlib.decompressobj(bits)
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error:
        return Undecodable.BROKEN
    if len(plain) > limit:
        return Undecodable.TOO_LARGE
    return (plain, stream.unused_data) if stream.eof else Undecodable.BROKEN


def read_events(body: bytes) -> Iterator[bytes]:
    """The data of every complete server-sent event (WHATWG HTML, "Interpreting an event stream")."""
    whole = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for block in whole.split(b"\n\n")[:-1]:
        lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        if any(lines):
            yield b"\n".join(lines)

"""Content codings (RFC 9110 section 8.4.1), of which gzip and deflate are decoded within a bound.

A coded body is decoded before its validation, and the decoded body is forwarded without the header, so the bytes that
were checked are the bytes that are sent.
"""

from __future__ import annotations

import zlib
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
    coding = coding.strip().lower()
    if coding in _IDENTITY:
        return body
    if coding != "deflate":
        return _inflate(body, _GZIP_BITS, limit) if coding in _KNOWN else Undecodable.UNKNOWN
    found = _inflate(body, _ZLIB_BITS, limit)  # RFC 9110 means zlib's format; some senders omit its wrapper
    return _inflate(body, _RAW_BITS, limit) if found is Undecodable.BROKEN else found


def _inflate(body: bytes, bits: int, limit: int) -> bytes | Undecodable:
    """One compressed stream; in gzip, one or more members, one after the other (RFC 1952 section 2.2)."""
    whole = b""
    while body or not whole:
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
        if not plain and not body:
            break
    return whole

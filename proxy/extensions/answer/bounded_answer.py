"""Reads an answer up to a bound: no more of its bytes than that, and no more of what they decode to."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Final

from proxy.core.json.contentcoding import MOST_MEMBERS
from proxy.core.model.value_class import value_class
from proxy.core.model.values import UpstreamReply
from proxy.upstream.faults import close_stream

_GZIP: Final = frozenset(["gzip", "x-gzip"])
# zlib's formats: gzip, its own, and raw deflate, which some servers send for it.
_GZIP_BITS: Final = 31
_ZLIB_BITS: Final = 15
_RAW_BITS: Final = -15


@value_class
class BoundedAnswer:
    """The part of an answer that was read: its `raw` bytes, and the `text` that they decode to, None if they cannot be
    decoded. `is_whole`: both are complete."""

    raw: bytes
    text: bytes | None
    is_whole: bool


async def read_answer(reply: UpstreamReply, most: int) -> BoundedAnswer:
    """Reads at most `most` bytes of an answer, and of what they decode to. A stream is closed. Raises ReplyBroken for a
    broken one."""
    coding = reply.header("content-encoding").strip().lower()
    raw, is_whole = await _gather(reply.body, most) if not isinstance(reply.body, bytes) else (reply.body, True)
    if coding in ("", "identity"):
        return BoundedAnswer(raw, raw, is_whole)
    text, is_decoded = decode_beginning(raw, coding, most)
    return BoundedAnswer(raw, text, is_whole and is_decoded)


async def _gather(body: AsyncIterator[bytes], most: int) -> tuple[bytes, bool]:
    """The beginning of a stream, and whether it is all of it."""
    found = bytearray()
    try:
        async for piece in body:
            found += piece
            if len(found) > most:
                return bytes(found[:most]), False
    finally:
        await close_stream(body)
    return bytes(found), True


def decode_beginning(raw: bytes, coding: str, most: int) -> tuple[bytes | None, bool]:
    """At most `most` bytes of what a coded body decodes to, and whether that is all; None if it cannot be decoded."""
    if coding in _GZIP:
        return _inflate(raw, _GZIP_BITS, most)
    if coding != "deflate":
        return None, False
    found = _inflate(raw, _ZLIB_BITS, most)
    return found if found[0] is not None else _inflate(raw, _RAW_BITS, most)


def _inflate(raw: bytes, bits: int, most: int) -> tuple[bytes | None, bool]:
    """The same for one format. A gzip body may have several members (RFC 1952 section 2.2)."""
    whole = bytearray()
    for _ in range(MOST_MEMBERS):
        stream = zlib.decompressobj(bits)
        try:
            whole += stream.decompress(raw, most - len(whole) + 1)
        except zlib.error:
            return None, False
        if len(whole) > most:
            return bytes(whole[:most]), False
        if not stream.eof:
            return bytes(whole), False
        raw = stream.unused_data
        if raw and bits != _GZIP_BITS:
            return None, False
        if not raw:
            return bytes(whole), True
    return None, False

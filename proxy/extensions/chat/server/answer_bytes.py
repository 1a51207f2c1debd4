"""The bytes of a model server's answers, and the headers that go with them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from dataclasses import replace

from proxy.core.model.values import Headers, UpstreamReply
from proxy.upstream import ReplyBroken
from proxy.upstream.faults import close_body

# Fields that do not hold for an answer that was changed.
_OF_THE_BYTES = frozenset({"content-length", "etag", "content-digest", "repr-digest", "digest", "content-md5"})


def is_plain(reply: UpstreamReply) -> bool:
    """Whether an answer is a success, and not compressed."""
    return reply.status == 200 and find_header(reply.headers, "content-encoding") in ("", "identity")


def find_header(headers: Headers, name: str) -> str:
    """The first value of a field; '' without one."""
    return next((value for each, value in headers if each.lower() == name), "")


def keep_true(headers: Headers) -> Headers:
    """The headers that hold for another body, too."""
    return tuple((name, value) for name, value in headers if name.lower() not in _OF_THE_BYTES)


def make_headers_again(headers: Headers, body: bytes) -> Headers:
    """The headers of another question. A key by which the server knows a request that comes twice becomes one of the
    question itself: under the first one it would answer with the first answer, or refuse the other body."""

    def derive(key: str) -> str:
        return hashlib.sha256(key.encode("utf-8", "surrogateescape") + b"\0" + body).hexdigest()

    return tuple(
        (name, derive(value) if name.lower() == "idempotency-key" else value) for name, value in keep_true(headers)
    )


async def stream_on(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """A body of which the first piece has been read."""
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        await rest.aclose()


async def collect(reply: UpstreamReply, limit: int) -> tuple[UpstreamReply, str]:
    """The answer with its whole body, where that has at most `limit` bytes and does not break off. Otherwise the body
    stays a stream of the same bytes, and the reason is `too_long` or `cut`."""
    if isinstance(reply.body, bytes):
        return reply, "too_long" if len(reply.body) > limit else ""
    parts: list[bytes] = []
    size = 0
    try:
        async for piece in reply.body:
            parts.append(piece)
            size += len(piece)
            if size > limit:
                return replace(reply, body=stream_again(parts, reply, None)), "too_long"
    except ReplyBroken as broken:
        return replace(reply, body=stream_again(parts, reply, broken)), "cut"
    await close_body(reply)
    return replace(reply, body=b"".join(parts)), ""


async def stream_again(
    parts: list[bytes], reply: UpstreamReply, broken: ReplyBroken | None
) -> AsyncGenerator[bytes, None]:
    """What was read of a body, and the rest of it. Raises ReplyBroken as the body itself did."""
    try:
        for part in parts:
            yield part
        if broken is not None:
            raise broken
        if not isinstance(reply.body, bytes):
            async for piece in reply.body:
                yield piece
    finally:
        await close_body(reply)

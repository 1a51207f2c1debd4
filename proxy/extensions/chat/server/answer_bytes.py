"""The bytes of a model server's answers, and the headers that go with them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator

from proxy.core.model.values import Headers, UpstreamReply
from proxy.extensions.mcp.server.replayed_body import ReplayedBody

# Fields that are wrong for an answer that may change, and one that is wrong for a changed one.
_OF_THE_BYTES = frozenset({"content-length", "content-digest", "repr-digest", "digest", "content-md5"})
_OF_THE_VERSION = "etag"


def is_plain(reply: UpstreamReply) -> bool:
    """Whether an answer is a success, and not compressed."""
    return reply.status // 100 == 2 and reply.header("content-encoding") in ("", "identity")


def keep_true(headers: Headers, *, is_changed: bool = True) -> Headers:
    """The headers that are right for another body, too, or for one that may still change."""
    wrong = _OF_THE_BYTES | {_OF_THE_VERSION} if is_changed else _OF_THE_BYTES
    return tuple((name, value) for name, value in headers if name.lower() not in wrong)


def make_headers_again(headers: Headers, body: bytes) -> Headers:
    """The headers of another question. It gets an idempotency key of its own: to the first key the server would repeat
    its first answer, or refuse the other body."""

    def derive(key: str) -> str:
        return hashlib.sha256(key.encode("utf-8", "surrogateescape") + b"\0" + body).hexdigest()

    return tuple(
        (name, derive(value) if name.lower() == "idempotency-key" else value) for name, value in keep_true(headers)
    )


async def stream_on(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """A body whose first piece has been read."""
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        await rest.aclose()


def find_reason(reply: UpstreamReply, limit: int) -> str:
    """Why a gathered answer is relayed unread; '' where it is not."""
    if isinstance(reply.body, bytes):
        return "too_long" if len(reply.body) > limit else ""
    return "cut" if isinstance(reply.body, ReplayedBody) and reply.body.is_broken else "too_long"

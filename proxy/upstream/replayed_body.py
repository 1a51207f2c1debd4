"""Returns an answer's whole body, if it is short enough; otherwise a stream of the same bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from proxy.core.model.values import UpstreamReply
from proxy.upstream.faults import ReplyBroken, close_body


async def gather_body(reply: UpstreamReply, limit: int) -> UpstreamReply:
    """The answer with its body in memory. An answer of more than `limit` bytes, or one that breaks off, has a stream
    that repeats the pieces already read."""
    if isinstance(reply.body, bytes):
        return reply
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in reply.body:
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                return replace(reply, body=ReplayedBody(pieces, reply, None))
    except ReplyBroken as broken:
        return replace(reply, body=ReplayedBody(pieces, reply, broken))
    except BaseException:
        await close_body(reply)
        raise
    await close_body(reply)
    return replace(reply, body=b"".join(pieces))


class ReplayedBody:
    """A stream that repeats the pieces already read, then continues with the rest, or breaks off as the body did. Has
    the methods that the stream of an answer needs: iteration and `aclose`."""

    def __init__(self, pieces: list[bytes], reply: UpstreamReply, broken: ReplyBroken | None) -> None:
        self._pieces = pieces
        self._reply = reply
        self._broken = broken

    @property
    def is_broken(self) -> bool:
        """Returns whether the body broke off."""
        return self._broken is not None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._pieces:
            return self._pieces.pop(0)
        if self._broken is not None:
            raise self._broken
        if isinstance(self._reply.body, bytes):
            raise StopAsyncIteration
        return await anext(self._reply.body)

    async def aclose(self) -> None:
        """Closes the stream early."""
        await close_body(self._reply)

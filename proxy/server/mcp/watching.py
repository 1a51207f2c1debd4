"""Answers on their way to the client, looked at as they pass: nothing is changed, held back or waited for.

A `Watch` is told of each piece of a body and of its end. What it keeps of it is bounded; a body that is longer than
that is not looked at any further.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final, Protocol

from proxy.adapters.mcplist import MAX_LIST
from proxy.core.model.values import UpstreamReply
from proxy.server.mcp.lists.learner import decode_body

# "notifications/tools/list_changed" as JSON may spell it: some writers escape every slash.
LIST_CHANGED: Final = re.compile(rb"notifications\\?/tools\\?/list_changed")
# A listed tool that its server does not know: as a JSON-RPC error, or in the words of the Python and TypeScript SDKs.
UNKNOWN_TOOL: Final = re.compile(rb'"code"\s*:\s*-3260[12]\b|"text"\s*:\s*"(?:Unknown tool|MCP error -32602: Tool )')
# Longer than anything that is looked for, so that it is also found where two pieces meet.
_OVERLAP: Final = 64


class Watch(Protocol):
    """Looks at a body as it passes."""

    def feed(self, data: bytes) -> None:
        """A piece of it."""

    def end(self) -> None:
        """It came to its end."""


class WatchedStream:
    """Tells each time when a piece of a body holds what a pattern looks for. What it finds is short."""

    def __init__(self, pattern: re.Pattern[bytes], tell: Callable[[], None]) -> None:
        self._pattern = pattern
        self._tell = tell
        self._tail = b""

    def feed(self, data: bytes) -> None:
        """Looks for it, also across two pieces."""
        seen = self._tail + data
        found = self._pattern.search(seen) is not None
        self._tail = b"" if found else seen[-_OVERLAP:]
        if found:
            self._tell()

    def end(self) -> None:
        """Nothing is left to be told."""


class WatchedBody:
    """Gathers a body of at most `limit` bytes and hands it on at its end."""

    def __init__(self, read: Callable[[bytes], None], limit: int = MAX_LIST) -> None:
        self._read = read
        self._limit = limit
        self._parts: list[bytes] | None = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Keeps a piece, as long as all of them are not too much."""
        if self._parts is None:
            return
        self._size += len(data)
        self._parts.append(data)
        if self._size > self._limit:
            self._parts = None

    def end(self) -> None:
        """Hands the body on."""
        if self._parts is not None:
            self._read(b"".join(self._parts))


def watch_answer(reply: UpstreamReply, *watches: Watch) -> UpstreamReply:
    """The same answer, under the eyes of `watches`. A body in memory is looked at now."""
    if not isinstance(reply.body, bytes):
        return replace(reply, body=_Watched(reply.body, watches))
    body = decode_body(reply, reply.body)
    for watch in watches if body is not None else ():
        watch.feed(body or b"")
        watch.end()
    return reply


class _Watched:
    """A stream with watches. Implements what an answer's stream has to: iteration, and `aclose`."""

    def __init__(self, body: AsyncIterator[bytes], watches: tuple[Watch, ...]) -> None:
        self._body = body
        self._watches = watches

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await anext(self._body)
        except StopAsyncIteration:
            self._end()
            raise
        for watch in self._watches:
            watch.feed(data)
        return data

    async def aclose(self) -> None:
        """Closes the stream early. Clients leave with the last event, so what came may well be all there was to
        come."""
        self._end()
        close = getattr(self._body, "aclose", None)
        if close is not None:
            await close()

    def _end(self) -> None:
        watches, self._watches = self._watches, ()
        for watch in watches:
            watch.end()

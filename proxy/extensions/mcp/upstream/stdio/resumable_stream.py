"""The messages of a child as server-sent events, and the newest ones of a session for a client whose connection broke.

The events of a session have ids, `STREAM-NUMBER`. The client sends the last id that it has seen (`Last-Event-ID`) and
reads the rest of that stream. Stream 0 is the session's GET stream, each other one is the answer to a request
(specification 2025-11-25, "Resumability and Redelivery").
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from proxy.core.model.values import UpstreamFault
from proxy.extensions.mcp.upstream.stdio.child_client import ChildEnded, ChildRequest, Mailbox
from proxy.upstream.faults import ReplyBroken

# The most events of a session that are kept, and the most bytes of them.
_MOST_KEPT: Final = 1024
_MOST_BYTES: Final = 1 << 20
# The most streams of a session that wait for their client to return.
_MOST_LEFT: Final = 16
_EVENT_ID: Final = re.compile(r"(\d{1,9})-(\d{1,9})")
# The first event for a client: an id to return with, and after how many milliseconds.
_PRIMING: Final = b"retry: 1000\ndata: \n\n"
_READS_PRIMING: Final = "2025-11-25"


def format_event(message: bytes) -> bytes:
    """One message as a server-sent event."""
    return b"event: message\ndata: " + message + b"\n\n"


class Feed:
    """The events of one stream, which one connection after another may read. `request` is the request that it answers;
    the GET stream has none."""

    def __init__(self, number: int, log: EventLog, request: ChildRequest | None = None) -> None:
        self.kept: deque[tuple[int, bytes]] = deque()
        self._number = number
        self._log = log
        self._next = 0
        self._request = request
        self._limit: asyncio.TimerHandle | None = None
        self._give_up: Callable[[], None] = lambda: None
        self._is_whole = False

    def prime(self, revision: str) -> list[bytes]:
        """The event before the first message. Clients of older revisions cannot read an event without data."""
        return [self._write(_PRIMING)] if revision >= _READS_PRIMING else []

    def write(self, message: bytes) -> bytes:
        """A message as the next event."""
        return self._write(format_event(message))

    def _write(self, event: bytes) -> bytes:
        written = f"id: {self._number}-{self._next}\n".encode() + event
        self.kept.append((self._next, written))
        self._next += 1
        self._log.keep(self, len(written))
        return written

    @property
    def is_over(self) -> bool:
        """Returns whether no further message can come."""
        return self._request is not None and self._request.mailbox.is_closed

    @property
    def is_left(self) -> bool:
        """Returns whether it waits for its client to return."""
        return self._limit is not None and not self.is_over

    def can_follow(self, seen: int) -> bool:
        """Returns whether the end of the stream is known to a client that has seen an event last."""
        first = self.kept[0][0] if self.kept else self._next
        return seen < self._next and (not self.is_over or (self._is_whole and first <= seen + 1))

    def list_after(self, seen: int) -> list[bytes]:
        """The kept events behind the one that a client has seen last."""
        return [event for number, event in self.kept if number > seen]

    def take_over(self) -> Mailbox | None:
        """The messages of the answer for another connection; the one before ends. None for the GET stream."""
        if self._request is None:
            return None
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        self._request.mailbox = self._request.mailbox.hand_over()
        return self._request.mailbox

    def leave(self, mailbox: Mailbox, seconds: float, give_up: Callable[[str], None], *, is_answered: bool) -> None:
        """Lets the connection of a mailbox go. The request runs on for a client that returns within some seconds."""
        if is_answered:
            self._is_whole = True
            mailbox.close()
        elif self._request is not None and self._request.mailbox is mailbox:
            self._give_up = partial(give_up, self._request.number)
            self._limit = asyncio.get_running_loop().call_later(seconds, self.expire)
            self._log.note_left(self)

    def expire(self) -> None:
        """Ends a stream whose client has not returned."""
        if self._request is not None and self._limit is not None:
            self._limit.cancel()
            self._give_up()
            self._request.mailbox.drain()


class EventLog:
    """The streams of one session and their newest events."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._feeds = {0: Feed(0, self)}
        self._kept: deque[tuple[Feed, int]] = deque()
        self._bytes = 0
        self._left: deque[Feed] = deque()

    @property
    def alone(self) -> Feed:
        """The session's GET stream."""
        return self._feeds[0]

    def begin(self, request: ChildRequest) -> Feed:
        """A new stream, for the answer to a request."""
        over = [number for number, feed in self._feeds.items() if feed.is_over and not feed.kept]
        for number in over:
            del self._feeds[number]
        number = next(self._numbers)
        made = self._feeds[number] = Feed(number, self, request)
        return made

    def find(self, event_id: str) -> tuple[Feed, int] | None:
        """The stream of an event, and the event's number; None if what follows the event is not known any more."""
        matched = _EVENT_ID.fullmatch(event_id)
        feed = self._feeds.get(int(matched[1])) if matched else None
        seen = int(matched[2]) if matched else 0
        return (feed, seen) if feed is not None and feed.can_follow(seen) else None

    def note_left(self, feed: Feed) -> None:
        """Notes a stream that waits for its client. Ends the oldest ones beyond the limit."""
        self._left = deque(one for one in self._left if one.is_left and one is not feed)
        self._left.append(feed)
        while len(self._left) > _MOST_LEFT:
            self._left.popleft().expire()

    def keep(self, feed: Feed, size: int) -> None:
        """Counts a new event of a stream. Drops the oldest events beyond the limits."""
        self._kept.append((feed, size))
        self._bytes += size
        while len(self._kept) > _MOST_KEPT or self._bytes > _MOST_BYTES:
            oldest, length = self._kept.popleft()
            self._bytes -= length
            oldest.kept.popleft()


class EventStream:
    """The messages of a mailbox as server-sent events, after the events in `first`. It ends with the answer.

    `leave` is called once, when the stream ends or is given up, with whether it ended with the answer.
    """

    def __init__(
        self,
        first: Iterable[bytes],
        mailbox: Mailbox,
        leave: Callable[[bool], Awaitable[None]],
        fault: Callable[[ChildEnded], UpstreamFault],
        write: Callable[[bytes], bytes] = format_event,
    ) -> None:
        self._first = deque(first)
        self._mailbox = mailbox
        self._leave: Callable[[bool], Awaitable[None]] | None = leave
        self._fault = fault
        self._write = write
        self._answered = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> bytes:
        if self._first:
            return self._first.popleft()
        try:
            found = None if self._answered else await self._mailbox.next()
        except ChildEnded as ended:
            await self.aclose()
            raise ReplyBroken(self._fault(ended)) from None
        if found is None:
            await self.aclose()
            raise StopAsyncIteration
        message, self._answered = found
        return self._write(message)

    async def aclose(self) -> None:
        """Leaves the stream."""
        leave, self._leave = self._leave, None
        if leave is not None:
            await leave(self._answered)

"""The messages of a child on their way to one HTTP answer, and the end of the child."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

# Messages kept for a client that does not read; beyond this the oldest notifications are dropped.
MOST_WAITING: Final = 1024


class ChildEnded(Exception):  # noqa: N818 - it names an event
    """The child has ended. `code` is its exit code, negative for a signal; `words` is its last line on stderr."""

    def __init__(self, code: int, words: str = "") -> None:
        super().__init__(f"the server's process ended (exit code {code})")
        self.code = code
        self.words = words


class Mailbox:
    """Messages on their way to one HTTP answer. `close` ends it; the mailbox of an ended child raises `ChildEnded`."""

    def __init__(self) -> None:
        self._messages: deque[tuple[bytes, bool]] = deque()
        self._arrived = asyncio.Event()
        self._ended: ChildEnded | None = None
        self._closed = False
        self._is_writing = False
        self._when_read: list[Callable[[], None]] = []

    @property
    def is_read(self) -> bool:
        """Whether its reader has written every message, or there is no reader any more."""
        return self._closed or not (self._messages or self._is_writing)

    @property
    def is_full(self) -> bool:
        """Whether it holds as many messages as it keeps."""
        return len(self._messages) >= MOST_WAITING and not self._closed

    def when_read(self, act: Callable[[], None]) -> None:
        """Calls `act` once `is_read`."""
        if self.is_read:
            act()
        else:
            self._when_read.append(act)

    def put(self, message: bytes, *, last: bool = False) -> None:
        """Adds a message. `last` marks the answer."""
        if self._closed:
            return
        if self.is_full and not last:
            self._messages.popleft()
        self._messages.append((message, last))
        self._arrived.set()

    def end(self, why: ChildEnded) -> None:
        """Ends the mailbox because the child has ended."""
        self._ended = why
        self._arrived.set()

    def close(self) -> None:
        """Ends the mailbox because its reader or its session is gone."""
        self._closed = True
        self._arrived.set()
        self._tell_read()

    async def next(self) -> tuple[bytes, bool] | None:
        """The next message, and whether it is the last; None at the end.

        Raises:
                ChildEnded: the child has ended before it sent the rest.
        """
        self._is_writing = False
        while not self._messages:
            self._tell_read()
            if self._closed:
                return None
            if self._ended is not None:
                raise self._ended
            self._arrived.clear()
            await self._arrived.wait()
        self._is_writing = True
        return self._messages.popleft()

    def _tell_read(self) -> None:
        acts, self._when_read = self._when_read, []
        for act in acts:
            act()

"""One client of a child, and one of its requests: which mailbox gets a message of the child."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from proxy.core.model.values import JsonValue
from proxy.driver import Signal

# --- the messages of a child on their way to one HTTP answer ----------------------------------------------------------
# Messages kept for a client that does not read; beyond this the oldest notifications are dropped.
MOST_WAITING: Final = 1024


class ChildEnded(Exception):  # noqa: N818 - it names an event
    """The child has ended. `code` is its exit code, negative for a signal; `words` is its last line on stderr."""

    def __init__(self, code: int, words: str = "") -> None:
        super().__init__(f"the server's process ended (exit code {code})")
        self.code = code
        self.words = words

    @property
    def how(self) -> str:
        """Returns the end of the child in words."""
        return f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"


class Mailbox:
    """Messages on their way to one HTTP answer. `close` ends it; the mailbox of an ended child raises `ChildEnded`."""

    def __init__(self) -> None:
        self._messages: deque[tuple[bytes, bool]] = deque()
        self.arrived = Signal()
        """Set once there is something to `take`."""
        self._ended: ChildEnded | None = None
        self._closed = False
        self._is_writing = False
        self._when_read: list[Callable[[], None]] = []

    @property
    def is_read(self) -> bool:
        """Returns whether its reader has written every message, or there is no reader any more."""
        return self._closed or not (self._messages or self._is_writing)

    @property
    def is_closed(self) -> bool:
        """Returns whether it takes no further message."""
        return self._closed

    @property
    def is_full(self) -> bool:
        """Returns whether it holds as many messages as it keeps."""
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
        self.arrived.set()

    def end(self, why: ChildEnded) -> None:
        """Ends the mailbox because the child has ended."""
        self._ended = why
        self.arrived.set()

    def close(self) -> None:
        """Ends the mailbox because its reader or its session is gone."""
        self._closed = True
        self.arrived.set()
        self._tell_read()

    def hand_over(self) -> Mailbox:
        """Returns the messages that have not been read, and those to come, to another mailbox. Closes this one."""
        other = Mailbox()
        other._messages, self._messages = self._messages, other._messages
        other._ended, other._closed = self._ended, self._closed
        self.close()
        return other

    def drain(self) -> list[bytes]:
        """Closes the mailbox. Returns the messages that have not been read."""
        unread = [message for message, _ in self._messages]
        self._messages.clear()
        self.close()
        return unread

    @property
    def has_news(self) -> bool:
        """Returns whether there is something to `take`: a message, or the end."""
        return bool(self._messages) or self._closed or self._ended is not None

    def take(self) -> tuple[bytes, bool] | None:
        """The next message, and whether it is the last; None at the end.

        Raises:
                ChildEnded: the child has ended before it sent the rest.
        """
        self._is_writing = bool(self._messages)
        if self._messages:
            return self._messages.popleft()
        self._tell_read()
        if self._ended is not None and not self._closed:
            raise self._ended
        return None

    async def next(self) -> tuple[bytes, bool] | None:
        """Waits until there is something to `take`, and takes it."""
        self._is_writing = False
        while not self.has_news:
            self._tell_read()
            self.arrived = Signal()
            await self.arrived
        return self.take()

    def _tell_read(self) -> None:
        acts, self._when_read = self._when_read, []
        for act in acts:
            act()


# --- one client of a child --------------------------------------------------------------------------------------------
class ChildClient:
    """One session of a child: its open requests, and its GET stream. A stateless client has no GET stream."""

    def __init__(self) -> None:
        self.open: dict[str, ChildRequest] = {}
        self.stream: Mailbox | None = None
        self.questions: set[str] = set()
        """Ids (as JSON) of the server's requests that this client has received and not answered yet."""
        self.capabilities: JsonValue = None
        """The capabilities that the client has declared; not an object if it has declared nothing."""
        self.last_mailbox: Mailbox | None = None
        """The mailbox of the last message that was not an answer."""
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)

    @property
    def is_busy(self) -> bool:
        """Returns whether a request or a stream is open."""
        return bool(self.open) or self.stream is not None

    def listen(self) -> Mailbox:
        """Opens the GET stream. A stream that is still open ends, because the client may have lost it."""
        if self.stream is not None:
            self.leave(self.stream)
        self.stream = Mailbox()
        self._tell_waiting(self.stream)
        return self.stream

    def leave(self, stream: Mailbox) -> None:
        """Closes a GET stream. Its unread messages wait for the next one."""
        unread = stream.drain()
        if self.stream is stream:
            self.stream = None
            self._waiting.extend(unread)

    def begin(self, request: ChildRequest) -> None:
        """Notes an open request. Messages that wait for a stream go to its stream."""
        self.open[request.number] = request
        if request.streams and self.stream is None:
            self._tell_waiting(request.mailbox)

    def tell(self, message: bytes, *, question: bool = False, change: bool = False) -> None:
        """Passes on a message that answers no request: a question, the news of a change, or another notification."""
        streaming = [request for request in self.open.values() if request.streams]
        if streaming and (question or self.stream is None or (len(streaming) == 1 and not change)):
            self.put(streaming[-1].mailbox, message)
        elif self.stream is not None:
            self.put(self.stream, message)
        else:
            self._waiting.append(message)

    def _tell_waiting(self, mailbox: Mailbox) -> None:
        while self._waiting:
            self.put(mailbox, self._waiting.popleft())

    def put(self, mailbox: Mailbox, message: bytes) -> None:
        """Adds a message that is not an answer."""
        self.last_mailbox = mailbox
        mailbox.put(message)


class ChildRequest:
    """One request under way. `number` is its id on the child's side, as JSON, and `own_id` the client's; `sent_token`
    and `token` are the same of its progress token, if it has one. `progressed` is called with each progress."""

    def __init__(self, client: ChildClient, number: str, own_id: bytes, *, streams: bool) -> None:
        self.client = client
        self.number = number
        self.own_id = own_id
        self.sent_token = ""
        self.token: bytes | None = None
        self.streams = streams
        self.is_cancelled = False
        self.progressed: Callable[[], None] = lambda: None
        self.mailbox = Mailbox()

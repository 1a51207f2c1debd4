"""One client of a child, and one of its requests: which mailbox gets a message of the child."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from proxy.core.model.values import JsonValue
from proxy.extensions.mcp.upstream.stdio.mailbox import MOST_WAITING, Mailbox


class ChildClient:
    """One session of a child: its open requests, and its GET stream. A stateless client has no GET stream."""

    def __init__(self) -> None:
        self.open: dict[str, ChildRequest] = {}
        self.stream: Mailbox | None = None
        self.questions: set[str] = set()
        """Ids (as JSON) of the server's requests that this client has received and not answered yet."""
        self.capabilities: JsonValue = None
        """The capabilities that the client has declared; not an object where it has declared nothing."""
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
            self.stream.close()
        self.stream = Mailbox()
        self._tell_waiting(self.stream)
        return self.stream

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

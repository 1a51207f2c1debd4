"""Answers of one of several servers: reads their server-sent events, and rewrites them for the client. Pure, except for
reading bodies.

Events are read by WHATWG HTML, "Interpreting an event stream". Ids of the server's own requests and of its events get
the server's name, so that the client's answers find their way back: `{"id": "git:17"}` and `Last-Event-ID: git/e4`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Final

from proxy.core.json.contentcoding import EventSplitter
from proxy.core.json.jsonspan import replace_value
from proxy.core.json.jsontext import TextLimits, dumps, parse
from proxy.core.model.codes import UPSTREAM_BAD_ANSWER
from proxy.core.model.value_class import value_class
from proxy.core.model.values import ABSENT, Executed, JsonProblem, JsonValue, Pointer, UpstreamFault, UpstreamReply
from proxy.extensions.mcp.adapters.mcpmessage import find_missing_capability
from proxy.extensions.mcp.upstream import METHOD_NOT_FOUND
from proxy.extensions.mcp.upstream.joined.introduction import for_client
from proxy.upstream.faults import ReplyBroken, close_body

LIMITS: Final = TextLimits(depth=128, nodes=2_000_000)
_ID: Final[Pointer] = ("id",)
# The longest event, and the longest answer that is read whole, in bytes.
MOST: Final = 16 * 1024 * 1024


@value_class
class ServerEvent:
    """One event: its id (None: without one), its other lines, and its data."""

    id: bytes | None
    others: tuple[bytes, ...]
    data: bytes

    def write(self, event_id: bytes | None, data: bytes) -> bytes:
        """The event with another id and other data."""
        lines = [*self.others]
        if event_id is not None:
            lines.append(b"id: " + event_id)
        if data or not lines:
            lines += [b"data: " + line for line in data.split(b"\n")]
        elif event_id is not None:
            lines.append(b"data:")
        return b"\n".join(lines) + b"\n\n"


def split_events(splitter: EventSplitter, piece: bytes) -> list[ServerEvent]:
    """The events that a piece of a body completes. Raises ValueError for one that is too long."""
    events = [_event(event) for event in splitter.feed(piece) if event.strip(b"\r\n")]
    if splitter.size > MOST:
        raise ValueError("an event is too long")
    return events


def _event(event: bytes) -> ServerEvent:
    event_id: bytes | None = None
    others, data = list[bytes](), list[bytes]()
    for line in event.strip(b"\r\n").splitlines():
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"id":
            event_id = value.removeprefix(b" ")
        else:
            others.append(line)
    return ServerEvent(event_id, tuple(others), b"\n".join(data))


def is_stream(reply: UpstreamReply) -> bool:
    """Returns whether an answer consists of events."""
    return content_type(reply) == "text/event-stream"


def content_type(reply: UpstreamReply) -> str:
    """The media type of an answer, in lower case."""
    found = reply.header("content-type")
    return found.partition(";")[0].strip().lower()


async def read_pieces(reply: UpstreamReply) -> AsyncIterator[bytes]:
    """The body of an answer, in one piece or in many."""
    if isinstance(reply.body, bytes):
        yield reply.body
        return
    async for piece in reply.body:
        yield piece


async def read_events(reply: UpstreamReply) -> AsyncIterator[ServerEvent]:
    """The events of an answer. Raises ReplyBroken, and ValueError for an event that is too long."""
    splitter = EventSplitter()
    async for piece in read_pieces(reply):
        for event in split_events(splitter, piece):
            yield event


async def read_reply(reply: UpstreamReply, request_id: str) -> tuple[bytes, dict[str, JsonValue]] | None:
    """The message that answers a request of the proxy's own, as bytes and as a value; None without one."""
    try:
        if is_stream(reply):
            async for event in read_events(reply):
                if (found := _answer(event.data, request_id)) is not None:
                    return found
            return None
        whole = bytearray()
        async for piece in read_pieces(reply):
            whole += piece
            if len(whole) > MOST:
                return None
        return _answer(bytes(whole), request_id)
    except (ReplyBroken, ValueError):
        return None
    finally:
        await close_body(reply)


def _answer(text: bytes, request_id: str) -> tuple[bytes, dict[str, JsonValue]] | None:
    if request_id.encode() not in text:
        return None
    value = parse(text, LIMITS)
    is_answer = isinstance(value, dict) and "method" not in value and value.get("id", ABSENT) == request_id
    return (text, value) if is_answer and isinstance(value, dict) else None


class RewrittenStream:
    """The events of an answer, each as `rewrite` writes it (b'' leaves it out). `leave` is called once, when the stream
    has ended (True) or is given up (False)."""

    def __init__(
        self, reply: UpstreamReply, rewrite: Callable[[ServerEvent], bytes], leave: Callable[[bool], Awaitable[None]]
    ) -> None:
        self._reply = reply
        self._pieces = read_pieces(reply) if isinstance(reply.body, bytes) else aiter(reply.body)
        self._splitter = EventSplitter()
        self._written: deque[bytes] = deque()
        self._rewrite = rewrite
        self._leave: Callable[[bool], Awaitable[None]] | None = leave

    def __aiter__(self) -> RewrittenStream:
        return self

    async def __anext__(self) -> bytes:
        try:
            while not self._written:
                events = split_events(self._splitter, await anext(self._pieces))
                self._written.extend(filter(None, map(self._rewrite, events)))
        except StopAsyncIteration:
            await self._left(ended=True)
            raise
        except ReplyBroken:
            await self._left(ended=False)
            raise
        except ValueError as error:
            await self._left(ended=False)
            fault = UpstreamFault(UPSTREAM_BAD_ANSWER, "http_response_body_size", Executed.UNKNOWN, str(error))
            raise ReplyBroken(fault) from None
        return self._written.popleft()

    async def aclose(self) -> None:
        await self._left(ended=False)

    async def _left(self, *, ended: bool) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            await close_body(self._reply)
            await leave(ended)


# --- as the client reads them -----------------------------------------------------------------------------------------
@value_class
class AnswerRewriting:
    """The changes of an answer: its id, if the request had one of the proxy's (`own`, else ''), and `resultType`,
    where only the server is of an old revision (`completes`)."""

    server: str
    client_id: JsonValue
    own: str
    completes: bool

    @property
    def changes(self) -> bool:
        """Returns whether the answer itself has to change."""
        return bool(self.own) or self.completes

    def rewrite(self, text: bytes) -> bytes:
        """A message of the answer."""
        value = parse(text, LIMITS)
        if not isinstance(value, dict) or "method" in value:
            return text
        if self.own and value.get("id") == self.own:
            text = replace_value(text, _ID, dumps(self.client_id))
        result = value.get("result")
        if self.completes and isinstance(result, dict) and "resultType" not in result:
            text = replace_value(text, ("result", "resultType"), b'"complete"')
        return text

    def write_event(self, event: ServerEvent) -> bytes:
        """An event of the answer."""
        data = self.rewrite(event.data) if self.changes and event.data else event.data
        return name_event(event, self.server, data)


async def rewrite_reply(
    reply: UpstreamReply,
    restore: AnswerRewriting,
    write: Callable[[ServerEvent], bytes],
    leave: Callable[[bool], Awaitable[None]],
    *,
    is_turned: bool,
) -> UpstreamReply | UpstreamFault:
    """An answer as its client reads it: a stream event by event, as `RewrittenStream` has it, or a body as a whole.
    `is_turned`: the server speaks the new revisions and the client the old ones, if an error is no HTTP error."""
    headers = for_client(reply.headers)
    shorter = tuple(field for field in headers if field[0].lower() != "content-length")
    if is_stream(reply):
        return replace(reply, headers=shorter, body=RewrittenStream(reply, write, leave))
    status = 200 if is_turned and content_type(reply) == "application/json" else None
    if not restore.changes and status is None:
        return replace(reply, headers=headers)
    try:
        text = b"".join([piece async for piece in read_pieces(reply)])
    except ReplyBroken as broken:
        return broken.fault
    return replace(reply, status=status or reply.status, headers=shorter, body=restore.rewrite(text))


def name_event(event: ServerEvent, server: str, data: bytes) -> bytes:
    """An event whose ids lead back to its server."""
    event_id = None if event.id is None else f"{server}/".encode() + event.id
    return event.write(event_id, _name_request(data, server))


def _name_request(data: bytes, server: str) -> bytes:
    """A message; a request of the server gets an id that names it."""
    if b'"method"' not in data or b'"id"' not in data:
        return data
    value = parse(data, LIMITS)
    if not isinstance(value, dict) or "method" not in value or "id" not in value:
        return data
    return replace_value(data, _ID, dumps(f"{server}:" + dumps(value["id"]).decode()))


def refuse_question(text: bytes, declared: JsonValue) -> bytes | None:
    """The error that answers a request of a server for which its client has not `declared` the capability; None for
    every other message."""
    value = parse(text, LIMITS) if b'"method"' in text and b'"id"' in text else None
    missing = find_missing_capability(value.get("method"), declared) if isinstance(value, dict) else ""
    if not missing or not isinstance(value, dict) or "id" not in value:
        return None
    error: JsonValue = {"code": METHOD_NOT_FOUND, "message": f"the client has not declared the capability {missing!r}"}
    return dumps({"jsonrpc": "2.0", "id": value["id"], "error": error})


def read_question_id(value: JsonValue) -> tuple[str, JsonValue] | None:
    """The server that sent a request, and the id of the request there; None for another id."""
    server, found, text = value.partition(":") if isinstance(value, str) else ("", "", "")
    own = parse(text.encode()) if found else None
    return (server, own) if isinstance(own, str | int) and not isinstance(own, bool | JsonProblem) else None

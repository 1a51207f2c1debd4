"""`StdioUpstream`: each HTTP exchange is one message to a child process, and the messages that answer it.

    POST    a request is answered by JSON, or by server-sent events where other messages come before its answer;
            notifications and answers by 202
    GET     the session's stream: messages that the server sends on its own; with `Last-Event-ID`, the rest of a stream
    DELETE  ends the session and its child

Refusals use the words of a Streamable HTTP server: an unknown session gets 404, so that clients begin a new one; a
request outside of any session gets 400.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Final

from proxy.core.json.jsonspan import read_members
from proxy.core.json.jsontext import TextLimits, parse
from proxy.core.model.codes import UPSTREAM_BAD_ANSWER
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Document,
    Executed,
    Fields,
    Headers,
    JsonProblem,
    JsonValue,
    RawRequest,
    UpstreamFault,
    UpstreamReply,
)
from proxy.driver import Signal
from proxy.extensions.mcp.adapters.mcpmessage import (
    CAPABILITIES_META,
    SESSION_HEADER,
    VERSION_HEADER,
    Message,
    MessageBatch,
    read_message,
)
from proxy.extensions.mcp.upstream import (
    INVALID_REQUEST,
    JSON,
    METHOD_NOT_FOUND,
    NO_SESSION,
    NOT_INITIALIZED,
    OwnServer,
    header_of,
    write_refusal,
)
from proxy.extensions.mcp.upstream.stdio.channel import Channel
from proxy.extensions.mcp.upstream.stdio.child import StdioSettings
from proxy.extensions.mcp.upstream.stdio.child_client import ChildClient, ChildEnded, ChildRequest, Mailbox
from proxy.extensions.mcp.upstream.stdio.resumable_stream import EventLog, EventStream, Feed, format_event
from proxy.extensions.mcp.upstream.stdio.session import NoChild, Session, Sessions
from proxy.interfaces import UpstreamRequest
from proxy.upstream.faults import RESPONSE_TIMEOUT

INITIALIZE: Final = "initialize"
DISCOVER: Final = "server/discover"
# Seconds for the first answer of a process, whatever the limit of a tool: some commands fetch a package first.
_READY: Final = 300.0
_LIMITS: Final = TextLimits(depth=128, nodes=2_000_000)
# The codes by which 2026-07-28 refuses a request before it runs ("Error Codes").
_REFUSED: Final = (-32020, -32021, -32022)
# The codes with which a process that serves one era refuses requests of the other.
_OTHER_ERA: Final = (INVALID_REQUEST, -32022)
_LAST_EVENT: Final = "last-event-id"
# The longest answer in bytes that is passed on as one piece.
_PIECE: Final = 256 * 1024
_EVENTS: Final[Headers] = (("content-type", "text/event-stream"), ("cache-control", "no-cache"))

Answer = UpstreamReply | UpstreamFault


class StdioUpstream(OwnServer):
    """Implements `Upstream`. Made inside a running event loop; `close` ends every child."""

    def __init__(self, settings: StdioSettings) -> None:
        self._settings = settings
        self.sessions = Sessions(settings, asyncio.get_running_loop().time)

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> Answer:  # noqa: ARG002 - the proof of the check
        return await self._exchange(request, request.body)

    def start(self, checked: CheckedCall, request: UpstreamRequest) -> ChildExchange | None:
        """Implements `StartsExchanges`: sends a usual call at once to a process that runs; None for any other."""
        if self._settings.single_client or not isinstance(checked.call.arguments, Document):
            return None
        message = read_message(RawRequest("POST", "", "", Fields(request.headers), request.body, {}, ""), _LIMITS)
        if not isinstance(message, Message) or message.id is ABSENT:
            return None
        session = None if message.is_enveloped else self.sessions.find(header_of(request, SESSION_HEADER))
        found = self.sessions.find_modern() if session is None else session.channel
        if (session is None) != message.is_enveloped or found is None or not found.is_ready:
            return None
        if session is not None:
            return self._begin(found, session.client, request, message, log=session.events)
        client = found.client()
        client.capabilities = message.meta.get(CAPABILITIES_META)
        return self._begin(found, client, request, message, forget=True, is_alone=True)

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> Answer:
        whole = request.body if body is None else b"".join([piece async for piece in body])
        return await self._exchange(request, whole)

    @property
    def is_http_server(self) -> bool:
        return not self._settings.single_client

    def is_starting(self, session: str) -> bool:
        return self.sessions.is_starting(session)

    async def close(self) -> None:
        await self.sessions.close()

    async def _exchange(self, request: UpstreamRequest, body: bytes) -> Answer:
        try:
            match request.method:
                case "POST":
                    return await self._post(request, body)
                case "GET":
                    return self._listen(request)
                case "DELETE":
                    return await self._delete(request)
                case _:
                    return UpstreamReply(405, (("allow", "GET, POST, DELETE"),), b"")
        except NoChild as refused:
            return refused.fault
        except ChildEnded as ended:
            return self._fault(ended)

    async def _post(self, request: UpstreamRequest, body: bytes) -> Answer:
        raw = RawRequest(request.method, request.target, "", Fields(request.headers), body, {}, "")
        message = read_message(raw, _LIMITS)
        if isinstance(message, JsonProblem | MessageBatch):
            return write_refusal(400, INVALID_REQUEST, "Invalid Request: one JSON-RPC message is expected")
        if message.method in (INITIALIZE, DISCOVER):
            request = replace(request, timeout=max(request.timeout, _READY))
        is_notification = message.id is ABSENT or not message.method
        # A single client says by its header which revision its last request had; no other client shares its server.
        if message.is_enveloped or (message.modern and self._settings.single_client and not is_notification):
            return await self._post_stateless(request, message, body)
        if message.modern and is_notification:  # its revision defines no such message
            return await self._tell_single(body)
        session_id = raw.header(SESSION_HEADER)
        if message.method == INITIALIZE:
            return await self._initialize(request, message, body)
        if session_id is None:
            return write_refusal(400, NOT_INITIALIZED, "Bad Request: Server not initialized")
        session = self.sessions.find(session_id)
        if session is None:
            return write_refusal(404, NO_SESSION, "Session not found")
        if is_notification:
            await session.channel.tell(session.client, _value(body), body)
            return UpstreamReply(202, (), b"")
        return await self._ask(session.channel, session.client, request, message, body, log=session.events)

    async def _initialize(self, request: UpstreamRequest, message: Message, body: bytes) -> Answer:
        if message.id is ABSENT:
            return write_refusal(400, INVALID_REQUEST, "Invalid Request: `initialize` has an id")
        session = await self.sessions.begin()
        was_used = session.channel.sent_requests > 0
        reply = await self._introduce(session, request, message, body)
        if was_used and _find_error_code(reply) in _OTHER_ERA:  # requests without sessions have set its era
            await self.sessions.end(session)
            self.sessions.leave_common(session.channel)
            return await self._introduce(await self.sessions.begin(), request, message, body)
        return reply

    async def _introduce(self, session: Session, request: UpstreamRequest, message: Message, body: bytes) -> Answer:
        session.client.capabilities = message.param("capabilities")
        try:
            reply = await self._ask(session.channel, session.client, request, message, body)
        except BaseException:
            await self.sessions.end(session)
            raise
        if isinstance(reply, UpstreamFault):
            await self.sessions.end(session)
            return reply
        return UpstreamReply(reply.status, (*reply.headers, (SESSION_HEADER, session.id)), reply.body)

    async def _tell_single(self, body: bytes) -> Answer:
        """Passes a message that is no request to a process that only its sender uses. Clients that share one have
        nothing to say to it: each of their requests ends with its exchange."""
        if self._settings.single_client:
            channel = await self.sessions.stateless()
            await channel.tell(channel.only_client(), _value(body), body)
        return UpstreamReply(202, (), b"")

    async def _post_stateless(self, request: UpstreamRequest, message: Message, body: bytes) -> Answer:
        """Sends a message of the revisions without sessions. A process that serves the other era is replaced."""
        if message.id is ABSENT or not message.method:
            return await self._tell_single(body)
        channel = await self.sessions.stateless()
        was_used = channel.sent_requests > 0
        reply = await self._ask_stateless(channel, request, message, body)
        code = _find_error_code(reply)
        if code == INVALID_REQUEST and was_used and self.sessions.leave_stateless(channel):
            channel = await self.sessions.stateless()
            reply = await self._ask_stateless(channel, request, message, body)
            code = _find_error_code(reply)
        if code is not None and message.method == DISCOVER and code not in _REFUSED:
            self.sessions.keep_for_a_session(channel)
        return self.note_era(channel, reply, code, message.method)

    def note_era(self, channel: Channel, reply: Answer, code: int | None, method: str = "") -> Answer:
        """Notes that a process has answered a request without a session. Returns the answer with its status."""
        if isinstance(reply, UpstreamReply) and code is None:
            self.sessions.note_modern(channel)
        if isinstance(reply, UpstreamFault) or code is None:
            return reply
        status = 404 if code == METHOD_NOT_FOUND else 400 if method == DISCOVER or code in _REFUSED else 200
        return replace(reply, status=status)

    async def _ask_stateless(self, channel: Channel, request: UpstreamRequest, message: Message, body: bytes) -> Answer:
        single = self._settings.single_client
        client = channel.only_client() if single else channel.client()
        client.capabilities = message.meta.get(CAPABILITIES_META)
        return await self._ask(channel, client, request, message, body, forget=not single)

    async def _ask(
        self, channel: Channel, client: ChildClient, request: UpstreamRequest, message: Message, body: bytes, **how: Any
    ) -> Answer:
        """Sends one request. Returns its answer, or the head of a stream if other messages come first."""
        exchange = self._begin(channel, client, replace(request, body=body), message, **how)
        try:
            async with asyncio.timeout(request.timeout if math.isfinite(request.timeout) else None):
                await channel.drain()
            await exchange.ready
        except TimeoutError:
            exchange.ring()
        except BaseException:
            exchange.abort()
            raise
        return exchange.take()

    def _begin(
        self, channel: Channel, client: ChildClient, request: UpstreamRequest, message: Message, **how: Any
    ) -> ChildExchange:
        streams = not request.answer_only and "text/event-stream" in header_of(request, "accept")
        sent = channel.ask(client, message, request.body, streams=streams)
        if request.passed_on is not None:
            request.passed_on()
        exchange = ChildExchange(self, channel, request, sent, sent.mailbox.arrived, **how)
        if math.isfinite(request.timeout):  # a server that reports progress is at work
            exchange.wait()
            sent.progressed = exchange.wait
        return exchange

    def read_first(self, exchange: ChildExchange) -> Answer:
        """Returns the answer to a request whose first message is there, or whose time is over."""
        channel, sent, mailbox = exchange.channel, exchange.sent, exchange.sent.mailbox
        if exchange.is_late and not mailbox.has_news:
            channel.abandon(sent.number)
            return RESPONSE_TIMEOUT.of(self._settings.name)
        try:
            found = mailbox.take()
        except ChildEnded as ended:
            return self._fault(ended)
        if found is None:  # the server need not answer a cancelled request
            is_cancelled = sent.is_cancelled
            return UpstreamReply(200, _EVENTS, b"") if is_cancelled else self._fault(channel.exit or ChildEnded(0))
        first, last = found
        if last:
            is_long = len(first) > _PIECE and not exchange.request.answer_only
            return UpstreamReply(200, JSON, _cut(first) if is_long else first)
        if exchange.log is not None and self.is_http_server:
            feed = exchange.log.begin(sent)
            events = [*feed.prime(header_of(exchange.request, VERSION_HEADER)), feed.write(first)]
            return self._stream_feed(channel, feed, events, mailbox)

        async def leave(_: bool) -> None:
            mailbox.close()
            exchange.abort()

        return UpstreamReply(200, _EVENTS, EventStream([format_event(first)], mailbox, leave, self._fault))

    def _stream_feed(self, channel: Channel, feed: Feed, events: list[bytes], mailbox: Mailbox) -> UpstreamReply:
        """The answer to a request of a session, after `events`: it runs on without its client, which may return."""

        async def leave(is_answered: bool) -> None:
            feed.leave(mailbox, self._settings.idle, channel.abandon, is_answered=is_answered)

        return UpstreamReply(200, _EVENTS, EventStream(events, mailbox, leave, self._fault, feed.write))

    def _listen(self, request: UpstreamRequest) -> Answer:
        session = self._session(request)
        if not isinstance(session, Session):
            return session
        if "text/event-stream" not in header_of(request, "accept"):
            return write_refusal(406, NOT_INITIALIZED, "Not Acceptable: a GET is answered by text/event-stream")
        feed, events = session.events.alone, list[bytes]()
        if (last_id := header_of(request, _LAST_EVENT)) and self.is_http_server:
            if (found := session.events.find(last_id)) is None:
                return write_refusal(
                    400, INVALID_REQUEST, "Bad Request: the events after `Last-Event-ID` are not known"
                )
            feed, seen = found
            events = feed.list_after(seen)
        if (mailbox := feed.take_over()) is not None:
            return self._stream_feed(session.channel, feed, events, mailbox)
        stream = session.client.listen()

        async def leave(_: bool) -> None:
            session.client.leave(stream)

        write = feed.write if self.is_http_server else format_event
        return UpstreamReply(200, _EVENTS, EventStream(events, stream, leave, self._fault, write))

    async def _delete(self, request: UpstreamRequest) -> Answer:
        session = self._session(request)
        if not isinstance(session, Session):
            return session
        await self.sessions.end(session)
        return UpstreamReply(200, (), b"")

    def _session(self, request: UpstreamRequest) -> Session | UpstreamReply:
        session_id = header_of(request, SESSION_HEADER)
        if not session_id:
            return UpstreamReply(405, (("allow", "POST"),), b"")  # the answer of revisions without sessions
        return self.sessions.find(session_id) or write_refusal(404, NO_SESSION, "Session not found")

    def _fault(self, ended: ChildEnded) -> UpstreamFault:
        """The fault of a child that ended during a call: the tool may have run or not."""
        words = f": {ended.words}" if ended.words else ""
        message = f"upstream '{self._settings.name}': its process ended during the call ({ended.how}){words}"
        return UpstreamFault(UPSTREAM_BAD_ANSWER, "connection_terminated", Executed.UNKNOWN, message)


@dataclass(slots=True)
class ChildExchange:
    """Implements `StartedExchange`: a request that a process has. `log`: that of its session, for a client that resumes
    the stream; `forget`: its client has no session, and ends with it. `is_alone`: `start` sent it."""

    upstream: StdioUpstream
    channel: Channel
    request: UpstreamRequest
    sent: ChildRequest
    ready: Signal
    log: EventLog | None = None
    forget: bool = False
    is_alone: bool = False
    is_late: bool = False
    _timer: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        self._stop()
        self._timer = asyncio.get_running_loop().call_later(self.request.timeout, self.ring)

    def ring(self) -> None:
        self.is_late = True
        self.ready.set()

    def take(self) -> Answer:
        self._stop()
        self.sent.progressed = _ignore
        reply = self.upstream.read_first(self)
        if self.forget and (isinstance(reply, UpstreamFault) or not isinstance(reply.body, EventStream)):
            self.channel.forget(self.sent.client)
        return self.upstream.note_era(self.channel, reply, _find_error_code(reply)) if self.is_alone else reply

    def abort(self) -> None:
        self._stop()
        self.channel.abandon(self.sent.number)
        if self.forget:
            self.channel.forget(self.sent.client)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _ignore() -> None:
    """Ignores progress, because the answer has begun."""


def _find_error_code(reply: Answer) -> int | None:
    """The code of a JSON-RPC error; None for every other answer."""
    if isinstance(reply, UpstreamFault) or not isinstance(reply.body, bytes) or b'"error"' not in reply.body:
        return None
    error = read_members(reply.body, ("error",)).get("error")
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else None


async def _cut(text: bytes) -> AsyncIterator[bytes]:
    """A long answer in pieces, so that the exchanges of other clients go on between them."""
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]
        await asyncio.sleep(0)


def _value(body: bytes) -> dict[str, JsonValue]:
    value = parse(body, _LIMITS)
    return value if isinstance(value, dict) else {}

"""One child's two pipes, shared by its sessions: finds the request of each line of output.

Clients that share a child may use the same ids. So each request gets one of the proxy's ids on the child's side, which
also replaces progress tokens and the `requestId` of a cancellation. A child of one session gets messages as they are.

    a response                          belongs to the request with its id
    a notification with a progress token, or of a subscription, belongs to the request that named it
    news of a change                    goes to the session's GET stream, which others may read beside this client
    any other notification              goes to the session's only open request that streams, else to its GET stream
    both, without a GET stream          go to its newest open request, or wait for the next
    a request of the server             goes to the session's newest open request that streams, else to its GET stream

If several clients share a child, none of them reads a message that may be meant for another. Notifications that name no
request go to every session if they announce a change, and are dropped otherwise. A request of the server reaches a
client only while no other client has a request open; otherwise it is answered with an error. So is a request that needs
a capability which the client has not declared.

A single client (`StdioSettings.single_client`) reads every message in the child's order. An announced change is like
any other notification, and an answer waits until the messages before it have been read. A child that writes more than
the client reads has to wait.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Container
from typing import Final

from proxy.core.json.jsonspan import find_span, replace_value
from proxy.core.json.jsontext import TextLimits, dumps, parse
from proxy.core.model.values import JsonValue, Pointer
from proxy.extensions.mcp.adapters.mcpmessage import Message, find_missing_capability, read_head, write_id
from proxy.extensions.mcp.upstream.stdio.child import Child
from proxy.extensions.mcp.upstream.stdio.child_client import MOST_WAITING, ChildClient, ChildEnded, ChildRequest

# Limits of what a server may send; servers are not trusted.
_LIMITS: Final = TextLimits(depth=128, nodes=2_000_000)
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_ID: Final[Pointer] = ("id",)
Span = tuple[int, int]
# Bytes from which a line is read in a thread, so that other clients need not wait for it.
_LONG_LINE: Final = 512 * 1024
_PROGRESS: Final[Pointer] = ("params", "progressToken")
_REQUEST_PROGRESS: Final[Pointer] = ("params", "_meta", "progressToken")
_SUBSCRIBED: Final[Pointer] = ("params", "_meta", _SUBSCRIPTION)
_CANCELLED: Final[Pointer] = ("params", "requestId")
_CANCELLATION: Final = "notifications/cancelled"
# Seconds that a server has for the answer to a request that was cancelled; most send none.
_AFTER_CANCELLING: Final = 5.0
# Seconds that the oldest request has for its answer after one that belongs to no request.
_AFTER_STRAY: Final = 5.0
# Integers beyond it are other numbers to programs that read numbers as doubles (RFC 8259 section 6).
_EXACT: Final = 2**53 - 1
_METHOD_NOT_FOUND: Final = -32601
_INTERNAL_ERROR: Final = -32603


class Channel:
    """Writes clients' messages to a child, and distributes what it writes. Calls `ended` once the child has ended.
    `shared`: several clients use it; `single`: the only client reads every message. `lost` gets the process id of a
    child that sent an answer which belongs to no request, and why."""

    def __init__(
        self,
        child: Child,
        ended: Callable[[Channel], None],
        *,
        shared: bool,
        single: bool = False,
        lost: Callable[[int, str], None] = lambda pid, why: None,  # noqa: ARG005
    ) -> None:
        self.shared = shared
        self._lost = lost
        self._single = single
        self._child = child
        self._ended = ended
        self._numbers = itertools.count(1)
        self._requests: dict[str, ChildRequest] = {}
        self._tokens: dict[str, ChildRequest] = {}
        self._clients: list[ChildClient] = []
        self._only: ChildClient | None = None
        self._late: dict[str, None] = {}
        """Ids of requests that were given up, whose answers may still come: no other request takes one."""
        self._past: deque[str] = deque(maxlen=MOST_WAITING)
        """Ids of the newest requests that are over: a second answer to one belongs to no other request."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reading = asyncio.ensure_future(self._read())
        self._is_retired = False
        self._closing: asyncio.Future[None] | None = None
        self.sent_requests = 0
        """The number of requests that the child has received."""
        self.has_answered = False
        self.is_modern = False
        """Returns whether it has answered a request of the revisions without sessions."""
        self.exit: ChildEnded | None = None

    @property
    def pid(self) -> int:
        """Returns the child's process id."""
        return self._child.pid

    async def watch(self, seconds: float) -> tuple[ChildEnded | None, list[str]]:
        """Waits for the child's end. Returns that, if it comes in time, and its last lines on stderr."""
        await asyncio.wait({self._reading}, timeout=seconds)
        return self.exit, self._child.last_lines

    def client(self) -> ChildClient:
        """A new session of this child."""
        self.forget_only()
        made = ChildClient()
        self._clients.append(made)
        return made

    def only_client(self) -> ChildClient:
        """The one client of a child whose requests have no session."""
        if self._only is None:
            self._only = self.client()
        return self._only

    def forget_only(self) -> None:
        """Forgets that client, because a session begins."""
        if self._only is not None:
            self.forget(self._only)
            self._only = None

    def forget(self, client: ChildClient) -> None:
        """Ends a session: its streams end, and its open requests are cancelled."""
        if client in self._clients:
            self._clients.remove(client)
        if client.stream is not None:
            client.stream.close()
        for number in list(client.open):
            self.abandon(number)
        for question in filter(None, client.questions):
            self._send_soon(_make_error(parse(question.encode()), "the client has gone"))

    @property
    def is_ready(self) -> bool:
        """Returns whether a request can be sent without waiting."""
        return self.exit is None and self._child.is_reading

    def ask(self, client: ChildClient, message: Message, body: bytes, *, streams: bool) -> ChildRequest:
        """Sends a request. Returns it, with the mailbox that gets the answer. `drain` waits until the child has read
        enough. Raises ChildEnded if the child has ended."""
        if self.exit is not None:
            raise self.exit
        number, sent = self._choose_id(message.id, body, _ID, self._requests)
        request = ChildRequest(client, number, dumps(message.id), streams=streams)
        if (token := message.meta.get("progressToken")) is not None:
            request.token = dumps(token)
            request.sent_token, sent = self._choose_id(token, sent, _REQUEST_PROGRESS, self._tokens)
            self._tokens[request.sent_token] = request
        self._requests[number] = request
        self.sent_requests += 1
        client.begin(request)
        self._write(sent)
        return request

    def _choose_id(self, own: JsonValue, body: bytes, at: Pointer, taken: Container[str]) -> tuple[str, bytes]:
        """Returns the id or token that the child reads at `at`, as JSON, and the message with it. It is the client's
        own, unless it is another client's, or programs may read its number differently."""
        number = _key(own)
        if number and not self.shared and number not in taken and number not in self._late:
            return number, body
        while (number := f'"p{next(self._numbers)}"') in taken or number in self._late:
            pass
        return number, replace_value(body, at, number.encode())

    async def tell(self, client: ChildClient, value: dict[str, JsonValue], body: bytes) -> None:
        """Sends a notification, or the client's answer to a request of the server. Raises ChildEnded as `ask`."""
        if "method" not in value:
            question = _key(value.get("id"))
            if question not in client.questions:
                return  # not a request of the server to this session
            client.questions.discard(question)
        elif value["method"] == _CANCELLATION:
            params = value.get("params")
            target_id = dumps(params.get("requestId")) if isinstance(params, dict) else b""
            request = next((request for request in client.open.values() if request.own_id == target_id), None)
            if request is not None:
                body = self._cancel(request, body)
            elif self.shared or target_id.decode() in self._requests:
                return  # the request has been answered already, or is another client's
        if self.exit is not None:
            raise self.exit
        self._write(body)
        await self.drain()

    def _cancel(self, request: ChildRequest, body: bytes) -> bytes:
        """Notes that a request is cancelled; gives the cancellation as the child reads it."""
        request.is_cancelled = True
        loop = asyncio.get_running_loop()
        self._timers[request.number] = loop.call_later(_AFTER_CANCELLING, self._give_up, request.number)
        return _replace_own(body, _CANCELLED, request.own_id.decode(), request.number.encode())

    def abandon(self, number: str) -> None:
        """Cancels a request and notifies the server (specification, "Cancellation")."""
        request = self._give_up(number)
        if request is None or request.is_cancelled or self.exit is not None:
            return
        params: dict[str, JsonValue] = {"requestId": parse(number.encode()), "reason": "the client has gone"}
        self._send_soon({"jsonrpc": "2.0", "method": _CANCELLATION, "params": params})

    def retire(self) -> None:
        """Ends the child once it has answered its open requests; it gets no further ones."""
        self._is_retired = True
        self._end_if_retired()

    def _end_if_retired(self) -> None:
        if self._is_retired and not self._requests and self.exit is None:
            self._is_retired = False
            self._closing = asyncio.ensure_future(self.close())

    async def close(self) -> None:
        """Ends the child."""
        for mailbox in [client.last_mailbox for client in self._clients]:
            if mailbox is not None:
                mailbox.close()  # without a reader, so that the child's last messages need not wait
        await self._child.end()
        await asyncio.wait({self._reading})

    def _write(self, body: bytes) -> None:
        # Line breaks can be only between values: within a string JSON escapes them (RFC 8259 section 7).
        self._child.write_soon(body.replace(b"\n", b" ").replace(b"\r", b" "))

    async def drain(self) -> None:
        """Waits until the child has read enough. Raises ChildEnded if it no longer reads."""
        try:
            await self._child.drain()
        except ConnectionError:
            await asyncio.wait({self._reading})
            raise ChildEnded(self._child.exit_code or 0, self._child.last_words) from None

    async def _read(self) -> None:
        try:
            while (line := await self._child.read()) is not None:
                if line:
                    split = await asyncio.to_thread(_split, line) if len(line) > _LONG_LINE else _split(line)
                    for head, text, id_span in split:
                        self._message(head, text, id_span)
                    if self._single:
                        await self._await_reader()
        finally:
            code = await self._child.end()
            self.exit = ChildEnded(code, self._child.last_words)
            for number in list(self._requests):
                request = self._finish(number)
                if request is not None:
                    request.mailbox.end(self.exit)
            for client in list(self._clients):
                if client.stream is not None:
                    client.stream.close()
            self._ended(self)

    async def _await_reader(self) -> None:
        """Waits while a client's mailbox is full."""
        for mailbox in [client.last_mailbox for client in self._clients]:
            if mailbox is not None and mailbox.is_full:
                read = asyncio.Event()
                mailbox.when_read(read.set)
                await read.wait()

    def _message(self, value: dict[str, JsonValue], line: bytes, id_span: Span | None) -> None:
        if "method" not in value:
            number = _key(value.get("id"))
            self._late.pop(number, None)
            self.has_answered = True
            request = self._finish(number)
            if request is None and number not in self._past and ("result" in value or "error" in value):
                self._note_stray(has_id=value.get("id") is not None)
            elif request is not None:
                if id_span is not None and request.number.encode() != request.own_id:
                    line = request.own_id.join((line[: id_span[0]], line[id_span[1] :]))
                self._answer(request, line)
            return
        params = value.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        if "id" in value:
            self._question(value, line)
        elif (request := self._tokens.get(_key(params.get("progressToken")))) is not None and request.token:
            request.progressed()
            if request.streams:
                request.client.put(request.mailbox, _replace_own(line, _PROGRESS, request.sent_token, request.token))
        elif isinstance(meta, dict) and (request := self._requests.get(_key(meta.get(_SUBSCRIPTION)))) is not None:
            request.client.put(request.mailbox, _replace_own(line, _SUBSCRIBED, request.number, request.own_id))
        elif (change := _is_for_all(value["method"])) or not self.shared:
            for client in list(self._clients):
                client.tell(line, change=change and not self._single)

    def _note_stray(self, *, has_id: bool) -> None:
        """Reports an answer that belongs to no request, and ends the oldest request with an error. An answer without an
        id ends it at once, because it is most likely the oldest's; otherwise it ends unless its answer follows soon."""
        why = "its id belongs to no request" if has_id else "it has no id"
        self._lost(self._child.pid, why)
        oldest = next(iter(self._requests), "")
        if not has_id:
            self._end_unanswered(oldest, why)
        elif oldest and oldest not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[oldest] = loop.call_later(_AFTER_STRAY, self._end_unanswered, oldest, why)

    def _end_unanswered(self, number: str, why: str) -> None:
        if (request := self._finish(number)) is not None:
            reason = f"the server sent an answer, but {why}; it is not known whether this request ran"
            self._answer(request, dumps(_make_error(parse(request.own_id), reason, _INTERNAL_ERROR)))

    def _answer(self, request: ChildRequest, line: bytes) -> None:
        """Passes on an answer. A single client first reads the messages before it."""
        earlier = request.client.last_mailbox

        def put() -> None:
            request.mailbox.put(line, last=True)

        if self._single and earlier is not None and earlier is not request.mailbox:
            earlier.when_read(put)
        else:
            put()

    def _question(self, value: dict[str, JsonValue], line: bytes) -> None:
        """Passes a request of the server to the one client it can be meant for."""
        busy = [client for client in self._clients if client.open] or self._clients
        if len(busy) != 1:
            self._send_soon(_make_error(value["id"], "no single client to ask"))
            return
        if missing := find_missing_capability(value["method"], busy[0].capabilities):
            reason = f"the client has not declared the capability {missing!r}"
            self._send_soon(_make_error(value["id"], reason, _METHOD_NOT_FOUND))
            return
        busy[0].questions.add(_key(value["id"]))
        busy[0].tell(line, question=True)

    def _send_soon(self, message: JsonValue) -> None:
        """Writes a message of the proxy's own without waiting for the child to read it."""
        if self.exit is None:
            self._child.write_soon(dumps(message))

    def _give_up(self, number: str) -> ChildRequest | None:
        """Ends an abandoned request, if it is open."""
        request = self._finish(number)
        if request is not None:
            request.mailbox.close()
            self._late[number] = None
            if len(self._late) > MOST_WAITING:
                del self._late[next(iter(self._late))]
        return request

    def _finish(self, number: str) -> ChildRequest | None:
        request = self._requests.pop(number, None)
        if request is not None:
            self._past.append(number)
            request.client.open.pop(number, None)
            if self._tokens.get(request.sent_token) is request:
                del self._tokens[request.sent_token]
            if (timer := self._timers.pop(number, None)) is not None:
                timer.cancel()
            self._end_if_retired()
        return request


def _split(line: bytes) -> list[tuple[dict[str, JsonValue], bytes, Span | None]]:
    """The messages in a line of output, each with its head, its text and the place of its id. Some servers also print
    text that is no message."""
    if line.startswith(b"{"):
        head = read_head(line)
        return [(head, line, find_span(line, _ID) if "id" in head else None)]
    value = parse(line, _LIMITS) if line.startswith(b"[") else None  # a batch: revision 2025-03-26
    texts = [(one, dumps(one)) for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    return [(one, text, find_span(text, _ID) if "id" in one else None) for one, text in texts]


def _is_for_all(method: JsonValue) -> bool:
    """Returns whether a notification announces a change that concerns all clients."""
    return isinstance(method, str) and (method.endswith("/list_changed") or method == "notifications/resources/updated")


def _make_error(request_id: JsonValue, reason: str, code: int = -32000) -> JsonValue:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": reason}}


def _key(value: JsonValue) -> str:
    """An id or a token as JSON, to find it by; '' for one that programs may write in two ways."""
    is_exact = isinstance(value, str) or (isinstance(value, int) and abs(value) <= _EXACT)
    return write_id(value).decode() if is_exact else ""


def _replace_own(line: bytes, at: Pointer, sent: str, own: bytes) -> bytes:
    """A message with the client's own id or token in place of the one that the child got."""
    return line if sent.encode() == own else replace_value(line, at, own)

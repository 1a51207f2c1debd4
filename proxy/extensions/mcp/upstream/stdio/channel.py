"""One child's two pipes, shared by its sessions: finds the request that each line of output belongs to.

Clients that share a child may use the same ids, so each request gets an id of our own on the child's side; progress
tokens and the `requestId` of a cancellation are replaced with it. The other bytes of a message stay as they are.

    a response                          belongs to the request with its id
    a notification with a progress token, or of a subscription, belongs to the request that named it
    any other notification              goes to the session's GET stream; without one to its only open request
    a request of the server             goes to the session's newest open request that streams, else to its GET stream

Where several clients share a child, none of them reads a message that may be meant for another. Notifications that
name no request go to every session if they announce a change, and are dropped otherwise. A request of the server
reaches a client only while no other client has a request open; otherwise it is answered with an error.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from typing import Final

from proxy.core.json.jsonspan import replace_value
from proxy.core.json.jsontext import TextLimits, dumps, parse
from proxy.core.model.values import JsonProblem, JsonValue, Pointer
from proxy.extensions.mcp.upstream.stdio.child import Child

# Limits of what a server may send; servers are not trusted.
_LIMITS: Final = TextLimits(depth=128, nodes=2_000_000)
# Messages kept for a client that does not read; beyond this the oldest notifications are dropped.
MOST_WAITING: Final = 1024
_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
_ID: Final[Pointer] = ("id",)
_PROGRESS: Final[Pointer] = ("params", "progressToken")
_PROGRESS_ASKED: Final[Pointer] = ("params", "_meta", "progressToken")
_SUBSCRIBED: Final[Pointer] = ("params", "_meta", _SUBSCRIPTION)
_CANCELLED: Final[Pointer] = ("params", "requestId")


class ChildEnded(Exception):  # noqa: N818 - it names an event
    """The child has ended. `code` is its exit code, negative for a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the server's process ended (exit code {code})")
        self.code = code


class Mailbox:
    """Messages on their way to one HTTP answer. `close` ends it; the mailbox of an ended child raises `ChildEnded`."""

    def __init__(self) -> None:
        self._messages: deque[tuple[bytes, bool]] = deque()
        self._arrived = asyncio.Event()
        self._ended: ChildEnded | None = None
        self._closed = False

    def put(self, message: bytes, *, last: bool = False) -> None:
        """Adds a message. `last` marks the answer."""
        if self._closed:
            return
        if len(self._messages) >= MOST_WAITING and not last:
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

    async def next(self) -> tuple[bytes, bool] | None:
        """The next message, and whether it is the last; None at the end.

        Raises:
                ChildEnded: the child has ended before it sent the rest.
        """
        while not self._messages:
            if self._closed:
                return None
            if self._ended is not None:
                raise self._ended
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()


class ChildClient:
    """One session of a child: its open requests, and its GET stream. A stateless client has no GET stream."""

    def __init__(self) -> None:
        self.open: dict[str, ChildRequest] = {}
        self.stream: Mailbox | None = None
        self.asked: set[str] = set()
        """Ids (as JSON) of the server's requests that this client has received and not answered yet."""
        self._waiting: deque[bytes] = deque(maxlen=MOST_WAITING)

    @property
    def is_busy(self) -> bool:
        """Whether a request or a stream is open."""
        return bool(self.open) or self.stream is not None

    def listen(self) -> Mailbox:
        """Opens the GET stream. A stream that is still open ends, because the client may have lost it."""
        if self.stream is not None:
            self.stream.close()
        self.stream = Mailbox()
        while self._waiting:
            self.stream.put(self._waiting.popleft())
        return self.stream

    def tell(self, message: bytes, *, question: bool) -> None:
        """Passes on a message that answers no request."""
        streaming = [request for request in self.open.values() if request.streams]
        if question and streaming:
            streaming[-1].mailbox.put(message)
        elif self.stream is not None:
            self.stream.put(message)
        elif len(streaming) == 1:
            streaming[0].mailbox.put(message)
        else:
            self._waiting.append(message)


class ChildRequest:
    """One request under way: the client's own id and token, and where what answers it goes."""

    def __init__(self, client: ChildClient, own_id: bytes, token: bytes | None, *, streams: bool) -> None:
        self.client = client
        self.own_id = own_id
        self.token = token
        self.streams = streams
        self.mailbox = Mailbox()


class Channel:
    """Writes clients' messages to a child, and distributes what it writes. Calls `ended` once the child has ended."""

    def __init__(self, child: Child, ended: Callable[[Channel], None], *, shared: bool) -> None:
        self.shared = shared
        self._child = child
        self._ended = ended
        self._numbers = itertools.count(1)
        self._requests: dict[str, ChildRequest] = {}
        self._clients: list[ChildClient] = []
        self._reading = asyncio.ensure_future(self._read())
        self.exit: ChildEnded | None = None

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._child.pid

    def client(self) -> ChildClient:
        """A new session of this child."""
        made = ChildClient()
        self._clients.append(made)
        return made

    def forget(self, client: ChildClient) -> None:
        """The session is over: its streams end, and what it still asks for is cancelled."""
        if client in self._clients:
            self._clients.remove(client)
        if client.stream is not None:
            client.stream.close()
        for number in list(client.open):
            self.abandon(number)
        for question in client.asked:
            self._send_soon(_make_error(parse(question.encode()), "the client has gone"))

    async def ask(
        self, client: ChildClient, value: dict[str, JsonValue], body: bytes, *, streams: bool
    ) -> tuple[str, ChildRequest]:
        """Sends a request; gives its id on the child's side, and where its answer arrives.

        Raises:
                ChildEnded: the child has ended.
        """
        number = f"p{next(self._numbers)}"
        params = value.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        token = meta.get("progressToken") if isinstance(meta, dict) else None
        request = ChildRequest(client, dumps(value["id"]), None if token is None else dumps(token), streams=streams)
        sent = replace_value(body, _ID, dumps(number))
        if token is not None:
            sent = replace_value(sent, _PROGRESS_ASKED, dumps(number))
        self._requests[number] = client.open[number] = request
        try:
            await self._write(sent)
        except BaseException:
            self._finish(number)
            raise
        return number, request

    async def tell(self, client: ChildClient, value: dict[str, JsonValue], body: bytes) -> None:
        """Sends a notification, or the client's answer to a request of the server.

        Raises:
                ChildEnded: the child has ended.
        """
        if "method" not in value:
            question = _key(value.get("id"))
            if question not in client.asked:
                return  # the server asked another session, or nobody
            client.asked.discard(question)
        elif value["method"] == "notifications/cancelled":
            params = value.get("params")
            wanted = dumps(params.get("requestId")) if isinstance(params, dict) else b""
            number = next((number for number, request in client.open.items() if request.own_id == wanted), None)
            if number is None:
                return  # the request has been answered already
            body = replace_value(body, _CANCELLED, dumps(number))
        await self._write(body)

    def abandon(self, number: str) -> None:
        """Gives up a request and tells the server so (specification, "Cancellation")."""
        if self._finish(number) is None or self.exit is not None:
            return
        params: dict[str, JsonValue] = {"requestId": number, "reason": "the client has gone"}
        self._send_soon({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def close(self) -> None:
        """Ends the child."""
        await self._child.end()
        await asyncio.wait({self._reading})

    async def _write(self, body: bytes) -> None:
        if self.exit is not None:
            raise self.exit
        try:
            # Line breaks can stand only between values: within a string JSON escapes them (RFC 8259 section 7).
            await self._child.write(body.replace(b"\n", b" ").replace(b"\r", b" "))
        except ConnectionError:
            await asyncio.wait({self._reading})
            raise ChildEnded(self._child.exit_code or 0) from None

    async def _read(self) -> None:
        try:
            while (line := await self._child.read()) is not None:
                if line:
                    self._hand_on(line)
        finally:
            code = await self._child.end()
            self.exit = ChildEnded(code)
            for number in list(self._requests):
                request = self._finish(number)
                if request is not None:
                    request.mailbox.end(self.exit)
            for client in self._clients:
                if client.stream is not None:
                    client.stream.close()
            self._ended(self)

    def _hand_on(self, line: bytes) -> None:
        value = parse(line, _LIMITS)
        for one in value if isinstance(value, list) else [value]:  # batches: revision 2025-03-26
            if isinstance(one, JsonProblem) or not isinstance(one, dict):
                continue  # some servers also print text that is not a message
            self._message(one, dumps(one) if isinstance(value, list) else line)

    def _message(self, value: dict[str, JsonValue], line: bytes) -> None:
        if "method" not in value:
            request = self._finish(str(value.get("id")))
            if request is not None:
                request.mailbox.put(replace_value(line, _ID, request.own_id), last=True)
            return
        params = value.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        if "id" in value:
            self._question(value, line)
        elif (request := self._requests.get(str(params.get("progressToken")))) is not None and request.token:
            if request.streams:
                request.mailbox.put(replace_value(line, _PROGRESS, request.token))
        elif isinstance(meta, dict) and (request := self._requests.get(str(meta.get(_SUBSCRIPTION)))) is not None:
            request.mailbox.put(replace_value(line, _SUBSCRIBED, request.own_id))
        elif not self.shared or _is_for_all(value["method"]):
            for client in self._clients:
                client.tell(line, question=False)

    def _question(self, value: dict[str, JsonValue], line: bytes) -> None:
        """Passes a request of the server to the one client it can be meant for."""
        busy = [client for client in self._clients if client.open] or self._clients
        if len(busy) == 1:
            busy[0].asked.add(_key(value["id"]))
            busy[0].tell(line, question=True)
        else:
            self._send_soon(_make_error(value["id"], "no single client to ask"))

    def _send_soon(self, message: JsonValue) -> None:
        """Writes a message of our own without waiting for the child to read it."""
        if self.exit is None:
            self._child.write_soon(dumps(message))

    def _finish(self, number: str) -> ChildRequest | None:
        request = self._requests.pop(number, None)
        if request is not None:
            request.client.open.pop(number, None)
        return request


def _is_for_all(method: JsonValue) -> bool:
    """Whether a notification announces a change that concerns all clients."""
    return isinstance(method, str) and (method.endswith("/list_changed") or method == "notifications/resources/updated")


def _make_error(request_id: JsonValue, reason: str) -> JsonValue:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32000, "message": reason}}


def _key(value: JsonValue) -> str:
    return dumps(value).decode() if isinstance(value, str | int) else ""


def format_event(message: bytes) -> bytes:
    """One message as a server-sent event."""
    return b"event: message\ndata: " + message + b"\n\n"

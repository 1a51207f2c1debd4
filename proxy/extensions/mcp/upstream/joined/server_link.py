"""One server of a joined upstream as one client (or one group of clients) sees it.

A link finds out its server's era and uses it, whatever the client's era:

    client, server             changes on the way
    both old, both new         the session id; the name of the tool, and `Mcp-Name` with it
    new client, old server     ids, because clients share one session; answers get their `resultType`
    old client, new server     `_meta` and the headers that repeat the body

A session that its server has lost is begun again, and the message is sent once more: a 404 means that nothing ran.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Final

from proxy.core.json.jsonspan import replace_value
from proxy.core.json.jsontext import dumps
from proxy.core.model.codes import UPSTREAM_UNAVAILABLE
from proxy.core.model.values import (
    ABSENT,
    CheckedCall,
    Executed,
    Headers,
    JsonValue,
    Pointer,
    UpstreamFault,
    UpstreamReply,
)
from proxy.extensions.mcp.adapters.mcpmessage import (
    CAPABILITIES_META,
    MODERN,
    SESSION_HEADER,
    VERSION_HEADER,
    VERSION_META,
    Message,
    Mirror,
    make_headers,
)
from proxy.extensions.mcp.upstream import LATEST_WITH_SESSIONS
from proxy.extensions.mcp.upstream.joined.event_rewriting import (
    AnswerRewriting,
    ServerEvent,
    read_reply,
    refuse_question,
    rewrite_reply,
)
from proxy.extensions.mcp.upstream.joined.introduction import (
    ACCEPT,
    Introduction,
    JoinedServer,
    OutOfReach,
    Refusal,
    as_object,
    kept_headers,
    repeating_headers,
    with_params,
)
from proxy.interfaces import GuardedUpstream, UpstreamRequest
from proxy.upstream.faults import close_body

Answer = UpstreamReply | UpstreamFault

_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
_ID: Final[Pointer] = ("id",)
_META: Final[Pointer] = ("params", "_meta")


class ServerLink:
    """The link of one client to one server. `now` is a monotonic clock; `report` receives the reason why the server is
    out of reach, or '' when it has answered."""

    _numbers = itertools.count(1)

    def __init__(
        self,
        server: JoinedServer,
        upstream: GuardedUpstream,
        who: Introduction,
        now: Callable[[], float],
        report: Callable[[str, str], None],
        again: float,
    ) -> None:
        self.server = server
        self.info: dict[str, JsonValue] = {}
        """The server's result of `initialize` or `server/discover`."""
        self.is_open = False
        self.modern = False
        self.level: dict[str, JsonValue] = {}
        """The parameters of the client's last `logging/setLevel`; a server that comes later gets it, too."""
        self.mirrors: dict[str, tuple[Mirror, ...]] = {}
        """Tool -> the parameters that headers repeat, for clients that do not send such headers."""
        self._upstream = upstream
        self._who = who
        self._now = now
        self._report = report
        self._again = again
        self._session = ""
        self._revision = ""
        self._failed_at = -math.inf
        self._why = ""
        self._is_left = False
        self._opening = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()

    def leads_to(self, server: JoinedServer, upstream: GuardedUpstream) -> bool:
        """Returns whether this is a link to the same endpoint; headers and prefixes may differ."""
        return self._upstream is upstream and self.server.target == server.target

    @property
    def capabilities(self) -> dict[str, JsonValue]:
        """The capabilities that the server declares."""
        found = self.info.get("capabilities")
        return found if isinstance(found, dict) else {}

    @property
    def is_opening(self) -> bool:
        """Returns whether the server is being asked for the first time, or again."""
        return self._opening.locked()

    # --- beginning and ending -----------------------------------------------------------------------------------------
    async def open(self, request: UpstreamRequest) -> None:
        """Introduces the client, unless that was done. `request` is the client's own, for its headers.

        Raises:
                OutOfReach: the server does not answer, now or a moment ago, or was left.
        """
        async with self._opening:
            if self.is_open:
                return
            if self._is_left:
                raise OutOfReach("the config names it no more")
            if self._now() < self._failed_at + self._again:
                raise OutOfReach(self._why)
            try:
                await self._introduce(request)
            except OutOfReach as failed:
                self.give_up(str(failed))
                raise
            self.is_open, self._why = True, ""
            if self.level and "logging" in self.capabilities:
                with suppress(OutOfReach, Refusal):
                    await self.ask("logging/setLevel", self.level, request)
            self._report(self.server.name, "")

    async def _introduce(self, request: UpstreamRequest) -> None:
        if not self._who.revision:
            if await self._discover(request):
                return
            if not await self._initialize(request):
                raise OutOfReach("it answers neither `server/discover` nor `initialize`")
        elif not await self._initialize(request) and not await self._discover(request):
            raise OutOfReach("it answers neither `initialize` nor `server/discover`")

    async def _initialize(self, request: UpstreamRequest) -> bool:
        self._session = self._revision = ""
        self.modern = False
        params: dict[str, JsonValue] = {
            "protocolVersion": self._who.revision or LATEST_WITH_SESSIONS,
            "capabilities": self._who.capabilities,
            "clientInfo": self._who.client,
        }
        try:
            _, reply, _, answer = await self._ask("initialize", params, request)
        except Refusal:
            return False
        revision = answer.get("protocolVersion")
        self._revision = revision if isinstance(revision, str) else ""
        self._session = reply.header(SESSION_HEADER)
        self.info = answer
        await self._notify("notifications/initialized", request)
        return True

    async def _discover(self, request: UpstreamRequest) -> bool:
        self.modern = True
        try:
            *_, answer = await self._ask("server/discover", {}, request)
        except Refusal:
            self.modern = False
            return False
        versions = answer.get("supportedVersions")
        self.modern = isinstance(versions, list) and MODERN in versions
        self.info = answer
        return self.modern

    async def close(self, request: UpstreamRequest) -> None:
        """Ends the server's session."""
        for task in self._background:
            task.cancel()
        if self.is_open and self._session:
            self.is_open = False
            headers = self.headers(request.headers, ())
            outgoing = self._request(request, "DELETE", headers, b"", 5.0)
            reply = await self._upstream.relay(outgoing, None)
            if isinstance(reply, UpstreamReply):
                await close_body(reply)

    async def leave(self, request: UpstreamRequest) -> None:
        """Ends the server's session for good: it has left the config, or its name means another server."""
        self._is_left = True
        async with self._opening:  # an introduction under way would begin a session without an end
            await self.close(request)

    def give_up(self, why: str) -> None:
        """Notes that the server cannot be reached; for a moment it is not tried again."""
        if self._is_left:
            return
        self.is_open = False
        self._failed_at, self._why = self._now(), why
        self._report(self.server.name, why)

    # --- the proxy's own requests -------------------------------------------------------------------------------------
    async def ask(self, method: str, params: dict[str, JsonValue], request: UpstreamRequest) -> dict[str, JsonValue]:
        """The result of a request of the proxy's own.

        Raises:
                OutOfReach, Refusal: there is no result.
        """
        return (await self._ask(method, params, request))[3]

    async def ask_for_text(
        self, method: str, params: dict[str, JsonValue], request: UpstreamRequest
    ) -> tuple[str, bytes, dict[str, JsonValue]]:
        """The same with the request's id and the answer's bytes."""
        request_id, _, text, result = await self._ask(method, params, request)
        return request_id, text, result

    async def _ask(
        self, method: str, params: dict[str, JsonValue], request: UpstreamRequest
    ) -> tuple[str, UpstreamReply, bytes, dict[str, JsonValue]]:
        request_id = f"toolcall-proxy-{next(self._numbers)}"
        if self.modern:
            params = {**params, "_meta": {**self._meta(), **as_object(params.get("_meta"))}}
        body: dict[str, JsonValue] = {"jsonrpc": "2.0", "id": request_id, "method": method}
        text = dumps({**body, "params": params} if params else body)
        message = Message(request_id, method, params, MODERN if self.modern else "")
        headers = self.headers(request.headers, make_headers(message, ()))
        outgoing = replace(self._request(request, "POST", headers, text, request.timeout), answer_only=True)
        reply = await self._upstream.relay(outgoing, None)
        if isinstance(reply, UpstreamFault):
            raise OutOfReach(reply.message)
        found = await read_reply(reply, request_id)
        if found is None:
            status = f"it answered HTTP {reply.status} and no message"
            if method in ("initialize", "server/discover") and reply.status in (400, 404, 405, 406, 415):
                raise Refusal(status)
            raise OutOfReach(status)
        result = found[1].get("result")
        if not isinstance(result, dict):
            raise Refusal(found[1].get("error"))
        return request_id, reply, found[0], result

    async def _notify(self, method: str, request: UpstreamRequest) -> None:
        text = dumps({"jsonrpc": "2.0", "method": method})
        await self._tell(text, request, Message(ABSENT, method, ABSENT, MODERN if self.modern else ""))

    async def tell(self, text: bytes, request: UpstreamRequest, message: Message) -> None:
        """Sends a notification, or an answer of the client's, and ignores the reply."""
        if self.modern or not self.is_open:
            return
        await self._tell(text, request, message)

    async def _tell(self, text: bytes, request: UpstreamRequest, message: Message) -> None:
        headers = self.headers(request.headers, make_headers(message, ()))
        reply = await self._upstream.relay(self._request(request, "POST", headers, text, request.timeout), None)
        if isinstance(reply, UpstreamReply):
            await close_body(reply)

    # --- messages of clients ------------------------------------------------------------------------------------------
    async def carry(
        self, message: Message, body: bytes, request: UpstreamRequest, checked: CheckedCall | None, *, shared: bool
    ) -> Answer:
        """Sends a client's request on and gives the answer as this client reads it. `shared`: other clients use the
        link, too, perhaps with the same ids."""
        try:
            await self.open(request)
        except OutOfReach as why:
            return self._fault(str(why))
        reply = await self._send(message, body, request, checked, shared=shared)
        if isinstance(reply, UpstreamReply) and reply.status == 404 and self._session and not self.modern:
            await close_body(reply)
            self.is_open = False
            try:
                await self.open(request)
            except OutOfReach as why:
                return self._fault(str(why))
            reply = await self._send(message, body, request, checked, shared=shared)
        if isinstance(reply, UpstreamFault) and reply.executed is Executed.NO:
            self.give_up(reply.message)
        return reply

    async def _send(
        self, message: Message, body: bytes, request: UpstreamRequest, checked: CheckedCall | None, *, shared: bool
    ) -> Answer:
        if message.modern and self.modern:
            own, added = "", repeating_headers(request.headers, message)
        elif self.modern:
            own = ""
            body = replace_value(with_params(body, message), _META, dumps({**message.meta, **self._meta()}))
            named = message.param("name")
            found = self.mirrors.get(named, ()) if isinstance(named, str) else ()
            added = make_headers(replace(message, revision=MODERN), found)
        else:
            own, added = f"toolcall-proxy-{next(self._numbers)}" if shared else "", ()
            body = replace_value(body, _ID, dumps(own)) if own else body
        headers = self.headers(request.headers, added)
        sent = self._request(request, "POST", headers, body, request.timeout)
        sent = replace(sent, passed_on=request.passed_on)
        try:
            reply = await (self._upstream.relay(sent, None) if checked is None else self._upstream.send(checked, sent))
        except asyncio.CancelledError:
            if own:
                self._later(self._cancel(own, request))
            raise
        if isinstance(reply, UpstreamFault) or (reply.status == 404 and self._session and not self.modern):
            return reply
        return await self._as_read(reply, message, own, request)

    async def _as_read(self, reply: UpstreamReply, message: Message, own: str, request: UpstreamRequest) -> Answer:
        """An answer as the client reads it: its own id, its own era, and ids of the server's requests that lead back to
        this server."""
        completes = message.modern and not self.modern
        restore = AnswerRewriting(self.server.name, message.id, own, completes=completes)

        async def leave(ended: bool) -> None:
            if own and not ended:
                self._later(self._cancel(own, request))

        def write(event: ServerEvent) -> bytes:
            return b"" if self.refuse_question(event.data, request) else restore.write_event(event)

        return await rewrite_reply(reply, restore, write, leave, is_turned=self.modern and not message.modern)

    def refuse_question(self, text: bytes, request: UpstreamRequest) -> bool:
        """Answers a request of the server that its client could not answer; False for every other message."""
        refusal = refuse_question(text, self._who.capabilities)
        if refusal is not None:
            self._later(self._tell(refusal, request, Message(ABSENT, "")))
        return refusal is not None

    async def listen(self, request: UpstreamRequest, last_id: str = "") -> Answer:
        """Opens the stream of the server's own messages: GET, or `subscriptions/listen` of the new revisions."""
        if not self.modern:
            more = (("last-event-id", last_id),) if last_id else ()
            headers = self.headers(request.headers, more, accept="text/event-stream")
            outgoing = self._request(request, "GET", headers, b"", request.timeout)
            return await self._upstream.relay(replace(outgoing, silence=math.inf), None)
        notifications: JsonValue = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        request_id = f"toolcall-proxy-{next(self._numbers)}"
        params: dict[str, JsonValue] = {"notifications": notifications, "_meta": self._meta()}
        message = Message(request_id, "subscriptions/listen", params, MODERN)
        text = dumps({"jsonrpc": "2.0", "id": request_id, "method": message.method, "params": params})
        headers = self.headers(request.headers, make_headers(message, ()))
        outgoing = self._request(request, "POST", headers, text, request.timeout)
        return await self._upstream.relay(replace(outgoing, silence=math.inf), None)

    # --- requests -----------------------------------------------------------------------------------------------------
    def headers(self, sent: Headers, more: Headers, accept: str = ACCEPT) -> Headers:
        """The headers of a request to this server."""
        own: list[tuple[str, str]] = [("accept", accept), ("content-type", "application/json")]
        if not self.modern and self._session:
            own.append((SESSION_HEADER, self._session))
        if not self.modern and self._revision:
            own.append((VERSION_HEADER, self._revision))
        return (*kept_headers(self.server, sent), *own, *more)

    def _request(
        self, request: UpstreamRequest, method: str, headers: Headers, body: bytes, timeout: float
    ) -> UpstreamRequest:
        server = self.server
        return UpstreamRequest(
            server.upstream, method, server.target, headers, body, timeout, request.resend, request.silence
        )

    def _meta(self) -> dict[str, JsonValue]:
        """The `_meta` by which a request of the new revisions introduces its client."""
        return {VERSION_META: MODERN, _CLIENT_INFO: self._who.client, CAPABILITIES_META: {}}

    def _fault(self, why: str) -> UpstreamFault:
        message = f"server '{self.server.name}' is out of reach: {why}"
        return UpstreamFault(UPSTREAM_UNAVAILABLE, "destination_unavailable", Executed.NO, message)

    async def _cancel(self, own: str, request: UpstreamRequest) -> None:
        """Cancels the request of a client of the new revisions, which has disconnected, at a server of an old one."""
        params: JsonValue = {"requestId": own, "reason": "the client has gone"}
        text = dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await self._tell(text, request, Message(ABSENT, "notifications/cancelled", params))

    def _later(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

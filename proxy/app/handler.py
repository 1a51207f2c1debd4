"""One request from its head to its answer: finds the route, reads the body, lets the story run, answers.

Takes one snapshot of the routes at the beginning and keeps it to the end, so that a reload never changes the rules
under a request. Each request ends in one `CallRecord`, handed to the observers, whatever became of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from proxy.adapters.ladder import trace_id
from proxy.app.access import Denied, admit, asked_method, preflight, serves
from proxy.app.body import (
    BodyBrokenError,
    Unread,
    at_hand,
    read_body,
    read_whole,
    stream_body,
    unmet_expectation,
    with_body,
)
from proxy.app.headers import Caller, Hop
from proxy.app.http1.answer import Answer
from proxy.app.http1.connection import Connection
from proxy.app.http1.request import Request, path_and_query
from proxy.app.lane import RequestLane, Way
from proxy.app.mcp import Mcp, Turn
from proxy.app.replies import cut_short, deliver, faulty, ours, refusal, refused, refused_on
from proxy.app.tunnel import NOT_AGREED, UPGRADE, agreed, asks_for_websocket
from proxy.app.tunnel import run as run_tunnel
from proxy.core import codes
from proxy.core.codes import ErrorCode
from proxy.core.model import (
    Delivered,
    Failure,
    HttpReply,
    Passthrough,
    RawRequest,
    ToolResult,
    UpstreamFault,
    UpstreamReply,
)
from proxy.interfaces import CallRecord, Episode, Observer, Services, Trace, Upstream, UpstreamRequest
from proxy.pipeline import run_call
from proxy.routing import Match, NotAllowed, RouteTable
from proxy.upstream.stream import close_body
from proxy.upstream.traced import traced

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# A passthrough body up to this size is sent whole, with its length: not every server takes chunks.
_SENT_WHOLE: Final = 1024 * 1024
# Stages that wait for others: the client, the operator's own code, and the model endpoint with what it led to.
_WAITED_FOR: Final = ("read", "stream", "hooks", "correction")
# A request's `traceparent` and `tracestate` -> its trace.
BeginTrace = Callable[[str | None, str | None], Trace]
_LOOP: Final = "The route leads back to this proxy."


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is served: the routes of one config, what their calls need, and the hash of that config."""

    table: RouteTable
    ways: Mapping[str, Way]
    services: Services
    digest: str


class Handler:
    """Handles requests. `snapshot` may be exchanged at any time; `inflight` counts requests under way.

    While `draining`, every answer ends its connection. Once `closing`, nothing new is begun: each request is told that
    the proxy restarts.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        observers: Sequence[Observer],
        hop: Hop,
        fresh_id: Callable[[], str],
        report_error: Callable[[str, BaseException], None],
        hosts: frozenset[str] = frozenset(),
        begin_trace: BeginTrace | None = None,
        mcp: Mcp | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.draining = False
        self.closing = False
        self._stopping = False
        self._clock = snapshot.services.clock
        self._observers = observers
        self._hop = hop
        self._hosts = hosts
        self._begin_trace = begin_trace
        self._mcp = mcp
        self._fresh_id = fresh_id
        self._report_error = report_error
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def inflight(self) -> int:
        """How many requests are under way."""
        return len(self._tasks)

    def exchange(self, snapshot: Snapshot) -> frozenset[asyncio.Task[object]]:
        """Serves another snapshot from here on; gives the requests under way, which keep the one they began with."""
        self.snapshot = snapshot
        return frozenset(self._tasks)

    async def handle(self, request: Request) -> Answer | None:
        """Answers one request; None where the answer went out piece by piece. Raises CancelledError when the client has
        gone, and ConnectionError where an answer that has begun cannot be brought to its end."""
        record, task = self._record(request), request.connection.task
        if task is not None:
            self._tasks.add(task)
        try:
            found = self._answer(request, record)
            answer = found if isinstance(found, Answer) else await found
        except asyncio.CancelledError:
            if not self._stopping or task is None or request.begun:
                record.outcome = "client_gone"
                raise
            task.uncancel()
            answer = cut_short(codes.RESTARTING, record, request.headers.get("accept") or "")
        except Exception as error:
            self._report_error(record.request_id, error)
            if request.begun:  # half an answer is out: the end must not look clean
                raise ConnectionError("the answer broke off") from error
            answer = cut_short(codes.INTERNAL_ERROR, record, request.headers.get("accept") or "")
        finally:
            if task is not None:
                self._tasks.discard(task)
            self._finish(record)
        if answer is not None:
            answer.closes = answer.closes or self.draining
            answer.headers += request.cors
        return answer

    def refuse_head(self, code: ErrorCode, message: str, status: int | None = None) -> Answer:
        """The answer to a request whose head is no valid HTTP. Counted like any other."""
        record = CallRecord(self._fresh_id(), "", started=self._clock.now())
        answer = refused(code, message, record, status=status)
        self._finish(record)
        return answer

    async def settled(self) -> None:
        """Returns when the requests are over that are under way now; later ones are not waited for."""
        if self._tasks:
            await asyncio.wait(frozenset(self._tasks))

    async def idle(self) -> None:
        """Returns when no request is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """Ends what is still under way: each client hears that the proxy restarts."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await self.idle()

    def _record(self, request: Request) -> CallRecord:
        headers = request.headers
        given = headers.get("x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else self._fresh_id()
        record = CallRecord(request_id, "", request.method, started=self._clock.now())
        parent = headers.get("traceparent")
        if parent is not None or self._begin_trace is not None:
            self._place(record, parent, headers.get("tracestate"))
        return record

    def _place(self, record: CallRecord, parent: str | None, state: str | None) -> None:
        """Puts a request into its trace, which is named in the log alone where no spans are made."""
        if self._begin_trace is None:
            record.trace_id = trace_id(parent) or ""
        else:
            record.trace = self._begin_trace(parent, state)
            record.trace_id = record.trace.trace_id

    def _finish(self, record: CallRecord) -> None:
        record.ended = self._clock.now()
        others = record.upstream_seconds
        for stage in _WAITED_FOR:
            others += record.stages.get(stage, 0.0)
        record.stages["total"] = record.ended - record.started - others
        if record.settling is None:
            self._tell(record)
        else:  # the answer need not wait for the store, what is written down of it may
            record.settling.add_done_callback(lambda told: self._learn(record, told))

    def _learn(self, record: CallRecord, told: asyncio.Future[Episode | None]) -> None:
        episode = None if told.cancelled() else told.result()
        record.corrected_after = episode.count if episode is not None else 0
        self._tell(record)

    def _tell(self, record: CallRecord) -> None:
        for observer in self._observers:
            observer.finished(record)

    def _answer(self, request: Request, record: CallRecord) -> Answer | Coroutine[Any, Any, Answer | None]:
        """Finds the route, and whether it may be used now: the answer, or the coroutine that makes it."""
        headers = request.headers
        if headers.get("expect") is not None and (unmet := unmet_expectation(request)) is not None:
            return refused(unmet.code, unmet.message, record, headers.get("accept") or "")
        snapshot = self.snapshot
        if self._hosts and not serves(headers.get("host") or "", self._hosts):
            return refused(codes.HOST_NOT_SERVED, "", record, headers.get("accept") or "")
        path, query = path_and_query(request.target)
        match = snapshot.table.match(request.method, path)
        if request.method == "OPTIONS" and (asked := asked_method(headers)):
            answer = _preflight(snapshot.table.match(asked, path), request, record)
            if answer is not None:
                return answer
        if not isinstance(match, Match):
            return _unrouted(match, snapshot, request, path, record)
        way = snapshot.ways[match.route.name]
        record.route = match.route.name
        caller = request.connection.caller or self._meet(request.connection)
        client, barred = caller.client(headers), self._barred(request, way, record)
        if barred is not None:
            raw = RawRequest(request.method, path, query, headers, b"", match.params, client)
            answer = refused_on(way, raw, refusal(barred.code, barred.message, record), record)
            answer.headers += barred.headers
            return answer
        own = (*caller.own_fields(headers), ("x-request-id", record.request_id))
        if way.route.kind == "passthrough":
            raw = RawRequest(request.method, path, query, headers, b"", match.params, client)
            if way.route.websocket and asks_for_websocket(request):
                own = (*own, *UPGRADE)
            return self._relay(request, RequestLane(way, raw, own), snapshot.services, record)
        data = at_hand(request, way.route.max_body)
        raw = RawRequest(request.method, path, query, headers, data or b"", match.params, client)
        return self._call(request, RequestLane(way, raw, own), data is not None, snapshot.services, record)

    def _meet(self, connection: Connection) -> Caller:
        """Remembers with a connection who is at its other end."""
        caller = connection.caller = Caller.of(self._hop, connection.peer, connection.scheme)
        return caller

    def _barred(self, request: Request, way: Way, record: CallRecord) -> Denied | None:
        """Why a request may not use its route, or not now; None where it may."""
        if request.headers.get("via") is not None and self._hop.is_loop(request.headers):
            record.upstream_error = "proxy_loop_detected"
            return Denied(codes.UPSTREAM_UNAVAILABLE, _LOOP)
        if self.closing:
            return Denied(codes.RESTARTING, "")
        admitted = admit(way.route, request.headers)
        if isinstance(admitted, Denied):
            return admitted
        if admitted.token:
            record.notes = {"client.token": admitted.token}
        request.cors = admitted.cors
        return None

    async def _call(
        self, request: Request, lane: RequestLane, whole: bool, services: Services, record: CallRecord
    ) -> Answer | None:
        """Reads the body, unless the `whole` of it is in the lane; lets the story run, and encodes what came of it."""
        way, now = lane.way, self._clock.now
        if not whole:
            body = await read_body(request, way.route.max_body, way.route.timeout)
            if isinstance(body, Unread):
                record.stages["read"] = now() - record.started
                return _unread(way, lane.raw, body, record)
            lane = RequestLane(way, with_body(lane.raw, body), lane.hop_fields)
        started = now()
        record.stages["read"] = started - record.started
        record.request_bytes = len(lane.raw.body)
        if way.route.learn is not None and self._mcp is not None:
            return await self._mcp.handle(Turn(request, lane, services, record, self.draining, self._send, self._place))
        call = way.adapter.decode(lane.raw, way.route.shape, record.request_id)
        record.stages["decode"] = now() - started
        if isinstance(call, Passthrough):
            return await self._relay(request, lane, services, record)
        if isinstance(call, Failure):
            return refused_on(way, lane.raw, refusal(call.code, call.message, record, call.status), record)
        outcome = await run_call(call, lane, services, record)
        started = now()
        if isinstance(outcome, ToolResult):
            answer: Answer | None = refused_on(way, lane.raw, outcome, record)
        else:
            answer = await deliver(outcome, request, record, self.draining)
        record.stages["stream" if answer is None else "answer"] = now() - started
        return answer

    async def _relay(
        self, request: Request, lane: RequestLane, services: Services, record: CallRecord
    ) -> Answer | None:
        """What is no call goes on as it is, streamed both ways."""
        way, raw = lane.way, lane.raw
        record.outcome, record.upstream = "passthrough", way.route.upstream
        request.say_continue()
        started = self._clock.now()
        body = stream_body(request, way.route.timeout) if request.length else None
        if 0 < request.announced <= _SENT_WHOLE:
            whole = await read_whole(request, _SENT_WHOLE, way.route.timeout)
            if isinstance(whole, Unread):
                return _unread(way, raw, whole, record)
            lane, body = replace(lane, raw=replace(raw, body=whole)), None
        try:
            reply = await self._send(lane.passthrough(), body, services.upstreams[record.upstream], record)
        except BodyBrokenError as broken:
            return _unread(way, raw, broken.why, record)
        record.upstream_seconds = self._clock.now() - started
        if isinstance(reply, UpstreamReply) and reply.status == 101 and not agreed(request, reply):
            await close_body(reply)
            reply = NOT_AGREED
        if isinstance(reply, UpstreamFault):
            return faulty(way, raw, reply, record)
        record.upstream_status = reply.status
        started = self._clock.now()
        answer = None
        if reply.status == 101:
            await run_tunnel(request, reply, record)
        else:
            answer = await deliver(Delivered(reply), request, record, self.draining)
        record.stages["stream" if answer is None else "answer"] = self._clock.now() - started
        return answer

    async def _send(
        self, request: UpstreamRequest, body: AsyncIterator[bytes] | None, upstream: Upstream, record: CallRecord
    ) -> UpstreamReply | UpstreamFault:
        """Relays a request, as part of its trace where there is one."""
        if record.trace is None:
            return await upstream.relay(request, body)
        return await traced(partial(upstream.relay, body=body), record.trace, self._clock.now)(request)


def _pathless(snapshot: Snapshot, method: str, path: str) -> str:
    """What is said of a path that no route has. The path itself would be taken for a file's, and shortened."""
    if path.endswith("/") and snapshot.table.match(method, path.rstrip("/")) is not None:
        return "No route has this path: it ends in '/', and the route does not."
    return ""


def _unrouted(match: NotAllowed | None, snapshot: Snapshot, request: Request, path: str, record: CallRecord) -> Answer:
    """The answer to a request that no route takes."""
    accept = request.headers.get("accept") or ""
    if match is None:
        return refused(codes.ROUTE_NOT_FOUND, _pathless(snapshot, request.method, path), record, accept)
    allow = ", ".join(match.methods)
    answer = refused(codes.METHOD_NOT_ALLOWED, f"This route takes {allow}.", record, accept)
    answer.headers.append(("Allow", allow))
    return answer


def _preflight(match: Match | NotAllowed | None, request: Request, record: CallRecord) -> Answer | None:
    """The answer to a browser that asks before it sends; None where the request goes the way of every other."""
    if not isinstance(match, Match):
        return None
    record.route = match.route.name
    fields = preflight(match.route, request.headers.get("origin") or "")
    if isinstance(fields, Denied):
        return refused(fields.code, fields.message, record)
    return None if fields is None else ours(HttpReply(204, fields, b""), record)


def _unread(way: Way, raw: RawRequest, why: Unread, record: CallRecord) -> Answer:
    """The answer to a request whose body could not be read. What is left of it ends the connection."""
    answer = refused_on(way, raw, refusal(why.code, why.message, record, why.status), record)
    answer.closes = True
    return answer

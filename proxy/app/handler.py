"""One request from its head to its answer: finds the route, reads the body, lets the story run, answers.

Takes one snapshot of the routes at the beginning and keeps it to the end, so that a reload never changes the rules
under a request. Each request ends in one `CallRecord`, handed to the observers, whatever became of it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from aiohttp import web

from proxy.adapters.ladder import trace_id
from proxy.app.access import Denied, admit, asked_method, preflight, serves
from proxy.app.body import (
    BodyBrokenError,
    Unread,
    has_body,
    read_body,
    read_whole,
    send_continue,
    stream_body,
    unmet_expectation,
    with_body,
)
from proxy.app.headers import Hop, lower_case
from proxy.app.lane import RequestLane, Way
from proxy.app.mcp import Mcp, Turn
from proxy.app.replies import CORS, cors_fields, cut_short, deliver, faulty, ours, refusal, refused, refused_on
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
# An absolute-form target (RFC 9112 section 3.2.2): the path begins after the authority.
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
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

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request. Raises only CancelledError, when the client has gone."""
        record = self._record(request)
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            response = await self._answer(request, record)
        except asyncio.CancelledError:
            if not self._stopping or task is None or request.writer.output_size:
                record.outcome = "client_gone"
                raise
            task.uncancel()
            response = cut_short(codes.RESTARTING, record, request.headers.get("Accept", ""))
        except Exception as error:
            self._report_error(record.request_id, error)
            if request.writer.output_size:  # half an answer is out: the end must not look clean
                raise ConnectionError("the answer broke off") from error
            response = cut_short(codes.INTERNAL_ERROR, record, request.headers.get("Accept", ""))
        finally:
            if task is not None:
                self._tasks.discard(task)
            self._finish(record)
        if self.draining and not response.prepared:
            response.force_close()
        if (cors := cors_fields(request)) and not response.prepared:
            response.headers.extend(cors)
        return response

    def refuse_head(self, code: ErrorCode, message: str, status: int | None = None) -> web.Response:
        """The answer to a request whose head is no valid HTTP. Counted like any other."""
        record = CallRecord(self._fresh_id(), "", started=self._clock.now())
        response = refused(code, message, record, status=status)
        self._finish(record)
        return response

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

    def _record(self, request: web.BaseRequest) -> CallRecord:
        given = request.headers.get("X-Request-ID", "")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else self._fresh_id()
        record = CallRecord(request_id, "", request.method, started=self._clock.now())
        self._place(record, request.headers.get("traceparent"), request.headers.get("tracestate"))
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

    async def _answer(self, request: web.BaseRequest, record: CallRecord) -> web.StreamResponse:
        """Finds the route; what cannot have one is answered here."""
        accept = request.headers.get("Accept", "")
        if not _is_http_1(request):
            return refused(codes.BAD_REQUEST, "", record, accept)
        if (unmet := unmet_expectation(request)) is not None:
            return refused(unmet.code, unmet.message, record, accept)
        snapshot = self.snapshot
        if not serves(request.headers.get("Host", ""), self._hosts):
            return refused(codes.HOST_NOT_SERVED, "", record, accept)
        path, query = _path_and_query(request.raw_path)
        match = snapshot.table.match(request.method, path)
        if asked := asked_method(request.method, request.headers):
            response = _preflight(snapshot.table.match(asked, path), request, record)
            if response is not None:
                return response
        if match is None:
            return refused(codes.ROUTE_NOT_FOUND, _pathless(snapshot, request.method, path), record, accept)
        if isinstance(match, NotAllowed):
            allow = ", ".join(match.methods)
            response = refused(codes.METHOD_NOT_ALLOWED, f"This route takes {allow}.", record, accept)
            response.headers["Allow"] = allow
            return response
        way = snapshot.ways[match.route.name]
        record.route = match.route.name
        headers, peer = lower_case(request.headers.items()), request.remote or ""
        client = self._hop.client(peer, headers)
        raw = RawRequest(request.method, path, query, headers, b"", match.params, client)
        if (denied := self._denied(request, way, raw, record)) is not None:
            return denied
        own = (*self._hop.own_fields(peer, request.scheme, headers), ("x-request-id", record.request_id))
        if way.route.kind == "passthrough":
            if way.route.websocket and asks_for_websocket(request):
                own = (*own, *UPGRADE)
            return await self._relay(request, RequestLane(way, raw, own), snapshot.services, record)
        return await self._call(request, RequestLane(way, raw, own), snapshot.services, record)

    def _denied(self, request: web.BaseRequest, way: Way, raw: RawRequest, record: CallRecord) -> web.Response | None:
        """The answer to a request that may not use its route, or not now; None where it may."""
        if self._hop.is_loop(raw.headers):
            record.upstream_error = "proxy_loop_detected"
            return refused_on(way, raw, refusal(codes.UPSTREAM_UNAVAILABLE, _LOOP, record), record)
        if self.closing:
            return refused_on(way, raw, refusal(codes.RESTARTING, "", record), record)
        admitted = admit(way.route, raw.headers)
        if isinstance(admitted, Denied):
            denied = refused_on(way, raw, refusal(admitted.code, admitted.message, record), record)
            denied.headers.extend(admitted.headers)
            return denied
        if admitted.token:
            record.notes = {"client.token": admitted.token}
        if admitted.cors:
            request[CORS] = admitted.cors
        return None

    async def _call(
        self, request: web.BaseRequest, lane: RequestLane, services: Services, record: CallRecord
    ) -> web.StreamResponse:
        """Reads the body, lets the story run, and encodes what came of it."""
        way, now = lane.way, self._clock.now
        body = await read_body(request, way.route.max_body, way.route.timeout)
        record.stages["read"] = now() - record.started
        if isinstance(body, Unread):
            return _unread(lane, body, record)
        record.request_bytes = len(body.data)
        lane = RequestLane(way, with_body(lane.raw, body), lane.hop_fields)
        if way.route.learn is not None and self._mcp is not None:
            return await self._mcp.handle(Turn(request, lane, services, record, self.draining, self._send, self._place))
        started = now()
        call = way.adapter.decode(lane.raw, way.route.shape, record.request_id)
        record.stages["decode"] = now() - started
        if isinstance(call, Passthrough):
            return await self._relay(request, lane, services, record)
        if isinstance(call, Failure):
            return refused_on(way, lane.raw, refusal(call.code, call.message, record, call.status), record)
        outcome = await run_call(call, lane, services, record)
        started = now()
        if isinstance(outcome, ToolResult):
            response: web.StreamResponse = refused_on(way, lane.raw, outcome, record)
        else:
            response = await deliver(outcome, request, record, self.draining)
        record.stages["stream" if response.prepared else "answer"] = now() - started
        return response

    async def _relay(
        self, request: web.BaseRequest, lane: RequestLane, services: Services, record: CallRecord
    ) -> web.StreamResponse:
        """What is no call goes on as it is, streamed both ways."""
        record.outcome, record.upstream = "passthrough", lane.way.route.upstream
        await send_continue(request)
        started = self._clock.now()
        body = stream_body(request, lane.way.route.timeout) if has_body(request) else None
        length = request.headers.get("Content-Length", "")
        if body is not None and length.isdecimal() and int(length) <= _SENT_WHOLE:
            whole = await read_whole(request, _SENT_WHOLE, lane.way.route.timeout)
            if isinstance(whole, Unread):
                return _unread(lane, whole, record)
            lane, body = replace(lane, raw=replace(lane.raw, body=whole)), None
        try:
            reply = await self._send(lane.passthrough(), body, services.upstreams[record.upstream], record)
        except BodyBrokenError as broken:
            return _unread(lane, broken.why, record)
        record.upstream_seconds = self._clock.now() - started
        if isinstance(reply, UpstreamReply) and reply.status == 101 and not agreed(request, reply):
            await close_body(reply)
            reply = NOT_AGREED
        if isinstance(reply, UpstreamFault):
            return faulty(lane.way, lane.raw, reply, record)
        record.upstream_status = reply.status
        started = self._clock.now()
        if reply.status == 101:
            response = await run_tunnel(request, reply, record)
        else:
            response = await deliver(Delivered(reply), request, record, self.draining)
        record.stages["stream" if response.prepared else "answer"] = self._clock.now() - started
        return response

    async def _send(
        self, request: UpstreamRequest, body: AsyncIterator[bytes] | None, upstream: Upstream, record: CallRecord
    ) -> UpstreamReply | UpstreamFault:
        """Relays a request, as part of its trace where there is one."""
        if record.trace is None:
            return await upstream.relay(request, body)
        return await traced(partial(upstream.relay, body=body), record.trace, self._clock.now)(request)


def _path_and_query(target: str) -> tuple[str, str]:
    """The two parts of a target. A URL inside of it, such as in the query, is no authority of ours."""
    if not target.startswith("/"):
        target = _ABSOLUTE.sub("", target, count=1)
    path, _, query = target.partition("?")
    return path, query


def _pathless(snapshot: Snapshot, method: str, path: str) -> str:
    """What is said of a path that no route has. The path itself would be taken for a file's, and shortened."""
    if path.endswith("/") and snapshot.table.match(method, path.rstrip("/")) is not None:
        return "No route has this path: it ends in '/', and the route does not."
    return ""


def _preflight(
    match: Match | NotAllowed | None, request: web.BaseRequest, record: CallRecord
) -> web.StreamResponse | None:
    """The answer to a browser that asks before it sends; None where the request goes the way of every other."""
    if not isinstance(match, Match):
        return None
    record.route = match.route.name
    fields = preflight(match.route, request.headers["Origin"])
    if isinstance(fields, Denied):
        return refused(fields.code, fields.message, record)
    return None if fields is None else ours(HttpReply(204, fields, b""), record)


def _is_http_1(request: web.BaseRequest) -> bool:
    """Whether the version is one that this port speaks: aiohttp takes any that looks like one, and chunks in HTTP/1.0,
    where RFC 9112 section 6.1 calls the framing faulty."""
    return request.version == (1, 1) or (request.version == (1, 0) and "Transfer-Encoding" not in request.headers)


def _unread(lane: RequestLane, why: Unread, record: CallRecord) -> web.Response:
    """The answer to a request whose body could not be read. What is left of it ends the connection."""
    response = refused_on(lane.way, lane.raw, refusal(why.code, why.message, record, why.status), record)
    response.force_close()
    return response

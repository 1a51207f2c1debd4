"""One request from its head to its response: finds the route, reads the body, runs the call, answers.

Takes one snapshot of the routes at the beginning and keeps it to the end, so that a reload never changes the rules
under a request. Every request ends in one `CallRecord`, which the observers get.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiohttp.web_response import StreamResponse

from proxy.adapters.ladder import find_call_id, find_conversation, trace_id
from proxy.call.fast_start import start_call
from proxy.call.judging import LONG
from proxy.call.outcome import refuse_unread_call
from proxy.call.run import run_call
from proxy.core.contract.spellings import Unclear
from proxy.core.model import codes
from proxy.core.model.value_class import value_class
from proxy.core.model.values import (
    ABSENT,
    Delivered,
    Failure,
    Fields,
    HttpReply,
    JsonProblem,
    Outcome,
    Passthrough,
    RawRequest,
    ToolCall,
    ToolResult,
    UpstreamFault,
    UpstreamReply,
)
from proxy.interfaces import (
    AccessDenied,
    Admission,
    Admitted,
    CallAccess,
    CallRecord,
    Certificate,
    Episode,
    JudgesElsewhere,
    Observer,
    Services,
    StateStore,
    ToolTexts,
    Trace,
    Upstream,
    UpstreamRequest,
)
from proxy.routing import LeftOutOperation, Match, MethodNotAllowed, Route, RouteTable
from proxy.server.bound_route import RouteBinding, RouteRequest
from proxy.server.http.access import (
    admit,
    answer_preflight,
    find_other_request,
    is_served_host,
    read_preflight_method,
)
from proxy.server.http.body import (
    BodyBrokenError,
    read_body,
    read_content_length,
    read_whole,
    replace_body,
    say_continue,
    stream_body,
    take_body,
)
from proxy.server.http.certificate import read_names
from proxy.server.http.checks import BadRequest, find_fault
from proxy.server.http.fast_call import Answered, FastCall, FastClient
from proxy.server.http.framing import Response, has_begun
from proxy.server.http.headers import Hop, find_caller, read_fields, split_target
from proxy.server.http.memory import FULL, JUDGED, RELAYED, BodyMemory, MemoryBudget
from proxy.server.http.request_head import ParsedRequest, RequestHead
from proxy.server.http.responses import (
    answer_failure,
    answer_fault,
    answer_unrouted,
    cut_short,
    deliver,
    make_refusal,
    make_response,
)
from proxy.server.http.websocket import NOT_AGREED, UPGRADE, asks_for_websocket, is_agreed
from proxy.server.http.websocket import run as run_tunnel
from proxy.server.listed_request import ListedRequest
from proxy.server.listed_routes import ListedRoutes
from proxy.upstream.faults import close_body
from proxy.upstream.resending import trace_sends

if TYPE_CHECKING:
    from aiohttp import web

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# Targets that are remembered with whether calls begin there without a task, and their characters.
_MOST_TARGETS: Final = 1024
_LONGEST_TARGET: Final = 256
# A passthrough body up to this size is sent whole, with its length: not every server takes chunks.
_SENT_WHOLE: Final = 1024 * 1024
# Stages that wait for others: the client, the operator's own code, and the model endpoint with what it led to.
_WAITED_FOR: Final = ("read", "stream", "hooks", "correction")
# A request's `traceparent` and `tracestate` -> its trace.
BeginTrace = Callable[[str | None, str | None], Trace]
_LOOP: Final = AccessDenied(codes.UPSTREAM_UNAVAILABLE, "The route leads back to this proxy.")


# Answers a GET at a path that an extension serves: the request, its fields, the routes that the caller may use, each
# with what it may call there, and the state store.
Usable = Sequence[tuple[Route, CallAccess | None]]
AnswerPath = Callable[[RawRequest, Fields, Callable[[], Awaitable[Usable]], StateStore], Awaitable[HttpReply]]
# Makes the response to a request, once it has a task.
Follow = partial[Coroutine[Any, Any, StreamResponse]]
# Paths at which the proxy says something of itself (RFC 8615).
_WELL_KNOWN: Final = "/.well-known/"


@value_class
class Snapshot:
    """The routes of one config, what their calls need, and the hash of that config. `answers`: what extensions answer
    at paths that no route takes; `texts`: what MCP clients are told of tools."""

    table: RouteTable
    bindings: Mapping[str, RouteBinding]
    services: Services
    digest: str
    answers: Mapping[str, AnswerPath] = field(default_factory=dict)
    texts: ToolTexts | None = None


@value_class
class Target:
    """The target of a request, read by one snapshot: its path and query, the `binding` of its route with the parameters
    that stand in the path, or `why_not` where no route takes it. `is_ours`: an extension answers there, whatever routes
    there are."""

    path: str
    query: str
    binding: RouteBinding | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    why_not: MethodNotAllowed | Unclear | LeftOutOperation | None = None
    is_ours: bool = False


# What is remembered of a target where no call begins without a task.
_STARTS_NOTHING: Final = Target("", "")


class Handler:
    """Handles requests. `snapshot` and `observers` may be exchanged at any time; `inflight` counts requests under way.
    `memory` bounds the bodies under way. `fast`: calls may begin and end without a task; `counted_fast` counts those
    that did.

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
        listed: ListedRoutes | None = None,
        room: int = 0,
    ) -> None:
        self.snapshot = snapshot
        self.memory = MemoryBudget(room)
        self.draining = False
        self.closing = False
        self._stopping = False
        self._clock = snapshot.services.clock
        self.observers = observers
        self._hop = hop
        self._hosts = hosts
        self._begin_trace = begin_trace
        self._listed = listed
        self._fresh_id = fresh_id
        self._report_error = report_error
        self._tasks: set[asyncio.Task[object]] = set()
        self.fast = True
        self.counted_fast = 0
        self._begun: set[FastCall] = set()
        self._starting: dict[tuple[str, str], Target] = {}

    @property
    def inflight(self) -> int:
        """How many requests are under way."""
        return len(self._tasks) + len(self._begun)

    def exchange(self, snapshot: Snapshot) -> frozenset[asyncio.Future[Any]]:
        """Serves another snapshot from here on; gives the requests under way, which keep the one they began with."""
        self.snapshot = snapshot
        self._starting.clear()
        return self._list_running()

    def _list_running(self) -> frozenset[asyncio.Future[Any]]:
        return frozenset((*self._tasks, *[call.find_end() for call in self._begun]))

    def handle(self, request: web.BaseRequest) -> Coroutine[Any, Any, web.StreamResponse]:
        """Answers one request. The response is sent already where it went out piece by piece. Raises CancelledError
        when the client has gone, and ConnectionError where a response that has begun cannot be brought to its end."""
        fields = read_fields(request)
        return self._respond(request, fields, self._record(request, fields))

    async def _respond(
        self, request: web.BaseRequest, fields: Fields, record: CallRecord, call: FastCall | None = None
    ) -> web.StreamResponse:
        """Answers a request, in whose `call` some stages have run already."""
        # `request.task` is the connection's; without its loop, CPython 3.11 asks the kernel for the process id first.
        task = asyncio.current_task(request.task.get_loop())
        if task is not None:
            self._tasks.add(task)
        try:
            found = self._answer(request, fields, record) if call is None else self._follow(request, call)
            response = found if isinstance(found, Response) else await found
        except asyncio.CancelledError:
            if not self._stopping or task is None or has_begun(request):
                record.outcome = "client_gone"
                raise
            task.uncancel()
            response = cut_short(codes.RESTARTING, record, fields.get("accept") or "")
        except Exception as error:
            self._report_error(record.request_id, error)
            if has_begun(
                request
            ):  # a part of the response was sent: the connection is reset, so that the end does not look clean
                raise ConnectionError("the response broke off") from error
            response = cut_short(codes.INTERNAL_ERROR, record, fields.get("accept") or "")
        finally:
            if task is not None:
                self._tasks.discard(task)
            if call is not None:
                call.note_end()
            self._finish(record)
        if self.draining and isinstance(response, Response):
            response.closes = True
        return response

    def refuse_head(self, why: BadRequest) -> Response:
        """The response to a request whose head is not valid HTTP. Counted like any other."""
        record = CallRecord(self._fresh_id(), "", started=self._clock.now())
        response = answer_unrouted(why.code, why.message, record, status=why.status)
        self._finish(record)
        return response

    async def wait_settled(self) -> None:
        """Waits for the requests that are under way now; later ones are not waited for."""
        if under_way := self._list_running():
            await asyncio.wait(under_way)

    async def idle(self) -> None:
        """Returns when no request is under way."""
        while under_way := self._list_running():
            await asyncio.wait(under_way)

    async def abandon(self) -> None:
        """Ends what is still under way: each client hears that the proxy restarts."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        for call in tuple(self._begun):  # their tasks find that all is over
            call.hand_over()
        await self.idle()

    # --- calls without a task -----------------------------------------------------------------------------------------
    def begin(self, request: ParsedRequest, client: FastClient) -> FastCall | None:
        """Begins a call, whose whole body may be there, without a task; None for any other request, of which nothing
        has been read."""
        snapshot = self.snapshot
        if not self.fast or self.draining or self.closing or snapshot.services.hooks is not None:
            return None
        method, target = request.method, request.raw_path
        found = self._starting.get((method, target))
        if found is None:
            found = self._learn_target(method, target)
        if found is _STARTS_NOTHING:
            return None
        fields = read_fields(request)
        call = FastCall(self, client, request, fields, self._record(request, fields))
        self._begun.add(call)
        try:
            self._begin(call, found, snapshot)
        except Exception as error:  # noqa: BLE001 - `_respond` is the border
            call.fail(error)
        return call

    def _learn_target(self, method: str, target: str) -> Target:
        """Where a method and target lead if calls begin there without a task, else `_STARTS_NOTHING`; remembered."""
        try:
            read = self._read_target(method, target)
        except Exception:  # noqa: BLE001 - `_respond` is the border
            return _STARTS_NOTHING
        # What may be answered before the route is asked, is.
        starts = method != "OPTIONS" and not read.is_ours and read.binding is not None and read.binding.starts_calls
        found = read if starts else _STARTS_NOTHING
        if len(target) <= _LONGEST_TARGET:
            if len(self._starting) >= _MOST_TARGETS:
                self._starting.clear()
            self._starting[method, target] = found
        return found

    def _begin(self, call: FastCall, target: Target, snapshot: Snapshot) -> None:
        """Runs the stages of a call as far as nothing has to wait, and sets how it goes on from there."""
        fields, record, services = call.fields, call.record, snapshot.services
        found = self._open(call.request, fields, record, target)
        if not isinstance(found, tuple):
            call.follow = found if isinstance(found, partial) else lambda _: found
            return
        call_route, whole = found
        call.call_route = call_route
        size = len(call_route.raw.body)
        # Whatever was learned of the target, only what this route takes as a call is judged here.
        starts = call_route.binding.starts_calls
        if not starts or not whole or size > LONG or not call_route.memory.reach(size):
            call.follow = lambda request: self._run(request, fields, call_route, whole, services, record)
            return
        decoded = self._decode(call_route, self._note_read(call_route, record), record)
        if isinstance(decoded, ToolCall):
            call.call = start_call(decoded, call_route, services, record, call.note_answer)
        else:
            call.follow = lambda request: _end(
                self._answer_other(request, fields, call_route, decoded, services, record), call_route
            )

    def resume(self, call: FastCall, request: web.BaseRequest) -> Coroutine[Any, Any, web.StreamResponse]:
        """The response to a call that goes on in a task."""
        self._begun.discard(call)
        return self._respond(request, call.fields, call.record, call)

    def _follow(self, request: web.BaseRequest, call: FastCall) -> Answered:
        if self._stopping:
            call.abort()
            raise asyncio.CancelledError
        if call.follow is not None:
            return call.follow(request)
        if call.call_route is None:
            raise RuntimeError("the first stages of the call have not run")
        return _end(self._encode(request, call.call_route, call.wait(), call.record), call.call_route)

    def end(self, call: FastCall) -> None:
        """Notes that a call ended without a task."""
        self._begun.discard(call)
        self.counted_fast += call.outcome is not None
        self._finish(call.record)

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return self._clock.now()

    def _record(self, request: RequestHead, fields: Fields) -> CallRecord:
        given = fields.get("x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else self._fresh_id()
        record = CallRecord(request_id, "", request.method, started=self._clock.now())
        parent = fields.get("traceparent")
        if parent is not None or self._begin_trace is not None:
            self._place(record, parent, fields.get("tracestate"))
        return record

    def _place(self, record: CallRecord, parent: str | None, state: str | None) -> None:
        """Puts a request into its trace, which is named in the log alone where no spans are made."""
        if self._begin_trace is None:
            record.trace_id = trace_id(parent) or ""
        else:
            record.trace = self._begin_trace(parent, state)
            record.trace_id = record.trace.trace_id

    def _finish(self, record: CallRecord) -> None:
        record.ended = record.ended or self._clock.now()
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
        for observer in self.observers:
            observer.finished(record)

    def _answer(self, request: web.BaseRequest, fields: Fields, record: CallRecord) -> Answered:
        """The response to a request, or the coroutine that makes it."""
        services = self.snapshot.services
        found = self._open(request, fields, record)
        if isinstance(found, partial):
            return found(request)
        return found if not isinstance(found, tuple) else self._run(request, fields, *found, services, record)

    def _run(
        self,
        request: web.BaseRequest,
        fields: Fields,
        call_route: RouteRequest,
        whole: bool,
        services: Services,
        record: CallRecord,
    ) -> Coroutine[Any, Any, web.StreamResponse]:
        """The response to a request on its route."""
        if call_route.binding.route.kind == "passthrough":
            return _end(self._relay(request, fields, call_route, services, record), call_route)
        return _end(self._call(request, fields, call_route, whole, services, record), call_route)

    def _open(
        self, request: RequestHead, fields: Fields, record: CallRecord, target: Target | None = None
    ) -> Answered | Follow | tuple[RouteRequest, bool]:
        """Finds the route, unless the `target` has been read before, and whether it may be used now: the request on its
        route, and whether the whole of its body is there; else the response, or how it is made where admission has to
        wait."""
        if (fault := find_fault(request, fields)) is not None:
            return answer_unrouted(fault.code, fault.message, record, fields.get("accept") or "", fault.status)
        snapshot = self.snapshot
        if self._hosts and not is_served_host(fields.get("host") or "", self._hosts):
            return answer_unrouted(codes.HOST_NOT_SERVED, "", record, fields.get("accept") or "")
        if target is None:
            target = self._read_target(request.method, request.raw_path)
        if target.is_ours:
            return self._answer_unrouted(request, fields, target, record)
        if request.method == "OPTIONS" and (asked := read_preflight_method(fields)):
            answer = _preflight(snapshot.table.match(asked, target.path), fields, record)
            if answer is not None:
                return answer
        binding = target.binding
        if binding is None:
            return self._answer_unrouted(request, fields, target, record)
        record.route = binding.route.name
        admitted = self._admit(request, fields, binding, snapshot)
        if isinstance(admitted, Admitted | AccessDenied):
            return self._enter(request, fields, target, binding, admitted, record)
        return Follow(self._await_admission, admitted, fields, target, binding, snapshot, record)

    def _read_target(self, method: str, target: str) -> Target:
        """What the routes say of a method and target."""
        snapshot, (path, query) = self.snapshot, split_target(target)
        if path in snapshot.answers and path.startswith(_WELL_KNOWN):  # no route takes the place of what we say of us
            return Target(path, query, is_ours=True)
        match = snapshot.table.match(method, path)
        if isinstance(match, Match):
            return Target(path, query, snapshot.bindings[match.route.key], match.params)
        return Target(path, query, why_not=match)

    async def _await_admission(
        self,
        admission: Awaitable[Admitted | AccessDenied],
        fields: Fields,
        target: Target,
        binding: RouteBinding,
        snapshot: Snapshot,
        record: CallRecord,
        request: web.BaseRequest,
    ) -> web.StreamResponse:
        """The response to a request whose admission has to wait."""
        found = self._enter(request, fields, target, binding, await admission, record)
        return (
            found
            if isinstance(found, Response)
            else await self._run(request, fields, *found, snapshot.services, record)
        )

    def _enter(
        self,
        request: RequestHead,
        fields: Fields,
        target: Target,
        binding: RouteBinding,
        admitted: Admitted | AccessDenied,
        record: CallRecord,
    ) -> Response | tuple[RouteRequest, bool]:
        """An admitted request on its route, and whether the whole of its body is there; the response to any other."""
        path, query, params, caller = target.path, target.query, target.params, find_caller(self._hop, request)
        client = caller.client(fields)
        if isinstance(admitted, Admitted):
            admitted = find_other_request(binding.route, query, fields, admitted.calls) or admitted
        if isinstance(admitted, AccessDenied):
            raw = RawRequest(request.method, path, query, fields, b"", params, client)
            return _answer_denied(binding, raw, admitted, record)
        if admitted.token:
            record.notes = {"client.token": admitted.token}
        own = (*caller.own_fields(fields, binding.judges), ("x-request-id", record.request_id))
        relayed = binding.route.kind == "passthrough"
        if relayed and binding.route.websocket and asks_for_websocket(request, fields):
            own += UPGRADE
        data = None if relayed or binding.form else take_body(request, fields, binding.route.max_body)
        raw = RawRequest(request.method, path, query, fields, data or b"", params, client)
        memory = BodyMemory(self.memory, RELAYED if relayed else JUDGED)
        call_route = RouteRequest(binding, raw, own, admitted.cors, memory, admitted.calls, admitted.caller)
        return call_route, data is not None

    def _answer_unrouted(
        self,
        request: RequestHead,
        fields: Fields,
        target: Target,
        record: CallRecord,
    ) -> Response | Coroutine[Any, Any, Response]:
        """The response to a request that no route takes: an extension's, where it serves that path."""
        snapshot, path = self.snapshot, target.path
        if target.why_not is None and request.method == "GET" and path in snapshot.answers and not self.closing:
            client = find_caller(self._hop, request).client(fields)
            raw = RawRequest("GET", path, target.query, fields, b"", {}, client)
            return _answer_path(raw, fields, snapshot, partial(read_names, request), record)
        return _refuse_unrouted(target.why_not, snapshot, request.method, path, fields.get("accept") or "", record)

    def _admit(self, request: RequestHead, fields: Fields, binding: RouteBinding, snapshot: Snapshot) -> Admission:
        """Whether a request may use its route now."""
        if fields.get("via") is not None and self._hop.is_loop(fields):
            return _LOOP
        if self.closing:
            return AccessDenied(codes.RESTARTING, "")
        if not binding.route.asks_caller:
            return admit(binding.route, fields)
        return admit(binding.route, fields, snapshot.services.access[binding.route.key], partial(read_names, request))

    async def _call(
        self,
        request: web.BaseRequest,
        fields: Fields,
        call_route: RouteRequest,
        whole: bool,
        services: Services,
        record: CallRecord,
    ) -> web.StreamResponse:
        """Reads the body, unless the `whole` of it is there; runs the call, and encodes its outcome."""
        binding, route = call_route.binding, call_route.binding.route
        if not whole or not call_route.memory.reach(len(call_route.raw.body)):
            body = FULL if whole else await read_body(request, fields, call_route.memory, route)
            if isinstance(body, BadRequest):
                record.stages["read"] = self._clock.now() - record.started
                return await _refuse_unread(call_route, body, services, record)
            call_route = replace(call_route, raw=replace_body(call_route.raw, body))
        started = self._note_read(call_route, record)
        if record.request_bytes > LONG and services.elsewhere is not None:
            if isinstance(read := await _read_elsewhere(call_route, services.elsewhere, record), Response):
                return read
            call_route = read
        if binding.route.learn is not None and self._listed is not None:
            listed = self._make_listed(request, call_route, services, record)
            return await self._listed.of(binding.route.adapter).handle(listed)
        call = self._decode(call_route, started, record)
        if not isinstance(call, ToolCall):
            return await self._answer_other(request, fields, call_route, call, services, record)
        return await self._encode(request, call_route, run_call(call, call_route, services, record), record)

    async def _answer_other(
        self,
        request: web.BaseRequest,
        fields: Fields,
        call_route: RouteRequest,
        decoded: Passthrough | Failure,
        services: Services,
        record: CallRecord,
    ) -> web.StreamResponse:
        """The response to a request in which there is no call."""
        if isinstance(decoded, Passthrough):
            return await self._relay(request, fields, call_route, services, record)
        return _answer_no_call(call_route.binding, call_route.raw, decoded, record)

    def _note_read(self, call_route: RouteRequest, record: CallRecord) -> float:
        """Records that the body is there, and gives the time."""
        now = self._clock.now()
        record.stages["read"], record.request_bytes = now - record.started, len(call_route.raw.body)
        return now

    def _decode(self, call_route: RouteRequest, started: float, record: CallRecord) -> ToolCall | Passthrough | Failure:
        binding = call_route.binding
        call = binding.adapter.decode(call_route.raw, binding.route.shape, record.request_id)
        record.stages["decode"] = self._clock.now() - started
        return call

    async def _encode(
        self,
        request: web.BaseRequest,
        call_route: RouteRequest,
        running: Coroutine[Any, Any, Outcome],
        record: CallRecord,
    ) -> web.StreamResponse:
        """The response that tells the outcome of a call."""
        outcome = await running
        started = self._clock.now()
        if isinstance(outcome, ToolResult):
            response: web.StreamResponse = answer_failure(call_route.binding, call_route.raw, outcome, record)
        else:
            response = await deliver(outcome, request, call_route.cors, record, self.draining)
        record.stages["stream" if response.prepared else "answer"] = self._clock.now() - started
        return response

    def _make_listed(
        self, request: web.BaseRequest, call_route: RouteRequest, services: Services, record: CallRecord
    ) -> ListedRequest:
        """A request with everything that an extension needs to answer it."""
        known = (services, record, self.draining, self._send, self._place, self.snapshot.texts, self._tell)
        return ListedRequest(request, call_route, *known)

    async def _relay(
        self, request: web.BaseRequest, fields: Fields, call_route: RouteRequest, services: Services, record: CallRecord
    ) -> web.StreamResponse:
        """Relays a request that is not a call, unless its route has the key of an extension that answers it."""
        relayed_by = call_route.binding.route.relayed_by
        if relayed_by is not None and self._listed is not None:
            listed = self._make_listed(request, call_route, services, record)
            answer = await self._listed.of_relay(relayed_by.key).handle(listed)
            if not isinstance(answer, RouteRequest):
                return answer
            call_route = answer
        return await self._relay_unread(request, fields, call_route, services, record)

    async def _relay_unread(
        self, request: web.BaseRequest, fields: Fields, call_route: RouteRequest, services: Services, record: CallRecord
    ) -> web.StreamResponse:
        """Forwards a request that is not a call unchanged, streamed both ways."""
        binding, raw = call_route.binding, call_route.raw
        record.outcome, record.upstream = "passthrough", binding.route.upstream
        await say_continue(request, fields)
        started = self._clock.now()
        body = None
        if request.body_exists and not request.content.at_eof():  # else the call's own reader has taken it
            if 0 < read_content_length(fields) <= _SENT_WHOLE:
                whole = await read_whole(request, _SENT_WHOLE, binding.route.timeout, call_route.memory)
                if isinstance(whole, BadRequest):
                    return _unread(binding, raw, whole, record)
                call_route = replace(call_route, raw=replace(raw, body=whole))
            else:
                body = stream_body(request, binding.route.timeout)
        try:
            reply = await self._send(call_route.make_passthrough(), body, services.upstreams[record.upstream], record)
        except BodyBrokenError as broken:
            return _unread(binding, raw, broken.why, record)
        record.upstream_seconds = self._clock.now() - started
        if isinstance(reply, UpstreamReply) and binding.route.rewrites_resource and self._listed is not None:
            reply = await self._listed.of("mcp").rewrite_metadata(reply, call_route)
        if isinstance(reply, UpstreamReply) and reply.status == 101 and not is_agreed(fields, reply):
            await close_body(reply)
            reply = NOT_AGREED
        if isinstance(reply, UpstreamFault):
            return answer_fault(binding, raw, reply, record)
        record.upstream_status = reply.status
        started = self._clock.now()
        if reply.status == 101:
            response = await run_tunnel(request, reply, record)
        else:
            response = await deliver(Delivered(reply), request, call_route.cors, record, self.draining)
        record.stages["stream" if response.prepared else "answer"] = self._clock.now() - started
        return response

    async def _send(
        self, request: UpstreamRequest, body: AsyncIterator[bytes] | None, upstream: Upstream, record: CallRecord
    ) -> UpstreamReply | UpstreamFault:
        """Relays a request, as part of its trace where there is one."""
        if record.trace is None:
            return await upstream.relay(request, body)
        return await trace_sends(partial(upstream.relay, body=body), record.trace, self._clock.now)(request)


def _pathless(snapshot: Snapshot, method: str, path: str) -> str:
    """What is said of a path that no route has. The path itself would be taken for a file's, and shortened."""
    if path.endswith("/") and snapshot.table.match(method, path.rstrip("/")) is not None:
        return "No route has this path: it ends in '/', and the route does not."
    return ""


def _refuse_unrouted(
    match: MethodNotAllowed | Unclear | LeftOutOperation | None,
    snapshot: Snapshot,
    method: str,
    path: str,
    accept: str,
    record: CallRecord,
) -> Response:
    """The response to a request that no route takes."""
    if isinstance(match, Unclear):
        return answer_unrouted(codes.BAD_REQUEST, match.message, record, accept)
    if isinstance(match, LeftOutOperation):
        return answer_unrouted(
            codes.OPERATION_LEFT_OUT, f"This operation is not judged here: {match.why}.", record, accept
        )
    if match is None:
        return answer_unrouted(codes.ROUTE_NOT_FOUND, _pathless(snapshot, method, path), record, accept)
    allow = ", ".join(match.methods)
    response = answer_unrouted(codes.METHOD_NOT_ALLOWED, f"This route takes {allow}.", record, accept)
    response.fields.append(("Allow", allow))
    return response


async def _answer_path(
    raw: RawRequest, fields: Fields, snapshot: Snapshot, certificate: Certificate, record: CallRecord
) -> Response:
    """The response at a path of an extension."""
    record.route, record.outcome = raw.path, "answered"
    usable = partial(_list_usable, fields, snapshot, certificate)
    reply = await snapshot.answers[raw.path](raw, fields, usable, snapshot.services.store)
    return make_response(reply, record)


async def _list_usable(fields: Fields, snapshot: Snapshot, certificate: Certificate) -> Usable:
    """The routes that a caller may use."""
    found = []
    for route in snapshot.table.routes:
        admitted = admit(route, fields, snapshot.services.access.get(route.key), certificate)
        if not isinstance(admitted, Admitted | AccessDenied):
            admitted = await admitted
        if isinstance(admitted, Admitted):
            found.append((route, admitted.calls))
    return found


def _answer_denied(binding: RouteBinding, raw: RawRequest, why: AccessDenied, record: CallRecord) -> Response:
    """The response to a request that may not use its route, or not now."""
    if why is _LOOP:
        record.upstream_error = "proxy_loop_detected"
    response = answer_failure(binding, raw, make_refusal(why.code, why.message, record), record)
    response.fields += why.headers
    return response


def _preflight(
    match: Match | MethodNotAllowed | Unclear | LeftOutOperation | None, fields: Fields, record: CallRecord
) -> Response | None:
    """The response to a browser that asks before it sends; None where the request goes the way of every other."""
    if not isinstance(match, Match):
        return None
    record.route = match.route.name
    allowed = answer_preflight(
        match.route, fields.get("origin") or "", fields.get("access-control-request-headers") or ""
    )
    if isinstance(allowed, AccessDenied):
        return answer_unrouted(allowed.code, allowed.message, record)
    return None if allowed is None else make_response(HttpReply(204, allowed, b""), record)


def _answer_no_call(binding: RouteBinding, raw: RawRequest, failure: Failure, record: CallRecord) -> Response:
    """The response to a request in which no call was found."""
    return answer_failure(binding, raw, make_refusal(failure.code, failure.message, record, failure.status), record)


async def _read_elsewhere(
    call_route: RouteRequest, elsewhere: JudgesElsewhere, record: CallRecord
) -> RouteRequest | Response:
    """The request with a body that can be read at little cost; or the response where it cannot be read now."""
    raw, shape = call_route.raw, call_route.binding.route.shape
    text = await elsewhere.read(raw.body, shape.text, shape.text_repairs)
    if isinstance(text, Failure):
        return _answer_no_call(call_route.binding, replace(raw, body=b""), text, record)
    return call_route if text is raw.body else replace(call_route, raw=replace(raw, body=text))


def _unread(binding: RouteBinding, raw: RawRequest, why: BadRequest, record: CallRecord) -> Response:
    """The response to a request whose body could not be read. What is left of it ends the connection."""
    response = answer_failure(binding, raw, make_refusal(why.code, why.message, record, why.status), record)
    if why is FULL:
        response.fields.append(("Retry-After", "1"))
    return _close_behind(response)


def _close_behind(response: Response) -> Response:
    response.closes = True
    return response


async def _refuse_unread(call_route: RouteRequest, why: BadRequest, services: Services, record: CallRecord) -> Response:
    """The response to a request whose body is not read; a body that is too large is an attempt of its tool."""
    call = _name_unread_call(call_route, record) if why.code is codes.BODY_TOO_LARGE else None
    if call is None:
        return _unread(call_route.binding, call_route.raw, why, record)
    result = await refuse_unread_call(call, Failure(why.code, why.message), call_route, services, record)
    return _close_behind(answer_failure(call_route.binding, call_route.raw, result, record))


def _name_unread_call(call_route: RouteRequest, record: CallRecord) -> ToolCall | None:
    """The call of a request whose body is not read, where its path names the tool; None for any other."""
    shape, raw = call_route.binding.route.shape, call_route.raw
    tool = shape.tool if shape.tool is not None else raw.params.get(shape.tool_param or "")
    if not tool:
        return None
    call_id = find_call_id(raw, shape.call_id_pointer, ABSENT, record.request_id)
    unread = JsonProblem("the body was not read", 1, 1)
    conversation = find_conversation(raw, shape.ladder)
    # No two bodies that were not read count as the same, unless the client names the same call.
    return ToolCall(tool, unread, call_id, conversation, call_id.encode(), raw.params, raw.query)


async def _end(made: Coroutine[Any, Any, web.StreamResponse], call_route: RouteRequest) -> web.StreamResponse:
    """A response that a page may read, where its route says so; a stream has its fields already. From here on the
    request's body holds no memory."""
    try:
        response = await made
    finally:
        call_route.memory.release()
    if call_route.cors and isinstance(response, Response):
        response.fields += call_route.cors
    return response

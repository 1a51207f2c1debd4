"""One request from its head to its response: finds the route, reads the body, runs the call, answers.

    Handler        what all requests share: what is served, who observes them, and which are under way
    RequestCycle   one request: its stages in the order in which they run, and what they have found of it

A request keeps the snapshot of the routes with which it began, so that a reload never changes the rules under it. Every
request ends in one `CallRecord`, which the observers get.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiohttp.web_response import StreamResponse

from proxy.adapters.ladder import find_call_id, find_conversation, read_trace_id
from proxy.call.context import (
    add_notes,
    record_body,
    record_delivery,
    record_end,
    record_fault,
    record_passthrough,
    record_route,
    record_settled,
    record_trace,
)
from proxy.call.judging import LONG
from proxy.call.outcome import refuse_unread_call
from proxy.call.run import run_call
from proxy.core.contract.policy import Mode
from proxy.core.contract.request_rules import QueryPolicy
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
    Admitted,
    CallAccess,
    CallRecord,
    Ending,
    Observer,
    Services,
    StateStore,
    ToolTexts,
    Trace,
    Upstream,
    UpstreamRequest,
)
from proxy.routing import LeftOutOperation, Match, MethodNotAllowed, Route, RouteTable
from proxy.routing.nearest import describe_unrouted
from proxy.server.bound_route import RouteBinding, RouteRequest, show_tools
from proxy.server.http.access import admit, answer_preflight, is_served_host, read_names, read_preflight_method
from proxy.server.http.body import (
    FULL,
    JUDGED,
    RELAYED,
    BodyBrokenError,
    BodyMemory,
    MemoryBudget,
    read_body,
    read_content_length,
    read_whole,
    say_continue,
    stream_body,
    take_body,
)
from proxy.server.http.framing import Response, has_begun
from proxy.server.http.headers import Hop, find_caller
from proxy.server.http.request_head import (
    BadRequest,
    RequestHead,
    find_fault,
    read_fields,
    split_target,
)
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
from proxy.server.listed_routes import ListedRequest, ListedRoutes
from proxy.upstream.faults import close_body
from proxy.upstream.sending import trace_sends

if TYPE_CHECKING:
    from aiohttp import web

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# A passthrough body up to this size is sent whole, with its length: not every server takes chunks.
_SENT_WHOLE: Final = 1024 * 1024
# Paths at which the proxy says something of itself (RFC 8615).
_WELL_KNOWN: Final = "/.well-known/"
_ANYBODY: Final = Admitted()
_NOT_SERVED: Final = BadRequest(codes.HOST_NOT_SERVED, "")
_LOOP: Final = AccessDenied(codes.UPSTREAM_UNAVAILABLE, "The route leads back to this proxy.")
_RESTARTING: Final = AccessDenied(codes.RESTARTING, "")
_NO_QUERY: Final = AccessDenied(
    codes.BAD_REQUEST, "This route takes no query string: send every argument in the JSON body."
)
_NO_OVERRIDE: Final = "The header '{name}' asks for another request than the one that is judged: send it without."

# A request's `traceparent` and `tracestate` -> its trace.
BeginTrace = Callable[[str | None, str | None], Trace]
# Answers a GET at a path that a plugin serves: the request, its fields, the routes that the caller may use, each
# with what it may call there, and the state store.
Usable = Sequence[tuple[Route, CallAccess | None]]
AnswerPath = Callable[[RawRequest, Fields, Callable[[], Awaitable[Usable]], StateStore], Awaitable[HttpReply]]
# The response to a request, or what makes it in the request's task.
MakeResponse = Callable[[], Coroutine[Any, Any, StreamResponse]]
Answered = Response | Coroutine[Any, Any, StreamResponse]


@value_class
class Snapshot:
    """The routes of one config, what their calls need, and the hash of that config. `answers`: what plugins answer
    at paths that no route takes; `texts`: what MCP clients read of tools."""

    table: RouteTable
    bindings: Mapping[str, RouteBinding]
    services: Services
    digest: str
    answers: Mapping[str, AnswerPath] = field(default_factory=dict)
    texts: ToolTexts | None = None

    def read_target(self, method: str, target: str) -> Target:
        """What the routes say of a method and target."""
        path, query = split_target(target)
        if path in self.answers and path.startswith(_WELL_KNOWN):  # no route takes the place of what we say of us
            return Target(path, query, is_ours=True)
        match = self.table.match(method, path)
        if isinstance(match, Match):
            return Target(path, query, self.bindings[match.route.key], match.params)
        return Target(path, query, why_not=match)


@value_class
class Target:
    """The target of a request, read by one snapshot: its path and query, the `binding` of its route with the parameters
    that stand in the path, or `why_not` where no route takes it. `is_ours`: a plugin answers there, whatever routes
    there are."""

    path: str
    query: str
    binding: RouteBinding | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    why_not: MethodNotAllowed | Unclear | LeftOutOperation | None = None
    is_ours: bool = False


class Handler:
    """What all requests share. `snapshot` and `observers` may be exchanged at any time; `inflight` counts the requests
    that are under way, and `memory` bounds their bodies. `fast`: calls may begin and end without a task
    (`fast_call.py`); `begun` are those under way, `known_targets` where such calls lead, and `counted_fast` counts
    those that ended so.

    While `draining`, every answer ends its connection. Once `closing`, nothing new is begun: each request is told that
    the proxy restarts. When `stopping`, so is each one under way.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        observers: Sequence[Observer],
        hop: Hop,
        fresh_id: Callable[[], str],
        report_error: Callable[[str, BaseException], None],
        hosts: frozenset[str],
        begin_trace: BeginTrace | None,
        listed: ListedRoutes,
        room: int,
    ) -> None:
        self.snapshot = snapshot
        self.observers = observers
        self.hop = hop
        self.fresh_id = fresh_id
        self.hosts = hosts
        self.listed = listed
        self.memory = MemoryBudget(room)
        self.now = snapshot.services.clock.now
        self.draining = self.closing = self.stopping = False
        self.fast = True
        self.counted_fast = 0
        self.begun: set[RequestCycle] = set()
        self.known_targets: dict[tuple[str, str], Target | None] = {}
        self.begin_trace = begin_trace
        self._report_error = report_error
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def inflight(self) -> int:
        """How many requests are under way."""
        return len(self._tasks) + len(self.begun)

    def exchange(self, snapshot: Snapshot) -> frozenset[asyncio.Future[Any]]:
        """Serves another snapshot from here on; gives the requests under way, which keep the one they began with."""
        self.snapshot = snapshot
        self.known_targets.clear()
        return self._list_running()

    def _list_running(self) -> frozenset[asyncio.Future[Any]]:
        return frozenset((*self._tasks, *[cycle.find_end() for cycle in self.begun]))

    def handle(self, request: web.BaseRequest) -> Coroutine[Any, Any, web.StreamResponse]:
        """Answers one request. The response is sent already where it went out piece by piece. Raises CancelledError
        when the client has gone, and ConnectionError where a response that has begun cannot be brought to its end."""
        return self.respond(RequestCycle(self, request), request)

    async def respond(self, cycle: RequestCycle, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a request, of which some stages may have run already."""
        cycle.request, record, has_left = request, cycle.record, False
        # `request.task` is the connection's; without its loop, CPython 3.11 asks the kernel for the process id first.
        task = asyncio.current_task(request.task.get_loop())
        if task is not None:
            self._tasks.add(task)
        try:
            found = cycle.answer()
            response = found if isinstance(found, Response) else await found
        except asyncio.CancelledError:
            if not self.stopping or task is None or has_begun(request):
                has_left = True
                raise
            task.uncancel()
            response = cut_short(codes.RESTARTING, record, cycle.accept)
        except Exception as error:
            self._report_error(record.request_id, error)
            if has_begun(request):  # the connection is reset, so that the end of the response does not look clean
                raise ConnectionError("the response broke off") from error
            response = cut_short(codes.INTERNAL_ERROR, record, cycle.accept)
        finally:
            if task is not None:
                self._tasks.discard(task)
            record_end(record, self.now(), has_left=has_left)
            self.finish(cycle)
        if self.draining and isinstance(response, Response):
            response.closes = True
        return response

    def refuse_head(self, why: BadRequest) -> Response:
        """The response to a request whose head is not valid HTTP. Counted like any other."""
        record = CallRecord(self.fresh_id(), "", started=self.now())
        response = answer_unrouted(why.code, why.message, record, status=why.status)
        record_end(record, self.now())
        self.tell(record)
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
        self.stopping = True
        for task in self._tasks:
            task.cancel()
        for cycle in tuple(self.begun):  # their tasks find that all is over
            cycle.hand_over()
        await self.idle()

    def place(self, record: CallRecord, parent: str | None, state: str | None) -> None:
        """Puts a request into its trace, which is named in the log alone where no spans are made."""
        trace = None if self.begin_trace is None else self.begin_trace(parent, state)
        record_trace(record, (read_trace_id(parent) or "") if trace is None else trace.trace_id, trace)

    def finish(self, cycle: RequestCycle) -> None:
        """Tells of a request that is over, as its record says."""
        self.begun.discard(cycle)
        if (settling := cycle.record.settling) is None:
            self.tell(cycle.record)
        else:  # the answer need not wait for the store
            settling.add_done_callback(partial(self._tell_settled, cycle.record))
        if cycle.ended is not None and not cycle.ended.done():
            cycle.ended.set_result(None)

    def _tell_settled(self, record: CallRecord, settled: Ending) -> None:
        record_settled(record, settled)
        self.tell(record)

    def tell(self, record: CallRecord) -> None:
        """Tells the observers of a request that is over."""
        for observer in self.observers:
            observer.finished(record)


class RequestCycle:
    """One request. `request` has a task, or is its head alone as long as it needs none; `fault` is why its head is
    refused. Once its route may be used, `call_route` is the request on it, and `whole` says that it has the
    body. `ended` is made for those who wait for the end.

    Nothing that it holds leads back to it once it has ended: a circle for each call would be left to the collector."""

    __slots__ = (
        "binding", "call_route", "ended", "fault", "fields", "handler", "head", "record", "request", "snapshot",
        "target", "whole",
    )  # fmt: skip
    request: web.BaseRequest
    target: Target
    binding: RouteBinding
    call_route: RouteRequest

    def __init__(self, handler: Handler, head: RequestHead, route: str = "") -> None:
        """`route`: the name of its route, where that is known before its head has been looked at."""
        self.handler = handler
        self.head = head
        self.snapshot = handler.snapshot
        self.ended: asyncio.Future[None] | None = None
        self.whole = False
        self.fields = fields = read_fields(head)
        self.fault = find_fault(head, fields)
        if handler.hosts and self.fault is None and not is_served_host(fields.get("host") or "", handler.hosts):
            self.fault = _NOT_SERVED
        given = fields.get("x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else handler.fresh_id()
        parent = fields.get("traceparent")
        trace_id = read_trace_id(parent) if parent is not None and handler.begin_trace is None else None
        self.record = CallRecord(request_id, route, head.method, started=handler.now(), trace_id=trace_id or "")
        if handler.begin_trace is not None:
            handler.place(self.record, parent, fields.get("tracestate"))

    @property
    def accept(self) -> str:
        """The media types that the client takes."""
        return self.fields.get("accept") or ""

    def find_end(self) -> asyncio.Future[None]:
        """What is done when the request is over."""
        if self.ended is None:
            self.ended = asyncio.get_running_loop().create_future()
        return self.ended

    def hand_over(self) -> None:
        """Lets a task go on with the request; one that has a task goes on by itself."""

    def answer(self) -> Answered:
        """The response, or the coroutine that makes it."""
        found = self.open()
        return self.run() if found is None else found if isinstance(found, Response) else found()

    # --- from the head to the route -----------------------------------------------------------------------------------
    def open(self) -> Response | MakeResponse | None:
        """Finds the route, and whether it may be used now. None: the request stands on its route (`call_route`); else
        the response, or what makes it where that has to wait."""
        head, fault, snapshot = self.head, self.fault, self.snapshot
        if fault is not None:
            return answer_unrouted(fault.code, fault.message, self.record, self.accept, fault.status)
        self.target = target = snapshot.read_target(head.method, head.raw_path)
        if head.method == "OPTIONS" and not target.is_ours and (method := read_preflight_method(self.fields)):
            answer = self._answer_preflight(snapshot.table.match(method, target.path))
            if answer is not None:
                return answer
        if target.binding is None:
            return self._answer_unrouted()
        record_route(self.record, target.binding.route.name)
        return self.enter(target, target.binding)

    def enter(self, target: Target, binding: RouteBinding) -> Response | MakeResponse | None:
        """Finds out whether the request may use its route now; gives what `open` gives."""
        self.target, self.binding = target, binding
        route, fields, handler, snapshot = binding.route, self.fields, self.handler, self.snapshot
        if fields.get("via") is not None and handler.hop.is_loop(fields):
            return self._deny(_LOOP)
        if handler.closing:
            return self._deny(_RESTARTING)
        if not route.asks_caller and route.auth is None and fields.get("origin") is None:
            return self._put_on_route(_ANYBODY)  # no page, no token: nearly everybody
        access = snapshot.services.access[route.key] if route.asks_caller else None
        admitted = admit(route, fields, access, partial(read_names, self.head))
        if isinstance(admitted, Admitted | AccessDenied):
            return self._put_on_route(admitted)
        return partial(self._await_admission, admitted)

    async def _await_admission(self, admission: Awaitable[Admitted | AccessDenied]) -> StreamResponse:
        """The response to a request whose admission has to wait."""
        found = self._put_on_route(await admission)
        return await self.run() if found is None else found

    def _put_on_route(self, admitted: Admitted | AccessDenied) -> Response | None:
        """Puts an admitted request on its route; gives the response to any other."""
        head, fields, target, record = self.head, self.fields, self.target, self.record
        if admitted.note is not None:
            record_route(record, self.binding.route.name, admitted.note)
        if isinstance(admitted, AccessDenied):
            return self._deny(admitted)
        binding = self.binding
        route, relayed = binding.route, binding.route.kind == "passthrough"
        if not relayed:  # what makes a request more than the body that is judged; rules hold on a report-only route too
            refuses = route.query_policy is QueryPolicy.REFUSE
            if target.query and refuses and (route.mode is Mode.ENFORCE or admitted.calls is not None):
                return self._deny(_NO_QUERY)
            if name := fields.names.method_override:
                return self._deny(AccessDenied(codes.BAD_REQUEST, _NO_OVERRIDE.format(name=name)))
        if admitted.token:
            add_notes(record, {"client.token": admitted.token})
        caller = find_caller(self.handler.hop, head)
        client = caller.client(fields)
        own = (*caller.own_fields(fields, binding.judges), ("x-request-id", record.request_id))
        if relayed and route.websocket and asks_for_websocket(head, fields):
            own += UPGRADE
        memory = BodyMemory(self.handler.memory, RELAYED if relayed else JUDGED)
        data = None if relayed or binding.form else take_body(head, fields, route.max_body, memory)
        raw = RawRequest(head.method, target.path, target.query, fields, data or b"", target.params, client)
        tools = route.tools if admitted.calls is None else show_tools(route.tools, admitted.calls)
        self.call_route = RouteRequest(binding, raw, own, admitted.cors, memory, tools, admitted.calls, admitted.caller)
        self.whole = data is not None
        return None

    def _make_bare(self) -> RawRequest:
        """The request without its body."""
        client = find_caller(self.handler.hop, self.head).client(self.fields)
        return RawRequest(
            self.head.method, self.target.path, self.target.query, self.fields, b"", self.target.params, client
        )

    def _deny(self, why: AccessDenied) -> Response:
        """The response to a request that may not use its route, or not now."""
        if why is _LOOP:
            record_fault(self.record, "proxy_loop_detected")
        refusal = make_refusal(why.code, why.message, self.record)
        response = answer_failure(self.binding, self._make_bare(), refusal, self.record)
        response.fields += why.headers
        return response

    def _answer_preflight(self, match: Match | MethodNotAllowed | Unclear | LeftOutOperation | None) -> Response | None:
        """The response to a browser that asks before it sends; None where the request goes the way of every other."""
        if not isinstance(match, Match):
            return None
        record_route(self.record, match.route.name)
        names = self.fields.get("access-control-request-headers") or ""
        allowed = answer_preflight(match.route, self.fields.get("origin") or "", names)
        if isinstance(allowed, AccessDenied):
            return answer_unrouted(allowed.code, allowed.message, self.record)
        return None if allowed is None else make_response(HttpReply(204, allowed, b""), self.record)

    def _answer_unrouted(self) -> Response | MakeResponse:
        """The response to a request that no route takes: a plugin's, where it serves that path."""
        method, target, table, record = self.head.method, self.target, self.snapshot.table, self.record
        match, path = target.why_not, target.path
        if match is None and method == "GET" and path in self.snapshot.answers and not self.handler.closing:
            return self._answer_path
        if isinstance(match, Unclear):
            return answer_unrouted(codes.BAD_REQUEST, match.message, record, self.accept)
        if isinstance(match, LeftOutOperation):
            why = f"This operation is not judged here: {match.why}."
            return answer_unrouted(codes.OPERATION_LEFT_OUT, why, record, self.accept)
        add_notes(record, describe_unrouted(table, path, match))
        if match is None:  # the path itself would be taken for a file's, and shortened
            ends_in_slash = path.endswith("/") and table.match(method, path.rstrip("/")) is not None
            why = "No route has this path: it ends in '/', and the route does not." if ends_in_slash else ""
            return answer_unrouted(codes.ROUTE_NOT_FOUND, why, record, self.accept)
        allow = ", ".join(match.methods)
        response = answer_unrouted(codes.METHOD_NOT_ALLOWED, f"This route takes {allow}.", record, self.accept)
        response.fields.append(("Allow", allow))
        return response

    async def _answer_path(self) -> Response:
        """The response at a path of a plugin."""
        raw, snapshot = self._make_bare(), self.snapshot
        record_route(self.record, raw.path)
        record_delivery(self.record, "answered")
        reply = await snapshot.answers[raw.path](raw, self.fields, self._list_usable, snapshot.services.store)
        return make_response(reply, self.record)

    async def _list_usable(self) -> Usable:
        """The routes that the caller may use."""
        found = []
        for route in self.snapshot.table.routes:
            access = self.snapshot.services.access.get(route.key)
            admitted = admit(route, self.fields, access, partial(read_names, self.head))
            if not isinstance(admitted, Admitted | AccessDenied):
                admitted = await admitted
            if isinstance(admitted, Admitted):
                found.append((route, admitted.calls))
        return found

    # --- the call -----------------------------------------------------------------------------------------------------
    def run(self) -> Coroutine[Any, Any, StreamResponse]:
        """The response to a request on its route."""
        return self.end(self._relay() if self.call_route.binding.route.kind == "passthrough" else self._call())

    async def end(self, made: Coroutine[Any, Any, StreamResponse]) -> StreamResponse:
        """A response that a page may read, where its route says so; a stream has its fields already. From here on the
        request's body holds no memory."""
        try:
            response = await made
        finally:
            self.call_route.memory.release()
        if self.call_route.cors and isinstance(response, Response):
            response.fields += self.call_route.cors
        return response

    async def _call(self) -> StreamResponse:
        """Reads the body, unless the whole of it is there; runs the call, and encodes its outcome."""
        call_route, record, services = self.call_route, self.record, self.snapshot.services
        route = call_route.binding.route
        if not self.whole:
            read = await read_body(self.request, call_route.raw, call_route.memory, route)
            if isinstance(read, BadRequest):
                record.stages["read"] = self.handler.now() - record.started
                return await self._refuse_unread(read)
            self.call_route = call_route = replace(call_route, raw=read)
        started = self.handler.now()
        record_body(record, len(call_route.raw.body), started)
        if record.request_bytes > LONG and services.elsewhere is not None:
            raw = call_route.raw
            text = await services.elsewhere.read(raw.body, route.shape.text, route.shape.text_repairs)
            if isinstance(text, Failure):
                self.call_route = replace(call_route, raw=replace(raw, body=b""))
                return await self.answer_other(text)
            if text is not raw.body:
                self.call_route = call_route = replace(call_route, raw=replace(raw, body=text))
        if route.learn is not None:
            return await self.handler.listed.of(route.adapter).handle(self._make_listed())
        call = self.decode(started)
        if not isinstance(call, ToolCall):
            return await self.answer_other(call)
        return await self.encode(run_call(call, call_route, services, record))

    def decode(self, started: float) -> ToolCall | Passthrough | Failure:
        """What the request asks for."""
        binding = self.call_route.binding
        call = binding.adapter.decode(self.call_route.raw, binding.route.shape, self.record.request_id)
        self.record.stages["decode"] = self.handler.now() - started
        return call

    async def answer_other(self, decoded: Passthrough | Failure) -> StreamResponse:
        """The response to a request in which there is no call."""
        if isinstance(decoded, Passthrough):
            return await self._relay()
        call_route = self.call_route
        refusal = make_refusal(decoded.code, decoded.message, self.record, decoded.status)
        return answer_failure(call_route.binding, call_route.raw, refusal, self.record)

    async def encode(self, running: Coroutine[Any, Any, Outcome]) -> StreamResponse:
        """The response that tells the outcome of a call."""
        outcome = await running
        started, call_route = self.handler.now(), self.call_route
        if isinstance(outcome, ToolResult):
            response: StreamResponse = answer_failure(call_route.binding, call_route.raw, outcome, self.record)
        else:
            response = await deliver(outcome, self.request, call_route.cors, self.record, self.handler.draining)
        self.record.stages["stream" if response.prepared else "answer"] = self.handler.now() - started
        return response

    async def _refuse_unread(self, why: BadRequest) -> Response:
        """The response to a request whose body could not be read, which ends the connection: what is left of the body
        would follow. A body that is too large is an attempt of its tool, where the path names that."""
        call_route, record = self.call_route, self.record
        raw, shape = call_route.raw, call_route.binding.route.shape
        tool = shape.tool if shape.tool is not None else raw.params.get(shape.tool_param or "")
        if why.code is codes.BODY_TOO_LARGE and tool and call_route.binding.judges:
            call_id = find_call_id(raw, shape.call_id_pointer, ABSENT, record.request_id)
            unread, conversation = JsonProblem("the body was not read", 1, 1), find_conversation(raw, shape.ladder)
            # No two bodies that were not read count as the same, unless the client names the same call.
            call = ToolCall(tool, unread, call_id, conversation, call_id.encode(), raw.params, raw.query)
            failure = Failure(why.code, why.message)
            result = await refuse_unread_call(call, failure, call_route, self.snapshot.services, record)
        else:
            result = make_refusal(why.code, why.message, record, why.status)
        response = answer_failure(call_route.binding, raw, result, record)
        if why is FULL:
            response.fields.append(("Retry-After", "1"))
        response.closes = True
        return response

    # --- requests that are not calls ----------------------------------------------------------------------------------
    def _make_listed(self) -> ListedRequest:
        """The request with everything that a plugin needs to answer it."""
        handler = self.handler
        known = (handler.draining, self._send, handler.place, self.snapshot.texts, handler.tell)
        return ListedRequest(self.request, self.call_route, self.snapshot.services, self.record, *known)

    async def _relay(self) -> StreamResponse:
        """Relays a request that is not a call, unless its route has the key of a plugin that answers it."""
        relayed_by = self.call_route.binding.route.relayed_by
        if relayed_by is not None:
            answer = await self.handler.listed.of_relay(relayed_by.key).handle(self._make_listed())
            if not isinstance(answer, RouteRequest):
                return answer
            self.call_route = answer
        return await self._relay_unread()

    async def _relay_unread(self) -> StreamResponse:
        """Forwards a request that is not a call unchanged, streamed both ways."""
        call_route, request, fields, record = self.call_route, self.request, self.fields, self.record
        route, now = call_route.binding.route, self.handler.now
        await say_continue(request, fields)
        started = now()
        body = None
        if request.body_exists and not request.content.at_eof():  # else the call's own reader has taken it
            if 0 < read_content_length(fields) <= _SENT_WHOLE:
                whole = await read_whole(request, _SENT_WHOLE, route.timeout, call_route.memory)
                if isinstance(whole, BadRequest):
                    return await self._refuse_unread(whole)
                call_route = replace(call_route, raw=replace(call_route.raw, body=whole))
            else:
                body = stream_body(request, route.timeout)
        record_passthrough(record, route.upstream)
        upstream = self.snapshot.services.upstreams[route.upstream]
        try:
            reply = await self._send(call_route.make_passthrough(), body, upstream, record)
        except BodyBrokenError as broken:
            return await self._refuse_unread(broken.why)
        seconds = now() - started
        if isinstance(reply, UpstreamReply) and route.rewrites_resource:
            reply = await self.handler.listed.of("mcp").rewrite_metadata(reply, call_route)
        if isinstance(reply, UpstreamReply) and reply.status == 101 and not is_agreed(fields, reply):
            await close_body(reply)
            reply = NOT_AGREED
        record_passthrough(record, route.upstream, reply, seconds)
        if isinstance(reply, UpstreamFault):
            return answer_fault(call_route.binding, call_route.raw, reply, record)
        started = now()
        if reply.status == 101:
            response = await run_tunnel(request, reply, record)
        else:
            delivered = Delivered(reply, keeps_request_id=route.relayed_by is not None)
            response = await deliver(delivered, request, call_route.cors, record, self.handler.draining)
        record.stages["stream" if response.prepared else "answer"] = now() - started
        return response

    async def _send(
        self, request: UpstreamRequest, body: AsyncIterator[bytes] | None, upstream: Upstream, record: CallRecord
    ) -> UpstreamReply | UpstreamFault:
        """Relays a request, as part of its trace where there is one."""
        return await trace_sends(partial(upstream.relay, body=body), record.trace, self.handler.now)(request)

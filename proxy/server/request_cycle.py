"""One request from its head to its response: finds the route, reads the body, runs the call, answers.

begin_request    begins a request while its connection reads it
RequestCycle     one request: its stages in the order in which they run, and what they have found of it
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiohttp.streams import EmptyStreamReader, StreamReader
from aiohttp.web_response import StreamResponse

from proxy.adapters.ladder import find_call_id, find_conversation, read_trace_id
from proxy.call.context import (
    add_notes,
    record_body,
    record_delivery,
    record_end,
    record_fault,
    record_passthrough,
    record_response,
    record_route,
)
from proxy.call.judging import LONG, is_rich
from proxy.call.outcome import refuse_unread_call
from proxy.call.run import run_call
from proxy.call_record import CallRecord
from proxy.core.check.fast_types import LEAST, mark_valid
from proxy.core.contract.policy import Mode
from proxy.core.contract.request_rules import QueryPolicy
from proxy.core.contract.spellings import Unclear
from proxy.core.model import codes
from proxy.core.model.values import (
    ABSENT,
    Delivered,
    Failure,
    HttpReply,
    JsonProblem,
    Passthrough,
    RawRequest,
    ToolCall,
    ToolResult,
    UpstreamFault,
    UpstreamReply,
)
from proxy.driver import IN_TASK, Driver
from proxy.interfaces import AccessDenied, Admitted, Upstream, UpstreamRequest
from proxy.routing import LeftOutOperation, Match, MethodNotAllowed
from proxy.routing.table import describe_unrouted
from proxy.server.bound_route import RouteBinding, RouteRequest, show_tools
from proxy.server.handler import Handler, Target, Usable
from proxy.server.http.access import admit, answer_preflight, is_served_host, read_names, read_preflight_method
from proxy.server.http.body import (
    FULL,
    JUDGED,
    RELAYED,
    BodyBrokenError,
    BodyMemory,
    read_body,
    read_content_length,
    read_whole,
    say_continue,
    stream_body,
    take_body,
)
from proxy.server.http.framing import Response, has_begun
from proxy.server.http.headers import find_caller
from proxy.server.http.request_head import BadRequest, ParsedRequest, RequestHead, find_fault, read_fields
from proxy.server.http.responses import (
    answer_call,
    answer_failure,
    answer_fault,
    answer_unrouted,
    cut_short,
    make_refusal,
    make_response,
)
from proxy.server.http.websocket import NOT_AGREED, UPGRADE, asks_for_websocket, is_agreed
from proxy.server.http.websocket import run as run_tunnel
from proxy.server.listed_routes import ListedRequest
from proxy.upstream.faults import close_body
from proxy.upstream.sending import trace_sends

if TYPE_CHECKING:
    from aiohttp import web

    from proxy.server.connection import Connection

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# A passthrough body up to this size is sent whole, with its length: not every server takes chunks.
_SENT_WHOLE: Final = 1024 * 1024
_ANYBODY: Final = Admitted()
_NOT_SERVED: Final = BadRequest(codes.HOST_NOT_SERVED, "")
_LOOP: Final = AccessDenied(codes.UPSTREAM_UNAVAILABLE, "The route leads back to this proxy.")
_RESTARTING: Final = AccessDenied(codes.RESTARTING, "")
_NO_QUERY: Final = AccessDenied(
    codes.BAD_REQUEST, "This route takes no query string: send every argument in the JSON body."
)
_NO_OVERRIDE: Final = "The header '{name}' asks for another request than the one that is judged: send it without."


def begin_request(handler: Handler, message: Any, content: StreamReader, client: Connection) -> None:
    """Begins a request without a task, unless that is off. `message` is its head, as aiohttp's parser returns it, and
    `client` its connection."""
    if not handler.fast:
        client.hand_over()
        return
    method, path, has_body = message.method, message.path, type(content) is not EmptyStreamReader
    sent, headers = message.raw_headers, message.headers
    head = ParsedRequest(method, message.version, path, sent, headers, content, has_body, client)
    client.begun = cycle = RequestCycle(handler, head, client)
    cycle.drive()


def handle_request(handler: Handler, request: web.BaseRequest) -> Coroutine[Any, Any, web.StreamResponse]:
    """Answers one request in its task, as `RequestCycle.resume` does."""
    return RequestCycle(handler, request).resume(request)


class RequestCycle(Driver[StreamResponse]):
    """One request, from its head to its response. `head` is the request as long as it has no task, and `fault` why its
    head is refused. Once its route may be used, `call_route` is the request on it, and `whole` says that it has the
    body.

    `drive` begins it while its connection reads (`client`), and `resume` continues with it in the connection's task
    from the first wait on. Nothing that it holds leads back to it once it has ended: a circle for each call would be
    left to the collector."""

    __slots__ = (
        "_client", "_task", "binding", "call_route", "ended", "fault", "fields", "handler", "head", "record",
        "request", "snapshot", "target", "whole",
    )  # fmt: skip
    request: web.BaseRequest
    target: Target
    binding: RouteBinding
    call_route: RouteRequest

    def __init__(self, handler: Handler, head: RequestHead, client: Connection | None = None) -> None:
        self.handler = handler
        self.head = head
        self.snapshot = handler.snapshot
        self.whole = False
        self._client = client
        self._task: asyncio.Task[Any] | None = None
        self.ended: asyncio.Future[None] | None = None
        self.fields = fields = read_fields(head)
        self.fault = find_fault(head, fields)
        if handler.hosts and self.fault is None and not is_served_host(fields.get("host") or "", handler.hosts):
            self.fault = _NOT_SERVED
        route, sent_to = "", (head.method, head.raw_path)
        if self.fault is None:
            self.target = target = self.snapshot.known.get(sent_to) or self.snapshot.read_target(*sent_to)
            route = "" if target.binding is None else target.binding.route.name
        given = fields.get("x-request-id")
        request_id = given if given and _REQUEST_ID.fullmatch(given) else handler.fresh_id()
        parent = fields.get("traceparent")
        trace_id = read_trace_id(parent) if parent is not None and handler.begin_trace is None else None
        self.record = CallRecord(request_id, route, head.method, started=handler.now(), trace_id=trace_id or "")
        if handler.begin_trace is not None:
            handler.place(self.record, parent, fields.get("tracestate"))
        handler.under_way.add(self)
        super().__init__(self.respond())

    @property
    def accept(self) -> str:
        """The media types that the client takes."""
        return self.fields.get("accept") or ""

    def find_end(self) -> asyncio.Future[Any]:
        """Returns what is done when the request is over."""
        if self._task is not None:
            return self._task
        if self.ended is None:
            self.ended = asyncio.get_running_loop().create_future()
        return self.ended

    # --- its driver ---------------------------------------------------------------------------------------------------
    def on_advance(self) -> None:
        """Writes the response, if it is there and needs no task. Otherwise a task continues."""
        client: Connection | None = self._client
        response = self.result
        if client is None:
            return
        if isinstance(response, Response) and (data := response.try_encode(self.head)) and client.answer(data):
            self.handler.counted_fast += 1
            self.handler.finish(self)
        else:
            client.hand_over()

    async def resume(self, request: web.BaseRequest) -> StreamResponse:
        """The response, in the task of the connection. It has been sent already if it went out piece by piece. Raises
        CancelledError when the client has gone, and ConnectionError if a response that has begun cannot be ended."""
        self.request, self._client = request, None
        if self.whole:  # aiohttp has the body too, which nobody reads
            request.content.read_nowait()
        # `request.task` is the connection's; without its loop, CPython 3.11 asks the kernel for the process id first.
        self._task = asyncio.current_task(request.task.get_loop())
        try:
            return await self.go_on()
        finally:
            self.handler.finish(self)

    def cancel(self) -> None:
        """Ends a request that has no task and whose client has gone."""
        self._client = None
        self.abandon()
        self.handler.finish(self)

    def stop(self) -> None:
        """Ends a request because the proxy does."""
        if self._task is not None:
            self._task.cancel()
        else:
            self.drive(asyncio.CancelledError())

    # --- its stages ---------------------------------------------------------------------------------------------------
    async def respond(self) -> StreamResponse:
        """The response to the request, whatever happens."""
        handler, record, has_left = self.handler, self.record, False
        response: StreamResponse | None = None
        try:
            response = await self._answer()
        except asyncio.CancelledError:
            if not handler.stopping or self._has_begun():
                has_left = True
                raise
            if self._task is not None:
                self._task.uncancel()
            response = cut_short(codes.RESTARTING, record, self.accept, getattr(self, "call_route", None))
        except Exception as error:
            handler.report_error(record.request_id, error)
            if self._has_begun():  # the connection is reset, so that the end of the response does not look clean
                raise ConnectionError("the response broke off") from error
            response = cut_short(codes.INTERNAL_ERROR, record, self.accept, getattr(self, "call_route", None))
        finally:
            if isinstance(response, Response):  # a stream has recorded itself
                record_response(record, response.status, len(response.payload))
            record_end(record, handler.now(), has_left=has_left)
        if handler.draining and isinstance(response, Response):
            response.closes = True
        return response

    def _has_begun(self) -> bool:
        return self._task is not None and has_begun(self.request)

    async def _answer(self) -> StreamResponse:
        """The response to the request: that of its route, unless it may not be used now."""
        head, fault, snapshot, fields = self.head, self.fault, self.snapshot, self.fields
        if fault is not None:
            return answer_unrouted(fault.code, fault.message, self.record, self.accept, fault.status)
        target = self.target
        if head.method == "OPTIONS" and not target.is_ours and (method := read_preflight_method(fields)):
            answer = self._answer_preflight(snapshot.table.match(method, target.path))
            if answer is not None:
                return answer
        if (binding := target.binding) is None:
            return self._answer_unrouted() or await self._answer_path()
        self.binding, route = binding, binding.route
        if fields.get("via") is not None and self.handler.hop.is_loop(fields):
            return self._deny(_LOOP)
        if self.handler.closing:
            return self._deny(_RESTARTING)
        admitted: Admitted | AccessDenied = _ANYBODY
        if route.asks_caller or route.auth is not None or fields.get("origin") is not None:
            access = snapshot.services.access[route.key] if route.asks_caller else None
            found = admit(route, fields, access, partial(read_names, head))
            admitted = found if isinstance(found, Admitted | AccessDenied) else await found
        if (denied := self._put_on_route(admitted)) is not None:
            return denied
        try:
            response = await (self._relay() if route.kind == "passthrough" else self._call())
        finally:
            self.call_route.memory.release()
        if self.call_route.cors and isinstance(response, Response):  # a stream has its fields already
            response.fields += self.call_route.cors
        return response

    # --- from the head to the route -----------------------------------------------------------------------------------
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
            enforces = target.query and (route.mode is Mode.ENFORCE or admitted.calls is not None)
            if enforces and route.query_policy is QueryPolicy.REFUSE:
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
        unfit = relayed or binding.form or self._task is not None
        data = None if unfit else take_body(head, fields, route.max_body, memory)
        raw = RawRequest(head.method, target.path, target.query, fields, data or b"", target.params, client)
        tools = route.tools if admitted.calls is None else show_tools(route.tools, admitted.calls)
        self.call_route = RouteRequest(binding, raw, own, admitted.cors, memory, tools, admitted.calls, admitted.caller)
        self.whole = data is not None
        return None

    def _make_bare(self) -> RawRequest:
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

    def _answer_unrouted(self) -> Response | None:
        """The response to a request that no route takes; None if a plugin serves its path."""
        method, target, table, record = self.head.method, self.target, self.snapshot.table, self.record
        match, path = target.why_not, target.path
        if match is None and method == "GET" and path in self.snapshot.answers and not self.handler.closing:
            return None
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
        await IN_TASK
        raw, snapshot = self._make_bare(), self.snapshot
        record_route(self.record, raw.path)
        record_delivery(self.record, "answered")
        reply = await snapshot.answers[raw.path](raw, self.fields, self._list_usable, snapshot.services.store)
        return make_response(reply, self.record)

    async def _list_usable(self) -> Usable:
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
    async def _call(self) -> StreamResponse:
        """Reads the body, unless the whole of it is there; runs the call, and encodes its outcome."""
        call_route, record, services, handler = self.call_route, self.record, self.snapshot.services, self.handler
        route, now = call_route.binding.route, handler.now
        if not self.whole:
            await IN_TASK
            read = await read_body(self.request, call_route.raw, call_route.memory, route)
            if isinstance(read, BadRequest):
                record.stages["read"] = now() - record.started
                return await self._refuse_unread(read)
            self.call_route = call_route = replace(call_route, raw=read)
        started = now()
        record_body(record, len(call_route.raw.body), started)
        raw = call_route.raw
        text = raw.body if len(raw.body) < LEAST else self._read_valid()
        if text is raw.body and services.elsewhere is not None and len(text) > LONG and is_rich(text):
            await IN_TASK
            text = await services.elsewhere.read(text, route.shape.text, route.shape.text_repairs)
        if isinstance(text, Failure):
            self.call_route = replace(call_route, raw=replace(raw, body=b""))
            return self._refuse(text)
        if text is not raw.body:
            self.call_route = call_route = replace(call_route, raw=replace(raw, body=text))
        if route.learn is not None:
            return await handler.listed.of(route.adapter).handle(self._make_listed())
        call = call_route.binding.adapter.decode(call_route.raw, route.shape, record.request_id)
        record.stages["decode"] = now() - started
        if isinstance(call, Failure):
            return self._refuse(call)
        if isinstance(call, Passthrough):
            return await self._relay()
        outcome = await run_call(call, call_route, services, record)
        started, stage = now(), "answer"
        if isinstance(outcome, ToolResult):
            response: StreamResponse = answer_failure(call_route.binding, call_route.raw, outcome, record)
        elif isinstance(body := outcome.reply.body, bytes):
            response = answer_call(outcome, body, self.head.method, call_route.cors, record)
        else:
            response, stage = await self._make_listed().deliver(outcome), "stream"
        record.stages[stage] = now() - started
        return response

    def _read_valid(self) -> bytes | Failure:
        """Returns the body, marked if it holds arguments that the schema of their tool accepts unchanged."""
        raw, shape = self.call_route.raw, self.call_route.binding.route.shape
        policy = self.call_route.tools.get(shape.find_tool(raw)) if self.call_route.binding.is_plain else None
        check = None if policy is None else policy.check
        return raw.body if check is None else mark_valid(raw.body, shape.text, check)

    def _refuse(self, failure: Failure) -> Response:
        """The response to a request in which there is no call."""
        call_route = self.call_route
        refusal = make_refusal(failure.code, failure.message, self.record, failure.status)
        return answer_failure(call_route.binding, call_route.raw, refusal, self.record)

    async def _refuse_unread(self, why: BadRequest) -> Response:
        """The response to a request whose body could not be read, which ends the connection: what is left of the body
        would follow. A body that is too large is an attempt of its tool, where the path names that."""
        call_route, record = self.call_route, self.record
        raw, shape = call_route.raw, call_route.binding.route.shape
        tool = shape.find_tool(raw)
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
        return ListedRequest(lambda: self.request, self.call_route, self.snapshot.services, self.record, *known)

    async def _relay(self) -> StreamResponse:
        """Relays a request that is not a call, unless its route has the key of a plugin that answers it."""
        await IN_TASK
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
        record_passthrough(record, route.upstream, since=started)
        upstream = self.snapshot.services.upstreams[route.upstream]
        try:
            reply = await self._send(call_route.make_passthrough(), body, upstream, record)
        except BodyBrokenError as broken:
            return await self._refuse_unread(broken.why)
        seconds = now() - started
        if isinstance(reply, UpstreamReply) and route.rewritten_by is not None:
            ask = partial(self._send, body=None, upstream=upstream, record=record)
            reply = await self.handler.listed.of(route.rewritten_by.key).rewrite_answer(reply, call_route, ask)
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
            response = await self._make_listed().deliver(delivered)
        record.stages["stream" if response.prepared else "answer"] = now() - started
        return response

    async def _send(
        self, request: UpstreamRequest, body: AsyncIterator[bytes] | None, upstream: Upstream, record: CallRecord
    ) -> UpstreamReply | UpstreamFault:
        """Relays a request, as part of its trace where there is one."""
        return await trace_sends(partial(upstream.relay, body=body), record.trace, self.handler.now)(request)

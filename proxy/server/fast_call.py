"""Calls that run without a task, from the bytes of the request to those of the response. Worth 15 % of a clean call.

A `FastCall` runs the stages of `handler.py` and `call/run.py`, in their order, while the connection reads: they are
plain functions as far as nothing has to wait. Where something has to, aiohttp's own task goes on from there:

    begin_call     runs the stages until the call has gone out to its tool, or something has to wait
    note_answer    the tool has answered: a whole success is written, anything else handed over
    hand_over      by the connection too: when more bytes come, or its client sends no more
    answer         the task's part: the stages that wait
    cancel         the client has gone before a task had the call
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiohttp.streams import EmptyStreamReader, StreamReader

from proxy.call.context import (
    ApprovedCall,
    CallContext,
    approve_call,
    make_delivered,
    make_request,
    open_context,
    record_body,
    record_call,
    record_end,
    record_response,
    record_sends,
    record_success,
)
from proxy.call.judging import LONG, Judged, judge_call, sample_call
from proxy.call.run import conclude_call, follow_verdict, run_context, send_call
from proxy.core.contract.policy import ToolPolicy
from proxy.core.envelope.parts import make_repair_headers
from proxy.core.model.values import Delivered, Forward, Outcome, ToolCall, UpstreamReply
from proxy.core.tool_errors.classify import is_success
from proxy.server.handler import Answered, Handler, MakeResponse, RequestCycle, Target
from proxy.server.http.framing import KnownHeads, Response, write_response
from proxy.server.http.request_head import ParsedRequest
from proxy.server.http.responses import make_delivery_headers
from proxy.upstream.sending import FirstSend, Sends, start_send

if TYPE_CHECKING:
    from aiohttp import web

    from proxy.server.connection import Connection

# Targets that are remembered with whether calls begin there without a task, and their characters.
_MOST_TARGETS: Final = 1024
_LONGEST_TARGET: Final = 256
_known_heads: Final = KnownHeads()


def begin_call(handler: Handler, message: Any, content: StreamReader, client: Connection) -> FastCall | None:
    """Begins a call, whose whole body may be there, without a task; None for any other request, of which nothing has
    been read. `message` is what aiohttp's parser makes of its head."""
    services, start = handler.snapshot.services, (message.method, message.path)
    if not handler.fast or handler.draining or handler.closing or services.hooks is not None:
        return None
    target = handler.known_targets[start] if start in handler.known_targets else _learn_start(handler, *start)
    if target is None or target.binding is None:
        return None
    call = FastCall(handler, message, content, client, target.binding.route.name)
    if call.fault is not None:
        return None
    handler.begun.add(call)
    try:  # as far as nothing has to wait
        call.rest = call.enter(target, target.binding)
        if call.rest is not None:
            return call
        size, now = len(call.call_route.raw.body), handler.now()
        if not call.whole or size > LONG:
            call.rest = call.run
            return call
        record_body(call.record, size, now)
        decoded = call.decode(now)
        if isinstance(decoded, ToolCall):
            call.judge(decoded)
        else:
            call.rest = lambda: call.end(call.answer_other(decoded))
    except Exception as error:  # noqa: BLE001 - `Handler.respond` is the border
        call.fail(error)
    return call


def _learn_start(handler: Handler, method: str, path: str) -> Target | None:
    """Finds and remembers where a method and a target lead, if calls begin there without a task."""
    target = _find_start(handler, method, path)
    if len(path) <= _LONGEST_TARGET:
        if len(handler.known_targets) >= _MOST_TARGETS:
            handler.known_targets.clear()
        handler.known_targets[method, path] = target
    return target


def _find_start(handler: Handler, method: str, path: str) -> Target | None:
    """Where a method and a target lead, if calls begin there without a task."""
    try:
        target = handler.snapshot.read_target(method, path)
    except Exception:  # noqa: BLE001 - `Handler.respond` is the border
        return None
    # What may be answered before the route is asked, is.
    if method == "OPTIONS" or target.binding is None:
        return None
    route = target.binding.route  # whose requests have to be calls, in JSON, of tools that are all in the config
    return target if route.kind == "call" and route.learn is None and not route.form else None


class FastCall(RequestCycle):
    """One call. `is_sent`: its tool has it, and the answer needs no task yet. `outcome` is what the tool made of it;
    `rest` is what a task begins with, where that is not to wait for the outcome."""

    __slots__ = (
        "_abort",
        "_approved",
        "_client",
        "_context",
        "_first",
        "_tool",
        "_wait",
        "is_sent",
        "outcome",
        "rest",
    )
    _approved: ApprovedCall
    _context: CallContext
    _tool: ToolPolicy | None
    _wait: Callable[[], Coroutine[Any, Any, Outcome]]

    def __init__(self, handler: Handler, message: Any, content: StreamReader, client: Connection, route: str) -> None:
        self._client = client
        self.rest: Exception | Response | MakeResponse | None = None
        self._abort: Callable[[], object] | None = None
        self._first: FirstSend | None = None
        self.is_sent = False
        self.outcome: Delivered | None = None
        method, path, has_body = message.method, message.path, type(content) is not EmptyStreamReader
        sent, headers = message.raw_headers, message.headers
        head = ParsedRequest(method, message.version, path, sent, headers, content, has_body, client)
        super().__init__(handler, head, route)

    def judge(self, call: ToolCall) -> None:
        """The stages of `call/run.py` until the call has gone out, or something has to wait."""
        call_route, services, record = self.call_route, self.snapshot.services, self.record
        self._context = context = open_context(call, call_route, services, record)
        record_call(record, context.call, context.policy, context.opening)
        waits = services.corrector is not None or services.limiter is not None
        if waits or call_route.calls is not None or context.has_failed_before():
            self._wait = partial(run_context, context)
            return
        policy, started = context.policy, services.clock.now()
        judged = judge_call(context)
        if (
            not isinstance(judged, Judged)
            or not isinstance(judged.decision, Forward)
            or policy is None
            or policy.cap.limit is not None
            or services.confirm is not None
        ):
            self._abort = None if isinstance(judged, Judged) else judged.close
            self._wait = lambda: conclude_call(context, follow_verdict(context, judged, started))
            return
        seconds, checked = services.clock.now() - started, judged.decision.checked
        sample_call(context, checked)
        self._approved = approved = approve_call(context, checked, judged.container_event, seconds)
        request = make_request(context, approved)
        self._tool = call_route.tools.get(checked.call.tool)
        first = None
        if not isinstance(request, UpstreamReply) and record.trace is None:
            first = start_send(checked, request, self._tool, services, self.note_answer)
        self._wait = lambda: conclude_call(context, send_call(context, approved, first))
        if first is not None:
            self._first, self._abort, self.is_sent = first, first.exchange.abort, True

    def note_answer(self) -> None:
        """Writes the tool's answer, if that waits for nothing; else a task does."""
        handler, data, size, started = self.handler, None, 0, 0.0
        try:
            outcome = self._deliver()
            if outcome is not None and not handler.draining and isinstance(body := outcome.reply.body, bytes):
                size, started = len(body), handler.now()
                data = self._write(outcome, body)
        except Exception as error:  # noqa: BLE001 - the task has the border for it
            self.fail(error)
        ended = handler.now()
        # The client waits for nothing that is written down of its call.
        if data is None or self.outcome is None or not self._client.answer(data):
            self._client.hand_over()
            return
        self.call_route.memory.release()
        self.record.stages["answer"] = ended - started
        record_response(self.record, self.outcome.reply.status, size)
        record_end(self.record, ended)
        handler.counted_fast += 1
        handler.finish(self)

    def _deliver(self) -> Delivered | None:
        """The outcome of the call, where the tool's answer is a whole success and delivering it waits for nothing."""
        context, tool, first = self._context, self._tool, self._first
        reply = None if first is None else first.exchange.take()
        if first is None or reply is None or not is_success(reply) or (tool is not None and tool.answer is not None):
            return None
        services, policy = context.services, context.policy
        seconds = services.clock.now() - first.started
        if (policy is not None and policy.container is not None) or (
            reply.status < 300 and services.store.is_known(context.key)
        ):  # the store has to know
            return None
        record_success(self.record, first.request.upstream, reply.status, seconds)
        self.outcome = make_delivered(context, self._approved, reply, tool)
        return self.outcome

    def _write(self, delivered: Delivered, body: bytes) -> bytes | None:
        """The bytes of the response; None where the task has to refuse one of its fields."""
        reply, method, cors = delivered.reply, self.head.method, self.call_route.cors
        request_id = self.record.request_id
        extras = cors or delivered.corrections or delivered.warnings or delivered.attempt
        plain = method == "POST" and not extras
        repairs = make_repair_headers(delivered.repairs) if plain and delivered.repairs else ()
        data = _known_heads.write(reply.status, reply.headers, request_id, body, repairs) if plain else None
        if data is not None:
            return data
        fields = make_delivery_headers(delivered, method, cors, request_id)
        try:
            data = write_response(reply.status, [*fields, *cors], body, method, 1, keep_alive=True)
        except ValueError:  # a control character
            return None
        if plain:
            _known_heads.learn(reply.status, reply.headers, fields[: -1 - len(repairs)])
        return data

    # --- in a task ----------------------------------------------------------------------------------------------------
    def resume(self, request: web.BaseRequest) -> Coroutine[Any, Any, web.StreamResponse]:
        """The response, in the task of the connection."""
        self.handler.begun.discard(self)
        return self.handler.respond(self, request)

    def answer(self) -> Answered:
        """The response, or the coroutine that makes it, from where the stages have come."""
        if self.handler.stopping:
            self._stop()
            raise asyncio.CancelledError
        begun, self.rest = self.rest, None
        if isinstance(begun, Exception):
            raise begun
        if begun is None:
            return self.end(self.encode(self._conclude()))
        return begun if isinstance(begun, Response) else begun()

    async def _conclude(self) -> Outcome:
        """The outcome of the call, which may be there already."""
        return await self._wait() if self.outcome is None else self.outcome

    def hand_over(self) -> None:
        """Lets a task go on with the call."""
        self._client.hand_over()

    def fail(self, error: Exception) -> None:
        """Notes an error of the stages, which the task reports."""
        self._release()
        self.rest = error

    def cancel(self) -> None:
        """Ends a call whose client has gone."""
        self._stop()
        self.handler.counted_fast += self.outcome is not None
        record_end(self.record, self.handler.now(), has_left=True)
        self.handler.finish(self)

    def _stop(self) -> None:
        """Ends what is under way for the call."""
        self._release()
        self.rest = None
        if self._abort is not None and self.outcome is None:
            self._abort()

    def _release(self) -> None:
        if hasattr(self, "call_route"):  # the stages have come so far
            self.call_route.memory.release()
        if self._first is not None:
            record_sends(self.record, self._first.request.upstream, Sends())

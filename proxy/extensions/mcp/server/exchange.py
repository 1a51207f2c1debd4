"""Handles one request of an MCP route, from its message to its answer.

    Exchange.handle  decodes the message and chooses one of the three below
      _call      finds the call's tools, runs the call, encodes the answer for MCP
      _list      answers `tools/list` with one container in place of all tools (`collapse`)
      _pass      forwards every other message unchanged and watches its answer

The upstream's answers are watched while they pass (`watching.py`). They go on unchanged, unless the config adds
guidance (`guided_answers.py`), hides or renames tools (`lists/shown_lists.py`) or rewrites OAuth challenges
(`protected_resource.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from proxy.call.context import open_context, record_no_call, record_passthrough
from proxy.call.outcome import count_tool_error
from proxy.core.contract.policy import Mode
from proxy.core.model import codes
from proxy.core.model.values import (
    ABSENT,
    Delivered,
    Document,
    Failure,
    JsonProblem,
    ToolCall,
    ToolResult,
    UpstreamFault,
    UpstreamReply,
)
from proxy.driver import IN_TASK
from proxy.extensions.mcp.adapters.mcp import decode_message, make_result_message, write_answer
from proxy.extensions.mcp.adapters.mcpmessage import (
    LIST,
    SESSION_HEADER,
    Message,
    MessageBatch,
    find_wrong_mirror,
    guess_message,
    is_bare,
    read_message,
)
from proxy.extensions.mcp.server.bound_mcp_route import (
    McpRouteRequest,
    is_own_server,
    make_result,
    read_whole,
    refuse_unfit,
)
from proxy.extensions.mcp.server.detached_calls import DetachedCalls
from proxy.extensions.mcp.server.guided_answers import GuidedAnswers
from proxy.extensions.mcp.server.lists.asking import Asking, Tools
from proxy.extensions.mcp.server.lists.learner import Learner, Unlearned
from proxy.extensions.mcp.server.lists.list_reports import ListReports
from proxy.extensions.mcp.server.lists.shown_lists import (
    VisibleTools,
    announce_change,
    filter_events,
    filter_list,
    make_collapsed_list,
)
from proxy.extensions.mcp.server.protected_resource import Ask, MetadataRewriter
from proxy.extensions.mcp.server.watching import (
    LIST_CHANGED,
    UNKNOWN_TOOL,
    LateStore,
    ResultVerdict,
    Watch,
    WatchedBody,
    WatchedStream,
    watch_answer,
    watch_promise,
)
from proxy.interfaces import Clock, Services
from proxy.plugin import run_call
from proxy.server.bound_route import RouteRequest
from proxy.server.http.responses import answer_fault, make_refusal, make_response
from proxy.upstream.faults import close_body

if TYPE_CHECKING:
    from aiohttp import web

    from proxy.plugin import ListedRequest, PassedOn, Reports

_JSON = (("Content-Type", "application/json"),)
_LISTING_BATCH = "A batch must not list tools here: send tools/list in a separate request."
_NO_MESSAGE = Message("", "")
# `dataclasses.replace` takes five times as long.
_read_beside_store = attrgetter(*[each.name for each in fields(Services) if each.name != "store"])


class Exchange:
    """Implements `RouteHandler` for all MCP routes of this process. `passed_on` receives the id of each request that
    its server has."""

    def __init__(
        self, clock: Clock, fresh_id: Callable[[], str], reports: Reports, passed_on: PassedOn | None = None
    ) -> None:
        self._clock = clock
        self._passed_on = passed_on
        self._learner = Learner(clock, fresh_id)
        self._reports = ListReports(reports)
        self._detached = DetachedCalls()
        self._visible = VisibleTools()
        self._guided = GuidedAnswers()
        self._metadata = MetadataRewriter()

    async def close(self) -> None:
        await self._detached.close()
        await self._learner.close()

    async def rewrite_answer(
        self, reply: UpstreamReply, call_route: RouteRequest, ask: Ask
    ) -> UpstreamReply | UpstreamFault:
        return await self._metadata.rewrite_metadata(reply, call_route, ask)

    async def handle(self, mcp_request: ListedRequest) -> web.StreamResponse:
        """Answers one request whose body has been read."""
        started, call_route, record = self._clock.now(), mcp_request.call_route, mcp_request.record
        binding, raw, shape = call_route.binding, call_route.raw, call_route.binding.route.shape
        found = None if is_bare(raw) else read_message(raw, shape.text)
        if isinstance(found, Message):
            decoded = decode_message(found, raw, shape, record.request_id)
        else:
            decoded = binding.adapter.decode(raw, shape, record.request_id)
        record.stages["decode"] = self._clock.now() - started
        message = found if isinstance(found, Message) else (guess_message(raw) or _NO_MESSAGE)
        _place(mcp_request, message)
        judged = binding.route.mode is Mode.ENFORCE or call_route.calls is not None
        if isinstance(found, JsonProblem) and binding.route.mode is Mode.REPORT and judged:
            decoded = Failure(codes.BAD_REQUEST, f"The message cannot be judged: {found.reason}.")
        upstream, elsewhere = mcp_request.services.upstreams[binding.route.upstream], mcp_request.services.elsewhere
        is_own = is_own_server(upstream)
        if isinstance(decoded, Failure) and (judged or is_own):  # otherwise a forbidden call could hide in it
            return mcp_request.make_refusal(make_refusal(decoded.code, decoded.message, record))
        if is_own and isinstance(found, Message) and (unfit := refuse_unfit(found, raw)) is not None:
            record_passthrough(record)
            return await self._answer(mcp_request, Delivered(unfit))
        if elsewhere is None:
            raise AssertionError("a proxy that serves judges in child processes too")
        token = record.notes.get("client.token", "")
        asking = Asking.of(self._learner, call_route, message, upstream, self._reports, elsewhere, token)
        if isinstance(found, MessageBatch) and found.lists and not asking.shows_all:
            return mcp_request.make_refusal(make_refusal(codes.BAD_REQUEST, _LISTING_BATCH, record))
        if isinstance(decoded, ToolCall):
            return await self._call(mcp_request, decoded, asking)
        if message.method == LIST and asking.rules.collapse is not None:
            return await self._list(mcp_request, asking)
        return await self._pass(mcp_request, asking)

    # --- calls --------------------------------------------------------------------------------------------------------
    async def _call(self, mcp_request: ListedRequest, call: ToolCall, asking: Asking) -> web.StreamResponse:
        record, message = mcp_request.record, asking.message
        tools = await asking.tools(call)
        if isinstance(tools, UpstreamReply):
            return await self._hand_on(mcp_request, tools)
        is_hidden = asking.hides(call.tool)
        if isinstance(tools, Failure) and not is_hidden:
            record_no_call(record, tools.code.name, call.call_id)
            return mcp_request.make_refusal(ToolResult(call, tools))
        tools = Tools({}) if isinstance(tools, Failure) else tools
        if wrong := self._wrong_mirror(call, tools, asking):
            return mcp_request.make_refusal(make_refusal(codes.HEADER_MISMATCH, wrong, record))
        own, passed_on = tools.own, self._make_passed_on(message)
        is_hidden = is_hidden and call.tool not in own
        call_route = McpRouteRequest(
            mcp_request.call_route, call, tools.policies, tools.catalogue, asking, own, is_hidden, passed_on
        )
        store: Any = LateStore(mcp_request.services.store)
        story = run_call(call, call_route, Services(store, *_read_beside_store(mcp_request.services)), record)
        outcome = await story if message.modern else await self._detached.run(story)
        if isinstance(outcome, Delivered):
            policy = tools.policies.get(record.tool)
            check = policy.check if policy is not None else None
            sent = call.arguments.value if isinstance(call.arguments, Document) else ABSENT

            async def count(failure: Failure) -> None:
                await count_tool_error(open_context(call, call_route, mcp_request.services, record), failure)

            verdict = ResultVerdict(message.id, check, sent, record, store, count)
            return await self._deliver(mcp_request, outcome, asking, tools, verdict)
        if (unwelcome := await asking.check_session()) is not None:
            return await self._hand_on(mcp_request, unwelcome)
        return mcp_request.make_refusal(outcome)

    async def _hand_on(self, mcp_request: ListedRequest, reply: UpstreamReply) -> web.StreamResponse:
        """Passes the upstream's own answer on to the client: it asks for credentials or for a new session."""
        record_passthrough(mcp_request.record, mcp_request.call_route.binding.route.upstream, reply)
        reply = self._metadata.rewrite_challenge(reply, mcp_request.call_route)
        return await mcp_request.deliver(Delivered(reply))

    async def _deliver(
        self, mcp_request: ListedRequest, outcome: Delivered, asking: Asking, tools: Tools, verdict: ResultVerdict
    ) -> web.StreamResponse:
        reply, message = outcome.reply, asking.message
        own = not mcp_request.record.upstream or "hook" in mcp_request.record.notes
        if own and isinstance(reply.body, bytes):  # the proxy's own text: an expanded container, or a hook's answer
            raw, text = mcp_request.call_route.raw, reply.body.decode()
            failed = {"isError": True} if reply.status >= 400 else {}
            await verdict.settle()
            result = make_result_message(message, {"content": [{"type": "text", "text": text}], **failed})
            answer = write_answer(result, message, raw, raw.header("accept") or "", reply.headers)
            if self._shows_more(reply.body, asking):
                answer = announce_change(answer)
            return make_response(answer, mcp_request.record)
        if mcp_request.call_route.binding.route.operations:
            return await self._deliver_result(mcp_request, outcome, asking, verdict)
        if not message.modern:
            reply = self._detached.outlives(reply)
        promise = watch_promise(tools.catalogue, asking, mcp_request.record) if not outcome.failed else None
        reply = self._watch_reply(reply, asking, verdict, *(() if promise is None else (promise,)))
        streams = not isinstance(reply.body, bytes)
        if not streams:  # the verdict is known already; a stream's is known only at its end
            await verdict.settle()
        else:
            try:
                await IN_TASK
            except BaseException:  # the client has gone
                await close_body(reply)
                self._detached.keep(verdict.settle())
                raise
        try:
            reply = self._metadata.rewrite_challenge(reply, mcp_request.call_route)
            delivered = outcome if reply is outcome.reply else replace(outcome, reply=reply)
            return await self._answer(mcp_request, delivered)
        finally:
            if streams:
                await self._detached.run_to_end(verdict.settle())

    async def _deliver_result(
        self, mcp_request: ListedRequest, outcome: Delivered, asking: Asking, verdict: ResultVerdict
    ) -> web.StreamResponse:
        """Turns the answer of an HTTP service into the tool's result."""
        record, call_route, message = mcp_request.record, mcp_request.call_route, asking.message
        await verdict.settle()
        whole = await read_whole(outcome.reply)
        if isinstance(whole, UpstreamFault):
            return answer_fault(call_route.binding, call_route.raw, whole, record)
        result = make_result_message(message, make_result(record.tool, whole))
        answer = write_answer(result, message, call_route.raw, call_route.raw.header("accept") or "", _JSON)
        reply = UpstreamReply(answer.status, answer.headers, answer.body)
        return await self._answer(mcp_request, replace(outcome, reply=reply))

    # --- lists --------------------------------------------------------------------------------------------------------
    async def _list(self, mcp_request: ListedRequest, asking: Asking) -> web.StreamResponse:
        """Answers with one container in place of all tools. The upstream's own answer is passed on where it refuses
        this client or if no list can be learned."""
        learned = await asking.find_list()
        if isinstance(learned, UpstreamReply):
            return await self._hand_on(mcp_request, learned)
        if isinstance(learned, Unlearned):
            return await self._pass(mcp_request, asking)
        if (unwelcome := await asking.check_session()) is not None:
            return await self._hand_on(mcp_request, unwelcome)
        record_passthrough(mcp_request.record)
        message, raw = asking.message, mcp_request.call_route.raw
        visible = self._visible.of(asking.key, asking.session)
        tools = asking.make_served(learned)
        listed = make_collapsed_list(message, tools, asking.rules, visible)
        listed = await self._guided.describe_tools(listed, tools, mcp_request.texts)
        result = make_result_message(message, listed)
        return make_response(write_answer(result, message, raw, raw.header("accept") or "", _JSON), mcp_request.record)

    def _shows_more(self, text: bytes, asking: Asking) -> bool:
        """Returns whether the answer shows functions that the session's list did not have, and can announce the change
        itself."""
        if asking.rules.collapse is None or not self._visible.add(asking.key, asking.session, text):
            return False
        return "text/event-stream" in (asking.call_route.raw.header("accept") or "")

    # --- everything else ----------------------------------------------------------------------------------------------
    async def _pass(self, mcp_request: ListedRequest, asking: Asking) -> web.StreamResponse:
        await IN_TASK
        record, started = mcp_request.record, self._clock.now()
        upstream = mcp_request.call_route.binding.route.upstream
        record_passthrough(record, upstream, since=started)
        passed_on = self._make_passed_on(asking.message)
        out = replace(mcp_request.call_route.make_passthrough(), silence=math.inf, passed_on=passed_on)
        reads_on = mcp_request.call_route.raw.method == "GET" and not asking.rules.shows_all
        if reads_on:  # each event is read as it comes
            kept = tuple(field for field in out.headers if field[0].lower() != "accept-encoding")
            out = replace(out, headers=(*kept, ("accept-encoding", "identity")))
        reply = await mcp_request.relay(out, None, asking.upstream, record)
        record_passthrough(record, upstream, reply, self._clock.now() - started)
        if isinstance(reply, UpstreamFault):
            return answer_fault(mcp_request.call_route.binding, mcp_request.call_route.raw, reply, record)
        seen = self._watch_reply(self._metadata.rewrite_challenge(reply, mcp_request.call_route), asking)
        if asking.message.method == LIST and not asking.rules.shows_all and reply.status < 300:
            seen = filter_list(seen, asking.rules, asking.message.id, asking.report_hidden)
        elif reads_on and reply.status < 300:
            seen = filter_events(seen, asking.rules, asking.report_hidden)
        seen = await self._guided.add_guidance(seen, asking, mcp_request.texts)
        return await self._answer(mcp_request, Delivered(seen))

    async def _answer(self, mcp_request: ListedRequest, delivered: Delivered) -> web.StreamResponse:
        started = self._clock.now()
        response = await mcp_request.deliver(delivered)
        mcp_request.record.stages["stream" if response.prepared else "answer"] = self._clock.now() - started
        return response

    def _make_passed_on(self, message: Message) -> Callable[[], None] | None:
        """The function to call once the server has a request."""
        if self._passed_on is None or message.id is ABSENT:
            return None
        return partial(self._passed_on, message.id)

    def _wrong_mirror(self, call: ToolCall, tools: Tools, asking: Asking) -> str:
        """A text about an `Mcp-Param-*` header that contradicts the body, or that is missing and no server behind the
        proxy could miss; '' otherwise. Older revisions have no such headers, and clients over stdio send none."""
        if not asking.message.modern or tools.catalogue is None or not isinstance(call.arguments, Document):
            return ""
        raw, mirrors = asking.call_route.raw, tools.catalogue.mirrors(call.tool)
        complete = self._passed_on is None and is_own_server(asking.upstream)
        return find_wrong_mirror(raw, mirrors, call.arguments.value, complete=complete)

    # --- watching answers ---------------------------------------------------------------------------------------------
    def _watch_reply(self, reply: UpstreamReply, asking: Asking, *watches: Watch) -> UpstreamReply:
        """Learns from an answer while it passes: whether its session is valid, a list of tools, and that a list has
        changed. `watches` read it too."""
        learner, key, message = self._learner, asking.key, asking.message
        if reply.status == 404 and asking.session:
            learner.note_lost(key, asking.session)
        if reply.status >= 300:
            return watch_answer(reply, *watches) if watches else reply
        if asking.call_route.raw.method == "DELETE":
            learner.forget(key, asking.session)
            self._visible.forget(key, asking.session)
        elif not message.modern:
            learner.accept(key, reply.header(SESSION_HEADER) or asking.session)
        watches += (WatchedStream(LIST_CHANGED, lambda: learner.mark_outdated(key)),)
        if message.is_call:
            watches += (WatchedStream(UNKNOWN_TOOL, partial(learner.mark_outdated, key, surely=False)),)
        if message.method == LIST:
            watches += (WatchedBody(lambda body: self._keep_list(body, reply, asking)),)
        return watch_answer(reply, *watches)

    def _keep_list(self, body: bytes, reply: UpstreamReply, asking: Asking) -> None:
        """Keeps a list that the client has requested itself, if it is complete."""
        if _asks_for_all(asking.message):
            self._learner.look(asking.key, reply.header("content-type"), body, asking.message.id)


def _asks_for_all(message: Message) -> bool:
    """Returns whether a request for the list has no parameters besides `_meta`. A server may define parameters that
    select tools, and a cursor selects a page."""
    params = message.params
    return params is ABSENT or (isinstance(params, dict) and params.keys() <= {"_meta"})


def _place(mcp_request: ListedRequest, message: Message) -> None:
    """Takes the trace context from the message's `_meta` (SEP-414), unless the request has a `traceparent` header."""
    parent = message.meta.get("traceparent")
    if isinstance(parent, str) and mcp_request.call_route.raw.header("traceparent") is None:
        state = message.meta.get("tracestate")
        mcp_request.place(mcp_request.record, parent, state if isinstance(state, str) else None)

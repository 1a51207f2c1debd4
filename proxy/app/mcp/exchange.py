"""One request of an MCP route, from its message to its answer.

    Exchange.handle  a call, or what passes
      _call          the tools it is judged by, the story, and the answer as MCP has it
      _pass          everything else goes on as it came, and is looked at on its way back

Answers are never changed; what is learned from them is learned while they pass (`learning/watching.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from proxy.adapters.mcp import decode_message, result_message, sent_back
from proxy.adapters.mcpheaders import wrong_mirror
from proxy.adapters.mcplist import answered, read_page
from proxy.adapters.mcpmessage import LIST, SESSION_HEADER, Message, glimpse, is_bare, read_message
from proxy.app.http1.answer import Answer
from proxy.app.mcp.afterlife import Afterlife
from proxy.app.mcp.asking import Asking, Tools
from proxy.app.mcp.collapsing import collapsed_list
from proxy.app.mcp.lane import McpLane
from proxy.app.mcp.promises import output_promise
from proxy.app.mcp.turn import Reports, Turn
from proxy.app.replies import deliver, faulty, ours, refusal
from proxy.core import codes
from proxy.core.model import (
    ABSENT,
    Delivered,
    Document,
    Failure,
    ToolCall,
    ToolResult,
    UpstreamFault,
    UpstreamReply,
)
from proxy.core.policy import Mode
from proxy.interfaces import Clock
from proxy.learning import Learner, Telling, Unlearned, Watch, Whole, watched
from proxy.learning.learner import header
from proxy.learning.watching import LIST_CHANGED, UNKNOWN_TOOL
from proxy.pipeline import run_call

_JSON = (("Content-Type", "application/json"),)
_NO_MESSAGE = Message("", "")


class Exchange:
    """Handles the requests of all MCP routes of this process. `reports` is told of their tools."""

    def __init__(self, clock: Clock, fresh_id: Callable[[], str], reports: Reports) -> None:
        self._clock = clock
        self._learner = Learner(clock, fresh_id)
        self._reports = reports
        self._afterlife = Afterlife()

    async def close(self) -> None:
        """Ends what goes on without a client."""
        await self._afterlife.close()
        await self._learner.close()

    async def handle(self, turn: Turn) -> Answer | None:
        """Answers one request, whose body was read."""
        started, lane, record = self._clock.now(), turn.lane, turn.record
        way, raw, shape = lane.way, lane.raw, lane.way.route.shape
        found = None if is_bare(raw) else read_message(raw, shape.text)
        if isinstance(found, Message):
            meant = decode_message(found, raw, shape, record.request_id)
        else:
            meant = way.adapter.decode(raw, shape, record.request_id)
        record.stages["decode"] = self._clock.now() - started
        message = found if isinstance(found, Message) else (glimpse(raw) or _NO_MESSAGE)
        _place(turn, message)
        if isinstance(meant, Failure) and way.route.mode is Mode.ENFORCE:
            return turn.refused(refusal(meant.code, meant.message, record))
        asking = Asking.of(self._learner, lane, message, turn.services.upstreams[way.route.upstream], self._reports)
        if isinstance(meant, ToolCall):
            return await self._call(turn, meant, asking)
        if message.method == LIST and asking.rules.collapse is not None:
            return await self._list(turn, asking)
        return await self._pass(turn, asking)

    # --- calls --------------------------------------------------------------------------------------------------------
    async def _call(self, turn: Turn, call: ToolCall, asking: Asking) -> Answer | None:
        record, message = turn.record, asking.message
        tools = await asking.tools(call)
        if isinstance(tools, UpstreamReply):
            return await self._hand_on(turn, tools)
        if isinstance(tools, Failure):
            record.outcome, record.code, record.call_id = "refused", tools.code.name, call.call_id
            return turn.refused(ToolResult(call, tools))
        if wrong := _wrong_mirror(call, tools, asking):
            return turn.refused(refusal(codes.HEADER_MISMATCH, wrong, record))
        lane = McpLane(turn.lane, call, tools.policies, tools.catalogue, message.modern, turn.lane.raw.headers)
        story = run_call(call, lane, turn.services, record)
        outcome = await story if message.modern else await self._afterlife.run(story)
        if isinstance(outcome, Delivered):
            return await self._deliver(turn, outcome, asking, tools)
        if (unwelcome := await asking.verified()) is not None:
            return await self._hand_on(turn, unwelcome)
        return turn.refused(outcome)

    async def _hand_on(self, turn: Turn, reply: UpstreamReply) -> Answer | None:
        """What the upstream has to say to this client itself: it asks for credentials, or for a new session."""
        turn.record.outcome, turn.record.code = "passthrough", ""
        turn.record.upstream, turn.record.upstream_status = turn.lane.way.route.upstream, reply.status
        return await deliver(Delivered(reply), turn.request, turn.record, turn.closing)

    async def _deliver(self, turn: Turn, outcome: Delivered, asking: Asking, tools: Tools) -> Answer | None:
        reply, message = outcome.reply, asking.message
        if not turn.record.upstream and isinstance(reply.body, bytes):  # an expanded container, a hook's answer
            raw, text = turn.lane.raw, reply.body.decode()
            failed = {"isError": True} if reply.status >= 400 else {}
            result = result_message(message, {"content": [{"type": "text", "text": text}], **failed})
            return ours(sent_back(result, message, raw, raw.header("accept") or "", reply.headers), turn.record)
        if not message.modern:
            reply = self._afterlife.outlives(reply)
        promise = output_promise(tools.catalogue, asking, turn.record) if not outcome.failed else None
        if promise is not None:
            reply = watched(reply, promise)
        return await self._answer(turn, replace(outcome, reply=self._seen(reply, asking)))

    # --- lists --------------------------------------------------------------------------------------------------------
    async def _list(self, turn: Turn, asking: Asking) -> Answer | None:
        """The one container in place of all tools; what the upstream says where it has no list for this client."""
        learned = await asking.listed()
        if isinstance(learned, UpstreamReply):
            return await self._hand_on(turn, learned)
        if isinstance(learned, Unlearned):
            return await self._pass(turn, asking)
        if (unwelcome := await asking.verified()) is not None:
            return await self._hand_on(turn, unwelcome)
        turn.record.outcome = "passthrough"
        message, raw = asking.message, turn.lane.raw
        result = result_message(message, collapsed_list(message, learned.listing, asking.rules))
        return ours(sent_back(result, message, raw, raw.header("accept") or "", _JSON), turn.record)

    # --- everything else ----------------------------------------------------------------------------------------------
    async def _pass(self, turn: Turn, asking: Asking) -> Answer | None:
        record, started = turn.record, self._clock.now()
        record.outcome, record.upstream = "passthrough", turn.lane.way.route.upstream
        out = replace(turn.lane.passthrough(), silence=math.inf)
        reply = await turn.relay(out, None, asking.upstream, record)
        record.upstream_seconds = self._clock.now() - started
        if isinstance(reply, UpstreamFault):
            return faulty(turn.lane.way, turn.lane.raw, reply, record)
        record.upstream_status = reply.status
        return await self._answer(turn, Delivered(self._seen(reply, asking)))

    async def _answer(self, turn: Turn, delivered: Delivered) -> Answer | None:
        started = self._clock.now()
        response = await deliver(delivered, turn.request, turn.record, turn.closing)
        turn.record.stages["stream" if response is None else "answer"] = self._clock.now() - started
        return response

    # --- looking at answers -------------------------------------------------------------------------------------------
    def _seen(self, reply: UpstreamReply, asking: Asking) -> UpstreamReply:
        """An answer on its way, with eyes on it: sessions, lists, and changes of lists."""
        learner, key, message = self._learner, asking.key, asking.message
        if reply.status == 404 and not message.modern:
            learner.forget(key, asking.session)
        if reply.status >= 300:
            return reply
        if asking.lane.raw.method == "DELETE":
            learner.forget(key, asking.session)
        elif not message.modern:
            learner.accept(key, header(reply, SESSION_HEADER) or asking.session)
        watches: list[Watch] = [Telling(LIST_CHANGED, lambda: learner.outdated(key))]
        if message.is_call:
            watches.append(Telling(UNKNOWN_TOOL, lambda: learner.outdated(key, surely=False)))
        if message.method == LIST:
            watches.append(Whole(lambda body: self._learned(body, reply, asking)))
        return watched(reply, *watches)

    def _learned(self, body: bytes, reply: UpstreamReply, asking: Asking) -> None:
        """A list that the client has asked for itself, where it is all of it."""
        answer = answered(header(reply, "content-type"), body, asking.message.id)
        page = read_page(answer) if answer is not None else None
        if page is not None and page.cursor is None and _asks_for_all(asking.message):
            self._learner.keep(asking.key, [page], len(body))


def _asks_for_all(message: Message) -> bool:
    """Whether a question for the list is the plain one: parameters of a server's own may pick some tools out of it."""
    params = message.params
    return params is ABSENT or (isinstance(params, dict) and params.keys() <= {"_meta"})


def _place(turn: Turn, message: Message) -> None:
    """A trace may be told in `_meta` (SEP-414); what the head of the request tells goes before it."""
    parent, state = message.meta.get("traceparent"), message.meta.get("tracestate")
    if isinstance(parent, str) and turn.lane.raw.header("traceparent") is None:
        turn.place(turn.record, parent, state if isinstance(state, str) else None)


def _wrong_mirror(call: ToolCall, tools: Tools, asking: Asking) -> str:
    """Which `Mcp-Param-*` header lies about the body; '' where none does, and where a revision has no such headers."""
    if not asking.message.modern or tools.catalogue is None or not isinstance(call.arguments, Document):
        return ""
    return wrong_mirror(asking.lane.raw, tools.catalogue.mirrors(call.tool), call.arguments.value)

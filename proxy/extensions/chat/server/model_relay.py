"""Answers the requests of routes with `model`: relays them, and reads the answers to those that name tools.

    ModelRelay.handle  reads the request; gives back what is to be relayed as any other request
      _answer          asks the model server, and passes on errors and what cannot be read as they are
      _judge_whole     judges the calls of an answer in one piece, and asks again
      _judge_stream    has those of a streamed answer judged as they come

An answer in which nothing was repaired goes on byte for byte. Otherwise the names and arguments that were repaired
change, and no other byte does.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from proxy.adapters.ladder import find_conversation
from proxy.core.contract.policy import BroughtTools
from proxy.core.json.jsontext import parse
from proxy.core.model.values import (
    Conversation,
    Delivered,
    Fields,
    JsonProblem,
    JsonValue,
    RawRequest,
    Repair,
    ToolResult,
    UpstreamFault,
    UpstreamReply,
)
from proxy.extensions.chat.adapters.model_errors import write_message
from proxy.extensions.chat.config.model_section import ModelSettings
from proxy.extensions.chat.core.api_errors import write_error_event
from proxy.extensions.chat.core.found_calls import FoundCall, find_calls, write_changes
from proxy.extensions.chat.core.model_request import Api, ModelRequest, find_api
from proxy.extensions.chat.core.stream_usage import make_answer
from proxy.extensions.chat.core.written_calls import NewCall, find_answer_text, make_call_id, write_calls
from proxy.extensions.chat.server.answer_bytes import (
    find_header,
    find_reason,
    is_plain,
    keep_true,
    make_headers_again,
    stream_on,
)
from proxy.extensions.chat.server.asking_again import (
    FinalAnswer,
    JudgedAnswer,
    Spending,
    ask_until_right,
    explain_call,
    write_results,
)
from proxy.extensions.chat.server.call_judge import CallJudge, JudgedCall
from proxy.extensions.chat.server.call_records import note_calls
from proxy.extensions.chat.server.judged_stream import JudgedStream, StreamSteps
from proxy.extensions.chat.server.large_bodies import LargeRequests
from proxy.extensions.chat.server.model_metrics import ModelMetrics
from proxy.extensions.mcp.server.replayed_body import ReplayedBody, gather_body
from proxy.interfaces import Clock, UpstreamRequest
from proxy.routing import Route
from proxy.server.bound_route import RouteRequest
from proxy.server.http.body import is_json, read_whole, say_continue
from proxy.server.http.checks import BadRequest
from proxy.server.http.framing import Response
from proxy.server.http.responses import answer_failure, answer_fault, deliver, make_refusal
from proxy.server.listed_request import Answer, ListedRequest, Reports
from proxy.upstream import ReplyBroken
from proxy.upstream.faults import close_body

# Reports of unusable schemas that are remembered, so that each is told once.
_MOST_REPORTED = 1_000


class ModelRelay:
    """Implements `RelayHandler` (server/listed_routes.py). Belongs to one event loop."""

    def __init__(self, clock: Clock, reports: Reports) -> None:
        self._clock = clock
        self._reports = reports
        self._metrics = ModelMetrics(reports)
        self._large = LargeRequests()
        self._unusable: set[tuple[str, str, str]] = set()
        self._judges: dict[str, tuple[BroughtTools, CallJudge]] = {}

    async def close(self) -> None:
        """Nothing runs beside the requests."""

    async def handle(self, listed: ListedRequest) -> Answer | RouteRequest:
        """Answers one request; gives back one whose answer is not read."""
        call_route = listed.call_route
        route, raw = call_route.binding.route, call_route.raw
        settings = _find_settings(route)
        api = find_api(raw.method, raw.path)
        if api is None:
            return call_route
        if not _is_readable(raw, settings):
            self._metrics.count_unread(route.name, "request")
            return call_route
        await say_continue(listed.request, Fields(raw.headers))
        body = await read_whole(listed.request, settings.max_request, route.timeout, call_route.memory)
        if isinstance(body, BadRequest):
            return _refuse_unread(listed, body)
        call_route = replace(call_route, raw=replace(raw, body=body))
        asked = await self._large.read(listed, api, body)
        return call_route if asked is None else await self._answer(replace(listed, call_route=call_route), asked)

    async def _answer(self, listed: ListedRequest, asked: ModelRequest) -> Answer:
        call_route, record = listed.call_route, listed.record
        route = call_route.binding.route
        record.outcome, record.upstream = "passthrough", route.upstream
        record.request_bytes = len(call_route.raw.body)
        started = self._clock.now()
        reply = await listed.relay(_make_plain(call_route), None, listed.services.upstreams[route.upstream], record)
        record.upstream_seconds = self._clock.now() - started
        if isinstance(reply, UpstreamFault):
            return answer_fault(call_route.binding, call_route.raw, reply, record)
        record.upstream_status = reply.status
        repairs: tuple[Repair, ...] = ()
        is_readable = is_plain(reply)
        media_type = find_header(reply.headers, "content-type")
        if is_readable and is_json(media_type):
            if isinstance(found := await self._judge_whole(listed, asked, reply), Response):
                return found
            reply, repairs = found
        elif is_readable and media_type.lower().startswith("text/event-stream"):
            if isinstance(begun := await self._judge_stream(listed, asked, reply), Response):
                return begun
            reply, repairs = begun
        elif reply.status == 200:
            self._metrics.count_unread(route.name, "no_json" if is_readable else "compressed")
        return await deliver(Delivered(reply, repairs), listed.request, call_route.cors, record, listed.closing)

    async def _judge_whole(
        self, listed: ListedRequest, asked: ModelRequest, reply: UpstreamReply
    ) -> tuple[UpstreamReply, tuple[Repair, ...]] | Response:
        """The answer that goes on, and the repairs in it. Where its calls cannot be repaired, the model is asked
        again. In mode `refuse`, a response of ours for calls that are wrong all the same."""
        settings = _find_settings(listed.call_route.binding.route)
        first = await self._read_answer(listed, asked, reply)
        if isinstance(first, UpstreamReply):
            return first, ()
        write = partial(self._large.write_question, listed, asked)
        found = await ask_until_right(first, asked, settings, write, partial(self._ask_again, listed, asked))
        self._note(listed, asked, found)
        headers = reply.headers if found.answer.written is first.text else keep_true(reply.headers)
        if settings.retries and (found.answer.calls or found.spent.answers > 1):
            headers = (*headers, ("Tool-Attempts", str(found.spent.answers)))
        if (failed := found.answer.failed) is not None and failed.failure is not None:
            if settings.mode == "refuse":
                return _refuse_answer(listed, failed)
            headers = (*headers, ("Tool-Error", failed.failure.code.name))
        return UpstreamReply(reply.status, headers, found.answer.written), found.answer.repairs

    async def _ask_again(self, listed: ListedRequest, asked: ModelRequest, body: bytes) -> JudgedAnswer | None:
        """The answer to another question; None where there is none that can be read."""
        reply = await self._relay_again(listed, body)
        if reply is None:
            return None
        if not is_json(find_header(reply.headers, "content-type")):
            await close_body(reply)
            return None
        found = await self._read_answer(listed, asked, reply)
        if isinstance(found, UpstreamReply):
            await close_body(reply)
            return None
        return found

    async def _read_answer(
        self, listed: ListedRequest, asked: ModelRequest, reply: UpstreamReply
    ) -> JudgedAnswer | UpstreamReply:
        """An answer with its calls judged; the answer as it came where it cannot be read."""
        settings = _find_settings(listed.call_route.binding.route)
        reply = await gather_body(reply, settings.max_answer)
        body = reply.body if isinstance(reply.body, bytes) else b""
        why = find_reason(reply, settings.max_answer)
        answer = JsonProblem("it was not read", 1, 1) if why else parse(body)
        if isinstance(answer, JsonProblem):
            self._metrics.count_unread(listed.call_route.binding.route.name, why or "no_json")
            return reply
        judge, conversation = self._find_judge(listed), _find_conversation(listed)
        if calls := find_calls(asked.api, body, answer):
            judged = await judge.judge(asked, calls, conversation)
            return JudgedAnswer(body, answer, judged, _write_changes(body, judged))
        text = find_answer_text(asked.api, answer)
        found = None if text is None else judge.find_in_text(text.text, settings.text_calls)
        if text is None or found is None:
            return JudgedAnswer(body, answer, [], body)
        ids = [make_call_id(asked.api, body, at) for at in range(len(found.calls))]
        calls = [FoundCall(each, call.name, call.arguments) for each, call in zip(ids, found.calls, strict=True)]
        written = await judge.judge_text(asked, calls, conversation)
        if written is None:
            return JudgedAnswer(body, answer, [], body)
        made = [NewCall(each.found.call_id, each.tool, each.arguments) for each in written]
        return JudgedAnswer(body, answer, written, write_calls(asked.api, body, text, found.before, made))

    async def _judge_stream(
        self, listed: ListedRequest, asked: ModelRequest, reply: UpstreamReply
    ) -> tuple[UpstreamReply, tuple[Repair, ...]] | Response:
        """The answer as it is streamed, and the repairs that are known before its first byte goes out. In mode
        `refuse`, a response of ours where its calls are wrong before that."""
        settings = _find_settings(listed.call_route.binding.route)
        stream = self._make_stream(listed, asked, reply, settings, Spending(), asked.size)
        body = stream.read()
        try:
            first = await anext(body, b"")
        except ReplyBroken as broken:
            return replace(reply, body=ReplayedBody([], reply, broken)), ()
        if stream.refused is not None:
            return _refuse_answer(listed, stream.refused)
        headers = keep_true(reply.headers)
        return UpstreamReply(reply.status, headers, stream_on(first, body)), _list_repairs(stream.judged)

    def _make_stream(
        self,
        listed: ListedRequest,
        asked: ModelRequest,
        reply: UpstreamReply,
        settings: ModelSettings,
        before: Spending,
        size: int,
    ) -> JudgedStream:
        """The body of an answer: `before` is what the answers before it took, `size` the length of its question."""
        may_ask = before.answers < settings.retries and settings.retry_deadline > 0
        steps = StreamSteps(
            partial(self._judge_calls, listed, asked),
            partial(self._find_in_text, listed, asked),
            None if settings.text_calls == "off" else self._find_judge(listed).watch_text(asked),
            partial(self._note_stream, listed, asked, before),
            partial(self._ask_stream, listed, asked, settings, before, size) if may_ask and asked.is_single else None,
            settings.retry_deadline,
            partial(_write_error, asked.api) if settings.mode == "refuse" else None,
        )
        usage = before.usage if isinstance(before.usage, dict) else {}
        return JudgedStream(asked.api, reply, steps, settings.max_answer, usage if before.answers else None)

    async def _ask_stream(
        self,
        listed: ListedRequest,
        asked: ModelRequest,
        settings: ModelSettings,
        before: Spending,
        size: int,
        calls: list[JudgedCall],
        usage: dict[str, JsonValue],
    ) -> JudgedStream | None:
        """The next answer, streamed like the first; None where there is none, or no more tokens may be spent."""
        answer = make_answer(asked.api, [call.found for call in calls], _read_value)
        said = sum(len(call.found.name.encode()) + len(call.found.text) for call in calls)
        spent = before.add(calls, usage, size + said)
        if not spent.may_go_on(settings):
            return None
        results = write_results(calls, spent.answers, settings.retries)
        if (body := await self._large.write_question(listed, asked, answer, results)) is None:
            return None
        reply = await self._relay_again(listed, body)
        if reply is None or not find_header(reply.headers, "content-type").lower().startswith("text/event-stream"):
            await close_body(reply) if reply is not None else None
            return None
        return self._make_stream(listed, asked, reply, settings, spent, len(body))

    def _note_stream(
        self,
        listed: ListedRequest,
        asked: ModelRequest,
        before: Spending,
        judged: list[JudgedCall],
        usage: dict[str, JsonValue],
        unread: str,
    ) -> None:
        if unread:
            self._metrics.count_unread(listed.call_route.binding.route.name, unread)
        self._note(listed, asked, FinalAnswer(JudgedAnswer(b"", None, judged), before.add(judged, usage, 0)))

    async def _relay_again(self, listed: ListedRequest, body: bytes) -> UpstreamReply | None:
        """The answer to another request with the headers of the first; None where there is none that can be read."""
        upstream = listed.services.upstreams[listed.call_route.binding.route.upstream]
        made = _make_plain(listed.call_route)
        headers = make_headers_again(made.headers, body)
        reply = await listed.relay(replace(made, headers=headers, body=body), None, upstream, listed.record)
        if isinstance(reply, UpstreamFault):
            return None
        if not is_plain(reply):
            await close_body(reply)
            return None
        return reply

    async def _find_in_text(
        self, listed: ListedRequest, asked: ModelRequest, text: str
    ) -> tuple[str, list[JudgedCall]] | None:
        """The valid calls with which a streamed text ends, and the text before them."""
        judge = self._find_judge(listed)
        found = judge.find_in_text(text, "markup")
        if found is None:
            return None
        seed = listed.record.request_id.encode()
        ids = [make_call_id(asked.api, seed, at) for at in range(len(found.calls))]
        calls = [FoundCall(each, call.name, call.arguments) for each, call in zip(ids, found.calls, strict=True)]
        judged = await judge.judge_text(asked, calls, _find_conversation(listed))
        if judged is None:
            return None
        return found.before, judged

    async def _judge_calls(
        self, listed: ListedRequest, asked: ModelRequest, calls: list[FoundCall]
    ) -> list[JudgedCall]:
        return await self._find_judge(listed).judge(asked, calls, _find_conversation(listed))

    def _note(self, listed: ListedRequest, asked: ModelRequest, found: FinalAnswer) -> None:
        """Notes the calls of the answer that goes on. Tools that the request brought have a name in metrics then."""
        named = [call.tool for call in found.answer.calls if call.tool in asked.tools.tools]
        self._reports.learned(listed.call_route.binding.route.name, named)
        self._metrics.count_answer(listed.call_route.binding.route.name, asked.model, found)
        self._report_unusable(listed.call_route.binding.route.name, found.answer.calls)
        note_calls(listed, asked, found, self._clock.now(), _find_settings(listed.call_route.binding.route))

    def _report_unusable(self, route: str, calls: list[JudgedCall]) -> None:
        """Reports the called tools whose schemas cannot be used, each once."""
        for call in calls:
            if call.unusable and (route, call.tool, call.unusable) not in self._unusable:
                self._unusable.add((route, call.tool, call.unusable))
                self._reports.unusable(route, call.tool, call.unusable)
        if len(self._unusable) > _MOST_REPORTED:
            self._unusable.clear()

    def _find_judge(self, listed: ListedRequest) -> CallJudge:
        route = listed.call_route.binding.route
        if route.brought is None:
            raise AssertionError("a relayed route says how brought tools are judged")
        known = self._judges.get(route.key)
        if known is None or known[0] is not route.brought:  # the first request, or the first after a reload
            known = self._judges[route.key] = (route.brought, CallJudge(route.brought, listed.services.elsewhere))
        return known[1]


def _write_changes(body: bytes, judged: list[JudgedCall]) -> bytes:
    """The answer with its repaired calls; the very same bytes where none was repaired."""
    changes = [change for each in judged if (change := each.change) is not None]
    return write_changes(body, changes) if changes else body


def _write_error(api: Api, failed: JudgedCall, after: bytes) -> bytes:
    """The event that ends a stream whose calls are wrong, behind the last event that has gone out."""
    result = _make_result(failed)
    return write_error_event(api, result.failure.code.name, write_message(result), after)


def _make_result(failed: JudgedCall) -> ToolResult:
    """What is said of a wrong call in the place of its answer. The server gave it, not the client: 502."""
    result = explain_call(failed)
    return replace(result, failure=replace(result.failure, status=502))


def _find_conversation(listed: ListedRequest) -> Conversation:
    return find_conversation(listed.call_route.raw, listed.call_route.binding.route.shape.ladder)


def _list_repairs(judged: list[JudgedCall]) -> tuple[Repair, ...]:
    return tuple(repair for each in judged for repair in each.repairs)


def _read_value(text: bytes) -> JsonValue:
    """The value of arguments; None where they are no JSON object."""
    value = parse(text)
    return value if isinstance(value, dict) else None


def _find_settings(route: Route) -> ModelSettings:
    relayed_by = route.relayed_by
    return ModelSettings() if relayed_by is None else relayed_by.settings


def _is_readable(raw: RawRequest, settings: ModelSettings) -> bool:
    """Whether a request's body is JSON of a size that is read, and plain."""
    plain = (raw.header("content-encoding") or "identity") == "identity"
    length = raw.header("content-length") or ""
    return plain and is_json(raw.header("content-type") or "") and int(length or 0) <= settings.max_request


def _refuse_unread(listed: ListedRequest, why: BadRequest) -> Response:
    """The response to a request whose body could not be read. What is left of it ends the connection."""
    result = make_refusal(why.code, why.message, listed.record, why.status)
    response = answer_failure(listed.call_route.binding, listed.call_route.raw, result, listed.record)
    response.closes = True
    return response


def _refuse_answer(listed: ListedRequest, failed: JudgedCall) -> Response:
    """The response in place of an answer whose calls are wrong."""
    return answer_failure(listed.call_route.binding, listed.call_route.raw, _make_result(failed), listed.record)


def _make_plain(call_route: RouteRequest) -> UpstreamRequest:
    """The request as it goes out: for an answer without a content coding, because it is read."""
    made = call_route.make_passthrough()
    headers = tuple((name, value) for name, value in made.headers if name.lower() != "accept-encoding")
    return replace(made, headers=headers)

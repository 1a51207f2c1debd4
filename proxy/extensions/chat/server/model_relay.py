"""Answers the requests of routes with `model`: relays them, and reads the answers to those that name tools.

    ModelRelay.handle  reads the request; gives it back where it is to be relayed like any other
      _answer          asks the model server, passes on errors and unreadable answers unchanged, and has all others
                       judged (model_exchange.py)

An answer without repairs is forwarded byte for byte. A repair changes only the bytes of its name or arguments.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from proxy.call.context import (
    add_notes,
    record_call,
    record_delivery,
    record_failure,
    record_forward,
    record_passthrough,
    record_replaced,
)
from proxy.call_record import CallRecord, ReplacedAnswer
from proxy.core.contract.policy import BroughtTools, Mode
from proxy.core.display.preview import clean_text
from proxy.core.model import codes
from proxy.core.model.values import Attempt, Delivered, Fields, JsonProblem, RawRequest, Repair, UpstreamFault
from proxy.extensions.chat.config import ModelSettings
from proxy.extensions.chat.core.model_request import REPEAT, ModelRequest, find_api, names_tools
from proxy.extensions.chat.server.asking_again import FinalAnswer, Spending, explain_call
from proxy.extensions.chat.server.call_judge import CallJudge, JudgedCall
from proxy.extensions.chat.server.large_bodies import LargeBodies
from proxy.extensions.chat.server.model_exchange import ModelExchange, is_plain
from proxy.interfaces import Clock
from proxy.plugin import OTHER, Label, MetricRow, Metrics
from proxy.routing import Route
from proxy.server.bound_route import RouteRequest
from proxy.server.http.body import is_json, read_whole, say_continue
from proxy.server.http.framing import Response
from proxy.server.http.request_head import BadRequest
from proxy.server.http.responses import answer_failure, answer_fault, make_refusal

if TYPE_CHECKING:
    from proxy.plugin import Answer, ListedRequest, Reports

# --- metrics ----------------------------------------------------------------------------------------------------------
MOST_MODELS: Final = 50
_LONGEST_NAME: Final = 60
_MODEL: Final = Label(f"The model, as requests name it; `_other` for all but the first {MOST_MODELS}.")
_TOOL: Final = Label("The tool of the request; `_other` if it names none, and for all but the first.")
CALLS: Final = MetricRow(
    "toolproxy_model_calls_total",
    "counter",
    "Calls in the answers of models ([chat.md](chat.md)).",
    ("route", "model", "tool", "outcome"),
    {
        "model": _MODEL,
        "tool": _TOOL,
        "outcome": Label(
            "The result; `unjudged`: the tool's schema cannot be used, or the request has none.",
            ("valid", "repaired", "wrong", "unjudged"),
        ),
    },
)
TOKENS: Final = MetricRow(
    "toolproxy_model_tokens_again_total",
    "counter",
    "Tokens that retries of models used, as their answers report them.",
    ("route", "model"),
    {"model": _MODEL},
)
UNREAD: Final = MetricRow(
    "toolproxy_model_unread_total",
    "counter",
    "Requests and answers that were relayed unread although they may hold calls.",
    ("route", "reason"),
    {
        "reason": Label(
            "`api`: a request of an API that is not read. `request`: it is too long, compressed or no JSON. "
            "`too_long`: the answer or a call in it is too long. `cut`: it ended or broke off too early. `no_json`: it "
            "is no JSON object, whatever its type says, or takes too much to be read.",
            ("api", "request", "too_long", "compressed", "no_json", "cut"),
        )
    },
)
METRICS: Final = (CALLS, TOKENS, UNREAD)


class ModelMetrics:
    """The counts of one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._calls = metrics.add_counter(CALLS).series
        self._tokens = metrics.add_counter(TOKENS).series
        self._unread = metrics.add_counter(UNREAD).series
        self._models: set[str] = set()

    def count_answer(self, route: str, model: str, found: FinalAnswer) -> None:
        """Counts the calls of the client's answer, and the tokens of those before it."""
        name = self._name_model(model)
        for call in found.answer.calls:
            tool = call.tool if self._metrics.knows(route, call.tool) else OTHER
            self._calls[route, name, tool, _find_outcome(call)] += 1
        if found.spent.reported:
            self._tokens[route, name] += found.spent.reported

    def count_unread(self, route: str, reason: str) -> None:
        """Counts an answer that was not read."""
        self._unread[route, reason] += 1

    def _name_model(self, model: str) -> str:
        is_plain = 0 < len(model) <= _LONGEST_NAME and clean_text(model, _LONGEST_NAME) == model
        if is_plain and len(self._models) < MOST_MODELS:
            self._models.add(model)
        return model if model in self._models else OTHER


def _find_outcome(call: JudgedCall) -> str:
    if call.failure is not None:
        return "wrong"
    if call.checked is None:
        return "unjudged"
    return "repaired" if call.repairs else "valid"


# --- notes the calls of an answer in records --------------------------------------------------------------------------
# The most calls that are kept of a replaced answer.
_MOST_CALLS: Final = 20


def note_calls(
    listed: ListedRequest, request: ModelRequest, found: FinalAnswer, now: float, settings: ModelSettings
) -> None:
    """Notes the calls of the client's answer, and in the request's own record those of the answers before it. That
    record is reported at the end of the request, the others at once; `now` in seconds on the monotonic clock. Of an
    answer that mode `refuse` holds back, only the wrong calls are noted."""
    notes = {"gen_ai.request.model": clean_text(request.model, 60)}
    if found.spent.answers > 1 or found.spent.lost:
        notes |= {"chat.attempts": str(found.spent.answers), "chat.tokens_again": str(found.spent.reported)}
    add_notes(listed.record, notes)
    blank = replace(listed.record, stages={}, response_bytes=0, ended=now)
    record_replaced(listed.record, _list_replaced(blank, found.spent, settings.retries))
    is_refused = settings.mode == "refuse" and found.answer.failed is not None
    calls = [each for each in found.answer.calls if each.failure is not None or not is_refused]
    for position, each in enumerate(calls):
        record = replace(blank) if position else listed.record
        _fill_record(record, each, is_refused=is_refused)
        if position:
            listed.tell(record)


def _list_replaced(blank: CallRecord, spent: Spending, retries: int) -> list[ReplacedAnswer]:
    """The answers before the last one; the tokens of each are those of the answer behind it."""
    made = []
    for at, (answer, next_) in enumerate(pairwise(spent.counted), 1):
        records = []
        for each in answer.calls[:_MOST_CALLS]:
            result = None if each.failure is None else explain_call(each, Attempt(at, retries + 1))
            records.append(record := replace(blank, result=result))
            _fill_record(record, each, is_refused=True)
        made.append(ReplacedAnswer(records, REPEAT, next_.tokens))
    return made


def _fill_record(record: CallRecord, judged: JudgedCall, *, is_refused: bool) -> None:
    """Records a call and its verdict. A wrong call that is not refused is forwarded, as on a report-only route."""
    failure, repairs = judged.failure, judged.repairs
    goes_on = failure is not None and not is_refused
    record_call(record, judged.call, judged.policy, repairs, Mode.REPORT if goes_on else Mode.ENFORCE)
    if failure is not None and is_refused:
        record_failure(record, failure, "refused")
    elif goes_on or judged.checked is not None:  # else the schema of its tool cannot be used
        record_forward(record, judged.checked, failure, repairs)
        record_delivery(record, "repaired" if repairs else "delivered")


# --- answers the requests of routes with `model` ----------------------------------------------------------------------
_READ_TEXT = (
    "the model writes tool calls as markup into its text, which stays as it is; "
    "`model: {text_calls: leaked}` or `serve --model URL --text-calls leaked` turns them into calls"
)
_UNREAD = (
    "a request or an answer of a kind that is not read passed; `model: {mode: refuse}` refuses what is not validated, "
    "and docs/chat.md lists the APIs and limits"
)
# Refusals of requests whose answers would not be read.
_OTHER_API = BadRequest(
    codes.BAD_REQUEST,
    "The request names tools in an API whose calls this route cannot validate, and the route refuses such calls. "
    "Use Chat Completions, Responses without `background`, or Messages.",
)
_NO_BODY = BadRequest(
    codes.BAD_REQUEST,
    "The request could not be read, and this route refuses calls that it cannot validate. Send plain "
    "JSON within the limit of the route.",
)
# The most unusable schemas that are remembered, so that each is reported once.
_MOST_REPORTED = 1_000


class ModelRelay:
    """Implements `RelayHandler` (server/listed_routes.py). Belongs to one event loop."""

    def __init__(self, clock: Clock, reports: Reports) -> None:
        self._clock = clock
        self._reports = reports
        self._metrics = ModelMetrics(reports.metrics)
        self._large = LargeBodies()
        self._unusable: set[tuple[str, str, str]] = set()
        self._unread: set[tuple[str, str]] = set()  # routes and reasons that were reported
        self._leaking: set[str] = set()  # routes of which a leaked call was reported
        self._judges: dict[str, tuple[BroughtTools, CallJudge]] = {}

    async def close(self) -> None:
        """Nothing runs beside the requests."""

    async def handle(self, listed: ListedRequest) -> Answer | RouteRequest:
        """Answers one request; gives it back where its answer is not read."""
        call_route = listed.call_route
        route, raw = call_route.binding.route, call_route.raw
        settings = _find_settings(route)
        api = find_api(raw.method, raw.path)
        if raw.method != "POST" or not is_json(raw.header("content-type") or ""):
            return call_route if api is None else self._leave_unread(listed, "request", _NO_BODY)
        if not _is_readable(raw, settings):
            is_left = api is not None or settings.mode == "refuse"
            return self._leave_unread(listed, "request", _NO_BODY) if is_left else call_route
        arriving = listed.find_request()
        await say_continue(arriving, Fields(raw.headers))
        body = await read_whole(arriving, settings.max_request, route.timeout, call_route.memory)
        if isinstance(body, BadRequest):
            return _refuse_unread(listed, body)
        call_route = replace(call_route, raw=replace(raw, body=body))
        listed = replace(listed, call_route=call_route)
        if api is None:
            return self._leave_unread(listed, "api", _OTHER_API) if names_tools(raw.path, body) else call_route
        request = await self._large.read_request(listed, api, body)
        if isinstance(request, JsonProblem):
            return self._leave_unread(listed, "request", _NO_BODY)
        if isinstance(request, ModelRequest) and request.is_later:
            return self._leave_unread(listed, "api", _OTHER_API)
        return call_route if request is None else await self._answer(listed, request)

    def _leave_unread(self, listed: ListedRequest, reason: str, why: BadRequest) -> Answer | RouteRequest:
        """The request, to be relayed although its answer is not read; or its refusal."""
        call_route = listed.call_route
        self._count_unread(call_route.binding.route.name, reason)
        is_refused = _find_settings(call_route.binding.route).mode == "refuse"
        return _refuse_unread(listed, why) if is_refused else call_route

    def _count_unread(self, route: str, reason: str) -> None:
        """Counts a request or an answer that is not read, and reports the first one for each route and reason."""
        self._metrics.count_unread(route, reason)
        if (route, reason) not in self._unread:
            self._unread.add((route, reason))
            self._reports.log.event("model calls not validated", "warning", route=route, reason=reason, hint=_UNREAD)

    async def _answer(self, listed: ListedRequest, request: ModelRequest) -> Answer:
        call_route, record = listed.call_route, listed.record
        route = call_route.binding.route
        exchange = self._make_exchange(listed, request)
        started = self._clock.now()
        record_passthrough(record, route.upstream, received=len(call_route.raw.body), since=started)
        reply = await exchange.ask()
        record_passthrough(record, route.upstream, reply, self._clock.now() - started)
        if isinstance(reply, UpstreamFault):
            return answer_fault(call_route.binding, call_route.raw, reply, record)
        repairs: tuple[Repair, ...] = ()
        is_readable = is_plain(reply)
        media_type = reply.header("content-type")
        if is_readable and is_json(media_type):
            if isinstance(found := await exchange.judge_whole(reply), Response):
                return found
            reply, repairs = found
        elif is_readable and media_type.lower().startswith("text/event-stream"):
            if isinstance(begun := await exchange.judge_stream(reply), Response):
                return begun
            reply, repairs = begun
        elif reply.status // 100 == 2:
            self._count_unread(route.name, "no_json" if is_readable else "compressed")
            if _find_settings(route).mode == "refuse":
                return await exchange.refuse_unread(reply)
        delivered = Delivered(reply, repairs, keeps_request_id=True)
        return await listed.deliver(delivered)

    def _make_exchange(self, listed: ListedRequest, request: ModelRequest) -> ModelExchange:
        route = listed.call_route.binding.route
        settings = _find_settings(route)
        looks_for_leaks = settings.text_calls == "off" and route.name not in self._leaking
        return ModelExchange(
            listed,
            request,
            settings,
            self._find_judge(listed),
            self._large,
            partial(self._note, listed, request),
            partial(self._count_unread, route.name),
            partial(self._note_leak, route.name) if looks_for_leaks else None,
        )

    def _note_leak(self, route: str, tool: str) -> None:
        """Reports that a model writes calls into its text, once for each route."""
        if route not in self._leaking:
            self._leaking.add(route)
            self._reports.log.event("tool call left in text", "warning", route=route, tool=tool, hint=_READ_TEXT)

    def _note(self, listed: ListedRequest, request: ModelRequest, found: FinalAnswer) -> None:
        """Notes the calls of the client's answer. From then on metrics name the tools of the request."""
        route = listed.call_route.binding.route
        self._reports.metrics.learn_tools(
            route.name, [call.tool for call in found.answer.calls if call.tool in request.tools.tools]
        )
        self._metrics.count_answer(route.name, request.model, found)
        self._report_unusable(route.name, found.answer.calls)
        note_calls(listed, request, found, self._clock.now(), _find_settings(route))

    def _report_unusable(self, route: str, calls: list[JudgedCall]) -> None:
        """Reports the called tools whose schemas cannot be used, each once."""
        for call in calls:
            if call.unusable and (route, call.tool, call.unusable) not in self._unusable:
                self._unusable.add((route, call.tool, call.unusable))
                self._reports.note_unusable(route, call.tool, call.unusable)
        if len(self._unusable) > _MOST_REPORTED:
            self._unusable.clear()

    def _find_judge(self, listed: ListedRequest) -> CallJudge:
        route, elsewhere = listed.call_route.binding.route, listed.services.elsewhere
        if route.brought is None or elsewhere is None:
            raise AssertionError(
                "a relayed route says how brought tools are judged, and a proxy that serves has children"
            )
        known = self._judges.get(route.key)
        if known is None or known[0] is not route.brought:  # the first request, or the first after a reload
            known = self._judges[route.key] = (route.brought, CallJudge(route.brought, elsewhere))
        return known[1]


def _find_settings(route: Route) -> ModelSettings:
    relayed_by = route.relayed_by
    return ModelSettings() if relayed_by is None else relayed_by.settings


def _is_readable(raw: RawRequest, settings: ModelSettings) -> bool:
    """Returns whether a request's body is plain and of a readable size."""
    plain = (raw.header("content-encoding") or "identity") == "identity"
    return plain and int(raw.header("content-length") or 0) <= settings.max_request


def _refuse_unread(listed: ListedRequest, why: BadRequest) -> Response:
    """The response to a request whose body could not be read. The connection closes, because of its unread rest."""
    result = make_refusal(why.code, why.message, listed.record, why.status)
    response = answer_failure(listed.call_route.binding, listed.call_route.raw, result, listed.record)
    response.closes = True
    return response

"""Provides the corrector of a config. The memory of conversations outlives a reload."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from proxy.call_record import CallRecord
from proxy.config.model import Config
from proxy.core.model.values import UpstreamFault, UpstreamReply
from proxy.extensions.correction.core.settings import CorrectionSettings, DebugStore
from proxy.extensions.correction.core.words import BudgetKind, CorrectionQuestion, Layer, QuestionOutcome
from proxy.extensions.correction.correction_section import find_correction
from proxy.extensions.correction.corrector import ModelCorrector
from proxy.extensions.correction.endpoint import Endpoint
from proxy.extensions.correction.record import DebugLog
from proxy.extensions.correction.trajectory import Trajectories
from proxy.interfaces import Clock, GuardedUpstream, Observer, Pacing, Services, UpstreamRequest
from proxy.plugin import OTHER, Label, Log, MetricRow, Metrics, OutgoingClient, make_settings
from proxy.routing import RouteTable

# --- metrics ----------------------------------------------------------------------------------------------------------
# The events that are counted (GoMind's span events).
EVENTS: Final = (
    "validation_feedback_started",
    "validation_feedback_success",
    "validation_feedback_failed",
    "contextual_re_resolution.start",
    "contextual_re_resolution.complete",
)
# Model endpoints take seconds.
_BOUNDS: Final = (0.1, 0.25, 0.5, 1, 2, 3, 5, 7.5, 10, 15, 20, 30, 60)
_CALL: Final = ("route", "tool")
_LAYER: Final = {"layer": Label("Layer 3 (`validation_feedback`) or layer 4 (`semantic_retry`).", tuple(Layer))}
EVENTS_COUNTED: Final = MetricRow(
    "toolproxy_corrections_total", "counter", "Events of the optional correction layers.", (*_CALL, "event"),
    {"event": Label("The event, as in the span.", EVENTS)},
)  # fmt: skip
QUESTIONS: Final = MetricRow(
    "toolproxy_correction_questions_total", "counter",
    "Questions to the model endpoint ([correction.md](correction.md)).",
    (*_CALL, "layer", "outcome", "independent"),
    {**_LAYER, "outcome": Label("The outcome; `busy` and `budget`: nothing was asked.", tuple(QuestionOutcome)),
     "independent": Label("No earlier result of the conversation was known.", ("true", "false"))},
)  # fmt: skip
SECONDS: Final = MetricRow(
    "toolproxy_correction_seconds", "histogram", "How long the model endpoint took for one question.", ("layer",),
    _LAYER, bounds=_BOUNDS,
)  # fmt: skip
TOKENS: Final = MetricRow(
    "toolproxy_correction_tokens_total", "counter",
    "Tokens that questions and answers took, by the endpoint's own count (`usage`).",
    (*_CALL, "layer", "kind"),
    {**_LAYER, "kind": Label("The question (`prompt`), or the answer (`completion`).", ("prompt", "completion"))},
)  # fmt: skip
BUDGETS: Final = MetricRow(
    "toolproxy_correction_budget_exhausted_total", "counter",
    "Questions that were not asked, because a budget was used up.", (*_CALL, "budget"),
    {"budget": Label("The key in `correction.budget`.", tuple(BudgetKind))},
)  # fmt: skip
METRICS: Final = (EVENTS_COUNTED, QUESTIONS, SECONDS, TOKENS, BUDGETS)


class CorrectionMetrics:
    """Implements `ConfiguredObserver`, and `Observer` if the config has corrections."""

    def __init__(self, _clock: Clock, _pacing: Pacing, metrics: Metrics, _log: Log) -> None:
        self._knows = metrics.knows
        self._events = metrics.add_counter(EVENTS_COUNTED).series
        self._questions = metrics.add_counter(QUESTIONS).series
        self._asking = metrics.add_histogram(SECONDS)
        self._tokens = metrics.add_counter(TOKENS).series
        self._budgets = metrics.add_counter(BUDGETS).series
        self.observers: tuple[Observer, ...] = ()

    def adopt(self, config: Config, _table: RouteTable, _digest: str) -> None:
        """Observes by this config from now on."""
        self.observers = () if find_correction(config) is None else (self,)

    async def close(self) -> None:
        """Does nothing: nothing is queued."""

    def finished(self, record: CallRecord) -> None:
        """Counts the events and questions of one finished request."""
        if not record.call_id:
            return
        route, tool = record.route or OTHER, record.tool if self._knows(record.route, record.tool) else OTHER
        for event in record.events:
            if event.name in EVENTS:
                self._events[route, tool, event.name] += 1
        for question in record.questions:
            if isinstance(question, CorrectionQuestion):
                self._count(question, route, tool)

    def _count(self, question: CorrectionQuestion, route: str, tool: str) -> None:
        self._questions[route, tool, question.layer, question.outcome, str(question.independent).lower()] += 1
        if question.seconds:  # 0 if the endpoint was not asked
            self._asking.observe(question.seconds, (question.layer,))
        for kind, count in (("prompt", question.prompt_tokens), ("completion", question.completion_tokens)):
            if count:
                self._tokens[route, tool, question.layer, kind] += count
        if question.budget is not None:
            self._budgets[route, tool, question.budget] += 1


class Corrections:
    """Makes correctors, one for each config that is served."""

    def __init__(self, services: Services, log: Log, metrics: Metrics) -> None:
        self._log = log
        self._metrics = metrics
        self._now = services.clock.now
        self._trajectories: Trajectories | None = None
        self._debug: tuple[DebugStore, DebugLog] | None = None

    def extend(self, config: Config, services: Services) -> Services:
        """Returns the services with a corrector, if the config has one."""
        settings = find_correction(config)
        if settings is None:
            return services
        if self._trajectories is None:
            self._trajectories = Trajectories(self._now)
        client = OutgoingClient(make_settings(config.upstreams[settings.upstream]))
        ask = partial(self._exchange, settings.upstream, services.upstreams[settings.upstream], client)
        endpoint = Endpoint(settings, ask)
        corrector = ModelCorrector(
            settings, endpoint, self._trajectories, services, self._store(settings), self._log.defect, self._warn_spent
        )
        return replace(services, corrector=corrector)

    async def _exchange(
        self, name: str, upstream: GuardedUpstream, client: OutgoingClient, request: UpstreamRequest, limit: int
    ) -> UpstreamReply | UpstreamFault:
        """One question, unless the upstream's guard refuses it: its breaker and its bound hold for questions too."""
        found = await upstream.guard(request, lambda entered: client.fetch(entered, limit))
        if isinstance(found, UpstreamReply):
            self._metrics.count_sent(name, found.status)
        else:
            self._metrics.count_sent(name, 0, found.token)
        return found

    async def close(self) -> None:
        """Does nothing: nothing is queued."""

    def _store(self, settings: CorrectionSettings) -> DebugLog | None:
        if settings.debug is None:
            return None
        if self._debug is None or self._debug[0] != settings.debug:
            self._debug = settings.debug, DebugLog(settings.debug, self._warn_unwritten)
        return self._debug[1]

    def _warn_spent(self, budget: BudgetKind) -> None:
        self._log.event("correction budget used up", "warning", budget=budget.value)

    def _warn_unwritten(self, error: OSError) -> None:
        self._log.event("debug store cannot be written", "warning", reason=error.strerror or type(error).__name__)

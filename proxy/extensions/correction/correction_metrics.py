"""The metrics of corrections: the layers' events, and the questions to the model endpoint."""

from __future__ import annotations

from typing import Final

from proxy.config.model import Config
from proxy.extensions.correction.core.words import BudgetKind, CorrectionQuestion, Layer, QuestionOutcome
from proxy.extensions.correction.correction_section import find_correction
from proxy.interfaces import CallRecord, Clock, Observer, Pacing
from proxy.routing import RouteTable
from proxy.telemetry.logs import Log
from proxy.telemetry.metric_table import OTHER, Label, MetricRow
from proxy.telemetry.metrics import Metrics

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

"""Counts the calls of models, the tokens of asking again, and unread answers.

The names of models come from answered requests; the first `MOST_MODELS` have their own series.
"""

from __future__ import annotations

from typing import Final

from proxy.core.display.preview import clean_text
from proxy.extensions.chat.server.asking_again import FinalAnswer
from proxy.extensions.chat.server.call_judge import JudgedCall
from proxy.telemetry.metric_table import OTHER, Label, MetricRow
from proxy.telemetry.metrics import Metrics

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

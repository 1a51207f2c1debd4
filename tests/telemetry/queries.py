"""The queries of the dashboard and of the alerts, as they are in the files that the chart ships."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from proxy.telemetry.metric_table import MetricRow
from tests.telemetry.all_metrics import OF_THE_PROCESS, list_metrics
from tests.telemetry.promql import OF_A_BUCKET, OF_THE_SCRAPE, Named, Query, named

ROOT: Final = Path(__file__).parents[2]
DASHBOARD: Final = ROOT / "helm" / "dashboards" / "toolcall-proxy.json"
ALERTS: Final = ROOT / "helm" / "alerts" / "toolcall-proxy.yaml"
RUNBOOK: Final = ROOT / "docs" / "runbook.md"

_METRICS: Final = list_metrics()
_SERIES: Final = re.compile(r"_(bucket|count|sum)$")


def panels() -> Iterator[tuple[str, str]]:
    """(title, expression) of every query of the dashboard."""
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def variables() -> Iterator[tuple[str, str]]:
    """(name, expression) of every variable that asks Prometheus: `label_values(SELECTOR, LABEL)`."""
    for variable in json.loads(DASHBOARD.read_text(encoding="utf-8"))["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]


def alerts() -> list[dict[str, Any]]:
    """Every alert of the rule file."""
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def filled(expression: str, window: str = "5m", span: str = "1h") -> str:
    """An expression of the dashboard as Grafana sends it with everything chosen."""
    for name, value in (("$__rate_interval", window), ("$__range", span)):
        expression = expression.replace(name, value)
    return re.sub(r"\$[a-z]+", ".*", expression)


def without_stand_in(expression: str) -> str:
    """An expression of the dashboard without the zero that it shows if there is no series."""
    return expression.partition(" or on () ")[0]


def mistakes(expression: str) -> list[str]:
    """Returns what an expression names that the catalogue does not know."""
    query = named(expression)
    found = [mistake for metric in query.metrics for mistake in _of(metric)]
    known = {label for metric in query.metrics for label in _labels(metric)}
    return found + [f"no metric here has the label {label}" for label in sorted(query.grouped - known)]


def metrics_in(query: Query) -> set[str]:
    """The names of the catalogue that a query uses."""
    return {described.name for metric in query.metrics if (described := _described(metric.metric)) is not None}


def _described(series: str) -> MetricRow | None:
    return _METRICS.get(series) or _METRICS.get(_SERIES.sub("", series))


def _labels(metric: Named) -> set[str]:
    described = _described(metric.metric)
    own = set(described.labels) if described is not None else set()
    return own | OF_THE_SCRAPE | ({OF_A_BUCKET} if metric.metric.endswith("_bucket") else set())


def _of(metric: Named) -> Iterator[str]:
    described = _described(metric.metric)
    if described is None:
        if metric.metric not in (*OF_THE_PROCESS, "up"):
            yield f"{metric.metric} is not a metric"
        return
    if (described.kind == "histogram") != (_SERIES.search(metric.metric) is not None):
        yield f"{metric.metric} is not a series of a {described.kind}"
    for label, sign, text in metric.matchers:
        if label not in _labels(metric):
            yield f"{metric.metric} has no label {label}"
        elif label in described.labels and (values := described.label(label).values):
            yield from (f"{metric.metric} never has {label}={each!r}" for each in _never(sign, text, values))


def _never(sign: str, text: str, values: tuple[str, ...]) -> list[str]:
    """Returns what a matcher asks for that a label never is. Of a pattern each plain alternative, else the whole has to
    fit."""
    if sign in ("=", "!="):
        return [] if text in values else [text]
    if re.fullmatch(r"[\w|]+", text):
        return [each for each in text.split("|") if each not in values]
    return [] if any(re.fullmatch(text, value) for value in values) else [text]

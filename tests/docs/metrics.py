"""Makes docs/reference/metrics.md from the table of metrics.

python -m tests.docs.metrics    writes the page (`make docs`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proxy.telemetry.metric_table import LABELS, Label, MetricRow
from proxy.telemetry.watches import EVERY
from tests.telemetry.all_metrics import OF_THE_PROCESS, list_metrics

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
# Longer lists of values are on their own pages, which the label's meaning links to.
_MOST_LISTED: Final = 12
# The table's texts link to pages of docs, but for these two, which lie beside the page.
_LINK: Final = re.compile(r"\]\((?!codes|rules)(?=[a-z-]+\.md)")

_HEAD: Final = f"""\
# Every metric

Alerts: [runbook.md](../runbook.md).

`make docs` makes this page from `proxy/telemetry/metric_table.py`. The operator's port and the probes' port serve
`/metrics`.

- Units are seconds and bytes. Counters end in `_total`. The two HTTP histograms bear OpenTelemetry's names.
- Label values come from the config or from the tables below. A tool or method that a client invents counts as `_other`.
  No conversation, path or value of a call is a label. So the config bounds the series.
- A counter has no series before it first counts. The event loop's lag is measured every {EVERY:g} s.
- Several workers show one page, summed: [operations.md](../operations.md#several-workers).

| metric | type | labels | meaning |
|---|---|---|---|
"""

# GoMind's metrics ("Observability", "Metrics for Layer 3"), and what tells the same here
# (docs/evidence/other-systems.md).
GOMIND: Final = {
    "type_coercion.applied": "toolproxy_coerced_calls_total",
    "validation_feedback.attempts": 'toolproxy_corrections_total{event="validation_feedback_started"}',
    "validation_feedback.success": 'toolproxy_corrections_total{event="validation_feedback_success"}',
    "validation_feedback.failed": 'toolproxy_corrections_total{event="validation_feedback_failed"}',
    "validation_feedback.failed by (reason)": (
        "sum by (outcome) (toolproxy_correction_questions_total"
        '{layer="validation_feedback", outcome!~"delivered|busy|budget"})'
    ),
    "semantic_retry.attempts": 'toolproxy_correction_seconds_count{layer="semantic_retry"}',
    "semantic_retry.success": 'toolproxy_correction_questions_total{layer="semantic_retry", outcome="delivered"}',
    "semantic_retry.independent_step": (
        'toolproxy_correction_questions_total{layer="semantic_retry", independent="true"}'
    ),
    "semantic_retry.llm_latency_ms": 'toolproxy_correction_seconds_bucket{layer="semantic_retry"}',
}

_PROCESS: Final = """\

The client library adds metrics of the process: {}.

## Labels

First the labels that have one meaning everywhere, then those of single metrics.

| label | of | meaning | values |
|---|---|---|---|
"""


def page() -> str:
    """The page."""
    process = _PROCESS.format(", ".join(f"`{name}`" for name in OF_THE_PROCESS))
    parts = (_HEAD, *map(row, list_metrics().values())), (process, *labels())
    text = "\n".join("".join(line.strip("\n") + "\n" for line in lines) for lines in parts)
    return _LINK.sub("](../", text)


def gomind() -> list[str]:
    """The rows of GoMind's metrics."""
    return [f"| `{name}` | `{ours}` |" for name, ours in GOMIND.items()]


def row(metric: MetricRow) -> str:
    """The row of one metric."""
    own = ", ".join(f"`{label}`" for label in metric.labels) or "–"
    return f"| `{metric.name}` | {metric.kind} | {own} | {metric.meaning} |"


def labels() -> Iterator[str]:
    """A row for each label, and for each that tells something else of one metric."""
    for name, label in LABELS.items():
        yield _label(name, "all", label)
    for metric in list_metrics().values():
        for name, label in metric.own.items():
            yield _label(name, f"`{metric.name}`", label)


def _label(name: str, of: str, label: Label) -> str:
    values = ", ".join(f"`{value}`" for value in label.values)
    shown = values if len(label.values) <= _MOST_LISTED else f"{len(label.values)} of them"
    return f"| `{name}` | {of} | {label.meaning} | {shown or '–'} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

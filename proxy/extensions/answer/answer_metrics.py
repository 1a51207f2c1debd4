"""The metric of filtered answers."""

from __future__ import annotations

from typing import Final

from proxy.telemetry.metric_table import Label, MetricRow

CHANGES: Final = ("masked", "cut", "too_large", "unread", "broken")
COUNTED: Final = MetricRow(
    "toolproxy_answer_changes_total", "counter",
    "Answers that `answer:` changed or withheld.", ("route", "tool", "change"),
    {"change": Label(
        "The change: `masked` or `cut`; withheld as `too_large` or `unread`, or because it is `broken`.",
        CHANGES,
    )},
)  # fmt: skip
METRICS: Final = (COUNTED,)

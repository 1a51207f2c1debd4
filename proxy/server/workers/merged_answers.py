"""The answers of several workers as one: counts are summed, of percentiles the worst counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from proxy.core.model.values import JsonValue

_BAR: Final = 15
_BREAKERS: Final = ("none", "closed", "half-open", "open")

Answer = dict[str, Any]


def merge_overviews(answers: Sequence[Answer]) -> JsonValue:
    """The overview of all workers."""
    whole = dict(answers[0])
    whole["workers"] = len(answers)
    whole["totals"] = _sum(answer["totals"] for answer in answers)
    whole["own_p95_ms"] = _worst(answer["own_p95_ms"] for answer in answers)
    whole["by_address"] = _sum(answer["by_address"] for answer in answers)
    whole["bars"] = _merge_bars(answers)
    whole["breakers"] = _merge_breakers(answers)
    for name in ("calls_kept", "calls_bound"):
        whole[name] = sum(answer[name] for answer in answers)
    rows = _grouped((row for answer in answers for row in answer["tools"]), lambda row: (row["route"], row["tool"]))
    whole["tools"] = sorted((_merge_row(same) for same in rows), key=lambda row: -row["calls"])
    needs = {need["what"] + need["text"]: need for answer in answers for need in answer["needs"]}
    whole["needs"] = list(needs.values())
    return whole


def merge_tools(answers: Sequence[Answer]) -> JsonValue:
    """One tool's page. A proposed change is that of the worker in which it rests on the most calls."""
    whole = dict(answers[0])
    whole["outcomes"] = _sum(answer["outcomes"] for answer in answers)
    whole["calls"] = sum(answer["calls"] for answer in answers)
    mistakes = _grouped(
        (row for answer in answers for row in answer["mistakes"]), lambda row: (row["path"], row["code"])
    )
    whole["mistakes"] = sorted((_merge_counts(same) for same in mistakes), key=lambda row: -row["calls"])
    keys = _grouped((row for answer in answers for row in answer["invented"]), lambda row: (row["parent"], row["name"]))
    whole["invented"] = sorted((_merge_counts(same) for same in keys), key=lambda row: -row["calls"])
    changes = _grouped((row for answer in answers for row in answer["changes"]), lambda row: (row["rule"], row["path"]))
    whole["changes"] = [max(same, key=lambda row: row["calls"]) for same in changes]
    return whole


def merge_upstreams(answers: Sequence[Answer]) -> JsonValue:
    """Every upstream, as all workers see it."""
    rows = _grouped((row for answer in answers for row in answer["upstreams"]), lambda row: row["upstream"])
    return {"upstreams": [_merge_upstream(same) for same in rows]}


def _merge_upstream(rows: Sequence[Answer]) -> Answer:
    worst = max(rows, key=lambda row: _BREAKERS.index(row["breaker"]))
    changes = sorted(
        (each for row in rows for each in row["changes"]), key=lambda each: each["timestamp"], reverse=True
    )
    return worst | {
        "requests": _sum(row["requests"] for row in rows),
        "faults": _sum(row["faults"] for row in rows),
        "resent": sum(row["resent"] for row in rows),
        "p50_ms": _worst(row["p50_ms"] for row in rows),
        "p95_ms": _worst(row["p95_ms"] for row in rows),
        "changes": changes,
    }


def _merge_row(rows: Sequence[Answer]) -> Answer:
    whole = _merge_counts(rows)
    worst = [row["worst"] for row in rows if "worst" in row]
    if worst:
        whole["worst"] = max(worst, key=lambda each: each["calls"])
    whole["p95_ms"] = _worst(row["p95_ms"] for row in rows)
    if "safe_to_enforce" in whole:
        whole["safe_to_enforce"] = all(row.get("safe_to_enforce") for row in rows)
    return whole


def _merge_counts(rows: Sequence[Answer]) -> Answer:
    """Rows of one thing: whole numbers and counts are summed, everything else is that of the first."""
    whole = dict(rows[0])
    for name, value in rows[0].items():
        if isinstance(value, int) and not isinstance(value, bool):
            whole[name] = sum(row.get(name, 0) for row in rows)
        elif isinstance(value, dict) and all(isinstance(number, int) for number in value.values()):
            whole[name] = _sum(row.get(name, {}) for row in rows)
        elif name == "last":
            whole[name] = max(row[name] for row in rows)
    return whole


def _merge_bars(answers: Sequence[Answer]) -> list[Answer]:
    """Intervals of the workers, which end at different seconds, by the quarter of the minute that they end in."""
    bars = _grouped((bar for answer in answers for bar in answer["bars"]), lambda bar: _quarter(bar["at"]))
    merged = [
        {"at": max(bar["at"] for bar in same), "outcomes": _sum(bar["outcomes"] for bar in same)} for same in bars
    ]
    return sorted(merged, key=lambda bar: str(bar["at"]))


def _quarter(stamp: str) -> int:
    return int(datetime.fromisoformat(stamp).timestamp()) // _BAR


def _merge_breakers(answers: Sequence[Answer]) -> dict[str, str]:
    names = [name for answer in answers for name in answer["breakers"]]
    return {
        name: max((answer["breakers"].get(name, "none") for answer in answers), key=_BREAKERS.index) for name in names
    }


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def _worst(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)


def _grouped(rows: Iterable[Answer], name: Callable[[Answer], object]) -> list[list[Answer]]:
    """Rows of the same name together, in the order in which they are first met."""
    found: dict[object, list[Answer]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return list(found.values())

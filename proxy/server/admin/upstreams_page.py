"""`/-/upstreams`: how each service behind the proxy does: its breaker, its answers, its faults, its times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from proxy.config.model import UpstreamConfig
from proxy.core.model.values import JsonValue
from proxy.server.admin.console_data import ConsoleData
from proxy.server.admin.page import Page, make_json_page
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.recent.ring import CallFilter, make_entry

_WINDOW: Final = 900.0
_MIDDLE, _HIGH = 0.5, 0.95


def show_upstreams(
    data: ConsoleData, upstreams: Mapping[str, UpstreamConfig], breakers: Mapping[str, str], metrics: Metrics
) -> Page:
    """Every upstream of the config. Requests and resends since the start; faults and times of the last 15 minutes."""
    times, sent, resent = _read_times(data), metrics.sent.series, metrics.resent.series
    shown = []
    for name in upstreams:
        changes = data.changes.breaker_changes(name)
        took = sorted(times[name])
        row: dict[str, JsonValue] = {
            "upstream": name,
            "breaker": breakers.get(name, "none"),
            "breaker_since": changes[0]["timestamp"] if changes else None,
            "requests": {labels[1]: int(number) for labels, number in sent.items() if labels[0] == name},
            "faults": dict(data.changes.faults(name, data.wall() - _WINDOW)),
            "resent": sum(int(number) for labels, number in resent.items() if labels[0] == name),
            "p50_ms": _at(took, _MIDDLE),
            "p95_ms": _at(took, _HIGH),
            "changes": changes[:20],
        }
        shown.append(row)
    return make_json_page({"upstreams": shown})


def _read_times(data: ConsoleData) -> Mapping[str, list[float]]:
    """How long each upstream took, over the kept calls of the window."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for kept in data.recent.select(CallFilter(since=data.wall() - _WINDOW)):
        entry = make_entry(kept)
        if "upstream.duration_ms" in entry:
            found[str(entry["server.address"])].append(entry["upstream.duration_ms"])
    return found


def _at(took: list[float], share: float) -> float | None:
    return took[min(len(took) - 1, int(len(took) * share))] if took else None

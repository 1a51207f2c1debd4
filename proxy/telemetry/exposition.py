"""What a scrape shows: the families of `tallies.py` as text in Prometheus' format. The room of prometheus_client.

The library is loaded when somebody scrapes for the first time, so that neither the start nor a proxy that nobody
scrapes pays for its web servers; `loaded` does it in a thread, while calls go on.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from proxy.telemetry.catalogue import CATALOGUE, Kind
from proxy.telemetry.tallies import Count, Family, Gauge, Spread

if TYPE_CHECKING:
    from prometheus_client import Metric, ProcessCollector

_LIBRARY: Final = "prometheus_client"


async def loaded() -> None:
    """Returns once the library is there, without holding up the event loop."""
    if _LIBRARY not in sys.modules:
        await asyncio.to_thread(__import__, _LIBRARY)


def exposition(families: Iterable[Family[Any]]) -> tuple[str, bytes]:
    """Content type and text of the page that shows these families, and what the library tells of the process."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    page = _Page((*map(_shown, families), *_process().collect()))
    return CONTENT_TYPE_LATEST, generate_latest(page)


@cache
def _process() -> ProcessCollector:
    from prometheus_client import ProcessCollector

    return ProcessCollector(registry=None)


class _Page:
    """What the library takes for a collector."""

    def __init__(self, metrics: tuple[Metric, ...]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _shown(family: Family[Any]) -> Metric:
    from prometheus_client import Metric

    described = CATALOGUE[family.name]
    suffix, add = _ADD[described.kind]
    metric = Metric(family.name.removesuffix(suffix), family.meaning, described.kind)
    for values, series in family.series.items():
        add(metric, dict(zip(family.labels, values, strict=True)), series)
    return metric


def _add_count(metric: Metric, labels: dict[str, str], count: Count) -> None:
    metric.add_sample(f"{metric.name}_total", labels, count.value)


def _add_gauge(metric: Metric, labels: dict[str, str], gauge: Gauge) -> None:
    metric.add_sample(metric.name, labels, float(gauge.read()))


def _add_info(metric: Metric, labels: dict[str, str], gauge: Gauge) -> None:
    metric.add_sample(f"{metric.name}_info", labels, gauge.read())


def _add_spread(metric: Metric, labels: dict[str, str], spread: Spread) -> None:
    from prometheus_client.utils import floatToGoString

    counted = spread.cumulative()
    for bound, count in zip((*map(floatToGoString, spread.bounds), "+Inf"), counted, strict=True):
        metric.add_sample(f"{metric.name}_bucket", {**labels, "le": bound}, count)
    metric.add_sample(f"{metric.name}_count", labels, counted[-1])
    metric.add_sample(f"{metric.name}_sum", labels, spread.total)


# Kind of metric -> what its samples add to the library's name for it, and how one series is shown.
_ADD: Final[Mapping[Kind, tuple[str, Callable[[Metric, dict[str, str], Any], None]]]] = {
    "counter": ("_total", _add_count),
    "gauge": ("", _add_gauge),
    "histogram": ("", _add_spread),
    "info": ("_info", _add_info),
}

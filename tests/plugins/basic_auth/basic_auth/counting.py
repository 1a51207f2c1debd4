"""Counts the requests of routes that have the key `basic`."""

from __future__ import annotations

from typing import Final

from proxy.call_record import CallRecord
from proxy.config.model import Config
from proxy.interfaces import Observer
from proxy.routing import RouteTable
from proxy.telemetry.metric_table import MetricRow
from proxy.telemetry.metrics import Metrics

CALLS: Final = MetricRow("toolproxy_basic_requests_total", "counter", "Requests of routes with `basic`.", ("route",))


class CountedUsers:
    """Counts finished requests by route."""

    def __init__(self, metrics: Metrics) -> None:
        self._series = metrics.add_counter(CALLS).series
        self._routes: frozenset[str] = frozenset()

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Itself, if a route has the key."""
        return (self,) if self._routes else ()

    def adopt(self, config: Config, table: RouteTable, digest: str) -> None:  # noqa: ARG002
        """Counts the routes of this config from now on."""
        self._routes = frozenset(entry.name for entry in config.routes if "basic" in entry.policy.added)

    def finished(self, record: CallRecord) -> None:
        """Counts one request."""
        if record.route in self._routes:
            self._series[record.route,] += 1

    async def close(self) -> None:
        """Has nothing to end."""

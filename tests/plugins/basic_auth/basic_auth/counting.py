"""Counts the requests of routes that have the key `basic`, and the calls of tools that have the limit `total`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from proxy.call_record import CallRecord
from proxy.config.model import Config
from proxy.core.model import codes
from proxy.core.model.values import CheckedCall, Failure
from proxy.interfaces import CallRoute, Observer
from proxy.plugin import MetricRow, Metrics
from proxy.routing import RouteTable

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


class TotalLimiter:
    """Refuses the calls of a tool beyond a total."""

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    async def admit(
        self,
        checked: CheckedCall,
        limits: Mapping[str, Any],
        call_route: CallRoute,  # noqa: ARG002
    ) -> Failure | Callable[[], None] | None:
        """Counts a call, or refuses it."""
        tool = checked.call.tool
        if self._calls[tool] >= limits.get("total", float("inf")):
            return Failure(codes.TOO_MANY_CALLS_AT_ONCE, f"Tool '{tool}' was called as often as it may be.")
        self._calls[tool] += 1
        return None

"""Tells the operator of the tools that servers list: by the log and by metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.core.lint.contradictions import describe_gaps
from proxy.plugin import OTHER, Check, MetricRow

if TYPE_CHECKING:
    from proxy.plugin import Reports

UNGUARDED: Final = MetricRow(
    "toolproxy_unguarded_schemas_total",
    "counter",
    "Listed schemas that check less than they say: a misspelt keyword, or limits that exclude each other.",
    ("route", "tool"),
)
AMBIGUOUS: Final = MetricRow(
    "toolproxy_ambiguous_tools_total",
    "counter",
    "Entries of lists, and with an empty `tool` whole lists, with keys that differ only in case, each time hidden.",
    ("route", "tool"),
)
METRICS: Final = (UNGUARDED, AMBIGUOUS)
# Entries of servers whose second reading is logged.
_MAX_LOGGED: Final = 1_000


class ListReports:
    """The reports of one process. `learn_tools` and the methods for a tool are called once per list, `note_unpinned`
    each time that a list is read."""

    def __init__(self, reports: Reports) -> None:
        self._log = reports.log
        self._metrics = reports.metrics
        self._unguarded = reports.metrics.add_counter(UNGUARDED).series
        self._logged: set[tuple[str, str]] = set()
        self._ambiguous = reports.metrics.add_counter(AMBIGUOUS).series
        self.learn_tools = reports.metrics.learn_tools
        self.note_unusable = reports.note_unusable
        self.note_unpinned = reports.unpinned

    def note_unguarded(self, route: str, tool: str, check: Check) -> None:
        """Logs and counts a schema that surely means more than it guards."""
        if remarks := describe_gaps(check):
            self._unguarded[route, tool if self._metrics.knows(route, tool) else OTHER] += 1
            self._log.event("tool schema guards less than it says", "warning", route=route, tool=tool, remarks=remarks)

    def note_ignored_aliases(self, route: str, tool: str, aliases: list[str]) -> None:
        """Logs aliases of the config that the listed schema leaves no use for."""
        if aliases:
            reason = "the listed schema declares these names, or does not declare their targets"
            self._log.event("aliases ignored", "warning", route=route, tool=tool, aliases=aliases, reason=reason)

    def note_ambiguous(self, route: str, tool: str, reason: str) -> None:
        """Counts an entry, or a list (`tool` is ''), that has two readings, and logs its first time."""
        known = tool if not tool or self._metrics.knows(route, tool) else OTHER
        if (route, tool) not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add((route, tool))
            self._log.event("tool list has two readings", "warning", route=route, tool=tool, reason=reason)
        self._ambiguous[route, known] += 1

"""What the console's pages read: everything kept of the last minutes, and the names of this run of the process.

A page sees nothing else of the proxy. `make_console_data` fills it from the config: with
`console: off` only failed calls are kept, and nothing is counted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from proxy.config.model import AdminConfig
from proxy.interfaces import Observer
from proxy.telemetry.recent.mistake_counts import MistakeCounts
from proxy.telemetry.recent.ring import KEPT_WRONG, KeptValues, RecentCalls
from proxy.telemetry.recent.timeline import ChangeLog, Counts, RequestBars


@dataclass(frozen=True, slots=True)
class ConsoleData:
    """`recent` are the last calls; `mistakes` and `bars` count, and are None with `console: off`. `values` says how
    arguments are kept: off, preview or full. `wall` in seconds since the epoch."""

    recent: RecentCalls
    changes: ChangeLog
    wall: Callable[[], float]
    values: str = "off"
    mistakes: MistakeCounts | None = None
    bars: RequestBars | None = None

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers that are told of finished requests."""
        counting: tuple[Observer, ...] = () if self.mistakes is None else (self.mistakes, self.changes)
        return (*counting, self.recent)

    def begin(self) -> None:
        """Starts reading the counters at intervals. Must be called inside the event loop."""
        if self.bars is not None:
            self.bars.begin()

    def end(self) -> None:
        """Stops reading the counters."""
        if self.bars is not None:
            self.bars.end()


def make_console_data(
    entry: AdminConfig | None, read: Callable[[], Counts], wall: Callable[[], float]
) -> ConsoleData | None:
    """The data of an operator's port; None without one. `read` gives all requests so far."""
    if entry is None:
        return None
    boot = secrets.token_hex(4)
    if not entry.console:
        return ConsoleData(RecentCalls(wall, boot, KEPT_WRONG, only_wrong=True), ChangeLog(wall), wall)
    values = None if entry.values == "off" else KeptValues(entry.values, entry.keep_values)
    return ConsoleData(
        RecentCalls(wall, boot, entry.keep_calls, values=values),
        ChangeLog(wall),
        wall,
        entry.values,
        MistakeCounts(wall, values=values is not None),
        RequestBars(read, wall),
    )


def list_observers(data: ConsoleData | None) -> tuple[Observer, ...]:
    """The observers that are told of finished requests; none without an operator's port."""
    return () if data is None else data.observers

"""The data that the console's pages show: the last calls, the last changes of the proxy, and counts of mistakes.

`make_console_data` creates the `ConsoleData` from the config. With `console: off` only failed calls are kept, and
mistakes and requests are not counted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from proxy.config.model import AdminConfig
from proxy.core.model.value_class import value_class
from proxy.interfaces import CallRecord
from proxy.telemetry.recent.kept_values import KeptValues
from proxy.telemetry.recent.mistake_counts import MistakeCounts
from proxy.telemetry.recent.ring import KEPT_WRONG, RecentCalls
from proxy.telemetry.recent.timeline import ChangeLog, Counts, RequestBars


@value_class
class ConsoleData:
    """Implements `Observer`: the data that the console's pages show.

    `recent` holds the last calls, `changes` the last changes of the proxy. `mistakes` counts mistakes and `bars` counts
    requests per interval; both are None with `console: off`. `values` says how arguments are kept: off, preview or
    full. `wall` returns seconds since the epoch.
    """

    recent: RecentCalls
    changes: ChangeLog
    wall: Callable[[], float]
    values: str = "off"
    mistakes: MistakeCounts | None = None
    bars: RequestBars | None = None

    def finished(self, record: CallRecord) -> None:
        """Keeps and counts one finished request."""
        if self.mistakes is not None:
            if record.violations or record.repairs or record.corrected_after:
                self.mistakes.count_call(record)
            if record.upstream_error:
                self.changes.add_fault(record.upstream, record.upstream_error)
        self.recent.finished(record)

    def begin(self) -> None:
        """Starts the task that samples the request counters. Must be called inside the event loop."""
        if self.bars is not None:
            self.bars.begin()

    def end(self) -> None:
        """Stops the task that samples the request counters."""
        if self.bars is not None:
            self.bars.end()


def make_console_data(
    entry: AdminConfig | None, read: Callable[[], Counts], wall: Callable[[], float]
) -> ConsoleData | None:
    """Creates the data for an operator's port; None without one. `read` returns the counts of all requests so far."""
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

"""What the operator's port looks back at: the last calls, the last changes of the proxy, and what the console counts.

`make_console_data` creates the `ConsoleData` from the config. With `console: off` only failed calls are kept, and
nothing is counted.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, Protocol

from proxy.config.model import AdminConfig
from proxy.core.model.value_class import value_class
from proxy.interfaces import CallRecord, Observer
from proxy.plugin import AddsPages
from proxy.plugins import find_plugins
from proxy.telemetry.recent.ring import KEPT_WRONG, KeptValues, RecentCalls

# (route, tool, outcome) -> how many; a plugin's own counters have keys of their own
Counts = Mapping[tuple[Any, ...], float]
ChangeEvent = Literal["reload", "breaker", "drain"]


class LoggedChange(NamedTuple):
    """One change: its number, its time (seconds since the epoch), the event, and its fields: names, times and places in
    the config, never a value of it."""

    seq: int
    at: float
    event: ChangeEvent
    data: dict[str, Any]


class ChangeLog:
    """The last changes of the proxy: 50 reloads, 200 changes of breakers, the begin of a drain. `wall` gives seconds
    since the epoch."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.last = 0
        self._wall = wall
        self._kept: dict[ChangeEvent, deque[LoggedChange]] = {
            "reload": deque(maxlen=50), "breaker": deque(maxlen=200), "drain": deque(maxlen=1),
        }  # fmt: skip

    def add(self, event: ChangeEvent, **data: Any) -> None:
        """Adds a change with its fields."""
        self.last += 1
        self._kept[event].append(LoggedChange(self.last, self._wall(), event, data))

    def add_reload(self, result: str, digest: str, mistakes: Sequence[str], changed: Sequence[str]) -> None:
        """Adds an attempt to reload the config; `changed` names what differs from the config before."""
        self.add("reload", result=result, digest=digest, mistakes=list(mistakes)[:20], changed=list(changed)[:50])

    def list_latest(self, event: ChangeEvent) -> list[dict[str, Any]]:
        """The changes of one kind, the latest first."""
        return [
            {"timestamp": datetime.fromtimestamp(each.at, UTC).isoformat(timespec="milliseconds"), **each.data}
            for each in reversed(self._kept[event])
        ]

    def after(self, seq: int) -> Iterator[LoggedChange]:
        """Changes with a higher number, oldest first."""
        return iter(sorted(each for kept in self._kept.values() for each in kept if each.seq > seq))


class PageCounts(Observer, Protocol):
    """What a plugin counts for its pages, from the start of the process on."""

    def begin(self) -> None:
        """Starts what is read at intervals. Must be called inside the event loop."""

    def end(self) -> None:
        """Ends what `begin` started."""


@value_class
class ConsoleData:
    """`recent` holds the last calls, `changes` the last changes of the proxy, `counts` what the console's pages count:
    None with `console: off`. `values` says how arguments are kept: off, preview or full. `wall` returns seconds since
    the epoch."""

    recent: RecentCalls
    changes: ChangeLog
    wall: Callable[[], float]
    values: str = "off"
    counts: PageCounts | None = None

    @property
    def observer(self) -> Observer:
        """What keeps finished requests, and counts them where the console is on."""
        return self.recent if self.counts is None else self

    def finished(self, record: CallRecord) -> None:
        """Counts and keeps one finished request."""
        if self.counts is not None:
            self.counts.finished(record)
        self.recent.finished(record)


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
    recent = RecentCalls(wall, boot, entry.keep_calls, values=values)
    made = (plugin.make_counts(read, wall, values=values is not None) for plugin in find_plugins(AddsPages))
    counts = next((each for each in made if each is not None), None)
    return ConsoleData(recent, ChangeLog(wall), wall, entry.values, counts)

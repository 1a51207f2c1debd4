"""Watches over the proxy: how late its event loop is, whether its calls name their conversations, whether tools have
their approved definitions, and whether models send null for "not given".

`LoopLag` measures how late timers fire, which is how long a call waits before the proxy can work on it. `AddressWatch`
warns once in the life of a process if more than half of the calls of ten minutes carry no conversation id. Attempts and
caps can do little for these. It reads the counts of the metrics, so a call pays nothing for it. `UnpinnedWatch` tells
of each other definition once, `NullWatch` of each tool once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from proxy.call_record import CallRecord
from proxy.core.check.validation import Check
from proxy.core.contract.policy import NullOptional
from proxy.core.json.jsontext import format_pointer
from proxy.core.model.values import Pointer, Rung, Violation
from proxy.core.rules.facts import list_declared, list_required, read_facts, walk_schema
from proxy.telemetry.logs import Log

# --- notices of lasting troubles --------------------------------------------------------------------------------------
# Notices of lasting troubles, such as an upstream that does not answer or a config that is not taken over.
#
# The log has them; a `TroubleWatcher` shows them where the process runs as well, such as in a Kubernetes pod.

# Seconds that an upstream may take to answer for the first time until a line says that it does not.
_UNANSWERED: Final = 15.0
_LOOK_EVERY: Final = 0.25
# Reasons of notices, as Events of Kubernetes spell them.
NOT_READY: Final = "UpstreamNotReady"
NOT_TAKEN_OVER: Final = "ConfigNotTakenOver"
NEEDS_RESTART: Final = "ConfigNeedsRestart"


class TroubleWatcher(Protocol):
    """The place of the process, which shows its troubles; `--pod-ports` of `serve` makes one.

    `hold`: seconds for which the question whether an upstream is ready waits for the first yes.
    """

    hold: float

    def show_open(self, troubles: list[str]) -> None:
        """Shows the troubles that last, which replace those shown before."""

    def add_trouble(self, reason: str, text: str, log: Log) -> None:
        """Shows one that has just begun."""

    async def settle(self) -> None:
        """Waits for what is still being written."""


@dataclass(slots=True)
class Notices:
    """The troubles that last. `watcher` shows them outside of the log."""

    log: Log
    now: Callable[[], float]
    watcher: TroubleWatcher | None = None
    _open: dict[str, str] = field(default_factory=dict)
    _unanswered: dict[str, float] = field(default_factory=dict)
    _ready: set[str] = field(default_factory=set)

    def tell(self, reason: str, about: str, text: str) -> None:
        """Tells of a trouble: `reason` is a word for machines, `about` says which thing, so that `clear` finds it."""
        if self._open.get(reason + about) == text:
            return
        self._open[reason + about] = text
        if self.watcher is not None:
            self.watcher.show_open(list(self._open.values()))
            self.watcher.add_trouble(reason, text, self.log)

    def clear(self, reason: str, about: str) -> bool:
        """Ends the trouble with a thing; gives whether there was one."""
        found = self._open.pop(reason + about, None) is not None
        if found and self.watcher is not None:
            self.watcher.show_open(list(self._open.values()))
        return found

    async def watch_upstream(self, name: str, find_trouble: Callable[[], Awaitable[str]]) -> str:
        """Returns why an upstream is not ready, '' if it is. Reports one that was queried and does not answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (0.0 if name in self._ready or self.watcher is None else self.watcher.hold)
        while (trouble := await find_trouble()) and loop.time() < until:  # noqa: ASYNC110 - a tool tells nobody
            await asyncio.sleep(_LOOK_EVERY)
        if not trouble:
            self._ready.add(name)
            self._unanswered.pop(name, None)
            if self.clear(NOT_READY, name):
                self.log.event("Upstream ready", upstream=name)
            return ""
        since = self._unanswered.setdefault(name, self.now())
        if self.now() - since >= _UNANSWERED and NOT_READY + name not in self._open:
            self.log.event("Upstream not ready", "warning", upstream=name, reason=trouble)
            self.tell(
                NOT_READY, name, f"upstream {name!r} {trouble}  (is its url the address that the tool listens at?)"
            )
        return trouble

    async def settle(self) -> None:
        """Waits for what the watcher is still writing."""
        if self.watcher is not None:
            await self.watcher.settle()


# --- what the proxy watches -------------------------------------------------------------------------------------------
# Seconds between two timers: often enough to find every stall that a client could notice, and cheap.
EVERY: Final = 0.5


class _Timed:
    """Works at intervals, from `begin` to `end`."""

    _timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LoopLag(_Timed):
    """Sets a timer every `every` seconds, and reports to `lagged` how many seconds late it fires."""

    def __init__(self, lagged: Callable[[float], None], every: float = EVERY) -> None:
        self._lagged = lagged
        self._every = every

    def begin(self) -> None:
        """Starts measuring. Must be called inside the event loop."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every
        self._timer = loop.call_at(due, self._report_lag, loop, due)

    def _report_lag(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._lagged(max(0.0, loop.time() - due))
        self.begin()


_WINDOW: Final = 600.0
# With fewer calls in ten minutes the share says nothing.
_FEWEST: Final = 20


class AddressWatch(_Timed):
    """Every `window` seconds calls `read`, which gives the calls so far by how their conversations are known. `warn` is
    called once, with the calls of that window and how many of them came by address."""

    def __init__(
        self, read: Callable[[], Mapping[Rung, int]], warn: Callable[[int, int], None], window: float = _WINDOW
    ) -> None:
        self._read = read
        self._window = window
        self._warn = warn
        self._before = (0, 0)

    def begin(self) -> None:
        """Starts watching. Must be called inside the event loop."""
        self._timer = asyncio.get_running_loop().call_later(self._window, self._tick)

    @property
    def running(self) -> bool:
        """Returns whether it still watches: not before `begin`, nor once it has warned."""
        return self._timer is not None

    def look(self) -> bool:
        """Ends a window. Returns True if the operator has been warned, and nothing is left to watch."""
        counts = self._read()
        now = (sum(counts.values()), counts.get(Rung.ADDRESS, 0))
        calls, by_address = now[0] - self._before[0], now[1] - self._before[1]
        self._before = now
        if calls < _FEWEST or by_address * 2 <= calls:
            return False
        self._warn(calls, by_address)
        return True

    def _tick(self) -> None:
        self._timer = None
        if not self.look():
            self.begin()


# The most definitions that are remembered as shown.
_MOST_SHOWN: Final = 10_000


class UnpinnedWatch:
    """Passes on, once each, the tools that are not defined as approved: route, name, treatment, and difference."""

    def __init__(self, tell: Callable[[str, str, str, str], None]) -> None:
        self._tell = tell
        self._shown: OrderedDict[tuple[str, str, str, str], None] = OrderedDict()

    def forget(self) -> None:
        """Begins again: the operator may have approved the shown definitions."""
        self._shown.clear()

    def list_shown(self) -> list[tuple[str, str, str, str]]:
        """Returns the reported definitions, the oldest first."""
        return list(self._shown)

    def __call__(self, route: str, tool: str, effect: str, change: str) -> None:
        """Passes on a tool that is not among those shown."""
        seen = (route, tool, effect, change)
        if seen in self._shown:
            return
        self._shown[seen] = None
        if len(self._shown) > _MOST_SHOWN:
            self._shown.popitem(last=False)
        self._tell(*seen)


class NullWatch:
    """Passes on the first null of each tool at an optional key that refuses null: route, tool and the key's pointer.
    It leaves out tools for which the operator has decided what such a null means."""

    def __init__(self, tell: Callable[[str, str, str], None]) -> None:
        self._tell = tell
        self._shown: OrderedDict[tuple[str, str], None] = OrderedDict()

    def finished(self, record: CallRecord) -> None:
        """Looks at one finished record."""
        policy = record.policy
        if not record.violations or policy is None or policy.check is None or not policy.repair.rules:
            return
        named = (record.route, record.tool)
        if policy.repair.null_optional in (NullOptional.DROP, NullOptional.REFUSE) or named in self._shown:
            return
        path = find_optional_null(policy.check, record.violations)
        if path is None:
            return
        self._shown[named] = None
        if len(self._shown) > _MOST_SHOWN:
            self._shown.popitem(last=False)
        self._tell(*named, format_pointer(path))


def find_optional_null(check: Check, violations: Iterable[Violation]) -> Pointer | None:
    """The place of the first refused null at an optional key whose schema leaves open what such a null means."""
    for violation in violations:
        key = violation.path[-1] if violation.path else 0
        if violation.value is not None or not isinstance(key, str):
            continue
        levels = [*walk_schema(check, violation.path)]
        if len(levels) <= len(violation.path):
            continue  # deeper than the walk goes
        around, inside = levels[-2:]
        is_optional = key in list_declared(around) and key not in list_required(around)
        if is_optional and not any(read_facts(node).null for node in inside):
            return violation.path
    return None

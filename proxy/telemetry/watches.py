"""What the proxy watches: how late its event loop is, whether its calls name their conversations, and whether tools are
defined as they were approved.

`LoopLag` measures how late timers fire, which is how long a call waits before the proxy can work on it. `AddressWatch`
warns once in the life of a process if more than half of the calls of ten minutes carry no conversation id, because
attempts and caps can do little for them. `UnpinnedWatch` tells of each other definition once.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from proxy.core.model.values import Rung
from proxy.interfaces import CallRecord

# Seconds between two timers: often enough to find every stall that a client could notice, and cheap.
EVERY: Final = 0.5


class LoopLag:
    """Sets a timer every `every` seconds, and reports to `lagged` how many seconds late it fires."""

    def __init__(self, lagged: Callable[[float], None], every: float = EVERY) -> None:
        self._lagged = lagged
        self._every = every
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Starts measuring. Must be called inside the event loop."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every
        self._timer = loop.call_at(due, self._report_lag, loop, due)

    def end(self) -> None:
        """Stops measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report_lag(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._lagged(max(0.0, loop.time() - due))
        self.begin()


_WINDOW: Final = 600.0
# With fewer calls in ten minutes the share says nothing.
_FEWEST: Final = 20
_ADDRESS: Final = Rung.ADDRESS


class AddressWatch:
    """Implements `Observer`. `warn` is called once, with the calls of the window and how many came by address."""

    def __init__(self, now: Callable[[], float], warn: Callable[[int, int], None]) -> None:
        self._now = now
        self._warn = warn
        self._until = now() + _WINDOW
        self._calls = 0
        self._by_address = 0
        self._warned = False

    def finished(self, record: CallRecord) -> None:
        """Counts a call. Requests that are not calls have no rung, and do not count."""
        if self._warned or record.conversation_rung is None:
            return
        if self._now() >= self._until:
            self._end_window()
        self._calls += 1
        self._by_address += record.conversation_rung is _ADDRESS

    def _end_window(self) -> None:
        """Ends the window: warns if more than half of its calls came by address, and begins another."""
        if self._calls >= _FEWEST and self._by_address * 2 > self._calls:
            self._warned = True
            self._warn(self._calls, self._by_address)
        self._until, self._calls, self._by_address = self._now() + _WINDOW, 0, 0


# The most definitions of which is remembered that they were told of.
_MOST_TOLD: Final = 10_000


class UnpinnedWatch:
    """Passes on what it is told of a tool that is not defined as approved: its route, its name, what becomes of it, and
    how it differs; the same once."""

    def __init__(self, tell: Callable[[str, str, str, str], None]) -> None:
        self._tell = tell
        self._told: OrderedDict[tuple[str, str, str, str], None] = OrderedDict()

    def __call__(self, route: str, tool: str, effect: str, change: str) -> None:
        """Tells of a tool that was not told of before."""
        seen = (route, tool, effect, change)
        if seen in self._told:
            return
        self._told[seen] = None
        if len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)
        self._tell(*seen)


def write_approval(route: str, tool: str) -> str:
    """The command that approves a tool as it is listed now."""
    return f"toolcall-proxy pin CONFIG --route {shlex.quote(route)} --only {shlex.quote(tool)}"

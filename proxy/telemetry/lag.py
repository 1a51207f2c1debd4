"""Event loop lag: how late timers fire, which is how long a call waits before the proxy can work on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Twice a second finds every stall that a client could notice, at no cost to a quiet process.
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
        self._timer = loop.call_at(due, self._went_off, loop, due)

    def end(self) -> None:
        """Stops measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _went_off(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._lagged(max(0.0, loop.time() - due))
        self.begin()

"""How late the event loop comes to its timers: what a call waits for before anything of ours can be done for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Twice a second finds every stop that a client could notice, and costs a quiet process nothing.
EVERY: Final = 0.5


class LoopLag:
    """Sets a timer `every` so many seconds and hands on how late it went off, in seconds."""

    def __init__(self, lagged: Callable[[float], None], every: float = EVERY) -> None:
        self._lagged = lagged
        self._every = every
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Measures from here on. Must be called inside the event loop."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._every
        self._timer = loop.call_at(due, self._went_off, loop, due)

    def end(self) -> None:
        """Measures no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _went_off(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._lagged(max(0.0, loop.time() - due))
        self.begin()

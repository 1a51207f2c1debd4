"""A timer that is set twice by each call, and almost never fires."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Calls `ring` once at the due time, in seconds of the loop's clock, and never early. It is cheap to set: each call
    sets it twice, and it almost never fires.

    Setting a later time leaves the running loop timer in place; that timer notices that it fired early, and starts
    again for the rest. A busy connection therefore creates a loop timer every few seconds instead of two per call.
    """

    __slots__ = ("_due", "_handle", "_loop", "_ring", "_set_for")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._due = math.inf
        self._set_for = math.inf
        self._handle: asyncio.TimerHandle | None = None

    def at(self, due: float) -> None:
        """Replaces the due time; `math.inf` means never."""
        self._due = due
        if due < self._set_for:
            self._start(due)

    def off(self) -> None:
        """Cancels the timer for good."""
        self._due = math.inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _start(self, due: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._set_for = due
        self._handle = self._loop.call_at(due, self._wake)

    def _wake(self) -> None:
        self._handle = None
        self._set_for = math.inf
        if self._due == math.inf:
            return
        if self._loop.time() < self._due:
            self._start(self._due)
            return
        self._due = math.inf
        self._ring()

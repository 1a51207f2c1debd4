"""An event loop whose clock stands still while its thread waits for a processor.

A test that says "after 50 ms" means 50 ms in which the test, the proxy and the tool behind it could run. On a busy
machine the thread of all three may get no processor for seconds; by the wall clock, every timeout of the proxy would
then be over before the first byte was read. Linux counts that waiting, so it can be left out.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Nanoseconds spent on a processor, nanoseconds spent waiting for one, and how often it got one.
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")


class SteadyLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, for the thread that makes it."""

    def __init__(self) -> None:
        self._waits = os.open(_SCHEDULED, os.O_RDONLY)
        self._latest = 0.0
        super().__init__()

    def time(self) -> float:
        """Seconds, without those in which the thread was ready to run and no processor was free."""
        now = time.monotonic()  # read first: what is waited between the two lines is left out already
        waited = int(os.pread(self._waits, 64, 0).split()[1])
        self._latest = max(self._latest, now - waited / 1e9)
        return self._latest

    def close(self) -> None:
        """Closes the loop."""
        if not self.is_closed():
            os.close(self._waits)
        super().close()


def make_loop() -> asyncio.AbstractEventLoop:
    """A loop for a test: steady where the system counts the waiting, asyncio's own elsewhere."""
    return SteadyLoop() if _SCHEDULED.exists() else asyncio.SelectorEventLoop()


async def until(holds: Callable[[], object], within: float = 300) -> None:
    """Waits until a condition holds that sets no event: what another process does, or the inside of the product. The
    bound is wide, because a busy machine may take long and a sound one is back at once. Raises TimeoutError."""
    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.002)

"""An event loop whose clock stops while its thread waits for a processor.

A test that says "after 50 ms" means 50 ms in which the test, the proxy and the tool behind it could run. On a busy
machine the thread of all three may get no processor for seconds. By the wall clock, every timeout of the proxy would
then be over before the first byte was read. Linux counts that waiting, so it can be left out.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

# Nanoseconds spent on a processor, nanoseconds spent waiting for one, and how often it got one.
_SCHEDULED: Final = Path("/proc/thread-self/schedstat")
_STILL: Final = 50  # turns
_KEPT_BY_PROGRAMS: Final = 16 * 1024 * 1024  # bytes, beside what the kernel keeps


class SteadyLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, for the thread that makes it."""

    def __init__(self) -> None:
        self._waits = os.open(_SCHEDULED, os.O_RDONLY)
        self._latest = self._ahead = 0.0
        super().__init__()

    def time(self) -> float:
        """Seconds, without those in which the thread was ready to run and no processor was free."""
        now = time.monotonic()  # read first: what is waited between the two lines is left out already
        waited = int(os.pread(self._waits, 64, 0).split()[1])
        self._latest = max(self._latest, now - waited / 1e9 + self._ahead)
        return self._latest

    def pass_time(self, seconds: float) -> None:
        """Puts the clock forward: what was due within these seconds comes next, and nobody has waited."""
        self._ahead += seconds

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


class LoopClock:
    """Implements `Clock` over the time of a test's own loop, so that `pass_time` puts the whole proxy forward."""

    def __init__(self) -> None:
        self.now = asyncio.get_running_loop().time
        self.wall = time.time


def pass_time(seconds: float) -> None:
    """Puts the clock of the test's own loop forward. Skips the test on a loop that has no such clock."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, SteadyLoop):
        pytest.skip("the clock of this loop cannot be put forward: asyncio's can, on Linux")
    loop.pass_time(seconds)


async def until_still(reading: Callable[[], object]) -> None:
    """Waits until a reading has stayed the same for fifty turns of the loop. The sender, the proxy and the receiver of
    a test share this loop, and each of them gets its part of a turn. Counted in turns, a slow machine looks no stiller
    than a fast one. Raises TimeoutError."""
    async with asyncio.timeout(300):
        before, same = reading(), 0
        while same < _STILL:
            await asyncio.sleep(0.002)
            now = reading()
            before, same = now, same + 1 if now == before else 0


async def fill(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Writes the data again and again, until it stays here: nobody reads on, and fifty turns of the loop move nothing.
    Raises ConnectionError if the connection ends, and AssertionError if somebody always reads on. Then more bytes went
    than the buffers of the kernel, which grow with the pace of the readers, keep on the two connections of a proxy."""
    handed, most = 0, 2 * _kept_by_a_connection() + _KEPT_BY_PROGRAMS
    while True:
        assert handed < most, f"{handed} bytes were taken, and nobody should read them"
        writer.write(data)
        draining = asyncio.ensure_future(writer.drain())
        waiting = asyncio.ensure_future(until_still(writer.transport.get_write_buffer_size))
        await asyncio.wait([draining, waiting], return_when=asyncio.FIRST_COMPLETED)
        over = waiting.done() and not draining.done()
        draining.cancel()
        waiting.cancel()
        await asyncio.wait([draining, waiting])
        if over:
            return
        draining.result()
        handed += len(data)


def _kept_by_a_connection() -> int:
    """The most bytes that the kernel keeps of one connection: sent and not taken over, and received and not read."""
    if sys.platform != "linux":
        return 16 * 1024 * 1024
    return sum(int(Path("/proc/sys/net/ipv4", name).read_text().split()[2]) for name in ("tcp_rmem", "tcp_wmem"))


async def run_others() -> None:
    """Waits for fifty turns of this loop: by then all others have done what they do without new input."""
    for _ in range(_STILL):
        await asyncio.sleep(0.002)

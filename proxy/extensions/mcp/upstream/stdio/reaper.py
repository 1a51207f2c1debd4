"""Ends the process groups of children whose proxy was killed: SIGKILL leaves no chance to clean up.

A separate process reads group numbers from a pipe: `+N` adds a group, `-N` removes it. The pipe ends with the proxy,
whatever ended it; every group still listed then gets SIGTERM, and SIGKILL a moment later. Most servers end by
themselves when their stdin closes. The process runs this file as a script without any package (`-S -E`), so the file
imports only the standard library.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import IO, Final

# Seconds that a group has after SIGTERM.
MERCY: Final = 1.0


class Reaper:
    """The pipe to the reaper process, which starts with the first group."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()

    async def add(self, group: int) -> None:
        """Lists a group: it ends when this process does."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                words = (sys.executable, "-S", "-E", __file__)
                self._process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    start_new_session=True,
                )
        self._write(f"+{group}\n")

    def remove(self, group: int) -> None:
        """Removes a group that has ended."""
        self._write(f"-{group}\n")

    async def close(self) -> None:
        """Ends the reaper process, and with it every group still listed."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    def _write(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line.encode())


def end_group(group: int, number: signal.Signals) -> bool:
    """Sends a signal to a process group; returns False if the group has no process left."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def reap(groups: IO[bytes]) -> None:
    """Reads group numbers until the pipe ends, then ends the groups that are still listed."""
    left: set[int] = set()
    for line in groups:
        group = int(line[1:])
        left.add(group) if line.startswith(b"+") else left.discard(group)
    left = {group for group in left if end_group(group, signal.SIGTERM)}
    if left:
        time.sleep(MERCY)
    for group in left:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    reap(sys.stdin.buffer)

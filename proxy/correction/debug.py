"""Writes whole prompts and answers to a file, so that a failed correction can be investigated (GoMind's debug store).

JSON Lines, readable by the owner alone (0600), bounded: once the file reaches half of `max_size` it replaces
`<file>.1`. Entries hold no secrets, but they do hold argument values and tools' answers, so the log is off unless the
config names a file. A file that cannot be written affects no call.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proxy.core.contract.correction import DebugStore
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import JsonValue

# The file is only appended to, never opened through a symbolic link, and not inherited by child processes.
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o600


class DebugLog:
    """Writes entries to a file, one after the other. `report` receives the error of a failed write."""

    def __init__(self, store: DebugStore, report: Callable[[OSError], None]) -> None:
        self._path = Path(store.file)
        self._half = store.max_size // 2
        self._report = report
        self._turn = asyncio.Lock()

    async def add(self, entry: dict[str, JsonValue]) -> None:
        """Writes one entry. An entry longer than half of `max_size` is replaced by a note of its length."""
        line = dumps(entry) + b"\n"
        if len(line) > self._half:
            line = dumps({"at": entry.get("at"), "left_out_bytes": len(line)}) + b"\n"
        async with self._turn:
            try:
                await asyncio.to_thread(self._append, line)
            except OSError as error:
                self._report(error)

    def _append(self, line: bytes) -> None:
        handle = os.open(self._path, _FLAGS, _MODE)
        try:
            full = os.fstat(handle).st_size + len(line) > self._half
            if not full:
                os.write(handle, line)
        finally:
            os.close(handle)
        if full:
            self._path.replace(f"{self._path}.1")
            self._append(line)

"""The file of the audit: a check whether it can be written, and the file as a `Sink` of lines.

Several workers append to one file. After a rename (logrotate) a new file begins. Lines that cannot be written are lost
and counted; the log says so once, and once that lines are written again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from proxy.file_writing import open_to_append
from proxy.telemetry.logs import Log


def find_fault(path: Path) -> tuple[str, str] | None:
    """The reason why lines cannot be appended to a file, and the remedy; None where they can."""
    folder = path.parent
    if not folder.is_dir():
        return (
            f"the folder {folder} does not exist",
            "make it, or name another: paths start at the config file's folder",
        )
    there = path.is_symlink() or path.exists()
    if there and not stat.S_ISREG(path.lstat().st_mode):
        return "it is no regular file", "name a file, or write `log`"
    if not os.access(path if there else folder, os.W_OK | os.R_OK, effective_ids=True):
        what = "it" if there else f"the folder {folder}"
        return f"{what} cannot be written by this user", "name a file in a folder that can be written, or write `log`"
    disk = os.statvfs(folder)
    if disk.f_blocks and not disk.f_bavail:
        return f"the disk of {folder} is full", "make room, or name a file on another disk"
    return None


class AuditFile:
    """Implements `Sink`. `counts` are the lines that are lost, by reason."""

    def __init__(self, path: Path, log: Log, counts: MutableMapping[tuple[str, ...], float]) -> None:
        self._path = path
        self._log = log
        self._counts = counts
        self._file = -1
        self._losing = False

    def prepare(self) -> bool:
        """Opens the file that now has the name; says whether it ends within a line."""
        if self._file < 0 or not self._has_name():
            self.close()
            self._file = open_to_append(self._path)
        size = os.fstat(self._file).st_size
        return size > 0 and os.pread(self._file, 1, size - 1) != b"\n"

    def _has_name(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self._path.lstat())
        except FileNotFoundError:
            return False

    def write(self, text: bytes) -> int:
        """Appends."""
        return os.write(self._file, text)

    def note_loss(self, reason: str, lines: int, why: str) -> None:
        """Counts the lines, and says so the first time."""
        self._counts[reason,] += lines
        if not self._losing:
            self._losing = True
            self._log.event("Audit lines are lost", "error", reason=why)

    def note_recovery(self, lost: Mapping[str, int]) -> None:
        """Says how many lines are missing."""
        self._losing = False
        self._log.event("Audit lines are written again", "warning", lost=sum(lost.values()))

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)

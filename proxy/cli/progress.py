"""A progress bar for long input: on stderr, only on a terminal, and only once the work has taken a moment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Final, TextIO

_PATIENCE: Final = 1.0  # seconds before a bar is worth showing
_EVERY: Final = 0.1  # seconds between two drawings
_WIDTH: Final = 30


class Progress:
    """Counts lines and bytes of a known or unknown total (bytes). Shows nothing where `stream`
    (default: stderr) is no terminal."""

    def __init__(self, total: int | None, stream: TextIO | None = None, clock: Callable[[], float] = monotonic) -> None:
        self._total = total
        self._stream = stream or sys.stderr
        self._shows = self._stream.isatty()
        self._clock = clock
        self._next = clock() + _PATIENCE
        self._drawn = False

    def at(self, lines: int, position: int) -> None:
        """Tells how far the work is: lines done, and the position in the input (bytes)."""
        if not self._shows or (now := self._clock()) < self._next:
            return
        self._next = now + _EVERY
        self._drawn = True
        self._stream.write("\r" + bar(lines, position, self._total))
        self._stream.flush()

    def done(self) -> None:
        """Wipes the bar away."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def bar(lines: int, position: int, total: int | None) -> str:
    """The bar as text: `[######........]  42 %  12,345 lines`, or the count alone where the total is unknown."""
    if not total:
        return f"{lines:,} lines"
    share = min(position / total, 1.0)
    filled = int(share * _WIDTH)
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}  {lines:,} lines"

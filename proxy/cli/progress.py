"""A progress bar for long input: on stderr, only on a terminal, and only after a moment of work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Final, TextIO

_SHOWN_AFTER: Final = 1.0  # seconds of work before the bar appears
_EVERY: Final = 0.1  # seconds between two drawings
_WIDTH: Final = 30


class Progress:
    """A bar that shows a position out of a total (both in one unit, such as bytes; the total may be unknown) and a
    count, whose unit `counted` names. Shows nothing unless `stream` (default: stderr) is a terminal."""

    def __init__(
        self,
        total: int | None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
        counted: str = "lines",
    ) -> None:
        self._total = total
        self._counted = counted
        self._stream = stream or sys.stderr
        self._shows = self._stream.isatty()
        self._clock = clock
        self._next = clock() + _SHOWN_AFTER
        self._drawn = False

    def at(self, count: int, position: int, total: int | None = None) -> None:
        """Reports progress: what is done, the position in the input, and the total where it was unknown before."""
        self._total = total or self._total
        if not self._shows or (now := self._clock()) < self._next:
            return
        self._next = now + _EVERY
        self._drawn = True
        self._stream.write("\r" + draw_bar(count, position, self._total, self._counted))
        self._stream.flush()

    def erase(self) -> None:
        """Erases the bar."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def draw_bar(count: int, position: int, total: int | None, counted: str = "lines") -> str:
    """Returns the bar as text: `[######........]  42 %  12,345 lines`, or only the count if the total is unknown."""
    if not total:
        return f"{count:,} {counted}"
    share = min(position / total, 1.0)
    filled = int(share * _WIDTH)
    return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}  {count:,} {counted}"

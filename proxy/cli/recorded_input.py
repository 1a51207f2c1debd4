"""What `replay` and `diff` read: lines of calls, gzipped or not, and the tools of a config."""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from proxy.recording.comparing import ServedTools
    from proxy.recording.line import RecordedLine

_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class ReplayInput:
    """The lines of the input, and the file behind them with its size in bytes, for the progress bar."""

    lines: io.BufferedIOBase | BinaryIO
    raw: BinaryIO
    size: int | None

    def __enter__(self) -> ReplayInput:
        return self

    def __exit__(self, *_: object) -> None:
        if self.raw is not sys.stdin.buffer:
            self.raw.close()

    def position(self) -> int:
        """How many bytes of the file have been read; 0 where that is unknown."""
        return self.raw.tell() if self.size else 0


def open_input(name: str) -> ReplayInput:
    """Opens a file, gzipped or not; `-` is standard input. Raises OSError."""
    raw = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115 - ReplayInput closes it
    packed = isinstance(raw, io.BufferedReader) and raw.peek(2)[:2] == _GZIP
    lines = gzip.GzipFile(fileobj=raw) if packed else raw
    return ReplayInput(lines, raw, None if name == "-" else Path(name).stat().st_size)


class RecordedLines:
    """The readable lines that `record` wrote, numbered; shows a progress bar. Unreadable lines are counted in `bad` and
    reported on standard error under the `verb`."""

    def __init__(self, source: ReplayInput, verb: str) -> None:
        self._source = source
        self._verb = verb
        self.bad = 0

    def __iter__(self) -> Iterator[tuple[int, RecordedLine]]:
        from proxy.cli.progress import Progress
        from proxy.recording.line import read_line

        with self._source as source:
            progress = Progress(source.size)
            for number, text in enumerate(source.lines, 1):
                line = read_line(text)
                if isinstance(line, str):
                    self.bad += 1
                    progress.erase()
                    print(f"{self._verb}: line {number}: {line}", file=sys.stderr)
                    continue
                yield number, line
                progress.at(number, source.position())
            progress.erase()


def load_tools(path: str) -> ServedTools:
    """The tools of a config, by route and name. Raises ConfigError."""
    from proxy.config.load import load
    from proxy.routing import build_routes

    table = build_routes(load(path, os.environ).config)
    return {(route.name, name): (route.shape, policy) for route in table.routes for name, policy in route.tools.items()}

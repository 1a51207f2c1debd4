"""The input of `replay` and `diff`: lines of calls, gzipped or not, and the tools of a config."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Generic, TypeVar

from proxy.core.model.value_class import value_class

if TYPE_CHECKING:
    from proxy.extensions.recording.comparing import ServedTools

Line = TypeVar("Line")

_GZIP: Final = b"\x1f\x8b"
_TRIED: Final = 100


@value_class
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
        """Returns how many bytes of the file have been read; 0 if that is unknown."""
        return self.raw.tell() if self.size else 0


def open_input(name: str) -> ReplayInput:
    """Opens a file, gzipped or not; `-` is standard input. Raises OSError."""
    raw = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115 - ReplayInput closes it
    packed = isinstance(raw, io.BufferedReader) and raw.peek(2)[:2] == _GZIP
    lines = gzip.GzipFile(fileobj=raw) if packed else raw
    return ReplayInput(lines, raw, None if name == "-" else Path(name).stat().st_size)


class RecordedLines(Generic[Line]):
    """The calls in the input, each with the number of its line; shows a progress bar. Empty lines are skipped.

    `read` gives a line's call, or the reason why it has none. Lines without one are counted in `bad` and reported on
    standard error under the `verb`, the first hundred of them; so is input that breaks off. If none of the first
    hundred lines holds a call, reading ends. For a file without any call there is one message.
    """

    def __init__(self, source: ReplayInput, verb: str, read: Callable[[bytes], Line | str]) -> None:
        self._source = source
        self._verb = verb
        self._read = read
        self._unprinted: list[str] = []
        self.found_any = False
        self._breaks_off = False
        self.number = 0
        self.bad = 0

    def __iter__(self) -> Iterator[tuple[int, Line]]:
        from proxy.plugin import Progress

        with self._source as source:
            progress = Progress(source.size)
            for text in self._lines(source):
                line = self._read(text)
                if isinstance(line, str):
                    progress.erase()
                    self.bad += 1
                    if self.bad <= _TRIED:
                        self._report(f"line {self.number}: {line}")
                    if self.bad == _TRIED and not self.found_any:
                        break
                    continue
                self.found_any = True
                self._print()
                yield self.number, line
                progress.at(self.number, source.position())
            progress.erase()
        if self.bad > 1 and not self.found_any:
            read = f"first {_TRIED}" if self.bad == _TRIED else str(self.bad)
            self._unprinted[:] = [
                f"{self._unprinted[0]}  (none of the {read} lines holds a call: is this the right file?)"
            ]
        elif self.bad > _TRIED:
            self._report(f"{self.bad - _TRIED} more lines hold no call")
        self._print()

    @property
    def has_failed(self) -> bool:
        """Returns whether some line held no call, or the input broke off."""
        return self._breaks_off or self.bad > 0

    def _lines(self, source: ReplayInput) -> Iterator[bytes]:
        try:
            for self.number, text in enumerate(source.lines, 1):
                if text.strip():
                    yield text
        except (OSError, EOFError, zlib.error) as error:  # a broken gzip file
            self._breaks_off = True
            self._report(f"the input breaks off after line {self.number}: {error}")

    def _report(self, message: str) -> None:
        self._unprinted.append(message)
        if self.found_any:
            self._print()

    def _print(self) -> None:
        for message in self._unprinted:
            print(f"{self._verb}: {message}", file=sys.stderr)
        self._unprinted.clear()


def load_tools(path: str) -> ServedTools:
    """The tools of a config, by route and name. Raises ConfigError."""
    from proxy.plugin import load
    from proxy.routing import build_routes

    table = build_routes(load(path, os.environ).config)
    return {(route.name, name): (route.shape, policy) for route in table.routes for name, policy in route.tools.items()}

"""Closes a JSON text whose end is missing, so that what has come of it can be read.

`close_text` drops the values that are not complete and closes the containers around them. A list keeps only complete
items, unless its first one is not complete: half a record would tell a model that its other half does not exist. A
string is kept as far as it has come. The result is only a proposal: strict parsing decides whether it is JSON.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final

from proxy.core.json.jsontext import parse
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Pointer

# A whole string, a mark, a number or word, or the quote of a string without an end.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]:,]|[^\s"{}\[\]:,]++|"', re.DOTALL)
_STRING: Final = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
# The first half of a surrogate pair, whose second half is missing.
_HALF_PAIR: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")
_QUOTE: Final = ord('"')


@value_class
class ClosedText:
    """A JSON text that was closed, and the place of the container or string in which it ended."""

    text: bytes
    open_at: Pointer


@dataclass(slots=True)
class _Frame:
    """An open container: the mark that closes it, the end of its last complete member, and how many it has."""

    closing: bytes
    end: int
    count: int = 0
    key: str = ""
    takes_value: bool = False

    @property
    def is_list(self) -> bool:
        return self.closing == b"]"

    @property
    def step(self) -> str | int:
        """The name or index of the member that is not complete."""
        return self.count if self.is_list else self.key


def close_text(text: bytes) -> ClosedText | None:
    """The longest readable part of an unfinished JSON text; None without one."""
    frames: list[_Frame] = []
    started = False
    for found in _TOKEN.finditer(text):
        token, end = found[0], found.end()
        mark = token[:1]
        if frames and not frames[-1].is_list and not frames[-1].takes_value and mark == b'"' and len(token) > 1:
            frames[-1].key = _read_key(token)
        elif mark in (b"{", b"["):
            frames.append(_Frame(b"}" if mark == b"{" else b"]", end, takes_value=mark == b"["))
        elif mark in (b"}", b"]"):
            if not frames or frames.pop().closing != mark:
                return None
            _complete(frames, end)
        elif mark == b":":
            if not frames:
                return None
            frames[-1].takes_value = True
        elif mark == b",":
            if not frames:
                return None
            frames[-1].takes_value = frames[-1].is_list
        elif token == b'"':
            return _close_string(text, found.start(), frames)
        elif end < len(text) or mark == b'"':
            _complete(frames, end)
        started = True
        if not frames:
            return None  # a whole value: nothing is missing
    return _close(text, frames) if started and frames else None


def _complete(frames: list[_Frame], end: int) -> None:
    if frames:
        frames[-1].end, frames[-1].takes_value = end, frames[-1].is_list
        frames[-1].count += 1


def _read_key(token: bytes) -> str:
    key = parse(token)
    return key if isinstance(key, str) else ""


def _close(text: bytes, frames: list[_Frame]) -> ClosedText:
    """Closes the containers behind the last complete member: that of the outermost list that has one."""
    at = next((n for n, frame in enumerate(frames) if frame.is_list and frame.count), len(frames) - 1)
    place = tuple(frame.step for frame in frames[:at])
    closing = b"".join(frame.closing for frame in reversed(frames[: at + 1]))
    return ClosedText(text[: frames[at].end] + closing, place)


def _close_string(text: bytes, start: int, frames: list[_Frame]) -> ClosedText | None:
    """Closes a text that ends within a string, which is kept if it is a value outside of any complete item."""
    is_value = not frames or frames[-1].takes_value
    if frames and (not is_value or any(frame.is_list and frame.count for frame in frames)):
        return _close(text, frames)
    found = _STRING.match(text, start)
    kept = b'"' if found is None else _HALF_PAIR.sub(b"", found[0])
    try:
        shown = codecs.getincrementaldecoder("utf-8")().decode(kept).encode()
    except UnicodeDecodeError:
        return None
    closing = b"".join(frame.closing for frame in reversed(frames))
    return ClosedText(text[:start] + shown + b'"' + closing, tuple(frame.step for frame in frames))

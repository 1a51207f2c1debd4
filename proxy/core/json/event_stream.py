"""Server-sent events as bytes (WHATWG HTML, "Interpreting an event stream"): cuts a stream apart and reads data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

# An empty line behind a line; the groups are atomic, so that CR LF is one line end.
_END: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LONGEST_END: Final = len(b"\r\n\r\n")
# One line of an event's data.
DATA: Final = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|(?<=[\r\n]))data:[ ]?([^\r\n]*)")
_ESCAPED: Final = re.compile(rb"\\u00[5-7]")


class EventSplitter:
    """Cuts a stream into events, each with the empty line that ends it. `size` is that of the event without an end."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def size(self) -> int:
        """The number of bytes behind the last event."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The events that end in these bytes."""
        known = max(0, len(self._rest) - _LONGEST_END + 1)  # no event ends before it
        self._rest += data
        ends = [*_find_ends(self._rest, known)]
        events = [bytes(self._rest[start:end]) for start, end in pairwise((0, *ends))]
        if ends:
            del self._rest[: ends[-1]]
        return events

    def feed_plain(self, data: bytes, marks: Iterable[bytes]) -> bytes | None:
        """The events that end in these bytes, in one piece; None, and nothing is taken, if a mark may be in them. An
        escaped letter or `_` may belong to a mark."""
        data = bytes(self._rest) + data if self._rest else data
        if b"\r" in data or any(mark in data for mark in marks) or (b"\\u00" in data and _ESCAPED.search(data)):
            return None
        end = data.rfind(b"\n\n") + 1
        end += end > 0
        self._rest[:] = data[end:]
        return data[:end]

    def take_rest(self) -> bytes:
        """Removes the event without an end, and returns it."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest


def _find_ends(data: bytearray, at: int) -> Iterator[int]:
    """The places behind the empty lines from a place on."""
    if data.find(b"\r", at) >= 0:
        yield from (found.end() for found in _END.finditer(data, at))
        return
    while (found := data.find(b"\n\n", at)) >= 0:  # a tenth of the time
        at = found + 2
        yield at


def list_data(body: bytes) -> Iterator[bytes]:
    """The data of every complete event of a whole body that has some."""
    for event in EventSplitter().feed(body):
        data = b"\n".join(DATA.findall(event))
        if data.strip(b"\n"):
            yield data

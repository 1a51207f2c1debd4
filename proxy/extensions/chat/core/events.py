"""Server-sent events as bytes (WHATWG HTML, "Interpreting an event stream"): cut apart, and written again with changes
in the JSON of their data. The rest keeps every byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

from proxy.core.json.jsonspan import replace_value, replace_values
from proxy.core.json.jsontext import TRUSTED, parse
from proxy.core.model.values import JsonProblem, JsonValue, Pointer

# An empty line behind a line; the groups are atomic, so that CR LF is one line end.
_END: Final = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LONGEST_END: Final = len(b"\r\n\r\n")
_DATA: Final = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|(?<=[\r\n]))data:[ ]?([^\r\n]*)")
_ESCAPED: Final = re.compile(rb"\\u00[5-7]")
COMMENT: Final = b": keep-alive\n\n"


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


def read_event(event: bytes) -> JsonValue:
    """The JSON value of an event's data; None if it is not a JSON object."""
    if event.startswith(b"data: {") and event.find(b"\n") == len(event) - 2 and b"\r" not in event:
        found = [event[len(b"data: ") : -2]]  # one line, as servers write it
    else:
        found = _DATA.findall(event)
    if not found or not found[0].lstrip().startswith(b"{"):
        return None
    value = parse(b"\n".join(found), TRUSTED)
    return None if isinstance(value, JsonProblem) else value


def is_unreadable(event: bytes) -> bool:
    """Whether an event that `read_event` cannot read has data, other than the word for the end."""
    return not is_done(event) and any(data.strip() for data in _DATA.findall(event))


def is_done(event: bytes) -> bool:
    """Returns whether the data of an event is the word for the end."""
    return [data.strip() for data in _DATA.findall(event)] == [b"[DONE]"]


def change_event(event: bytes, changes: Mapping[Pointer, bytes]) -> bytes:
    """An event that `read_event` could read, with these values in its data; one that is not there is added."""
    found = [*_DATA.finditer(event)]
    if not found or not changes:
        return event
    data = b" ".join(line[1] for line in found)  # no line ends within a text
    try:
        data = replace_values(data, changes)
    except LookupError:
        for place, value in changes.items():
            data = replace_value(data, place, value)
    return event[: found[0].start(1)] + data + event[found[-1].end(1) :]


def write_event(data: bytes, name: str = "") -> bytes:
    """An event of the proxy's own."""
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (head, data)

"""Answers as bytes: status line, fields, framing (RFC 9112 sections 4 and 6, RFC 9110 section 8.6).

Whoever answers says status, fields and body; everything about the message itself is written here: its length or
chunks, `Date`, `Server`, whether the connection goes on, and no body where HTTP has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

SERVER: Final = "toolcall-proxy"
_SERVER_ROW: Final = f"Server: {SERVER}"

LAST_CHUNK: Final = b"0\r\n\r\n"
# RFC 9110 sections 15.3.5 and 15.4.5; what is below 200 has none either.
_NO_BODY: Final = frozenset({204, 304})
# Fields of the message that are ours to write unless they are there.
_OF_THE_MESSAGE: Final = frozenset({"connection", "content-length", "content-type", "date", "server"})
# What no field may hold (RFC 9110 section 5.5): with a line end in it, it would be two, or another answer.
_CONTROLS: Final = bytes([*range(9), *range(10, 32), 127])
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus}


@dataclass(slots=True)
class Answer:
    """A whole answer. `closes`: the connection ends with it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    closes: bool = False


class Dates:
    """The `Date` field, made once a second (RFC 9110 section 5.6.7). `now` gives seconds since the Unix epoch."""

    __slots__ = ("_now", "_row", "_second")

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._second = -1
        self._row = ""

    def row(self) -> str:
        """The field as it is written."""
        second = int(self._now())
        if second != self._second:
            at = time.gmtime(second)
            self._second = second
            day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04}"
            self._row = f"Date: {day} {at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02} GMT"
        return self._row


def whole(answer: Answer, method: str, minor: int, dates: Dates, *, keep_alive: bool) -> bytes:
    """An answer with its body, to a request of `method` in HTTP/1.`minor`. Raises ValueError where a field holds a
    control character."""
    status, body = answer.status, answer.body
    rows, there = _rows(status, answer.headers, minor)
    bodiless = is_bodiless(status, method)
    if "content-length" not in there and (not bodiless or (body and status >= 200 and status not in _NO_BODY)):
        rows.append(f"Content-Length: {len(body)}")
    head = _head(rows, there, minor, dates, keep_alive=keep_alive, typed=bodiless or not body)
    return head if bodiless else head + body


def begun(
    status: int,
    headers: Sequence[tuple[str, str]],
    length: int | None,
    method: str,
    minor: int,
    dates: Dates,
    *,
    keep_alive: bool,
) -> bytes:
    """The head of an answer whose body comes piece by piece: `length` bytes, or in chunks; in HTTP/1.0, which knows no
    chunks, to the end of the connection. Raises ValueError as `whole`."""
    rows, there = _rows(status, headers, minor)
    bodiless = is_bodiless(status, method)
    if not bodiless:
        if length is not None:
            rows.append(f"Content-Length: {length}")
        elif minor:
            rows.append("Transfer-Encoding: chunked")
    return _head(rows, there, minor, dates, keep_alive=keep_alive, typed=bodiless or length == 0)


def chunk(data: bytes) -> bytes:
    """A piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def is_bodiless(status: int, method: str) -> bool:
    """Whether an answer ends with its head, whatever that says of a body."""
    return method == "HEAD" or status < 200 or status in _NO_BODY


def _rows(status: int, headers: Sequence[tuple[str, str]], minor: int) -> tuple[list[str], set[str]]:
    """Status line and fields, and those among them that speak of the message."""
    rows = [_status_line(minor, status)]
    there: set[str] = set()
    for name, value in headers:
        lower = name.lower()
        if lower in _OF_THE_MESSAGE:
            if lower == "content-length" and (status < 200 or status in _NO_BODY):
                continue
            there.add(lower)
        rows.append(f"{name}: {value}")
    if "server" not in there:
        rows.append(_SERVER_ROW)
    return rows, there


def _head(rows: list[str], there: set[str], minor: int, dates: Dates, *, keep_alive: bool, typed: bool) -> bytes:
    """The bytes of a head. `typed`: there is nothing whose type would have to be told."""
    if not typed and "content-type" not in there:
        rows.append("Content-Type: application/octet-stream")
    if "date" not in there:
        rows.append(dates.row())
    if keep_alive != (minor == 1) and "connection" not in there:  # each version has its own habit: only else it is told
        rows.append("Connection: keep-alive" if keep_alive else "Connection: close")
    head = ("\r\n".join(rows) + "\r\n\r\n").encode("utf-8", "surrogateescape")
    if len(head.translate(None, _CONTROLS)) != len(head) - 2 * len(rows) - 2:
        raise ValueError("a field of an answer holds a control character")
    return head


_status_lines: dict[tuple[int, int], str] = {}


def _status_line(minor: int, status: int) -> str:
    line = _status_lines.get((minor, status))
    if line is None:
        line = _status_lines[minor, status] = f"HTTP/1.{minor} {status} {_PHRASES.get(status, '')}"
    return line

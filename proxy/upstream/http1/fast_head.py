"""Usual heads, read without a parser. Pure.

Worth 10 us of every call: 6 times as quick as llhttp (2.1 us for 12.4 us, a head of four fields and its body).
`AnswerReader(..., plain=None)` switches it off; tests/upstream/test_http1_plain.py compares the two.

A usual head has one possible reading: HTTP/1.1, a status with a body, one Content-Length, names and values of ASCII
without control characters, and no other field about the end of the answer or the connection. Every other head, and one
that has not arrived whole, goes to llhttp (`answer.py`); being strict here costs time and never an answer.

An upstream repeats its header lines, so the meaning of a line is remembered by its bytes. Many answers differ only in
date and length, so a head whose lines were all known is remembered whole as well.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from proxy.core.model.values import Headers

_END: Final = b"\r\n\r\n"
_BLANK: Final = b" \t"
# RFC 9112 section 4, without interim answers and statuses that have no body (RFC 9110 sections 15.3.5 and 15.4.5).
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.1 (?!204|304)([2-5][0-9][0-9])(?: [\t -~]*)?")
# RFC 9110 sections 5.1 and 5.5: a token, and a value that reads the same in every encoding.
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t -~]*)")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_TIMEOUT_HINT: Final = re.compile(rb"(?:^|[,;\s])timeout=(\d{1,9})\b", re.IGNORECASE)
# Fields that need more than their own line to be understood.
_NOT_PLAIN: Final = frozenset([b"transfer-encoding", b"upgrade", b"proxy-connection"])
# How many heads, and lines of each kind, are remembered per upstream: far more than its answers have in common.
_MOST: Final = 256
# Longer lines and heads rarely repeat and are not remembered. Cookies are not either: they are secrets.
_LONGEST_LINE: Final = 160
_LONGEST_HEAD: Final = 640
_ONE_OF_ITS_KIND: Final = frozenset([b"set-cookie"])

T = TypeVar("T")
Field = tuple[str, str]
# A field; the length of the body, where this field gives it; the idle time in seconds, where this field gives it.
Line = tuple[Field, int | None, float | None]
# Status, fields, length of the body, seconds that the connection may lie idle (None: not said), and where the body
# begins.
PlainHead = tuple[int, Headers, int, float | None, int]


def read_idle_time(hint: bytes) -> float | None:
    """How long to keep a connection whose upstream says `Keep-Alive: timeout=N`: well below N, in seconds."""
    found = _TIMEOUT_HINT.search(hint)
    return None if found is None else max(int(found[1]) - 1.0, int(found[1]) / 2)


class FastHeads:
    """Reads the plain heads of one upstream: `most_bytes` long at the most, with at most `most_fields` fields."""

    __slots__ = ("_fields", "_heads", "_most_bytes", "_most_fields", "_statuses", "_telling")

    def __init__(self, most_bytes: int, most_fields: int) -> None:
        self._most_bytes = most_bytes
        self._most_fields = most_fields
        self._heads: dict[bytes, PlainHead] = {}
        self._statuses: dict[bytes, int] = {}
        self._fields: dict[bytes, Field] = {}  # fields without a meaning for the connection: one look-up each
        self._telling: dict[bytes, Line] = {}

    def read(self, data: bytes) -> PlainHead | None:
        """The usual head that `data` begins with; None where llhttp has to read it."""
        end = data.find(_END)
        if end < 0 or end + 4 > self._most_bytes:
            return None
        head = data[:end]
        return self._heads.get(head) or self._read(head)

    def _read(self, head: bytes) -> PlainHead | None:
        lines = head.split(b"\r\n")
        first = lines.pop(0)
        status = self._statuses.get(first) or self._status(first)
        if not status or len(lines) > self._most_fields:
            return None
        known, headers, all_known = self._fields.get, [], len(head) <= _LONGEST_HEAD
        length: int | None = None
        idle: float | None = None
        for line in lines:
            field = known(line)
            if field is None:
                told = self._telling.get(line)
                if told is None:
                    told, all_known = self._learn(line), False
                if told is None or (length is not None and told[1] is not None):  # two lengths
                    return None
                field = told[0]
                length = length if told[1] is None else told[1]
                idle = idle if told[2] is None else told[2]
            headers.append(field)
        if length is None:
            return None
        found = (status, tuple(headers), length, idle, len(head) + len(_END))
        if all_known:
            _make_room(self._heads)
            self._heads[head] = found
        return found

    def _status(self, line: bytes) -> int:
        """The status of a usual status line, else 0."""
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            return 0
        return _remember(self._statuses, line, int(found[1]))

    def _learn(self, line: bytes) -> Line | None:
        """The meaning of a usual header line; None for any other."""
        found = _FIELD.fullmatch(line)
        if found is None:
            return None
        name, value = found[1].lower(), found[2].strip(_BLANK)
        field = (found[1].decode(), value.decode())
        if name in _NOT_PLAIN or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        if name == b"content-length":
            return _remember(self._telling, line, (field, int(value), None)) if _LENGTH.fullmatch(value) else None
        if name == b"keep-alive":
            idle = read_idle_time(value)
            return None if idle is None else _remember(self._telling, line, (field, None, idle))
        if name not in _ONE_OF_ITS_KIND:
            _remember(self._fields, line, field)
        return field, None, None


def _remember(lines: dict[bytes, T], line: bytes, meaning: T) -> T:
    if len(line) <= _LONGEST_LINE:
        _make_room(lines)
        lines[line] = meaning
    return meaning


def _make_room(known: dict[bytes, T]) -> None:
    if len(known) >= _MOST:  # lines that repeat are learned again soon
        known.clear()

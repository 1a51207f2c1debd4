"""The log's line without the work of making one: a template per kind of request, one write per turn of the event loop.

What requests of a kind differ in, their ids, sizes and times, is filled into text that was rendered once by the general
way (`logs.fields_of`), so both ways say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from json.encoder import encode_basestring as quoted
from typing import Any, Final

from proxy.interfaces import CallRecord

# Stands for what is filled in, as often as it takes to be told from a tool's name.
_GAP: Final = "\ue000"

# The fields that are filled in, in the order in which a line has them and `Template.pieces` gives them, and whether the
# line puts them between quotes: ids that a client may have made up come with theirs, those of a trace are hexadecimal
# digits (core/tracecontext.py).
_FILLED: Final = {
    "correlation_id": "",
    "http.request.body.size": "",
    "http.response.body.size": "",
    "duration_ms": "",
    "gen_ai.tool.call.id": "",
    "upstream.duration_ms": "",
    "overhead_ms": "",
    "trace_id": '"',
    "span_id": '"',
    "timestamp": '"',
}

# What stands behind the point of a number of thousandths, without the zeros that end it.
_DECIMALS: Final = tuple(f"{thousandths:03d}".rstrip("0") or "0" for thousandths in range(1000))
# 15 digits are the most that every float holds exactly (C standard, DBL_DIG).
_TOO_MANY: Final = 10**15
# How far a number may be from the next whole one: so near to the middle between two, another rounding may decide.
_FAR: Final = 0.4999


def milliseconds(seconds: float) -> float:
    """A length of time as the log gives it."""
    return round(seconds * 1000, 3)


def shown_milliseconds(seconds: float) -> str:
    """`milliseconds` as JSON spells it, in a third of the time where there is no doubt how it is rounded."""
    thousandths = seconds * 1000 * 1000
    whole = int(thousandths + 0.5)
    if 0 < whole < _TOO_MANY and -_FAR < thousandths - whole < _FAR:
        return f"{whole // 1000}.{_DECIMALS[whole % 1000]}"
    return repr(milliseconds(seconds))


class Stamps:
    """Instants as text (RFC 3339, UTC, milliseconds), from seconds since the Unix epoch."""

    def __init__(self) -> None:
        self._second = -1
        self._date = ""
        # The last text, and between which instants it is right.
        self._text = ""
        self._from = self._until = 0.0

    def of(self, wall: float) -> str:
        """The text of an instant. Within one millisecond it is the same, within one second all but its end."""
        if not self._from <= wall < self._until:
            self._renew(wall)
        return self._text

    def _renew(self, wall: float) -> None:
        microseconds = round(wall * 1_000_000)
        second, microsecond = divmod(microseconds, 1_000_000)
        if second != self._second:
            self._second = second
            self._date = datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
        self._text = f"{self._date}.{microsecond // 1000:03d}+00:00"
        # One microsecond less than the whole millisecond: what is nearer to its end may be rounded up.
        self._from, self._until = wall, (microseconds // 1000 * 1000 + 999) / 1_000_000


class Template:
    """The lines of one kind of request. `fields` is all that the line of one of them says, `dumps` makes JSON of it."""

    __slots__ = ("_fixed", "level")

    def __init__(self, fields: dict[str, Any], dumps: Callable[[dict[str, Any]], str], level: int) -> None:
        gap = _GAP
        while gap in dumps(fields):
            gap += _GAP
        gaps = {name: gap if name in _FILLED else value for name, value in fields.items()}
        first, *rest = dumps(gaps).split(f'"{gap}"')
        fixed = [first]
        for name, quote in _FILLED.items():
            fixed[-1] += quote if name in gaps else ""
            fixed.append(f"{quote}{rest.pop(0)}" if name in gaps else "")
        fixed[-1] += "\n"
        self._fixed = tuple(fixed)
        self.level = level

    def pieces(self, record: CallRecord, stamp: str) -> tuple[str, ...]:
        """The line of one request, with its line break, in pieces to be joined. What a line of its kind lacks is ''."""
        zero, one, two, three, four, five, six, seven, eight, nine, ten = self._fixed
        trace = record.trace
        sent = record.upstream
        return (
            zero, quoted(record.request_id),
            one, str(record.request_bytes),
            two, str(record.response_bytes),
            three, shown_milliseconds(record.ended - record.started),
            four, quoted(record.call_id) if record.call_id else "",
            five, shown_milliseconds(record.upstream_seconds) if sent else "",
            six, shown_milliseconds(record.stages.get("total", 0.0)) if sent else "",
            seven, record.trace_id,
            eight, trace.span_id if trace is not None else "",
            nine, stamp,
            ten,
        )  # fmt: skip

"""The ordinary line of the log without the work of making one: a template per kind of call, and one write per burst.

What calls differ in, their ids, sizes and times, is filled into text that was rendered once by the general way
(`logs.fields_of`), so both ways say the same. Only what is ordinary comes here; whatever has repairs, violations or a
code is rendered in full.

Lines are handed to the stream together when the event loop gets round to it, within the same instant; whatever else
is written to the same stream takes them along first, so that the order holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from json.encoder import encode_basestring as quoted
from operator import itemgetter
from typing import Any, Final, TextIO

from proxy.interfaces import CallRecord

# Kinds of calls kept. A client that makes up names of tools makes kinds; beyond this, all are forgotten and made anew.
_KINDS: Final = 1024
# Stands for what is filled in, as often as it takes to be told from a tool's name.
_GAP: Final = "\ue000"

# The fields that are filled in, in the order in which `_filled` gives them.
_FILLED: Final = (
    "correlation_id",
    "http.request.body.size",
    "http.response.body.size",
    "duration_ms",
    "gen_ai.tool.call.id",
    "upstream.duration_ms",
    "overhead_ms",
    "trace_id",
    "span_id",
)


def _filled(record: CallRecord) -> tuple[object, ...]:
    """All of them in one go: a function for each would cost more than what they do."""
    return (
        quoted(record.request_id),
        record.request_bytes,
        record.response_bytes,
        round((record.ended - record.started) * 1000, 3),
        quoted(record.call_id),
        round(record.upstream_seconds * 1000, 3),
        round(record.stages.get("total", 0.0) * 1000, 3),
        quoted(record.trace_id),
        quoted(record.trace.span_id) if record.trace is not None else '""',
    )


def milliseconds(seconds: float) -> float:
    """A length of time as the log gives it."""
    return round(seconds * 1000, 3)


def is_ordinary(record: CallRecord) -> bool:
    """Whether everything that its line says is in `_kind` or `_FILLED`."""
    return not (
        record.repairs
        or record.violations
        or record.code
        or record.upstream_error
        or record.container
        or record.corrected_after
        or record.resends
        or record.notes
        or record.answer_violations
        or record.questions
        or record.outcome == "refused"
    )


def _kind(record: CallRecord) -> tuple[object, ...]:
    return (
        record.outcome, record.method, record.route, record.status, record.tool, record.mode, record.schema_id,
        record.conversation_rung, record.upstream, record.upstream_status, record.resend_denied, record.would_refuse,
        not record.call_id, not record.trace_id, record.trace is None,
    )  # fmt: skip


class Stamps:
    """Instants as text (RFC 3339, UTC, milliseconds), from seconds since the Unix epoch."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def of(self, wall: float) -> str:
        """The text of an instant. Within one second only the milliseconds change."""
        second, microsecond = divmod(round(wall * 1_000_000), 1_000_000)
        if second != self._second:
            self._second = second
            self._text = datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
        return f"{self._text}.{microsecond // 1000:03d}+00:00"


# Picks the values of one template out of all.
Picker = Callable[[tuple[object, ...]], tuple[object, ...]]


class Templates:
    """Renders ordinary lines. `fields` and `dumps` are the general way: all fields of a record but the timestamp, and
    their text as JSON."""

    def __init__(self, fields: Callable[[CallRecord], dict[str, Any]], dumps: Callable[[dict[str, Any]], str]) -> None:
        self._fields = fields
        self._dumps = dumps
        self._made: dict[tuple[object, ...], tuple[str, Picker]] = {}

    def line(self, record: CallRecord, stamp: str) -> str:
        """The line of an ordinary record, with its line break."""
        kind = _kind(record)
        made = self._made.get(kind)
        if made is None:
            made = self._make(kind, record)
        template, pick = made
        return template % (*pick(_filled(record)), stamp)

    def _make(self, kind: tuple[object, ...], record: CallRecord) -> tuple[str, Picker]:
        fields = self._fields(record)
        pick = itemgetter(*[_FILLED.index(name) for name in fields if name in _FILLED])
        gap = _GAP
        while gap in self._dumps(fields):
            gap += _GAP
        gaps = {name: gap if name in _FILLED else value for name, value in fields.items()} | {"timestamp": gap}
        parts = [part.replace("%", "%%") for part in self._dumps(gaps).split(f'"{gap}"')]
        made = "%s".join(parts[:-1]) + '"%s"' + parts[-1] + "\n", pick
        if len(self._made) >= _KINDS:
            self._made.clear()
        self._made[kind] = made
        return made


class Sink:
    """Writes to a stream: at once (`write`, for structlog), or together with others (`later`)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._held: list[str] = []

    def later(self, line: str) -> None:
        """Writes a line before the event loop waits again; at once where none runs."""
        self._held.append(line)
        if len(self._held) > 1:
            return  # the first of them has seen to it
        try:
            asyncio.get_running_loop().call_soon(self._drain)
        except RuntimeError:
            self._drain()

    def write(self, text: str) -> None:
        """Writes at once, behind what waits."""
        self._drain()
        self._stream.write(text)

    def flush(self) -> None:
        """Hands everything to the system."""
        self._drain()
        self._stream.flush()

    def _drain(self) -> None:
        held, self._held = self._held, []
        if held:
            with suppress(OSError, ValueError):  # a full disk or a closed pipe must not fail calls
                self._stream.write("".join(held))
                self._stream.flush()

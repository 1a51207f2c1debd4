"""Builds the log line of a usual call quickly: the fields that all calls of one kind share are computed once.

Worth 38,000 of the 526,000 instructions that a clean call takes with the plain way (`logs.build_fields`, then
structlog): 7 % of the call (docs/performance.md). Calls of one kind differ only in ids, sizes and times, which are
filled into a copy of the kind's line. A request with anything else to report (violations, a code, resends ...) takes
the plain way. `Log(..., fast=False)` switches the quick way off; tests/telemetry/test_fast_lines.py compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from proxy.interfaces import CallRecord
from proxy.telemetry.metric_table import WRONG

Key = tuple[object, ...]

# The most kinds kept. Clients that invent tool names create kinds; beyond this number all are forgotten.
KINDS: Final = 1024
# Requests whose names are longer than this in total are not kept as kinds.
_LONGEST: Final = 300


class LineKind(NamedTuple):
    """The line of one kind of request: the number of its level, and its fields, of which `fill_line` replaces some."""

    level: int
    fields: dict[str, Any]


class FastLines:
    """The kinds seen so far. `prepare` makes the line of a kind the plain way."""

    def __init__(self, prepare: Callable[[CallRecord], LineKind]) -> None:
        self._prepare = prepare
        self.kinds: dict[Key, LineKind] = {}

    def kind_of(self, record: CallRecord) -> LineKind | None:
        """The kind of a request; None where the request must take the plain way (`make_key`)."""
        key = make_key(record)
        if key is None:
            return None
        kind = self.kinds.get(key)
        if kind is None and _may_come_again(record):
            if len(self.kinds) >= KINDS:
                self.kinds.clear()
            kind = self.kinds[key] = self._prepare(record)
        return kind


def make_key(record: CallRecord) -> Key | None:
    """The key of a request's kind: all that its line depends on, except what `fill_line` fills in. None for a request
    with more to report."""
    if (
        record.code
        or record.violations
        or record.upstream_error
        or record.resends
        or record.container
        or record.container_event
        or record.attempt
        or record.repeated
        or record.escalated
        or record.corrected_after
        or record.answer_violations
        or record.questions
        or record.would_refuse
        or record.outcome in WRONG
    ):
        return None
    return (
        record.outcome, record.method, record.route, record.status, record.tool, record.mode, record.schema_id,
        record.conversation_rung, record.upstream, record.upstream_status, record.resend_denied,
        tuple([(made.rule, made.path) for made in record.repairs]) if record.repairs else (),
        tuple(record.notes.items()) if record.notes else (),
        not record.call_id, not record.trace_id, record.trace is None,
    )  # fmt: skip


def fill_line(line: dict[str, Any], record: CallRecord) -> None:
    """Fills the ids, sizes and times of a request into a line of its kind."""
    line["correlation_id"] = record.request_id
    line["http.request.body.size"] = record.request_bytes
    line["http.response.body.size"] = record.response_bytes
    line["duration_ms"] = round_milliseconds(record.ended - record.started)
    if record.call_id:
        line["gen_ai.tool.call.id"] = record.call_id
    if record.upstream:
        line["upstream.duration_ms"] = round_milliseconds(record.upstream_seconds)
        line["overhead_ms"] = round_milliseconds(record.stages.get("total", 0.0))
    if record.trace_id:
        line["trace_id"] = record.trace_id
    if record.trace is not None:
        line["span_id"] = record.trace.span_id


def round_milliseconds(seconds: float) -> float:
    """Converts seconds to milliseconds, to the nearest microsecond. `round` with digits takes ten times as long."""
    return (seconds * 1_000_000 + 0.5) // 1 / 1000


def _may_come_again(record: CallRecord) -> bool:
    """Whether a kind is worth keeping: repairs within lists rarely recur in the same place."""
    length = len(record.tool) + len(record.method)
    for made in record.repairs:
        for step in made.path:
            if isinstance(step, int):
                return False
            length += len(step)
    return length <= _LONGEST

"""The kind of a request: everything that metrics and log say of it but its ids, sizes and times.

Calls of one kind count in the same series and have the same line but for some gaps, so both are prepared once per kind
(`Kind`) and looked up by one key. Whatever has something of its own to tell (violations, a code, resends ...) is of no
kind: it is told in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.interfaces import CallRecord
from proxy.telemetry.lines import Template
from proxy.telemetry.tallies import Tally

Key = tuple[object, ...]
# Outcomes that an operator asks about afterwards (`recent.py`).
WRONG: Final = frozenset({"refused", "tool_error", "upstream_error"})


class Kind:
    """What is prepared for all requests of one kind. `template` is None where the log is for people."""

    __slots__ = ("tally", "template")

    def __init__(self, tally: Tally, template: Template | None) -> None:
        self.tally, self.template = tally, template


# A finished request: its kind, or None and the fields of its line (`logs.fields_of`); and when it was told of, in
# seconds since the Unix epoch.
Told = tuple[Kind | None, CallRecord, float, Mapping[str, Any]]
# The fields of a request whose kind has them prepared.
PREPARED: Final[Mapping[str, Any]] = {}


def nothing_waits() -> None:
    """The `settle` of metrics, log and recent requests where each is told of every request at once, and not by a
    `Batch`. It is called before anything is read or changed that the waiting requests should have counted for."""


def key_of(record: CallRecord) -> Key | None:
    """The key of a request's kind. All that a tally or a line depends on is here, or is a gap in the line; or it makes
    a request one of no kind."""
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
        or record.events
        or record.hook_failures
        or record.would_refuse
        or record.outcome in WRONG
    ):
        return None
    return (
        record.outcome, record.method, record.route, record.status, record.tool, record.mode, record.schema_id,
        record.conversation_rung, record.upstream, record.upstream_status, record.resend_denied, record.answer,
        tuple([(made.rule, made.path) for made in record.repairs]) if record.repairs else (),
        tuple(record.notes.items()) if record.notes else (),
        not record.call_id, not record.trace_id, record.trace is None,
    )  # fmt: skip

"""A kept call has the same fields wherever it is named: record, log, kept entry, operator's port, `calls` and pages."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest

from proxy.call_record import CallRecord, Trace
from proxy.core.model.values import Rung
from proxy.core.tool_errors.backoff import Reason, ResendDenied
from proxy.extensions.console.cli import FILTERS
from proxy.extensions.console.kept_calls import CallFilter, select_calls
from proxy.extensions.console.pages import FOLDER
from proxy.telemetry.logs import build_fields
from proxy.telemetry.ring import FIELDS, RecentCalls, make_entry

# A usual call with everything that the line of one can show.
USUAL = CallRecord(
    "r-1", "/weather", "POST", "weather", "call_1", 1.0, 3.5, {"total": 0.5}, "report", "abc", "delivered", "VAL-001",
    200, attempt=2, max_attempts=3, repeated=True, escalated=True, corrected_after=1,
    conversation_rung=Rung.HEADER, container="Math", container_event="expanded", upstream="tools",
    upstream_status=204, upstream_error="timeout", upstream_seconds=0.25, resends=(next(iter(Reason)),),
    resend_denied=ResendDenied.BUDGET, trace_id="0af7", trace=Trace("0af7", "b7ad", "", 1, "", str), request_bytes=10,
    response_bytes=20, answer="passed",
    notes={"gen_ai.request.model": "tiny", "chat.attempts": "2", "chat.tokens_again": "40"},  # a model's, by chat
)  # fmt: skip


def keep(record: CallRecord) -> dict[str, Any]:
    kept = RecentCalls(lambda: 0.0)
    kept.finished(record)
    (entry,) = map(make_entry, select_calls(kept, CallFilter()))
    return entry


def test_a_usual_call_is_kept_with_every_field_of_its_line() -> None:
    line = build_fields(USUAL)
    entry = keep(USUAL)
    assert line == {name: entry[name] for name in line}
    assert {"seq", "timestamp"} == set(entry) - set(line)


@pytest.mark.parametrize("name", [each.name for each in fields(CallRecord) if each.repr])
def test_a_field_of_the_record_that_changes_the_line_changes_the_entry(name: str) -> None:
    (field,) = (each for each in fields(CallRecord) if each.name == name)
    plain = field.default if field.default is not MISSING else {} if field.default_factory is not MISSING else ""
    other = replace(USUAL, **{name: plain})
    line, entry = build_fields(other), keep(other)
    assert line == {name: entry.get(name) for name in line}


def test_every_filter_compares_a_field_of_the_entry() -> None:
    assert set() == set(FIELDS.values()) - set(keep(USUAL))


def test_verb_and_pages_have_every_filter_of_the_operators_port() -> None:
    wanted = {each.name for each in fields(CallFilter)}
    assert wanted - {"after", "before"} == set(FILTERS)
    script = (FOLDER / "calls.js").read_text()
    (named,) = re.findall(r"const NAMES = \[(.*)\];", script)
    assert wanted - {"after"} | {"sort"} == set(re.findall(r'"(\w+)"', named))


def test_pages_read_fields_that_entries_have() -> None:
    script = (FOLDER / "calls.js").read_text()
    unrouted = replace(USUAL, notes={"url.path": "/wether", "nearest_route": "POST /weather"})
    assert set() == set(re.findall(r'call\["([^"]+)"\]', script)) - set(keep(USUAL)) - set(keep(unrouted))

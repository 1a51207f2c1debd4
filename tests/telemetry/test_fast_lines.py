"""The quick way to a line says what the plain way says, whatever the request was."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.contract.container import EVENTS
from proxy.core.contract.correction import Asked, Layer
from proxy.core.model.codes import VIOLATION_CODES
from proxy.core.model.values import Repair, Rung, Violation
from proxy.interfaces import CallRecord, CorrectionQuestion, HookFailure, Trace
from proxy.telemetry.fast_lines import KINDS, make_key
from proxy.telemetry.logs import Log
from proxy.telemetry.metric_table import HOOK_REASONS, OWN_STAGES
from tests.telemetry.test_labels import FIELDS, NAMES

WALL = 1767225599.9996
HEX = st.text("0123456789abcdef", min_size=16, max_size=16)
# As clocks give them: whole microseconds and their middles are where rounding is in doubt.
SECONDS = st.one_of(
    st.floats(0, 1e9),
    st.floats(0, 0.1),
    st.integers(0, 10**9).map(lambda nanoseconds: nanoseconds / 1e9),
    st.integers(0, 10**6).map(lambda halves: halves * 5e-7),
    st.integers(0, 10**6).map(lambda milliseconds: milliseconds / 1000),
)
PATHS = st.sampled_from([(), ("lat",), ("100%s", "\ue000"), ("list", 0), ("x" * 500,)])
# What requests of one kind may differ in, and what tells kinds apart; `FIELDS` has what makes them of no kind too.
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "route": st.sampled_from(["", "/weather", "/100%s", "/\ue000"]),
    "method": st.sampled_from(["GET", "POST", "BREW"]),
    "tool": st.sampled_from(["", "weather", "a%sb", "made up", "\ue000", 'q"\\', "\u2028"]),
    "call_id": st.one_of(st.just(""), st.just('"\n\\'), NAMES),
    "ended": SECONDS,
    "stages": st.dictionaries(st.sampled_from(["read", *OWN_STAGES, "stream"]), SECONDS),
    "mode": FIELDS["mode"],
    "schema_id": FIELDS["schema_id"],
    "outcome": st.sampled_from(["delivered", "repaired", "answered", "passthrough", "client_gone"]),
    "status": st.sampled_from([0, 200, 404, 503]),
    "conversation_rung": st.one_of(st.none(), st.sampled_from(list(Rung))),
    "upstream": st.sampled_from(["", "tools"]),
    "upstream_status": FIELDS["upstream_status"],
    "upstream_seconds": SECONDS,
    "resend_denied": FIELDS["resend_denied"],
    "trace_id": st.one_of(st.just(""), HEX),
    "trace": st.one_of(st.none(), st.builds(Trace, HEX, HEX, HEX, st.just(1), st.just(""), st.just(str))),
    "request_bytes": st.integers(0, 10**9),
    "response_bytes": st.integers(0, 10**9),
    "notes": st.dictionaries(st.sampled_from(["client.token", "hook"]), st.sampled_from(["agent", "%s\ue000"])),
    "answer": st.sampled_from(["", "passed", "unread"]),
    "repairs": st.lists(st.builds(Repair, st.sampled_from(["key_case", "string_to_number"]), PATHS), max_size=2),
}
OTHERS: dict[str, st.SearchStrategy[Any]] = {
    **FIELDS,
    "corrections": FIELDS["repairs"],
    "container": st.sampled_from(["", "Math"]),
    "container_event": st.sampled_from(["", *EVENTS]),
    "answer_violations": FIELDS["violations"],
    "max_attempts": st.integers(0, 4),
    "hook_failures": st.lists(st.builds(HookFailure, NAMES, NAMES, st.sampled_from(HOOK_REASONS)), max_size=2),
}
RECORDS = st.tuples(st.text(max_size=8), st.fixed_dictionaries(PLAIN), st.fixed_dictionaries({}, optional=OTHERS))


def made(request_id: str, *changes: dict[str, Any]) -> CallRecord:
    record = CallRecord(request_id, "/weather")
    for fields in changes:
        for name, value in fields.items():
            setattr(record, name, value)
    return record


def written(records: list[CallRecord], *, fast: bool, level: str = "info") -> list[str]:
    stream = io.StringIO()
    log = Log(stream, False, level, lambda: WALL, fast=fast)
    for record in records:
        log.finished(record)
    return stream.getvalue().split("\n")


@settings(max_examples=100, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6), st.sampled_from(["info", "warning", "error"]))
def test_both_ways_write_the_same_lines(found: list[Any], level: str) -> None:
    records = [made(*one) for one in found]

    assert written(records, fast=False, level=level) == written(records, fast=True, level=level)


@settings(max_examples=100, deadline=None)
@given(st.tuples(st.text(max_size=8), st.fixed_dictionaries(PLAIN)), st.fixed_dictionaries(PLAIN))
def test_requests_of_one_kind_share_a_line_but_for_what_is_their_own(one: Any, other: dict[str, Any]) -> None:
    first, second = made(*one), made("second", one[1])
    for name in ("ended", "stages", "upstream_seconds", "request_bytes", "response_bytes"):
        setattr(second, name, other[name])

    assert make_key(first) == make_key(second) is not None
    assert written([first, second], fast=False) == written([first, second], fast=True)


def test_a_line_of_a_kind_leaves_nothing_behind_in_the_next() -> None:
    first = made("1", {"outcome": "delivered", "call_id": "a", "upstream": "tools", "notes": {"client.token": "x"}})
    second = made("2", {"outcome": "delivered", "call_id": "b", "upstream": "tools", "notes": {"client.token": "y"}})

    assert written([first, second, first], fast=False) == written([first, second, first], fast=True)


def test_names_that_clients_make_up_do_not_pile_up() -> None:
    log = Log(io.StringIO(), False, "info", lambda: WALL)
    assert log._fast is not None
    for number in range(KINDS + 76):
        log.finished(made("r", {"tool": f"made up {number}", "outcome": "delivered", "call_id": "c"}))
    log.finished(made("r", {"tool": "x" * 5000, "outcome": "delivered", "call_id": "c"}))

    assert 76 == len(log._fast.kinds)


def test_what_has_something_of_its_own_to_tell_is_of_no_kind() -> None:
    code = next(iter(VIOLATION_CODES.values()))
    special = {
        "code": "INVALID_ARGUMENTS", "violations": (Violation(code, (), ""),), "attempt": 1,
        "upstream_error": "connection_refused", "resends": ("timeout",), "container": "Math",
        "container_event": EVENTS[0], "repeated": True, "escalated": True, "corrected_after": 1,
        "answer_violations": (Violation(code, (), ""),), "would_refuse": True, "outcome": "refused",
        "questions": [CorrectionQuestion(Layer.VALIDATION_FEEDBACK, Asked.DELIVERED, 0.5)],
    }  # fmt: skip

    assert [] == [name for name, value in special.items() if make_key(made("r", {name: value})) is not None]

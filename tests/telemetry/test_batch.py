"""Requests that wait for the end of the event loop's turn are told of as if each had been told of at once: the prepared
way of a kind of request says and counts what the general way does."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.core.codes import VIOLATION_CODES
from proxy.core.container import EVENTS
from proxy.core.correction import Asked, Layer
from proxy.core.model import Repair, Rung, Violation
from proxy.interfaces import CallRecord, Event, HookFailure, Question, Trace
from proxy.telemetry.batch import Batch
from proxy.telemetry.catalogue import HOOK_REASONS, OWN_STAGES
from proxy.telemetry.kinds import key_of
from proxy.telemetry.lines import milliseconds, shown_milliseconds
from proxy.telemetry.logs import Log, make_log
from proxy.telemetry.metrics import Metrics, Served
from proxy.telemetry.recent import Recent
from tests.telemetry.test_labels import FIELDS, NAMES

WALL = 1767225599.9996
SERVED = [Served("/weather", "weather", schema_id="s"), Served("/100%s", "a%sb")]
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


class Told:
    """Metrics, log and recent requests, and what they show."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.metrics = Metrics(SERVED, "digest")
        self.log: Log = make_log(self.stream, "json", "info", lambda: WALL)
        self.recent = Recent(lambda: WALL)

    def shown(self) -> tuple[list[Any], list[str], list[Any]]:
        page = self.metrics.page()[1].decode().splitlines()
        # Series stand in the order in which they were made, which nobody reads.
        counted = sorted(line for line in page if not line.startswith("process_"))
        lines = [json.loads(line) for line in self.stream.getvalue().split("\n")[:-1]]
        return lines, counted, list(self.recent.entries())


def at_once(told: Told, records: Sequence[CallRecord]) -> None:
    for record in records:
        for each in (told.metrics, told.log, told.recent):
            each.finished(record)


def together(told: Told, records: Sequence[CallRecord]) -> None:
    batch = Batch(told.metrics, told.log, told.recent, lambda: WALL)
    batch._held = [(record, WALL) for record in records]
    batch.settle()


def shown_by(tell: Callable[[Told, Sequence[CallRecord]], None], records: Sequence[CallRecord]) -> Any:
    told = Told()
    tell(told, records)
    return told.shown()


@settings(max_examples=60, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=6))
def test_what_is_told_together_is_what_would_have_been_told_at_once(found: list[Any]) -> None:
    records = [made(*one) for one in found]

    assert shown_by(at_once, records) == shown_by(together, records)


@settings(max_examples=50, deadline=None)
@given(st.tuples(st.text(max_size=8), st.fixed_dictionaries(PLAIN)), st.fixed_dictionaries(PLAIN))
def test_requests_of_one_kind_share_all_that_is_prepared(one: Any, other: dict[str, Any]) -> None:
    first, second = made(*one), made("second", one[1])
    for name in ("ended", "stages", "upstream_seconds", "request_bytes", "response_bytes"):
        setattr(second, name, other[name])

    assert key_of(first) == key_of(second) is not None
    assert shown_by(at_once, [first, second]) == shown_by(together, [first, second])


def test_the_names_that_a_config_brings_count_from_then_on() -> None:
    told = Told()
    batch = Batch(told.metrics, told.log, told.recent, lambda: WALL)
    record = made("r", {"route": "/new", "tool": "new", "outcome": "delivered"})
    batch.finished(record)
    batch.finished(record)
    told.metrics.learned("/new", ["new"])
    batch.finished(record)
    batch.finished(record)
    told.metrics.loaded(SERVED, "digest", 0.0)
    batch.finished(record)

    counted = [line for line in told.shown()[1] if line.startswith("toolproxy_requests_total{")]
    assert [
        'toolproxy_requests_total{outcome="delivered",route="/new",tool="_other"} 3.0',
        'toolproxy_requests_total{outcome="delivered",route="/new",tool="new"} 2.0',
    ] == counted


async def test_whoever_looks_sees_what_waits() -> None:
    told = Told()
    batch = Batch(told.metrics, told.log, told.recent, lambda: WALL)
    batch.finished(made("r", {"outcome": "refused"}))
    found = [entry["correlation_id"] for entry in told.recent.entries()]
    batch.finished(made("s", {"outcome": "delivered"}))
    page = told.metrics.page()[1].decode()

    assert ["r"] == found
    assert 'toolproxy_requests_total{outcome="delivered",route="/weather",tool="_other"} 1.0' in page
    assert ["r", "s"] == [line["correlation_id"] for line in told.shown()[0]]


async def test_a_request_that_waits_counts_under_the_names_it_ended_under() -> None:
    told = Told()
    batch = Batch(told.metrics, told.log, told.recent, lambda: WALL)
    batch.finished(made("r", {"route": "/new", "tool": "new", "outcome": "delivered"}))
    told.metrics.learned("/new", ["new"])

    assert 'toolproxy_requests_total{outcome="delivered",route="/new",tool="_other"} 1.0' in told.shown()[1]


def test_names_that_clients_make_up_do_not_pile_up() -> None:
    told = Told()
    batch = Batch(told.metrics, told.log, told.recent, lambda: WALL)
    for number in range(1100):
        batch.finished(made("r", {"tool": f"made up {number}", "outcome": "delivered", "call_id": "c"}))
    batch.finished(made("r", {"tool": "x" * 5000, "outcome": "delivered", "call_id": "c"}))

    assert 1100 - 1024 == len(batch._kinds)


@settings(max_examples=300)
@example(0.0)
@example(-0.0)
@example(1.2345e-4)
@example(0.0000005)
@example(0.9999995)
@given(st.one_of(SECONDS, st.floats(-1e9, 1e9)))
def test_a_length_of_time_is_spelt_as_json_spells_it(seconds: float) -> None:
    assert json.dumps(milliseconds(seconds)) == shown_milliseconds(seconds)


def test_what_has_something_of_its_own_to_tell_is_of_no_kind() -> None:
    code = next(iter(VIOLATION_CODES.values()))
    special = {
        "code": "INVALID_ARGUMENTS", "violations": (Violation(code, (), ""),), "attempt": 1,
        "upstream_error": "connection_refused", "resends": ("timeout",), "container": "Math",
        "container_event": EVENTS[0], "repeated": True, "escalated": True, "corrected_after": 1,
        "answer_violations": (Violation(code, (), ""),), "would_refuse": True, "outcome": "refused",
        "questions": [Question(Layer.VALIDATION_FEEDBACK, Asked.DELIVERED, 0.5)], "events": [Event("x", 0.0)],
        "hook_failures": (HookFailure("h", "p", "timeout"),),
    }  # fmt: skip

    assert [] == [name for name, value in special.items() if key_of(made("r", {name: value})) is not None]

"""The fields of a log line about a finished request; no stream can stop it or be harmed by it."""

from __future__ import annotations

import io
import json
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from proxy.call_record import CallRecord, HookFailure, Trace
from proxy.core.model.codes import TYPE_MISMATCH
from proxy.core.model.values import Repair, Rung, Violation
from proxy.extensions.correction.core.words import CorrectionQuestion, Layer, QuestionOutcome
from proxy.telemetry.logs import Log, build_fields

WALL = 1767225599.9996

# Another value for every field that a line may have about a request.
CHANGES: dict[str, Any] = {
    "request_id": 'quote " and \\ and \u2028', "route": "/100%s/{tool}", "method": "PUT", "tool": "a%sb", "call_id": "",
    "started": 1.0, "ended": 12.25, "stages": {"total": 0.1}, "mode": "report", "schema_id": "other",
    "outcome": "repaired",
    "code": "VAL-002", "status": 503, "repairs": (Repair("string_to_number", ("lat",)),),
    "violations": (Violation(TYPE_MISMATCH, ("lat",), ""),), "would_refuse": True, "attempt": 2, "max_attempts": 4,
    "repeated": True, "escalated": True, "corrected_after": 1, "conversation_rung": Rung.ADDRESS, "container": "Math",
    "container_event": "expanded", "upstream": "", "upstream_status": 0, "upstream_error": "connection_refused",
    "upstream_seconds": 7.5, "trace_id": "", "request_bytes": 0, "response_bytes": 0,
    "notes": {"client.token": "agent"},
    "resends": ("timeout",), "resend_denied": "budget",
    "answer_violations": (Violation(TYPE_MISMATCH, ("sky",), ""),),
    "questions": [CorrectionQuestion(Layer.VALIDATION_FEEDBACK, QuestionOutcome.DELIVERED, 0.5)],
    "trace": Trace("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "", 1, "", str),
}  # fmt: skip
# `corrections` are next to `questions`; hooks that failed have their own lines; `line` is what is made of the rest.
# `access` and `sent` are for the audit; `sending_since` becomes a part of `upstream_seconds`.
UNTOLD = {
    "events", "settling", "answer", "corrections", "hook_failures", "call", "policy", "checked", "result", "replaced",
    "line", "access", "sent", "sending_since",
}  # fmt: skip


def record(**changes: Any) -> CallRecord:
    made = CallRecord(
        "r", "/weather", "POST", "weather", "call", 10.0, 10.5, {"total": 0.25}, schema_id="s", outcome="delivered",
        status=200, conversation_rung=Rung.HEADER, upstream="tools", upstream_status=200, upstream_seconds=0.1234567,
        trace_id="0af7651916cd43dd8448eb211c80319c", request_bytes=12, response_bytes=34,
    )  # fmt: skip
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def logged(*records: CallRecord) -> list[dict[str, Any]]:
    stream = io.StringIO()
    log = Log(stream, "json", "info", lambda: WALL)
    for each in records:
        log.finished(each)
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


def test_every_field_of_a_record_is_changed_here() -> None:
    assert {field.name for field in fields(CallRecord)} - UNTOLD == set(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_a_record_with_another_value_gets_another_line(name: str) -> None:
    changed = record(**{name: CHANGES[name]})
    plain, other = logged(record(), changed)

    assert build_fields(record()) == {key: plain[key] for key in build_fields(record())}
    assert json.loads(json.dumps(build_fields(changed))) == {
        key: value for key, value in other.items() if key not in ("timestamp", "level", "message")
    }


def test_the_ordinary_line_has_what_every_line_has() -> None:
    (line,) = logged(record())

    assert ("info", "Tool call delivered", "2025-12-31T23:59:59.999+00:00") == tuple(
        line[key] for key in ("level", "message", "timestamp")
    )


def test_says_that_nothing_was_sent_if_no_upstream_got_the_call() -> None:
    lines = logged(record(upstream=""), record(upstream="", outcome="repaired"))
    assert ["Tool call valid, nothing sent", "Tool call repaired, nothing sent"] == [line["message"] for line in lines]


def test_instants_are_cut_to_milliseconds_and_always_move() -> None:
    stream, instants = io.StringIO(), [0.0, 0.0004, 1767225599.9996, 1767225599.9996, 1767225600.25]
    log = Log(stream, "json", "info", iter(instants).__next__)
    for _ in instants:
        log.event("x")

    assert [
        "1970-01-01T00:00:00.000+00:00",
        "1970-01-01T00:00:00.000+00:00",
        "2025-12-31T23:59:59.999+00:00",
        "2025-12-31T23:59:59.999+00:00",
        "2026-01-01T00:00:00.250+00:00",
    ] == [json.loads(line)["timestamp"] for line in stream.getvalue().splitlines()]


def test_writes_values_that_json_writers_refuse() -> None:
    stream = io.StringIO()
    log = Log(stream, "json", "info", lambda: WALL)
    log.event("odd", huge=2**70, half="\ud800", path=Path("/a"), event="e")
    (line,) = [json.loads(text) for text in stream.getvalue().splitlines()]

    assert {"huge": 2**70, "half": "\ud800", "path": "/a", "event": "e", "message": "odd"}.items() <= line.items()


def test_the_current_level_decides_about_a_request() -> None:
    stream = io.StringIO()
    log = Log(stream, "json", "info", lambda: WALL)
    log.finished(record(request_id="1"))
    log.level = "warning"
    log.finished(record(request_id="2"))
    log.event("draining")
    log.finished(record(request_id="3", outcome="refused"))

    assert ["1", "3"] == [json.loads(line)["correlation_id"] for line in stream.getvalue().splitlines()]


def test_a_log_that_cannot_be_written_fails_no_call() -> None:
    stream = io.StringIO()
    log = Log(stream, "json", "info", lambda: WALL)
    stream.close()
    log.finished(record())
    log.event("draining")

    assert {"queue_full": 0, "write_failed": 2} == log.dropped


class Odd:
    """A value that notes where its text is made, or has none."""

    def __init__(self, *, broken: bool = False) -> None:
        self.threads: list[str] = []
        self._broken = broken

    def __str__(self) -> str:
        self.threads.append(threading.current_thread().name)
        if self._broken:
            raise ValueError("no text")
        return "odd"


def test_makes_each_line_in_the_calling_thread(tmp_path: Path) -> None:
    value = Odd()
    with (tmp_path / "log").open("w") as file:
        log = Log(file, "json", "info", lambda: WALL)
        log.event("draining", seen=value)
        made_in = list(value.threads)
        log.close(within=10)

    assert [threading.current_thread().name] == made_in == value.threads
    assert "odd" == json.loads((tmp_path / "log").read_text())["seen"]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_line_that_cannot_be_made_is_counted_and_the_next_one_is_written(in_memory: bool, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("w") as file:
        stream = io.StringIO() if in_memory else file
        log = Log(stream, "json", "info", lambda: WALL)
        log.event("first", seen=Odd(broken=True))
        log.event("second")
        log.close(within=10)
    text = stream.getvalue() if isinstance(stream, io.StringIO) else path.read_text()

    assert {"queue_full": 0, "write_failed": 1} == log.dropped
    assert "second" in [json.loads(line)["message"] for line in text.splitlines()]


@pytest.mark.parametrize("style", ["json", "console"])
def test_every_line_passes_through_structlog(style: str) -> None:
    stream = io.StringIO()
    log = Log(stream, style, "info", lambda: WALL)
    seen: list[str] = []

    def note(_logger: object, _level: str, event: Any) -> Any:
        seen.append(event["event"])
        return event

    log._lines._processors = [note, *log._lines._processors]
    log.finished(record())
    log.finished(record(outcome="repaired"))
    log.event("draining")

    assert ["Tool call delivered", "Tool call repaired and delivered", "draining"] == seen
    assert 3 == len(stream.getvalue().splitlines())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here: it is Linux' disk without room")
@pytest.mark.parametrize("style", ["json", "console"])
def test_a_disk_without_room_fails_neither_calls_nor_other_work_of_the_proxy(style: str) -> None:
    with Path("/dev/full").open("w") as full:
        log = Log(full, style, "info", lambda: WALL)
        log.finished(record())
        log.event("draining", inflight=1)
        log.defect("r", ValueError())
        log.hook_failed(HookFailure("audit", "before_decision", "timeout"), None)
        log.formatter_failed("weather", ValueError())
        log.close(within=10)

    assert {"queue_full": 0, "write_failed": 5} == log.dropped


def test_writes_a_note_on_the_config_in_one_line_for_people() -> None:
    stream = io.StringIO()
    log = Log(stream, "console", "info", lambda: 0.0)
    log.event("config note", note="upstream 'b' is used by no route")
    log.close()
    time, _, rest = stream.getvalue().partition(" ")
    assert (8, "note: upstream 'b' is used by no route\n") == (len(time), rest)

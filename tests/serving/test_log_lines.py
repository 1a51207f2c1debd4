"""The log's ordinary line says what the general way would have said, in the order in which things happened."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.core.codes import TYPE_MISMATCH
from proxy.core.correction import Asked, Layer
from proxy.core.model import Repair, Rung, Violation
from proxy.interfaces import CallRecord, HookFailure, Question, Trace
from proxy.telemetry.batch import Batch
from proxy.telemetry.kinds import key_of
from proxy.telemetry.lines import Stamps
from proxy.telemetry.logs import Log, fields_of, make_log
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.recent import Recent

WALL = 1767225599.9996

# Another value for every field that may be told of a request.
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
    "questions": [Question(Layer.VALIDATION_FEEDBACK, Asked.DELIVERED, 0.5)],
    "trace": Trace("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "", 1, "", str),
}  # fmt: skip
# `corrections` stand beside `questions`; hooks that failed have lines of their own.
UNTOLD = {"events", "settling", "answer", "corrections", "hook_failures"}


def record(**changes: Any) -> CallRecord:
    made = CallRecord(
        "r", "/weather", "POST", "weather", "call", 10.0, 10.5, {"total": 0.25}, schema_id="s", outcome="delivered",
        status=200, conversation_rung=Rung.HEADER, upstream="tools", upstream_status=200, upstream_seconds=0.1234567,
        trace_id="0af7651916cd43dd8448eb211c80319c", request_bytes=12, response_bytes=34,
    )  # fmt: skip
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def batched(stream: io.StringIO) -> tuple[Batch, Log]:
    """A log as the proxy tells it of requests."""
    log = make_log(stream, "json", "info", lambda: WALL)
    return Batch(Metrics([], "digest"), log, Recent(lambda: WALL), lambda: WALL), log


def logged(*records: CallRecord) -> list[dict[str, Any]]:
    stream = io.StringIO()
    batch, _ = batched(stream)
    for each in records:
        batch.finished(each)
    return [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]


def test_every_field_of_a_record_is_changed_here() -> None:
    assert {field.name for field in fields(CallRecord)} - UNTOLD == set(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_a_record_with_another_value_gets_another_line(name: str) -> None:
    changed = record(**{name: CHANGES[name]})
    plain, other = logged(record(), changed)

    assert fields_of(record()) == {key: plain[key] for key in fields_of(record())}
    assert json.loads(json.dumps(fields_of(changed))) == {
        key: value for key, value in other.items() if key not in ("timestamp", "level", "message")
    }


def test_the_ordinary_line_has_what_every_line_has() -> None:
    (line,) = logged(record())

    assert key_of(record()) is not None
    assert ("info", "Tool call delivered", "2025-12-31T23:59:59.999+00:00") == tuple(
        line[key] for key in ("level", "message", "timestamp")
    )


@pytest.mark.parametrize("tool", ["\ue000", "\ue000\ue000", '"\ue000"', "%s", "%(x)s", "\ue000%"])
def test_a_tools_name_is_no_part_of_the_template(tool: str) -> None:
    twice = logged(record(tool=tool), record(tool=tool, request_id="second"))

    assert [("r", tool), ("second", tool)] == [(line["correlation_id"], line["gen_ai.tool.name"]) for line in twice]


@pytest.mark.parametrize("wall", [0.0, 1767225599.9994999, 1767225600.0, 1767225600.0005, 1767225600.9999999])
def test_an_instant_is_spelt_as_datetime_spells_it(wall: float) -> None:
    stamps = Stamps()
    stamps.of(wall)

    assert datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds") == stamps.of(wall)


class Writes(io.StringIO):
    """Counts the writes."""

    count = 0

    def write(self, text: str) -> int:
        self.count += 1
        return super().write(text)


def ids(stream: io.StringIO) -> list[str]:
    return [json.loads(line).get("correlation_id", "event") for line in stream.getvalue().splitlines()]


async def test_the_lines_of_one_turn_are_one_write() -> None:
    stream = Writes()
    batch, _ = batched(stream)
    for number in range(5):
        batch.finished(record(request_id=str(number), outcome="refused" if number == 3 else "delivered"))
    before = stream.count
    await asyncio.sleep(0)

    assert (0, 1) == (before, stream.count)
    assert ["0", "1", "2", "3", "4"] == ids(stream)


async def test_another_line_does_not_overtake_those_that_wait() -> None:
    stream = io.StringIO()
    batch, log = batched(stream)
    batch.finished(record(request_id="1"))
    log.event("draining")
    batch.finished(record(request_id="2"))
    batch.finished(record(request_id="3", outcome="refused"))
    await asyncio.sleep(0)

    assert ["1", "event", "2", "3"] == ids(stream)


async def test_a_request_is_judged_by_the_level_it_ended_under() -> None:
    stream = io.StringIO()
    batch, log = batched(stream)
    batch.finished(record(request_id="1"))
    log.level = "warning"
    batch.finished(record(request_id="2"))
    batch.finished(record(request_id="3", outcome="refused"))
    await asyncio.sleep(0)

    assert ["1", "3"] == ids(stream)


async def test_a_log_that_cannot_be_written_fails_no_call() -> None:
    stream = io.StringIO()
    batch, _ = batched(stream)
    stream.close()
    batch.finished(record())
    batch.finished(record(outcome="refused"))
    await asyncio.sleep(0)

    assert stream.closed


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here: it is Linux' disk without room")
@pytest.mark.parametrize("style", ["json", "console"])
def test_a_disk_without_room_fails_neither_calls_nor_what_the_proxy_does_beside_them(style: str) -> None:
    full = open("/dev/full", "w", buffering=1)  # noqa: SIM115, PTH123 - as the interpreter opens stderr: by lines
    log = make_log(full, style, "info", lambda: WALL)
    log.finished(record())
    log.event("draining", inflight=1)
    log.defect("r", ValueError())
    log.hook_failed(HookFailure("audit", "before_decision", "timeout"), None)
    log.formatter_failed("weather", ValueError())

    with pytest.raises(OSError, match="No space left"):
        full.close()

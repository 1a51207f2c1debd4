"""The spans of a finished request: names, times and the seeds' events, made without any library."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.call_record import CallRecord, Event, Sent, Trace
from proxy.core.model.values import Repair
from proxy.core.tool_errors.backoff import Reason
from proxy.extensions.correction.core.words import CorrectionQuestion, Layer, QuestionOutcome
from proxy.extensions.recording.spans import Span, build_spans

TRACE = "0af7651916cd43dd8448eb211c80319c"


def record(**changes: Any) -> CallRecord:
    made = CallRecord(
        "r", "/weather", "POST", "weather", "c7", 10.0, 10.5, {"read": 0.1, "decode": 0.02, "decide": 0.03}
    )
    made.outcome, made.status = "delivered", 200
    made.trace = Trace(TRACE, "a" * 16, "", 1, "", lambda: "f" * 16)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def whole(known: bool = True, **changes: Any) -> Span:
    """The span of the request itself."""
    return next(build_spans(record(**changes), known=known))


def test_a_request_without_a_trace_has_no_span() -> None:
    assert [] == list(build_spans(record(trace=None), known=True))


@pytest.mark.parametrize(
    ("changes", "known", "name"),
    [
        ({}, True, "tools/call weather"),
        ({}, False, "tools/call"),
        ({"call_id": ""}, True, "POST /weather"),
        ({"call_id": "", "route": ""}, True, "POST"),
        ({"call_id": "", "method": "BREW"}, True, "HTTP /weather"),
    ],
)
def test_a_span_has_one_of_few_names(changes: dict[str, Any], known: bool, name: str) -> None:
    assert name == whole(known, **changes).name


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ({}, ""),
        ({"outcome": "refused", "code": "INVALID_ARGUMENTS", "status": 400}, ""),
        ({"outcome": "refused", "code": "INTERNAL_ERROR", "status": 500}, "INTERNAL_ERROR"),
        ({"outcome": "tool_error", "code": "UPSTREAM_ERROR"}, "UPSTREAM_ERROR"),
        ({"outcome": "upstream_error", "upstream_error": "connection_refused"}, "connection_refused"),
        ({"outcome": "passthrough", "status": 502}, "502"),
    ],
)
def test_a_call_the_client_got_wrong_is_no_error_of_the_server(changes: dict[str, Any], failed: str) -> None:
    assert failed == whole(**changes).failed


def test_changes_of_type_are_gominds_event_and_others_are_not() -> None:
    repairs = (Repair("string_to_number", ("lat",)), Repair("enum_case", ("unit",)), Repair("key_case", ("Lon",)))
    (event,) = whole(repairs=repairs).events

    assert "type_coercion_applied" == event.name
    assert {"coercions_count": 1, "capability": "weather", "step_id": "c7"} == event.attributes
    assert pytest.approx(10.15) == event.at
    assert () == whole(repairs=repairs[1:]).events


def test_keeps_the_events_of_the_correction_layers_unchanged() -> None:
    events = [
        Event("validation_feedback_started", 10.2),
        Event("validation_feedback_success", 10.4, {"retry_number": 1}),
    ]

    assert tuple(events) == whole(events=events).events


def test_a_resend_knows_its_number_and_its_reason() -> None:
    made = record(resends=(Reason.UNSENT, Reason.RETRY_AFTER))
    assert made.trace is not None
    made.trace.sent = [
        Sent("1" * 16, "POST", "tools", 10.1, 10.2, error="connection_refused"),
        Sent("2" * 16, "POST", "tools", 10.2, 10.3, status=429, resend=True),
        Sent("3" * 16, "POST", "tools", 10.3, 10.4, status=200, resend=True),
    ]
    _, *sent = build_spans(made, known=True)

    assert [
        (None, None, "connection_refused", "connection_refused"),
        (1, "unsent", "429", "429"),
        (2, "retry_after", None, ""),
    ] == [
        (
            span.attributes.get("http.request.resend_count"),
            span.attributes.get("resend.reason"),
            span.attributes.get("error.type"),
            span.failed,
        )
        for span in sent
    ]
    assert [(TRACE, "a" * 16, "client")] * 3 == [(span.trace.trace_id, span.parent_id, span.kind) for span in sent]


def test_a_question_to_the_model_endpoint_is_a_span_and_one_that_was_not_asked_is_none() -> None:
    feedback, retry = Layer.VALIDATION_FEEDBACK, Layer.SEMANTIC_RETRY
    made = record(
        questions=[
            CorrectionQuestion(feedback, QuestionOutcome.BUSY),
            CorrectionQuestion(feedback, QuestionOutcome.TIMEOUT, 0.15, begun=10.1),
            CorrectionQuestion(retry, QuestionOutcome.CANNOT_FIX, 0.1, begun=10.3),
        ],
    )  # fmt: skip
    _, *chats = build_spans(made, known=True)

    assert [
        (
            "chat",
            "client",
            10.1,
            10.25,
            {"correction.layer": "validation_feedback", "error.type": "timeout"},
            "timeout",
        ),
        ("chat", "client", 10.3, 10.4, {"correction.layer": "semantic_retry"}, ""),
    ] == [
        (
            span.name,
            span.kind,
            span.started,
            round(span.ended, 6),
            {name: value for name, value in span.attributes.items() if name in ("correction.layer", "error.type")},
            span.failed,
        )
        for span in chats
    ]

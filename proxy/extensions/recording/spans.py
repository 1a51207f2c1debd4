"""The spans of a finished request: one SERVER span, and one CLIENT span per request to the upstream or to a model.
Pure.

Names and attributes are OTel's (HTTP and GenAI conventions) and those of the log line; events have the names and
attributes that GoMind prescribes. Like a log line, a span holds names, codes and paths, and never an argument value.
`otlp.py` exports these spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final, Literal

from proxy.adapters.ladder import read_trace_id
from proxy.call_record import CallRecord, Event, Trace
from proxy.core.model.value_class import value_class
from proxy.core.rules.rules import COERCIONS
from proxy.plugin import METHODS, read_fields

Value = str | int | float | bool | tuple[str, ...]

# The event of GoMind's layer 2: values of the call were converted to another type.
COERCED: Final = "type_coercion_applied"
# Fields that a span holds in another form.
_KNOWN_BY_THE_SPAN: Final = frozenset({"duration_ms", "trace_id", "span_id"})
_FAILED: Final = frozenset({"tool_error", "withheld", "upstream_error"})

SAMPLED: Final = 0x01
# The flag says that the trace id's last 7 bytes are random. A participant that continues the trace keeps the flag (W3C
# Trace Context level 2, section 3.2.2.5).
RANDOM: Final = 0x02


@value_class
class Parent:
    """The span that sent a request. Its ids are lower-case hexadecimal digits."""

    trace_id: str
    span_id: str
    flags: int


def read_parent(traceparent: str | None) -> Parent | None:
    """Returns the parent that a header names; None if it is missing or malformed."""
    if traceparent is None or read_trace_id(traceparent) is None:
        return None
    trace_id, span_id, flags = traceparent.split("-")[1:4]
    return Parent(trace_id, span_id, int(flags, 16))


@value_class
class Span:
    """One span. Ids are hexadecimal, with `parent_id` '' at the root; times are seconds of the monotonic clock.
    `failed` is '' or the reason for status error."""

    name: str
    kind: Literal["server", "client"]
    trace: Trace
    span_id: str
    parent_id: str
    started: float
    ended: float
    attributes: Mapping[str, Value]
    events: tuple[Event, ...] = ()
    failed: str = field(default="")


def build_spans(record: CallRecord, *, known: bool) -> Iterator[Span]:
    """The spans of a finished request; none without a trace. `known`: the tool is in the config, so the span's name may
    hold its name (span names must be few: OTel, "Span name")."""
    trace = record.trace
    if trace is None:
        return
    attributes = dict(_list_attributes(read_fields(record)))
    if any(event.attributes.get("type_error") is True for event in record.events):
        attributes["orchestration.type_error"] = True  # GoMind's filter
    failed = record.outcome in _FAILED or record.status >= 500
    yield Span(
        _name_span(record, attributes if known else {}),
        "server",
        trace,
        trace.span_id,
        trace.parent_id,
        record.started,
        record.ended,
        attributes,
        (*_list_coercions(record, attributes), *record.events),
        (record.upstream_error or record.code or str(record.status)) if failed else "",
    )
    yield from _make_sent_spans(record, trace)
    yield from _make_question_spans(record, trace)


def _name_span(record: CallRecord, attributes: Mapping[str, Value]) -> str:
    if record.call_id:
        return f"tools/call {attributes.get('gen_ai.tool.name', '')}".rstrip()
    method = record.method if record.method in METHODS else "HTTP"
    return f"{method} {record.route}".rstrip()


def _list_attributes(fields: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """The fields of the log line as attributes. Attributes cannot be mappings, so a list of those becomes one text.
    Unknown values are left out."""
    for name, value in fields.items():
        if name in _KNOWN_BY_THE_SPAN or value is None:
            continue
        if isinstance(value, list):
            yield name, tuple(" ".join(map(str, each.values())) for each in value)
        elif isinstance(value, bool | int | float):
            yield name, value
        else:
            yield name, str(value)


def _list_coercions(record: CallRecord, attributes: Mapping[str, Value]) -> Iterator[Event]:
    """GoMind's event for converted values, at the time of the decision."""
    rules = [repair.rule for repair in record.repairs if repair.rule in COERCIONS]
    if rules:
        stages = record.stages
        at = record.started + sum(stages.get(stage, 0.0) for stage in ("read", "decode", "decide"))
        capability, step = str(attributes.get("gen_ai.tool.name", "")), record.call_id
        yield Event(COERCED, at, {"coercions_count": len(rules), "capability": capability, "step_id": step})


def _make_sent_spans(record: CallRecord, trace: Trace) -> Iterator[Span]:
    """One span per request to an upstream (OTel, "HTTP client span")."""
    reasons = iter(record.resends)
    resent = 0
    for sent in trace.sent:
        attributes: dict[str, Value] = {"http.request.method": sent.method, "server.address": sent.upstream}
        if sent.status:
            attributes["http.response.status_code"] = sent.status
        if sent.resend:
            resent += 1
            attributes |= {"http.request.resend_count": resent, "resend.reason": str(next(reasons, ""))}
        failed = sent.error or (str(sent.status) if sent.status >= 400 else "")
        if failed:
            attributes["error.type"] = failed
        yield Span(
            sent.method, "client", trace, sent.span_id, trace.span_id, sent.started, sent.ended, attributes,
            failed=failed,
        )  # fmt: skip


def _make_question_spans(record: CallRecord, trace: Trace) -> Iterator[Span]:
    """One span per question to a model (OTel, "GenAI inference"). The endpoint belongs to a third party and
    does not receive the trace."""
    for described in filter(None, (question.describe_span() for question in record.questions)):
        started, ended, details, failed = described
        attributes: dict[str, Value] = {"gen_ai.operation.name": "chat", **details}
        if failed:
            attributes["error.type"] = failed
        yield Span("chat", "client", trace, trace.fresh_id(), trace.span_id, started, ended, attributes, failed=failed)

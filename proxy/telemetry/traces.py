"""A finished request as spans: one of kind SERVER, and one of kind CLIENT for each time its upstream was asked, or the
model endpoint of the correction layers. Pure.

Names and attributes are OTel's (HTTP and GenAI conventions) and those of the log line; the events bear the names and
attributes that GoMind prescribes. Names, codes and paths only: like the log line, a span never holds an argument value.
`otlp.py` sends what is made here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from proxy.core.correction import Asked
from proxy.core.rules import RULES
from proxy.interfaces import CallRecord, Event, Trace
from proxy.telemetry.catalogue import METHODS
from proxy.telemetry.logs import Fields, fields_of

Value = str | int | float | bool | tuple[str, ...]

# GoMind layer 2: the event of a call whose values were given another type.
COERCED: Final = "type_coercion_applied"
_COERCIONS: Final = frozenset(rule.name for rule in RULES.values() if rule.kind == "value")
# A span tells these by itself.
_KNOWN_BY_THE_SPAN: Final = frozenset({"duration_ms", "trace_id", "span_id"})
_FAILED: Final = frozenset({"tool_error", "upstream_error"})
# What tells when a question to the model endpoint began, and which questions never did.
_BEGUN: Final = frozenset({"validation_feedback_started", "contextual_re_resolution.start"})
_NOT_ASKED: Final = frozenset({Asked.BUSY, Asked.BUDGET})
# No answer, or none that can be read: the endpoint's failure, and not that its model knew no better.
_UNANSWERED: Final = frozenset({Asked.TIMEOUT, Asked.ENDPOINT, Asked.TOO_LONG, Asked.UNUSABLE})


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Ids in hexadecimal, `parent_id` '' at the root; times on the monotonic clock, in seconds. `failed` is
    '' or why its status is an error."""

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


def spans_of(record: CallRecord, *, known: bool) -> Iterator[Span]:
    """The spans of a finished request; none without a trace. `known`: its tool is one of the config's, so that its name
    may stand in that of the span (few of them: OTel, "Span name")."""
    trace = record.trace
    if trace is None:
        return
    attributes = dict(_attributes(fields_of(record)))
    failed = record.outcome in _FAILED or record.status >= 500
    yield Span(
        _name(record, attributes if known else {}),
        "server",
        trace,
        trace.span_id,
        trace.parent_id,
        record.started,
        record.ended,
        attributes,
        (*_coercions(record, attributes), *record.events),
        (record.upstream_error or record.code or str(record.status)) if failed else "",
    )
    yield from _sent(record, trace)
    yield from _asked(record, trace)


def _name(record: CallRecord, attributes: Mapping[str, Value]) -> str:
    if record.call_id:
        return f"tools/call {attributes.get('gen_ai.tool.name', '')}".rstrip()
    method = record.method if record.method in METHODS else "HTTP"
    return f"{method} {record.route}".rstrip()


def _attributes(fields: Fields) -> Iterator[tuple[str, Value]]:
    """The fields of the log line as attributes, which know no mappings: a list of them becomes one of their values as
    text. What is not known is left out."""
    for name, value in fields.items():
        if name in _KNOWN_BY_THE_SPAN or value is None:
            continue
        if isinstance(value, list):
            yield name, tuple(" ".join(map(str, each.values())) for each in value)
        elif isinstance(value, bool | int | float):
            yield name, value
        else:
            yield name, str(value)


def _coercions(record: CallRecord, attributes: Mapping[str, Value]) -> Iterator[Event]:
    """GoMind's event where values were given another type, at the moment the call was decided."""
    rules = [repair.rule for repair in record.repairs if repair.rule in _COERCIONS]
    if rules:
        stages = record.stages
        at = record.started + sum(stages.get(stage, 0.0) for stage in ("read", "decode", "decide"))
        capability, step = str(attributes.get("gen_ai.tool.name", "")), record.call_id
        yield Event(COERCED, at, {"coercions_count": len(rules), "capability": capability, "step_id": step})


def _sent(record: CallRecord, trace: Trace) -> Iterator[Span]:
    """A span for each request to an upstream (OTel, "HTTP client span")."""
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


def _asked(record: CallRecord, trace: Trace) -> Iterator[Span]:
    """A span for each question to the model endpoint (OTel, "GenAI inference"). The endpoint, which is somebody else's,
    is not told of the trace."""
    begun = [event.at for event in record.events if event.name in _BEGUN]
    asked = [question for question in record.questions if question.outcome not in _NOT_ASKED]
    for at, question in zip(begun, asked, strict=False):
        failed = question.outcome.value if question.outcome in _UNANSWERED else ""
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "correction.layer": question.layer.value,
            "correction.outcome": question.outcome.value,
        }
        if failed:
            attributes["error.type"] = failed
        ended = at + question.seconds
        yield Span("chat", "client", trace, trace.fresh_id(), trace.span_id, at, ended, attributes, failed=failed)

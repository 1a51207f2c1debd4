"""The log: one line per finished request, JSON for machines or a console format for people. The room of structlog.

Fields bear OTel's names where it has any; a refusal is that same line at level warning with the message and keys Acode
prescribes (NFR-013..016, "Logging"). Names, codes and paths only, bounded and with credentials masked: a line never
holds an argument value.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO, cast

import structlog

from proxy.core.model import Violation
from proxy.core.sentence import shown_path
from proxy.interfaces import CallRecord, HookFailure
from proxy.telemetry.lines import Sink, Stamps, Templates, is_ordinary, milliseconds

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

# outcome -> (level, message); a refused call of a tool is told apart from a request that was no call.
_MESSAGES: Final = {
    "delivered": ("info", "Tool call delivered"),
    "repaired": ("info", "Tool call repaired and delivered"),
    "corrected": ("info", "Tool call corrected by a model and delivered"),
    "answered": ("info", "Tool call answered by a hook"),
    "passthrough": ("info", "Request relayed"),
    "client_gone": ("info", "Client left before the answer"),
    "refused": ("info", "Request refused"),
    "tool_error": ("warning", "Tool reported an error"),
    "upstream_error": ("error", "Upstream failed"),
}
# Acode, "Logging": the message of every refused call.
_FAILED: Final = "Tool validation failed"
# Report-only routes: what an enforced one would have done.
_WOULD_FAIL: Final = "Tool validation would have failed"
_WOULD_REPAIR: Final = "Tool call would have been repaired"
_LONGEST_NAME: Final = 100
_MOST_LISTED: Final = 20

Fields = dict[str, Any]


class Log:
    """Implements `Observer`; `event` and `defect` are for what happens outside of calls."""

    def __init__(
        self, logger_at: Callable[[str], Any], level: str, ordinary: Callable[[CallRecord], None] | None = None
    ) -> None:
        """`ordinary` writes the line of a call about which there is nothing special to say; None: like any other."""
        self._logger_at = logger_at
        self._ordinary = ordinary
        self.level = level

    @property
    def level(self) -> str:
        """The least severe lines that are written: one of LEVELS. May be set at any time."""
        return self._level

    @level.setter
    def level(self, level: str) -> None:
        self._level, self._logger = level, self._logger_at(level)
        self._least = LEVELS[level]

    def finished(self, record: CallRecord) -> None:
        """Writes the line of one finished request."""
        level, message = _headline(record)
        if self._ordinary is not None and is_ordinary(record):
            if self._least <= LEVELS[level]:
                self._ordinary(record)
            return
        write = getattr(self._logger, level)
        write(message, **fields_of(record))

    def event(self, message: str, level: str = "info", **fields: object) -> None:
        """Writes one line about the proxy itself."""
        getattr(self._logger, level)(message, **fields)

    def formatter_failed(self, tool: str, error: Exception) -> None:
        """Writes down that a tool's own formatter failed; not the exception's words, which may quote a value."""
        self._logger.warning("Formatter failed", tool_name=tool, error=type(error).__name__)

    def hook_failed(self, failure: HookFailure, error: BaseException | None) -> None:
        """Writes down that a hook failed and where in its code; not the exception's words, which may quote a value."""
        told: Fields = {"hook": failure.hook, "point": failure.point, "reason": failure.reason}
        if error is not None:
            told |= {"error": type(error).__name__, "frames": _frames(error)}
        self._logger.error("Hook failed", **told)

    def defect(self, request_id: str, error: BaseException) -> None:
        """Writes down a defect of ours: where it happened, but not the exception's words, which may quote a value."""
        told: Fields = {"error": type(error).__name__, "frames": _frames(error)}
        self._logger.error("Internal error", correlation_id=request_id, **told)


def _frames(error: BaseException) -> list[str]:
    """Where an exception came up: the innermost places."""
    found = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in found][-12:]


def make_log(stream: TextIO, format_name: str, level: str, wall: Callable[[], float]) -> Log:
    """A log that writes to `stream`. `format_name`: json, console, or auto (console on a terminal)."""
    console = format_name == "console" or (format_name == "auto" and stream.isatty())
    sink, stamps, templates = Sink(stream), Stamps(), Templates(_all_fields, _dumps)

    def stamp(_logger: Any, _method: str, fields: Any) -> Any:
        fields["timestamp"] = stamps.of(wall())
        return fields

    def ordinary(record: CallRecord) -> None:
        sink.later(templates.line(record, stamps.of(wall())))

    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=stream.isatty(), event_key="message")
        if console
        else structlog.processors.JSONRenderer(serializer=_dumps)
    )

    def logger_at(least: str) -> Any:
        logger = structlog.wrap_logger(
            structlog.WriteLogger(cast("TextIO", sink)),
            processors=[
                stamp,
                structlog.processors.add_log_level,
                structlog.processors.EventRenamer("message"),
                renderer,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(LEVELS[least]),
            cache_logger_on_first_use=True,
        )
        return logger.bind()

    return Log(logger_at, level, None if console else ordinary)


def _dumps(fields: Fields, **_options: object) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=str)


def _all_fields(record: CallRecord) -> Fields:
    level, message = _headline(record)
    return {**fields_of(record), "level": level, "message": message}


def _headline(record: CallRecord) -> tuple[str, str]:
    if record.outcome == "refused" and record.call_id:
        return "warning", _FAILED
    if record.would_refuse:
        return "warning", _WOULD_FAIL
    if record.repairs and record.outcome == "delivered":
        return "info", _WOULD_REPAIR
    return _MESSAGES.get(record.outcome, ("info", "Request finished"))


def fields_of(record: CallRecord) -> Fields:
    """The fields of a line, for whatever else shows finished requests too; what says nothing is left out."""
    fields: Fields = {
        "correlation_id": record.request_id,
        "outcome": record.outcome,
        "http.request.method": record.method[:_LONGEST_NAME],
        "http.route": record.route,
        "http.response.status_code": record.status,
        "http.request.body.size": record.request_bytes,
        "http.response.body.size": record.response_bytes,
        "duration_ms": milliseconds(record.ended - record.started),
    }
    if record.call_id:
        fields |= _call_fields(record)
    if record.upstream:
        fields["server.address"] = record.upstream
        fields["upstream.duration_ms"] = milliseconds(record.upstream_seconds)
        fields["overhead_ms"] = milliseconds(record.stages.get("total", 0.0))
        if record.upstream_status:
            fields["upstream.status_code"] = record.upstream_status
        if record.resends:
            fields["http.request.resend_count"] = len(record.resends)
            fields["resend.reason"] = record.resends[-1]
        if record.resend_denied is not None:
            fields["resend.denied"] = record.resend_denied
    if record.code or record.upstream_error:
        fields["error.type"] = record.upstream_error or record.code
        fields["error.code"] = record.code
    if record.trace_id:
        fields["trace_id"] = record.trace_id
    if record.trace is not None:
        fields["span_id"] = record.trace.span_id
    fields |= record.notes
    return fields


def _call_fields(record: CallRecord) -> Fields:
    name = shown_path((record.tool[:_LONGEST_NAME],)).removeprefix("/")
    fields: Fields = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": record.call_id,
        "validation.mode": record.mode,
        "conversation.source": record.conversation_rung,
        "schema_id": record.schema_id,
    }
    if record.repairs:
        fields["repairs"] = [
            {"rule": repair.rule, "path": shown_path(repair.path)} for repair in record.repairs[:_MOST_LISTED]
        ]
    if record.questions:
        fields |= _correction_fields(record)
    if record.outcome == "refused" or record.violations:
        fields |= _failure_fields(record, name)
    if record.answer_violations:
        fields["answer.errors"] = _broken(record.answer_violations)
    if record.corrected_after:
        fields["corrected_after"] = record.corrected_after
    if record.container:
        fields["container"] = record.container
        fields["container.event"] = record.container_event
    return fields


def _correction_fields(record: CallRecord) -> Fields:
    """What was asked of the model endpoint, and what it changed in the call that was delivered."""
    fields: Fields = {
        "correction.questions": [
            {"layer": asked.layer.value, "outcome": asked.outcome.value, "duration_ms": milliseconds(asked.seconds)}
            for asked in record.questions
        ]
    }
    if record.corrections:
        fields["corrections"] = [
            {"layer": made.rule, "path": shown_path(made.path)} for made in record.corrections[:_MOST_LISTED]
        ]
    return fields


def _broken(violations: Sequence[Violation]) -> list[Fields]:
    return [{"path": shown_path(each.path), "code": each.code.name} for each in violations[:_MOST_LISTED]]


def _failure_fields(record: CallRecord, name: str) -> Fields:
    """Acode's keys, and whether the model was told to stop."""
    fields: Fields = {
        "tool_name": name,
        "error_count": len(record.violations),
        "retry_attempt": record.attempt,
        "max_retries": record.max_attempts,
        "errors": _broken(record.violations),
    }
    if record.escalated:
        fields["escalated"] = True
    if record.repeated:
        fields["repeated"] = True
    return fields

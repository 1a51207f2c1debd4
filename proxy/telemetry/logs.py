"""The log: one line per finished request, JSON for machines or a console format for people. The room of structlog.

Fields bear OTel's names where it has any; a refusal is that same line at level warning with the message and keys Acode
prescribes (NFR-013..016, "Logging"). Names, codes and paths only, bounded and with credentials masked: a line never
holds an argument value.

structlog writes what happens outside of requests, and makes lines for people; it is loaded at the first of those. The
many lines of requests go out as JSON without it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, TextIO

from proxy.core.model import Violation
from proxy.core.telling import shown_path
from proxy.interfaces import CallRecord, HookFailure
from proxy.telemetry.kinds import Told, nothing_waits
from proxy.telemetry.lines import Stamps, Template, milliseconds

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
_JSON: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)

Fields = dict[str, Any]


class Log:
    """Implements `Observer`; `event` and `defect` are for what happens outside of requests."""

    def __init__(self, stream: TextIO, console: bool, level: str, wall: Callable[[], float]) -> None:
        """`console`: lines for people. `wall` gives seconds since the Unix epoch."""
        self._stream = stream
        self._console = console
        self._wall = wall
        self._stamps = Stamps()
        self.settle: Callable[[], None] = nothing_waits
        self._level, self._least = level, LEVELS[level]

    @property
    def level(self) -> str:
        """The least severe lines that are written: one of LEVELS. May be set at any time."""
        return self._level

    @level.setter
    def level(self, level: str) -> None:
        self.settle()
        self._level, self._least = level, LEVELS[level]

    def finished(self, record: CallRecord) -> None:
        """Writes the line of one finished request."""
        self.told([(None, record, self._wall(), fields_of(record))])

    def told(self, requests: Sequence[Told]) -> None:
        """Writes the lines of finished requests together. A full disk or a closed pipe must not fail calls."""
        stamp, least = self._stamps.of, self._least
        pieces: list[str] = []
        for kind, record, wall, fields in requests:
            if kind is None:
                pieces.append(self._line(record, fields, stamp(wall)))
            elif (template := kind.template) is None:
                pieces.append(self._line(record, fields_of(record), stamp(wall)))
            elif template.level >= least:
                pieces += template.pieces(record, stamp(wall))
        if text := "".join(pieces):
            with suppress(OSError, ValueError):
                self._stream.write(text)
                self._stream.flush()

    def template(self, record: CallRecord) -> Template | None:
        """What the lines of all requests of this one's kind have in common; None where they are for people."""
        if self._console:
            return None
        level, message = _headline(record)
        fields = {**fields_of(record), "level": level, "message": message, "timestamp": ""}
        return Template(fields, _JSON.encode, LEVELS[level])

    def _line(self, record: CallRecord, fields: Mapping[str, Any], stamp: str) -> str:
        level, message = _headline(record)
        if LEVELS[level] < self._least:
            return ""
        return f"{self._rendered(None, level, {**fields, 'timestamp': stamp, 'level': level, 'message': message})}\n"

    def event(self, message: str, level: str = "info", **fields: object) -> None:
        """Writes one line about the proxy itself. It comes up in the midst of calls and of draining, so for it holds
        what holds in `told`: where it cannot be written, that is all that is lost."""
        self.settle()
        if LEVELS[level] >= self._least:
            with suppress(OSError, ValueError):
                getattr(self._logger, level)(message, **fields)

    def formatter_failed(self, tool: str, error: Exception) -> None:
        """Writes down that a tool's own formatter failed; not the exception's words, which may quote a value."""
        self.event("Formatter failed", "warning", tool_name=tool, error=type(error).__name__)

    def hook_failed(self, failure: HookFailure, error: BaseException | None) -> None:
        """Writes down that a hook failed and where in its code; not the exception's words, which may quote a value."""
        told: Fields = {"hook": failure.hook, "point": failure.point, "reason": failure.reason}
        if error is not None:
            told |= {"error": type(error).__name__, "frames": _frames(error)}
        self.event("Hook failed", "error", **told)

    def defect(self, request_id: str, error: BaseException) -> None:
        """Writes down a defect of ours: where it happened, but not the exception's words, which may quote a value."""
        told: Fields = {"error": type(error).__name__, "frames": _frames(error)}
        self.event("Internal error", "error", correlation_id=request_id, **told)

    @cached_property
    def _logger(self) -> Any:
        """structlog's, for what is rare."""
        import structlog

        def stamped(_logger: Any, _method: str, fields: Any) -> Any:
            fields["timestamp"] = self._stamps.of(self._wall())
            return fields

        return structlog.wrap_logger(
            structlog.WriteLogger(self._stream),
            processors=[
                stamped,
                structlog.processors.add_log_level,
                structlog.processors.EventRenamer("message"),
                self._rendered,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(LEVELS["debug"]),  # `event` has looked at the level
            cache_logger_on_first_use=True,
        ).bind()

    @cached_property
    def _rendered(self) -> Callable[[Any, str, Any], str]:
        """Makes the text of a line, as structlog calls for it."""
        if not self._console:
            return lambda _logger, _method, fields: _JSON.encode(fields)
        import structlog

        return structlog.dev.ConsoleRenderer(colors=self._stream.isatty(), event_key="message")


def _frames(error: BaseException) -> list[str]:
    """Where an exception came up: the innermost places."""
    found = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in found][-12:]


def make_log(stream: TextIO, format_name: str, level: str, wall: Callable[[], float]) -> Log:
    """A log that writes to `stream`. `format_name`: json, console, or auto (console on a terminal)."""
    return Log(stream, format_name == "console" or (format_name == "auto" and stream.isatty()), level, wall)


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

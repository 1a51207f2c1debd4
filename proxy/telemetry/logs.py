"""The log: one line per finished request, as JSON for machines or in a console format for people. Uses structlog.

Fields have OTel's names where it defines them. A refusal is logged at level warning with the message and keys that
Acode prescribes (NFR-013..016, "Logging"). Lines hold names, codes and paths, bounded and with credentials masked, and
never an argument value.

structlog makes every line at once, for machines and for people. The thread of `writer.py` writes the lines of a short
time together.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import orjson
import structlog

from proxy.call_record import CallRecord, HookFailure
from proxy.core.contract.attempts import RAISES_ATTEMPT
from proxy.core.contract.refusals import REFUSED_BY_TOOL
from proxy.core.envelope.view import list_places, select_violations, show_name, show_path
from proxy.core.model import codes
from proxy.telemetry.console_log import format_call, format_note
from proxy.telemetry.failures import describe_errors
from proxy.telemetry.writer import DROP_REASONS, WRITE_FAILED, open_writer

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

# outcome -> (level, message). A refused tool call and a refused request that is not a call have different messages.
_MESSAGES: Final = {
    "delivered": ("info", "Tool call delivered"),
    "repaired": ("info", "Tool call repaired and delivered"),
    "corrected": ("info", "Tool call corrected by a model and delivered"),
    "answered": ("info", "Tool call answered by a hook"),
    "passthrough": ("info", "Request relayed"),
    "client_gone": ("info", "Client left before the answer"),
    "refused": ("info", "Request refused"),
    "tool_error": ("warning", "Tool reported an error"),
    "withheld": ("warning", "Tool answer withheld"),
    "upstream_error": ("error", "Upstream failed"),
}
# The messages of calls that no upstream got: a check, or a call that the proxy answers itself.
_UNSENT: Final = {"delivered": "Tool call valid, nothing sent", "repaired": "Tool call repaired, nothing sent"}
# The message of a call that broke its tool's rules (Acode, "Logging").
_FAILED: Final = "Tool validation failed"
# The same on a report-only route, which still delivers the call.
_WOULD_FAIL: Final = "Tool validation would have failed"
_UNCHECKED: Final = "Tool call forwarded unchecked after an internal error"
_WOULD_REPAIR: Final = "Tool call would have been repaired"
# The messages of calls that are refused for another reason, by error code.
_REFUSED: Final = {
    codes.CALL_CAP_EXCEEDED.name: "Tool call beyond its cap refused",
    codes.CALL_RATE_EXCEEDED.name: "Tool call beyond its rate refused",
    codes.TOO_MANY_CALLS_AT_ONCE.name: "Tool call refused beside those under way",
    codes.TOOL_ERROR_BUDGET.name: "Tool call refused after too many errors of the tool",
    codes.CALL_NOT_ALLOWED.name: "Tool call not allowed by a hook or a rule",
    codes.HOOK_FAILED.name: "Tool call refused because a hook failed",
}
_BLOCKED: Final = "Tool call refused that the tool has refused before"
_NOT_SENT: Final = "Tool call refused"
_DROPPED: Final = "Log lines dropped"
_LONGEST_NAME: Final = 100
_MOST_LISTED: Final = 20
# How long `close` waits for a slow reader, in seconds.
_CLOSING: Final = 1.0

Fields = dict[str, Any]


class Log:
    """Implements `Observer`; `event` and `defect` report what happens outside of requests."""

    def __init__(self, stream: TextIO, format_name: str, level: str, wall: Callable[[], float]) -> None:
        """`format_name` is json, console (lines for people), or auto (console on a terminal). `wall`: Unix seconds."""
        self.level = level
        """The lowest level that is written, one of LEVELS. May be set at any time."""
        self._wall = wall
        self._for_people = format_name == "console" or (format_name == "auto" and stream.isatty())
        self._instant = (-1, "")
        renderer = _make_console_renderer(stream.isatty()) if self._for_people else render_json
        self._lines = LineRenderer(None, [self._complete, renderer], {})
        self._writer = open_writer(stream, self._render_losses)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Returns how many lines were lost so far, by each of `writer.DROP_REASONS`."""
        return {reason: self._writer.dropped[reason] for reason in DROP_REASONS}

    def close(self, within: float = _CLOSING) -> None:
        """Writes the queued lines, blocking for at most `within` seconds. Later lines are lost."""
        self._writer.close(within)

    def finished(self, record: CallRecord) -> None:
        """Writes the line of one finished request."""
        level, message = _choose_headline(record)
        if LEVELS[level] < LEVELS[self.level]:
            return
        fields = read_fields(record)
        if self._for_people:
            would = {"would_refuse": True} if record.would_refuse else {}
            fields = {**fields, **describe_errors(record), **would}
        self._write(level, message, fields)

    def event(self, message: str, level: str = "info", **fields: object) -> None:
        """Writes one line about the proxy itself."""
        if LEVELS[level] >= LEVELS[self.level]:
            self._write(level, message, fields)

    def _write(self, level: str, message: str, fields: Fields) -> None:
        try:
            line = self._lines.render(level, message, fields)
        except Exception as error:  # noqa: BLE001 - whatever a field's own text raises: no line may fail a call
            self._writer.drop(WRITE_FAILED, type(error).__name__)
        else:
            self._writer.write(line)

    def formatter_failed(self, tool: str, error: Exception) -> None:
        """Logs that a tool's own formatter failed, without the exception's message, which may quote a value."""
        self.event("Formatter failed", "warning", tool_name=tool, error=type(error).__name__)

    def hook_failed(self, failure: HookFailure, error: BaseException | None) -> None:
        """Logs that a hook failed and where in its code, without the exception's message, which may quote a value."""
        fields: Fields = {"hook": failure.hook, "point": failure.point, "reason": failure.reason}
        if error is not None:
            fields |= {"error": type(error).__name__, "frames": list_frames(error)}
        self.event("Hook failed", "error", **fields)

    def defect(self, request_id: str, error: BaseException) -> None:
        """Logs a defect of the proxy and its place, without the exception's message, which may quote a value."""
        fields: Fields = {"error": type(error).__name__, "frames": list_frames(error)}
        self.event("Internal error", "error", correlation_id=request_id, **fields)

    def _complete(self, _logger: object, level: str, event: Any) -> Fields:
        """A structlog processor that completes the fields of a line. They come as one value, because their names could
        collide with structlog's own arguments. The time is RFC 3339, UTC, with milliseconds."""
        milliseconds = int(self._wall() * 1000)
        at, text = self._instant  # all lines of one second share its text
        if milliseconds // 1000 != at:
            at = milliseconds // 1000
            text = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._instant = (at, text)
        return {
            **event["fields"],
            # A format would cost three times as much.
            "timestamp": f"{text}.{str(1000 + milliseconds % 1000)[1:]}+00:00",
            "level": level,
            "message": event["event"],
        }

    def _render_losses(self, lost: Mapping[str, int]) -> bytes:
        """The line with the numbers of lines that were lost before it, by reason. The writer's thread makes it."""
        return b"" if LEVELS["warning"] < LEVELS[self.level] else self._lines.render("warning", _DROPPED, dict(lost))


class LineRenderer(structlog.BoundLoggerBase):
    """A logger of structlog's that gives the line in place of writing it."""

    def render(self, level: str, message: str, fields: Fields) -> bytes:
        """Returns the line that the processors make of an event."""
        (line,), _ = self._process_event(level, message, {"fields": fields})
        return line  # type: ignore[no-any-return]  # of the last processor


def render_json(_logger: object, _level: str, fields: MutableMapping[str, Any]) -> bytes:
    """A structlog processor that renders a line as JSON. Values that orjson cannot write (an integer beyond 64 bits,
    half a surrogate pair, a type unknown to JSON) are written by the standard library, as escapes and text."""
    try:
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(fields, separators=(",", ":"), default=str).encode() + b"\n"


def _make_console_renderer(colors: bool) -> Callable[[object, str, MutableMapping[str, Any]], bytes]:
    """A structlog processor that renders a line for people: a finished request and a note on the config in one short
    line, other events in structlog's own format."""
    renderer = structlog.dev.ConsoleRenderer(colors=colors, event_key="message")

    def render(logger: object, level: str, fields: MutableMapping[str, Any]) -> bytes:
        if "outcome" in fields:
            line = format_call(fields, colors=colors)
        else:
            line = format_note(fields) if "note" in fields else renderer(logger, level, fields)
        return f"{line}\n".encode(errors="backslashreplace")

    return render


def list_frames(error: BaseException) -> list[str]:
    """The innermost places of an exception's traceback, at most 12."""
    found = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in found][-12:]


def _choose_headline(record: CallRecord) -> tuple[str, str]:
    if record.outcome == "refused" and record.call_id:
        if is_validation_failure(record):
            return "warning", _FAILED
        return "warning", _BLOCKED if _is_blocked(record) else _REFUSED.get(record.code, _NOT_SENT)
    if record.would_refuse:
        return ("error", _UNCHECKED) if record.code == codes.INTERNAL_ERROR.name else ("warning", _WOULD_FAIL)
    if record.repairs and record.outcome == "delivered":
        return "info", _WOULD_REPAIR
    if record.outcome in _UNSENT and not record.upstream:
        return "info", _UNSENT[record.outcome]
    return _MESSAGES.get(record.outcome, ("info", "Request finished"))


def is_validation_failure(record: CallRecord) -> bool:
    """Returns whether a call was refused because it broke its tool's rules, now or when the same call came before."""
    is_escalation = record.code == codes.ATTEMPTS_EXHAUSTED.name and not _is_blocked(record)
    return is_escalation or record.code in RAISES_ATTEMPT


def _is_blocked(record: CallRecord) -> bool:
    """Returns whether a call was not sent because its tool had refused the same one."""
    return record.result is not None and record.result.failure.details.get("blocked") == REFUSED_BY_TOOL


def round_milliseconds(seconds: float) -> float:
    """Converts seconds to milliseconds, to the nearest microsecond. `round` with digits takes ten times as long."""
    return (seconds * 1_000_000 + 0.5) // 1 / 1000


def read_fields(record: CallRecord) -> Fields:
    """The fields of a finished request's line, which traces and kept calls show too; built once, and not changed."""
    if record.line is None:
        record.line = build_fields(record)
    return record.line


def build_fields(record: CallRecord) -> Fields:
    """The fields of a request's line. Fields without information are left out."""
    fields: Fields = {
        "correlation_id": record.request_id,
        "outcome": record.outcome,
        "http.request.method": record.method[:_LONGEST_NAME],
        "http.route": record.route,
        "http.response.status_code": record.status,
        "http.request.body.size": record.request_bytes,
        "http.response.body.size": record.response_bytes,
        "duration_ms": round_milliseconds(record.ended - record.started),
    }
    if record.call_id:
        _add_call_fields(fields, record)
    if record.upstream:
        fields["server.address"] = record.upstream
        fields["upstream.duration_ms"] = round_milliseconds(record.upstream_seconds)
        fields["overhead_ms"] = round_milliseconds(record.stages.get("total", 0.0))
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
        if record.code in codes.ERROR_CODES:
            fields["error.help"] = f"docs/reference/codes.md#{record.code}"
    if record.trace_id:
        fields["trace_id"] = record.trace_id
    if record.trace is not None:
        fields["span_id"] = record.trace.span_id
    if record.notes:
        fields |= record.notes
    return fields


def _add_call_fields(fields: Fields, record: CallRecord) -> None:
    name = show_name(record.tool)
    fields["gen_ai.operation.name"] = "execute_tool"
    fields["gen_ai.tool.name"] = name
    fields["gen_ai.tool.call.id"] = record.call_id
    fields["validation.mode"] = record.mode
    fields["conversation.source"] = record.conversation_rung
    fields["schema_id"] = record.schema_id
    if record.repairs:
        fields["repairs"] = [
            {"rule": repair.rule, "path": show_path(repair.path)} for repair in record.repairs[:_MOST_LISTED]
        ]
    if record.questions:  # what a model endpoint was asked, and what it changed in the delivered call
        fields["correction.questions"] = [dict(question.list_fields()) for question in record.questions]
        if record.corrections:
            fields["corrections"] = [
                {"layer": made.rule, "path": show_path(made.path)} for made in record.corrections[:_MOST_LISTED]
            ]
    if record.outcome == "refused" or record.violations:
        fields |= _list_violation_fields(record, name)
    if record.answer_violations:
        fields["answer.errors"] = list_places(record.answer_violations, _MOST_LISTED)
    if record.corrected_after:
        fields["corrected_after"] = record.corrected_after
    if record.container:
        fields["container"] = record.container
        fields["container.event"] = record.container_event


def _list_violation_fields(record: CallRecord, name: str) -> Fields:
    """The fields of a call's errors, whose keys Acode prescribes, and of its warnings."""
    errors = [each for each in record.violations if each.severity is codes.ERROR]
    warnings = [each for each in record.violations if each.severity is not codes.ERROR]
    fields: Fields = {}
    if errors or record.attempt or is_validation_failure(record):
        fields = {
            "tool_name": name,
            "error_count": len(errors),
            "retry_attempt": record.attempt,
            "max_retries": record.max_attempts,
            "errors": list_places(errors, _MOST_LISTED),
        }
        if record.escalated:
            fields["escalated"] = True
        if record.repeated:
            fields["repeated"] = True
    if warnings:
        fields["warning_count"] = len(warnings)
        fields["warnings"] = [
            {"path": show_path(each.path), "code": each.code.name, "severity": each.severity.value}
            for each in select_violations(warnings, _MOST_LISTED)[0]
        ]
    return fields


# --- the loggers of libraries -----------------------------------------------------------------------------------------
# The root loggers of the libraries that run on the event loop.
LOGGERS: Final = ("asyncio", "aiohttp")
MESSAGE: Final = "Library message"


class LibraryLog(logging.Handler):
    """A handler of `logging` that writes to a `Log`, from `attach` to `detach`.

    Without a handler Python's `logging` writes records to stderr itself, on the event loop, where a full pipe stops all
    calls. A record's text may quote a value (the bytes of a request, the repr of a task). So the line has the logger,
    the place and the type of the exception, and not the text.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def attach(self) -> None:
        """Begins to receive the records of LOGGERS."""
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self)

    def detach(self) -> None:
        """Ends what `attach` began. A second call has no effect."""
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line of one record."""
        fields: dict[str, object] = {
            "logger": record.name,
            "place": f"{record.pathname}:{record.lineno} {record.funcName}",
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields |= {"error": type(error).__name__, "frames": list_frames(error)}
        self._log.event(MESSAGE, "error" if record.levelno >= logging.ERROR else "warning", **fields)

"""One line per request in the audit, once it is over: caller, rule, tool and outcome. No argument, and no claim but
`sub`.

A line has one of these outcomes:

    answered   the service answered, or a hook or the proxy did in its place
    sent       the service may have the call, and no answer came
    denied     access refused it: a token, a rule, a hook, a pin
    limited    a rate or a number of calls at once refused it
    refused    it was not sent for any other reason
    left       the client left before its call was read
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from proxy.call_record import CallRecord
from proxy.config.model import Config
from proxy.core.model import codes
from proxy.extensions.access.access_section import find_access
from proxy.file_writing import open_to_append
from proxy.interfaces import Clock, Observer, Pacing
from proxy.plugin import Label, Log, MetricRow, Metrics, render_json
from proxy.routing import RouteTable
from proxy.telemetry.writer import DROP_REASONS, QueueWriter

# --- the file of the audit --------------------------------------------------------------------------------------------
# The file of the audit: a check whether it can be written, and the file as a `Sink` of lines.
#
# Several workers append to one file. After a rename (logrotate) a new file begins. Lines that cannot be written are
# lost and counted; the log says so once, and once that lines are written again.


def find_fault(path: Path) -> tuple[str, str] | None:
    """The reason why lines cannot be appended to a file, and the remedy; None where they can."""
    folder = path.parent
    if not folder.is_dir():
        return (
            f"the folder {folder} does not exist",
            "make it, or name another: paths start at the config file's folder",
        )
    there = path.is_symlink() or path.exists()
    if there and not stat.S_ISREG(path.lstat().st_mode):
        return "it is no regular file", "name a file, or write `log`"
    if not os.access(path if there else folder, os.W_OK | os.R_OK, effective_ids=True):
        what = "it" if there else f"the folder {folder}"
        return f"{what} cannot be written by this user", "name a file in a folder that can be written, or write `log`"
    disk = os.statvfs(folder)
    if disk.f_blocks and not disk.f_bavail:
        return f"the disk of {folder} is full", "make room, or name a file on another disk"
    return None


class AuditFile:
    """Implements `Sink`. `counts` are the lines that are lost, by reason."""

    def __init__(self, path: Path, log: Log, counts: MutableMapping[tuple[str, ...], float]) -> None:
        self._path = path
        self._log = log
        self._counts = counts
        self._file = -1
        self._losing = False

    def prepare(self) -> bool:
        """Opens the file that now has the name; says whether it ends within a line."""
        if self._file < 0 or not self._has_name():
            self.close()
            self._file = open_to_append(self._path)
        size = os.fstat(self._file).st_size
        return size > 0 and os.pread(self._file, 1, size - 1) != b"\n"

    def _has_name(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self._path.lstat())
        except FileNotFoundError:
            return False

    def write(self, text: bytes) -> int:
        """Appends."""
        return os.write(self._file, text)

    def note_loss(self, reason: str, lines: int, why: str) -> None:
        """Counts the lines, and says so the first time."""
        self._counts[reason,] += lines
        if not self._losing:
            self._losing = True
            self._log.event("Audit lines are lost", "error", reason=why)

    def note_recovery(self, lost: Mapping[str, int]) -> None:
        """Says how many lines are missing."""
        self._losing = False
        self._log.event("Audit lines are written again", "warning", lost=sum(lost.values()))

    def close(self) -> None:
        """Closes the file."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


# --- one line per request in the audit --------------------------------------------------------------------------------
LOST: Final = MetricRow(
    "toolproxy_audit_lines_dropped_total",
    "counter",
    "Lines that the file of `access.audit` lost ([access.md](access.md)).",
    ("reason",),
    {"reason": Label("`queue_full`: the disk is too slow; `write_failed`: it cannot be written.", DROP_REASONS)},
)
METRICS: Final = (LOST,)
_DENIED: Final = frozenset(
    code.name
    for code in (
        codes.CALL_NOT_ALLOWED, codes.TOOL_NOT_APPROVED, codes.TOKEN_REQUIRED, codes.TOKEN_UNCHECKED,
        codes.ORIGIN_NOT_ALLOWED,
    )
)  # fmt: skip
_LIMITED: Final = frozenset(code.name for code in (codes.CALL_RATE_EXCEEDED, codes.TOO_MANY_CALLS_AT_ONCE))
# The codes of a request that the proxy itself ended, perhaps after it was sent.
_CUT_SHORT: Final = frozenset(code.name for code in (codes.RESTARTING, codes.INTERNAL_ERROR))
# The longest tool name and code in a line, in characters.
_LONGEST: Final = 200
# How long the end of the process waits for a slow disk, in seconds.
_CLOSING: Final = 2.0

Line = Mapping[str, str]


class CallAudit:
    """Implements `ConfiguredObserver`, and `Observer` if the config has an audit."""

    def __init__(self, clock: Clock, _pacing: Pacing, metrics: Metrics, log: Log) -> None:
        self._wall = clock.wall
        self._log = log
        self._lost = metrics.add_counter(LOST).series
        self._writers: dict[str, AuditWriter] = {}
        self._writer: AuditWriter | None = None
        self._routes: set[str] = set()

    @property
    def observers(self) -> tuple[Observer, ...]:
        """This audit if the config has one."""
        return () if self._writer is None else (self,)

    def adopt(self, config: Config, _table: RouteTable, _digest: str) -> None:
        """Writes where this config says from now on."""
        where = find_access(config).audit
        self._routes |= {route.name for route in config.routes}  # requests of the config before are still under way
        if where and where not in self._writers:
            self._writers[where] = self._make_writer(where)
        self._writer = self._writers[where] if where else None

    def _make_writer(self, where: str) -> AuditWriter:
        if where == "log":
            return LogAudit(self._log)
        for reason in DROP_REASONS:
            self._lost.setdefault((reason,), 0.0)
        return FileAudit(Path(where), self._wall, self._log, self._lost)

    def finished(self, record: CallRecord) -> None:
        """Writes the line of one finished request of a route. A browser's question before a request has no outcome."""
        if self._writer is not None and record.outcome and record.route in self._routes:
            self._writer.write(describe_record(record))

    async def close(self) -> None:
        """Writes the queues, and ends."""
        for writer in self._writers.values():
            await asyncio.to_thread(writer.close)


class AuditWriter(Protocol):
    """Receives lines."""

    def write(self, line: Line) -> None:
        """Writes one line. Never raises, and waits for nothing."""

    def close(self) -> None:
        """Writes the queue, and ends."""


class LogAudit:
    """Implements `AuditWriter`: the lines are in the log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def write(self, line: Line) -> None:
        """Writes a line at the level `info`."""
        self._log.event("Access decision", **line)

    def close(self) -> None:
        """Does nothing: the log is closed by its owner."""


class FileAudit:
    """Implements `AuditWriter`: the lines are those of a file, in their order. A thread writes them, so that a slow
    disk delays no call; `counts` are the lost lines, by reason."""

    def __init__(
        self, path: Path, wall: Callable[[], float], log: Log, counts: MutableMapping[tuple[str, ...], float]
    ) -> None:
        self._wall = wall
        self._writer = QueueWriter(AuditFile(path, log, counts), self._write_losses)

    def write(self, line: Line) -> None:
        """Queues a line."""
        self._writer.write(_write_line(self._wall(), line))

    def close(self) -> None:
        """Writes the queue, within seconds, and ends."""
        self._writer.close(_CLOSING)

    def _write_losses(self, lost: Mapping[str, int]) -> bytes:
        """The line with the number of missing lines before it."""
        return _write_line(self._wall(), {"lost": dict(lost)})


def _write_line(wall: float, fields: Mapping[str, object]) -> bytes:
    at = datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")
    return render_json(None, "", {"time": at, **fields})


def describe_record(record: CallRecord) -> dict[str, str]:
    """The fields of one line without the empty ones."""
    note, outcome = record.access, find_outcome(record)
    caller = {"token": record.notes.get("client.token", "")} if note is None else note.caller
    fields = {
        "request": record.request_id,
        "route": record.route,
        **caller,
        "rule": "" if note is None or outcome in ("refused", "left") else note.rule,
        "tool": record.tool[:_LONGEST],
        "outcome": outcome,
        "code": record.code[:_LONGEST],
    }
    return {name: value for name, value in fields.items() if value}


def find_outcome(record: CallRecord) -> str:
    """The outcome of a request, as the head of this file lists them."""
    reached = "answered" if record.upstream_status else "sent" if record.sent else ""
    match record.outcome:
        case "client_gone":  # a call that was read may continue without its client (MCP)
            begun = _name_refusal(record.code) if record.code else "sent" if record.call is not None else "left"
            return reached or begun
        case "upstream_error":
            return reached or "refused"
        case "refused":
            cut_short = record.code in _CUT_SHORT or not record.upstream_status
            return (reached if cut_short else "") or _name_refusal(record.code)
        case "passthrough" if record.call is not None:  # another answer of the server took the place of the call's
            return "refused"
        case _:
            return "answered"


def _name_refusal(code: str) -> str:
    return "denied" if code in _DENIED else "limited" if code in _LIMITED else "refused"

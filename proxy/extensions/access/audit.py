"""One line per decision of access: caller, rule, tool and outcome. No argument and no claim but `sub`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from proxy.extensions.access.audit_file import AuditFile
from proxy.extensions.access.core.access_rules import Identity
from proxy.telemetry.logs import Log, render_json
from proxy.telemetry.writer import QueueWriter

# The longest subject and tool name in a line, in characters.
_LONGEST: Final = 200
# The size of a line in the queue beside its texts, in bytes.
_USUAL_SIZE: Final = 200
# How long the end of the process waits for a slow disk, in seconds.
_CLOSING: Final = 2.0


class Audit(Protocol):
    """Receives decisions."""

    def write(self, route: str, caller: Identity, rule: str, tool: str, outcome: str) -> None:
        """Writes one decision. `rule` and `tool` are '' where there is none. Never raises, and waits for nothing."""

    def close(self) -> None:
        """Writes the queue, and ends."""


class NoAudit:
    """Implements `Audit`: the config wants none."""

    def write(self, route: str, caller: Identity, rule: str, tool: str, outcome: str) -> None:
        """Writes nothing."""

    def close(self) -> None:
        """Does nothing."""


class LogAudit:
    """Implements `Audit`: decisions stand in the log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def write(self, route: str, caller: Identity, rule: str, tool: str, outcome: str) -> None:
        """Writes a line at the level `info`."""
        self._log.event("Access decision", **describe_decision(route, caller, rule, tool, outcome))

    def close(self) -> None:
        """Does nothing: the log is closed by its owner."""


class FileAudit:
    """Implements `Audit`: decisions are lines of a file, in their order. A thread writes them, so that a slow disk
    delays no call; `counts` are the lost lines, by reason."""

    def __init__(
        self, path: Path, wall: Callable[[], float], log: Log, counts: MutableMapping[tuple[str, ...], float]
    ) -> None:
        self._wall = wall
        self._writer = QueueWriter(AuditFile(path, log, counts), _write_line, self._write_losses)

    def write(self, route: str, caller: Identity, rule: str, tool: str, outcome: str) -> None:
        """Queues a line."""
        fields = describe_decision(route, caller, rule, tool, outcome)
        self._writer.write((self._wall(), fields), _USUAL_SIZE + sum(map(len, fields.values())))

    def close(self) -> None:
        """Writes the queue, within seconds, and ends."""
        self._writer.close(_CLOSING)

    def _write_losses(self, lost: Mapping[str, int]) -> bytes:
        """The line with the number of missing lines before it."""
        return _write_line((self._wall(), {"lost": dict(lost)}))


def _write_line(entry: tuple[float, Mapping[str, object]]) -> bytes:
    wall, fields = entry
    at = datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")
    return render_json(None, "", {"time": at, **fields})


def describe_decision(route: str, caller: Identity, rule: str, tool: str, outcome: str) -> dict[str, str]:
    """The fields of one line without the empty ones. The only claim in it is `sub`, the caller."""
    subject = caller.claims.get("sub")
    fields = {
        "route": route,
        "token": caller.token,
        "issuer": caller.issuer,
        "subject": subject[:_LONGEST] if isinstance(subject, str) else "",
        "certificate": next(iter(sorted(caller.certificate)), "")[:_LONGEST],
        "rule": rule,
        "tool": tool[:_LONGEST],
        "outcome": outcome,
    }
    return {name: value for name, value in fields.items() if value}

"""One line per decision of access: who, which rule, what, and how it ended. No argument and no claim but `sub`."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from proxy.core.json.jsontext import dumps
from proxy.extensions.access.core.access_rules import Identity
from proxy.telemetry.logs import Log

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
# The longest subject and tool name in a line, in characters.
_LONGEST: Final = 200


class Audit(Protocol):
    """Where decisions are written."""

    def write(self, route: str, caller: Identity, rule: str, tool: str, outcome: str) -> None:
        """Writes one decision. `rule` and `tool` are '' where there is none. Never raises."""


class NoAudit:
    """Implements `Audit`: the config wants none."""

    def write(self, route: str, caller: Identity, rule: str, tool: str, outcome: str) -> None:
        """Writes nothing."""


class LogAudit:
    """Implements `Audit`: decisions stand in the log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def write(self, route: str, caller: Identity, rule: str, tool: str, outcome: str) -> None:
        """Writes a line at the level `info`."""
        self._log.event("Access decision", **describe_decision(route, caller, rule, tool, outcome))


class FileAudit:
    """Implements `Audit`: decisions are appended to a file of mode 0600, whole lines at a time, so that several workers
    may share it. `report` is told once of a file that cannot be written."""

    def __init__(self, path: Path, wall: Callable[[], float], report: Callable[[str], None]) -> None:
        self._path = path
        self._wall = wall
        self._report = report
        self._failed = False
        self._file: int | None = None

    def write(self, route: str, caller: Identity, rule: str, tool: str, outcome: str) -> None:
        """Appends a line."""
        at = datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds")
        line = dumps({"time": at, **describe_decision(route, caller, rule, tool, outcome)}) + b"\n"
        try:
            if self._file is None:
                self._file = os.open(self._path, _FLAGS, 0o600)
            os.write(self._file, line)
        except OSError as error:
            if not self._failed:
                self._report(error.strerror or type(error).__name__)
            self._failed = True


def describe_decision(route: str, caller: Identity, rule: str, tool: str, outcome: str) -> dict[str, str]:
    """The fields of one line; what is empty is left out. The only claim in it is `sub`, which says who it was."""
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

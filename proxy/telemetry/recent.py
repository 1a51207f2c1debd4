"""The last requests that went wrong, for the operator who has a request id and a question. Bounded, in memory.

An entry is the line of the log: names, codes and paths, never a value, so it can be shown to whoever may see the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from proxy.interfaces import CallRecord
from proxy.telemetry.kinds import WRONG, Told, nothing_waits
from proxy.telemetry.logs import fields_of

# About 1 MB when every entry lists as many errors as a line may.
KEPT: Final = 500


class Recent:
    """Implements `Observer`: keeps refused, failed and would-be-refused calls, newest last. `wall` in seconds."""

    def __init__(self, wall: Callable[[], float], kept: int = KEPT) -> None:
        self._wall = wall
        self._entries: deque[dict[str, Any]] = deque(maxlen=kept)
        self.settle: Callable[[], None] = nothing_waits

    def finished(self, record: CallRecord) -> None:
        """Keeps the record where something was wrong."""
        self.told([(None, record, self._wall(), fields_of(record))])

    def told(self, requests: Sequence[Told]) -> None:
        """Keeps those in which something was wrong. With those of one kind nothing was."""
        for kind, record, wall, fields in requests:
            if kind is None and (record.outcome in WRONG or record.would_refuse):
                stamp = datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")
                would = {"would_refuse": True} if record.would_refuse else {}
                self._entries.append({"timestamp": stamp, **fields, **would})

    def entries(self, request_id: str | None = None) -> Iterator[dict[str, Any]]:
        """The kept requests, newest first: all of them, or those with one id."""
        self.settle()
        for entry in reversed(self._entries):
            if request_id is None or entry["correlation_id"] == request_id:
                yield entry

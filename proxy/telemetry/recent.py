"""The last requests that went wrong, for the operator who has a request id and a question. Bounded, in memory.

An entry is the line of the log: names, codes and paths, never a value, so it can be shown to whoever may see the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from proxy.interfaces import CallRecord
from proxy.telemetry.logs import fields_of

# About 1 MB when every entry lists as many errors as a line may.
KEPT: Final = 500

_WRONG: Final = frozenset({"refused", "tool_error", "upstream_error"})


class Recent:
    """Implements `Observer`: keeps refused, failed and would-be-refused calls, newest last. `wall` in seconds."""

    def __init__(self, wall: Callable[[], float], kept: int = KEPT) -> None:
        self._wall = wall
        self._entries: deque[dict[str, Any]] = deque(maxlen=kept)

    def finished(self, record: CallRecord) -> None:
        """Keeps the record where something was wrong."""
        if record.outcome in _WRONG or record.would_refuse:
            stamp = datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds")
            would = {"would_refuse": True} if record.would_refuse else {}
            self._entries.append({"timestamp": stamp, **fields_of(record), **would})

    def entries(self, request_id: str | None = None) -> Iterator[dict[str, Any]]:
        """The kept requests, newest first: all of them, or those with one id."""
        for entry in reversed(self._entries):
            if request_id is None or entry["correlation_id"] == request_id:
                yield entry

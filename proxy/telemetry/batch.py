"""Finished requests wait here for the end of the event loop's turn; then metrics, log and recent requests are told of
all of them together.

That is worth half of what telling costs: the answers of a turn go out first, code and data are at hand when many
requests are told of in a row, and the log is written once. Whoever reads or changes anything that the waiting requests
count for has them told of first (`settle`), so nobody can see that they waited, but for a log that is a moment late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.interfaces import CallRecord
from proxy.telemetry.kinds import PREPARED, Key, Kind, Told, key_of
from proxy.telemetry.logs import Log, fields_of
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.recent import Recent

# Kinds kept. A client that makes up names of tools makes kinds; beyond this, all are forgotten and made anew.
_KINDS: Final = 1024
# Names that are longer together make no kind, because they would be kept.
_LONGEST: Final = 300


class Batch:
    """Implements `Observer`. `wall` gives seconds since the Unix epoch."""

    def __init__(self, metrics: Metrics, log: Log, recent: Recent, wall: Callable[[], float]) -> None:
        self._metrics, self._log, self._recent = metrics, log, recent
        self._wall = wall
        self._held: list[tuple[CallRecord, float]] = []
        self._kinds: dict[Key, Kind] = {}
        self._known = metrics.known
        metrics.settle = log.settle = recent.settle = self.settle

    def finished(self, record: CallRecord) -> None:
        """Takes one finished request; tells of it at once where no event loop runs."""
        self._held.append((record, self._wall()))
        if len(self._held) > 1:
            return  # the first of them has seen to it
        try:
            asyncio.get_running_loop().call_soon(self.settle)
        except RuntimeError:
            self.settle()

    def settle(self) -> None:
        """Tells of all that wait."""
        held, self._held = self._held, []
        if not held:
            return
        if self._known is not self._metrics.known:  # other names have series of their own now
            self._known = self._metrics.known
            self._kinds.clear()
        kinds = self._kinds
        requests: list[Told] = []
        for record, wall in held:
            key = key_of(record)
            kind = kinds.get(key) if key is not None else None
            if kind is None and key is not None and _may_come_again(record):
                kind = self._prepare(key, record)
            requests.append((kind, record, wall, PREPARED if kind is not None else fields_of(record)))
        self._metrics.told(requests)
        self._log.told(requests)
        self._recent.told(requests)

    def _prepare(self, key: Key, record: CallRecord) -> Kind:
        kind = Kind(self._metrics.tally(record), self._log.template(record))
        if len(self._kinds) >= _KINDS:
            self._kinds.clear()
        self._kinds[key] = kind
        return kind


def _may_come_again(record: CallRecord) -> bool:
    """Whether its kind is worth being prepared: a repair inside of a list is not often made in the same place again."""
    length = len(record.tool) + len(record.method)
    for made in record.repairs:
        for step in made.path:
            if isinstance(step, int):
                return False
            length += len(step)
    return length <= _LONGEST

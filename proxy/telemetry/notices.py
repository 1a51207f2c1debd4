"""Notices of lasting troubles, such as an upstream that does not answer or a config that is not taken over.

The log has them; a `TroubleWatcher` shows them where the process runs as well, such as in a Kubernetes pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from proxy.telemetry.logs import Log

# Seconds that an upstream may take to answer for the first time until a line says that it does not.
_UNANSWERED: Final = 15.0
_LOOK_EVERY: Final = 0.25
# Reasons of notices, as Events of Kubernetes spell them.
NOT_READY: Final = "UpstreamNotReady"
NOT_TAKEN_OVER: Final = "ConfigNotTakenOver"
NEEDS_RESTART: Final = "ConfigNeedsRestart"


class TroubleWatcher(Protocol):
    """Where the process runs, as far as it shows troubles there; `--pod-ports` of `serve` makes one.

    `hold`: seconds for which the question whether an upstream is ready waits for the first yes.
    """

    hold: float

    def show_open(self, troubles: list[str]) -> None:
        """Shows the troubles that last, which replace those shown before."""

    def add_trouble(self, reason: str, text: str, log: Log) -> None:
        """Shows one that has just begun."""

    async def settle(self) -> None:
        """Waits for what is still being written."""


@dataclass(slots=True)
class Notices:
    """The troubles that last. `watcher` shows them outside of the log."""

    log: Log
    now: Callable[[], float]
    watcher: TroubleWatcher | None = None
    _open: dict[str, str] = field(default_factory=dict)
    _unanswered: dict[str, float] = field(default_factory=dict)
    _ready: set[str] = field(default_factory=set)

    def tell(self, reason: str, about: str, text: str) -> None:
        """Tells of a trouble: `reason` is a word for machines, `about` says which thing, so that `clear` finds it."""
        if self._open.get(reason + about) == text:
            return
        self._open[reason + about] = text
        if self.watcher is not None:
            self.watcher.show_open(list(self._open.values()))
            self.watcher.add_trouble(reason, text, self.log)

    def clear(self, reason: str, about: str) -> bool:
        """Ends the trouble with a thing; gives whether there was one."""
        found = self._open.pop(reason + about, None) is not None
        if found and self.watcher is not None:
            self.watcher.show_open(list(self._open.values()))
        return found

    async def watch_upstream(self, name: str, find_trouble: Callable[[], Awaitable[str]]) -> str:
        """Why an upstream is not ready, '' where it is. Tells of one that has been asked for and does not answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (0.0 if name in self._ready or self.watcher is None else self.watcher.hold)
        while (trouble := await find_trouble()) and loop.time() < until:  # noqa: ASYNC110 - a tool tells nobody
            await asyncio.sleep(_LOOK_EVERY)
        if not trouble:
            self._ready.add(name)
            self._unanswered.pop(name, None)
            if self.clear(NOT_READY, name):
                self.log.event("Upstream ready", upstream=name)
            return ""
        since = self._unanswered.setdefault(name, self.now())
        if self.now() - since >= _UNANSWERED and NOT_READY + name not in self._open:
            self.log.event("Upstream not ready", "warning", upstream=name, reason=trouble)
            self.tell(
                NOT_READY, name, f"upstream {name!r} {trouble}  (is its url the address that the tool listens at?)"
            )
        return trouble

    async def settle(self) -> None:
        """Waits for what the watcher is still writing."""
        if self.watcher is not None:
            await self.watcher.settle()

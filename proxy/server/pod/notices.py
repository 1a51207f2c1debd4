"""What a proxy in a Kubernetes pod says to those who look at the pod, beside its log.

A notice is a line of log. In a pod it is also the container's termination message, which `kubectl describe pod` shows
once the container has ended, and with `--pod-events` an Event of the pod, which it shows at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from proxy.server.pod.events import EventRefused, PodEvents
from proxy.telemetry.logs import Log

# Where kubelet reads a container's last words; it mounts the file, also on a read-only root, and takes 4096 bytes.
TERMINATION_LOG: Final = Path("/dev/termination-log")
_LONGEST: Final = 4096
# Seconds that an upstream may take to answer for the first time until a line says that it does not.
_UNANSWERED: Final = 15.0
# Seconds for which the question whether an upstream is ready waits for the first yes: a tool that is starting is no
# trouble yet. The probe in the pod's manifest gives it 10 s.
_HOLD: Final = 8.0
_LOOK_EVERY: Final = 0.25
# Reasons of notices, as Events of Kubernetes spell them.
NOT_READY: Final = "UpstreamNotReady"
NOT_TAKEN_OVER: Final = "ConfigNotTakenOver"
NEEDS_RESTART: Final = "ConfigNeedsRestart"


@dataclass(frozen=True, slots=True)
class InPod:
    """That the process is one of a pod, and what it has of it: the Events of the pod, and a socket that listens at the
    probes' port since before anything was imported."""

    events: PodEvents | None = None
    held: socket.socket | None = None


@dataclass(slots=True)
class Notices:
    """Tells of what keeps a pod from its work. `termination` is None outside of a pod; `events` posts them to the API
    server."""

    log: Log
    now: Callable[[], float]
    termination: Path | None = None
    events: PodEvents | None = None
    hold: float = 0.0
    _open: dict[str, str] = field(default_factory=dict)
    _asked: dict[str, float] = field(default_factory=dict)
    _ready: set[str] = field(default_factory=set)
    _posting: set[asyncio.Task[None]] = field(default_factory=set)

    def tell(self, reason: str, about: str, text: str) -> None:
        """Tells of a trouble: `reason` is a word for machines, `about` says which thing, so that `clear` finds it."""
        if self._open.get(reason + about) == text:
            return
        self._open[reason + about] = text
        self._write()
        if self.events is not None:
            task = asyncio.create_task(self._post(self.events, reason, text))
            self._posting.add(task)
            task.add_done_callback(self._posting.discard)

    def clear(self, reason: str, about: str) -> bool:
        """Takes back what was told of a thing; gives whether anything was."""
        found = self._open.pop(reason + about, None) is not None
        if found:
            self._write()
        return found

    def join_pod(self, pod: InPod | None, termination: Path = TERMINATION_LOG) -> None:
        """From here on the process is one of a pod, unless there is none: trouble is its termination message, and an
        Event too."""
        if pod is not None:
            self.events, self.termination, self.hold = pod.events, termination, _HOLD

    async def watch_upstream(self, name: str, find_trouble: Callable[[], Awaitable[str]]) -> str:
        """Why an upstream is not ready, '' where it is. Tells of one that has been asked for and does not answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + (0.0 if name in self._ready else self.hold)
        while (trouble := await find_trouble()) and loop.time() < until:  # noqa: ASYNC110 - a tool tells nobody
            await asyncio.sleep(_LOOK_EVERY)
        if not trouble:
            self._ready.add(name)
            self._asked.pop(name, None)
            if self.clear(NOT_READY, name):
                self.log.event("Upstream ready", upstream=name)
            return ""
        since = self._asked.setdefault(name, self.now())
        if self.now() - since >= _UNANSWERED and NOT_READY + name not in self._open:
            self.log.event("Upstream not ready", "warning", upstream=name, reason=trouble)
            self.tell(
                NOT_READY, name, f"upstream {name!r} {trouble}  (is its url the address that the tool listens at?)"
            )
        return trouble

    async def settle(self) -> None:
        """Waits for the Events that are being written."""
        await asyncio.gather(*self._posting)

    def _write(self) -> None:
        if self.termination is None:
            return
        with suppress(OSError):  # another path may be set in the manifest, or none
            descriptor = os.open(self.termination, os.O_WRONLY | os.O_TRUNC)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write("\n".join(self._open.values()).encode()[:_LONGEST])

    async def _post(self, events: PodEvents, reason: str, text: str) -> None:
        try:
            await asyncio.to_thread(events.post, reason, text)
        except EventRefused as refused:
            self.log.event("Event not written", "warning", reason=str(refused))

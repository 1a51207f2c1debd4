"""`serve` in a Kubernetes pod: the `--pod-` flags of its manifest, and troubles as they are seen from outside.

A trouble is the container's termination message, which `kubectl describe pod` shows once the container has ended, and
with `--pod-events` an Event of the pod, which it shows at once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.extensions.kubernetes.events import EventRefused, PodEvents
from proxy.extensions.kubernetes.pod_addresses import Pod, find_pod_mistakes
from proxy.file_writing import overwrite_file

if TYPE_CHECKING:
    from proxy.config.model import Config
    from proxy.telemetry.logs import Log

# Where kubelet reads a container's last words; it mounts the file, also on a read-only root, and takes 4096 bytes.
TERMINATION_LOG: Final = Path("/dev/termination-log")
_LONGEST: Final = 4096
# A tool that is starting is not a trouble yet. The probe in the pod's manifest gives it 10 s.
_HOLD: Final = 8.0


@dataclass(slots=True)
class PodWatcher:
    """Shows troubles in the pod's status and Events: a `TroubleWatcher` (telemetry/notices.py)."""

    termination: Path = TERMINATION_LOG
    events: PodEvents | None = None
    hold: float = _HOLD
    _posting: set[asyncio.Task[None]] = field(default_factory=set)

    def show_open(self, troubles: list[str]) -> None:
        """Makes the troubles the termination message."""
        with suppress(OSError):  # another path may be set in the manifest, or none
            overwrite_file(self.termination, "\n".join(troubles).encode()[:_LONGEST])

    def add_trouble(self, reason: str, text: str, log: Log) -> None:
        """Writes an Event of it."""
        if self.events is not None:
            task = asyncio.create_task(_post(self.events, reason, text, log))
            self._posting.add(task)
            task.add_done_callback(self._posting.discard)

    async def settle(self) -> None:
        """Waits for the Events that are being written."""
        await asyncio.gather(*self._posting)


async def _post(events: PodEvents, reason: str, text: str, log: Log) -> None:
    try:
        await asyncio.to_thread(events.post, reason, text)
    except EventRefused as refused:
        log.event("Event not written", "warning", reason=str(refused))


def read_pod_ports(text: str) -> Pod:
    """The value of `--pod-ports`. Raises ArgumentTypeError."""
    found = re.fullmatch(r"(\d{1,5}),(\d{1,5}),(\d{1,5})", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not three ports, such as 8080,9091,9090")
    calls, probes, admin = map(int, found.groups())
    return Pod(calls, probes, admin)


def list_mistakes(config: Config, args: argparse.Namespace) -> list[str]:
    """The contradictions between the pod's manifest and the config; with --pod-events also why there can be no
    Events."""
    found = list(find_pod_mistakes(config, replace(args.pod_ports, upstream=args.pod_upstream)))
    try:
        make_watcher(args)
    except ValueError as error:
        found.append(str(error))
    return found


def make_watcher(args: argparse.Namespace) -> PodWatcher:
    """The watcher that shows troubles in the pod. Raises ValueError where there can be no Events."""
    return PodWatcher(events=PodEvents.of_pod(os.environ) if args.pod_events else None)


def write_flags(args: argparse.Namespace) -> list[str]:
    """The words of the flags, for a worker's command line."""
    pod: Pod = args.pod_ports
    return ["--pod-ports", f"{pod.calls},{pod.probes},{pod.admin}", *(["--pod-events"] if args.pod_events else [])]

"""The machine as the benchmark sees it: cores, the CPU time and memory of processes, and who else is busy.

Only Linux has /proc; elsewhere there is no such figure, and the benchmark says so.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PROC: Final = Path("/proc")


def cores() -> tuple[int, int] | None:
    """The core for the load and the upstream, and the core for the proxies; None where there are no two."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    found = sorted(os.sched_getaffinity(0))
    return (found[0], found[1]) if len(found) > 1 else None


def pinned(core: int | None) -> Callable[[], None] | None:
    """For `preexec_fn` of a process: keeps it and what it starts on one core."""
    return None if core is None else lambda: os.sched_setaffinity(0, {core})


def free_port() -> int:
    """A TCP port on loopback that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def family(pid: int) -> list[int]:
    """A process and everything it has started."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for thread in (_PROC / str(one) / "task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and all it has started, from the scheduler's own nanoseconds. Of children that have ended,
    the kernel tells it in hundredths of a second."""
    total = 0
    with contextlib.suppress(OSError):
        user, system = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[13:15]
        total += (int(user) + int(system)) * 10**9 // _TICK
    for one in family(pid):
        with contextlib.suppress(OSError):
            for thread in (_PROC / str(one) / "task").iterdir():
                with contextlib.suppress(OSError):  # it has just ended
                    total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def memory(pid: int) -> float:
    """Proportional set size of a process and all it has started, in MB."""
    kilobytes = 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            for line in (_PROC / str(one) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kilobytes += int(line.split()[1])
    return kilobytes / 1024


def own_memory(pid: int) -> float:
    """Anonymous memory of a process and all it has started, in MB: none of it is shared with other programs."""
    kilobytes = 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            for line in (_PROC / str(one) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Anonymous:"):
                    kilobytes += int(line.split()[1])
    return kilobytes / 1024


def busy_seconds(core: int) -> float:
    """Returns how long a core has worked for anybody, in seconds since the machine was started."""
    for line in (_PROC / "stat").read_text().splitlines():
        if line.startswith(f"cpu{core} "):
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, line.split()[1:9])
            return (user + nice + system + irq + softirq + steal) / _TICK
    return 0.0


def has_proc() -> bool:
    """Returns whether the system tells all this."""
    return (_PROC / "self" / "smaps_rollup").exists() and (_PROC / "self" / "schedstat").exists()

"""The memory that bodies under way may take together: those being read, and those being judged or forwarded.

Each body holds its share from its first byte to the end of its request: what its bytes take, times what judging them
takes beside. A body whose length is announced takes its share before it is read; one that comes in chunks, as it grows.
Where nothing is left, a body is read no further, and its client is told to try again (503). A body that is alone is
always read: `limits.body` bounds it.

The room is half of what the memory limit of the control group leaves free at start; without a limit, half of what this
machine's quarter leaves. Several workers divide it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from proxy.core.model import codes
from proxy.server.http.checks import BadRequest

# Bytes of memory for each byte of a body: the text and its copies here, and the values that a child reads out of it.
# A megabyte of small values takes about 24 MB in both processes.
JUDGED: Final = 24
# The same for a body that is only forwarded.
RELAYED: Final = 3
# Bodies up to so many bytes are judged in place, one after the other: only their text is kept.
SMALL: Final = 8 * 1024
# The room where the system does not say how much memory there is.
_UNKNOWN: Final = 256 * 1024 * 1024
# A limit beyond this is none: the kernel's own word for it is a number near 2**63.
_NO_LIMIT: Final = 1 << 50

FULL: Final = BadRequest(codes.OVERLOADED, "Too much is being read and checked at once.")


class MemoryBudget:
    """The memory of all bodies together, in bytes. A `room` of 0 bounds nothing."""

    __slots__ = ("held", "room")

    def __init__(self, room: int) -> None:
        self.room = room
        self.held = 0


class BodyMemory:
    """What one body holds of the budget. `each`: bytes of memory for one byte of it."""

    __slots__ = ("_budget", "_each", "_held")

    def __init__(self, budget: MemoryBudget, each: int) -> None:
        self._budget = budget
        self._each = each
        self._held = 0

    def reach(self, length: int) -> bool:
        """Takes what a body of `length` bytes needs, less what it holds already; False where it is not left."""
        wanted = length if length <= SMALL else length * self._each
        more = wanted - self._held
        if more <= 0:
            return True
        budget = self._budget
        is_alone = budget.held == self._held
        if budget.room and not is_alone and budget.held + more > budget.room:
            return False
        budget.held += more
        self._held = wanted
        return True

    def release(self) -> None:
        """Gives everything back."""
        self._budget.held -= self._held
        self._held = 0


def find_room(workers: int, root: Path = Path("/")) -> int:
    """The room of one of so many workers, by what the system says. `root`: where `proc` and `sys` are."""
    free = _find_free_of_group(root)
    if free is None:
        free = _find_free_of_machine(root)
    return max(1, free // 2 // workers)


def _find_free_of_group(root: Path) -> int | None:
    """What the narrowest memory limit above this process leaves free; None without one."""
    found = []
    for line in _read_lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # In a container the path may be the host's, and the container's own files are at the base.
        steps = [step for step in path.split("/") if step not in ("", "..")]
        for depth in range(len(steps), -1, -1):
            free = _read_group(base.joinpath(*steps[:depth]), *names)
            found += [] if free is None else [free]
    return min(found) if found else None


def _read_group(group: Path, limit: str, usage: str, cache: str) -> int | None:
    bound, used = _read_number(group / limit), _read_number(group / usage)
    if bound is None or used is None or bound >= _NO_LIMIT:
        return None
    cached = _read_table(group / "memory.stat").get(cache, 0)  # the kernel gives these pages up first
    return max(0, bound - max(0, used - cached))


def _find_free_of_machine(root: Path) -> int:
    total = _read_table(root / "proc/meminfo").get("MemTotal:", 0) * 1024
    own = _read_table(root / "proc/self/status").get("VmRSS:", 0) * 1024
    return max(0, total // 4 - own) if total else _UNKNOWN * 2


def _read_table(path: Path) -> dict[str, int]:
    """The lines `name number` of a file."""
    rows = (line.split() for line in _read_lines(path))
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _read_number(path: Path) -> int | None:
    lines = _read_lines(path)
    return int(lines[0]) if lines and lines[0].isdecimal() else None


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []

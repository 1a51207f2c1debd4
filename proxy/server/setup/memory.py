"""The memory that the bodies under way may take together (`http/body.py`): half of what the memory limit of the control
group leaves free at start; without a limit, half of what this machine's quarter leaves. Several workers divide it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# The room where the system does not say how much memory there is.
_UNKNOWN: Final = 256 * 1024 * 1024
# A limit beyond this is none: the kernel's own word for it is a number near 2**63.
_NO_LIMIT: Final = 1 << 50


def find_room(workers: int, root: Path = Path("/")) -> int:
    """The room of one of so many workers, by what the system says. `root`: where `proc` and `sys` are."""
    free = _find_free_of_group(root)
    if free is None:
        total = _read_table(root / "proc/meminfo").get("MemTotal:", 0) * 1024
        own = _read_table(root / "proc/self/status").get("VmRSS:", 0) * 1024
        free = max(0, total // 4 - own) if total else _UNKNOWN * 2
    return max(1, free // 2 // workers)


def _find_free_of_group(root: Path) -> int | None:
    """What the narrowest memory limit above this process leaves free; None without one."""
    found = []
    for line in _read_lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            base, limit, usage, cache = root / "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            limit, usage, cache = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        # In a container the path may be the host's, and the container's own files are at the base.
        steps = [step for step in path.split("/") if step not in ("", "..")]
        for depth in range(len(steps), -1, -1):
            group = base.joinpath(*steps[:depth])
            bound, used = _read_number(group / limit), _read_number(group / usage)
            if bound is not None and used is not None and bound < _NO_LIMIT:
                cached = _read_table(group / "memory.stat").get(cache, 0)  # the kernel gives these pages up first
                found.append(max(0, bound - max(0, used - cached)))
    return min(found) if found else None


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

"""The cost of a process so far."""

from __future__ import annotations

from pathlib import Path


def read_cpu_time(pid: int) -> float:
    """The CPU time of a process so far, in seconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100

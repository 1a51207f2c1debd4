"""The settings of one upstream's child processes: values only, filled in by `server/setup/upstreams.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StdioSettings:
    """One command. Times in seconds, sizes in bytes.

    `command` is the program and its arguments, never a shell line; `environment` is the child's whole environment.
    At most `max_children` run at a time; a child whose session was idle for `idle` seconds is ended. With `shared` all
    sessions use one child. After `restarts` starts of the shared child within `restart_window` seconds it is not
    started again until the oldest of these starts is that long ago. `line` is the longest message. `stderr` receives
    each line of the child's stderr with the child's process id.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    max_children: int = 16
    idle: float = 1800.0
    shared: bool = False
    restarts: int = 5
    restart_window: float = 60.0
    start_timeout: float = 30.0
    line: int = 64 * 1024 * 1024
    stderr: Callable[[int, str], None] = lambda pid, line: None  # noqa: ARG005

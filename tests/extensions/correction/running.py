"""Starts `toolcall-proxy demo` in a separate process, as a stranger would, and reads its output."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Demo:
    """A running demo: the lines it printed before it waits, and its process."""

    lines: list[str]
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        """The proxy's port."""
        return self._port("the proxy")

    @property
    def tools_port(self) -> int:
        """The port of the sample tools."""
        return self._port("sample tools")

    def _port(self, who: str) -> int:
        line = next(line for line in self.lines if line.startswith(who + " "))
        return urlsplit(line.split()[-1]).port or 0

    @property
    def calls(self) -> list[str]:
        """The command lines to paste."""
        return [line for line in self.lines if line.startswith("curl ")]


@contextmanager
def demo(*arguments: str, cwd: Path = ROOT, path: Path = ROOT, python: str | Path = sys.executable) -> Iterator[Demo]:
    """A demo that runs while the block does. `path` is where the interpreter `python` imports the package from."""
    environ = {**os.environ, "PYTHONPATH": str(path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [python, "-m", "proxy", "demo", *arguments],
        cwd=cwd,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith("Ctrl-C"):
                break
        assert lines, "the demo printed nothing"
        yield Demo(lines, process)
    finally:
        process.terminate()
        process.communicate(timeout=120)

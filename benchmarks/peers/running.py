"""Starts the proxies and the tool behind them, each on its core, and ends them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.calls import BODIES, FIELDS, HEADERS, TOOL_PATH
from benchmarks.peers.cast import Command

ROOT: Final = Path(__file__).parent.parent.parent
START: Final = 60.0  # the longest wait for a proxy to serve, in seconds

Process = subprocess.Popen[bytes]


class NotServingError(Exception):
    """A peer that was there did not begin to serve."""


@dataclass(frozen=True)
class Player:
    """A peer that runs. The direct way to the tool has no process of interest."""

    name: str
    port: int
    process: Process | None = None
    validates: bool = False


@contextlib.contextmanager
def running(command: Command, core: int | None, log: Path) -> Iterator[Process]:
    """A process on one core; what it says goes to a file, as a log does."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **command.environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every start compiles everything
    pin = machine.pinned(core)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command.words,
            cwd=command.folder,
            stdout=out,
            stderr=out,
            env=environ,
            preexec_fn=pin,  # noqa: PLW1509 - there are no threads here
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(port: int, body: str = "clean") -> int:
    """The status of one call; 0 where nobody answers."""
    fields = dict(HEADERS, **FIELDS.get(body, {}), **{"X-Conversation-Id": f"asked-{time.monotonic_ns()}"})
    sent = urllib.request.Request(f"http://127.0.0.1:{port}{TOOL_PATH}", BODIES[body], fields, method="POST")
    try:
        with urllib.request.urlopen(sent, timeout=10) as answer:  # noqa: S310 - loopback
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def wait_ready(port: int, process: Process, log: Path, within: float = START, body: str = "clean") -> float:
    """Seconds from now to the first good answer. Raises NotServingError."""
    began = time.perf_counter()
    while ask(port, body) != 200:
        if process.poll() is not None or time.perf_counter() - began > within:
            raise NotServingError(log.read_text(errors="replace")[-300:].strip() or "it ended")
        time.sleep(0.002)
    return time.perf_counter() - began

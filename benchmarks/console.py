"""The cost of the operator's console for a proxy without readers: `admin.console` on beside off, in one run.

    python -m benchmarks.console [--calls 640] [--runs 5]

Needs valgrind. It prints ratios of the user-space instructions of the start, until the proxy is idle, and of one clean
call, by callgrind, which other programs on the machine cannot change. It also prints the ratio of the idle private
memory (the median of some runs by turns).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.calls import write_config
from benchmarks.instructions import Counting, control, count, read_total, wait_idle
from benchmarks.peers.cast import Command, bare_upstream
from benchmarks.peers.running import ask, running, wait_ready

STATES: Final = ("off", "on")
_ROUTES: Final = 10
# The longest wait for a process under callgrind to be idle, in seconds.
_SETTLING: Final = 300.0
# The same order of every dict of names in both runs.
_ENVIRON: Final = {"PYTHONHASHSEED": "0"}


def command(folder: Path, state: str, port: int, upstream: int) -> Command:
    """The proxy with its console on or off."""
    admin = {"admin": {"listen": "127.0.0.1:0", "console": state == "on"}}
    config = write_config(folder, f"console-{state}", _ROUTES, upstream, port, admin)
    return Command([sys.executable, "-m", "proxy", "serve", str(config)], _ENVIRON)


def count_start(found: Command, port: int, folder: Path) -> int:
    """Instructions of the start: to the first good answer, and of what is made ready behind it."""
    out = folder / f"{port}.start"
    words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *found.words]
    log = folder / f"{port}.start.log"
    with running(replace(found, words=words), None, log) as process:
        while ask(port) != 200 and process.poll() is None:  # under callgrind a start takes a minute
            time.sleep(0.1)
        wait_idle(process.pid, _SETTLING)
        control("--dump", process.pid)
    return read_total(Path(f"{out}.1"))


def measure_memory(found: Command, port: int, folder: Path) -> float:
    """The memory of a proxy that has answered one call and is idle, in MB."""
    log = folder / f"{port}.memory.log"
    with running(found, None, log) as process:
        wait_ready(port, process, log)
        wait_idle(process.pid)
        return machine.own_memory(process.pid)


def main() -> None:
    """Prints one line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description="What the console costs.")
    parser.add_argument("--calls", type=int, default=640)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed (apt install valgrind)")
    with tempfile.TemporaryDirectory() as name:
        folder, upstream = Path(name), machine.free_port()
        with running(bare_upstream(folder, upstream), None, folder / "upstream.log"):
            ports = {state: machine.free_port() for state in STATES}
            found = {state: command(folder, state, ports[state], upstream) for state in STATES}
            memory: dict[str, list[float]] = {state: [] for state in STATES}
            for _ in range(options.runs):
                for state in STATES:
                    memory[state].append(measure_memory(found[state], ports[state], folder))
            off, on = (statistics.median(memory[state]) for state in STATES)
            print(f"idle memory        off {off:.2f} MB, on {on:.2f} MB: {on - off:+.2f} MB", flush=True)
            starts = [count_start(found[state], ports[state], folder) for state in STATES]
            _tell("the start", starts)
            calls = [
                count(
                    found[state],
                    ports[state],
                    Counting("clean", options.calls, folder / f"{state}.out"),
                    folder / state,
                )
                for state in STATES
            ]
            _tell("per clean call", calls)


def _tell(what: str, found: list[float] | list[int]) -> None:
    off, on = found
    print(f"{what:18} off {off:,.0f}, on {on:,.0f} instructions: {100 * (on / off - 1):+.2f} %", flush=True)


if __name__ == "__main__":
    main()

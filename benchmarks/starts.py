"""The cost of a start, and the memory of an idle proxy, by the number of its routes.

    python -m benchmarks.starts [--routes 10,100,1000,10000] [--runs 3] [--instructions]

Each route has another tool with another schema. The figures are medians: the process's CPU time to the first good
answer, and its memory when it is idle again. The first figure of memory leaves out pages that other processes have too,
the second has a share of them. `--instructions` counts the start by callgrind: a busy machine changes that little.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.calls import write_config
from benchmarks.instructions import control, read_total, wait_idle
from benchmarks.peers.cast import Command, bare_upstream
from benchmarks.peers.running import ask, running, wait_ready

# The longest wait, in seconds, for a process to be idle: all checks may be written first.
_SETTLING: Final = 600.0
# The same order of every dict of names in each run.
_ENVIRON: Final = {"PYTHONHASHSEED": "0"}


def measure_start(command: Command, port: int, log: Path) -> tuple[float, float, float]:
    """CPU seconds to the first good answer, and the idle memory in MB: its own, and proportional."""
    with running(command, None, log) as process:
        wait_ready(port, process, log)
        used = machine.cpu_seconds(process.pid)
        wait_idle(process.pid, _SETTLING)
        return used, machine.own_memory(process.pid), machine.memory(process.pid)


def count_start(command: Command, port: int, out: Path) -> int:
    """User instructions to the first good answer."""
    words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *command.words]
    with running(replace(command, words=words), None, out.with_suffix(".log")) as process:
        while ask(port) != 200 and process.poll() is None:  # under callgrind a start takes minutes
            time.sleep(1)
        control("--dump", process.pid)
    return read_total(Path(f"{out}.1"))


def main() -> None:
    """Prints one line for each number of routes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.starts", description="What a start costs.")
    parser.add_argument("--routes", default="10,100,1000,10000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, upstream = Path(name), machine.free_port()
        with running(bare_upstream(folder, upstream), None, folder / "upstream.log"):
            for routes in map(int, options.routes.split(",")):
                port = machine.free_port()
                config = write_config(folder, f"routes-{routes}", routes, upstream, port)
                command = Command([sys.executable, "-m", "proxy", "serve", str(config)], _ENVIRON)
                if options.instructions:
                    found = count_start(command, port, folder / f"{routes}.out")
                    print(f"{routes:6} routes: {found / 1e6:10,.1f} million instructions", flush=True)
                    continue
                runs = [measure_start(command, port, folder / "start.log") for _ in range(options.runs)]
                cpu, own, shared = (statistics.median(each) for each in zip(*runs, strict=True))
                print(f"{routes:6} routes: {cpu:6.2f} CPU s, {own:6.1f} MB own, {shared:6.1f} MB", flush=True)


if __name__ == "__main__":
    main()

"""User-space instructions per call, by callgrind: the figure that other programs on the machine change least.

    python -m benchmarks.instructions [--acts clean,refused] [--only 'ours;NAME'] [--calls 640] [--cache FOLDER]
    python -m benchmarks.instructions --only ours --acts clean --profile FILE     keeps callgrind's own file

By default it counts aiohttp's pass-through, its low-level server with a check, and this proxy. Each line has the ratio
to the pass-through and to the proxy's own clean call.

Needs valgrind. Each proxy runs under callgrind before the usual tool; some calls warm it, then so many are counted, by
32 connections at a time. The kernel's part is not counted, and an instruction is not a nanosecond: memory outside the
caches costs more. So ratios of CPU time (benchmarks.proxies) differ. A busy machine adds up to a tenth: timers ring by
the clock, and there are fewer calls between two rings.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.calls import request, write_number, write_schema
from benchmarks.peers.cast import CAST, COUNTED, LEAN, OURS, PLAIN, Command, Missing, Stage, bare_upstream
from benchmarks.peers.running import running, wait_ready

CONNECTIONS: Final = 32
_WARMING: Final = 320
# A process that took less CPU than this within a second is idle, and the longest wait for that; in seconds.
_QUIET: Final = 0.05
_IDLE: Final = 30.0
# The longest wait for a proxy that runs under callgrind beside others, in seconds.
_STARTING: Final = 600.0
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_TOTAL: Final = re.compile(r"^totals: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Counting:
    """The settings of a count: the body, how many calls, and the path of callgrind's file."""

    act: str
    calls: int
    out: Path


async def send_calls(port: int, act: str, calls: int, seed: int) -> None:
    """Sends so many calls over CONNECTIONS connections, each the next one when the last is answered."""
    parts = request(port, act)
    left = iter(range(calls))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in left:
            writer.write(write_number(seed, number).join(parts))
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            if length is not None:
                await reader.readexactly(int(length[1]))
            else:
                await reader.readuntil(b"0\r\n\r\n")
        writer.close()

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))


def count(command: Command, port: int, counting: Counting, log: Path) -> float:
    """Instructions of one call, with start and warm-up left out."""
    words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counting.out}", "--instr-atstart=no"]
    with running(replace(command, words=[*words, *command.words]), None, log) as process:
        wait_ready(port, process, log, _STARTING, command.body)
        asyncio.run(send_calls(port, counting.act, _WARMING, 1))
        wait_idle(process.pid)
        control("--instr=on", process.pid)
        asyncio.run(send_calls(port, counting.act, counting.calls, 2))
        time.sleep(0.5)  # the log's thread writes its last lines
        control("--instr=off", process.pid)
        control("--dump", process.pid)
    return read_total(Path(f"{counting.out}.1")) / counting.calls


def read_total(dump: Path) -> int:
    """The instructions that a file of callgrind counts."""
    return int(_TOTAL.findall(dump.read_text())[0])


def wait_idle(pid: int, within: float = _IDLE) -> None:
    """Waits until a process has done what it does after its start: writing checks, settling its memory."""
    until, before = time.monotonic() + within, machine.cpu_seconds(pid)
    while time.monotonic() < until:
        time.sleep(1)
        now = machine.cpu_seconds(pid)
        if now - before < _QUIET:
            return
        before = now


def control(what: str, pid: int) -> None:
    """Tells callgrind something about a process that it runs."""
    subprocess.run(["callgrind_control", what, str(pid)], check=True, capture_output=True)  # noqa: S607 - from the PATH


@dataclass(frozen=True)
class Counted:
    """Instructions of a call by peer and act. The pass-through and the first act are what ratios refer to."""

    found: dict[tuple[str, str], float] = field(default_factory=dict)

    def describe(self, peer: str, act: str) -> str:
        """Returns one line with the ratios that are known."""
        mine = self.found[peer, act]
        line = f"{peer:28} {act:9} {mine:12,.0f} instructions per call"
        for other, words in (((PLAIN, act), PLAIN), ((peer, "clean"), "its clean call")):
            if other in self.found and other != (peer, act):
                line += f"   {mine / self.found[other]:.2f} x {words}"
        return line


def count_peers(options: argparse.Namespace, folder: Path) -> None:
    """Counts each peer with each act, and prints a line for each. The pass-through comes first."""
    upstream, counted = machine.free_port(), Counted()
    with running(bare_upstream(folder, upstream), None, folder / "upstream.log"):
        for peer in sorted(options.only.split(";"), key=lambda name: name != PLAIN):
            port = machine.free_port()
            stage = Stage(port, upstream, write_schema(folder), folder, options.cache.absolute())
            found = (CAST | COUNTED)[peer](stage)
            if isinstance(found, Missing):
                print(f"{peer}: left out: {found.reason}")
                continue
            for act in options.acts.split(","):
                out = folder / f"{port}-{act}.callgrind"
                counting = Counting(act, options.calls, out)
                counted.found[peer, act] = count(found, port, counting, folder / f"{port}.log")
                print(counted.describe(peer, act), flush=True)
                if options.profile is not None:
                    shutil.copy(f"{out}.1", options.profile)


def main() -> None:
    """Reads the options, and counts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description="Instructions per call.")
    parser.add_argument("--acts", default="clean,repaired,refused")
    parser.add_argument("--only", default=f"{PLAIN};{LEAN};{OURS}", help=f"of: {'; '.join(CAST | COUNTED)}")
    parser.add_argument("--calls", type=int, default=640)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "toolcall-proxy-bench")
    parser.add_argument("--profile", type=Path, help="keeps callgrind's file of the last count")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed (apt install valgrind)")
    with tempfile.TemporaryDirectory() as name:
        count_peers(options, Path(name))


if __name__ == "__main__":
    main()

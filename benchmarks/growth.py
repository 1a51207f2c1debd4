"""Measures how the cost of a call grows: with body, schema, routes, conversations, connections and workers.

    python -m benchmarks.growth [--rounds 5] [--seconds 1] [--only payload,schema,routes,conversations,load,workers]

Each row is the CPU time per call (the scheduler's count, kernel included) divided by that of a clean call of 190 bytes
in the same round. It prints the median of the rounds and the least as a table in Markdown, with the 99th percentile of
the time to an answer. The proxies run on one core, the load and the tool on the other. A first round warms up. Other
programs on the machine change single rounds, so take at least five.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import load, machine
from benchmarks.calls import GROWING, SCHEMA, WIDE, write_config
from benchmarks.peers.cast import Command, bare_upstream
from benchmarks.peers.running import Process, running, wait_ready

_CONNECTIONS: Final = 32
# The longest wait for a proxy with 10,000 routes, in seconds.
_STARTING: Final = 120.0


@dataclass(frozen=True)
class Row:
    """One line of the table. `after` is how many conversations have failed before."""

    group: str
    name: str
    body: str = "clean"
    connections: int = _CONNECTIONS
    server: str = "usual"


@dataclass(frozen=True)
class Server:
    """A proxy that is measured: its number of routes, further settings, and whether it may use both cores."""

    routes: int = 10
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_pinned: bool = True


SERVERS: Final = {
    "usual": Server(),
    "1,000 routes": Server(1_000),
    "10,000 routes": Server(10_000),
    "10,000 conversations": Server(),
    "2 workers": Server(settings={"workers": 2}, is_pinned=False),
}
BASE: Final = Row("", "clean call of 190 bytes")
ROWS: Final = (
    *[Row("schema" if name.startswith("schema") else "payload", name, name) for name in GROWING],
    *[Row("routes", name, server=name) for name in ("1,000 routes", "10,000 routes")],
    Row("conversations", "after 10,000 conversations with a rejected call", server="10,000 conversations"),
    *[Row("load", f"{count:,} connection{'s' * (count > 1)}", connections=count) for count in (1, 8, 128, 512, 1000)],
    Row("workers", "2 workers", server="2 workers"),
)


class Growth:
    """One run: the proxies, and CPU per call in microseconds by row and round."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.found: dict[Row, list[load.Load]] = {}
        self.cpu: dict[Row, list[float]] = {}
        self._folder, self._seconds, self._seed = folder, seconds, 0
        cores = machine.cores()
        self._near = None if cores is None else cores[0]
        self._far = None if cores is None else cores[1]
        self._upstream = machine.free_port()
        self._running: dict[str, tuple[int, Process]] = {}

    def start(self, names: set[str], stack: ExitStack) -> None:
        """Starts the tool and the proxies, and lets each answer some calls."""
        log = self._folder / "upstream.log"
        process = stack.enter_context(running(bare_upstream(self._folder, self._upstream), self._near, log))
        wait_ready(self._upstream, process, log)
        for name in sorted(names):
            server, port, log = SERVERS[name], machine.free_port(), self._folder / f"{name}.log"
            config = write_config(self._folder, name, server.routes, self._upstream, port, _add_tools(server))
            command = Command([sys.executable, "-m", "proxy", "serve", str(config)])
            process = stack.enter_context(running(command, self._far if server.is_pinned else None, log))
            wait_ready(port, process, log, _STARTING)
            self._running[name] = port, process
            self._load(Row("", "", server=name), 1.0)
        if "10,000 conversations" in names:
            while self._seed and self._load(Row("", "", "refused", server="10,000 conversations"), 5.0).calls < 10_000:
                pass

    def measure(self, row: Row) -> None:
        """One turn of a row."""
        _, process = self._running[row.server]
        before = machine.cpu_seconds(process.pid)
        made = self._load(row, self._seconds)
        used = machine.cpu_seconds(process.pid) - before
        if made.refused or made.failed or not made.calls:
            raise SystemExit(f"{row.name}: {made.refused} refused, {made.failed} failed, {made.calls} answered")
        self.found.setdefault(row, []).append(made)
        self.cpu.setdefault(row, []).append(used / made.calls * 1e6)

    def describe(self, row: Row) -> str:
        """Returns the line of a row."""
        ratios = [one / base for one, base in zip(self.cpu[row][1:], self.cpu[BASE][1:], strict=True)]
        tail = statistics.median(made.p99 for made in self.found[row][1:])
        size = f"{len(GROWING[row.body][1]) / 1000:,.1f} KB" if row.group == "payload" else ""
        cells = (row.group, row.name, size, f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}", f"{tail:.1f}")
        return f"| {' | '.join(cells)} |"

    def _load(self, row: Row, seconds: float) -> load.Load:
        self._seed += 1
        port, _ = self._running[row.server]
        return load.run(port, row.body, row.connections, seconds, self._near, self._folder, self._seed)


def _add_tools(server: Server) -> dict[str, Any]:
    """The settings of a server with the tools of WIDE, if it is the usual one."""
    if server is not SERVERS["usual"]:
        return dict(server.settings)
    tools = {"forecast": SCHEMA, **WIDE}
    routes = [{"path": f"/tools/{tool}", "tool": tool, "upstream": "bench"} for tool in tools]
    return {"tools": {tool: {"schema": schema} for tool, schema in tools.items()}, "routes": routes}


def main() -> None:
    """Measures and prints."""
    groups = list(dict.fromkeys(row.group for row in ROWS))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--only", default=",".join(groups), help="groups of rows")
    options = parser.parse_args()
    rows = [row for row in ROWS if row.group in options.only.split(",")]
    with tempfile.TemporaryDirectory(prefix="toolcall-bench-") as name, ExitStack() as stack:
        growth = Growth(Path(name), options.seconds)
        growth.start({row.server for row in (BASE, *rows)}, stack)
        for number in range(1 + options.rounds):
            for row in (BASE, *rows):
                growth.measure(row)
            print(f"round {number}/{options.rounds} done", file=sys.stderr)
    base = statistics.median(growth.cpu[BASE][1:])
    print(f"| grows | row | body | x clean call ({base:.0f} us) | least | p99 ms |\n|---|---|---|---|---|---|")
    print("\n".join(map(growth.describe, (BASE, *rows))))


if __name__ == "__main__":
    main()

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
from benchmarks.calls import GROWING, MCP_PATHS, SCHEMA, WIDE, WRONG, write_config
from benchmarks.mcp_stdio import own_cpu
from benchmarks.peers.cast import Command, bare_upstream
from benchmarks.peers.running import Process, running, wait_ready

_CONNECTIONS: Final = 32
_MCP_TOOL: Final = ["benchmarks.peers.mcp_tool"]
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
    # Without attempts, which workers would have to share.
    "1 worker": Server(settings={"defaults": {"mode": "report"}}, is_pinned=False),
    "2 workers": Server(settings={"defaults": {"mode": "report"}, "workers": 2}, is_pinned=False),
}
BASE: Final = Row("", "clean call of 190 bytes")
ROWS: Final = (
    *[Row("schema" if name.startswith("schema") else "payload", name, name) for name in GROWING],
    *[Row("routes", name, server=name) for name in ("1,000 routes", "10,000 routes")],
    Row("conversations", "after 10,000 conversations with a rejected call", server="10,000 conversations"),
    *[Row("load", f"{count:,} connection{'s' * (count > 1)}", connections=count) for count in (1, 8, 128, 512, 1000)],
    *[Row("protocol", name, name) for name in MCP_PATHS],
    *[Row("workers", name, server=name) for name in ("1 worker", "2 workers")],
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
        self._upstream, self._mcp = machine.free_port(), machine.free_port()
        self._running: dict[str, tuple[int, Process]] = {}

    def start(self, names: set[str], stack: ExitStack) -> None:
        """Starts the tool and the proxies, and lets each answer some calls."""
        log = self._folder / "upstream.log"
        process = stack.enter_context(running(bare_upstream(self._folder, self._upstream), self._near, log))
        wait_ready(self._upstream, process, log)
        words = [sys.executable, "-m", *_MCP_TOOL, str(self._mcp)]
        stack.enter_context(running(Command(words), self._near, self._folder / "mcp.log"))
        for name in sorted(names):
            server, port, log = SERVERS[name], machine.free_port(), self._folder / f"{name}.log"
            settings = self._add_tools() if name == "usual" else server.settings
            config = write_config(self._folder, name, server.routes, self._upstream, port, settings)
            command = Command([sys.executable, "-m", "proxy", "serve", str(config)])
            process = stack.enter_context(running(command, self._far if server.is_pinned else None, log))
            wait_ready(port, process, log, _STARTING)
            self._running[name] = port, process
            for body in ("clean", *MCP_PATHS) if name == "usual" else ("clean",):
                self._load(Row("", "", body, server=name), 3.0)
        if "10,000 conversations" in names:
            row, left = Row("", "", "refused", server="10,000 conversations"), 10_000
            while left > 0:
                left -= self._load(row, 5.0).calls

    def measure(self, row: Row) -> None:
        """One turn of a row."""
        _, process = self._running[row.server]
        # The tool that the proxy starts as a command is not counted.
        measure_cpu = own_cpu if row.body in MCP_PATHS else machine.cpu_seconds
        before = measure_cpu(process.pid)
        made = self._load(row, self._seconds)
        used = measure_cpu(process.pid) - before
        if made.refused != (made.calls if row.body in WRONG else 0) or made.failed or not made.calls:
            raise SystemExit(f"{row.name}: {made.refused} refused, {made.failed} failed, {made.calls} answered")
        self.found.setdefault(row, []).append(made)
        self.cpu.setdefault(row, []).append(used / made.calls * 1e6)

    def measure_threads(self) -> float:
        """The share of the threads beside the event loop in the CPU time of clean calls: nearly all of it is the
        log's."""
        pid = self._running[BASE.server][1].pid
        before = _cpu_of_loop(pid), own_cpu(pid)
        self._load(BASE, 3 * self._seconds)
        loop, process = _cpu_of_loop(pid) - before[0], own_cpu(pid) - before[1]
        return 1 - loop / process

    def describe(self, row: Row) -> str:
        """Returns the line of a row."""
        ratios = [one / base for one, base in zip(self.cpu[row][1:], self.cpu[BASE][1:], strict=True)]
        tail = statistics.median(made.p99 for made in self.found[row][1:])
        size = f"{len(GROWING[row.body][1]) / 1000:,.1f} KB" if row.group == "payload" else ""
        cells = (row.group, row.name, size, f"{statistics.median(ratios):.2f}", f"{min(ratios):.2f}", f"{tail:.1f}")
        return f"| {' | '.join(cells)} |"

    def _add_tools(self) -> dict[str, Any]:
        """The settings with the tools of WIDE, and the tool as MCP servers."""
        tools = {"forecast": SCHEMA, **WIDE}
        calls = [{"path": f"/tools/{tool}", "tool": tool, "upstream": "bench"} for tool in tools]
        upstreams = {
            "bench": {"url": f"http://127.0.0.1:{self._upstream}", "pool": {"idle": "60s"}},
            "url": {"url": f"http://127.0.0.1:{self._mcp}", "pool": {"idle": "60s"}},
            "command": {"command": [sys.executable, "-m", *_MCP_TOOL], "shared": True, "pass_env": "all"},
        }
        routes = [{"path": path, "upstream": path[5:], "protocol": "mcp"} for path in MCP_PATHS.values()]
        return {
            "tools": {tool: {"schema": schema} for tool, schema in tools.items()},
            "upstreams": upstreams,
            "routes": [*calls, *routes],
        }

    def _load(self, row: Row, seconds: float) -> load.Load:
        self._seed += 1
        port, _ = self._running[row.server]
        return load.run(port, row.body, row.connections, seconds, self._near, self._folder, self._seed)


def _cpu_of_loop(pid: int) -> float:
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


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
        share = growth.measure_threads()
    base = statistics.median(growth.cpu[BASE][1:])
    print(f"| grows | row | body | x clean call ({base:.0f} us) | least | p99 ms |\n|---|---|---|---|---|---|")
    print("\n".join(map(growth.describe, (BASE, *rows))))
    print(f"\nOf the CPU time of clean calls, threads beside the event loop took {share:.0%}.")


if __name__ == "__main__":
    main()

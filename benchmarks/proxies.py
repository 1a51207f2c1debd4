"""This proxy with everything on beside its peers: one command, one run, the same calls.

    python -m benchmarks.proxies [--quick] [--cache FOLDER [--install]] [--only NAME,NAME] [--json FILE]

The load and the tool behind the proxies run on one core, every proxy on another one. All proxies are up all the time
and take turns in each round; a turn in which somebody else used the proxies' core is repeated. It prints medians, and
medians of the ratios within one round. CPU per call and ratios are what to trust: calls per second also measure the
load's core and the machine. A peer that is not there is named and left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks import load, machine
from benchmarks.calls import BODIES, write_schema
from benchmarks.peers.cast import CAST, HUNDRED, TIMED, TOKENS, Command, Missing, Stage, bare_upstream
from benchmarks.peers.installing import install
from benchmarks.peers.running import NotServingError, Player, ask, running, wait_ready
from benchmarks.report import Figure, Found, show

DIRECT: Final = "direct (no proxy)"
# A turn is repeated, so many times at most, while others have more than this share of the proxies' core.
FOREIGN: Final = 0.10
REPEATS: Final = 3
# The acts of the rounds, before any call has failed and after: every body at 32 connections, and the clean one also on
# one connection and crowded.
BEFORE: Final = (("clean", 32), ("changing", 32), ("clean", 1), ("clean", 128))
AFTER: Final = tuple((body, 32) for body in BODIES if body not in ("clean", "changing"))
ACTS: Final = (*BEFORE, *AFTER)


class Bench:
    """One run: who takes part, and what was found."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.found = Found()
        self._options = options
        self._folder = folder
        self._schema = write_schema(folder)
        cores = machine.cores()
        self._near = None if cores is None else cores[0]
        self._far = None if cores is None else cores[1]
        self._upstream = machine.free_port()
        self._players: list[Player] = []
        self._seed = 0

    def run(self) -> None:
        """Starts everybody, plays all rounds, and measures how long everybody takes to start."""
        with ExitStack() as stack:
            tool = bare_upstream(self._folder, self._upstream)
            log = self._folder / "upstream.log"
            process = stack.enter_context(running(tool, self._near, log))
            wait_ready(self._upstream, process, log)
            self._players = [Player(DIRECT, self._upstream)]
            for name in self._options.only or CAST:
                self._enter(name, stack)
            for acts in (BEFORE, AFTER):
                for number in range(self._options.rounds):
                    self._round(number, [act for act in acts if act in self._options.acts])
            for player in self._players[1:]:
                self.found.statuses[player.name] = {body: ask(player.port, body) for body in BODIES}
                if player.process is not None:
                    self.found.after[player.name] = machine.memory(player.process.pid)
        for player in self._players[1:]:
            self._starts(player.name)
        self._starts(HUNDRED)

    def _command(self, name: str, port: int) -> Command | Missing:
        options = self._options
        return {**CAST, **TIMED}[name](
            Stage(port, self._upstream, self._schema, self._folder, options.cache, options.python, options.mitmdump)
        )

    def _enter(self, name: str, stack: ExitStack) -> None:
        """Starts a peer, or notes why it is left out."""
        port = machine.free_port()
        command = self._command(name, port)
        if isinstance(command, Missing):
            self.found.left_out[name] = command.reason
            return
        log = self._folder / f"{port}.log"
        process = stack.enter_context(running(command, self._far, log))
        try:
            wait_ready(port, process, log, body=command.body)
        except NotServingError as error:
            self.found.left_out[name] = f"does not serve: {error}"
            return
        time.sleep(0.5)
        self.found.idle[name] = machine.memory(process.pid)
        load.run(port, command.body, 32, 1, self._near, self._folder, 0)  # code is compiled, connections are made
        if command.validates:
            self.found.validating.add(name)
        self._players.append(Player(name, port, process, command.validates))

    def _round(self, number: int, acts: list[tuple[str, int]]) -> None:
        # Whoever comes behind a hungry peer finds a warmer machine: the order is turned round in every other round.
        players = self._players[::-1] if number % 2 else self._players
        for body, connections in acts:
            for player in players:
                if player.name == TOKENS and body != "signed":
                    continue  # it refuses all other calls
                figure = self._turn(player, body, connections)
                self.found.turns.setdefault((player.name, body, connections), []).append(figure)
            print(f"round {number + 1}/{self._options.rounds}: {body}, {connections} done", file=sys.stderr)

    def _turn(self, player: Player, body: str, connections: int) -> Figure:
        """One peer's turn; the least disturbed of its repetitions."""
        tries = []
        for _ in range(1 + REPEATS):
            try:
                tries.append(self._measure(player, body, connections))
            except subprocess.CalledProcessError as error:  # somebody ended the load: nothing is known of this turn
                print(f"the load was cut off: {error}", file=sys.stderr)
                continue
            if tries[-1].foreign <= FOREIGN:
                break
        if not tries:
            raise SystemExit("the load generator does not run")
        return min(tries, key=lambda figure: figure.foreign)

    def _measure(self, player: Player, body: str, connections: int) -> Figure:
        pid, core, seconds = player.process.pid if player.process else None, self._far or 0, self._options.seconds
        self._seed += 1
        busy, used, began = machine.busy_seconds(core), _used(pid), time.perf_counter()
        made = load.run(player.port, body, connections, seconds, self._near, self._folder, self._seed)
        busy, used = machine.busy_seconds(core) - busy, _used(pid) - used
        foreign = max(busy - used, 0.0) / (time.perf_counter() - began) if pid is not None else 0.0
        calls = max(made.calls, 1)
        rate = made.calls / made.seconds
        return Figure(used / calls * 1e6, rate, made.p50, made.p99, made.refused / calls, made.failed, foreign)

    def _starts(self, name: str) -> None:
        """Measures the time from a peer's start to its first proxied answer."""
        with ExitStack() as stack:
            log, told = self._folder / "start.log", self._folder / "upstream.log"
            tool = bare_upstream(self._folder, self._upstream)
            wait_ready(self._upstream, stack.enter_context(running(tool, self._near, told)), told)
            for _ in range(self._options.starts):
                port = machine.free_port()
                command = self._command(name, port)
                assert isinstance(command, Command)
                began = time.perf_counter()
                with running(command, self._far, log) as process:
                    try:
                        wait_ready(port, process, log, body=command.body)
                    except NotServingError as error:
                        print(f"{name} did not start this time: {error}", file=sys.stderr)
                    else:
                        self.found.starts.setdefault(name, []).append(time.perf_counter() - began)


def _used(pid: int | None) -> float:
    return 0.0 if pid is None else machine.cpu_seconds(pid)


def read_acts(text: str) -> list[tuple[str, int]]:
    """The acts that a text names. Raises argparse.ArgumentTypeError for an unknown one."""
    named = {f"{body}/{connections}": (body, connections) for body, connections in ACTS}
    unknown = [name for name in text.split(",") if name not in named]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(named)}")
    return [named[name] for name in text.split(",")]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of one second, one start: a first look")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="length of a turn")
    parser.add_argument("--starts", type=int, default=5, help="how often each proxy is started to time that")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"peers, of: {', '.join(CAST)}")
    parser.add_argument("--acts", type=read_acts, default=ACTS, help="such as clean/32,refused/32")
    parser.add_argument(
        "--cache", type=Path, default=Path.home() / ".cache" / "toolcall-proxy-bench", help="where peers are"
    )
    parser.add_argument("--install", action="store_true", help="fetch peers into the cache folder first")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter that has Starlette, httpx and the like"
    )
    parser.add_argument("--mitmdump", default="mitmdump", help="mitmproxy's command")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args()
    if options.quick:
        options.rounds = options.seconds = options.starts = 1
    options.cache = options.cache.absolute()
    return options


def main() -> None:
    """Measures and prints."""
    options = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.install:
        install(options.cache)
    where = machine.cores()
    print(f"Python {platform.python_version()}, {platform.machine()}, {options.rounds} rounds of {options.seconds} s")
    print(f"cores: {'not pinned' if where is None else f'load and tool on {where[0]}, proxies on {where[1]}'}")
    print(f"load: {'wrk' if shutil.which('wrk') else 'benchmarks/load.py (install wrk for a faster one)'}")
    with tempfile.TemporaryDirectory(prefix="toolcall-bench-") as name:
        bench = Bench(options, Path(name))
        try:
            bench.run()
        except KeyboardInterrupt:
            print("ended early: what was measured until then")
    show(bench.found)
    if options.json is not None:
        turns = {"/".join(map(str, turn)): [asdict(one) for one in all_] for turn, all_ in bench.found.turns.items()}
        rest = {key: getattr(bench.found, key) for key in ("statuses", "starts", "idle", "after", "left_out")}
        options.json.write_text(json.dumps({"turns": turns, **rest}, indent=1))


if __name__ == "__main__":
    main()

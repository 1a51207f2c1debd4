"""Speed of the validation engine beside its peers, bytes to verdict, as ratios to `orjson.loads` of the same body.

    python -m benchmarks.engine [--install] [--cache FOLDER] [--only CASE,CASE] [--rounds N]

Five schema/body pairs, each as a valid body, a damaged one (numbers and booleans sent as text) and one with four
errors, and the time to compile the schema. Peers differ in their treatment of a body, and the column says so. Ours
repairs a damaged body (strict parse, check, repair, check) and reports every error; pydantic-core and AJV coerce; the
others only report. None of the peers refuses duplicate keys or keeps a number's own text. A further row holds our whole
decision: from the call to the bytes that are sent, or to the worded refusal.

`--install` fetches the peers into the cache folder first; a peer that is not there is named and left out. Every figure
is the best of many short rounds, taken in turn with those of the others, so that a busy machine slows all alike; ratios
of one run compare.
"""

from __future__ import annotations

import argparse
import platform
import sys
import timeit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.engines import AJV, FLOOR, KINDS, OURS, PEERS, PYDANTIC, Runners, ajv, find, install, told
from benchmarks.schemas import CASES, bodies

SECONDS: Final = 0.004  # of one round; the best round counts

# The goals of one run (docs/engine.md): for the tiny body, times `orjson.loads` of the same body.
GOALS: Final = {"valid": 5, "4 errors": 12}

# peer -> kind of body, or "compile" or "told", -> seconds, or number of errors
Table = dict[str, dict[str, float]]


def seconds(runs: Mapping[str, Callable[[Any], object]], given: object, rounds: int) -> dict[str, float]:
    """The best time of one call of each with what it is given, in rounds that go over all of them."""
    timers = {name: timeit.Timer("run(given)", globals={"run": run, "given": given}) for name, run in runs.items()}
    numbers = {name: max(1, int(SECONDS / max(timer.timeit(3) / 3, 1e-8))) for name, timer in timers.items()}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, timer in timers.items():
            best[name] = min(best[name], timer.timeit(numbers[name]) / numbers[name])
    return best


def measured(schema: Any, sent: Mapping[str, bytes], rounds: int, absent: dict[str, str]) -> Table:
    """Every peer that is there on one pair."""
    started: dict[str, Runners] = {}
    for peer, start in PEERS.items():
        try:
            started[peer] = start(schema)
        except ImportError as error:
            absent[peer] = f"{error.name} is not installed"
    table: Table = {peer: {} for peer in started}
    for kind, body in sent.items():
        runs = {peer: runners[kind] for peer, runners in started.items()}
        for peer, best in seconds(runs, body, rounds).items():
            table[peer][kind] = best
    for peer, runners in started.items():
        table[peer]["compile"] = seconds({"": PEERS[peer]}, schema, 3)[""]
        table[peer]["told"] = told(runners["4 errors"](sent["4 errors"]))
    return table


def show(name: str, size: int, table: Table) -> None:
    """Prints one pair."""
    floor = table[FLOOR]
    print(f"\n{name}: {size} bytes, {FLOOR} {floor['valid'] * 1e6:.2f} us")
    print(f"  {'':30} {'valid':>8} {'damaged':>8} {'4 errors':>8} {'told':>6} {'compile':>10}")
    for peer, times in table.items():
        if peer != FLOOR:
            ratios = " ".join(f"{times[kind] / floor[kind]:>7.1f}x" for kind in KINDS)
            print(f"  {peer:30} {ratios} {times['told']:>6.0f} {times['compile'] * 1e3:>7.2f} ms")


def compare(tables: Mapping[str, Table]) -> None:
    """Prints our time over that of the better of the two peers that coerce, and the goals."""
    print(f"\nours over the better of {PYDANTIC.split()[0]} and {AJV.split()[0]}:")
    for name, table in tables.items():
        others = [table[peer] for peer in (PYDANTIC, AJV) if peer in table]
        if others:
            ratios = (f"{kind} {table[OURS][kind] / min(other[kind] for other in others):.2f}x" for kind in KINDS)
            print(f"  {name:10} " + ", ".join(ratios))
    if (tiny := tables.get("tiny")) is not None:
        for kind, goal in GOALS.items():
            print(f"tiny, {kind}: {tiny[OURS][kind] / tiny[FLOOR][kind]:.1f}x (goal {goal}x)")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="fetch the peers into the cache folder first")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "toolcall-proxy-bench", help="the peers")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"pairs, of: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=60)
    return parser.parse_args()


def main() -> int:
    """Measures everything and prints a table for each pair."""
    options = arguments()
    cache = options.cache.absolute()
    for problem in install(cache) if options.install else ():
        print(problem, file=sys.stderr)
    find(cache)
    absent: dict[str, str] = {}
    under_node = ajv(cache)
    if isinstance(under_node, str):
        absent[AJV] = under_node
    print(f"Python {platform.python_version()}, {platform.machine()}, best of {options.rounds} rounds")
    tables: dict[str, Table] = {}
    for name in options.only or CASES:
        schema, valid, wrong = CASES[name]
        sent = bodies(valid, wrong)
        table = tables[name] = measured(schema, sent, options.rounds, absent)
        if not isinstance(under_node, str):
            table[AJV] = under_node[name]
        show(name, len(sent["valid"]), table)
    compare(tables)
    for peer, reason in absent.items():
        print(f"left out: {peer}: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

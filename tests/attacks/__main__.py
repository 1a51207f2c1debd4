"""python -m tests.attacks [--seed N] [--scale X] [NAME ...]: runs the fuzzers. Exit code 1: one found something."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Final

from tests.attacks import (
    Found,
    ambiguity,
    fast_calls,
    filtered_answers,
    http_streams,
    json_texts,
    judgements,
    mcp_bodies,
    upstream_answers,
)

# Each attack with its tries at scale 1, which take about a minute on a small machine.
ATTACKS: Final[dict[str, tuple[Callable[[int, int], Found], int]]] = {
    "json": (json_texts.attack, 200_000),
    "judgements": (judgements.attack, 3_000),
    "mcp": (mcp_bodies.attack, 5_000),
    "ambiguity": (ambiguity.attack, 20_000),
    "upstream": (upstream_answers.attack, 1_000),
    "answers": (filtered_answers.attack, 20_000),
    "fast": (fast_calls.attack, 100),
    "http": (http_streams.attack, 100),
}


def main() -> int:
    """Runs the attacks that are named, or all; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description="Attacks the tree with fuzzers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(ATTACKS)} (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="what the input is made from (default 1)")
    parser.add_argument("--scale", type=float, default=1.0, help="how many of the usual tries (default 1)")
    args = parser.parse_args()
    if unknown := set(args.names) - set(ATTACKS):
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    failed = False
    for name in args.names or ATTACKS:
        attack, tries = ATTACKS[name]
        started = time.monotonic()
        found = attack(args.seed, max(1, int(tries * args.scale)))
        seconds = time.monotonic() - started
        sys.stdout.write(
            f"{name:<11} seed {args.seed}: {found.tries} tries, {found.through} through, "
            f"{len(found.findings)} findings, {seconds:.0f} s\n"
        )
        for finding in found.findings[:10]:
            sys.stdout.write(f"  {finding}\n")
        failed = failed or bool(found.findings)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

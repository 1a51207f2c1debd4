"""python -m tests.reliability [--seconds N] [--no-page]: measures, and writes docs/evidence/reliability.md.

Exit code 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from tests.reliability.page import PAGE, written
from tests.reliability.soak import soak
from tests.serving.hostile import cases, replay, table


def say(text: str) -> None:
    """Tells the terminal how it goes."""
    sys.stderr.write(text + "\n")


def main() -> int:
    """Runs both measurements; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description="Measures and writes the page.")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the soak takes (default 600)")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/evidence/reliability.md")
    args = parser.parse_args()
    measured = asyncio.run(soak(args.seconds, say))
    results = asyncio.run(replay(cases()))
    text = written(measured, table(results))
    if args.no_page:
        say(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
    for line in measured.told.lost[:20]:
        say(f"lost: {line}")
    for line in measured.defects[:5]:
        say(f"defect: {line}")
    findings = [finding for result in results for finding in result.findings]
    for finding in findings[:20]:
        say(f"hostile: {finding}")
    return 0 if measured.is_clean and not findings else 1


if __name__ == "__main__":
    sys.exit(main())

"""`toolcall-proxy diff OLD NEW CALLS.jsonl` says what a new config makes of recorded calls, for a look or for CI."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from proxy.cli.options import HelpText
from proxy.cli.recorded_input import RecordedLines, load_tools, open_input

if TYPE_CHECKING:
    from proxy.recording.comparing import LineComparison, ServedTools

EXIT_WORSE: Final = 1
EXIT_USAGE: Final = 2
_FAIL_ON: Final = "newly-refused,other-arguments,no-route"
_ALLOW: Final = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<percent>%?)")
_FEW: Final = 30

EPILOG: Final = """\
CALLS.jsonl is what `record` writes (also gzipped); each line is judged by the old and by the new config, without hooks
and corrections. Lines with stand-ins where the new schema asks what these do not keep are counted as `cannot tell`.

examples:
  toolcall-proxy diff old/config.yaml config.yaml calls.jsonl
  git worktree add old main && toolcall-proxy diff old/config.yaml config.yaml calls.jsonl --format markdown

exit codes: 0 nothing worse, 1 what --fail-on names happens more often than --allow, 2 unusable input
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "diff",
        help="what a changed config makes of recorded calls",
        description="Says what a new config makes of recorded calls that the old one judged otherwise.",
        epilog=EPILOG,
        formatter_class=HelpText,
    )
    verb.add_argument("old", metavar="OLD", help="the config as it is served")
    verb.add_argument("new", metavar="NEW", help="the config as it would be")
    verb.add_argument("calls", metavar="CALLS.jsonl", help="recorded calls, also gzipped; - for standard input")
    verb.add_argument("--format", choices=("table", "json", "markdown"), default="table", help="how it is told")
    verb.add_argument("--fail-on", metavar="KINDS", default=_FAIL_ON, help=f"what exits with 1 (default: {_FAIL_ON})")
    verb.add_argument("--allow", metavar="N|N%", default="0", help="how many of these are allowed (default 0)")


@dataclass(slots=True)
class Comparison:
    """What was counted: calls by kind of change, and the places at which they change, with the first line of each."""

    counts: Counter[str] = field(default_factory=Counter)
    places: Counter[tuple[str, str, str, str, str]] = field(default_factory=Counter)
    first: dict[tuple[str, str, str, str, str], int] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """All calls compared."""
        return self.counts.total()

    def add(self, number: int, tool: str, found: LineComparison) -> None:
        """Counts one line."""
        self.counts[found.change] += 1
        if found.path or found.code:
            key = (tool, found.path, found.code, found.before, found.after)
            self.places[key] += 1
            self.first.setdefault(key, number)


def run(args: argparse.Namespace) -> int:
    """Compares and gives the exit code."""
    from proxy.config.mistakes import ConfigError
    from proxy.recording.comparing import LINE_CHANGES

    kinds = [kind.strip().replace("-", "_") for kind in args.fail_on.split(",") if kind.strip()]
    allowed = _ALLOW.fullmatch(args.allow)
    if allowed is None or not set(kinds) <= set(LINE_CHANGES):
        known = ", ".join(name.replace("_", "-") for name in LINE_CHANGES)
        print(f"diff: --allow is a number or a share such as 1%; --fail-on names some of: {known}", file=sys.stderr)
        return EXIT_USAGE
    try:
        old, new = load_tools(args.old), load_tools(args.new)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    found = _compare(args.calls, old, new)
    if found is None:
        return EXIT_USAGE
    print(_FORMATS[args.format](found))
    worse = sum(found.counts[kind] for kind in kinds)
    most = float(allowed["number"]) * (found.calls / 100 if allowed["percent"] else 1)
    if worse <= most:
        return 0
    told = ", ".join(f"{found.counts[kind]} {_words(kind)}" for kind in kinds if found.counts[kind])
    print(f"exit 1: {told}", file=sys.stderr)
    return EXIT_WORSE


def _compare(name: str, old: ServedTools, new: ServedTools) -> Comparison | None:
    from proxy.recording.comparing import compare_line

    found = Comparison()
    try:
        source = open_input(name)
    except OSError as error:
        print(f"diff: cannot read {name}: {error.strerror}", file=sys.stderr)
        return None
    lines = RecordedLines(source, "diff")
    for number, line in lines:
        found.add(number, line.tool, compare_line(line, old, new))
    return None if lines.bad or not found.calls else found


# --- how it is told ---------------------------------------------------------------------------------------------------
def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _rows(found: Comparison) -> Iterable[tuple[tuple[str, str, str, str, str], int]]:
    return found.places.most_common(_FEW)


def _table(found: Comparison) -> str:
    from proxy.recording.comparing import LINE_CHANGES

    lines = [
        "   ".join([f"{found.calls:,} calls", *(f"{_words(kind)} {found.counts[kind]:,}" for kind in LINE_CHANGES)])
    ]
    for key, number in _rows(found):
        tool, path, code, before, after = key
        fate = f"{before} -> {after}"
        lines.append(f"{tool}  {path or 'arguments'}  {code}  {number:,} x  {fate}  e.g. line {found.first[key]:,}")
    return "\n".join(lines)


def _markdown(found: Comparison) -> str:
    from proxy.recording.comparing import LINE_CHANGES

    head = [_words(kind) for kind in LINE_CHANGES]
    lines = [f"| calls | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    lines.append(f"| {found.calls:,} | {' | '.join(f'{found.counts[kind]:,}' for kind in LINE_CHANGES)} |")
    if found.places:
        lines += ["", "| tool | place | code | calls | change |", "|---|---|---|---|---|"]
    for (tool, path, code, before, after), number in _rows(found):
        cells = (tool, f"`{path or 'arguments'}`", code, f"{number:,}", f"{before} → {after}")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def _json(found: Comparison) -> str:
    from proxy.recording.comparing import LINE_CHANGES

    shown: dict[str, Any] = {"calls": found.calls, **{kind: found.counts[kind] for kind in LINE_CHANGES}}
    shown["changes"] = [
        {"tool": tool, "path": path, "code": code, "before": before, "after": after, "calls": number,
         "line": found.first[tool, path, code, before, after]}
        for (tool, path, code, before, after), number in _rows(found)
    ]  # fmt: skip
    return json.dumps(shown, ensure_ascii=False)


_FORMATS: Final[Mapping[str, Any]] = {"table": _table, "json": _json, "markdown": _markdown}

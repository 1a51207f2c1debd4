"""`toolcall-proxy diff OLD NEW CALLS.jsonl` prints which recorded calls a new config judges differently, for people and
for CI."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from proxy.extensions.recording.cli.recorded_input import RecordedLines, load_tools, open_input
from proxy.plugin import print_unusable

if TYPE_CHECKING:
    from proxy.extensions.recording.comparing import ComparisonCounts, Place, ServedTools
    from proxy.extensions.recording.line import RecordedLine

EXIT_WORSE: Final = 1
_FAIL_ON: Final = "newly-refused,other-arguments,no-route"
_ALLOW: Final = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?)(?P<percent>%?)")
_FEW: Final = 30
# How many lines a process gets at once, and how many such parts are queued for each process.
_PART: Final = 200
_WAITING: Final = 3
_MOST_JOBS: Final = 64

EPILOG: Final = """\
CALLS.jsonl is a file that `record` has written, also gzipped. Each call is validated with the old and the new config,
without hooks and corrections. A newly rejected call counts under each of its new errors. `record` may replace texts by
placeholders: if the new schema checks a detail that they do not keep, the call counts as `cannot tell`.

examples:
  toolcall-proxy diff old/config.yaml config.yaml calls.jsonl
  git worktree add old main && toolcall-proxy diff old/config.yaml config.yaml calls.jsonl --format markdown
  toolcall-proxy diff old/config.yaml config.yaml calls.jsonl.gz --jobs 4      millions of lines, four processes

--format json prints one object (schemas/verbs/diff.schema.json). All formats have the same exit codes.

exit codes: 0 success, 1 more changes of the kinds in --fail-on than --allow, 2 unusable input
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describes the verb's arguments."""
    verb = subparsers.add_parser(
        "diff",
        help="compare two configs on recorded calls",
        description="Compare two configs: count the recorded calls that get another result.",
        epilog=EPILOG,
    )
    verb.add_argument("old", metavar="OLD", help="the config in use")
    verb.add_argument("new", metavar="NEW", help="the changed config")
    verb.add_argument("calls", metavar="CALLS.jsonl", help="recorded calls, also gzipped; - for standard input")
    verb.add_argument("--format", choices=tuple(_FORMATS), default="text", help="output format (default: text)")
    verb.add_argument(
        "--fail-on",
        metavar="KINDS",
        default=_FAIL_ON,
        help=f"kinds of changes that cause exit code 1 (default: {_FAIL_ON})",
    )
    verb.add_argument("--allow", metavar="N|N%", default="0", help="allow N of these changes (default 0)")
    verb.add_argument("--jobs", metavar="N", type=read_jobs, default=1, help="use N processes (default 1)")


def read_jobs(text: str) -> int:
    """A number of processes. Raises ArgumentTypeError for anything else."""
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of processes from 1 to {_MOST_JOBS}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Compares and gives the exit code."""
    from proxy.extensions.recording.comparing import LINE_CHANGES
    from proxy.plugin import ConfigError

    kinds = [kind.strip().replace("-", "_") for kind in args.fail_on.split(",") if kind.strip()]
    allowed = _ALLOW.fullmatch(args.allow)
    if allowed is None or not set(kinds) <= set(LINE_CHANGES):
        known = ", ".join(name.replace("_", "-") for name in LINE_CHANGES)
        message = f"diff: --allow is a number or a share such as 1%; --fail-on names some of: {known}"
        return print_unusable(args.format, message)
    try:
        old, new = load_tools(args.old), load_tools(args.new)
    except ConfigError as error:
        return print_unusable(args.format, str(error), error.mistakes)
    found = _compare(args, old, new)
    if isinstance(found, str):
        return print_unusable(args.format, found)
    print(_FORMATS[args.format](found))
    worse = sum(found.counts[kind] for kind in kinds)
    most = float(allowed["number"]) * (found.calls / 100 if allowed["percent"] else 1)
    if worse <= most:
        return 0
    summary = ", ".join(f"{found.counts[kind]} {_write_words(kind)}" for kind in kinds if found.counts[kind])
    print(f"exit 1: {summary}", file=sys.stderr)
    return EXIT_WORSE


def _compare(args: argparse.Namespace, old: ServedTools, new: ServedTools) -> ComparisonCounts | str:
    """The differences, or the reason why there is no comparison; reports lines without a call on stderr."""
    from proxy.extensions.recording.line import read_line

    try:
        source = open_input(args.calls)
    except OSError as error:
        return f"diff: cannot read {args.calls}: {error.strerror}"
    lines = RecordedLines(source, "diff", read_line)
    if args.jobs == 1:
        found = compare_lines(lines, old, new)
    else:
        found = _compare_in_processes(lines, args.old, args.new, args.jobs)
    if lines.has_failed:
        return f"diff: {args.calls} is not recorded calls throughout, so nothing is compared"
    return found if found.calls else f"diff: {args.calls} holds no recorded call"


def compare_lines(lines: Iterable[tuple[int, RecordedLine]], old: ServedTools, new: ServedTools) -> ComparisonCounts:
    """Judges numbered lines by both configs, and counts how the verdicts differ."""
    from proxy.extensions.recording.comparing import ComparisonCounts, compare_line

    found = ComparisonCounts()
    for number, line in lines:
        found.add(number, line.tool, compare_line(line, old, new))
    return found


# --- several processes ------------------------------------------------------------------------------------------------
# In a worker process: the tools of the old config, then those of the new one.
_judging: list[ServedTools] = []


def _compare_in_processes(lines: RecordedLines[RecordedLine], old: str, new: str, jobs: int) -> ComparisonCounts:
    """Like `compare_lines` in several processes: each reads both configs once and gets some lines at a time."""
    from concurrent.futures import Future, ProcessPoolExecutor
    from multiprocessing import get_context

    from proxy.extensions.recording.comparing import ComparisonCounts

    found, waiting = ComparisonCounts(), deque[Future[ComparisonCounts]]()
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin_judging, (old, new)) as pool:
        left = iter(lines)
        while part := list(islice(left, _PART)):
            waiting.append(pool.submit(_judge_part, part))
            if len(waiting) == jobs * _WAITING:
                found.merge(waiting.popleft().result())
        while waiting:
            found.merge(waiting.popleft().result())
    return found


def _begin_judging(old: str, new: str) -> None:
    _judging[:] = [load_tools(old), load_tools(new)]


def _judge_part(part: Sequence[tuple[int, RecordedLine]]) -> ComparisonCounts:
    old, new = _judging
    return compare_lines(part, old, new)


# --- output -----------------------------------------------------------------------------------------------------------
def _write_words(kind: str) -> str:
    return kind.replace("_", " ")


def _list_rows(found: ComparisonCounts) -> Iterable[tuple[Place, int]]:
    return found.places.most_common(_FEW)


def _write_text(found: ComparisonCounts) -> str:
    from proxy.extensions.recording.comparing import LINE_CHANGES

    lines = [
        "   ".join(
            [f"{found.calls:,} calls", *(f"{_write_words(kind)} {found.counts[kind]:,}" for kind in LINE_CHANGES)]
        )
    ]
    for key, number in _list_rows(found):
        tool, path, code, before, after = key
        fate = f"{before} -> {after}"
        lines.append(f"{tool}  {path or 'arguments'}  {code}  {number:,} x  {fate}  e.g. line {found.first[key]:,}")
    return "\n".join(lines)


def _write_markdown(found: ComparisonCounts) -> str:
    from proxy.extensions.recording.comparing import LINE_CHANGES

    head = [_write_words(kind) for kind in LINE_CHANGES]
    lines = [f"| calls | {' | '.join(head)} |", f"|---|{'---|' * len(head)}"]
    lines.append(f"| {found.calls:,} | {' | '.join(f'{found.counts[kind]:,}' for kind in LINE_CHANGES)} |")
    if found.places:
        lines += ["", "| tool | place | code | calls | change |", "|---|---|---|---|---|"]
    for (tool, path, code, before, after), number in _list_rows(found):
        cells = (tool, f"`{path or 'arguments'}`", code, f"{number:,}", f"{before} → {after}")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


_FORMATS: Final[Mapping[str, Any]] = {
    "text": _write_text,
    "json": lambda found: json.dumps(found.show(_FEW), ensure_ascii=False),
    "markdown": _write_markdown,
}

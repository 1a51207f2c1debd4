"""`replay --config`: recorded calls judged by a config, through their own routes, with a table at the end."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from proxy.cli.recorded_input import RecordedLines, load_tools, open_input

if TYPE_CHECKING:
    from proxy.core.model.values import JsonValue
    from proxy.recording.comparing import ServedTools
    from proxy.recording.line import RecordedLine

EXIT_DIFFERS: Final = 1
EXIT_USAGE: Final = 2
_FEW: Final = 20


def replay_recorded(config: str, name: str) -> int:
    """Judges every line and gives the exit code: 1 where one is judged otherwise than it was."""
    from proxy.config.mistakes import ConfigError
    from proxy.core.json.jsontext import dumps

    try:
        tools, source = load_tools(config), open_input(name)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"replay: cannot read {name}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    lines, counts = RecordedLines(source, "replay"), Counter[tuple[str, str, str]]()
    for number, line in lines:
        row, what, place = judge_line(line, tools)
        counts[line.tool, what, place] += 1
        sys.stdout.buffer.write(dumps({"line": number, **row}) + b"\n")
    sys.stdout.buffer.flush()
    print(write_table(counts), file=sys.stderr)
    differing = sum(times for (_, what, _), times in counts.items() if what.startswith("now "))
    return EXIT_USAGE if lines.bad else EXIT_DIFFERS if differing else 0


def judge_line(line: RecordedLine, tools: ServedTools) -> tuple[dict[str, JsonValue], str, str]:
    """What becomes of a recorded call: what the output says of it, its fate in words, and its first place."""
    from proxy.core.envelope.feedback import write_feedback
    from proxy.core.fates import reduce_decision
    from proxy.core.model.values import Reject
    from proxy.recording.judging import decide_sent, explain_refusal
    from proxy.recording.line import differs, show_fate

    shown: dict[str, JsonValue] = {"route": line.route, "tool": line.tool}
    known = tools.get((line.route, line.tool))
    if known is None:
        return {**shown, "decision": None}, "no route", ""
    if line.sent is None:
        return {**shown, "decision": None}, "lost", ""
    decision = decide_sent(line.sent, *known)
    fate = reduce_decision(decision)
    shown |= show_fate(fate)
    shown["content"] = None
    if isinstance(decision, Reject):
        shown["content"] = write_feedback(explain_refusal(decision.failure, known[1]))
    what = "refused" if not fate.forwarded else "repaired" if fate.repairs else "forwarded"
    place = next((f"{path or 'arguments'} {code}" for code, path in fate.errors or fate.repairs), "")
    if differs(line.fate, fate):
        shown["differs"] = True
        what = f"now {what}"
    return shown, what, place


def write_table(counts: Counter[tuple[str, str, str]]) -> str:
    """The closing table: tool, what became of its calls, and where, the most frequent first."""
    rows = [("tool", "fate", "place", "calls")]
    rows += [(tool, what, place, f"{times:,}") for (tool, what, place), times in counts.most_common(_FEW)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    ]
    left = len(counts) - _FEW
    return "\n".join(lines + ([f"... and {left} more"] if left > 0 else []) + [f"{counts.total():,} calls"])

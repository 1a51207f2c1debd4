"""What another config makes of recorded calls: `compare_line` judges one line by two configs.

At a place with a stand-in the verdict is unsure where the new schema asks something else there that a stand-in does not
keep (its enum, pattern, format ...); such a line is `cannot_tell`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from proxy.adapters.base import CallShape
from proxy.core.contract.policy import ToolPolicy
from proxy.core.fates import Change, Fate, compare_fates
from proxy.core.improvement.tool_mistakes import nodes_at
from proxy.core.json.jsontext import parse_pointer
from proxy.core.model.values import JsonValue, Pointer
from proxy.recording.judging import judge_sent
from proxy.recording.line import RecordedLine

# What a schema may ask of a text that its stand-in does not keep.
_UNKEPT: Final = frozenset(
    ["enum", "const", "pattern", "format", "minLength", "maxLength", "anyOf", "oneOf", "allOf", "not", "if", "then",
     "else", "$ref", "$dynamicRef", "contentEncoding", "contentMediaType"]
)  # fmt: skip

LineChange = Change | Literal["no_route", "cannot_tell"]
LINE_CHANGES: Final[tuple[LineChange, ...]] = (
    "same", "newly_accepted", "newly_refused", "other_arguments", "other_answer", "no_route", "cannot_tell",
)  # fmt: skip
# (route, tool) -> how its calls are read, and its policy.
ServedTools = Mapping[tuple[str, str], tuple[CallShape, ToolPolicy]]


@dataclass(frozen=True, slots=True)
class LineComparison:
    """How a line's fate changes. `path` and `code` say where, `before` and `after` are forward or refuse."""

    change: LineChange
    path: str = ""
    code: str = ""
    before: str = ""
    after: str = ""


def compare_line(line: RecordedLine, old: ServedTools, new: ServedTools) -> LineComparison:
    """What the new config makes of a recorded call that the old one makes something else of."""
    key = (line.route, line.tool)
    if key not in old or key not in new:
        return LineComparison("same" if key not in old and key not in new else "no_route")
    if line.sent is None:
        return LineComparison("cannot_tell")
    (old_shape, old_policy), (new_shape, new_policy) = old[key], new[key]
    if any(_asks_otherwise(old_policy, new_policy, parse_pointer(path)) for path in line.masked):
        return LineComparison("cannot_tell")
    before, after = judge_sent(line.sent, old_shape, old_policy), judge_sent(line.sent, new_shape, new_policy)
    change = compare_fates(before, after)
    return LineComparison(change) if change == "same" else describe_change(change, before, after)


def describe_change(change: LineChange, before: Fate, after: Fate) -> LineComparison:
    """Where a fate changes: an error or a repair that one of the two has and the other lacks."""
    first, second = (set(fate.errors or fate.repairs) for fate in (before, after))
    code, path = next(iter(sorted(first - second) or sorted(second - first) or sorted(first)), (after.code, ""))
    words = ["forward" if fate.forwarded else "refuse" for fate in (before, after)]
    return LineComparison(change, path, code, *words)


def _asks_otherwise(old: ToolPolicy, new: ToolPolicy, path: Pointer) -> bool:
    return _asked(old, path) != _asked(new, path)


def _asked(policy: ToolPolicy, path: Pointer) -> list[dict[str, JsonValue]]:
    """What a schema asks at a place that no stand-in keeps."""
    if policy.check is None:
        return []
    steps = tuple(int(step) if isinstance(step, str) and step.isdecimal() else step for step in path)
    nodes = nodes_at(policy.check, steps)
    found = [{key: item for key, item in node.keywords.items() if key in _UNKEPT} for node in nodes]
    return [each for each in found if each]

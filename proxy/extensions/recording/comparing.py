"""Compares the verdicts of two configs on recorded calls: `compare_line` judges one line by both, `compare_sent` judges
arguments by two policies, and `ComparisonCounts` adds up the changes.

A stand-in keeps only some properties of the text that it replaces. A line is `cannot_tell` where the new schema checks
another property at that place (enum, pattern, format ...), unless the old schema has the same check and is the one of
the recording.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from proxy.adapters.base import CallShape
from proxy.core.contract.policy import ToolPolicy
from proxy.core.json.jsontext import parse_pointer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.rules.facts import nodes_at
from proxy.extensions.recording.line import CHANGES, Change, Fate, RecordedLine, compare_fates, judge_sent

# Keywords about properties of a text that its stand-in does not keep.
_UNKEPT: Final = frozenset(
    ["enum", "const", "pattern", "format", "minLength", "maxLength", "anyOf", "oneOf", "allOf", "not", "if", "then",
     "else", "$ref", "$dynamicRef", "contentEncoding", "contentMediaType"]
)  # fmt: skip

LineChange = Change | Literal["no_route", "cannot_tell"]
LINE_CHANGES: Final[tuple[LineChange, ...]] = (*CHANGES, "no_route", "cannot_tell")
# (route, tool) -> the shape of its calls, and its policy.
ServedTools = Mapping[tuple[str, str], tuple[CallShape, ToolPolicy]]


@value_class
class LineComparison:
    """The change of a line's fate: `before` and `after`, each forward or refuse, and the `places` of the errors or
    repairs behind it, each (code, path)."""

    change: LineChange
    places: tuple[tuple[str, str], ...] = ()
    before: str = ""
    after: str = ""


def compare_line(line: RecordedLine, old: ServedTools, new: ServedTools) -> LineComparison:
    """Judges a recorded call by the old and the new config, and compares the fates."""
    key = (line.route, line.tool)
    if key not in old or key not in new:
        return LineComparison("same" if key not in old and key not in new else "no_route")
    if line.sent is None:
        return LineComparison("cannot_tell")
    (old_shape, old_policy), (new_shape, new_policy) = old[key], new[key]
    is_recorded_by_old = line.fields.get("schema_id", "") == old_policy.schema_id
    for place in map(parse_pointer, line.masked):
        unkept = _list_unkept(new_policy, place)
        if (unkept or not is_recorded_by_old) and unkept != _list_unkept(old_policy, place):
            return LineComparison("cannot_tell")
    return _describe(judge_sent(line.sent, old_shape, old_policy), judge_sent(line.sent, new_shape, new_policy))


def compare_sent(sent: bytes, shape: CallShape, old: ToolPolicy, new: ToolPolicy) -> LineComparison:
    """Judges arguments that came as these bytes by two policies, and compares the fates."""
    return _describe(judge_sent(sent, shape, old), judge_sent(sent, shape, new))


# tool, path, code, before, after
Place = tuple[str, str, str, str, str]


@dataclass(slots=True)
class ComparisonCounts:
    """The numbers of calls by kind of change and by place, and for each place the first line that changes there."""

    counts: Counter[str] = field(default_factory=Counter)
    places: Counter[Place] = field(default_factory=Counter)
    first: dict[Place, int] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """All calls compared."""
        return self.counts.total()

    def add(self, number: int, tool: str, found: LineComparison) -> None:
        """Counts one call of line `number`, once at each of its places."""
        self.counts[found.change] += 1
        for code, path in found.places:
            place = (tool, path, code, found.before, found.after)
            self.places[place] += 1
            self.first.setdefault(place, number)

    def merge(self, other: ComparisonCounts) -> None:
        """Adds the counts of other lines."""
        self.counts.update(other.counts)
        self.places.update(other.places)
        for place, number in other.first.items():
            self.first[place] = min(number, self.first.get(place, number))

    def show(self, most: int) -> dict[str, JsonValue]:
        """Everything counted as a JSON value, with the `most` places at which the most calls change."""
        shown: dict[str, JsonValue] = {"calls": self.calls, **{kind: self.counts[kind] for kind in LINE_CHANGES}}
        shown["changes"] = [
            {"tool": tool, "path": path, "code": code, "before": before, "after": after, "calls": number,
             "line": self.first[tool, path, code, before, after]}
            for (tool, path, code, before, after), number in self.places.most_common(most)
        ]  # fmt: skip
        return shown


def _describe(before: Fate, after: Fate) -> LineComparison:
    """The change of a fate, and its places: the new errors of a call that is refused now, the old errors of one that is
    forwarded now, else the repairs that only one of the two has."""
    change = compare_fates(before, after)
    if change == "same":
        return LineComparison(change)
    first, second = (set(fate.errors or fate.repairs) for fate in (before, after))
    if after.forwarded and before.forwarded:
        places = first ^ second or first
    elif after.forwarded:
        places = first
    else:
        places = set(after.errors) - set(before.errors) or first - second or second
    words = ["forward" if fate.forwarded else "refuse" for fate in (before, after)]
    return LineComparison(change, tuple(sorted(places)) or ((after.code or before.code, ""),), *words)


def _list_unkept(policy: ToolPolicy, path: Pointer) -> list[dict[str, JsonValue]]:
    """The keywords of a schema at a place that a stand-in may break although its text satisfies them."""
    if policy.check is None:
        return []
    steps = tuple(int(step) if isinstance(step, str) and step.isdecimal() else step for step in path)
    nodes = nodes_at(policy.check, steps)
    found = [{key: item for key, item in node.keywords.items() if key in _UNKEPT or _is_no_text(key, item)}
             for node in nodes]  # fmt: skip
    return [each for each in found if each]


def _is_no_text(keyword: str, item: JsonValue) -> bool:
    """Whether a keyword asks for a type other than text. A repair may convert a text to it (`"48.85"`), but not the
    stand-in of that text, whose digits and letters are replaced."""
    return keyword == "type" and item != "string" and not (isinstance(item, list) and "string" in item)

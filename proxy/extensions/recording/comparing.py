"""Compares the verdicts of two configs on recorded calls: `compare_line` judges one line by both, `compare_sent` judges
arguments by two policies, and `ComparisonCounts` adds up the changes.

A substitute keeps only some properties of the text that it replaces. A line is `cannot_tell` if the new schema checks
another property at that place (enum, pattern, format ...). It is not if the old schema has the same check and is the
one of the recording.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from proxy.core.contract.policy import ToolPolicy
from proxy.core.display.preview import MASK
from proxy.core.json.jsontext import dumps, format_pointer, parse, parse_pointer
from proxy.core.model.value_class import value_class
from proxy.core.model.values import Decision, Forward, JsonProblem, JsonValue, Pointer
from proxy.core.rules.facts import nodes_at
from proxy.core.schema.dialects import map_subschemas, normalise, respell_bounds
from proxy.core.schema.drafts import SchemaError
from proxy.extensions.recording.line import (
    CHANGES,
    Change,
    Fate,
    RecordedLine,
    compare_fates,
    decide_sent,
    explain_refusal,
    judge_sent,
)
from proxy.extensions.recording.recorder import RecordConfig, find_record, read_last_lines
from proxy.plugin import CallShape, compile_check, write_feedback
from proxy.routing import Route
from proxy.server.admin.api import list_current_tools
from proxy.server.admin.page import ConsoleData, Page, PageRequest, make_json_page, refuse_question
from proxy.telemetry.ring import read_value

if TYPE_CHECKING:
    from proxy.plugin import Serving

# Keywords about properties of a text that its substitute does not keep.
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
    """Returns the change of a fate, and its places: the new errors of a call that is refused now, or the old errors of
    one that is forwarded now. Otherwise they are the repairs that only one of the two has."""
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
    """Returns the keywords of a schema at a place that a substitute may break although its text satisfies them."""
    if policy.check is None:
        return []
    steps = tuple(int(step) if isinstance(step, str) and step.isdecimal() else step for step in path)
    nodes = nodes_at(policy.check, steps)
    found = [{key: item for key, item in node.keywords.items() if key in _UNKEPT or _is_no_text(key, item)}
             for node in nodes]  # fmt: skip
    return [each for each in found if each]


def _is_no_text(keyword: str, item: JsonValue) -> bool:
    """Returns whether a keyword asks for a type other than text. A repair may convert a text to it (`"48.85"`), but not
    the substitute of that text, whose digits and letters are replaced."""
    return keyword == "type" and item != "string" and not (isinstance(item, list) and "string" in item)


# --- `/-/trial` -------------------------------------------------------------------------------------------------------
# `/-/trial`: judges arguments, or earlier calls of a tool, under an edited schema. Nothing is sent to a tool.
#
# The schema is compiled in a thread. Only one comparison runs at a time, over at most 500 kept or recorded calls. It
# judges one call in each turn of the event loop, so that a client's call waits for at most one of them.

MOST_CALLS: Final = 500
LONGEST_SCHEMA: Final = 256 * 1024
_NO_VALUES: Final = (
    "kept calls have no arguments: say `admin: {values: full}` (with a token), or compare over recorded calls"
)
_NO_RECORD: Final = "no call is recorded: say `record: {file: ...}` in the config (docs/recording.md)"
# The most changed places that a comparison shows.
_FEW: Final = 50
_MARKS: Final = (MASK, "...")


async def make_comparison_page(serving: Serving, question: PageRequest) -> Page:
    """Shows the verdicts on arguments (`text`), or on earlier calls (`over`), under an edited `schema`."""
    body, data = question.body, serving.console
    route, tool = str(body.get("route", "")), str(body.get("tool", ""))
    policy = list_current_tools(serving).get((route, tool)) or _find_learned(serving, route, tool)
    if data is None or policy is None:
        return refuse_question(f"no tool {tool[:128]!r} is served on the route {route[:128]!r}", 404)
    binding = serving.handler.snapshot.bindings[route]
    async with serving.comparing:
        return await compare_schema(data, find_record(serving.config), binding.route, policy, question)


def _find_learned(serving: Serving, route: str, tool: str) -> ToolPolicy | None:
    """A tool that the upstream of a route lists."""
    binding = serving.handler.snapshot.bindings.get(route)
    if binding is None or binding.route.learn is None:
        return None
    return binding.catalogues.get_latest(binding.route.learn).get(tool)


async def compare_schema(
    data: ConsoleData, record: RecordConfig | None, route: Route, policy: ToolPolicy, question: PageRequest
) -> Page:
    """Answers `/-/trial`: judges the arguments in `text` or `body`, or compares calls (`over` is kept or recorded)."""
    body, edited = question.body, policy
    if "schema" in body:
        made = await edit_policy(policy, body["schema"])
        if isinstance(made, str):
            return refuse_question(made)
        edited = made
    if "over" not in body:
        sent = str(body["text"]).encode("utf-8", "surrogatepass") if "text" in body else dumps(body.get("body", {}))
        return make_json_page(show_decision(decide_sent(sent, route.shape, edited), edited))
    if body["over"] not in ("kept", "recorded"):
        return refuse_question("`over` is kept or recorded")
    if question.role != "operator":
        return refuse_question("a reader may not see values, so only the operator's token may compare calls", 403)
    if body["over"] == "kept":
        found = await compare_kept(data, route, policy, edited)
    else:
        found = await compare_recorded(record, route, policy, edited)
    return refuse_question(found) if isinstance(found, str) else make_json_page(found.show(_FEW))


def show_decision(decision: Decision, policy: ToolPolicy) -> dict[str, JsonValue]:
    """Returns a decision as JSON: the arguments that would be sent, or the text that the model would read."""
    if isinstance(decision, Forward):
        checked = decision.checked
        value = parse(checked.arguments)
        return {
            "decision": "forward",
            "repairs": [{"rule": each.rule, "path": format_pointer(each.path)} for each in checked.repairs],
            "errors": [],
            "arguments": checked.arguments.decode("utf-8", "replace") if isinstance(value, JsonProblem) else value,
        }
    failure = decision.failure
    return {
        "decision": "refuse",
        "code": failure.code.name,
        "repairs": [],
        "errors": [
            {"path": format_pointer(each.path), "code": each.code.name, "message": each.message}
            for each in failure.violations
        ],
        "content": write_feedback(explain_refusal(failure, policy)),
    }


async def edit_policy(policy: ToolPolicy, schema: JsonValue) -> ToolPolicy | str:
    """Returns the policy with another schema, or a text that says why the schema cannot be used.

    `schema` is a JSON value, or a string that holds JSON.
    """
    value = schema
    if isinstance(schema, str):
        if len(schema) > LONGEST_SCHEMA:
            return f"a schema here has at most {LONGEST_SCHEMA >> 10} KiB"
        value = parse(schema.encode("utf-8", "surrogatepass"))
        if isinstance(value, JsonProblem):
            return f"{value.line}:{value.column} the schema is not JSON: {value.reason}"
    try:
        return await asyncio.to_thread(_compile, policy, value)
    except SchemaError as error:
        return f"{format_pointer(error.path) or 'the schema'}: {error.message}"


def _compile(policy: ToolPolicy, schema: JsonValue) -> ToolPolicy:
    check = compile_check(rewrite_numeric_bounds(normalise(schema)[0]))
    return replace(policy, check=check, schema_id="edited", fingerprint=f"{policy.fingerprint} edited")


def rewrite_numeric_bounds(schema: JsonValue) -> JsonValue:
    """A copy with draft 4's `exclusiveMinimum: true` beside `minimum` in the spelling of the later drafts.

    This serves schemas that the operator cannot edit (learned from a server, replayed from a log); a schema in a file
    is refused with its remedy instead. Draft-4 schemas stay as they are.
    """
    if not isinstance(schema, dict) or "draft-04" in str(schema.get("$schema", "")):
        return schema
    made = map_subschemas(schema, lambda _, child: rewrite_numeric_bounds(child))
    respell_bounds(made)
    return made


async def compare_kept(
    data: ConsoleData, route: Route, policy: ToolPolicy, edited: ToolPolicy
) -> ComparisonCounts | str:
    """Counts the changed fates of a tool's kept calls under the edited policy, or returns why it cannot."""
    if data.recent.values is None:
        return _NO_VALUES
    key, found = (route.name, policy.tool), ComparisonCounts()
    of_tool = [kept for kept in data.recent.newest() if (read_value(kept, "route"), read_value(kept, "tool")) == key]
    for kept in of_tool[:MOST_CALLS]:
        values = data.recent.values.read(kept.seq)
        marks = _MARKS if data.values == "preview" else (MASK,)  # secrets are masked in both
        if values is None or _holds_mark(parse(values[0]), marks):
            compared = LineComparison("cannot_tell")
        else:
            compared = compare_sent(values[0], route.shape, policy, edited)
        found.add(kept.seq, policy.tool, compared)
        await asyncio.sleep(0)  # lets the calls of clients run in between
    return found


async def compare_recorded(
    record: RecordConfig | None, route: Route, policy: ToolPolicy, edited: ToolPolicy
) -> ComparisonCounts | str:
    """Counts the changed fates of a tool's last recorded calls, or returns why it cannot."""
    if record is None:
        return _NO_RECORD
    key = (route.name, policy.tool)
    lines = await asyncio.to_thread(read_last_lines, Path(record.file), *key, MOST_CALLS)
    if not lines:
        return f"no call of this tool is recorded in {Path(record.file).name}"
    old, new = {key: (route.shape, policy)}, {key: (route.shape, edited)}
    found = ComparisonCounts()
    for number, line in enumerate(lines, 1):
        found.add(number, policy.tool, compare_line(line, old, new))
        await asyncio.sleep(0)
    return found


def _holds_mark(value: JsonValue, marks: Iterable[str]) -> bool:
    """Returns whether a part of a kept value may be masked or cut. The judgement of such a value is not reliable."""
    text = dumps(value).decode("utf-8", "replace")
    return any(mark in text for mark in marks)

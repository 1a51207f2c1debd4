"""The console's advice over the collected calls. A planted mistake is named with its place, and each proposed change of
a schema lets at least as many calls pass as it says.

`wrong` counts a planted mistake that is not named, and a change that lets fewer calls pass than it says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from proxy.adapters.base import CallShape
from proxy.call_record import CallRecord
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import Conversation, Document, Reject, Rung, ToolCall
from proxy.extensions.console.core.improvements import Improvement, list_improvements
from proxy.extensions.console.core.repair_advice import ToolMistakes
from proxy.extensions.console.mistake_counts import MistakeCounts
from proxy.extensions.recording.line import decide_sent, judge_sent
from tests.corpora.calls import check_of, rows

Found = Counter[str]
SHAPE: Final = CallShape(tool="t")
# A mistake of one collected call is repeated as often as a rule wants to see it.
TIMES: Final = 10


def policy_of(schema: Any, rules: frozenset[str] = frozenset()) -> ToolPolicy:
    """The policy of a tool with this schema and these repair rules."""
    return ToolPolicy("t", check_of(schema), "f", repair=RepairPolicy(rules))


def count_mistakes(schema: Any, calls: Sequence[bytes], rules: frozenset[str] = frozenset()) -> ToolMistakes:
    """The counts of a tool to which these calls came, each of another conversation."""
    counts, policy = MistakeCounts(lambda: 0.0, values=True), policy_of(schema, rules)
    for number, sent in enumerate(calls):
        decision = decide_sent(sent, SHAPE, policy)
        call = ToolCall("t", Document(sent, parse(sent)), "", Conversation(str(number), Rung.HEADER))
        record = CallRecord("", "r", tool="t", call_id="c", outcome="delivered", call=call, policy=policy)
        if isinstance(decision, Reject):
            record.outcome, record.violations = "refused", decision.failure.violations
        else:
            record.repairs, record.checked = decision.checked.repairs, decision.checked
        counts.count_call(record)
    return counts.mistakes_of("r", "t", len(calls), "enforce")


def find_untrue(schema: Any, calls: Sequence[bytes], found: Sequence[Improvement]) -> list[Improvement]:
    """Returns those proposed changes that let fewer calls pass than they say."""
    before = _count_passing(schema, calls)
    changed = [each for each in found if each.schema is not None]
    return [each for each in changed if _count_passing(each.schema, calls) < before + each.passes]


def _count_passing(schema: Any, calls: Sequence[bytes]) -> int:
    policy = policy_of(schema)
    return sum(judge_sent(sent, SHAPE, policy).forwarded for sent in calls)


# --- planted mistakes -------------------------------------------------------------------------------------------------
Arguments = dict[str, Any]
Plant = Callable[[Any, Arguments, str], tuple[Any, Arguments]]


def _with_place(schema: Any, key: str, **keywords: Any) -> Any:
    place = {name: item for name, item in schema["properties"][key].items() if name not in ("enum", "format")}
    return {**schema, "properties": {**schema["properties"], key: {**place, **keywords}}}


def _miss_format(schema: Any, arguments: Arguments, key: str) -> tuple[Any, Arguments]:
    return _with_place(schema, key, format="date"), {**arguments, key: "01.12.2026"}


def _invent_key(schema: Any, arguments: Arguments, key: str) -> tuple[Any, Arguments]:
    return schema, {"zz_invented" if name == key else name: item for name, item in arguments.items()}


def _try_value(schema: Any, arguments: Arguments, key: str) -> tuple[Any, Arguments]:
    return _with_place(schema, key, enum=["qqq one", "qqq two"]), {**arguments, key: "other entirely"}


# The rule that has to find it -> what plants a mistake at a required text of a right call.
PLANTED: Final[dict[str, Plant]] = {
    "format_missed": _miss_format,
    "key_invented": _invent_key,
    "value_tried": _try_value,
}


def list_plantable(data: Path) -> Iterator[tuple[Any, Arguments, str]]:
    """Collected right calls, with their schema and a required text of theirs."""
    for row in rows(data / "bfcl/calls.jsonl.gz"):
        schema, arguments = row["json_schema"], row["arguments"]
        properties = schema.get("properties", {})
        required = (key for key in schema.get("required", ()) if properties.get(key, {}).get("type") == "string")
        key = next(required, None)
        if key is not None and isinstance(arguments, dict) and isinstance(arguments.get(key), str):
            yield schema, arguments, key


def judge_planted(rule: str, schema: Any, arguments: Arguments, key: str) -> str:
    """Returns whether a planted mistake is named at its place with a change that lets its calls pass (`right`)."""
    planted, wrong = PLANTED[rule](schema, arguments, key)
    calls = [dumps(wrong)] * TIMES
    if not all(isinstance(decide_sent(sent, SHAPE, policy_of(planted)), Reject) for sent in calls[:1]):
        return "repaired"
    found = list_improvements(check_of(planted), count_mistakes(planted, calls))
    named = [each for each in found if each.rule == rule and each.place == f"/{key}"]
    if find_untrue(planted, calls, found) or not named:
        return "wrong"
    return "right" if named[0].passes > TIMES // 2 else "named, nothing passes alone"


def planted(data: Path) -> Iterator[tuple[str, Found]]:
    """Mistakes planted into the right calls of a benchmark."""
    usable = list(list_plantable(data))
    for rule in PLANTED:
        found = Found({"right": 0, "wrong": 0})
        found.update(judge_planted(rule, *each) for each in usable)
        yield f"bfcl, advice by {rule}", found


def collected(data: Path) -> Iterator[tuple[str, Found]]:
    """The wrong calls that models made, by tool: each proposed change is true, and each refused call has its place
    among the mistakes of its tool."""
    tools: dict[str, list[bytes]] = {}
    for row in rows(data / "model_calls/invalid_calls.jsonl.gz"):
        raw = row["raw_arguments"]
        sent = raw.encode() if isinstance(raw, str) else dumps(raw)
        if isinstance(parse(sent), dict):
            tools.setdefault(json.dumps(row["json_schema"]), []).extend([sent] * TIMES)
    found = Found({"tools": len(tools), "right": 0, "wrong": 0})
    for text, calls in tools.items():
        schema = json.loads(text)
        seen = count_mistakes(schema, calls)
        changes = list_improvements(check_of(schema), seen)
        untrue = find_untrue(schema, calls, changes)
        refused = len(calls) - _count_passing(schema, calls)
        found["wrong"] += len(untrue) + (refused > 0 and all(each.repaired for each in seen.mistakes))
        found["right"] += sum(each.schema is not None for each in changes) - len(untrue)
        found["advice without a change"] += sum(each.schema is None for each in changes)
    yield "model_calls, advice", found


RUNS: Final = (planted, collected)

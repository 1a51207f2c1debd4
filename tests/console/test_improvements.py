"""What the Tool page says to change: mistakes planted into collected calls are named, and each change that it proposes
lets at least as many calls pass as it says."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from proxy.adapters.base import CallShape
from proxy.core.contract.policy import ToolPolicy
from proxy.core.fates import Fate
from proxy.core.improvement.improvements import IMPROVEMENT_RULES, SAFE_AFTER, Improvement, list_improvements
from proxy.core.improvement.tool_mistakes import CountedMistake, ToolMistakes
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import Conversation, Document, Reject, Rung, ToolCall
from proxy.interfaces import CallRecord
from proxy.recording.judging import decide_sent, judge_sent
from proxy.telemetry.recent.mistake_counts import MistakeCounts
from tests.corpora.calls import check_of

DATA: Final = Path(__file__).parents[1] / "data"
SHAPE: Final = CallShape(tool="t")
# Rare mistakes of one tool are repeated as often as a rule wants to see them.
TIMES: Final = 10


def rows(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def policy_of(schema: Any) -> ToolPolicy:
    return ToolPolicy("t", check_of(schema), "f")


def count(schema: Any, calls: list[bytes]) -> ToolMistakes:
    """What is counted of a tool to which these calls came, each of another conversation."""
    counts, policy = MistakeCounts(lambda: 0.0, values=True), policy_of(schema)
    for number, sent in enumerate(calls):
        decision = decide_sent(sent, SHAPE, policy)
        call = ToolCall("t", Document(sent, parse(sent)), "", Conversation(str(number), Rung.HEADER))
        record = CallRecord("", "r", tool="t", call_id="c", outcome="delivered", call=call, policy=policy)
        if isinstance(decision, Reject):
            record.outcome, record.violations = "refused", decision.failure.violations
        else:
            record.repairs = decision.checked.repairs
        counts.finished(record)
    return counts.mistakes_of("r", "t", len(calls), "enforce")


def passing(schema: Any, calls: list[bytes]) -> int:
    policy = policy_of(schema)
    fates: list[Fate] = [judge_sent(sent, SHAPE, policy) for sent in calls]
    return sum(fate.forwarded for fate in fates)


def assert_true(schema: Any, calls: list[bytes], found: list[Improvement]) -> None:
    before = passing(schema, calls)
    for each in found:
        if each.schema is not None:
            assert passing(each.schema, calls) >= before + each.passes, (each.rule, each.text)


@pytest.fixture(scope="module")
def valid() -> list[dict[str, Any]]:
    """Collected calls that are right, whose first required parameter is a plain text."""
    found = []
    for row in itertools.islice(rows("bfcl/calls.jsonl.gz"), 400):
        schema, arguments = row["json_schema"], row["arguments"]
        required = [key for key in schema.get("required", ()) if schema["properties"][key].get("type") == "string"]
        if required and isinstance(arguments, dict) and isinstance(arguments.get(required[0]), str):
            found.append({"schema": schema, "arguments": arguments, "key": required[0]})
    assert len(found) >= 20
    return found[:20]


Plant = Callable[[dict[str, Any], dict[str, Any], str], tuple[dict[str, Any], dict[str, Any]]]


def _format(schema: dict[str, Any], arguments: dict[str, Any], key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    place = {**schema["properties"][key], "format": "date"}
    place.pop("enum", None)
    return {**schema, "properties": {**schema["properties"], key: place}}, {**arguments, key: "01.12.2026"}


def _invented(schema: dict[str, Any], arguments: dict[str, Any], key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return schema, {"zz_invented" if name == key else name: item for name, item in arguments.items()}


def _member(schema: dict[str, Any], arguments: dict[str, Any], key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    place = {**schema["properties"][key], "enum": ["qqq one", "qqq two"]}
    return {**schema, "properties": {**schema["properties"], key: place}}, {**arguments, key: "other entirely"}


PLANTED: Final[dict[str, Plant]] = {"format_missed": _format, "key_invented": _invented, "value_tried": _member}


@pytest.mark.parametrize("rule", PLANTED)
def test_acceptance_10_a_planted_mistake_is_named_and_its_change_lets_the_calls_pass(
    rule: str, valid: list[dict[str, Any]]
) -> None:
    for row in valid:
        schema, arguments = PLANTED[rule](row["schema"], row["arguments"], row["key"])
        calls = [dumps(arguments)] * TIMES
        seen = count(schema, calls)
        found = list_improvements(check_of(schema), seen)
        (change,) = [each for each in found if each.rule == rule]
        assert (f"/{row['key']}", True) == (change.place, change.schema is not None)
        assert TIMES // 2 < change.passes <= TIMES
        assert_true(schema, calls, found)


def test_every_change_proposed_for_collected_wrong_calls_lets_through_what_it_says() -> None:
    proposed = 0
    for row in itertools.islice(rows("model_calls/invalid_calls.jsonl.gz"), 150):
        raw = row["raw_arguments"]
        sent = raw.encode() if isinstance(raw, str) else dumps(raw)
        if not isinstance(parse(sent), dict):
            continue
        calls = [sent] * TIMES
        found = list_improvements(check_of(row["json_schema"]), count(row["json_schema"], calls))
        proposed += sum(each.schema is not None for each in found)
        assert_true(row["json_schema"], calls, found)
    assert proposed >= 5


def test_no_rule_speaks_below_its_least_count() -> None:
    schema = {"properties": {"at": {"type": "string", "format": "date"}}}
    assert [] == list_improvements(check_of(schema), count(schema, [b'{"at": "soon"}'] * 4))


def test_rules_without_a_change_name_the_count_that_they_rest_on() -> None:
    check = check_of({"properties": {"n": {"type": "integer"}}})
    repaired = CountedMistake(("n",), "string_to_integer", repaired=True, calls=40)
    missed = CountedMistake(("n",), "VAL-002", calls=30, retried=20, right=3)
    found = list_improvements(check, ToolMistakes(100, (repaired, missed)))
    assert {"often_repaired": 40, "not_described": 30, "not_understood": 20} == {
        each.rule: each.calls for each in found
    }
    (safe,) = list_improvements(check, ToolMistakes(50, mode="report", since_refusal=SAFE_AFTER))
    assert ("safe_to_enforce", 50) == (safe.rule, safe.calls)
    assert {rule.name for rule in IMPROVEMENT_RULES} >= {each.rule for each in found}

"""What the Tool page says to change: mistakes planted into collected calls are named, and each change that it proposes
lets at least as many calls pass as it says. `make corpora` runs the same over the whole collections."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from proxy.extensions.console.core.improvements import IMPROVEMENT_RULES, SAFE_AFTER, list_improvements
from proxy.extensions.console.core.tool_mistakes import CountedMistake, ToolMistakes
from tests.corpora.calls import check_of
from tests.corpora.run_improvements import PLANTED, collected, count_mistakes, judge_planted, list_plantable

DATA: Final = Path(__file__).parents[2] / "data"
FEW: Final = 20


@pytest.mark.parametrize("rule", PLANTED)
def test_acceptance_10_a_planted_mistake_is_named_and_its_change_lets_the_calls_pass(rule: str) -> None:
    calls = list(islice(list_plantable(DATA), FEW))
    assert ["right"] * FEW == [judge_planted(rule, *call) for call in calls]


@pytest.mark.large
def test_acceptance_10_every_change_proposed_for_collected_wrong_calls_lets_through_what_it_says() -> None:
    ((_, found),) = collected(DATA)
    assert (0, True) == (found["wrong"], found["right"] >= 5)


def test_no_rule_speaks_below_its_least_count() -> None:
    schema = {"properties": {"at": {"type": "string", "format": "date"}}}
    assert [] == list_improvements(check_of(schema), count_mistakes(schema, [b'{"at": "soon"}'] * 4))


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


def test_keys_that_came_under_other_names_are_paired_as_the_refusal_pairs_them_and_renamed_together() -> None:
    number = {"type": "number"}
    schema = {
        "properties": {"lat": number, "lon": number},
        "required": ["lat", "lon"],
        "additionalProperties": False,
    }
    calls = [b'{"latitude": 48.85, "longitude": 2.35}'] * 12
    (change,) = [
        each
        for each in list_improvements(check_of(schema), count_mistakes(schema, calls))
        if each.rule == "key_invented"
    ]
    assert (12, 12) == (change.calls, change.passes)
    assert {
        "properties": {"latitude": number, "longitude": number},
        "required": ["latitude", "longitude"],
        "additionalProperties": False,
    } == change.schema
    assert "`lat` was missing in 12 of them. `longitude` came for `lon`." in change.text


def test_a_rename_that_no_call_would_have_passed_with_says_so() -> None:
    schema = {"properties": {"lat": {"type": "number"}}, "required": ["lat"], "additionalProperties": False}
    found = list_improvements(check_of(schema), count_mistakes(schema, [b'{"latitude": []}'] * 6))
    assert [0] == [each.passes for each in found if each.rule == "key_invented"]

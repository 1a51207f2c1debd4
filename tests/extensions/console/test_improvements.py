"""Advice of the Tool page. Mistakes planted into collected calls are named, and each proposed change lets at least as
many calls pass as it says. `make corpora` runs the same over the whole collections."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from proxy.core.json.jsontext import dumps
from proxy.core.rules.rules import RULES, select_rules
from proxy.extensions.console.core.improvements import IMPROVEMENT_RULES, SAFE_AFTER, list_improvements
from proxy.extensions.console.core.repair_advice import CountedMistake, ToolMistakes, advise
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


HOSTILE: Final = [
    "true",
    "no",
    "y",
    "~",
    "a: b",
    "a #b",
    "- a",
    "{a}",
    '"a',
    "'a'",
    "a\\b",
    "&a",
    "*a",
    "!a",
    "1",
    "é ü",
    "a\u2028b",
    "",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_an_alias_with_any_name_is_valid_yaml(name: str) -> None:
    schema = {"properties": {"lat": {"type": "number"}}, "required": ["lat"], "additionalProperties": False}
    found = list_improvements(check_of(schema), count_mistakes(schema, [dumps({name: 48.85})] * 6))
    lines = [each.config for each in found if each.rule == "key_invented"]
    assert [{"aliases": {name: "lat"}}] * len(lines) == [yaml.safe_load(line) for line in lines]
    assert lines or not name.isprintable()


def test_proposes_no_alias_for_a_name_inside_an_object() -> None:
    inner = {"properties": {"lat": {"type": "number"}}, "required": ["lat"], "additionalProperties": False}
    schema = {"properties": {"at": inner}, "required": ["at"]}
    found = list_improvements(check_of(schema), count_mistakes(schema, [b'{"at": {"latitude": 1}}'] * 6))
    assert [""] == [each.config for each in found if each.rule == "key_invented"]


@pytest.mark.parametrize(
    ("rule", "schema", "names", "advice"),
    [
        ("string_to_number", {"type": "number"}, {}, "takes a number, without quotes or separators."),
        ("enum_case", {"enum": ["EUR", "USD"]}, {}, "exactly as the schema writes them: one of 'EUR', 'USD'."),
        ("key_case", {"type": "number"}, {"N": 30}, "Models write `N`. Name the parameter in the description"),
        ("drop_null_optional", {"type": "number"}, {}, "leave it out if there is no value."),
        ("code_fence", {"type": "number"}, {}, "The schema is not the cause"),
    ],
)
def test_advises_by_the_kind_of_repair(rule: str, schema: Any, names: dict[str, int], advice: str) -> None:
    check = check_of({"properties": {"n": schema}})
    repaired = CountedMistake(("n",), rule, repaired=True, calls=40, names=Counter(names))
    (found,) = list_improvements(check, ToolMistakes(100, (repaired,)))
    assert advice in found.text


def test_every_rule_has_advice() -> None:
    check = check_of({"properties": {"n": {"type": "integer"}}})
    said = {name: advise(check, CountedMistake(("n",), name, repaired=True)) for name in RULES}
    assert [] == [name for name, text in said.items() if text == "Give an example in the description."]


def test_a_key_in_another_style_is_counted_at_its_declared_name() -> None:
    schema = {"properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False}
    (seen,) = count_mistakes(schema, [b'{"Path": "a"}'] * 12, select_rules("standard")).mistakes
    assert (("path",), "key_case", {"Path": 12}) == (seen.place, seen.code, seen.names)


def test_a_rename_that_no_call_would_have_passed_with_says_so() -> None:
    schema = {"properties": {"lat": {"type": "number"}}, "required": ["lat"], "additionalProperties": False}
    found = list_improvements(check_of(schema), count_mistakes(schema, [b'{"latitude": []}'] * 6))
    assert [0] == [each.passes for each in found if each.rule == "key_invented"]

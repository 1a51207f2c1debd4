"""The second judge says what the JSON-Schema-Test-Suite says, or that it cannot tell."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.core.check.validation import compile_check
from proxy.core.json.jsontext import LosslessFloat
from proxy.core.schema.drafts import Draft
from proxy.core.schema.formats import STRICT
from proxy.extensions.second_judge.core.judge import CompiledJudge, judge_value, run_job
from proxy.extensions.second_judge.core.question import Opinion, SecondVerdict, make_question, unpack_opinion
from proxy.extensions.second_judge.core.reference import CannotTellError
from tests.core.test_suite import DIALECTS, MISSED, cases

EXAMPLE = Path(__file__).parents[3] / "config.example.yaml"
D7 = {"$schema": DIALECTS["draft7"]}
# draft -> cases that fastjsonschema decides, cases that jsonschema decides, and cases without a verdict.
TOLD = {
    "draft4": (670, 267, 0),
    "draft6": (904, 366, 0),
    "draft7": (1314, 401, 2),
    "draft2019-09": (1358, 733, 83),
    "draft2020-12": (1387, 763, 73),
}


@pytest.mark.large
@pytest.mark.parametrize("draft", DIALECTS)
def test_it_is_never_wrong_about_a_case_of_the_suite(draft: str) -> None:
    told: Counter[str] = Counter()
    wrong = []
    for kind in ("required", "optional", "format"):
        for case in cases(draft, kind):
            if (draft, case.file, case.description) in MISSED:
                continue
            opinion = judge_value(make_question(case.check.schemas, formats=case.check.formats), case.value)
            told[opinion.judge] += 1
            if (
                opinion.verdict is not SecondVerdict.CANNOT_TELL
                and (opinion.verdict is SecondVerdict.VALID) is not case.valid
            ):
                wrong.append(case)
    assert ([], TOLD[draft]) == (wrong, (told["fastjsonschema"], told["jsonschema"], told[""]))


def opinion(schema: Any, value: Any) -> Opinion:
    return judge_value(make_question(compile_check(schema).schemas, formats=STRICT), value)


@pytest.mark.parametrize("schema", [{}, D7])
@pytest.mark.parametrize(
    ("keywords", "value", "valid"),
    [
        ({"maximum": 9007199254740992}, 9007199254740993, False),
        ({"multipleOf": LosslessFloat(b"0.01")}, LosslessFloat(b"1.10"), True),
        ({"multipleOf": LosslessFloat(b"0.01")}, LosslessFloat(b"1.105"), False),
        ({"minimum": LosslessFloat(b"0.1")}, LosslessFloat(b"0.1"), True),
        ({"type": "integer"}, LosslessFloat(b"1.0"), True),
        ({"enum": [1]}, True, False),
        ({"enum": [LosslessFloat(b"1.0")]}, 1, True),
        ({"pattern": r"^\d$"}, "\u0664", False),
        ({"pattern": "a$"}, "a\n", False),
        ({"format": "date"}, "2026-02-31", False),
        ({"patternProperties": {r"^\p{Lu}": False}}, {"É": 1}, False),
    ],
)
def test_numbers_patterns_and_formats_are_ours(schema: Any, keywords: Any, value: Any, valid: bool) -> None:
    assert (SecondVerdict.VALID if valid else SecondVerdict.INVALID) == opinion({**schema, **keywords}, value).verdict


def test_a_place_is_that_of_the_keyword_and_holds_no_value() -> None:
    found = opinion({"properties": {"a": {"items": {"maximum": 3}}}}, {"a": [1, 4711]})
    assert Opinion(SecondVerdict.INVALID, "fastjsonschema", "/properties/a/items/maximum") == found


@pytest.mark.parametrize(
    "keywords",
    [
        {"properties": {'"]); raise SystemExit #': {}}},
        {"enum": ["{}", "'"]},
        {"enum": [1]},
        {"uniqueItems": True},
        {"multipleOf": 2},
        {"minimum": LosslessFloat(b"0.5")},
        {"patternProperties": {"a": {}}},
        {"$ref": "https://example.org/x"},
    ],
)
def test_fastjsonschema_gets_no_schema_that_it_reads_otherwise(keywords: Any) -> None:
    with pytest.raises(CannotTellError):
        CompiledJudge(keywords, Draft.D7, formats=STRICT)


@pytest.mark.parametrize(
    "keywords",
    [
        {"prefixItems": [{}]},
        {"items": [{}]},
        {"dependencies": {"a": ["b"]}},
        {"dependentRequired": {"a": ["b"]}},
        {"unevaluatedProperties": False},
        {"minContains": 2, "contains": {}},
        {"additionalItems": False},
        {"$defs": {"a": {}}, "definitions": {"b": {}}},
        {"$anchor": "a"},
        {"$dynamicRef": "#a"},
    ],
)
@pytest.mark.parametrize("draft", [Draft.D2019, Draft.D2020])
def test_fastjsonschema_gets_no_newer_schema_with_a_keyword_of_another_meaning(keywords: Any, draft: Draft) -> None:
    with pytest.raises(CannotTellError):
        CompiledJudge({"properties": {"a": keywords}}, draft, formats=STRICT)


@pytest.mark.parametrize(("value", "valid"), [({"a": "x"}, True), ({"a": "xyz"}, False), ({"a": 1}, False)])
def test_keywords_next_to_a_reference_count_since_2019(value: Any, valid: bool) -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/text", "maxLength": 2}}, "$defs": {"text": {"type": "string"}}}
    assert (SecondVerdict.VALID if valid else SecondVerdict.INVALID, "fastjsonschema") == (
        opinion(schema, value).verdict, opinion(schema, value).judge,
    )  # fmt: skip


def test_the_bundled_schemas_are_judged_by_fastjsonschema_and_those_of_several_documents_by_jsonschema() -> None:
    judged: dict[str, str] = {}
    for route in load(EXAMPLE, {}).config.routes:
        for name, tool in route.tools.items():
            if tool.schema is not None:
                check = tool.schema.check
                judged[name] = judge_value(make_question(check.schemas, formats=check.formats), {}).judge
    assert {"fastjsonschema": {"weather", "currency", "read_file", "convert"},
            "jsonschema": {"Add", "Subtract", "Multiply", "Divide"}} == {
        judge: {name for name, by in judged.items() if by == judge} for judge in set(judged.values())
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (
            {"patternProperties": {"a": {}}, "unevaluatedProperties": False},
            {},
            "unevaluatedProperties beside patternProperties",
        ),
        ({"dependencies": {"a": ["b"]}}, {}, "dependencies"),
        ({"multipleOf": 3}, 10**20_000, "multipleOf with a number of too many digits"),
        ({"pattern": r"^(a|aa)+\1b$"}, "a" * 100, "SearchGivenUp"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#"}}}, 1, "RecursionError"),
    ],
    ids=["keywords", "draft", "digits", "pattern", "recursion"],
)
def test_says_why_it_cannot_tell(schema: Any, value: Any, reason: str) -> None:
    text = b'{"base":"json-schema:///schema","documents":{},"formats":true,"schema":%s}'

    question = text % json.dumps(schema).encode()
    assert Opinion(SecondVerdict.CANNOT_TELL, reason=reason) == judge_value(question, value)


def test_a_job_is_bytes_and_so_is_its_answer() -> None:
    question = make_question(compile_check({"type": "integer"}).schemas, formats=STRICT)
    answers = [unpack_opinion(run_job(value, question)) for value in (b"1", b'"x"', b"{")]
    assert [
        Opinion(SecondVerdict.VALID, "fastjsonschema"),
        Opinion(SecondVerdict.INVALID, "fastjsonschema", "/type"),
        Opinion(SecondVerdict.CANNOT_TELL, reason="the value is not JSON text"),
    ] == answers

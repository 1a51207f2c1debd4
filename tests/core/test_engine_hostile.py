"""Hostile values and schemas: work stays bounded, depth is safe, a pattern at its limit refuses.

Each schema here makes a plain recursive validator do 2^60 steps; the test ends or it does not. Nothing is timed.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from proxy.core.check.validation import BrokenKeyword, SchemaError, compile_check
from proxy.core.json.jsontext import LosslessFloat, parse

HERE = {"$ref": "#"}
DEEP = 62


def nested(leaf: Any, levels: int = DEEP) -> Any:
    for _ in range(levels):
        leaf = {"a": leaf}
    return leaf


def listed(leaf: Any, levels: int = DEEP) -> Any:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


def told(broken: list[BrokenKeyword] | tuple[BrokenKeyword, ...]) -> int:
    return sum(1 + sum(told(branch) for branch in entry.branches) for entry in broken)


def down(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": HERE}, "required": ["a"], **more}


def chain(make: Any, length: int = DEEP) -> dict[str, Any]:
    """A schema without a cycle whose nodes each lead to the next one twice."""
    defs = {f"n{index}": make({"$ref": f"#/$defs/n{index + 1}"}) for index in range(length)}
    return {"$ref": "#/$defs/n0", "$defs": {**defs, f"n{length}": {"type": "string"}}}


FORKS: dict[str, tuple[dict[str, Any], Any, bool]] = {
    "anyOf, refused": ({"anyOf": [down(), down(minProperties=2), {"type": "string"}]}, nested(1), False),
    "anyOf, accepted": ({"anyOf": [down(), down(minProperties=2), {"type": "string"}]}, nested("x"), True),
    "oneOf": ({"oneOf": [down(), down(minProperties=2), {"type": "string"}]}, nested("x"), True),
    "allOf": (
        {"type": ["object", "string"], "allOf": [{"properties": {"a": HERE}}, {"additionalProperties": HERE}]},
        nested(1),
        False,
    ),
    "items": (
        {"anyOf": [{"type": "array", "items": HERE}, {"type": "array", "items": HERE, "minItems": 1}]},
        listed(1),
        False,
    ),
    "contains": (
        {"anyOf": [{"type": "array", "contains": HERE}, {"type": "array", "contains": HERE, "minItems": 2}]},
        listed(1),
        False,
    ),
    "if": ({"if": down(), "then": {"properties": {"a": HERE}}, "else": {"type": "string"}}, nested("x"), True),
    "not": ({"type": ["object", "string"], "not": {"anyOf": [down(), {"not": down()}]}}, nested("x"), False),
    "dependentSchemas": (
        {
            "type": ["object", "string"],
            "dependentSchemas": {"a": {"properties": {"a": HERE}}},
            "properties": {"a": HERE},
        },
        nested(1),
        False,
    ),
    "unevaluatedProperties": (
        {"anyOf": [down(), down(minProperties=1), {"type": "string"}], "unevaluatedProperties": False},
        nested("x"),
        True,
    ),
    "a chain of anyOf": (
        chain(
            lambda following: {"anyOf": [{"properties": {"a": following}}, {"properties": {"a": following, "b": {}}}]}
        ),
        nested(1),
        False,
    ),
    "a chain of allOf": (chain(lambda following: {"allOf": [following, following]}), 1, False),
}


@pytest.mark.parametrize("name", FORKS)
def test_two_ways_to_one_value_cost_no_more_than_one(name: str) -> None:
    schema, value, valid = FORKS[name]
    check = compile_check(schema)
    assert valid is check.accepts(value)
    assert (valid, True) == (check.list_broken(value) == [], told(check.list_broken(value)) < 5000)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf", "items", "not", "properties"])
@pytest.mark.parametrize("levels", [50, 120, 190, 5000])
def test_a_deep_schema_validates_or_is_rejected_when_it_is_compiled(keyword: str, levels: int) -> None:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {keyword: [schema] if keyword.endswith("Of") else {"a": schema} if keyword == "properties" else schema}
    try:
        check = compile_check(schema)
    except SchemaError:
        assert levels == 5000
        return
    for value in (1, "x", nested(1), listed(1)):
        assert check.accepts(value) is (check.list_broken(value) == [])


def test_the_branches_of_unions_are_reported_up_to_a_bound_and_every_broken_union_is_named() -> None:
    branch = {"required": [f"r{number}" for number in range(10)]}
    broken = compile_check({"items": {"anyOf": [branch, branch]}}).list_broken([{}] * 200)

    assert 200 == len(broken)
    assert 50 == sum(1 for union in broken if union.branches)  # twenty each: 1,000 in all
    assert ((),) == tuple({union.branches for union in broken[50:]})


def test_branches_that_a_discriminator_names_are_reported_up_to_the_same_bound() -> None:
    def branch(kind: str) -> dict[str, Any]:
        missing = [f"r{number}" for number in range(20)]
        return {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind", *missing]}

    check = compile_check({"items": {"anyOf": [branch("a"), branch("b")]}})
    broken = check.list_broken([{"kind": "a"} for _ in range(200)])

    assert 200 == len(broken)
    assert [(20, 1)] * 50 == [tuple(map(len, union.branches)) for union in broken[:50]]
    assert ((),) == tuple({union.branches for union in broken[50:]})


def test_a_remembered_report_can_compare_values() -> None:
    schema = {"enum": [{"b": 1}], "anyOf": [down(), down(minProperties=2), {"minItems": 1}]}
    assert ["enum"] == [entry.keyword for entry in compile_check(schema).list_broken({"c": 1})]


def test_many_frames_for_each_level_do_not_end_in_a_recursion_error() -> None:
    defs: dict[str, Any] = {
        f"n{index}": {"anyOf": [{"$ref": f"#/$defs/n{index + 1}"}, {"enum": [index], "type": "boolean"}]}
        for index in range(40)
    }
    again = {"$ref": "#/$defs/n0"}
    defs["n40"] = {
        "anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": again}, down(minProperties=2)]
    }
    check = compile_check({**again, "$defs": defs})
    limit = sys.getrecursionlimit()
    assert (True, False) == (check.accepts(nested("x")), check.accepts(nested(1)))
    assert ([], ["anyOf"]) == (
        check.list_broken(nested("x")),
        [entry.keyword for entry in check.list_broken(nested(1))],
    )
    assert limit == sys.getrecursionlimit()


@pytest.mark.parametrize("schema", [HERE, {"allOf": [{"anyOf": [HERE]}]}, {"if": HERE, "then": {}}])
def test_a_schema_that_never_goes_down_into_the_value_does_not_compile(schema: Any) -> None:
    with pytest.raises(SchemaError, match="never ends"):
        compile_check(schema)


# (a|aa)+ followed by what it matched: no linear matcher takes it, and it backtracks exponentially.
HARD = r"^(a|aa)+\1b$"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"pattern": HARD}}},
        {"properties": {"x": {"not": {"pattern": HARD}}}},
        {"properties": {"x": {"anyOf": [{"pattern": HARD}, {"type": "string"}]}}},
        {"properties": {"x": {"if": {"pattern": HARD}, "else": {"type": "string"}}}},
    ],
)
def test_rejects_a_value_at_any_depth_when_a_pattern_reaches_its_limit(schema: Any) -> None:
    check = compile_check(schema)
    value = {"x": "a" * 100}
    assert (False, False) == (check.linear, check.accepts(value))
    assert [("pattern", ("x",), HARD)] == [
        (entry.keyword, entry.path, entry.node.get("pattern")) for entry in check.list_broken(value)
    ]


def test_a_hard_pattern_still_decides_the_texts_it_can() -> None:
    check = compile_check({"not": {"pattern": HARD}})
    assert (False, True) == (check.accepts("aab"), check.accepts("c"))


def test_huge_exponents_take_no_time() -> None:
    tiny, vast = parse(b"1e-999999999"), parse(b"0." + b"1" * 1_000_000)
    assert [False, False, True] == [
        compile_check({"multipleOf": 0.01}).accepts(value) for value in (tiny, vast, parse(b"1e308"))
    ]
    assert [True, False] == [
        compile_check({"exclusiveMinimum": 0}).accepts(LosslessFloat(text))
        for text in (b"1e-99999999999999999999", b"-1e-99999999999999999999")
    ]
    assert [False, True] == [
        compile_check({"type": "integer"}).accepts(parse(text)) for text in (b"1e-3000000", b"100e-2")
    ]
    assert compile_check({"uniqueItems": True, "enum": [[1, 2]]}).list_broken([tiny, 10**4000, 0]) != []

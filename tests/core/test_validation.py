"""The seam: what compiling refuses, what a report holds, and what a check can tell about itself."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from proxy.core.check.validation import BrokenKeyword, Check, SchemaError, compile_check
from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


def told(check: Check, value: Any) -> list[tuple[str, tuple[str | int, ...], Any]]:
    return [(entry.keyword, entry.path, entry.detail) for entry in check.list_broken(value)]


def test_a_report_names_every_broken_keyword_in_the_order_of_the_schema() -> None:
    expected = [
        ("type", ("name",), None),
        ("minimum", ("age",), None),
        ("additionalProperties", (), ["x", "y"]),
    ]
    assert expected == told(compile_check(PERSON), {"y": 1, "age": -1, "x": 2, "name": 3}) or expected == told(
        compile_check(PERSON), {"x": 1, "age": -1, "y": 2, "name": 3}
    )


def test_each_missing_property_is_one_broken_keyword() -> None:
    expected = [("required", (), "a"), ("required", (), "b")]
    assert expected == told(compile_check({"required": ["a", "b"]}), {})


def test_the_node_of_a_broken_keyword_is_the_one_that_holds_it() -> None:
    check = compile_check({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "null"}}})
    (broken,) = check.list_broken({"a": 1})
    assert broken == BrokenKeyword("type", ("a",), check.root.properties["a"].reference or check.root)


def test_a_check_that_rests_judges_and_reports_as_before() -> None:
    schema = {
        "properties": {"a": {"$ref": "other#/$defs/n"}, "b": {"type": "string", "pattern": "^x+$"}, "c": {"$ref": "#"}},
        "required": ["a"],
    }
    documents = {"file:///other": {"$defs": {"n": {"type": "integer", "minimum": 3}}}}
    resting, awake = (compile_check(schema, documents=documents, base="file:///this") for _ in range(2))
    before = resting.root
    resting.rest()
    assert resting.root is not before
    resting.rest()
    for value in ({"a": 3, "b": "xx"}, {"a": 1, "b": "y", "c": {"a": "z"}}, {}):
        assert (awake.accepts(value), told(awake, value)) == (resting.accepts(value), told(resting, value))


def test_a_check_with_code_keeps_its_nodes() -> None:
    check = compile_check(PERSON)
    root = check.root
    assert check.accepts({"name": "Ada"})
    check.rest()
    assert check.root is root


def test_a_union_tells_what_each_branch_misses() -> None:
    check = compile_check({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]})
    (broken,) = check.list_broken(3)
    assert [["type"], ["minimum"]] == [[entry.keyword for entry in branch] for branch in broken.branches]


def test_a_union_with_a_discriminator_tells_the_named_branch_and_the_key_of_the_others() -> None:
    def branch(kind: str) -> Any:
        return {
            "type": "object",
            "required": ["kind", "n"],
            "properties": {"kind": {"const": kind}, "n": {"type": kind}},
        }

    check = compile_check({"oneOf": [branch("string"), branch("integer"), branch("null")]})
    (broken,) = check.list_broken({"kind": "integer", "n": "x"})
    expected = [[("const", ("kind",))], [("type", ("n",))], [("const", ("kind",))]]
    assert expected == [[(entry.keyword, entry.path) for entry in branch] for branch in broken.branches]
    assert [True, False, False] == [
        check.accepts(value) for value in ({"kind": "null", "n": None}, {"kind": ["null"], "n": None}, {"n": None})
    ]


def test_a_key_that_is_refused_is_the_detail_of_property_names() -> None:
    check = compile_check({"propertyNames": {"maxLength": 2}})
    assert [("propertyNames", (), "abc")] == told(check, {"abc": 1, "a": 2})


def test_a_place_that_allows_nothing_is_reported_as_false() -> None:
    check = compile_check({"properties": {"a": False}})
    assert [("false", ("a",), None)] == told(check, {"a": 1})


def test_lists_excess_items_by_their_indexes() -> None:
    check = compile_check({"prefixItems": [{}], "items": False})
    assert [("items", (), [1, 2])] == told(check, [0, 0, 0])


@pytest.mark.parametrize("value", [parse(b"3"), parse(b"3.0"), parse(b"30e-1"), 3.0, Decimal("3.00")])
def test_a_number_counts_by_its_value_in_every_spelling(value: Any) -> None:
    schema = {"type": "integer", "const": 3, "multipleOf": 1.5, "minimum": 3, "maximum": 3}
    assert [] == compile_check(schema).list_broken(value)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, b"3.0000000000000000000001"),
        ({"maximum": 3}, b"3.0000000000000000000001"),
        ({"const": 9007199254740993}, b"9007199254740992.0"),
        ({"multipleOf": 0.01}, b"19.9900000000000000000001"),
        ({"enum": [1, 0]}, b"true"),
        ({"enum": [True, False]}, b"1"),
        ({"type": "number"}, b"true"),
    ],
)
def test_numbers_are_exact_and_booleans_are_none(schema: Any, text: bytes) -> None:
    assert not compile_check(schema).accepts(parse(text))


def test_draft_4_goes_by_the_spelling_of_an_integer() -> None:
    check = compile_check({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"})
    assert [True, False, True] == [check.accepts(parse(text)) for text in (b"1", b"1.0", b"-0")]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "strin"}, ("type",)),
        ({"properties": {"a": {"minimum": "1"}}}, ("properties", "a", "minimum")),
        ({"properties": {"a": {"pattern": "("}}}, ("properties", "a", "pattern")),
        ({"exclusiveMinimum": True}, ("exclusiveMinimum",)),
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_place(schema: Any, path: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_check(schema)
    assert path == caught.value.path


def test_validates_the_target_of_an_outside_reference_against_its_meta_schema() -> None:
    documents = {"https://example.org/api": {"components": {"x": {"type": "strin"}}}}
    with pytest.raises(SchemaError, match="strin"):
        compile_check({"$ref": "https://example.org/api#/components/x"}, documents=documents)


def test_formats_are_asserted_or_not_by_the_switch() -> None:
    schema = {"format": "uuid"}
    assert [False, True] == [compile_check(schema, formats=formats).accepts("x") for formats in (True, False)]


def test_a_published_meta_schema_is_validated_like_any_other_schema() -> None:
    check = compile_check({"$ref": "https://json-schema.org/draft/2020-12/schema"})
    assert (True, False) == (check.accepts({"minimum": 1}), check.accepts({"minimum": "1"}))
    assert [("type", ("minimum",), None)] == told(check, {"minimum": "1"})


def test_a_dynamic_reference_leads_where_the_way_began() -> None:
    tree = {
        "$id": "https://example.org/tree",
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    }
    strict = {
        "$id": "https://example.org/strict",
        "$dynamicAnchor": "node",
        "$ref": "tree",
        "unevaluatedProperties": False,
        "$defs": {"tree": tree},
    }
    value: JsonValue = {"children": [{"childs": []}]}
    assert [True, False] == [compile_check(schema).accepts(value) for schema in (tree, strict)]


def test_a_vocabulary_that_is_left_out_switches_its_keywords_off() -> None:
    meta = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$vocabulary": {
            "https://json-schema.org/draft/2020-12/vocab/core": True,
            "https://json-schema.org/draft/2020-12/vocab/applicator": True,
        },
    }
    schema = {"$schema": "https://example.org/meta", "properties": {"a": {"type": "string"}, "b": False}}
    check = compile_check(schema, documents={"https://example.org/meta": meta})
    assert [True, False] == [check.accepts({"a": 1}), check.accepts({"b": 1})]


def test_a_vocabulary_nobody_knows_is_refused_when_it_is_demanded() -> None:
    meta = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$vocabulary": {"https://example.org/v": True}}
    with pytest.raises(SchemaError, match="demands the vocabulary") as caught:
        compile_check({"$schema": "https://example.org/meta"}, documents={"https://example.org/meta": meta})
    assert ("$schema",) == caught.value.path


def test_the_generated_source_shows_where_each_part_comes_from() -> None:
    source = compile_check(PERSON).source()
    assert "# json-schema:///schema#/properties/age" in source
    assert "if 'name' not in v:" in source


def test_hostile_texts_in_a_schema_stay_data() -> None:
    name = "'\"\n\\u0027]; raise SystemExit #"
    check = compile_check({"properties": {name: {"const": name}}, "required": [name], "additionalProperties": False})
    assert [True, False] == [check.accepts({name: name}), check.accepts({name: "x"})]
    assert [("required", (), name)] == told(check, {})


def test_a_part_is_validated_by_its_own_node() -> None:
    check = compile_check(PERSON)
    age = check.root.properties["age"]
    assert [True, False, False] == [check.accepts_at(age, value) for value in (3, -3, "3")]


def test_a_generated_variable_never_hides_a_generated_function() -> None:
    """`unevaluatedProperties` beside a loop over keys: the loop's variable once had the name of the collector."""
    closed = {"additionalProperties": {"type": "integer"}, "unevaluatedProperties": False}
    for schema in ({"anyOf": [{"type": "object", **closed}, {"type": "null"}]}, {"type": "object", **closed}):
        check = compile_check(schema)
        assert (True, False, True) == (check.accepts({"a": 1}), check.accepts({"a": "x"}), check.accepts({}))
        assert [] == check.list_broken({"a": 1})
    inner = {"prefixItems": [{"items": {"type": "integer"}}], "unevaluatedItems": False}
    lists = compile_check({"anyOf": [{"type": "array", **inner}, {"type": "null"}]})
    assert (True, False, False) == (lists.accepts([[1]]), lists.accepts([["x"]]), lists.accepts([[1], 2]))

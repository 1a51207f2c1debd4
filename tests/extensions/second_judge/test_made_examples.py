"""Examples made from a schema are valid, the smallest that can be found, and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given

from proxy.core.check.validation import compile_check
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import ABSENT, JsonValue
from proxy.extensions.second_judge.core.examples import make_minimal_example, make_text_for
from tests.core.repairing import obj
from tests.core.schemas import schemas
from tests.core.test_properties import THOROUGH, compiled

INT: JsonValue = {"type": "integer"}
STR: JsonValue = {"type": "string"}


@pytest.mark.parametrize(
    ("expected", "schema"),
    [
        ("{}", obj(a=INT)),
        ('{"a":0}', {**obj(a=INT), "required": ["a"]}),
        ('{"a":3}', {**obj(a={**INT, "minimum": 3}), "required": ["a"]}),
        ("-5", {**INT, "maximum": -5}),
        ("0.5", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        ("21", {**INT, "minimum": 20, "multipleOf": 7}),
        ("0.2", {"type": "number", "minimum": 0.15, "multipleOf": 0.1, "maximum": 0.25}),
        ('"..."', STR),
        ('"aa"', {**STR, "minLength": 2, "maxLength": 2}),
        ('"2026-01-31"', {**STR, "format": "date"}),
        ('"00000000-0000-4000-8000-000000000000"', {**STR, "format": "uuid"}),
        ('"AA-000"', {**STR, "pattern": "^[A-Z]{2}-\\d{3}$"}),
        ('"aaaaaaaa"', {**STR, "pattern": "^[a-z]+$", "minLength": 8}),
        ('"b"', {"enum": ["b", "a"]}),
        ("null", {"type": "null"}),
        ("[0,1]", {"type": "array", "items": INT, "minItems": 2, "uniqueItems": True}),
        ("[false,true]", {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "uniqueItems": True}),
        ("[5]", {"contains": {"const": 5}, "type": "array"}),
        ('[0,"..."]', {"type": "array", "prefixItems": [INT, STR], "minItems": 2}),
        ('{"k":"b","n":0}', {"type": "object", "required": ["k"], "anyOf": [
            {"properties": {"k": {"const": "b"}, "n": INT}, "required": ["n"]}]}),
        ('{"a":true,"b":1}', {"type": "object", "required": ["a", "b"], "allOf": [
            {"properties": {"a": {"const": True}}}, {"properties": {"b": {"enum": [1, 2]}}}]}),
        ('{"k":"x","v":0}', {"type": "object", "properties": {"k": {"const": "x"}}, "required": ["k"],
                             "if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["v"],
                             "properties": {"v": INT}}}),
        ('{"a":0,"b":"..."}', {"type": "object", "required": ["a"], "properties": {"a": INT, "b": STR},
                               "dependentRequired": {"a": ["b"]}}),
        ('{"key1":"...","key2":"..."}', {"type": "object", "minProperties": 2}),
        ("{}", {"$ref": "#/$defs/n", "$defs": {"n": obj(next={"$ref": "#/$defs/n"})}}),
    ],
)  # fmt: skip
def test_the_smallest_valid_value_is_found(expected: str, schema: JsonValue) -> None:
    check = compile_check(schema)
    value = make_minimal_example(check)
    assert expected == dumps(value).decode()
    assert check.accepts(value)


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "string", "pattern": "^(?=.*[A-Z])(?=.*\\d).{8,}$", "maxLength": 3},
        {"$ref": "#/$defs/n", "$defs": {"n": {**obj(next={"$ref": "#/$defs/n"}), "required": ["next"]}}},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
    ],
)
def test_makes_no_example_if_none_is_found(schema: JsonValue) -> None:
    assert make_minimal_example(compile_check(schema)) is ABSENT


@pytest.mark.parametrize(
    ("expected", "pattern"),
    [
        ("", "^$"), ("a", "a|b"), ("00-0", "^\\d{2}-\\d$"), ("aa", "^(?:[a-z]){2}$"), ("a.b", "^a\\.b$"), ("a@a.a",
         "^.+@.+\\.[a-z]+$"),
        ("http://", "^https?://"), ("a", "[^0-9]"), ("x", "^(?<n>x)$"), ("A", "\\x41"), ("ab", "a(?=b)b"), ("]",
         "[\\]]"),
        ("-", "[-]"), ("a{", "a{"), ("x", "x??x"),
    ],
)  # fmt: skip
def test_a_common_pattern_has_a_text(expected: str, pattern: str) -> None:
    made = make_text_for(pattern)
    assert made == expected or (made is None and pattern == "a{")


@pytest.mark.parametrize(
    "pattern",
    ["(", "[", "a{2", "(?i)a", "\\1", "\\p{L}", "\\", "[a", ")", "a)", "(" * 100, "\\u12", "[a-", "x{5000}" * 9],
)
def test_any_other_pattern_has_none(pattern: str) -> None:
    assert make_text_for(pattern) is None


def test_work_is_bounded() -> None:
    levels = {
        f"n{level}": {
            **obj(**{f"a{i}": {"$ref": f"#/$defs/n{level + 1}"} for i in range(6)}),
            "required": [f"a{i}" for i in range(6)]
        }
        for level in range(14)
    }  # fmt: skip
    check = compile_check({"$ref": "#/$defs/n0", "$defs": {**levels, "n14": INT}})
    assert make_minimal_example(check) is ABSENT


@THOROUGH
@given(schemas())
def test_the_smallest_valid_value_is_valid_or_there_is_none(schema: JsonValue) -> None:
    check = compiled(schema)
    smallest = make_minimal_example(check)
    assert smallest is ABSENT or check.accepts(smallest)

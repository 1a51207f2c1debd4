"""Spellings of real tool catalogues: those that are read as JSON Schema, and those that stay unchanged."""

from __future__ import annotations

import copy

import pytest

from proxy.core.check.validation import SchemaError, compile_check
from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue, Pointer
from proxy.core.schema.dialects import normalise, suggest_remedy


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("number", "float float32 float64 double Float FLOAT64 Number"),
        ("integer", "int int32 int64 long byte Int32 INTEGER Long"),
        ("boolean", "bool Bool Boolean BOOLEAN"),
        ("string", "str char String CHAR"),
        ("object", "dict map HashMap hashmap Object Dict"),
        ("array", "list tuple ArrayList List Array"),
        ("null", "None none Null"),
    ],
)
def test_type_names_of_other_languages_are_read_in_any_case(kind: str, names: str) -> None:
    assert [{"type": kind}] * len(names.split()) == [normalise({"type": name})[0] for name in names.split()]


def test_any_means_no_type() -> None:
    assert ({"description": "x"}, (": type 'Any' read as any type",)) == normalise({"type": "Any", "description": "x"})


def test_lists_of_types_are_read_too_and_repeats_vanish() -> None:
    assert {"type": ["integer", "null"]} == normalise({"type": ["int", "None"]})[0]
    assert {"type": "integer"} == normalise({"type": ["int", "integer"]})[0]
    assert {} == normalise({"type": ["int", "any"]})[0]


def test_every_place_that_holds_a_schema_is_looked_at() -> None:
    schema = {
        "properties": {"a": {"type": "int"}}, "items": {"type": "int"}, "anyOf": [{"type": "int"}],
        "$defs": {"d": {"type": "int"}},
        "additionalProperties": {"type": "int"}, "prefixItems": [{}, {"type": "int"}], "not": {"type": "int"},
        "patternProperties": {"^x": {"type": "int"}}, "if": {"type": "int"}, "dependentSchemas": {"a": {"type": "int"}},
    }  # fmt: skip
    made, notes = normalise(schema)
    assert "int'" not in repr(made).replace("'integer'", "")
    assert 10 == len(notes)


def test_keeps_data_and_names_that_look_like_types() -> None:
    schema = {
        "properties": {"type": {"type": "string"}, "float": {"enum": [{"type": "int"}], "const": {"type": "int"}}},
        "default": {"type": "float"}, "examples": [{"type": "dict"}], "x-note": {"type": "int"}, "required": ["type"],
    }  # fmt: skip
    made, notes = normalise(schema)
    assert made is schema
    assert () == notes


def test_reads_a_property_called_type_as_a_schema() -> None:
    assert {"properties": {"type": {"type": "integer"}}} == normalise({"properties": {"type": {"type": "int"}}})[0]


def test_never_changes_the_given_schema() -> None:
    schema = {"type": "Dict", "properties": {"a": {"type": "int"}, "b": {"anyOf": [{"type": "bool"}]}}}
    before = copy.deepcopy(schema)
    made, _ = normalise(schema)
    assert before == schema
    assert {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "boolean"}]}}} == made


def test_parts_that_are_right_stay_the_same_objects() -> None:
    right = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert normalise(right)[0] is right
    assert normalise({"properties": {"a": right, "b": {"type": "int"}}})[0]["properties"]["a"] is right


def test_a_flat_list_of_parameters_is_an_object() -> None:
    made, notes = normalise(
        [
            {"name": "lat", "type": "float64", "required": True, "description": "Latitude"},
            {"name": "units", "type": "String", "enum": ["metric"], "required": False},
            {"name": "note"},
        ]
    )
    assert {
        "type": "object",
        "properties": {
            "lat": {"type": "number", "description": "Latitude"},
            "units": {"type": "string", "enum": ["metric"]},
            "note": {},
        },
        "required": ["lat"],
    } == made
    assert (
        "a flat list of parameters read as an object schema",
        "/properties/lat: type 'float64' read as 'number'",
        "/properties/units: type 'String' read as 'string'",
    ) == notes


@pytest.mark.parametrize(
    "schema",
    [
        [],
        [1],
        [{"type": "int"}],
        [{"name": 1}],
        [{"name": "a"}, {"name": "a"}],
        [{"name": "a", "required": "yes"}],
        True,
        False,
        None,
        7,
        "x",
    ],
)
def test_keeps_values_that_are_neither_schemas_nor_lists_of_parameters(schema: JsonValue) -> None:
    assert (schema, ()) == normalise(schema)


TUPLE = {"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False}


@pytest.mark.parametrize(
    ("written", "read", "note"),
    [
        (TUPLE, {"prefixItems": TUPLE["items"], "items": False}, "/properties/a: a list under `items` read as"),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}, "a boolean `exclusiveMinimum` beside"),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}, "a boolean `exclusiveMaximum` beside `maximum`"),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}, "`nullable: true` lets null in"),
        ({"type": "str", "nullable": True}, {"type": ["string", "null"]}, "`nullable: true` lets null in"),
        (
            {"type": "string", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
            "`nullable: true` lets null in",
        ),
        (
            {"type": "string", "const": "a", "nullable": True},
            {"anyOf": [{"type": "string", "const": "a"}, {"type": "null"}]},
            "`nullable: true` lets null in",
        ),
    ],
)
def test_reads_spellings_of_earlier_drafts_and_of_openapi(written: JsonValue, read: JsonValue, note: str) -> None:
    made, notes = normalise({"properties": {"a": written}})
    assert {"properties": {"a": read}} == made
    assert note in notes[-1]
    compile_check(made)


@pytest.mark.parametrize(
    "part",
    [
        {"nullable": True},
        {"type": "string", "nullable": False},
        {"$schema": "http://json-schema.org/draft-07/schema#", **TUPLE},
        {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True},
        {"items": []},
        {"exclusiveMinimum": True},
        {"enum": [TUPLE], "const": {"type": "string", "nullable": True}},
    ],
)
def test_leaves_spellings_that_mean_something_else(part: JsonValue) -> None:
    schema = {"properties": {"a": part}}
    assert (schema, ()) == normalise(schema)
    assert ({"a": TUPLE}, ()) == normalise({"a": TUPLE}, names_draft=True)


def test_the_arguments_themselves_are_never_null() -> None:
    schema = {"type": "object", "nullable": True}
    assert (schema, ()) == normalise(schema)


LATEST = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("schema", "path", "words"),
    [
        ({"$schema": LATEST, "minimum": 1, "exclusiveMinimum": True}, ("exclusiveMinimum",),
         "write the limit itself (`exclusiveMinimum: 0`) and drop `minimum`"),
        ({"exclusiveMaximum": False}, ("exclusiveMaximum",), "drop `maximum`"),
        ({"$schema": LATEST, "items": [{}]}, ("items",), "is called `prefixItems` since 2020-12"),
        ({"properties": {"a": {"required": True}}}, ("properties", "a", "required"), "`required: [name]`"),
        ({"type": "strng"}, ("type",), "did you mean 'string'?"),
        ({"type": "fruit"}, ("type",), "a type is one of null, boolean, integer"),
        ({"type": "date"}, ("type",), "write `type: string` and `format: date`"),
        ({"type": "email"}, ("type",), "write `type: string` and `format: email`"),
        ({"type": "datetime"}, ("type",), "write `type: string` and `format: date-time`"),
        ({"type": "time.Time"}, ("type",), "write `type: string` and `format: date-time`"),
        ({"type": "[]string"}, ("type",), "write `type: array` and the type of an item in `items`"),
        ({"type": "string[]"}, ("type",), "write `type: array` and the type of an item in `items`"),
        ({"type": "List[str]"}, ("type",), "write `type: array` and the type of an item in `items`"),
        ({"type": "map[string]interface{}"}, ("type",), "the type of a value in `additionalProperties`"),
        ({"type": "enum"}, ("type",), "list the values in `enum`, and leave out `type`"),
        ({"properties": {"required": ["a"]}}, ("properties", "required"), "beside `properties`, not under it"),
        ({"properties": {"type": "object"}}, ("properties", "type"), "beside `properties`, not under it"),
        ({"properties": {"lat": "float"}}, ("properties", "lat"), "a property takes a schema: `{type: number}`"),
        ({"properties": {"lat": None}}, ("properties", "lat"), "a property takes a schema, such as `{type: string}`"),
        ({"required": "lat"}, ("required",), "`required` takes a list of names: `required: [lat]`"),
        ({"enum": "a"}, ("enum",), "`enum` takes a list of values"),
        ({"minLength": None}, ("minLength",), "give `minLength` a number, or leave it out"),
        ({"minLength": "3"}, ("minLength",), "`minLength` takes a number: write it without quotes, 3"),
        ({"minLength": -3}, ("minLength",), "`minLength` is at least 0"),
        (parse(b'{"minLength": 2.5}'), ("minLength",), "`minLength` takes a whole number"),
        ({"minimum": "low"}, ("minimum",), "`minimum` takes a number"),
        ({"multipleOf": 0}, ("multipleOf",), "`multipleOf` is more than 0"),
        ({"pattern": None}, ("pattern",), "give `pattern` a text, or leave it out"),
        ({"pattern": 1}, ("pattern",), '`pattern` takes a text: put it in quotes, "1"'),
        ({"description": ["a"]}, ("description",), "`description` takes a text"),
    ],
)  # fmt: skip
def test_a_schema_that_fails_its_own_rules_has_a_remedy(schema: JsonValue, path: Pointer, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_check(normalise(schema)[0])
    assert path == caught.value.path
    assert words in suggest_remedy(schema, caught.value.path)


def test_suggests_no_remedy_if_none_is_known() -> None:
    assert ["", "", ""] == [
        suggest_remedy({"pattern": "("}, ("pattern",)),
        suggest_remedy({}, ("no", "such")),
        suggest_remedy({}, ()),
    ]


def test_the_example_of_a_flat_list_is_one_of_the_schema() -> None:
    schema, _ = normalise([{"name": "lat", "type": "float64", "required": True, "example": 35.6897}])
    assert {"lat": {"type": "number", "examples": [35.6897]}} == schema["properties"]


def test_gominds_summary_of_fields_constrains() -> None:
    summary = {
        "required_fields": [{"name": "lat", "type": "number", "example": 35.6}],
        "optional_fields": [{"name": "unit", "type": "string"}],
    }
    schema, notes = normalise(summary)
    assert {
        "type": "object",
        "properties": {"lat": {"type": "number", "examples": [35.6]}, "unit": {"type": "string"}},
        "required": ["lat"],
    } == schema
    assert ("`required_fields` and `optional_fields` (GoMind) read as an object schema",) == notes


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required_fields": [{"name": "a"}]},
        {"required_fields": "a"},
        {"required_fields": [{"name": "a"}], "optional_fields": [{"name": "a"}]},
        {"description": "nothing"},
        {},
    ],
)
def test_another_schema_with_such_a_key_stays_as_it_is(schema: JsonValue) -> None:
    assert (schema, ()) == normalise(schema)

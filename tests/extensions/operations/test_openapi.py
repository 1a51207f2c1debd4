"""OpenAPI operations: their JSON bodies as JSON Schema, and operations that cannot be taken."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.model.values import JsonValue
from proxy.extensions.operations.core.openapi import ImportedOperation, OpenApiError, import_operation


def described(schema: JsonValue, version: str = "3.0.3", schemas: JsonValue = None, **operation: Any) -> JsonValue:
    """A description with one operation `make` whose JSON body has this schema."""
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {
        "openapi": version,
        "paths": {"/things": {"post": {"operationId": "make", "requestBody": body, **operation}}},
        "components": {"schemas": schemas or {}},
    }


def beside(**more: JsonValue) -> JsonValue:
    """A description of OpenAPI 3.2 whose one path has these keys and no method."""
    return {"openapi": "3.2.0", "paths": {"/things": more}}


def translated(schema: JsonValue, version: str = "3.0.3", schemas: JsonValue = None) -> JsonValue:
    made = import_operation(described(schema, version, schemas), "make")
    compile_check(made.schema)
    return body_of(made)


def body_of(made: ImportedOperation) -> JsonValue:
    """The schema of only the body, even if the body is one argument among others."""
    if not made.request.body_argument:
        return made.schema
    body = made.schema["properties"][made.request.body_argument]
    definitions = {"$defs": made.schema["$defs"]} if "$defs" in made.schema else {}
    return {**body, **definitions} if isinstance(body, dict) else body


def refused(document: JsonValue, operation: str = "make", provided: frozenset[str] = frozenset()) -> tuple[str, str]:
    with pytest.raises(OpenApiError) as caught:
        import_operation(document, operation, provided)
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": False}, {"type": "string"}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": "string", "nullable": True, "enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"nullable": True, "description": "x"}, {"description": "x"}),
        ({"nullable": True, "allOf": [{"type": "string"}]},
         {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]}),
        ({"anyOf": [{"type": "string"}, {"nullable": True}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"minimum": 1, "exclusiveMinimum": False}, {"minimum": 1}),
        ({"maximum": 9, "exclusiveMaximum": True, "minimum": 1}, {"exclusiveMaximum": 9, "minimum": 1}),
        ({"exclusiveMaximum": True}, {}),
        ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
        (
            {"properties": {"id": {"readOnly": True}, "n": {}}, "required": ["id", "n"]},
            {"properties": {"id": {"readOnly": True}, "n": {}}, "required": ["n"]},
        ),
        ({"properties": {"id": {"readOnly": True}}, "required": ["id"]}, {"properties": {"id": {"readOnly": True}}}),
        (
            {"oneOf": [{"type": "object"}], "discriminator": {"propertyName": "t", "mapping": {"a": "#/x"}}},
            {"oneOf": [{"type": "object"}], "discriminator": {"propertyName": "t"}},
        ),
        ({"properties": {"nullable": {"type": "boolean"}}}, {"properties": {"nullable": {"type": "boolean"}}}),
        ({"enum": [{"nullable": True, "type": "x"}]}, {"enum": [{"nullable": True, "type": "x"}]}),
        ({"items": {"type": "integer", "nullable": True}}, {"items": {"type": ["integer", "null"]}}),
    ],
)  # fmt: skip
def test_3_0_schemas_are_translated(written: JsonValue, meant: JsonValue) -> None:
    assert meant == translated(written)


def test_3_1_schemas_are_taken_as_they_are_but_for_what_can_mean_one_thing_only() -> None:
    schema = {
        "type": ["string", "null"],
        "nullable": True,
        "example": "x",
        "properties": {"id": {"readOnly": True}},
        "required": ["id"],
    }
    assert schema == translated(schema, "3.1.0")
    assert {"exclusiveMinimum": 1} == translated({"minimum": 1, "exclusiveMinimum": True}, "3.1.0")


def test_includes_only_schemas_that_a_body_refers_to() -> None:
    schemas = {
        "Pet": {
            "properties": {"mother": {"$ref": "#/components/schemas/Pet"}, "tag": {"$ref": "#/components/schemas/a~1b"}}
        },
        "a/b": {"type": "string", "nullable": True},
        "Unused": {"type": "integer"},
    }
    assert {
        "$ref": "#/$defs/Pet",
        "$defs": {
            "Pet": {"properties": {"mother": {"$ref": "#/$defs/Pet"}, "tag": {"$ref": "#/$defs/a_b"}}},
            "a_b": {"type": ["string", "null"]},
        },
    } == translated({"$ref": "#/components/schemas/Pet"}, schemas=schemas)


def test_two_places_of_one_name_stay_apart() -> None:
    schemas = {"a": {"properties": {"x": {"type": "string"}}}, "x": {"type": "integer"}}
    schema = {
        "properties": {"p": {"$ref": "#/components/schemas/a/properties/x"}, "q": {"$ref": "#/components/schemas/x"}}
    }
    made = translated(schema, schemas=schemas)
    assert {"x": {"type": "string"}, "x_2": {"type": "integer"}} == made["$defs"]
    assert {"p": {"$ref": "#/$defs/x"}, "q": {"$ref": "#/$defs/x_2"}} == made["properties"]


def test_siblings_of_a_reference_are_dropped_in_3_0_and_kept_in_3_1() -> None:
    schema = {"$ref": "#/components/schemas/n", "minimum": 5, "description": "x"}
    schemas = {"n": {"type": "integer"}}
    assert {"description", "$ref", "$defs"} == translated(schema, schemas=schemas).keys()
    assert 5 == translated(schema, "3.1.0", schemas)["minimum"]


def test_null_is_let_in_next_to_a_reference() -> None:
    made = translated({"$ref": "#/components/schemas/n", "nullable": True}, schemas={"n": {"type": "integer"}})
    check = compile_check(made)
    assert [True, True, False] == [check.accepts(value) for value in (1, None, "x")]


def test_a_property_that_another_schema_calls_read_only_is_not_required() -> None:
    schemas = {
        "Base": {"properties": {"id": {"$ref": "#/components/schemas/Id"}}},
        "Id": {"type": "string", "readOnly": True},
    }
    made = translated({"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "n"]}]}, schemas=schemas)
    assert {"required": ["n"]} == made["allOf"][1]


def test_swagger_2_takes_the_body_parameter() -> None:
    document = {
        "swagger": "2.0",
        "definitions": {"Pet": {"type": "object", "properties": {"n": {"type": "integer", "x-nullable": True}}}},
        "parameters": {"pet": {"in": "body", "name": "pet", "required": True, "schema": {"$ref": "#/definitions/Pet"}}},
        "paths": {"/pets": {"post": {"operationId": "make", "parameters": [{"$ref": "#/parameters/pet"}]}}},
    }
    made = import_operation(document, "make")
    assert ({"n": {"type": ["integer", "null"]}}, True) == (
        made.schema["$defs"]["Pet"]["properties"],
        made.request.body_required,
    )


def test_an_operation_can_be_named_by_method_and_path() -> None:
    made = import_operation(described({"type": "object"}, summary="Makes a thing."), "POST /things")
    assert ({"type": "object"}, "POST", "/things", "Makes a thing.") == (
        made.schema,
        made.method,
        made.path,
        made.description,
    )


def test_notes_each_changed_reading_with_its_count() -> None:
    schema = {"properties": {"a": {"type": "string", "nullable": True}, "b": {"type": "string", "nullable": True}}}
    document = described(schema, parameters=[{"in": "header", "name": "Dry"}])
    assert ("`nullable: true` lets null in (2 times)",) == import_operation(document, "make").notes


def test_the_description_is_never_changed() -> None:
    document = described(
        {"properties": {"a": {"$ref": "#/components/schemas/n", "nullable": True}}, "required": ["a"]},
        schemas={"n": {"minimum": 1, "exclusiveMinimum": True, "anyOf": [{"nullable": True}]}},
    )
    before = copy.deepcopy(document)
    import_operation(document, "make")
    assert before == document


QUERY = {"in": "query", "name": "q", "required": True}


@pytest.mark.parametrize(
    ("document", "message", "hint"),
    [
        ({}, "no OpenAPI description", "the file must say `openapi: 3.x`"),
        ([], "no OpenAPI description", "the file must say"),
        ({"openapi": "4.0"}, "no OpenAPI description", "the file must say"),
        ({"openapi": "3.0.0"}, "no operation 'make' in the description",
         "name it by its operationId or as `POST /path`"),
        (described({}, operationId="makes"), "no operation 'make' in the description", "did you mean 'makes'?"),
        (described({}, requestBody={"content": {"text/plain": {"schema": {}}}}),
         "its body is text/plain, neither JSON nor a form", "only JSON and form bodies"),
        (described({"$ref": "other.yaml#/x"}),
         "$ref 'other.yaml#/x' leads out of the description", "bundle the description"),
        (described({"$ref": "#/components/schemas/no"}), "$ref '#/components/schemas/no' leads nowhere", ""),
        (described({}, parameters=[{"name": "q", "in": "querystring", "content": {"application/json": {}}}]),
         "a parameter is `in: querystring`, which is not judged", "relay the operation, or leave it out"),
        (beside(query={"operationId": "make"}), "no route takes QUERY", "leave the operation out"),
        (beside(additionalOperations={"COPY": {"operationId": "make"}}),
         "no route takes COPY", "leave the operation out"),
    ],
)  # fmt: skip
def test_rejects_an_unusable_description_with_a_remedy(document: JsonValue, message: str, hint: str) -> None:
    found = refused(document)
    assert message == found[0]
    assert hint in found[1]


def test_parameters_of_the_path_and_of_components_count_too() -> None:
    document = described({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    document["components"]["parameters"] = {"q": {**QUERY, "schema": {"type": "boolean"}}}
    document["paths"]["/things"]["parameters"] = [{"$ref": "#/components/parameters/q"}]
    made = import_operation(document, "make")
    assert {
        "type": "object",
        "properties": {"q": {"type": "boolean"}, "n": {"type": "integer"}},
        "required": ["q", "n"],
    } == made.schema
    document["paths"]["/things"]["post"]["parameters"] = [{**QUERY, "required": False}]
    assert ["n"] == import_operation(document, "make").schema["required"]


def test_a_header_that_the_route_sets_is_no_argument() -> None:
    header = {"in": "header", "name": "X-Tenant", "required": True, "schema": {"type": "string"}}
    document = described({"type": "object"}, parameters=[header, {**header, "name": "Authorization"}])
    assert {"X-Tenant": {"type": "string"}} == import_operation(document, "make").schema["properties"]
    assert {"type": "object"} == import_operation(document, "make", frozenset({"x-tenant"})).schema


def test_names_that_are_taken_get_their_place_in_front() -> None:
    body = {"type": "object", "properties": {"id": {"type": "string"}}}
    document = described(body, parameters=[{**QUERY, "name": "id"}, {**QUERY, "in": "cookie", "name": "id"}])
    made = import_operation(document, "make")
    assert ["query_id", "cookie_id", "id"] == list(made.schema["properties"])
    assert (
        "the query parameter 'id' is the argument 'query_id': its name is taken",
        "the cookie parameter 'id' is the argument 'cookie_id': its name is taken",
    ) == made.notes


CLOSED = {"type": "object", "properties": {"n": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("body", "spread"),
    [
        ({"type": "object"}, True),
        (CLOSED, True),
        ({"allOf": [{"type": "object", "properties": {"n": {}}}]}, True),
        ({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, True),
        ({"allOf": [CLOSED]}, False),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, False),
        ({"type": "object", "maxProperties": 1}, False),
        ({"type": "object", "not": {"required": ["q"]}}, False),
        ({"type": ["object", "null"]}, False),
        ({"type": "array"}, False),
        ({}, False),
    ],
)
def test_members_of_a_body_join_the_parameters_if_nothing_counts_them(body: JsonValue, spread: bool) -> None:
    made = import_operation(described(body, "3.1.0", parameters=[QUERY]), "make")
    assert ("" if spread else "body") == made.request.body_argument
    compile_check(made.schema)


def test_distinguishes_two_operations_of_one_name_by_path() -> None:
    document = described({"type": "object"})
    document["paths"]["/others"] = document["paths"]["/things"]
    assert ("2 operations are called 'make'", "name it by method and path: `POST /things`") == refused(document)
    assert "/others" == import_operation(document, "POST /others").path


def test_references_in_a_circle_end() -> None:
    document = described({}, parameters=[{"$ref": "#/components/parameters/a"}])
    document["components"]["parameters"] = {
        "a": {"$ref": "#/components/parameters/b"},
        "b": {"$ref": "#/components/parameters/a"},
    }
    assert "references run in a circle" == refused(document)[0]


def test_json_has_many_media_types() -> None:
    for media_type in ("application/json; charset=utf-8", "application/merge-patch+json", "*/*", "Application/JSON"):
        document = described(
            {}, requestBody={"content": {"text/plain": {}, media_type: {"schema": {"type": "object"}}}}
        )
        assert {"type": "object"} == import_operation(document, "make").schema

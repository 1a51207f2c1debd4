"""Schemas out of OpenAPI descriptions and of parameters: read, checked and reported like those of every tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.core.json.jsontext import parse
from proxy.extensions.operations.core.openapi import import_operation
from proxy.extensions.operations.importing.harvest import FoundTool, describe_unguarded
from tests.config.test_schema_lint import LAT, said
from tests.config.test_schemas import OBJECT, accepts, mistakes, tool, write

API = {
    "openapi": "3.0.3",
    "paths": {
        "/pets/{id}": {
            "parameters": [{"in": "path", "name": "id", "required": True}],
            "post": {
                "operationId": "addPet",
                "summary": "Adds a pet.",
                "requestBody": {"content": {"application/json": {"schema": OBJECT}}},
            },
        }
    },
}


def test_a_schema_comes_out_of_an_openapi_operation(tmp_path: Path) -> None:
    write(tmp_path, {"api.json": API})
    schema = {"openapi": "api.json", "operation": "addPet"}
    made = tool(tmp_path, schema, route={"path": "/x/{id}"})
    values = ({"id": "7", "n": 1}, {"id": "7", "n": "x"}, {"n": 1})
    assert ([True, False, False], "Adds a pet.") == (accepts(made, *values), made.description)


def test_an_openapi_operation_that_needs_more_than_the_route_gives_is_a_mistake(tmp_path: Path) -> None:
    route = {"path": "/x", "upstream": "u", "tool": "x", "schema": {"openapi": "api.json", "operation": "addPet"}}
    config = {"version": 1, "upstreams": {"u": {"url": "http://127.0.0.1:9"}}, "routes": [route]}
    write(tmp_path, {"api.json": API, "config.yaml": config})
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml", {})
    (found,) = map(str, caught.value.mistakes)
    assert "route '/x'  the operation needs the path parameter 'id'  (put it into the route's path" in found


def test_an_unknown_openapi_operation_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path, {"api.json": API})
    (found,) = mistakes(tmp_path, {"openapi": "api.json", "operation": "addPets"})
    assert found.endswith("tool 'x'  api.json: no operation 'addPets' in the description  (did you mean 'addPet'?)")


def test_the_schema_of_a_parameter_is_looked_at_like_that_of_a_tool(tmp_path: Path) -> None:
    parts: list[tuple[dict[str, object], str]] = [
        ({"minumum": 3}, "16: unknown keyword 'minumum', which JSON Schema ignores  (did you mean 'minimum'?)"),
        (
            {"minimum": 3, "maximum": 1},
            "15: no number can satisfy it, `minimum: 3` and `maximum: 1` exclude each other  (change one of the two)",
        ),
        ({"x-null": "no"}, "16: x-null is neither drop nor refuse: 'no'  (say `drop` or `refuse`)"),
        (
            {"ui": 1, "type": "integer"},
            "parameter 'id': `/ui`: unknown keyword 'ui', which JSON Schema ignores  "
            "(call it `x-...` if it is a remark of yours)",
        ),
    ]
    for part, told in parts:
        declared = [{"name": "id", "in": "path", "schema": part}]
        route = {
            "path": "/x/{id}",
            "upstream": "none",
            "tool": "x",
            "schema": {"type": "object"},
            "parameters": declared,
        }
        (tmp_path / "c.yaml").write_text(json.dumps({"version": 1, "routes": [route]}, indent=1))
        try:
            found = [note for note in load(tmp_path / "c.yaml", {}).config.notes if note.startswith("parameter")]
        except ConfigError as error:
            found = [f"{mistake.line}: {mistake.message}  ({mistake.hint})" for mistake in error.mistakes]
        assert [told] == found


def test_serves_an_imported_operation_and_notes_its_unknown_keyword(tmp_path: Path) -> None:
    body = {"content": {"application/json": {"schema": {"type": "object", "properties": LAT, "requird": ["lat"]}}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "paths": {"/p": {"post": {"operationId": "p", "requestBody": {**body, "required": True}, "responses": {}}}},
    }
    (tmp_path / "o.json").write_text(json.dumps(document))
    (line,) = said(tmp_path, {"openapi": "o.json", "operation": "p"})
    assert line.endswith("unknown keyword 'requird', which JSON Schema ignores  (did you mean 'required'?)")


def test_check_and_import_report_a_discriminator_that_tells_no_branches_apart(tmp_path: Path) -> None:
    branch = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
    pet = {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/components/schemas/Cat"}},
    }
    operation = {"operationId": "addPet", "requestBody": {"content": {"application/json": {"schema": pet}}}}
    api = {
        "openapi": "3.0.3",
        "paths": {"/pets": {"post": operation}},
        "components": {"schemas": {"Cat": branch, "Dog": branch}},
    }
    write(tmp_path, {"api.json": api})
    made = tool(tmp_path, {"openapi": "api.json", "operation": "addPet"})
    assert made.schema is not None
    assert any("calls are ambiguous" in note for note in made.schema.notes)
    found = import_operation(parse(json.dumps(api).encode()), "addPet")
    assert "calls are ambiguous" in describe_unguarded(FoundTool("addPet", "", found.schema, "POST /pets"))

"""Sources of a tool's schema, the references that it may have, and the error of an unusable one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.config import schemas
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.config.model import ToolConfig
from proxy.core.model.values import JsonValue
from proxy.core.schema.dialects import normalise

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def write(folder: Path, files: dict[str, object]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))


def tool(folder: Path, schema: object, *, documents: object = None, route: object = None) -> ToolConfig:
    """The tool x of a config whose catalogue has this schema."""
    config = {
        "version": 1,
        "documents": documents or {},
        "tools": {"x": {"schema": schema}},
        "routes": [{"path": "/x", "upstream": "none", "tool": "x", **(route if isinstance(route, dict) else {})}],
    }
    write(folder, {"c.yaml": config})
    return load(folder / "c.yaml", {}).config.routes[0].tools["x"]


def mistakes(folder: Path, schema: object, **rest: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        tool(folder, schema, **rest)
    return [str(mistake).replace(f"{folder}/", "") for mistake in caught.value.mistakes]


def accepts(made: ToolConfig, *values: object) -> list[bool]:
    assert made.schema is not None
    return [made.schema.check.accepts(value) for value in values]


def test_reads_a_schema_in_place(tmp_path: Path) -> None:
    assert [True, False] == accepts(tool(tmp_path, OBJECT), {"n": 1}, {"n": "x"})


def test_reads_a_schema_from_a_yaml_or_a_json_file(tmp_path: Path) -> None:
    write(tmp_path, {"s/a.yaml": "type: object\nrequired: [n]\nproperties: {n: {type: integer}}", "s/b.json": OBJECT})
    assert [True, False] == accepts(tool(tmp_path, "s/a.yaml"), {"n": 1}, {"n": "x"})
    assert [True, False] == accepts(tool(tmp_path, "s/b.json"), {"n": 1}, {"n": "x"})


def test_one_file_may_hold_many_schemas(tmp_path: Path) -> None:
    write(
        tmp_path, {"all.yaml": "tools:\n  - x\n  - {type: object, required: [n]}\na/b: {type: object, required: [m]}"}
    )
    assert [True, False] == accepts(tool(tmp_path, "all.yaml#/tools/1"), {"n": 1}, {})
    assert [True, False] == accepts(tool(tmp_path, "all.yaml#/a~1b"), {"m": 1}, {})


def test_a_part_of_a_file_may_refer_to_the_rest_of_it(tmp_path: Path) -> None:
    write(tmp_path, {"all.yaml": "x: {type: object, properties: {n: {$ref: '#/number'}}}\nnumber: {type: integer}"})
    assert [True, False] == accepts(tool(tmp_path, "all.yaml#/x"), {"n": 1}, {"n": "x"})


def test_the_part_has_the_draft_its_file_names(tmp_path: Path) -> None:
    draft_4 = "http://json-schema.org/draft-04/schema#"
    part = {"properties": {"n": {"$ref": "#/n"}}}
    write(tmp_path, {"all.json": {"$schema": draft_4, "x": part, "n": {"minimum": 0, "exclusiveMinimum": True}}})
    assert [True, False] == accepts(tool(tmp_path, "all.json#/x"), {"n": 1}, {"n": 0})


def test_a_reference_leads_to_files_below_the_schema_folder(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "s/tools/x.yaml": "properties: {n: {$ref: '../common.json#/$defs/n'}}",
            "s/common.json": {"$defs": {"n": {"$ref": "deep/n.yaml"}}},
            "s/deep/n.yaml": "type: integer",
        },
    )
    made = tool(tmp_path, "s/tools/x.yaml")
    assert [True, False] == accepts(made, {"n": 1}, {"n": "x"})
    assert [True, False] == accepts(
        tool(tmp_path, {"properties": {"n": {"$ref": "s/common.json#/$defs/n"}}}), {"n": 1}, {"n": "x"}
    )
    assert str(tmp_path) not in repr(made.schema and made.schema.check.schemas.documents)


def test_files_may_refer_to_each_other(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a.json": {"properties": {"b": {"$ref": "b.json"}}, "required": ["n"]},
            "b.json": {"properties": {"a": {"$ref": "a.json"}}},
        },
    )
    assert [True, False] == accepts(tool(tmp_path, "a.json"), {"n": 1, "b": {"a": {"n": 1}}}, {"n": 1, "b": {"a": {}}})


def test_a_schema_with_an_id_finds_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, {"s/x.json": {"$id": "https://example.com/x.json", "$ref": "n.json"}, "s/n.json": OBJECT})
    assert [True, False] == accepts(tool(tmp_path, "s/x.json"), {"n": 1}, {})


def test_registered_documents_are_found_by_their_uri(tmp_path: Path) -> None:
    write(tmp_path, {"n.json": {"$defs": {"n": {"type": "integer"}}}})
    schema = {"properties": {"n": {"$ref": "https://example.com/n#/$defs/n"}}}
    made = tool(tmp_path, schema, documents={"https://example.com/n": "n.json"})
    assert [True, False] == accepts(made, {"n": 1}, {"n": "x"})


def test_reads_a_tuple_with_a_note(tmp_path: Path) -> None:
    point = {"type": "array", "items": [{"type": "number"}, {"type": "number"}]}
    made = tool(tmp_path, {"type": "object", "properties": {"point": point}})
    assert [True, False] == accepts(made, {"point": [1, 2]}, {"point": [1, "x"]})
    assert made.schema is not None
    assert ("/properties/point: a list under `items` read as `prefixItems`, as drafts before 2020-12 do",) == (
        made.schema.notes
    )


@pytest.mark.parametrize("rest", [True, False])
def test_a_reference_leads_into_a_tuple(tmp_path: Path, rest: bool) -> None:
    pair = {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}
    more = {"additionalItems": {"type": "boolean"}} if rest else {}
    write(tmp_path, {"pair.yaml": {"properties": {"p": {**pair, **more}}}})
    schema = {
        "properties": {
            "a": {**pair, **more},
            "b": {"$ref": "#/properties/a/items/1"},
            "c": {"$ref": "pair.yaml#/properties/p/items/0"},
            **({"d": {"$ref": "#/properties/a/additionalItems"}} if rest else {}),
        }
    }
    made = tool(tmp_path, schema)
    assert [True, False, True, False] == accepts(made, {"b": "x"}, {"b": 1}, {"c": 1}, {"c": "x"})
    assert [True, not rest] == accepts(made, {"d": True}, {"d": 1})
    wrong = mistakes(tmp_path, {"properties": {**schema["properties"], "b": {"$ref": "#/properties/a/items/2"}}})
    assert "$ref '#/properties/a/items/2' leads nowhere" in wrong[0]


def test_reports_every_reference_to_a_missing_file(tmp_path: Path) -> None:
    found = mistakes(tmp_path, {"properties": {name: {"$ref": f"{name}.yaml"} for name in "pqr"}})
    assert [f"$ref '{name}.yaml' cannot be read" in each for name, each in zip("pqr", found, strict=True)] == [True] * 3


@pytest.mark.parametrize("upstream", ["none", "tools"])
def test_notes_a_schema_that_takes_no_object(tmp_path: Path, upstream: str) -> None:
    write(tmp_path, {"c.yaml": {
        "version": 1,
        "upstreams": {"tools": {"url": "http://h"}},
        "routes": [
            {"path": "/s", "upstream": upstream, "tool": "s", "schema": {"type": "string"}},
            {"path": "/r", "upstream": "tools", "tool": "r", "schema": OBJECT, "response_schema": {"type": "string"}},
        ],
    }})  # fmt: skip
    notes = [note for note in load(tmp_path / "c.yaml", {}).config.notes if "models send an object" in note]
    assert [note.split(",")[0] for note in notes] == ["tool 's': its schema takes string"] * (upstream != "none")


def test_keeps_a_tuple_in_a_part_of_a_file_with_a_draft(tmp_path: Path) -> None:
    draft_7 = "http://json-schema.org/draft-07/schema#"
    point = {"type": "array", "items": [{"$ref": "#/n"}, {"type": "string"}]}
    write(tmp_path, {"all.json": {"$schema": draft_7, "x": {"properties": {"p": point}}, "n": {"type": "number"}}})
    made = tool(tmp_path, "all.json#/x")
    assert [True, False, False] == accepts(made, {"p": [1, "a"]}, {"p": ["a", "a"]}, {"p": [1, 2]})


def test_nothing_is_ever_fetched(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, {"$ref": "https://example.com/n"})
    assert "leads to a document that is not there" in found
    assert "register it under `documents`; nothing is ever fetched" in found


def test_a_reference_out_of_the_schema_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"secret.json": {}, "conf/s/x.json": {"$ref": "../../secret.json"}})
    (found,) = mistakes(tmp_path / "conf", "s/x.json")
    assert found.startswith(
        "s/x.json:1:10  tool 'x'  $ref '../../secret.json' leaves it  (only files below the schema folder"
    )


def test_a_link_out_of_the_schema_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"secret.json": {}, "conf/x.json": {"$ref": "link.json"}})
    (tmp_path / "conf/link.json").symlink_to(tmp_path / "secret.json")
    (found,) = mistakes(tmp_path / "conf", "x.json")
    assert "$ref 'link.json' leaves it" in found


def test_a_schema_file_elsewhere_brings_its_own_folder(tmp_path: Path) -> None:
    write(tmp_path, {"other/x.json": {"$ref": "n.json"}, "other/n.json": OBJECT, "conf/keep": ""})
    assert [True, False] == accepts(tool(tmp_path / "conf", str(tmp_path / "other/x.json")), {"n": 1}, {})


def test_reports_a_reference_to_a_missing_file_at_its_place(tmp_path: Path) -> None:
    write(tmp_path, {"x.yaml": "properties:\n  n:\n    $ref: no.json\n"})
    (found,) = mistakes(tmp_path, "x.yaml")
    assert found.startswith("x.yaml:3:11  tool 'x'  $ref 'no.json' cannot be read: No such file or directory")


def test_reports_a_broken_schema_in_its_own_file_with_the_remedy(tmp_path: Path) -> None:
    write(tmp_path, {"x.yaml": "properties:\n  n:\n    type: integer\n    exclusiveMinimum: true\n"})
    (found,) = mistakes(tmp_path, "x.yaml")
    assert found.startswith("x.yaml:4:23  tool 'x'  the schema does not compile: /properties/n/exclusiveMinimum: ")
    assert "write the limit itself (`exclusiveMinimum: 0`) and drop `minimum`" in found


def test_reports_a_broken_schema_of_a_reference_in_its_own_file(tmp_path: Path) -> None:
    write(tmp_path, {"x.json": {"$ref": "n.yaml"}, "n.yaml": "properties:\n  n: {type: 7}\n"})
    (found,) = mistakes(tmp_path, "x.json")
    assert found.startswith("n.yaml:2:13  tool 'x'  the schema does not compile: /properties/n/type: ")


def test_reports_an_unparsable_file_at_its_place(tmp_path: Path) -> None:
    write(tmp_path, {"x.json": '{"a": 1,\n}'})
    (found,) = mistakes(tmp_path, "x.json")
    assert found.startswith("x.json:2:1  not JSON: ")


def test_a_pointer_into_nothing_is_a_mistake(tmp_path: Path) -> None:
    write(tmp_path, {"x.json": {"a": {}}})
    assert [
        "has nothing" in text or "the file has nothing there" in text for text in mistakes(tmp_path, "x.json#/b")
    ] == [True]


def test_other_spellings_are_read_and_noted(tmp_path: Path) -> None:
    made = tool(tmp_path, [{"name": "n", "type": "Int", "required": True}])
    assert [True, False, False] == accepts(made, {"n": 1}, {"n": "x"}, {})
    assert made.schema is not None
    assert (
        "a flat list of parameters read as an object schema",
        "/properties/n: type 'Int' read as 'integer'",
    ) == made.schema.notes


def test_the_schema_id_depends_on_the_schema_and_all_it_refers_to(tmp_path: Path) -> None:
    def schema_id(schema: object) -> str:
        made = tool(tmp_path, schema).schema
        assert made is not None
        return made.schema_id

    write(tmp_path, {"n.json": {"type": "integer"}})
    first = schema_id({"properties": {"n": {"$ref": "n.json"}}, "required": ["n"]})
    assert first == schema_id({"required": ["n"], "properties": {"n": {"$ref": "n.json"}}})
    write(tmp_path, {"n.json": {"type": "number"}})
    assert first != schema_id({"properties": {"n": {"$ref": "n.json"}}, "required": ["n"]})
    assert 12 == len(first)


def test_reads_a_schema_once_for_all_tools_and_routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []

    def note(schema: JsonValue, *, names_draft: bool = False) -> tuple[JsonValue, tuple[str, ...]]:
        written.append(schema)
        return normalise(schema, names_draft=names_draft)

    monkeypatch.setattr(schemas, "normalise", note)
    entry = {"path": "/a", "upstream": "none", "tool": "a"}
    config = {
        "version": 1,
        "tools": {"a": {"schema": "n.json"}, "b": {"schema": "n.json"}, "c": {"schema": {"type": "object"}}},
        "routes": [{**entry, "path": f"/{tool}{number}", "tool": tool} for tool in "abc" for number in range(3)],
    }
    write(tmp_path, {"c.yaml": config, "n.json": OBJECT})
    found = [tool.schema for route in load(tmp_path / "c.yaml", {}).config.routes for tool in route.tools.values()]
    assert [OBJECT, {"type": "object"}] == written
    assert 2 == len({id(schema) for schema in found})


def test_formats_can_be_switched_off(tmp_path: Path) -> None:
    schema = {"properties": {"d": {"format": "date"}}}
    assert [False] == accepts(tool(tmp_path, schema), {"d": "tomorrow"})
    assert [True] == accepts(tool(tmp_path, schema, route={"formats": "off"}), {"d": "tomorrow"})


def test_notes_a_default_that_its_own_type_refuses_with_the_remedy(tmp_path: Path) -> None:
    made = tool(
        tmp_path,
        {
            "type": "object",
            "properties": {
                "year": {"type": "integer", "default": "dontcare"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "limit": {"type": "integer", "default": 5.0},
                "ratio": {"type": "number", "default": 1},
            },
        },
    )
    assert made.schema is not None
    assert [
        "`/properties/year`: the property's own type refuses the default (string instead of integer): allow "
        "it in `type`, or say in `description` what an absent property means",
    ] == sorted(made.schema.notes)


def test_notes_a_default_that_is_none_of_the_listed_values(tmp_path: Path) -> None:
    made = tool(tmp_path, {"type": "object", "properties": {"unit": {"type": "string", "enum": ["c"], "default": "k"}}})
    assert made.schema is not None
    assert ("`/properties/unit`: the default is none of the listed values: add it to `enum`, or correct it",) == tuple(
        made.schema.notes
    )


def test_an_x_null_that_means_nothing_is_a_mistake(tmp_path: Path) -> None:
    (said,) = mistakes(tmp_path, {"type": "object", "properties": {"a": {"type": "string", "x-null": "keep"}}})
    assert "x-null is neither drop nor refuse: 'keep'" in said
    assert "say `drop` or `refuse`" in said


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{required: true}", "/properties/y/required: true is not of type 'array'"),
        (
            "{minLength: null}",
            "/properties/y/minLength: null is not of type 'integer'  (give `minLength` a number, or leave it out)",
        ),
        (
            "{pattern: 3.50}",
            "/properties/y/pattern: 3.50 is not of type 'string'  (`pattern` takes a text: put it in quotes, \"3.50\")",
        ),
        ("{enum: {a: true}}", "/properties/y/enum: {\"a\":true} is not of type 'array'"),
        ("{type: [null, 3]}", "/properties/y/type/0: null is not one of ['array', "),
    ],
)
def test_a_mistake_shows_the_written_value_as_json(schema: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"version: 1\nroutes: [{{path: /a, upstream: none, tool: a, schema: {{properties: {{y: {schema}}}}}}}]\n"
    )
    with pytest.raises(ConfigError) as refused:
        load(path, {})
    assert message in str(refused.value)

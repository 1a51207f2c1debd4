"""A schema that guards less than it says is never served in silence: at load, at a reload, and in a server's list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.core.check.validation import compile_check, list_schema_faults
from proxy.core.lint.contradictions import describe_gaps
from proxy.core.lint.findings import KNOWN, find_nearest_keyword

LAT = {"lat": {"type": "number"}}


def said(folder: Path, schema: object, **rest: object) -> list[str]:
    """The mistakes of a config with this schema; without any, its notes."""
    config = {"version": 1, "routes": [{"path": "/x", "upstream": "none", "tool": "x", "schema": schema}], **rest}
    (folder / "c.yaml").write_text(json.dumps(config, indent=1))
    try:
        return list(load(folder / "c.yaml", {}).config.notes)
    except ConfigError as error:
        return [f"{mistake.line}: {mistake.message}  ({mistake.hint})" for mistake in error.mistakes]


# --- misspelt keywords ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("propertes", "properties"),
        ("Properties", "properties"),
        ("requird", "required"),
        ("requierd", "required"),
        ("requires", "required"),
        ("minumum", "minimum"),
        ("maxlength", "maxLength"),
        ("min_length", "minLength"),
        ("max-items", "maxItems"),
        ("enums", "enum"),
        ("Type", "type"),
        ("tpye", "type"),
        ("patern", "pattern"),
        ("additionalproperties", "additionalProperties"),
        ("additionalProperty", None),
        ("aditionalProperties", "additionalProperties"),
        ("any_of", "anyOf"),
        ("exclusive_minimum", "exclusiveMinimum"),
        ("$properties", "properties"),
        ("propert\u0456es", "properties"),
        ("properties ", "properties"),
        ("Not", "not"),
        ("IF", "if"),
        ("$refs", "$ref"),
        ("$Ref", "$ref"),
        ("x-hints", "x-hint"),
        ("x-sensitiv", "x-sensitive"),
        ("X-Sensitive", "x-sensitive"),
        ("x_severity", "x-severity"),
    ],
)
def test_a_misspelt_keyword_is_known_for_what_it_means(written: str, meant: str | None) -> None:
    assert meant == find_nearest_keyword(written)


WORDS = """
example note unit units cost count title Title readonly examples x-minimum minimum $ref ref id name label order group
widget options allow when multiple container dtype size max min optional nullable xml deprecated $def x-nullable x-order
x-hint x-null x-ms-summary
"""


@pytest.mark.parametrize("word", WORDS.split())
def test_words_that_people_write_there_are_not_taken_for_keywords(word: str) -> None:
    assert find_nearest_keyword(word) is None


def test_a_misspelt_keyword_is_a_mistake_at_its_own_line(tmp_path: Path) -> None:
    assert [
        "10: unknown keyword 'propertes', which JSON Schema ignores  (did you mean 'properties'?)",
        "15: unknown keyword 'requird', which JSON Schema ignores  (did you mean 'required'?)",
    ] == said(tmp_path, {"type": "object", "propertes": LAT, "requird": ["lat"]})


def test_a_misspelt_keyword_in_a_file_that_is_referred_to_is_a_mistake_of_that_file(tmp_path: Path) -> None:
    (tmp_path / "parts.yaml").write_text("point:\n  type: object\n  requird: [lat]\n")
    (tmp_path / "c.yaml").write_text(
        "version: 1\nroutes:\n- {path: /x, upstream: none, tool: x, schema: {$ref: 'parts.yaml#/point'}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yaml", {})
    (mistake,) = caught.value.mistakes
    assert ("parts.yaml", 3, "did you mean 'required'?") == (Path(mistake.file).name, mistake.line, mistake.hint)


def test_any_other_unknown_keyword_is_a_note_unless_it_is_marked_as_a_remark(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": LAT, "ui": "map", "x-ui": "map"}
    assert [
        "tool 'x': `/ui`: unknown keyword 'ui', which JSON Schema ignores  (call it `x-...` if it is a remark of yours)"
    ] == said(tmp_path, schema)


def test_a_keyword_of_another_draft_is_a_note(tmp_path: Path) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "prefixItems": [{"type": "null"}]}
    assert [
        "tool 'x': `/prefixItems`: 'prefixItems' is a keyword of other drafts: draft 7 ignores it  "
        "(it belongs to drafts 2020 to 2020)"
    ] == said(tmp_path, schema)


def test_a_limit_next_to_a_reference_that_its_draft_ignores_is_a_note(tmp_path: Path) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": {"$ref": "#/definitions/name", "maxLength": 5, "description": "a name"},
        "definitions": {"name": {"type": "string"}},
    }
    assert [
        "tool 'x': `/items/maxLength`: draft 7 ignores 'maxLength' beside `$ref`  (put both under `allOf`)"
    ] == said(tmp_path, schema)


def test_the_target_of_a_reference_is_no_unknown_keyword(tmp_path: Path) -> None:
    schema = {"type": "object", "shared": {"type": "number"}, "properties": {"a": {"$ref": "#/shared"}}}
    assert [] == said(tmp_path, schema)


@pytest.mark.parametrize(("mode", "mistakes", "notes"), [("refuse", 2, 0), ("note", 0, 2), ("off", 0, 0)])
def test_the_operator_decides_about_unknown_keywords(tmp_path: Path, mode: str, mistakes: int, notes: int) -> None:
    schema = {"type": "object", "properties": LAT, "requird": ["lat"], "ui": "map"}
    found = said(tmp_path, schema, schemas={"unknown_keywords": mode})
    assert (mistakes, notes) == (
        len([line for line in found if not line.startswith("tool")]),
        len([line for line in found if line.startswith("tool")]),
    )


def test_a_config_made_of_somebody_elses_documents_notes_what_no_value_can_satisfy(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "enum": []}, "b": {"x-hint": 1}}}
    assert (2, 0) == (len(said(tmp_path, schema)), len(said(tmp_path, {"type": "object", "properties": LAT})))
    notes = said(tmp_path, schema, schemas={"unknown_keywords": "note"})
    assert ["x-hint is not a text: 1", "no value can satisfy it"] == [
        note.partition("`: ")[2].partition("  (")[0].partition(",")[0] for note in notes
    ]


# --- properties beside the keywords -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("schema", "rightly"),
    [
        ({"lat": "number", "lon": "float"}, {"lat": {"type": "number"}, "lon": {"type": "number"}}),
        ({"type": "object", "lat": {"type": "number"}}, {"lat": {"type": "number"}}),
        ({"type": "object", "lat": "number"}, {"lat": {"type": "number"}}),
        ({"a": {"enum": [1]}}, {"a": {"enum": [1]}}),
        ({"a": {"type": ["number", "null"]}}, {"a": {"type": ["number", "null"]}}),
        ({"a": {"properties": {"b": {}}}}, {"a": {"properties": {"b": {}}}}),
        ({"a": {"minimum": 1, "description": "d"}}, {"a": {"minimum": 1, "description": "d"}}),
        ({"lat": "Number", "x": "any"}, {"lat": {"type": "number"}, "x": {}}),
    ],
)
def test_properties_next_to_the_keywords_are_a_mistake_that_shows_how_to_write_it(
    tmp_path: Path, schema: dict[str, object], rightly: dict[str, object]
) -> None:
    (line,) = said(tmp_path, schema)
    assert "is in the place of a keyword, and guards nothing: a property belongs under `properties`" in line
    shown = json.loads(line.partition("(write ")[2].removesuffix(")"))
    assert {"type": "object", "properties": rightly} == shown


def test_advice_keeps_the_keywords_next_to_the_properties(tmp_path: Path) -> None:
    for beside in ({"additionalProperties": False}, {"description": "d"}, {"anyOf": [{"required": ["lat"]}]}):
        (line,) = said(tmp_path, {**LAT, **beside})
        shown = json.loads(line.partition("(write ")[2].removesuffix(")"))
        assert {"type": "object", "properties": LAT, **beside} == shown
        assert [] == said(tmp_path, shown)


def test_a_sample_repeats_no_mistake_of_a_property(tmp_path: Path) -> None:
    for inner in ({"zip": {"type": "string"}}, {"properties": {"zip": {"type": "string", "required": True}}}):
        found = said(tmp_path, {"at": {"type": "object", **inner}})
        assert any('(write {"type": "object", "properties": {"at": ...}})' in line for line in found)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": LAT, "ui": {"type": "slider"}},
        {"type": "object", "ui": "map"},
        {"type": "object", "display": {"format": "currency", "style": "wide"}},
        {"type": "string", "unit": {"type": "string"}},
        {"title": "string", "type": "object"},
    ],
)
def test_annotations_are_not_taken_for_properties(tmp_path: Path, schema: dict[str, object]) -> None:
    assert not [line for line in said(tmp_path, schema) if line[0].isdigit() and "can satisfy" in line]


def test_advice_for_a_required_property_guards_it(tmp_path: Path) -> None:
    (line,) = said(tmp_path, {"lat": {"type": "number", "required": True}, "unit": {"type": "string"}})
    shown = json.loads(line.partition("(write ")[2].removesuffix(")"))
    assert [] == said(tmp_path, shown)
    assert [True, False] == [compile_check(shown).accepts(value) for value in ({"lat": 1, "unit": "C"}, {"unit": "C"})]


def test_a_property_map_within_a_property_is_a_mistake_too(tmp_path: Path) -> None:
    (line,) = said(tmp_path, {"type": "object", "properties": {"at": {"street": "string", "zip": "string"}}})
    assert line.startswith("12: 'street' and 1 more is in the place of a keyword")


# --- values and limits ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"x-severity": "warn"}, 'x-severity is none of error, warning, info: "warn"'),
        ({"x-severity": {"maxLenght": "info"}}, "x-severity names no keyword: 'maxLenght'"),
        ({"x-hint": 5}, "x-hint is not a text: 5"),
        ({"x-sensitive": "yes"}, 'x-sensitive is neither true nor false: "yes"'),
        ({"minimum": 10, "maximum": 1}, "no number can satisfy it, `minimum: 10` and `maximum: 1` exclude each other"),
        (
            {"minimum": 1, "exclusiveMaximum": 1},
            "no number can satisfy it, `minimum: 1` and `exclusiveMaximum: 1` exclude each other",
        ),
        (
            {"minLength": 2, "maxLength": 1},
            "no string can satisfy it, `minLength: 2` and `maxLength: 1` exclude each other",
        ),
        (
            {"type": "array", "enum": ["a"]},
            "no value can satisfy it, the type and the listed values exclude each other",
        ),
        (
            {"type": "object", "properties": LAT, "required": ["lon"], "additionalProperties": False},
            "no object can satisfy it, 'lon' is required and refused as well",
        ),
        (
            {"type": "object", "properties": LAT, "required": ["lon"], "unevaluatedProperties": False},
            "no object can satisfy it, 'lon' is required and refused as well",
        ),
        (
            {"type": "integer", "minimum": 1.2, "maximum": 1.8},
            "no integer can satisfy it, `minimum: 1.2` and `maximum: 1.8` exclude each other",
        ),
        (
            {"type": "number", "allOf": [{"minimum": 10}, {"maximum": 1}]},
            "no number can satisfy it, `minimum: 10` and `maximum: 1` exclude each other",
        ),
        ({"allOf": [{"type": "string"}, {"type": "number"}]}, "no value can satisfy it, its types exclude each other"),
        (
            {"const": 5, "maximum": 1},
            "no value can satisfy it, the keywords beside the listed values refuse each of them",
        ),
        (
            {"enum": ["abc"], "maxLength": 1},
            "no value can satisfy it, the keywords beside the listed values refuse each of them",
        ),
        (
            {"type": "object", "required": ["b", "c"], "maxProperties": 1},
            "no object can satisfy it, `maxProperties` is 1 and the number of required keys 2",
        ),
        (
            {"type": "object", "properties": LAT, "minProperties": 2, "additionalProperties": False},
            "no object can satisfy it, `minProperties` is 2 and the number of allowed keys 1",
        ),
        (
            {"type": "array", "prefixItems": [{}], "items": False, "minItems": 2},
            "no array can satisfy it, `minItems` is 2 and the number of allowed items 1",
        ),
    ],
)
def test_rejects_unsatisfiable_keywords_and_wrong_values_of_our_own(
    tmp_path: Path, part: dict[str, object], message: str
) -> None:
    (line,) = said(tmp_path, {"type": "object", "properties": {"a": part}})
    assert message == line.partition(": ")[2].partition("  (")[0]


@pytest.mark.parametrize(
    "part",
    [
        {"minimum": 1, "maximum": 1},
        {"type": "string", "minimum": 10, "maximum": 1},
        {"anyOf": [{"type": "array", "enum": ["a"]}, {"type": "string"}], "x-severity": {"anyOf": "info"}},
        {"required": ["zz"], "patternProperties": {"^z": {}}, "additionalProperties": False},
        {"not": {"required": ["a"], "properties": {"a": False}}},
        {"properties": {"old": False, "older": {"not": {}}}},
        {"type": "array", "minContains": 3, "maxContains": 1},
        {"allOf": [{"type": "integer"}, {"type": "number", "minimum": 1}], "enum": [1]},
        {"type": "integer", "minimum": 1.5, "maximum": 2},
        {"enum": ["abc", "a"], "maxLength": 1},
        {"$defs": {"never": {"allOf": [{"type": "string"}, {"type": "number"}]}}, "type": "string"},
        {"$ref": "#/properties/b", "minimum": 1},
    ],
)
def test_accepts_keywords_that_some_value_can_satisfy(tmp_path: Path, part: dict[str, object]) -> None:
    schema = {"type": "object", "properties": {"a": part, "b": {"maximum": 5}}}
    assert not [line for line in said(tmp_path, schema) if line[0].isdigit() and "can satisfy" in line]


def test_a_required_name_without_a_property_and_a_schema_that_refuses_nothing_are_notes(tmp_path: Path) -> None:
    assert [
        "tool 'x': `/required`: 'lng' is required and not among `properties`: its value is not judged  "
        "(declare it, or take it out)"
    ] == said(tmp_path, {"type": "object", "properties": LAT, "required": ["lat", "lng"]})
    for open_schema in ({"description": "anything"}, {}, True):
        assert ["tool 'x': the schema has no keyword that could refuse anything: every call passes"] == said(
            tmp_path, open_schema
        )


def test_a_required_name_without_a_property_is_a_note_if_further_keys_are_allowed_by_name(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": LAT, "required": ["lng"]}
    notes = [len(said(tmp_path, {**schema, "additionalProperties": rest})) for rest in (True, {"type": "string"})]
    assert [1, 0] == notes


@pytest.mark.parametrize("schema", [False, {"not": {}}, {"allOf": [False]}])
def test_a_schema_that_refuses_every_call_is_a_mistake(tmp_path: Path, schema: object) -> None:
    (line,) = said(tmp_path, schema)
    assert line.endswith(": no value can satisfy it: every call is refused  (say what a call may hold)")


def test_limits_that_no_body_can_reach_are_a_note(tmp_path: Path) -> None:
    (line,) = said(tmp_path, {"type": "object", "properties": {"text": {"type": "string", "maxLength": 1048576}}})
    assert line == (
        "tool 'x': `/properties/text/maxLength`: 1048576 does not fit into a body of `limits.body` (1048576 bytes), "
        "which is refused first"
    )


@pytest.mark.parametrize(
    ("path", "meant"),
    [("/users/:id", "{id}"), ("/tools/*", "{rest...}"), ("/f/*path", "{path...}"), ("/users/<int:id>", "{id}")],
)
def test_a_path_that_is_spelt_as_other_routers_spell_templates_is_a_note(tmp_path: Path, path: str, meant: str) -> None:
    (tmp_path / "c.yaml").write_text(
        f"version: 1\nroutes: [{{path: '{path}', upstream: none, tool: x, schema: {{type: object}}}}]"
    )
    assert [f"route '{path}': {path.split('/')[-1]!r} is literal text  (did you mean {meant!r}?)"] == [
        *load(tmp_path / "c.yaml", {}).config.notes
    ]


# --- keywords that refuse nothing in their place ----------------------------------------------------------------------
IDLE: list[tuple[dict[str, object], str, str]] = [
    ({"type": "array", "items": {"type": "object", "properties": LAT}, "required": ["lat"]}, "required", "`items`"),
    ({"type": "array", "items": {}, "properties": LAT}, "properties", "write `properties` in `items`"),
    ({"type": "string", "minimum": 3}, "minimum", "did you mean 'minLength'?"),
    ({"type": ["string", "null"], "maxItems": 3}, "maxItems", "change the type to 'array', or remove 'maxItems'"),
    ({"type": "string", "maxItems": 3}, "maxItems", "did you mean 'maxLength'?"),
    ({"type": "integer", "pattern": "^7"}, "pattern", "change the type to 'string', or remove 'pattern'"),
    ({"type": "number", "maxLength": 3}, "maxLength", "did you mean 'maximum'?"),
    ({"type": "object", "minItems": 1}, "minItems", "did you mean 'minProperties'?"),
    ({"type": "string", "items": {"type": "string"}}, "items", "change the type to 'array', or remove 'items'"),
    ({"if": {"required": ["a"]}}, "if", "write `then` or `else` beside it"),
    ({"then": {"required": ["a"]}}, "then", "write `if` beside it"),
    ({"else": False}, "else", "write `if` beside it"),
    ({"type": "array", "minContains": 2}, "minContains", "write `contains` beside it, or `minItems` in its place"),
    ({"type": "string", "format": "datetime"}, "format", "did you mean 'date-time'?"),
    ({"type": "string", "format": "e-mail"}, "format", "did you mean 'email'?"),
    ({"format": "uiid"}, "format", "did you mean 'uuid'?"),
    ({"format": "Date"}, "format", "did you mean 'date'?"),
    (
        {"properties": {"lat": {}, "additionalProperties": False}},
        "additionalProperties",
        "write it beside `properties`",
    ),
    ({"properties": {"patternProperties": {"^x": False}}}, "patternProperties", "write it beside `properties`"),
    ({"properties": {"properties": LAT}}, "properties", "write it beside `properties`"),
]


@pytest.mark.parametrize(("part", "keyword", "hint"), IDLE, ids=[json.dumps(part) for part, _, _ in IDLE])
def test_rejects_a_keyword_that_refuses_nothing_in_its_place(
    tmp_path: Path, part: dict[str, object], keyword: str, hint: str
) -> None:
    (line,) = said(tmp_path, {"type": "object", "properties": {"a": part, "b": LAT["lat"]}})
    written = (tmp_path / "c.yaml").read_text().splitlines()[int(line.partition(":")[0]) - 1]
    assert f'"{keyword}"' in written
    assert hint in line


@pytest.mark.parametrize(("part", "keyword", "hint"), IDLE, ids=[json.dumps(part) for part, _, _ in IDLE])
def test_notes_such_a_keyword_in_a_listed_schema(part: dict[str, object], keyword: str, hint: str) -> None:
    note = describe_gaps(compile_check({"type": "object", "properties": {"a": part}}))
    assert keyword in note
    assert hint in note


@pytest.mark.parametrize(
    "part",
    [
        {"type": "array", "items": {"type": "string"}, "uniqueItems": False, "additionalProperties": True},
        {"type": "string", "minItems": 0, "required": []},
        {"type": ["string", "integer"], "minimum": 3},
        {"type": "integer", "format": "int64"},
        {"type": "string", "format": "binary"},
        {"type": "integer", "format": "datetime"},
        {"if": {"properties": {"a": True}}, "unevaluatedProperties": False},
        {"$ref": "#/properties/a/then", "then": {"type": "string"}},
        {"format": "datetime", "x-format": "off"},
        {"properties": {"additionalProperties": {"type": "boolean"}, "default": True, "properties": {"type": "array"}}},
        {"properties": {"uniqueItems": {"type": "boolean"}, "minimum": {"type": "number"}, "if": {}}},
        {"allOf": [{"type": "string"}, {"minimum": 3}]},
    ],
)
def test_accepts_a_keyword_that_may_refuse_something_in_its_place(tmp_path: Path, part: dict[str, object]) -> None:
    assert [] == said(tmp_path, {"type": "object", "properties": {"a": part}})


def test_notes_a_format_that_checks_nothing_once(tmp_path: Path) -> None:
    properties = {"a": {"format": "cidr"}, "b": {"format": "cidr"}, "c": {"format": "url"}}
    notes = [note.partition("`: ")[2] for note in said(tmp_path, {"type": "object", "properties": properties})]
    assert [
        "the format 'cidr' checks nothing  (any text passes: add a `pattern` if not every text is right)",
        "the format 'url' checks nothing  (did you mean 'uri'?)",
    ] == sorted(notes)


def test_accepts_any_format_if_formats_are_not_asserted(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"format": "datetime"}}}
    assert [] == said(tmp_path, schema, defaults={"formats": "off"})


@pytest.mark.parametrize("schema", [{"name": "x", "parametres": [LAT]}, {"ui": "wide"}, {"arguments": {"a": 1}}])
def test_rejects_a_schema_that_refuses_nothing_by_mistake(tmp_path: Path, schema: dict[str, object]) -> None:
    (line,) = [line for line in said(tmp_path, schema) if "every call passes" in line]
    assert "write the schema itself, or `validation: off` if every call may pass" in line


@pytest.mark.parametrize("schema", [True, {}, {"type": "object"}, {"description": "anything"}, {"x-ui": 1}])
def test_accepts_a_schema_that_refuses_nothing_on_purpose(tmp_path: Path, schema: object) -> None:
    assert not [line for line in said(tmp_path, schema) if line[0].isdigit()]


# --- all mistakes at once ---------------------------------------------------------------------------------------------
def test_reports_every_mistake_of_a_schema_at_once(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "strin"},
            "b": {"type": "intger"},
            "c": {"minimum": "x"},
            "d": {"pattern": "("},
            "e": {"$ref": "#/nowhere"},
            "required": ["a"],
            "f": {"type": "[]string"},
        },
    }
    found = said(tmp_path, schema)
    assert [12, 15, 18, 21, 24, 26, 30] == [int(line.partition(":")[0]) for line in found]
    assert "did you mean 'string'?" in found[0]
    assert "write `required` beside `properties`, not under it" in found[5]
    assert "write `type: array` and the type of an item in `items`" in found[6]


def test_reports_misspelt_keywords_next_to_other_faults(tmp_path: Path) -> None:
    found = said(tmp_path, {"type": "object", "properties": {"a": {"type": "strin"}}, "requird": ["a"]})
    assert ["did you mean 'string'?", "did you mean 'required'?"] == [line.partition("  (")[2][:-1] for line in found]


ODD: list[object] = [
    None,
    True,
    0,
    -1,
    "",
    "(",
    [],
    ["a"],
    [{}],
    {},
    {"a": 1},
    {"$ref": 5},
    {"$ref": "#/nowhere"},
    "http://[",
]


@pytest.mark.parametrize("keyword", sorted(KNOWN))
def test_reports_any_value_of_a_keyword_without_failing(tmp_path: Path, keyword: str) -> None:
    said(tmp_path, {"properties": {f"p{number}": {keyword: odd} for number, odd in enumerate(ODD)}})
    for odd in ODD:
        assert list_schema_faults({"type": "strin", keyword: odd})


def test_places_a_fault_in_a_list_of_parameters_at_its_entry(tmp_path: Path) -> None:
    found = said(tmp_path, [{"name": "a", "type": "strin"}, {"name": "b", "type": "intger"}])
    assert [11, 15] == [int(line.partition(":")[0]) for line in found]


# --- flat lists and definitions ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("entries", "line", "message"),
    [
        (
            [{"name": "a"}, {"name": "b", "requird": True}],
            14,
            "unknown key 'requird' of a parameter  (did you mean 'required'?)",
        ),
        ([{"name": "a", "minumum": 1}], 11, "unknown key 'minumum' of a parameter  (did you mean 'minimum'?)"),
        ([{"Nmae": "a"}], 10, "unknown key 'Nmae' of a parameter  (did you mean 'name'?)"),
        (["lat"], 9, 'expects a mapping; this is "lat"  ()'),
        ([{"name": "a", "required": "yes"}], 11, '`required` of a parameter is true or false, not "yes"  ()'),
    ],
)
def test_reports_a_mistake_in_a_flat_list_at_its_entry(
    tmp_path: Path, entries: list[object], line: int, message: str
) -> None:
    assert [f"{line}: {message}"] == said(tmp_path, entries)


def test_a_flat_list_in_a_file_is_validated_entry_by_entry(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("- {nam: a}\n- lat\n- {name: b, required: 1}\n- {type: string}\n")
    assert [
        "1: unknown key 'nam' of a parameter  (did you mean 'name'?)",
        '2: a parameter is a mapping, and this is "lat"  (write `- {name: lat, type: number, required: true}`)',
        "3: `required` of a parameter is true or false, not 1  ()",
        "4: this parameter has no `name`  (write `- {name: lat, type: number, required: true}`)",
    ] == said(tmp_path, "t.yaml")


def test_reports_a_misspelt_keyword_within_an_entry_at_its_line(tmp_path: Path) -> None:
    entries = [{"name": "a"}, {"name": "b", "type": "object", "properties": {"c": {"typ": "string"}}}]
    assert ["17: unknown keyword 'typ', which JSON Schema ignores  (did you mean 'type'?)"] == said(tmp_path, entries)


@pytest.mark.parametrize(
    ("definition", "place"),
    [
        ({"name": "t", "parameters": {}}, "/parameters"),
        ({"name": "t", "description": "d", "input_schema": {}}, "/input_schema"),
        ({"name": "t", "inputSchema": {}, "annotations": {"readOnlyHint": True}}, "/inputSchema"),
        ({"type": "function", "name": "t", "parameters": {}, "strict": True}, "/parameters"),
        ({"type": "function", "function": {"name": "t", "parameters": {}}}, "/function/parameters"),
        ({"function": {"name": "t", "parameters": {}}}, "/function/parameters"),
        ({"name": "t", "parametersJsonSchema": {}, "version": "1"}, "/parametersJsonSchema"),
        ({"toolSpec": {"name": "t", "inputSchema": {"json": {}}}}, "/toolSpec/inputSchema/json"),
    ],
)
def test_a_tools_definition_is_read_as_the_schema_in_it(
    tmp_path: Path, definition: dict[str, object], place: str
) -> None:
    text = json.dumps(definition).replace("{}", '{"type": "object", "properties": {"lat": {"type": "number"}}}')
    config = {"version": 1, "routes": [{"path": "/x", "upstream": "none", "tool": "x", "schema": json.loads(text)}]}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    made = load(tmp_path / "c.yaml", {}).config
    assert (f"tool 'x': the definition of tool 't' read as the schema under `{place}`",) == made.notes
    schema = made.routes[0].tools["x"].schema
    assert schema is not None
    assert [True, False] == [schema.check.accepts(value) for value in ({"lat": 1}, {"lat": "x"})]


FIELDS = [{"name": "lat", "type": "number", "required": True}]
GO_FIELDS = [{"Name": "lat", "Type": "float64", "Required": True, "Example": "35.6", "Description": "Latitude"}]
GOMIND = [
    {"name": "t", "description": "d", "parameters": FIELDS},
    {"name": "t", "arguments": FIELDS, "endpoint": "/t"},
    {"function": {"name": "t", "parameters": FIELDS}},
    {"name": "t", "input_summary": {"required_fields": FIELDS, "optional_fields": [{"name": "unit"}]}},
    {"name": "t", "input_summary": {"description": "d", "optional_fields": [{"name": "lat", "type": "number"}]}},
    {"Name": "t", "Description": "d", "InputSummary": {"RequiredFields": GO_FIELDS, "OptionalFields": []}},
    {"Name": "t", "Parameters": GO_FIELDS},
    {"RequiredFields": GO_FIELDS},
    {"requiredFields": [{"name": "lat", "type": "number"}]},
    GO_FIELDS,
]


@pytest.mark.parametrize("written", GOMIND, ids=[json.dumps(each)[:60] for each in GOMIND])
def test_rejects_calls_by_the_definitions_of_gomind(tmp_path: Path, written: object) -> None:
    config = {"version": 1, "routes": [{"path": "/x", "upstream": "none", "tool": "x", "schema": written}]}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    schema = load(tmp_path / "c.yaml", {}).config.routes[0].tools["x"].schema
    assert schema is not None
    assert [True, False] == [schema.check.accepts(value) for value in ({"lat": 1}, {"lat": "banana"})]
    assert ("optional_fields" in json.dumps(written) and "required_fields" not in json.dumps(written)) == (
        schema.check.accepts({})
    )


def test_finds_a_list_of_capabilities(tmp_path: Path) -> None:
    (line,) = said(tmp_path, {"capabilities": [{"name": "t", "parameters": FIELDS}]})
    assert "this is a list of tools, and one tool takes one schema" in line


def test_places_a_mistake_in_a_field_of_gomind_at_its_entry(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "Name: t\nInputSummary:\n  RequiredFields:\n    - {Name: a, Type: int}\n"
        "    - {Name: b,\n       Requierd: true}\n    - Name: c\n      Properties: {d: {typ: int}}\n"
    )
    (mistake,) = said(tmp_path, "t.yaml")
    assert mistake.startswith("5: unknown key 'requierd' of a parameter")


def test_a_definition_without_a_name_is_read_too(tmp_path: Path) -> None:
    assert ["tool 'x': a tool's definition read as the schema under `/parameters`"] == said(
        tmp_path, {"parameters": {"type": "object", "properties": LAT}}
    )


@pytest.mark.parametrize(
    ("listed", "place"),
    [([{"name": "t", "inputSchema": {}}], "/0"), ({"tools": [{"name": "t", "input_schema": {}}]}, "/tools/0")],
)
def test_a_list_of_tools_is_a_mistake_and_following_the_advice_takes_one(
    tmp_path: Path, listed: object, place: str
) -> None:
    text = json.dumps(listed).replace("{}", json.dumps({"type": "object", "properties": LAT}))
    (tmp_path / "t.json").write_text(text)
    (line,) = said(tmp_path, "t.json")
    assert line == (
        f"1: this is a list of tools, and one tool takes one schema  (name one of them: the file and `#{place}`, or "
        f"write the content of {place} in its place)"
    )
    (note,) = said(tmp_path, f"t.json#{place}")
    assert note.startswith("tool 'x': the definition of tool 't' read as the schema under ")


# --- other places where schemas are written ---------------------------------------------------------------------------


def test_reports_a_mistake_within_a_definition_in_a_file_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"name": "t",\n "parameters": {"type": "object",\n "requird": ["lat"]}}')
    config = {"version": 1, "routes": [{"path": "/x", "upstream": "none", "tool": "x", "schema": "t.json"}]}
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "c.yaml", {})
    assert [("t.json", 3)] == [(Path(each.file).name, each.line) for each in caught.value.mistakes]


# --- schemas of somebody else -----------------------------------------------------------------------------------------


def test_describes_the_gaps_of_a_listed_schema_in_one_line() -> None:
    schema = {"type": "object", "properties": {f"p{number}": {"minumum": 1} for number in range(5)}}
    assert describe_gaps(compile_check(schema)).endswith("; and 2 more")
    assert "" == describe_gaps(compile_check({"type": "object", "ui": 1}))
    assert "/properties/a: no number can satisfy it, `minimum: 2` and `maximum: 1` exclude each other" == describe_gaps(
        compile_check({"properties": {"a": {"minimum": 2, "maximum": 1}}})
    ).removesuffix(" (change one of the two)")


# --- discriminators ---------------------------------------------------------------------------------------------------
CAT = {"type": "object", "properties": {"kind": {"type": "string"}, "lives": {"type": "integer"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"type": "string"}, "age": {"type": "integer"}}, "required": ["kind"]}
AMBIGUOUS = "calls are ambiguous, the required keys of each branch of `oneOf` fit another branch too"


def make_union(*branches: object) -> dict[str, object]:
    return {"type": "object", "oneOf": list(branches), "discriminator": {"propertyName": "kind"}}


def test_rejects_a_discriminator_whose_branches_do_not_list_its_value(tmp_path: Path) -> None:
    (line,) = said(tmp_path, make_union(CAT, DOG))
    assert AMBIGUOUS in line
    assert "list the value of 'kind' in each branch, such as `const: cat`" in line
    assert AMBIGUOUS in describe_gaps(compile_check(make_union(CAT, DOG)))


@pytest.mark.parametrize(
    "branches",
    [
        (
            {**CAT, "properties": {"kind": {"const": "cat"}}},
            {**DOG, "properties": {"kind": {"const": "dog"}}},
        ),
        (CAT, {**DOG, "required": ["kind", "age"]}),
        (CAT, {**DOG, "additionalProperties": False}),
        (CAT,),
        ({**CAT, "required": ["lives"]}, {**DOG, "required": ["age"]}),
    ],
)
def test_accepts_a_discriminator_whose_branches_differ(tmp_path: Path, branches: tuple[object, ...]) -> None:
    assert not [line for line in said(tmp_path, make_union(*branches)) if "ambiguous" in line]

"""Exported tools: taken by the vendors' own types, looser than the schema and never stricter, losses named."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import AnswerPolicy, ResendPolicy, ToolPolicy
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import ABSENT, Container, ContainerFunction
from proxy.core.schema.dialects import bundle_schema
from proxy.extensions.guidance.cli.export import FORMATS
from proxy.extensions.guidance.core.export import VENDORS, Exported, export
from tests.collected_schemas import policy, real_tools
from tests.corpora.generate import damaged, random_value

ROOT: Final = Path(__file__).parents[3]
SDK: Final = ROOT / ".parties/sdk"
_HOW: Final = "no .parties/sdk here: run .ci/sdks"

# Schemas with what real ones seldom have all at once.
HARD: Final = {
    "tree": {"type": "object", "properties": {"root": {"$ref": "#/$defs/node"}}, "required": ["root"],
             "$defs": {"node": {"type": "object", "properties": {
                 "name": {"type": ["string", "null"], "format": "uuid"},
                 "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}},
    "either": {"oneOf": [{"type": "object", "properties": {"id": {"type": "integer", "exclusiveMinimum": 0}},
                          "required": ["id"]},
                         {"type": "object", "properties": {"id": {"const": "all"}, "most": {"type": "number"}},
                          "required": ["id", "most"]}]},
    "pairs.of/things": {"$ref": "#/definitions/top", "definitions": {
        "top": {"allOf": [{"properties": {"pair": {"type": "array", "items": [{"type": "string"}, {"enum": [1, 2]}]}}},
                          {"required": ["pair"], "additionalProperties": {"type": "string"}}]}},
        "$schema": "http://json-schema.org/draft-07/schema#"},
    "bounds": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {
        "n": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "m": {"enum": ["a", None]}, "p": {"type": "object", "patternProperties": {"^x": {}}}}},
    "nothing": {"type": "object"},
}  # fmt: skip


def exported(schema: object, vendor: str, tool: str = "tool", **fields: Any) -> tuple[Any, Exported]:
    made = export({tool: policy(schema, tool, **fields)}, vendor)
    return json.loads(dumps(made.tools[0])), made


def everything() -> dict[str, ToolPolicy]:
    return {**real_tools(), **{name: policy(schema, name) for name, schema in HARD.items()}}


# --- the vendors' own types -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def verdicts() -> dict[tuple[str, str], str]:
    """(vendor, tool) -> what the SDK's type says of the exported definition; `_extra` has a key too many."""
    if not (SDK.parent / "sdk.stamp").is_file():
        if os.environ.get("CI") == "true":
            pytest.fail(_HOW)
        pytest.skip(_HOW)
    policies = everything()
    asked = [
        ((vendor, name), tool)
        for vendor in VENDORS
        for name, tool in zip(policies, export(policies, vendor).tools, strict=True)
    ]
    for vendor in VENDORS:
        tool = json.loads(dumps(export({"tree": policies["tree"]}, vendor).tools[0]))
        asked.append(((vendor, "_extra"), {**tool, "colour": "red"}))
    lines = [dumps({"vendor": key[0], "tool": tool}).decode() for key, tool in asked]
    done = subprocess.run(
        [SDK / "bin/python", "tests/extensions/guidance/judge.py"],
        cwd=ROOT, input="\n".join(lines), capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    said = done.stdout.split("\n")[: len(asked)]
    return {key: verdict for (key, _), verdict in zip(asked, said, strict=True)}


@pytest.mark.large
@pytest.mark.parametrize("vendor", VENDORS)
def test_the_vendors_own_types_take_every_tool_with_further_keys_forbidden(
    vendor: str, verdicts: dict[tuple[str, str], str]
) -> None:
    mine = {name: verdict for (named, name), verdict in verdicts.items() if named == vendor}
    assert "extra_forbidden" in mine.pop("_extra")
    assert len(mine) == len(everything()) > 60
    assert {} == {name: verdict for name, verdict in mine.items() if verdict}


# --- looser, never stricter -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("vendor", ["openai", "anthropic", "mcp"])
def test_the_exported_schema_accepts_what_the_proxy_accepts(vendor: str) -> None:
    stricter = []
    policies = everything()
    for number, (name, tool) in enumerate(zip(policies, export(policies, vendor).tools, strict=True)):
        holder = tool["function"]["parameters"] if vendor == "openai" else None
        schema = holder or tool["input_schema" if vendor == "anthropic" else "inputSchema"]
        check, ours = compile_check(schema), policies[name].check
        assert ours is not None
        value = random_value(ours, Random(number))
        if isinstance(value, dict) and not check.accepts(value):
            stricter.append((name, value))
    assert [] == stricter


def test_a_bundled_schema_validates_as_the_original_does() -> None:
    other = []
    for number, (name, tool) in enumerate(everything().items()):
        assert tool.check is not None
        check = compile_check(bundle_schema(tool.check.schemas))
        for seed in range(3):
            chance = Random(number * 3 + seed)
            value = random_value(tool.check, chance)
            if value is not ABSENT:
                wrong = damaged(value, chance)
                if not check.accepts(value) or check.accepts(wrong) != tool.check.accepts(wrong):
                    other.append(name)
    assert [] == other


def test_a_bundled_schema_leads_nowhere_else() -> None:
    inner = {"$id": "https://schemas.test/inner", "$anchor": "x", "type": "string", "x-severity": "info"}
    outer = {"properties": {"a": {"$ref": "https://schemas.test/inner"}, "b": {"$ref": "#"}}, "$comment": "secret"}
    check = compile_check(outer, documents={"https://schemas.test/inner": inner})
    assert {
        "properties": {"a": {"$ref": "#/$defs/root"}, "b": {"$ref": "#/$defs/root_2"}},
        "$defs": {
            "root": {"type": "string"},
            "root_2": {"properties": {"a": {"$ref": "#/$defs/root"}, "b": {"$ref": "#/$defs/root_2"}}},
        },
    } == bundle_schema(check.schemas)


# --- one definition each ----------------------------------------------------------------------------------------------
WEATHER: Final = {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}


def test_each_vendor_gets_its_own_frame() -> None:
    told = {vendor: exported(WEATHER, vendor, description="Weather.")[0] for vendor in VENDORS}
    assert {
        "openai": {"type": "function", "function": {"name": "tool", "description": "Weather.", "parameters": WEATHER}},
        "anthropic": {"name": "tool", "description": "Weather.", "input_schema": WEATHER},
        "gemini": {"name": "tool", "description": "Weather.", "parameters": {
            "type": "OBJECT", "properties": {"lat": {"type": "NUMBER"}}, "required": ["lat"]}},
        "mcp": {"name": "tool", "description": "Weather.", "inputSchema": WEATHER},
    } == told  # fmt: skip
    assert tuple(VENDORS) == FORMATS


def test_mcp_hears_of_answers_and_of_what_may_be_repeated() -> None:
    answer = AnswerPolicy(compile_check({"properties": {"sun": {"type": "boolean"}}}))
    tool, _ = exported(WEATHER, "mcp", answer=answer, resend=ResendPolicy(idempotent=True))
    assert {"properties": {"sun": {"type": "boolean"}}, "type": "object"} == tool["outputSchema"]
    assert {"idempotentHint": True} == tool["annotations"]


def test_a_union_at_the_top_becomes_optional_fields_and_is_named_as_a_loss() -> None:
    tool, made = exported(HARD["either"], "openai")
    assert {
        "type": "object",
        "properties": {
            "id": {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"const": "all"}]},
            "most": {"type": "number"},
        },
        "required": ["id"],
    } == tool["function"]["parameters"]
    assert ("tool: oneOf is not allowed at the top: alternatives become optional fields",) == made.losses


def test_an_array_always_says_what_is_in_it() -> None:
    tool, _ = exported({"type": "object", "properties": {"a": {"type": "array"}}}, "openai")
    assert {"type": "array", "items": {}} == tool["function"]["parameters"]["properties"]["a"]


@pytest.mark.parametrize(
    ("schema", "made", "losses"),
    [
        ({"type": ["string", "null"], "minLength": 1}, {"type": "STRING", "nullable": True, "minLength": 1}, []),
        ({"type": ["integer", "string"], "maxLength": 2, "minimum": 1},
         {"anyOf": [{"type": "INTEGER", "minimum": 1}, {"type": "STRING", "maxLength": 2}]}, []),
        ({"const": "x"}, {"type": "STRING", "enum": ["x"], "format": "enum"}, []),
        ({"enum": ["a", None], "type": ["string", "null"]},
         {"type": "STRING", "enum": ["a"], "format": "enum", "nullable": True}, []),
        ({"type": "integer", "enum": [1, 2], "description": "How many"},
         {"type": "INTEGER", "description": "How many (one of 1, 2)"},
         ["only texts can be listed; the values are in the description"]),
        ({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 5},
         {"type": "INTEGER", "minimum": 1, "maximum": 4}, []),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "NUMBER", "minimum": 0},
         ["exclusiveMinimum becomes minimum"]),
        ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}, []),
        ({"type": "string", "format": "uuid"}, {"type": "STRING"}, ["the format 'uuid' is not known there"]),
        ({"type": "object", "additionalProperties": False, "properties": {"k": True}},
         {"type": "OBJECT", "properties": {"k": {}}}, ["that there are no further fields cannot be expressed"]),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "STRING"}], "nullable": True},
         ["oneOf becomes anyOf"]),
        ({"allOf": [{"type": "string"}, {"minLength": 2}], "maxLength": 3},
         {"type": "STRING", "maxLength": 3, "minLength": 2}, []),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True},
         {"type": "ARRAY", "items": {"type": "STRING"}}, ["uniqueItems has no word in this dialect"]),
    ],
    ids=str,
)  # fmt: skip
def test_gemini_gets_what_its_dialect_can_say(schema: object, made: object, losses: list[str]) -> None:
    tool, told = exported({"type": "object", "properties": {"p": schema}}, "gemini")
    assert made == tool["parameters"]["properties"]["p"]
    assert [f"tool: /properties/p: {loss}" for loss in losses] == list(told.losses)


def test_recursion_ends_if_gemini_cannot_follow() -> None:
    tool, told = exported(HARD["tree"], "gemini")
    root = tool["parameters"]["properties"]["root"]
    assert {"type": "OBJECT"} == root["properties"]["kids"]["items"]
    assert any("leads back to 'node'" in loss for loss in told.losses)


def test_a_name_no_vendor_takes_is_changed_and_said() -> None:
    policies = {name: policy(WEATHER, name) for name in ("a.b", "a/b", "x" * 70)}
    made = export(policies, "openai")
    assert ["a_b", "a_b_2", "x" * 64] == [tool["function"]["name"] for tool in made.tools]
    assert 3 == sum("a name this proxy does not know" in loss for loss in made.losses)
    assert "_9.b" == exported(WEATHER, "gemini", "_9.b")[0]["name"]


def test_leaves_out_tools_that_take_no_object_and_opens_those_without_a_schema() -> None:
    container = Container("Math", functions=(ContainerFunction("Add"),))
    made = export(
        {
            "list": policy({"type": "array"}, "list"),
            "free": ToolPolicy("free", None, "f"),
            "Math": ToolPolicy("Math", None, "f", container=container),
        },
        "anthropic",
    )
    assert [
        {"name": "free", "input_schema": {"type": "object", "properties": {}}},
        {"name": "Math", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}},
    ] == list(made.tools)
    assert ("list",) == made.left_out
    assert (
        "list: left out, because its arguments are not a JSON object",
        "free: its schema is not known: any object is taken",
    ) == made.losses

"""What a start asks before it loads an engine says yes only where the engine does, and for most real schemas."""

from __future__ import annotations

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Final

import jsonschema_rs
import pytest
from hypothesis import given, settings

from proxy.core.drafts import Draft
from proxy.core.engine.judge import META_SCHEMA
from proxy.core.engine.obvious import is_obvious
from proxy.core.engine.walking import takes
from proxy.core.jsontext import parse, plain
from proxy.core.model import JsonValue
from tests.core.schemas import odd_schemas
from tests.core.test_suite import DIALECTS, cases

DATA: Final = Path(__file__).parents[1] / "data"
META: Final = {
    Draft.D4: jsonschema_rs.Draft4Validator,
    Draft.D6: jsonschema_rs.Draft6Validator,
    Draft.D7: jsonschema_rs.Draft7Validator,
    Draft.D2019: jsonschema_rs.Draft201909Validator,
    Draft.D2020: jsonschema_rs.Draft202012Validator,
}
KEYWORDS: Final = (
    "$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef",
    "$ref", "$schema", "$vocabulary", "additionalItems", "additionalProperties", "allOf", "anyOf", "const",
    "contains", "contentEncoding", "contentMediaType", "contentSchema", "default", "definitions", "dependencies",
    "dependentRequired", "dependentSchemas", "deprecated", "description", "else", "enum", "examples",
    "exclusiveMaximum", "exclusiveMinimum", "format", "id", "if", "items", "maxContains", "maxItems", "maxLength",
    "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf",
    "not", "oneOf", "pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "readOnly",
    "required", "then", "title", "type", "unevaluatedItems", "unevaluatedProperties", "uniqueItems", "writeOnly",
    "x-own",
)  # fmt: skip
ODD_VALUES: Final[JsonValue] = parse(
    b"""[null, true, false, 0, 1, -1, 1.0, 2.5, 1e300, -0.0, 9007199254740993, 123456789012345678901234567890, "",
    "string", "number", "nothing", "#", "#/a b", "a#b", "(", [], {}, [{}], [true], [false, {}], [[]], [null], [1, 1],
    [1, 2], [1, 1.0], [1, true], ["a"], ["a", "a"], ["a", "b"], ["a", 1], ["string"], ["string", "string"],
    ["string", "text"], {"a": {}}, {"a": true}, {"a": 1}, {"a": ["b"]}, {"a": []}, {"(": {}},
    {"type": "string"}, {"type": "text"}, [{"type": "text"}], {"a": {"type": "text"}},
    {"a": {"a": {"minimum": "1"}}}]"""
)


def taken_by_meta_schema(schema: JsonValue, draft: Draft) -> bool:
    meta = META[draft]({"$ref": META_SCHEMA[draft]}, validate_formats=False, offline=True)
    return bool(meta.is_valid(plain(schema)))


@pytest.mark.parametrize("draft", list(Draft))
def test_what_is_obvious_is_right_by_the_meta_schema(draft: Draft) -> None:
    meta = META[draft]({"$ref": META_SCHEMA[draft]}, validate_formats=False, offline=True)
    schemas = [{keyword: value} for keyword, value in product(KEYWORDS, ODD_VALUES)]
    nested = [{"properties": {"a": schema}, "anyOf": [schema]} for schema in schemas]
    wrong = [schema for schema in schemas + nested if is_obvious(schema, draft) and not meta.is_valid(plain(schema))]
    assert [] == wrong


@settings(max_examples=150, deadline=None, derandomize=True)
@given(odd_schemas())
def test_no_odd_schema_is_obvious_but_right_ones(schema: JsonValue) -> None:
    for draft in Draft:
        assert not is_obvious(schema, draft) or taken_by_meta_schema(schema, draft)


def test_most_schemas_of_real_tools_are_obvious() -> None:
    lines = gzip.decompress((DATA / "mcp-tools" / "tools.jsonl.gz").read_bytes()).splitlines()
    schemas = [json.loads(line)["inputSchema"] for line in lines]
    assert (117, 114) == (len(schemas), sum(is_obvious(schema, Draft.D2020) for schema in schemas))


def test_a_schema_too_deep_for_a_glance_is_not_obvious() -> None:
    schema: JsonValue = {}
    for _ in range(100):
        schema = {"items": schema}
    assert not is_obvious(schema, Draft.D2020)


@pytest.mark.parametrize("draft", list(DIALECTS)[1:])
def test_what_a_walk_takes_is_valid_in_every_case_of_the_suite(draft: str) -> None:
    wrong, taken = [], 0
    for case in (case for kind in ("required", "optional", "format") for case in cases(draft, kind)):
        schema = case.check.root.raw
        if takes(schema, schema, case.value):
            taken += 1
            if not case.valid:
                wrong.append(case)
    assert ([], True) == (wrong, taken > 100)


@pytest.mark.parametrize(
    "pattern", ["^[a-z]{1,3}$", r"^(?:a|b)\.[^\s{}]*$", r"[0-9]+(\.[0-9]+)?(ms|s)", "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"]
)
def test_a_simple_pattern_is_taken_on_printable_ascii(pattern: str) -> None:
    text = {"^[a-z]{1,3}$": "abc", r"^(?:a|b)\.[^\s{}]*$": "a.x"}.get(pattern, "5ms")
    schema = {"pattern": pattern}
    assert (True, False) == (takes(schema, schema, text), takes(schema, schema, text + "\n"))


@pytest.mark.parametrize("pattern", [r"\p{L}", "(?i)a", "(?<n>a)", "a{,3}", "[]a]", "[[:alpha:]]", r"(a)\1", r"\x61"])
def test_a_pattern_that_python_could_read_otherwise_is_left_to_the_check(pattern: str) -> None:
    schema = {"pattern": pattern}
    assert not takes(schema, schema, "aaaa")

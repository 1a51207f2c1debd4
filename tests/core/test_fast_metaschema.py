"""The generated checks of the meta-schemas say what jsonschema says."""

from __future__ import annotations

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings

from proxy.core.check import fast_metaschema
from proxy.core.check.metaschema import list_faults
from proxy.core.check.validation import check_schema
from proxy.core.json.jsontext import parse
from proxy.core.model.values import JsonValue
from proxy.core.schema.drafts import Draft, SchemaError
from tests.core.schemas import odd_schemas
from tests.generated import examples, sample

DATA: Final = Path(__file__).parents[1] / "data"
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


@pytest.mark.parametrize("draft", list(Draft))
def test_every_keyword_with_every_odd_value_is_validated_as_jsonschema_validates_it(draft: Draft) -> None:
    every: list[JsonValue] = [{keyword: value} for keyword, value in product(KEYWORDS, ODD_VALUES)]
    schemas = sample(every)
    taken = [fast_metaschema.accepts(schema, draft) for schema in schemas]
    assert len(every) > 3_000
    assert [list_faults(schema, draft) == [] for schema in schemas] == taken


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(odd_schemas())
def test_odd_schemas_are_validated_as_jsonschema_validates_them(schema: JsonValue) -> None:
    for draft in Draft:
        assert fast_metaschema.accepts(schema, draft) is (list_faults(schema, draft) == [])


def test_schemas_of_real_tools_need_no_word_of_jsonschema() -> None:
    lines = gzip.decompress((DATA / "mcp-tools" / "tools.jsonl.gz").read_bytes()).splitlines()
    schemas = [json.loads(line)["inputSchema"] for line in lines]
    assert (117, 116) == (len(schemas), sum(fast_metaschema.accepts(schema, Draft.D2020) for schema in schemas))


def test_the_same_is_refused_and_taken_with_the_quick_way_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_metaschema, "ENABLED", False)
    check_schema({"properties": {"a": {"minimum": 1}}}, Draft.D2020)
    with pytest.raises(SchemaError, match='"strin" is not') as caught:
        check_schema({"properties": {"a": {"type": "strin"}}}, Draft.D2020, ("b",))
    assert ("b", "properties", "a", "type") == caught.value.path


def test_reports_the_first_fault_in_the_text() -> None:
    names = [f"name{number}" for number in range(50, 0, -1)]
    for draft in Draft:
        fault = list_faults({"properties": dict.fromkeys(names, "utf-8")}, draft)[0]
        assert fault is not None
        assert ("properties", "name50") == fault.path

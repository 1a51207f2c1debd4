"""Our engine against jsonschema and jsonschema-rs, on schemas and values that nobody wrote.

Verdicts must agree with both; the set of (path, keyword) that is reported must be jsonschema's. `reported_by_oracle`
holds the one difference on purpose: `propertyNames` is reported as itself (with the key), not as the rule that the key
breaks inside it.
"""

from __future__ import annotations

import json
from typing import Any, Final

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from proxy.core.check.metaschema import make_exact
from proxy.core.check.shapes import WIDE
from proxy.core.check.validation import BrokenKeyword, SchemaError, compile_check
from proxy.core.json.jsontext import parse
from proxy.core.schema.drafts import Draft
from tests.generated import examples

pytestmark = pytest.mark.large

DRAFTS: Final = {
    "http://json-schema.org/draft-04/schema#": (jsonschema.Draft4Validator, jsonschema_rs.Draft4Validator),
    "http://json-schema.org/draft-06/schema#": (jsonschema.Draft6Validator, jsonschema_rs.Draft6Validator),
    "http://json-schema.org/draft-07/schema#": (jsonschema.Draft7Validator, jsonschema_rs.Draft7Validator),
    "https://json-schema.org/draft/2019-09/schema": (
        jsonschema.Draft201909Validator,
        jsonschema_rs.Draft201909Validator,
    ),
    "https://json-schema.org/draft/2020-12/schema": (
        jsonschema.Draft202012Validator,
        jsonschema_rs.Draft202012Validator,
    ),
}

SETTINGS: Final = settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

KEYS: Final = st.sampled_from(["a", "b", "c", "kind", "aa"])
SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.sampled_from([0.5, 1.0, 2.5, -0.5, 3.0, 10**20, 1e300]),
    st.sampled_from(["", "a", "b", "aa", "ab1", "é", "\U0001f600", "x\n"]),
)
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
TYPES: Final = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SMALL: Final = st.integers(0, 3)
NUMBERS: Final = st.sampled_from([-1, 0, 1, 2, 3, 0.5, 1.5, 2.0])
PATTERNS: Final = st.sampled_from(["^a", "b$", "a", "^[a-c]+$", "[0-9]", "^.$", "(a|b)1?"])


def _schemas(draft: str) -> st.SearchStrategy[Any]:
    number = list(DRAFTS).index(draft)
    plain: dict[str, Any] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=4, unique_by=lambda value: json.dumps(value, sort_keys=True)),
        "minLength": SMALL,
        "maxLength": SMALL,
        "pattern": PATTERNS,
        "minimum": NUMBERS,
        "maximum": NUMBERS,
        "multipleOf": st.sampled_from([1, 2, 3, 0.5]),
        "minItems": SMALL,
        "maxItems": SMALL,
        "uniqueItems": st.booleans(),
        "minProperties": SMALL,
        "maxProperties": SMALL,
        "required": st.lists(KEYS, min_size=1, max_size=3, unique=True),
        "$ref": st.sampled_from(["#/definitions/one", "#/definitions/two"]),
    }
    if number >= 1:
        plain |= {"exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS, "const": VALUES}
    if number >= 3:
        plain |= {
            "minContains": SMALL,
            "maxContains": st.integers(1, 3),
            "dependentRequired": st.dictionaries(KEYS, st.lists(KEYS, max_size=2, unique=True), max_size=2),
        }
    return st.recursive(_some(plain), lambda inner: _some(plain | _shapes(inner, number)), max_leaves=8)


def _some(keywords: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=4, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in chosen}))


def _shapes(inner: st.SearchStrategy[Any], number: int) -> dict[str, Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    shapes: dict[str, Any] = {
        "properties": st.dictionaries(KEYS, inner, min_size=1, max_size=3),
        "patternProperties": st.dictionaries(PATTERNS, inner, min_size=1, max_size=2),
        "additionalProperties": inner | st.just(False),
        "items": inner,
        "allOf": several,
        "anyOf": several,
        "oneOf": several | _tagged(inner),
        "not": inner,
    }
    if number < 3:
        shapes["dependencies"] = st.dictionaries(KEYS, inner | st.lists(KEYS, min_size=1, unique=True), max_size=2)
    if number >= 1:
        shapes |= {"contains": inner, "propertyNames": inner}
    if number >= 2:
        shapes |= {"if": inner, "then": inner, "else": inner}
    if number >= 3:
        shapes["dependentSchemas"] = st.dictionaries(KEYS, inner, max_size=2)
    if number == 4:
        shapes["prefixItems"] = several
    else:
        shapes |= {"items": inner | several, "additionalItems": inner | st.just(False)}
    return shapes


# Other keywords of a branch next to the key that names it, some about that very key.
BESIDES: Final[list[dict[str, Any]]] = [
    {},
    {"additionalProperties": False},
    {"allOf": [{"properties": {"kind": {"maxLength": 0}}}]},
    {"allOf": [{"properties": {"kind": {"minLength": 1}}, "required": ["b"]}]},
    {"patternProperties": {"^k": {"type": "string", "pattern": "a"}}},
    {"properties": {"kind": {"enum": ["b", "c"], "maxLength": 1, "type": "string"}}},
    {"properties": {"kind": {"enum": ["b", "c"], "type": ["integer", "null"]}}},
    {"properties": {"kind": {"enum": ["b"], "pattern": "c"}}},
]


def _tagged(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Branches with a key that distinguishes them, as tools write them."""

    def branch(tag: str, more: Any, beside: dict[str, Any]) -> dict[str, Any]:
        properties = {"kind": {"enum": [tag]}, "a": more}
        return {"type": "object", "properties": properties, "required": ["kind"], **beside}

    besides = st.sampled_from(BESIDES)
    drawn = st.tuples(inner, inner, besides, besides)
    return drawn.map(lambda pair: [branch("a", pair[0], pair[2]), branch("b", pair[1], pair[3])])


@st.composite
def documents(draw: st.DrawFn, *, unevaluated: bool) -> tuple[dict[str, Any], Any, str]:
    """A schema document of a random draft, a value, and the draft."""
    draft = draw(st.sampled_from(list(DRAFTS)[3:] if unevaluated else list(DRAFTS)))
    schemas = _schemas(draft)
    schema = draw(schemas)
    if unevaluated:
        keyword = draw(st.sampled_from(["unevaluatedProperties", "unevaluatedItems"]))
        schema = {**schema, keyword: draw(st.just(False) | schemas)}
    # A reference in `one` may only lead on to `two`, below a key: what never ends is refused when it is compiled.
    one = draw(st.just({"type": "string"}) | st.just({"properties": {"a": {"$ref": "#/definitions/two"}}}))
    two = draw(st.just({"items": {"$ref": "#/definitions/one"}}) | st.just({"additionalProperties": {"$ref": "#"}}))
    return {"$schema": draft, **schema, "definitions": {"one": one, "two": two}}, draw(VALUES), draft


def reported(found: list[BrokenKeyword]) -> set[tuple[str, str]]:
    return {(json.dumps(entry.path), entry.keyword) for entry in found}


def reported_by_oracle(errors: list[jsonschema.ValidationError]) -> set[tuple[str, str]]:
    told = set()
    for error in errors:
        keyword = "propertyNames" if "propertyNames" in error.absolute_schema_path else error.validator
        told.add((json.dumps(tuple(error.absolute_path)), str(keyword)))
    return told


def _compiled(schema: dict[str, Any]) -> Any:
    try:
        return compile_check(parse(json.dumps(schema).encode()))
    except SchemaError as error:
        assume("never ends" not in error.message)
        raise


@SETTINGS
@given(documents(unevaluated=False))
def test_verdicts_and_reports_are_those_of_the_others(drawn: tuple[dict[str, Any], Any, str]) -> None:
    schema, value, draft = drawn
    check = _compiled(schema)
    oracle, rust = DRAFTS[draft]
    ours = parse(json.dumps(value).encode())
    accepted = check.accepts(ours)
    assert (accepted, accepted) == (oracle(schema).is_valid(value), rust(schema).is_valid(value))
    assert reported_by_oracle(list(oracle(schema).iter_errors(value))) == reported(check.list_broken(ours))
    assert accepted is check.accepts_at(check.root, ours)


FILLERS: Final = {f"f{number}": {"type": "integer"} if number % 2 else {} for number in range(WIDE)}


def widened(schema: Any) -> Any:
    """A schema whose objects have so many properties that their keys are looked up in tables."""
    if isinstance(schema, list):
        return [widened(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: item if key in ("enum", "const", "required", "dependentRequired") else widened(item)
        for key, item in schema.items()
    }
    if isinstance(schema.get("properties"), dict):
        made["properties"] = {**made["properties"], **FILLERS}
    return made


@SETTINGS
@given(documents(unevaluated=False), st.dictionaries(KEYS | st.sampled_from(["f1", "f2"]), SCALARS, max_size=4))
def test_objects_of_very_many_properties_are_validated_alike(
    drawn: tuple[dict[str, Any], Any, str], more: dict[str, Any]
) -> None:
    schema, value, draft = drawn
    schema = widened({"properties": {"a": {"type": "string"}}, **schema})
    check = _compiled(schema)
    for sent in (value, more):
        ours = parse(json.dumps(sent).encode())
        assert DRAFTS[draft][0](schema).is_valid(sent) is check.accepts(ours)
        assert reported_by_oracle(list(DRAFTS[draft][0](schema).iter_errors(sent))) == reported(check.list_broken(ours))


def test_very_many_properties_are_reported_in_the_order_of_the_schema() -> None:
    properties = {**FILLERS, "z": False, "a": {"type": "string"}}
    many = {"properties": properties, "required": [f"r{number}" for number in range(WIDE + 1)]}
    check = compile_check({**many, "additionalProperties": False})
    found = check.list_broken({"a": 1, "f1": "x", "z": 2, **{f"r{number}": 1 for number in range(WIDE - 1)}})
    told = [("required", (), f"r{WIDE - 1}"), ("required", (), f"r{WIDE}"), ("type", ("f1",), None)]
    told += [("false", ("z",), None), ("type", ("a",), None)]
    assert sorted(told, key=str) == sorted(
        [(entry.keyword, entry.path, entry.detail) for entry in found if entry.keyword != "additionalProperties"],
        key=str,
    )
    assert [("f1",), ("z",), ("a",)] == [entry.path for entry in found if entry.path]


@pytest.mark.parametrize("beside", BESIDES, ids=str)
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_the_key_that_names_a_branch_is_not_all_that_counts(keyword: str, beside: dict[str, Any]) -> None:
    first = {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}
    other = {"type": "object", "properties": {"kind": {"enum": ["b", "c"]}}, "required": ["kind"], **beside}
    schema = {keyword: [first, other]}
    check, oracle = compile_check(schema), jsonschema.Draft202012Validator(schema)
    for kind in ("a", "b", "c", "", 1, None):
        for value in ({"kind": kind}, {"kind": kind, "b": 1}):
            assert oracle.is_valid(value) is check.accepts(value) is (check.list_broken(value) == [])


@SETTINGS
@given(documents(unevaluated=True))
def test_unevaluated_keywords_give_the_verdict_of_jsonschema_rs(drawn: tuple[dict[str, Any], Any, str]) -> None:
    schema, value, draft = drawn
    # In 2019-09 `contains` leaves no annotation (core 9.3.1.3); jsonschema-rs reads it as 2020-12 does.
    assume(not ("2019-09" in draft and "contains" in json.dumps(schema)))
    check = _compiled(schema)
    ours = parse(json.dumps(value).encode())
    assert DRAFTS[draft][1](schema).is_valid(value) is check.accepts(ours)
    assert check.accepts(ours) is (check.list_broken(ours) == [])


@SETTINGS
@given(documents(unevaluated=False), st.data())
def test_a_node_accepts_what_its_schema_accepts(drawn: tuple[dict[str, Any], Any, str], data: st.DataObject) -> None:
    schema, value, draft = drawn
    check = _compiled(schema)
    node = data.draw(st.sampled_from(list(check.schemas.nodes())))
    assume(isinstance(node.raw, dict))
    alone = {"$schema": draft, "allOf": [make_exact(node.raw, Draft.D2020)], "definitions": schema["definitions"]}
    assume(not any(step == "$ref" for step in node.raw) or draft.endswith("schema"))
    assume('"#"' not in json.dumps(schema["definitions"]))
    assert DRAFTS[draft][1](alone).is_valid(value) is check.accepts_at(node, parse(json.dumps(value).encode()))

"""The graph of nodes: drafts, references, identifiers, and the errors of an unusable schema."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.schema.drafts import Draft, SchemaError
from proxy.core.schema.nodes import Schemas


def root(schema: Any, **documents: Any) -> Any:
    return Schemas(schema, {f"https://example.org/{name}": document for name, document in documents.items()}).root


def test_a_schema_without_a_dialect_is_2020_12() -> None:
    assert Draft.D2020 is root({}).draft


def test_an_unknown_dialect_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(SchemaError, match="use one of drafts 4, 6, 7, 2019-09, 2020-12") as caught:
        Schemas({"$schema": "https://example.org/mine"})
    assert ("$schema",) == caught.value.path


def test_a_draft_passes_over_keywords_it_does_not_know() -> None:
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "const": 1, "contains": {}, "minimum": 2}
    assert {"$schema", "minimum"} == set(root(schema).keywords)


def test_siblings_of_a_reference_count_from_2019_09_on() -> None:
    schema = {"$ref": "#/definitions/a", "type": "string", "definitions": {"a": {}}}
    old = root({"$schema": "http://json-schema.org/draft-07/schema#", **schema})
    assert ({"$ref"}, {"$ref", "type", "definitions"}) == (set(old.keywords), set(root(schema).keywords))


def test_two_references_to_one_place_give_the_same_node() -> None:
    node = root({"properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}})
    assert node.properties["a"].reference is node.properties["b"].reference


def test_a_reference_goes_below_an_identifier_and_by_an_anchor() -> None:
    inner = {"$id": "https://example.org/folder/inner", "$anchor": "here", "$defs": {"n": {"type": "null"}}}
    node = root({"$ref": "https://example.org/folder/inner#/$defs/n", "$defs": {"i": inner}})
    assert frozenset(("null",)) == node.reference.types
    assert root({"$ref": "https://example.org/folder/inner#here", "$defs": {"i": inner}}).reference.raw == inner


def test_a_relative_identifier_moves_the_base_once() -> None:
    schema = {
        "$id": "https://example.org/",
        "properties": {"a": {"$id": "folder/", "$ref": "x.json", "$defs": {"x": {"$id": "x.json", "type": "null"}}}},
    }
    assert frozenset(("null",)) == root(schema).properties["a"].reference.types


def test_an_identifier_in_an_enum_is_a_value() -> None:
    node = root({"enum": [{"$id": "https://example.org/x", "type": "null"}], "$ref": "https://example.org/x"}, x={})
    assert {} == node.reference.raw


def test_a_document_is_only_read_when_a_reference_leads_to_it() -> None:
    schemas = Schemas({"type": "string"}, {"https://example.org/broken": {"$schema": "unknown"}})
    assert {schemas.base} == schemas.reached


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("#/$defs/none", "leads nowhere"),
        ("#none", "names an anchor that is not there"),
        ("https://example.org/none", "leads to a document that is not there"),
        ("#/$defs/x/title", "leads to something that is not a schema"),
    ],
)
def test_locates_a_reference_without_target(reference: str, message: str) -> None:
    schemas = Schemas({"properties": {"a": {"$ref": reference}}, "$defs": {"x": {"title": "t"}}})
    with pytest.raises(SchemaError, match=message) as caught:
        schemas.check_references()
    assert ("properties", "a", "$ref") == caught.value.path


def test_items_mean_what_the_draft_says() -> None:
    written = {"items": [{"type": "null"}], "additionalItems": {"type": "string"}}
    old = root({"$schema": "http://json-schema.org/draft-07/schema#", **written})
    new = root({"prefixItems": [{"type": "null"}], "items": {"type": "string"}})
    for node in (old, new):
        assert (frozenset(("null",)), frozenset(("string",))) == (node.item(0).types, node.item(1).types)


def test_a_schema_nested_deeper_than_any_real_one_is_refused() -> None:
    schema: Any = {}
    for _ in range(3000):
        schema = {"not": schema}
    with pytest.raises(SchemaError, match="deeper than 400"):
        Schemas(schema)

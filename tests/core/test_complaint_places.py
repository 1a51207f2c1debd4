"""The places that a tool's error means: inside lists whose index it leaves out, and only where the schema agrees."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

from proxy.core.json.jsontext import dumps, format_pointer
from proxy.core.model.values import JsonValue
from proxy.core.tool_errors.complaints import Complaint
from tests.core.test_complaints import found, told

GO: Final = "json: cannot unmarshal {} into Go struct field Order.{} of type {}"
INTEGER: Final = {"type": "integer"}


def expected(complaint: Complaint | None) -> list[tuple[str, str]]:
    assert complaint is not None
    return [(format_pointer(violation.path), violation.expected) for violation in complaint.violations]


def order(item: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"items": {"type": "array", "items": item}}, "required": ["items"]}


@pytest.mark.parametrize(
    ("field", "items", "places"),
    [
        ("items.qty", [{"qty": 1}, {"qty": "x"}], ["/items/1/qty"]),
        ("items.qty", [{"qty": "y"}, {"qty": "x"}], ["/items/0/qty", "/items/1/qty"]),
        ("items.price.v", [{"price": {"v": "a"}}, {"price": {"v": "b"}}], ["/items/0/price/v", "/items/1/price/v"]),
        ("items.lines.qty", [{"lines": [{"qty": "a"}]}, {"lines": [{"qty": "b"}, {"qty": 2}]}],
         ["/items/0/lines/0/qty", "/items/1/lines/0/qty"]),
        ("items.qty", [[{"qty": "a"}], [{"qty": "b"}]], ["/items/0/0/qty", "/items/1/0/qty"]),
        ("items", ["a", 1, "b"], ["/items/0", "/items/2"]),
        ("qty", [{"qty": "a"}, {"qty": "b"}], ["/items/0/qty", "/items/1/qty"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("item", [{}, None])
def test_names_every_item_that_fits_if_go_leaves_out_the_index(
    item: object, field: str, items: object, places: list[str]
) -> None:
    schema = None if item is None else order(item)
    complaint = told(GO.format("string", field, "int"), {"customer": "a", "items": items}, schema)
    assert [(place, "integer") for place in places] == expected(complaint)


def test_names_no_place_if_nothing_there_has_the_reported_type() -> None:
    complaint = told(GO.format("string", "items.qty", "int"), {"items": [{"qty": 1}, {"qty": 2}]}, order({}))
    assert complaint is not None
    assert ((), True) == (complaint.violations, complaint.type_related)


def test_names_the_inner_lists_if_the_schema_takes_the_outer_one() -> None:
    sent = {"items": [["a"], "b"]}
    assert [("/items/0", "string")] == expected(told(GO.format("array", "items", "string"), sent, order({})))


@pytest.mark.parametrize(
    ("words", "schema", "sent"),
    [
        (GO.format("string", "qty", "int"), {"qty": {"type": "string"}}, {"qty": "two"}),
        (GO.format("number", "items.name", "string"), order({"properties": {"name": INTEGER}})["properties"],
         {"items": [{"name": 5}, {"name": 6}]}),
        (GO.format("string", "items", "int"), {"items": {"type": "string"}}, {"items": "a"}),
        ("units must be a number", {"units": {"enum": ["metric", "imperial"]}}, {"units": "metric"}),
        ("either must be a string", {"either": {"anyOf": [INTEGER, {"type": "null"}]}}, {"either": 3}),
    ],
)  # fmt: skip
def test_gives_only_the_tool_s_words_if_the_schema_rejects_the_type_it_wants(
    words: str, schema: object, sent: object
) -> None:
    complaint = told(words, sent, {"type": "object", "properties": schema})
    assert complaint is not None
    assert ((), True, True) == (complaint.violations, complaint.type_related, bool(complaint.words))


@pytest.mark.parametrize(("tool", "schema"), [("float64", "integer"), ("int", "number"), ("float64", "number")])
def test_takes_integers_for_numbers(tool: str, schema: str) -> None:
    complaint = told(
        GO.format("string", "qty", tool), {"qty": "x"}, {"properties": {"qty": {"type": [schema, "string"]}}}
    )
    assert ["/qty"] == [place for place, _ in expected(complaint)]


def test_does_not_ask_for_a_key_that_the_schema_rejects() -> None:
    closed = {"type": "object", "properties": {"lat": {}}, "additionalProperties": False}
    words = "missing field `country` at line 1 column 9"
    complaint = told(words, {"lat": 1}, closed)
    assert complaint is not None
    assert ((), "missing field `country`") == (complaint.violations, complaint.words)
    assert [("VAL-001", "/country")] == found(told(words, {"lat": 1}, {**closed, "additionalProperties": True}))


def test_does_not_advise_to_leave_out_a_key_that_the_schema_requires() -> None:
    schema = {"type": "object", "properties": {"lat": {}}, "required": ["lat"]}
    complaint = told('json: unknown field "lat"', {"lat": 1}, schema)
    assert complaint is not None
    assert () == complaint.violations
    assert [("VAL-005", "/lat")] == found(told('json: unknown field "lat"', {"lat": 1}, {**schema, "required": []}))


def test_says_no_type_or_length_of_a_list_if_the_tool_means_an_unknown_item() -> None:
    sent = {"items": [{"name": "a"}, {"name": "b"}]}
    complaint = told("items.name must be at least 3 characters", sent, order({}))
    assert complaint is not None
    (violation,) = complaint.violations
    assert ("VAL-003", ("items",), "The tool refuses this value", "") == (
        violation.code.name, violation.path, violation.message, violation.expected,
    )  # fmt: skip
    assert "The tool says: items.name must be at least 3 characters" == violation.hint


def test_repeats_the_place_that_a_framework_writes_if_it_is_inside_a_list() -> None:
    body = dumps({"errors": [{"field": "items.name", "message": "too short"}]}).decode()
    complaint = told(body, {"items": [{"name": "a"}, {"name": "b"}]}, order({}))
    assert complaint is not None
    assert ["The tool says: items.name: too short"] == [violation.hint for violation in complaint.violations]


def test_says_no_type_of_a_container_if_several_values_inside_fit() -> None:
    body = dumps({"error": {"formErrors": [], "fieldErrors": {"items": ["Expected number, received string"]}}}).decode()
    complaint = told(body, {"items": [{"a": "x"}, {"b": "y"}]}, order({}))
    assert [("VAL-003", "/items")] == found(complaint)
    assert [("VAL-002", "/items/0/a")] == found(told(body, {"items": [{"a": "x"}]}, order({})))


def test_finds_the_items_of_each_value_in_a_list() -> None:
    words = "each value in tags must be a string"
    assert [("VAL-002", "/tags/1")] == found(told(words, {"tags": ["a", 1]}))


def test_names_no_place_if_a_key_is_in_different_objects() -> None:
    sent = {"a": {"id": 1}, "b": {"id": 2}}
    complaint = told('json: unknown field "id"', sent)
    assert complaint is not None
    assert () == complaint.violations
    schema: JsonValue = {"properties": {"a": {"properties": {"id": {}}}, "b": {"properties": {"no": {}}}}}
    assert [("VAL-005", "/b/id")] == found(told('json: unknown field "id"', sent, schema))


def test_names_every_item_that_lacks_a_key() -> None:
    sent = {"items": [{"sku": 1}, {}, {}]}
    items: tuple[JsonValue, ...] = ({"properties": {"sku": {}}}, {})
    for item in items:
        body = dumps({"errors": [{"field": "items.sku", "message": "is required"}]}).decode()
        assert [("VAL-001", "/items/1/sku"), ("VAL-001", "/items/2/sku")] == found(told(body, sent, order(item)))


def test_reads_a_place_in_a_long_list_in_bounded_time() -> None:
    sent = {"items": [{"lines": [{"qty": "a"}] * 5}] * 5000}
    check = order({"properties": {"lines": {"items": {"properties": {"qty": {}}}}}})
    body = dumps({"errors": [{"field": "items.lines.qty", "message": f"must be {n}"} for n in range(40)]}).decode()
    started = time.process_time()
    told(body, sent, check)
    assert time.process_time() - started < 4

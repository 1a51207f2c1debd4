"""The repair engine: every keyword a value can be reached through, one meaning or none, and a bound on the work."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pytest

from proxy.core.check.validation import Check, compile_check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.json.jsontext import dumps, parse
from proxy.core.model.values import JsonValue, Repair
from proxy.core.model.work import call_budget, share_work
from proxy.core.repair import fast_repair
from proxy.core.repair.engine import Repaired, repair
from proxy.core.rules.rules import select_rules
from tests.core.repairing import obj, outcome, repairs

INT: Final[JsonValue] = {"type": "integer"}
NUM: Final[JsonValue] = {"type": "number"}
BOOL: Final[JsonValue] = {"type": "boolean"}
STR: Final[JsonValue] = {"type": "string"}
NULL: Final[JsonValue] = {"type": "null"}
D7: Final = "http://json-schema.org/draft-07/schema#"


def arr(items: JsonValue) -> JsonValue:
    return {"type": "array", "items": items}


def kind(name: str, **properties: JsonValue) -> JsonValue:
    return {"type": "object", "properties": {"kind": {"const": name}, **properties}, "required": ["kind"]}


SHAPES: Final[JsonValue] = {"oneOf": [kind("circle", r=NUM), kind("square", side=INT, r=STR)]}
TREE: Final[JsonValue] = {
    "$ref": "#/$defs/tree",
    "$defs": {"tree": obj(value=INT, children=arr({"$ref": "#/$defs/tree"}))},
}


# --- every keyword --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("keyword", "schema", "sent", "expected"),
    [
        ("properties", obj(a=obj(b=obj(c=INT))), '{"a":{"b":{"c":"1"}}}', '{"a":{"b":{"c":1}}}'),
        ("items", obj(a=arr(arr(INT))), '{"a":[["1",2],["3"]]}', '{"a":[[1,2],[3]]}'),
        ("items at the root", arr(BOOL), '["true",false]', "[true,false]"),
        ("prefixItems", {"prefixItems": [INT, BOOL], "items": NUM}, '["1","true","1.5"]', "[1,true,1.5]"),
        ("a tuple of draft 7", {"$schema": D7, "items": [INT, BOOL], "additionalItems": NUM},
         '["1","true","1.5"]', "[1,true,1.5]"),
        ("additionalProperties", {"type": "object", "additionalProperties": INT}, '{"x":"1","y":2}', '{"x":1,"y":2}'),
        ("patternProperties", {"patternProperties": {"^n_": INT}, "additionalProperties": BOOL},
         '{"n_1":"1","x":"true"}', '{"n_1":1,"x":true}'),
        ("two patterns at once", {"patternProperties": {"a": {"type": ["integer", "boolean"]}, "b": INT}},
         '{"ab":"1"}', '{"ab":1}'),
        ("a pattern beside a property", {"properties": {"n": NUM}, "patternProperties": {"^n$": {"multipleOf": 1}}},
         '{"n":"2"}', '{"n":2}'),
        ("unevaluatedProperties", {"properties": {"a": STR}, "unevaluatedProperties": INT},
         '{"a":"1","b":"1"}', '{"a":"1","b":1}'),
        ("$ref", {"$defs": {"n": INT}, "properties": {"a": {"$ref": "#/$defs/n"}}}, '{"a":"1"}', '{"a":1}'),
        ("a chain of $ref", {"$defs": {"n": {"$ref": "#/$defs/m"}, "m": INT},
         "properties": {"a": {"$ref": "#/$defs/n"}}},
         '{"a":"1"}', '{"a":1}'),
        ("$ref with a sibling", {"$defs": {"n": NUM}, "properties": {"a": {"$ref": "#/$defs/n", "maximum": 5}}},
         '{"a":"4"}', '{"a":4}'),
        ("recursion", TREE, '{"value":"1","children":[{"value":"2","children":"[]"}]}',
         '{"value":1,"children":[{"value":2,"children":[]}]}'),
        ("allOf", {"allOf": [obj(a=INT), obj(b=BOOL)]}, '{"a":"1","b":"true"}', '{"a":1,"b":true}'),
        ("allOf on one value", obj(a={"allOf": [INT, {"minimum": 3}]}), '{"a":"4"}', '{"a":4}'),
        ("allOf beside type", obj(a={"type": "number", "allOf": [{"multipleOf": 2}]}), '{"a":"4"}', '{"a":4}'),
        ("anyOf of scalars", obj(a={"anyOf": [INT, NULL]}), '{"a":"4"}', '{"a":4}'),
        ("anyOf of a list and null", obj(a={"anyOf": [arr(INT), NULL]}), '{"a":"[\\"4\\"]"}', '{"a":[4]}'),
        ("anyOf of objects", {"anyOf": [{**obj(a=INT), "required": ["a"]}, {**obj(b=BOOL), "required": ["b"]}]},
         '{"b":"true"}', '{"b":true}'),
        ("oneOf with a discriminator", SHAPES, '{"kind":"circle","r":"2.50"}', '{"kind":"circle","r":2.50}'),
        ("the discriminator itself", SHAPES, '{"kind":"Square","side":"2"}', '{"kind":"square","side":2}'),
        ("anyOf inside allOf", {"allOf": [SHAPES, obj(name=STR)]}, '{"kind":"circle","r":"1","name":"1"}',
         '{"kind":"circle","r":1,"name":"1"}'),
        ("a union below a union", {"anyOf": [{"anyOf": [arr(INT), obj(a=INT)]}, NULL]}, '{"a":"1"}', '{"a":1}'),
        ("a list of unions", arr(SHAPES), '[{"kind":"circle","r":"1"},{"kind":"square","side":"1"}]',
         '[{"kind":"circle","r":1},{"kind":"square","side":1}]'),
        ("a list of types", obj(a={"type": ["integer", "null"]}), '{"a":"5"}', '{"a":5}'),
        ("if and then", {"properties": {"k": STR}, "if": {"properties": {"k": {"const": "n"}}, "required": ["k"]},
                         "then": {"properties": {"v": INT}}, "else": {"properties": {"v": BOOL}}},
         '{"k":"n","v":"1"}', '{"k":"n","v":1}'),
        ("else", {"properties": {"k": STR}, "if": {"properties": {"k": {"const": "n"}}, "required": ["k"]},
                  "then": {"properties": {"v": INT}}, "else": {"properties": {"v": BOOL}}},
         '{"k":"m","v":"1"}', '{"k":"m","v":true}'),
        ("a branch that the repair leaves", {"properties": {"k": {"enum": ["note", "task"]}},
         "if": {"properties": {"k": {"const": "note"}}}, "else": {"properties": {"v": BOOL}}},
         '{"k":"Note","v":"true"}', '{"k":"note","v":"true"}'),
        ("dependentSchemas", {"dependentSchemas": {"a": {"properties": {"b": INT}}}}, '{"a":1,"b":"2"}',
         '{"a":1,"b":2}'),
        ("dependencies of draft 7", {"$schema": D7, "dependencies": {"a": {"properties": {"b": INT}}}},
         '{"a":1,"b":"2"}', '{"a":1,"b":2}'),
        ("not", obj(a={"type": "integer", "not": {"const": 3}}), '{"a":"4"}', '{"a":4}'),
        ("JSON text in JSON text", obj(a=obj(b=arr(INT))), '{"a":"{\\"b\\":\\"[\\\\\\"1\\\\\\"]\\"}"}',
         '{"a":{"b":[1]}}'),
        ("numbers in JSON text keep their text", obj(a=arr(NUM)), '{"a":"[1.10, 1e3]"}', '{"a":[1.10,1e3]}'),
        ("a wrapped object is repaired no further", obj(a=arr(obj(b=INT))), '{"a":{"b":1}}', '{"a":[{"b":1}]}'),
    ],
)  # fmt: skip
def test_a_value_is_repaired_through_every_keyword(keyword: str, schema: JsonValue, sent: str, expected: str) -> None:
    assert expected == outcome(schema, sent), keyword
    assert expected == outcome(schema, expected), keyword


@pytest.mark.parametrize(
    ("reason", "schema", "sent", "codes"),
    [
        ("the value of `not`", obj(a={"type": "integer", "not": {"const": 3}}), '{"a":"3"}', "VAL-002 /a"),
        ("uniqueItems after repair", arr(INT) | {"uniqueItems": True}, '["1",1]', "VAL-006"),
        ("two branches after repair", {"anyOf": [{**obj(a=INT), "required": ["a"]}, {**obj(a=BOOL),
         "required": ["a"]}]},
         '{"a":"1"}', "VAL-012"),
        ("oneOf that both branches take", {"oneOf": [obj(a=INT), obj(a=NUM)]}, '{"a":"1"}', "VAL-011"),
        ("a wrapped value that needs repair", obj(a=arr(INT)), '{"a":"5"}', "VAL-002 /a"),
        ("JSON text of the wrong type", obj(a=arr(INT)), '{"a":"{}"}', "VAL-002 /a"),
        ("a part of JSON text that is wrong", obj(a=arr(INT)), '{"a":"[1,\\"x\\"]"}', "VAL-002 /a/1"),
        ("an `if` that the repair would turn over",
         {"properties": {"a": {"type": ["integer", "string"]}, "b": True},
         "if": {"properties": {"b": {"type": "string"}}},
          "then": {"properties": {"b": INT}}}, '{"b":"1"}', "VAL-002 /b"),
    ],
)  # fmt: skip
def test_rejects_a_value_without_one_meaning(reason: str, schema: JsonValue, sent: str, codes: str) -> None:
    assert codes in outcome(schema, sent), reason


def test_a_branch_that_takes_the_value_as_it_is_wins() -> None:
    schema: JsonValue = {"anyOf": [obj(a=INT), obj(a=STR)]}
    assert '{"a":"1"}' == outcome(schema, '{"a":"1"}')
    schema = {"anyOf": [obj(a=INT), obj(a=STR)], **obj(b=arr({"enum": ["x"]}))}
    assert '{"a":"1","b":["x"]}' == outcome(schema, '{"a":"1","b":"x"}')


# --- lessons that kept "wrong and accepted" at zero -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("lesson", "schema", "sent"),
    [
        ("two words in a place of several values have no separator", obj(tags=STR), '{"tags":["a","b"]}'),
        ("a description that speaks of several values tells as much",
         obj(q={"type": "string", "description": "Comma-separated names"}), '{"q":["a","b"]}'),
        ("a wrapper beside another key may be a real argument", {**obj(a=INT), "required": ["a"]},
         '{"arguments":{"a":1},"dry_run":true}'),
        ("a wrapper and the outer object both have a meaning",
         {"type": "object", "properties": {"a": INT, "b": INT}, "additionalProperties": {"type": ["object",
         "integer"]}},
         '{"a":"1","x":{"a":2}}'),
        ("two objects are two calls", {**obj(a=INT), "required": ["a"]}, '{"calls":[{"a":1},{"a":2}]}'),
        ("Python joins texts where a model forgot a comma", obj(a=arr(STR)), "{\"a\":\"['x' 'y']\"}"),
        ("a quote in the text may be another string's", obj(a=STR), '{"a":"x","b":"y"z"}'),
        ("a list of a list is not one value", obj(a=STR), '{"a":[["x"]]}'),
    ],
)  # fmt: skip
def test_lessons_of_the_corpora_hold_at_lenient(lesson: str, schema: JsonValue, sent: str) -> None:
    made = outcome(schema, sent, "lenient")
    assert "VAL-0" in made or made in (sent, '{"a":1,"x":{"a":2}}'), lesson


def test_one_chunk_is_a_text_even_if_several_values_are_meant() -> None:
    assert '{"tags":"a"}' == outcome(obj(tags=STR), '{"tags":["a"]}', "lenient")


def test_a_list_that_becomes_one_value_in_a_branch_is_gone_over_no_more() -> None:
    schema = obj(a={"anyOf": [INT, NULL], "multipleOf": 2})
    assert "VAL-003 /a" == outcome(schema, '{"a":[5]}', "lenient")
    assert '{"a":4}' == outcome(schema, '{"a":[4]}', "lenient")


# --- switches -------------------------------------------------------------------------------------------------------
def test_x_repair_off_protects_a_place_and_everything_below_it() -> None:
    schema: JsonValue = obj(a={**obj(b=INT), "x-repair": "off"}, c=INT)
    assert "VAL-002 /a/b" == outcome(schema, '{"a":{"b":"1"},"c":"1"}')
    assert '{"a":{"b":1},"c":1}' == outcome(schema, '{"a":{"b":1},"c":"1"}')
    assert "VAL-002 /a" == outcome(obj(a={"type": "integer", "x-repair": False}), '{"a":"1"}')


def test_x_repair_names_the_rules_that_stay_on() -> None:
    schema: JsonValue = obj(
        a={"type": "integer", "x-repair": ["string_to_integer"]}, b={"type": "integer", "x-repair": "on"}
    )
    assert '{"a":1}' == outcome(schema, '{"a":"1"}')
    assert "VAL-002 /a" == outcome(schema, '{"a":null}')
    assert "{}" == outcome(schema, '{"b":null}')
    assert '{"a":3.0}' == outcome(schema, '{"a":3.0}')


def test_a_list_of_rules_turns_on_nothing_the_level_leaves_off() -> None:
    schema: JsonValue = obj(a={"type": "boolean", "x-repair": ["yes_no"]})
    assert "VAL-002 /a" == outcome(schema, '{"a":"yes"}', "standard")
    assert '{"a":true}' == outcome(schema, '{"a":"yes"}', "lenient")


# --- the books ------------------------------------------------------------------------------------------------------
def test_every_repair_is_recorded_with_its_place_and_never_its_value() -> None:
    schema: JsonValue = {**obj(start_date=STR, items=arr(obj(n=INT)), x=BOOL), "additionalProperties": False}
    sent = '{"startDate":"s","items":"[{\\"n\\":\\"1\\"}]","x":null}'
    assert [
        "key_case /startDate",
        "parse_json_string /items",
        "string_to_integer /items/0/n",
        "drop_null_optional /x",
    ] == (repairs(schema, sent))


def test_text_repairs_inside_a_string_are_recorded_too() -> None:
    made = repairs(obj(a=obj(b=BOOL)), '{"a":"{\\"b\\": True,}"}', "lenient")
    assert ["parse_json_string /a", "python_literals /a", "trailing_commas /a"] == made


def test_never_changes_the_sent_value_itself() -> None:
    value = parse(b'{"a":["1",{"b":null}],"C":"x"}')
    before = dumps(value)
    check = compile_check({**obj(a=arr(True), c=INT), "additionalProperties": False})
    made = repair(check, value, RepairPolicy(select_rules("lenient")))
    assert before == dumps(value)
    assert not made.accepted


def test_a_repr_shows_no_value() -> None:
    shown = repr(Repaired({"password": "hunter2"}, (Repair("key_case", ("a",)),), True))
    assert "hunter2" not in shown


# --- bounds ---------------------------------------------------------------------------------------------------------
def test_a_call_that_takes_too_much_work_is_given_up_and_left_as_it_was() -> None:
    check = compile_check(arr(INT))
    value = ["1"] * 1000
    assert Repaired(value, (), False, exhausted=True) == repair(
        check, value, RepairPolicy(select_rules("standard")), 5000
    )
    assert repair(check, value, RepairPolicy(select_rules("standard"))).accepted


@pytest.mark.parametrize("limit", [0, 1, 10, 100, 1000])
def test_wherever_the_work_ends_nothing_half_repaired_is_accepted(limit: int) -> None:
    check = compile_check(TREE)
    value = parse(b'{"value":"1","children":[{"value":"2"},{"value":"3","children":"[{}]"}]}')
    made = repair(check, value, RepairPolicy(select_rules("lenient")), limit)
    assert made.accepted is (made.exhausted is False)
    assert check.accepts(made.value) is made.accepted


# --- the quick way --------------------------------------------------------------------------------------------------
PLACES: Final[tuple[JsonValue, ...]] = (
    INT, NUM, BOOL, STR, NULL, arr(INT), arr(STR), obj(a=INT), {}, False, {"type": ["integer", "null"]},
    {"type": ["boolean", "number"]}, {"enum": ["red", "dark_blue", "True", None, 5]}, {"const": 7},
    {"type": "integer", "maximum": 5}, {"type": "string", "minLength": 2, "maxLength": 2}, {"anyOf": [INT, BOOL]},
    {"type": "string", "format": "date"}, {"type": "string", "format": "uuid"}, {**obj(), "x-repair": "off"},
    {"type": "number", "x-repair": ["string_to_number"]}, {"type": "string", "contentMediaType": "application/json"},
    {"enum": [f"word_{number}" for number in range(40)]},
)  # fmt: skip
SENT: Final[tuple[JsonValue, ...]] = (
    "1", " 2 ", "9", "1.50", "1e400", "-0", "007", "'5'", '"true"', "true", "True", "0", "yes", "null", "None", "",
    "red", "Dark Blue", "WORD_7", "2026/01/15", "[1,2]", '{"a":"1"}', "[1,", "a,b", "1,000,000", ".5", "x" * 120,
    "7" * 120, 1, 0, 7.0, 12, 1.5, True, False, None, [], ["1"], {"a": "1"}, {"value": "7"},
)  # fmt: skip


@lru_cache
def compiled(schema: bytes) -> Check:
    return compile_check(parse(schema))


def work_and_result(schema: JsonValue, sent: JsonValue, level: str, limit: int) -> tuple[object, ...]:
    check = compiled(dumps(schema))
    with share_work(limit):
        found = repair(check, sent, RepairPolicy(select_rules(level)), tool="t", refused=not check.accepts(sent))
        budget = call_budget.get()
        assert budget is not None
        open_places = [each.path for each in found.ambiguous]
        return budget.left, dumps(found.value), found.repairs, found.accepted, open_places, found.exhausted


@pytest.mark.parametrize("level", ["basic", "standard", "lenient"])
@pytest.mark.parametrize("limit", [25, 60, 400, 20_000])
def test_the_quick_way_repairs_as_the_engine_does(monkeypatch: pytest.MonkeyPatch, level: str, limit: int) -> None:
    places: dict[str, JsonValue] = {f"p{number}": place for number, place in enumerate(PLACES)}
    schema: JsonValue = {"type": "object", "properties": {**places, "name": STR, "arguments": STR}, "minProperties": 2}
    calls: list[JsonValue] = [{key: sent, "name": "t"} for key in places for sent in SENT]
    calls += [{**dict.fromkeys(places, sent), "p0": "3"} for sent in SENT]
    calls += [{"p0": "1", "p1": one, "p2": "true"} for one in SENT] + [{"name": "t", "arguments": '{"p0":"1"}'}, {}, []]
    for closed in (schema, {**obj(**dict.fromkeys(places, INT)), "required": ["p1"], "maxProperties": 3}):
        for sent in calls:
            monkeypatch.setattr(fast_repair, "ON", True)
            quick = work_and_result(closed, sent, level, limit)
            monkeypatch.setattr(fast_repair, "ON", False)
            assert quick == work_and_result(closed, sent, level, limit), sent

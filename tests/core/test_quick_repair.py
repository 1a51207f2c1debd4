"""Generated quick repairs beside the repair engine: the same value and numbers, and the same repairs, or none."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from proxy.core.check.validation import Check, compile_check
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
from proxy.core.decide import decide
from proxy.core.json.jsontext import LosslessFloat, dumps, parse
from proxy.core.model import codes
from proxy.core.model.values import (
    ABSENT,
    Conversation,
    Decision,
    Document,
    Forward,
    JsonValue,
    Reject,
    Repair,
    Rung,
    ToolCall,
)
from proxy.core.repair import fast_repair
from proxy.core.repair.engine import repair
from proxy.core.repair.fast_repair import repair_quickly
from proxy.core.rules.rules import LEVELS, PLUMBING_KEYS, select_rules
from tests.core.repairing import obj
from tests.core.test_properties import compiled, sendings
from tests.corpora.generate import as_text, random_value

THOROUGH = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def policy(level: str) -> RepairPolicy:
    return RepairPolicy(select_rules(level, {}), PLUMBING_KEYS if level == "lenient" else frozenset())


def typed(value: JsonValue) -> Any:
    """A value with the exact type and spelling of each number, in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return [(key, typed(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [typed(item) for item in value]
    return type(value), bytes(value) if isinstance(value, LosslessFloat) else value


def same_as_the_engine(check: Check, value: JsonValue, level: str) -> bool:
    """Whether the quick repair had a word on a refused value; then it must be the engine's."""
    before = copy.deepcopy(typed(value))
    short = repair_quickly(check, value, policy(level))
    assert before == typed(value)
    if short is None:
        return False
    long = repair(check, value, policy(level))
    assert (True, typed(long.value), long.repairs) == (long.accepted, typed(short[0]), short[1])
    return True


@THOROUGH
@given(sendings(), st.sampled_from(LEVELS))
def test_whatever_a_quick_repair_makes_the_engine_makes_too(drawn: tuple[JsonValue, JsonValue], level: str) -> None:
    schema, sent = drawn
    check = compiled(schema)
    value = parse(dumps(sent))
    if not check.accepts(value):
        same_as_the_engine(check, value, level)


# --- schemas of the kind quick repairs know, with now and then a keyword that they must not enter -------------------
KEYS = ("a", "b", "startDate", "kind", "n", "arguments", "where")
NOISE: tuple[dict[str, Any], ...] = (
    {"x-null": "drop"}, {"x-null": "refuse"}, {"x-repair": "off"},
    {"x-repair": ["string_to_integer", "integral_float"]}, {"minProperties": 2},
    {"if": {}, "then": {}},
    {"allOf": [{"properties": {"a": {"type": "integer"}}}]}, {"patternProperties": {"^a": {"type": "boolean"}}},
    {"additionalProperties": False}, {"additionalProperties": {"type": "number"}}, {"not": {"required": ["n"]}},
    {"required": ["a"]}, {"enum": [1, "1", True, None]}, {"minimum": 2}, {"minItems": 2}, {"uniqueItems": True},
    {"dependentSchemas": {"a": {"properties": {"b": {"type": "integer"}}}}}, {"default": 5}, {"maxLength": 2},
    {"prefixItems": [{"type": "integer"}]}, {"unevaluatedProperties": False},
)  # fmt: skip
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["integer", "number", "boolean", "string"]).map(lambda kind: {"type": kind}),
    st.sampled_from(["integer", "number", "boolean", "array"]).map(lambda kind: {"type": [kind, "null"]}),
    st.sampled_from([{"enum": ["one", "two"]}, {"enum": ["Aa", "aA"]}, {"const": 5}, {}, {"$ref": "#/$defs/tree"}]),
    st.sampled_from(["integer", "string"]).map(lambda kind: {"anyOf": [{"type": kind}, {"type": "null"}]}),
    st.just({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}),
)


def holders(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas around a schema."""
    members = st.dictionaries(st.sampled_from(KEYS), inner, min_size=1, max_size=4)
    objects = members.map(lambda properties: {"type": "object", "properties": properties})
    return st.one_of(
        objects,
        objects,
        inner.map(lambda schema: {"type": "array", "items": schema}),
        inner.map(lambda schema: {"type": "object", "additionalProperties": schema}),
        inner.map(lambda schema: {"anyOf": [schema, {"type": "null"}]}),
        st.tuples(members, members, st.sampled_from(["oneOf", "anyOf"])).map(tagged),
        st.tuples(inner, st.sampled_from(NOISE)).map(lambda pair: {**pair[0], **pair[1]}),
    )


def tagged(drawn: tuple[dict[str, Any], dict[str, Any], str]) -> dict[str, Any]:
    """Two branches told apart by `kind`."""
    branches = [
        {"type": "object", "properties": {**properties, "kind": {"const": name}}, "required": ["kind"]}
        for name, properties in zip(("disc", "Disc"), drawn[:2], strict=True)
    ]
    return {drawn[2]: branches}


TREE = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "b": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
}
PLAIN = st.recursive(LEAVES, holders, max_leaves=6).map(lambda schema: {"$defs": {"tree": TREE}, **schema})
DRAFTS = ("http://json-schema.org/draft-04/schema#", "https://json-schema.org/draft/2020-12/schema")


@st.composite
def slips(draw: st.DrawFn) -> tuple[JsonValue, JsonValue]:
    """A schema that quick repairs mostly know, and a valid value with some of what models do to one."""
    schema = {"$schema": draw(st.sampled_from(DRAFTS)), **draw(PLAIN)}
    check, chance = compiled(schema), Random(draw(st.integers(0, 10**6)))
    right = random_value(check, chance)
    assume(right is not ABSENT)
    sent = as_text(check, right, chance, draw(st.sampled_from([0.3, 1.0])))
    return schema, slipped(sent, chance, draw(st.sampled_from([0.0, 0.1, 0.3])))


SLIPS: tuple[JsonValue, ...] = (
    None, "", "None", "undefined", "007", "1.000", "1e30",
    " 7 ", "+3", "1.0", "-0", "true", "ONE", "null", 5, True, LosslessFloat(b"3.0"), LosslessFloat(b"0.5"),
    "[1]", '{"n":"1"}',
)  # fmt: skip


def slipped(value: JsonValue, chance: Random, share: float) -> JsonValue:
    """The value with some of its parts as null, as nothing, as text or as a number, and some keys in another order."""
    if isinstance(value, dict):
        keys = [*value, *(chance.choice(KEYS) for _ in range(chance.random() < share))]
        chance.shuffle(keys)
        return {key: slipped(value.get(key), chance, share) for key in keys}
    if isinstance(value, list):
        return [slipped(item, chance, share) for item in value]
    if chance.random() >= share:
        return value
    return chance.choice(SLIPS)


@THOROUGH
@given(slips(), st.sampled_from(LEVELS[1:]))
def test_what_a_quick_repair_makes_of_common_slips_the_engine_makes_too(
    drawn: tuple[JsonValue, JsonValue], level: str
) -> None:
    schema, sent = drawn
    check = compiled(schema)
    value = parse(dumps(sent))
    if not check.accepts(value):
        same_as_the_engine(check, value, level)


CATALOGUE: dict[str, Any] = {
    "$defs": {
        "point": {**obj(x={"type": "integer"}, y={"type": "number"}), "required": ["x"]},
        "tree": obj(size={"type": "integer"}, below={"type": "array", "items": {"$ref": "#/$defs/tree"}}),
    },
    **obj(
        count={"type": "integer", "minimum": -5},
        ratio={"type": ["number", "null"]},
        flag={"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        name={"type": "string"},
        unit={"enum": ["celsius", "kelvin"]},
        at={"$ref": "#/$defs/point"},
        maybe={"anyOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]},
        tree={"$ref": "#/$defs/tree"},
        ids={"type": "array", "items": {"type": "integer"}},
        sizes={"type": "object", "additionalProperties": {"type": "number"}},
        shapes={
            "type": "array",
            "items": {
                "oneOf": [
                    {**obj(kind={"const": "disc"}, r={"type": "number"}), "required": ["kind", "r"]},
                    {**obj(kind={"const": "box"}, w={"type": "integer"}, h={"type": "integer"}), "required": ["kind"]},
                ]
            },
        },
        plain={**obj(n={"type": "integer"}), "x-repair": "off"},
        both={"allOf": [obj(n={"type": "integer"}), obj(m={"type": "boolean"})]},
    ),
}

# What each text or number of a place becomes; the value is sent as JSON, the answer is the JSON that goes on.
SENT = [
    ('{"count":"42"}', '{"count":42}', ["string_to_integer /count"]),
    ('{"count":" -4 "}', '{"count":-4}', ["string_to_integer /count"]),
    ('{"count":"1e3"}', '{"count":1000}', ["string_to_integer /count"]),
    ('{"count":"-0"}', '{"count":0}', ["string_to_integer /count"]),
    ('{"ratio":"00.50"}', '{"ratio":0.50}', ["string_to_number /ratio"]),
    ('{"ratio":"-0"}', '{"ratio":-0}', ["string_to_number /ratio"]),
    ('{"ratio":"-12.75"}', '{"ratio":-12.75}', ["string_to_number /ratio"]),
    ('{"ratio":"1E-7"}', '{"ratio":1E-7}', ["string_to_number /ratio"]),
    ('{"flag":"F","name":1.50}', '{"flag":false,"name":"1.50"}', ["string_to_boolean /flag", "number_to_string /name"]),
    ('{"name":7,"count":"1"}', '{"name":"7","count":1}', ["number_to_string /name", "string_to_integer /count"]),
    ('{"count":2.0,"flag":"t"}', '{"count":2,"flag":true}', ["string_to_boolean /flag", "integral_float /count"]),
    ('{"unit":" KELVIN "}', '{"unit":"kelvin"}', ["enum_case /unit"]),
    ('{"count":null,"at":null}', "{}", ["drop_null_optional /count", "drop_null_optional /at"]),
    ('{"count":"","name":"x"}', '{"name":"x"}', ["empty_optional /count"]),
    ('{"at":"{\\"x\\":\\"1\\"}"}', '{"at":{"x":1}}', ["parse_json_string /at", "string_to_integer /at/x"]),
    ('{"maybe":{"x":"1"}}', '{"maybe":{"x":1}}', ["string_to_integer /maybe/x"]),
    ('{"ids":["1",2,"3"]}', '{"ids":[1,2,3]}', ["string_to_integer /ids/0", "string_to_integer /ids/2"]),
    ('{"sizes":{"a":"1","b":"2.5"}}', '{"sizes":{"a":1,"b":2.5}}',
     ["string_to_number /sizes/a", "string_to_number /sizes/b"]),
    ('{"tree":{"below":[{"size":"1"}],"size":"2"}}', '{"tree":{"below":[{"size":1}],"size":2}}',
     ["string_to_integer /tree/below/0/size", "string_to_integer /tree/size"]),
    ('{"shapes":[{"kind":"disc","r":"1"},{"h":"3","kind":"box","w":"2"}]}',
     '{"shapes":[{"kind":"disc","r":1},{"h":3,"kind":"box","w":2}]}',
     ["string_to_number /shapes/0/r", "string_to_integer /shapes/1/h", "string_to_integer /shapes/1/w"]),
    ('"{\\"count\\":\\"5\\"}"', '{"count":5}', ["parse_json_string", "string_to_integer /count"]),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "right", "rules"), SENT)
def test_a_quick_repair_knows_the_obvious(sent: str, right: str, rules: list[str]) -> None:
    check, value = compile_check(CATALOGUE), parse(sent.encode())
    made = repair_quickly(check, value, policy("standard"))
    assert made is not None
    told = [" ".join(filter(None, (r.rule, "".join(f"/{step}" for step in r.path)))) for r in made[1]]
    assert (right, rules) == (dumps(made[0]).decode(), told)
    assert same_as_the_engine(check, value, "standard")


@pytest.mark.parametrize(
    "sent",
    [
        '{"count":"4.5"}',  # no integer
        '{"count":"1_0"}',  # Python's spelling, not JSON's
        '{"count":"\u0664"}',  # a digit, but not JSON's
        '{"count":"-9"}',  # right type, but below the limit
        '{"ratio":"1e999"}',  # overflows
        '{"ratio":"null"}',  # rule null_text
        '{"flag":"yes"}',  # rule yes_no
        '{"ids":"1,2"}',  # rule split_commas
        '{"plain":{"n":"1"}}',  # x-repair says no
        '{"both":{"n":"1"}}',  # allOf
        '{"at":{"X":"1"}}',  # rule key_case
        '{"shapes":[{"kind":"Disc","r":"1"}]}',  # the discriminator itself
        '{"at":"{\\"x\\":1,}"}',  # not strict JSON
    ],
)
def test_a_quick_repair_gives_up_on_anything_else(sent: str) -> None:
    assert repair_quickly(compile_check(CATALOGUE), parse(sent.encode()), policy("standard")) is None


def test_a_quick_repair_uses_only_the_rules_that_are_on() -> None:
    check, value = compile_check(CATALOGUE), parse(b'{"name":5,"count":"1"}')
    assert repair_quickly(check, value, policy("basic")) is None
    assert repair_quickly(check, value, policy("off")) is None
    assert repair_quickly(check, value, policy("standard")) is not None


def test_what_may_be_a_wrapper_is_left_to_the_engine() -> None:
    check, declared = compile_check(CATALOGUE), parse(b'{"at":{"x":"1"}}')
    assert repair_quickly(check, declared, policy("standard")) is not None
    assert repair_quickly(check, declared, policy("lenient")) is not None
    check = compile_check(obj(a={"type": "integer"}))
    assert repair_quickly(check, {"arguments": {"a": "1"}, "a": "1"}, policy("standard")) is not None
    assert repair_quickly(check, {"arguments": {"a": "1"}}, policy("standard")) is None
    assert repair_quickly(check, {"_": {"a": "1"}}, policy("lenient")) is None


def test_a_place_within_an_array_is_told_by_its_own_index_however_long_the_array() -> None:
    check = compile_check(obj(ids={"type": "array", "items": {"type": "integer"}}))
    for _ in range(2):
        made = repair_quickly(check, {"ids": [str(number) for number in range(2000)]}, policy("standard"))
        assert made is not None
        assert [Repair("string_to_integer", ("ids", index)) for index in range(2000)] == list(made[1])


# --- bounds -----------------------------------------------------------------------------------------------------------
TOO_MUCH: list[tuple[dict[str, Any], JsonValue]] = [
    ({"type": "array", "items": {"type": "integer"}}, ["1"] * 50),
    (obj(a={"type": "object", "additionalProperties": {"type": "integer"}}), {"a": {str(n): "1" for n in range(50)}}),
    (obj(a={"type": "array", "items": {"type": "integer"}}), {"a": "[" + "1, " * 2000 + '"2"]'}),
    (obj(a={"prefixItems": [{}]}, n={"type": "integer"}), {"a": [[0] * 50], "n": "1"}),
]


@pytest.mark.parametrize(("schema", "value"), TOO_MUCH)
def test_the_work_of_a_quick_repair_is_bounded(schema: JsonValue, value: JsonValue) -> None:
    check = compile_check(schema)
    assert repair_quickly(check, value, policy("standard"), limit=20) is None
    assert repair_quickly(check, value, policy("standard")) is not None


def calls_of_many(rows: int) -> Decision:
    """The decision on so many rows, each with one number as text, of a schema that declares many keys."""
    row = obj(**{f"p{number}": {"type": "integer"} for number in range(90)})
    check = compile_check({"type": "array", "items": row})
    sent = dumps([{"p0": "1"}] * rows)
    rules = RepairPolicy(select_rules("standard", {}))
    call = ToolCall("rows", Document(sent, parse(sent)), "call", Conversation("many", Rung.HEADER))
    return decide(call, ToolPolicy("rows", check, "many", repair=rules))


def test_a_call_that_takes_too_much_work_is_refused_and_says_so() -> None:
    assert isinstance(calls_of_many(20), Forward)
    refused = calls_of_many(20_000)
    assert isinstance(refused, Reject)
    assert codes.INVALID_ARGUMENTS is refused.failure.code
    assert "too large or too deeply nested to be repaired" in refused.failure.hint


def test_what_a_long_enum_means_does_not_depend_on_its_length() -> None:
    names = [f"Name {number}" for number in range(3000)]
    check = compile_check({"type": "array", "items": {"enum": [*names, "twin", "TWIN"]}})
    made = repair_quickly(check, [name.upper() for name in names], policy("standard"))
    assert made is not None
    assert (names, 3000) == (made[0], len(made[1]))
    assert repair_quickly(check, ["Twin"], policy("standard")) is None


def test_objects_of_very_many_properties_are_left_to_the_engine() -> None:
    wide = obj(**{f"p{number}": {"type": "integer"} for number in range(200)})
    assert repair_quickly(compile_check(wide), {"p7": "1"}, policy("standard")) is None
    assert repair(compile_check(wide), {"p7": "1"}, policy("standard")).accepted


def test_most_calls_with_typical_damage_never_reach_the_engine() -> None:
    left = {"plain", "both"}  # what no quick repair enters
    properties = {key: schema for key, schema in CATALOGUE["properties"].items() if key not in left}
    check, chance = compile_check({**CATALOGUE, "properties": properties}), Random(5)
    known = refused = 0
    for _ in range(300):
        value = parse(dumps(as_text(check, random_value(check, chance), chance)))
        if not check.accepts(value):
            refused += 1
            known += same_as_the_engine(check, value, "standard")
    assert refused > 100
    assert known / refused > 0.5


def test_a_call_is_repaired_alike_with_the_short_way_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = ToolPolicy("t", compile_check(obj(n={"type": "integer"})), "f", repair=policy("standard"))
    text = b'{"n":"3"}'
    call = ToolCall("t", Document(text, parse(text)), "id", Conversation("c", Rung.HEADER))
    quick = decide(call, tool)
    monkeypatch.setattr(fast_repair, "ON", False)
    assert quick == decide(call, tool)
    assert isinstance(quick, Forward)
    assert b'{"n":3}' == quick.checked.arguments

"""A schema in words, and examples that are held against it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.decide import decide
from proxy.core.envelope.feedback import write_feedback
from proxy.core.explain.advice import add_advice, make_example
from proxy.core.explain.expectation import describe_expectation, list_choices, write_literal
from proxy.core.explain.explain import list_violations
from proxy.core.explain.signature import Wanted, write_accepts, write_schema, write_signature
from proxy.core.model import codes
from proxy.core.model.values import (
    ABSENT,
    Conversation,
    Document,
    Failure,
    FeedbackLimits,
    JsonValue,
    Reject,
    Rung,
    ToolCall,
    ToolResult,
)
from proxy.core.model.work import share_work
from tests.core.repairing import call, obj, policy

INT: JsonValue = {"type": "integer"}
STR: JsonValue = {"type": "string"}
D4 = "http://json-schema.org/draft-04/schema#"


# --- expectations ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expected", "schema"),
    [
        ("string", STR),
        ("number (at least -90, at most 90)", {"type": "number", "minimum": -90, "maximum": 90}),
        ("integer (exactly 0)", {**INT, "minimum": 0, "maximum": 0}),
        ("integer (at least 1, at most 99)", {**INT, "minimum": 1.0, "maximum": 99.0}),
        ("number (exactly -2)", {"type": "number", "minimum": -2.0, "maximum": -2.0}),
        ("number (at least 0.5, multiple of 2.5)", {"type": "number", "minimum": 0.5, "multipleOf": 2.5}),
        ("integer (greater than 0)", {**INT, "minimum": 0, "exclusiveMinimum": 0}),
        ("integer (greater than 0)", {"$schema": D4, **INT, "minimum": 0, "exclusiveMinimum": True}),
        ("integer (at least 0)", {"$schema": D4, **INT, "minimum": 0, "exclusiveMinimum": False}),
        ("string (length exactly 2, pattern ^x)", {**STR, "minLength": 2, "maxLength": 2, "pattern": "^x"}),
        ("string (max length 9)", {**STR, "minLength": 0, "maxLength": 9}),
        ("array of integer (at least 1 item)", {"type": "array", "items": INT, "minItems": 1}),
        ("integer or null", {"type": ["integer", "null"]}),
        ("integer or boolean", {"anyOf": [INT, {"type": "boolean"}]}),
        ("one of 'a', 'b' or null", {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}),
        ("'auto' or number or null", {"anyOf": [{"const": "auto"}, {"type": ["number", "null"]}]}),
        ("one of 1, 2.5", {"enum": [1, 2.5]}),
        ("5", {"const": 5}),
        ("any value", True),
        ("no value", False),
    ],
)
def test_a_place_says_what_it_takes(expected: str, schema: JsonValue) -> None:
    assert expected == describe_expectation(compile_check(schema).root)


def test_long_lists_and_limits_are_cut() -> None:
    fifty = ", ".join(map(str, range(50)))
    assert f"one of {fifty} (+50 more)" == list_choices(tuple(range(100)))
    assert f"one of 77, {fifty} (+49 more)" == list_choices(tuple(range(100)), [77, 200])
    long = tuple(f"{number:040}" for number in range(20))
    assert f"one of '{long[0]}', '{long[1]}', '{long[2]}', '{long[3]}', '{long[4]}' (+15 more)" == list_choices(long)
    assert len(describe_expectation(compile_check({"type": "string", "pattern": "x" * 5000}).root)) < 100
    assert "'it'" == write_literal("it")


# --- signatures -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expected", "schema"),
    [
        ("{path: string (required), encoding?: 'utf-8' | 'ascii'}",
         {**obj(encoding={"enum": ["utf-8", "ascii"]}, path=STR), "required": ["path"]}),
        ("{content: string (max length 5, required)}", {**obj(content={**STR, "maxLength": 5}),
         "required": ["content"]}),
        ("{tags?: string[], grid?: integer[][]}",
         obj(tags={"type": "array", "items": STR}, grid={"type": "array", "items": {"type": "array", "items": INT}})),
        ("{a?: (integer | null)[]}", obj(a={"type": "array", "items": {"type": ["integer", "null"]}})),
        ("{a?: {b?: integer} | string}", obj(a={"anyOf": [obj(b=INT), STR]})),
        ("{a?: any}", obj(a=True)),
        ("{a?: 'auto' | number (at least 0)}", obj(a={"anyOf": [{"const": "auto"}, {"type": "number", "minimum": 0}]})),
        ("{a?: 'x' | ('x' | 'y')[]}",
         obj(a={"anyOf": [{"const": "x"}, {"type": "array", "items": {"enum": ["x", "y"]}}]})),
        ("{a?: 'x' | 2.5 | null}", obj(a={"enum": ["x", 2.5, None]})),
    ],
)  # fmt: skip
def test_a_tool_has_a_signature(expected: str, schema: JsonValue) -> None:
    assert expected == write_signature(compile_check(schema).root)


def test_a_signature_of_a_huge_schema_is_short() -> None:
    wide: JsonValue = STR
    for level in range(6):
        wide = obj(**{f"key_{level}_{number}": wide for number in range(6)})
    recursive: dict[str, JsonValue] = {
        "$ref": "#/$defs/n",
        "$defs": {"n": obj(**{f"k{i}": {"$ref": "#/$defs/n"} for i in range(20)})},
    }
    for schema in (wide, recursive, {"anyOf": [{"$ref": "#/$defs/n"}] * 50, "$defs": recursive["$defs"]}):
        assert len(write_signature(compile_check(schema).root)) < 20_000


# --- examples for answers -------------------------------------------------------------------------------------------
NOTE: JsonValue = {
    "type": "object",
    "properties": {
        "path": STR, "size": INT, "mode": {"enum": ["r", "w"]}, "kind": {"const": "note"},
        "when": {"type": "string", "format": "date"}, "tags": {"type": "array", "items": STR},
        "flag": {"type": "boolean"},
    },
    "required": ["path", "size", "mode", "kind", "when", "tags"],
}  # fmt: skip


def test_an_example_keeps_good_values_and_invents_none() -> None:
    sent = {"path": "notes.txt", "size": "big", "flag": True, "tags": ["a"], "extra": 1}
    assert (
        {"kind": "note", "mode": "<one of r, w>", "path": "notes.txt", "size": "<integer>", "tags": ["a"],
         "when": "<date>", "flag": True},
        False,
    ) == make_example(compile_check(NOTE), sent)  # fmt: skip


def test_an_example_that_validates_says_so() -> None:
    check = compile_check({**obj(path=STR, n=INT), "required": ["path"]})
    assert ({"path": "<string>"}, True) == make_example(check)
    assert ({"path": "x", "n": 5}, True) == make_example(check, {"path": "x", "n": 5})
    assert ({"path": "x"}, True) == make_example(check, {"path": "x", "n": "many"})


def test_an_example_goes_down_into_objects_lists_and_branches() -> None:
    check = compile_check({
        "type": "object", "required": ["a"],
        "properties": {"a": {"type": "array", "minItems": 1, "items": {"oneOf": [
            {"type": "object", "properties": {"k": {"const": "x"}, "n": INT}, "required": ["k", "n"]},
            {"type": "object", "properties": {"k": {"const": "y"}}, "required": ["k"]}]}}},
    })  # fmt: skip
    assert ({"a": [{"k": "y"}]}, True) == make_example(check)


def test_examples_are_bounded_and_never_raise() -> None:
    levels = {
        f"n{level}": {
            **obj(**{f"a{i}": {"$ref": f"#/$defs/n{level + 1}"} for i in range(6)}),
            "required": [f"a{i}" for i in range(6)]
        }
        for level in range(14)
    }  # fmt: skip
    check = compile_check({"$ref": "#/$defs/n0", "$defs": {**levels, "n14": INT}})
    assert (ABSENT, False) == make_example(check)


# --- what an answer says a tool takes -------------------------------------------------------------------------------
ADDRESS: JsonValue = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
    "required": ["city"],
}
MANY: JsonValue = {
    "type": "object",
    "required": ["query"],
    "properties": {
        "query": {"type": "string"},
        "budget": {"type": "number", "description": "Highest price"},
        "ship": ADDRESS,
        "bill": ADDRESS,
        **{f"option_{number}": {"type": "integer", "minimum": number} for number in range(30)},
    },
}


def test_writes_repeated_schemas_once_and_ends_recursion() -> None:
    (text,) = write_accepts(
        compile_check({"type": "object", "properties": {"ship": ADDRESS, "bill": ADDRESS}}).root, Wanted()
    )
    assert "{ship?: {city: string (required), street?: string}, bill?: as 'ship'}" == text
    tree: JsonValue = {
        "$defs": {"node": {"type": "object", "properties": {"name": {}, "next": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    }
    assert ("{name?: any, next?: {as above}}",) == write_accepts(compile_check(tree).root, Wanted())


def test_smaller_sizes_keep_the_fields_in_focus_and_every_name() -> None:
    wanted = Wanted(shown=(("bill", "street"),), candidates=(("budget",),))
    sizes = write_accepts(compile_check(MANY).root, wanted)
    assert [len(text) for text in sizes] == sorted((len(text) for text in sizes), reverse=True)
    names = ", ".join(f"option_{number}" for number in range(30))
    assert sizes[-1] == (
        "{budget?: number /* Highest price */, bill?: {street?: string, city: string (required)}, "
        f"query: string (required), optional, without their types: ship, {names}}}"
    )


def test_missing_fields_are_required_whatever_the_schema_says_of_them() -> None:
    wanted = Wanted(missing=(("street",),), undeclared=(("zip",),))
    (text,) = write_accepts(compile_check(ADDRESS).root, wanted)
    assert "{street: string (required), city: string (required), zip: any (required)}" == text


def test_a_map_shows_the_form_of_its_names() -> None:
    schema: JsonValue = {
        "type": "object",
        "patternProperties": {"^[A-Z]+$": {"type": "integer"}},
        "additionalProperties": False,
    }
    assert "{[name with pattern ^[A-Z]+$]: integer}" == write_signature(compile_check(schema).root)
    assert "{[name]: string}" == write_signature(
        compile_check({"type": "object", "additionalProperties": {"type": "string"}}).root
    )


def test_writes_a_schema_without_secrets_and_without_annotations() -> None:
    schema: JsonValue = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "T",
        "properties": {
            "title": {"type": "string", "default": {"title": "kept"}, "x-repair": "off"},
            "pin": {"type": "string", "writeOnly": True, "default": "1234", "enum": ["1234"]},
        },
    }
    assert (
        '{"type":"object","properties":{"title":{"type":"string","default":{"title":"kept"}},'
        '"pin":{"type":"string","writeOnly":true}}}'
    ) == write_schema(compile_check(schema).root)


def test_shows_the_schema_if_it_is_shorter_than_its_description() -> None:
    codes_of = [f"c{number}" for number in range(120)]
    schema: JsonValue = {"type": "object", "properties": {"code": {"enum": codes_of}}, "required": ["code"]}
    check = compile_check(schema)
    found = list_violations(check, {"code": "x"}, ())
    call = ToolCall("tool", Document(b"", None), "call", Conversation("c", Rung.HEADER))
    result = ToolResult(call, Failure(codes.INVALID_ARGUMENTS, "", found, sent={"code": "x"}))
    accepts = add_advice(result, ToolPolicy("tool", check, "t")).accepts
    assert accepts[0] == f"JSON Schema {write_schema(check.root)}"
    assert len(accepts[0]) < len(accepts[-1])


@pytest.mark.parametrize("limit", [2000, 1500])
def test_keeps_the_configured_length_if_a_tool_has_many_properties(limit: int) -> None:
    words = "what the caller writes here " * 8
    properties: dict[str, JsonValue] = {
        f"property_{number}": {"type": "integer", "minimum": number, "description": words} for number in range(60)
    }
    check = compile_check({"type": "object", "properties": properties, "required": list(properties)})
    sent: JsonValue = dict.fromkeys(list(properties)[:40], "x" * 200)
    call = ToolCall("tool", Document(b"", None), "call", Conversation("c", Rung.HEADER))
    failure = Failure(codes.INVALID_ARGUMENTS, "", list_violations(check, sent, ()), sent=sent)
    result = ToolResult(call, failure, limits=FeedbackLimits(max_chars=limit))
    text = write_feedback(add_advice(result, ToolPolicy("tool", check, "t")))
    assert limit - 200 < len(text) <= limit


def test_remembered_accepts_equal_fresh_ones_and_are_bounded() -> None:
    root = compile_check(MANY).root
    every = [Wanted(missing=((f"asked_{number}",),)) for number in range(40)] + [Wanted(undeclared=(("x" * 5000,),))]
    first = [write_accepts(root, wanted) for wanted in every]
    again = [write_accepts(root, wanted) for wanted in every]

    assert first == again == [write_accepts(compile_check(MANY).root, wanted) for wanted in every]
    remembered = root.schemas.memos["accepts"]
    assert len(remembered) <= 16
    assert max(len(str(wanted)) for _, wanted in remembered) <= 2000


@pytest.mark.parametrize(("members", "is_affordable"), [(3, True), (444, True), (445, False)])
def test_an_earlier_example_does_not_change_a_later_one(members: int, is_affordable: bool) -> None:
    inner: JsonValue = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
    names = [f"place_{number}" for number in range(members)]
    schema: JsonValue = {"type": "object", "required": names, "properties": dict.fromkeys(names, inner)}
    check = compile_check(schema)
    sent: JsonValue = {name: {"city": "Rome"} for name in names[1:]}
    assert ({names[0]: {"city": "<string>"}, **sent}, True) == make_example(check, sent)

    anew = make_example(compile_check(schema))
    assert [anew, anew] == [make_example(check), make_example(check)]
    assert is_affordable == (anew[0] is not ABSENT)


def test_an_example_that_ran_out_of_work_is_nobody_elses() -> None:
    schema: JsonValue = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^(?!.*integer)"}]}
    check = compile_check(schema)
    with share_work(0):
        assert ("<integer>", False) == make_example(check)
    assert ("<string>", True) == make_example(check) == make_example(compile_check(schema))


def test_rejects_unreadable_arguments_when_a_number_is_the_only_example() -> None:
    schema: JsonValue = {"const": 5}
    asked = call("{")
    decision = decide(asked, policy(schema))
    assert isinstance(decision, Reject)
    advised = add_advice(ToolResult(asked, decision.failure), policy(schema))
    assert ("5", True) == (advised.example, advised.example_complete)


def test_validates_a_wrong_value_under_a_key_like_a_missing_one_unchanged() -> None:
    schema: JsonValue = {
        "type": "object",
        "properties": {"id": {"oneOf": [{"type": ["boolean", "null"]}, {"enum": [1, 2.5, [3.5]]}]}},
        "required": ["id"],
        "additionalProperties": INT,
    }
    asked = call('{"ids":[3]}')
    decision = decide(asked, policy(schema, "off"))
    assert isinstance(decision, Reject)
    advised = add_advice(ToolResult(asked, decision.failure), policy(schema))
    assert '{"id":"<one of 1, 2.5, [3.5] or boolean or null>","ids":"<integer>"}' == advised.example


# --- the example of a refusal ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("example", "schema", "sent"),
    [
        ('{"user":"<integer>"}', obj(user=INT), '{"user":""}'),
        ('{"phone":"<string>"}', obj(phone=STR), '{"phone":null}'),
        ('{"env":"<object>"}', obj(env={"type": "object"}), '{"env":"A=1,B=2"}'),
        (
            '{"labels":{"team":"<string>"}}',
            obj(labels={"type": "object", "additionalProperties": STR}),
            '{"labels":{"team":null}}',
        ),
        (
            '{"path":"<string>"}',
            {**obj(path=STR), "required": ["path"], "additionalProperties": False},
            '{"file_path":"a.txt"}',
        ),
        (
            "",
            {**obj(action=STR, job=obj(name=STR)), "required": ["action"], "additionalProperties": False},
            '{"action":"add","name":"x"}',
        ),
    ],
)
def test_an_example_holds_no_reading_that_a_repair_would_refuse(example: str, schema: JsonValue, sent: str) -> None:
    under = replace(policy(schema), tool="update_tool")
    decision = decide(call(sent), under)
    assert isinstance(decision, Reject)
    advised = add_advice(ToolResult(call(sent), decision.failure), under)
    assert (example, False) == (advised.example, advised.example_complete)


# --- what may be copied -----------------------------------------------------------------------------------------------
FILE: JsonValue = {
    "type": "object",
    "properties": {
        "path": STR, "text": STR, "numbers": {"type": "array", "items": INT}, "about": {"type": "object"},
        "dir": {"enum": ["/srv/in/a", "/srv/in/b"]}, "config": {"const": "/etc/app/conf/x"},
        "api_key": {"enum": ["public", "private"]}, "password": STR, "mode": {"enum": ["create", "append"]},
        "counts": {"type": "object", "additionalProperties": INT},
    },
    "required": ["mode"],
}  # fmt: skip


def advise(schema: JsonValue, sent: str) -> ToolResult:
    asked = call(sent)
    decision = decide(asked, policy(schema, "off"))
    assert isinstance(decision, Reject)
    return add_advice(ToolResult(asked, decision.failure), policy(schema))


@pytest.mark.parametrize(
    ("shown", "sent"),
    [
        ('"path":"<path as sent>"', '"path":"/srv/data/2026/report.txt"'),
        ('"path":"<path as sent>"', r'"path":"C:\\Users\\al\\a.txt"'),
        ('"text":"<text as sent>"', f'"text":"{"x" * 200}"'),
        ('"text":"<text as sent>"', '"text":"Bearer abcdefghijklmnopqrstuvwxyz"'),
        ('"password":"<text as sent>"', '"password":"hunter2"'),
        ('"numbers":"<list as sent>"', f'"numbers":{[*range(60)]}'),
        ('"about":"<object as sent>"', f'"about":{{"a":"{"x" * 100}"}}'),
        ('"dir":"/srv/in/b"', '"dir":"/srv/in/b"'),
        ('"config":"/etc/app/conf/x"', '"config":"/etc/app/conf/y"'),
        ('"dir":"<one of /srv/in/a, /srv/in/b>"', '"dir":"/srv/in/c"'),
        ('"api_key":"public"', '"api_key":"public"'),
        ('"counts":{"<key as sent>":1,"<key 2 as sent>":"<integer>"}', '"counts":{"/srv/a/b":1,"/srv/a/c":"x"}'),
    ],
)
def test_shows_a_value_whole_or_says_that_it_is_as_sent(shown: str, sent: str) -> None:
    advised = advise(FILE, f'{{"mode":"apend",{sent}}}')
    assert f'{{"mode":"<one of create, append>",{shown}}}' == advised.example
    assert not advised.example_complete


def test_says_how_many_items_of_a_long_list_are_left_out() -> None:
    rows: JsonValue = {**obj(rows={"type": "array", "items": {**obj(id=INT), "required": ["id"]}})}
    sent = ",".join(f'{{"id":{number}}}' for number in range(40))
    shown = ",".join(f'{{"id":{number}}}' for number in range(20))
    advised = advise(rows, f'{{"rows":[{sent},{{"id":"x"}}]}}')
    assert f'{{"rows":[{shown},"<21 more items>"]}}' == advised.example


@pytest.mark.parametrize(
    ("shown", "schema"),
    [
        ("<integer or null>", {"type": ["integer", "null"]}),
        ("<integer or null>", {"anyOf": [INT, {"type": "null"}]}),
        ("<string or null>", {"oneOf": [{"type": "null"}, STR]}),
        ("<true or false or null>", {"type": ["boolean", "null"]}),
        ("<one of a, b or null>", {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}),
        ("<all or object>", {"anyOf": [{"const": "all"}, obj(status=STR)]}),
        ("<admin or integer>", {"anyOf": [{"enum": ["admin"]}, INT]}),
        ("<* or array>", {"oneOf": [{"const": "*"}, {"type": "array", "items": INT}]}),
        ("<one of none, any or integer>", {"anyOf": [INT, {"enum": ["none", "any"]}]}),
    ],
)
def test_draws_no_null_and_no_single_branch_for_a_wrong_value(shown: str, schema: JsonValue) -> None:
    wrong = "[[]]" if "string" in shown else '"thirty"'
    advised = advise({**obj(id=INT, age=schema), "required": ["id"]}, f'{{"id":7,"age":{wrong}}}')
    assert f'{{"id":7,"age":"{shown}"}}' == advised.example

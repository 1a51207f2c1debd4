"""The explanation of a rejected value: code, place, message, expectation and hint, as whole violations."""

from __future__ import annotations

from typing import Final

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import RepairPolicy
from proxy.core.explain.explain import MAX_VIOLATIONS, explain_invalid_json, list_violations
from proxy.core.explain.undeclared import find_unknown_fields, list_notices
from proxy.core.json.jsontext import parse
from proxy.core.model import codes
from proxy.core.model.codes import Severity, ViolationCode
from proxy.core.model.values import ABSENT, JsonProblem, JsonValue, Pointer, Violation
from proxy.core.repair.engine import repair
from proxy.core.rules.rules import select_rules
from tests.core.repairing import obj

INT: Final[JsonValue] = {"type": "integer"}
NUM: Final[JsonValue] = {"type": "number"}
STR: Final[JsonValue] = {"type": "string"}
ENCODING: Final[JsonValue] = {"enum": ["utf-8", "ascii", "utf-16"]}


def needs(**properties: JsonValue) -> JsonValue:
    return {"type": "object", "properties": properties, "required": list(properties)}


def shut(**properties: JsonValue) -> JsonValue:
    """An object that takes these properties and no others, none of them required."""
    return {**obj(**properties), "additionalProperties": False}


def closed(**properties: JsonValue) -> JsonValue:
    return {**needs(**properties), "additionalProperties": False}


def kind(name: str, **properties: JsonValue) -> JsonValue:
    return {"type": "object", "properties": {"kind": {"const": name}, **properties}, "required": ["kind"]}


SHAPES: Final[JsonValue] = {"oneOf": [kind("circle", r=NUM), kind("square", side=INT)]}
EITHER: Final[JsonValue] = {"anyOf": [closed(a=INT), closed(b=INT)]}


def said(schema: JsonValue, sent: str) -> tuple[Violation, ...]:
    """Returns what is said of a value no repair is tried on."""
    return list_violations(compile_check(schema), parse(sent.encode()), ())


NUMBER = ""


def one(
    code: ViolationCode, path: Pointer, message: str, expected: str = "", hint: str = "", value: object = ABSENT
) -> tuple[Violation, ...]:
    return (Violation(code, path, message, expected, hint, value=value),)


@pytest.mark.parametrize(
    ("expected", "schema", "sent"),
    [
        (one(codes.REQUIRED_MISSING, ("path",), "Required field 'path' is missing", "string"), needs(path=STR), "{}"),
        (one(codes.REQUIRED_MISSING, ("path",), "Required field 'path' is missing", "string",
             "You sent '/file_path': "
             "if you meant 'path', rename it; if not, leave it out."),
         closed(path=STR), '{"file_path":"x"}'),
        (one(codes.REQUIRED_MISSING, ("lat",), "Required field 'lat' is missing", "integer",
             "You sent '/latitude': "
             "if you meant 'lat', rename it; if not, leave it out."),
         closed(lat=INT), '{"latitude":1}'),
        (one(codes.TYPE_MISMATCH, ("a",), "Type mismatch: expected object, got array", "object",
             "Send one object, not a list.", [{}]), needs(a={"type": "object"}), '{"a":[{}]}'),
        (one(codes.REQUIRED_MISSING, ("a", "b"), "Required field 'b' is missing", "string",
             "It was sent at '/b': move it to '/a/b'."), needs(a=needs(b=STR)), '{"a":{},"b":"x"}'),
        (one(codes.REQUIRED_MISSING, ("b",), "Required field 'b' is missing", "", "It is needed because 'a' is given."),
         {"dependentRequired": {"a": ["b"]}}, '{"a":1}'),
        (one(codes.TYPE_MISMATCH, ("a",), "Type mismatch: expected integer, got string", "integer",
             "Send a whole number without quotes or units.", "ten"), needs(a=INT), '{"a":"ten"}'),
        (one(codes.TYPE_MISMATCH, ("a",), "Type mismatch: expected number, got string", "number (at most 100)",
             "Send the bare number, without quotes, units or separators. As a number it is out of range: it must be at "
             "most 100.", "500"), needs(a={**NUM, "maximum": 100}), '{"a":"500"}'),
        (one(codes.TYPE_MISMATCH, ("a",), "Type mismatch: expected integer, got string", "integer (greater than 0)",
             "Send a whole number without quotes or units. As a number it is out of range: it must be greater than 0.",
             "-1"), needs(a={**INT, "exclusiveMinimum": 0}), '{"a":"-1"}'),
        (one(codes.TYPE_MISMATCH, ("a",), "Type mismatch: expected string, got null", "string",
             "null is not allowed here: send a value, or leave it out.", None),
         obj(a=STR), '{"a":null}'),
        (one(codes.TYPE_MISMATCH, ("a",), "Type mismatch: expected string, got null", "string",
             "null is not allowed here: send a value.", None),
         needs(a=STR), '{"a":null}'),
        (one(codes.TYPE_MISMATCH, ("a",), "Type mismatch: expected array of integer, got string", "array of integer",
             "Send a JSON array, not text.", "x"), needs(a={"type": "array", "items": INT}), '{"a":"x"}'),
        (one(codes.CONSTRAINT, ("a",), "Value out of range: must be at most 90",
         "integer (at least -90, at most 90)", NUMBER, 91),
         needs(a={**INT, "minimum": -90, "maximum": 90}), '{"a":91}'),
        (one(codes.CONSTRAINT, ("a",), "Value out of range: must be at least 1", "integer (at least 1)", NUMBER, 0),
         needs(a={**INT, "minimum": 1.0}), '{"a":0}'),
        (one(codes.CONSTRAINT, ("a",), "Value out of range: must be at most 0", "integer (exactly 0)", NUMBER, 5),
         needs(a={**INT, "minimum": 0, "maximum": 0}), '{"a":5}'),
        (one(codes.CONSTRAINT, (), "Number of fields 1 is below minimum 2", "object (at least 2 fields)",
             "Send more fields.", {"a": 1}),
         {"type": "object", "minProperties": 2}, '{"a":1}'),
        (one(codes.CONSTRAINT, ("a",), "Value is one of those that are not allowed", "anything but 1", "", 1),
         needs(a={"not": {"const": 1}}), '{"a":1}'),
        (one(codes.UNKNOWN_FIELD, ("alpah",), "Unknown field 'alpah'", "one of the fields 'alpha'",
         "Leave it out.", 2),
         closed(alpha=INT), '{"alpha":1,"alpah":2}'),
        (one(codes.UNKNOWN_FIELD, ("alpah",), "Unknown field 'alpah'", "one of the fields 'alpha'",
         "Did you mean 'alpha' (integer)?", 2),
         shut(alpha=INT), '{"alpah":2}'),
        (one(codes.UNKNOWN_FIELD, ("x",), "Unknown field 'x'", "one of the fields 'beta', 'alpha'",
         "If you did not mean 'beta', leave it out.", 2),
         shut(alpha=INT, beta=STR), '{"alpha":1,"x":2}'),
        (one(codes.UNKNOWN_FIELD, ("minPrice",), "Unknown field 'minPrice'",
         "one of the fields 'price_min', 'budget', 'alpha', 'city', 'days', 'ends'",
         "Did you mean 'price_min' (integer)?", 2),
         shut(alpha=INT, price_min=INT, city=STR, days=INT, ends=STR,
                budget={**INT, "description": "Lowest price in EUR"}), '{"minPrice":2}'),
        (one(codes.UNKNOWN_FIELD, ("cost",), "Unknown field 'cost'",
         "one of the fields 'budget', 'alpha', 'city', 'days', 'ends'",
         "If you did not mean 'budget', leave it out.", 2),
         shut(alpha=INT, city=STR, days=INT, ends=STR,
                budget={**INT, "description": "Highest cost in EUR"}), '{"cost":2}'),
        (one(codes.UNKNOWN_FIELD, ("cost",), "Unknown field 'cost'", "field names that match ^[A-Z]+$",
         "Name it so, or leave it out.", 2),
         {"type": "object", "patternProperties": {"^[A-Z]+$": {}}, "additionalProperties": False}, '{"cost":2}'),
        (one(codes.UNKNOWN_FIELD, ("zip",), "Unknown field 'zip'", "one of the fields 'home'",
         "It belongs to '/home/zip': move it there.", "8000"),
         shut(home=shut(zip=STR)), '{"zip":"8000"}'),
        (one(codes.UNKNOWN_FIELD, ("zip",), "Unknown field 'zip'", "one of the fields 'home', 'office'",
         "It may belong to '/home/zip' or '/office/zip': move it there.", "8000"),
         shut(home=shut(zip=STR), office=shut(zip=STR)), '{"zip":"8000"}'),
        (one(codes.UNKNOWN_FIELD, ("b",), "Field name 'b' is not allowed", "field names: (pattern ^a)"),
         {"propertyNames": {"pattern": "^a"}}, '{"b":1}'),
        (one(codes.ARRAY_LENGTH, ("a",), "Array length 1 is below minimum 2", "array (exactly 2 items)",
             "Send more items.", [1]),
         needs(a={"type": "array", "minItems": 2, "maxItems": 2}), '{"a":[1]}'),
        (one(codes.ARRAY_LENGTH, (), "Array items are not unique", "an array without equal items",
             "Send each item once.", [1, 1]),
         {"uniqueItems": True}, "[1,1]"),
        (one(codes.ARRAY_LENGTH, (), "Array does not contain what it must", "an array that contains integer",
             "Add such an item.", ["x"]),
         {"contains": INT}, '["x"]'),
        (one(codes.PATTERN_MISMATCH, ("a",), "Value doesn't match pattern: ^[a-z]+$", "string (pattern ^[a-z]+$)",
             "", "X"),
         needs(a={**STR, "pattern": "^[a-z]+$"}), '{"a":"X"}'),
        (one(codes.ENUM_MISMATCH, ("a",), "Invalid enum value 'uft8'", "one of 'utf-8', 'ascii', 'utf-16'",
             "Did you mean 'utf-8'?", "uft8"), needs(a=ENCODING), '{"a":"uft8"}'),
        (one(codes.ENUM_MISMATCH, ("a",), "Invalid enum value 6", "5", "Send it exactly so.", 6),
         needs(a={"const": 5}), '{"a":6}'),
        (one(codes.STRING_LENGTH, ("a",), "String length 1 is below minimum 2", "string (min length 2)",
             "Lengthen it by 1 character.", "é"),
         needs(a={**STR, "minLength": 2}), '{"a":"é"}'),
        (one(codes.STRING_LENGTH, ("a",), "String length 3 exceeds maximum 2", "string (max length 2)",
             "Shorten it by 1 character.", "xyz"),
         needs(a={**STR, "maxLength": 2}), '{"a":"xyz"}'),
        (one(codes.FORMAT_MISMATCH, ("a",), "Invalid format: email", "string (format email)",
             "For example ann@example.org.", "x"),
         needs(a={**STR, "format": "email"}), '{"a":"x"}'),
        (one(codes.CONSTRAINT, (), "No value is allowed here", "no value", "", {}), False, "{}"),
        (one(codes.UNKNOWN_FIELD, ("a",), "Field 'a' is not allowed", "", "Leave it out."), obj(a=False), '{"a":1}'),
    ],
)  # fmt: skip
def test_one_broken_keyword_is_one_violation(expected: tuple[Violation, ...], schema: JsonValue, sent: str) -> None:
    assert expected == said(schema, sent)


# --- unions ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expected", "schema", "sent"),
    [
        (one(codes.ENUM_MISMATCH, ("kind",), "Invalid enum value 'cirle'", "one of 'circle', 'square'",
             "Did you mean 'circle'?", "cirle"), SHAPES, '{"kind":"cirle","r":1}'),
        (one(codes.REQUIRED_MISSING, ("kind",), "Required field 'kind' is missing", "one of 'circle', 'square'"),
         SHAPES, '{"r":1}'),
        (one(codes.TYPE_MISMATCH, ("r",), "Type mismatch: expected number, got string", "number",
             "Send the bare number, without quotes, units or separators.", "x"), SHAPES, '{"kind":"circle","r":"x"}'),
        (one(codes.TYPE_MISMATCH, ("b",), "Type mismatch: expected integer, got string", "integer",
             "Send a whole number without quotes or units.", "x"), EITHER, '{"b":"x"}'),
        (one(codes.NO_BRANCH, (), "The value fits none of the alternatives",
             "(1) {a: integer (required)}; (2) {b: integer (required)}",
             "Missing in each: (1) field 'a' missing, unknown field 'c'; (2) field 'b' missing, unknown field 'c'",
             {"c": 1}),
         EITHER, '{"c":1}'),
        (one(codes.NO_BRANCH, (), "The value fits more than one alternative (1, 2), exactly one is allowed",
         value={"a": 1}),
         {"oneOf": [obj(a=INT), obj(a=NUM)]}, '{"a":1}'),
        (one(codes.TYPE_MISMATCH, (), "Type mismatch: expected integer or null, got string", "integer or null",
             "Send a whole number without quotes or units.", "x"), {"anyOf": [INT, {"type": "null"}]}, '"x"'),
        (one(codes.ENUM_MISMATCH, (), "Invalid enum value 'c'", "one of 'a', 'b'",
             "Send one of these, exactly as written.", "c"),
         {"anyOf": [{"const": "a"}, {"enum": ["b"]}]}, '"c"'),
    ],
)  # fmt: skip
def test_a_union_is_explained_by_its_nearest_branch(
    expected: tuple[Violation, ...], schema: JsonValue, sent: str
) -> None:
    assert expected == said(schema, sent)


@pytest.mark.parametrize(
    ("expected", "schema", "sent"),
    [
        ("(1) it is not integer (at most 5); (2) it is not integer (at least 10)",
         {"anyOf": [{**INT, "maximum": 5}, {**INT, "minimum": 10}]}, "7"),
        ("(1) it is not string (format ipv4); (2) it is not string (format ipv6); (3) it is not integer",
         {"oneOf": [{**STR, "format": "ipv4"}, {**STR, "format": "ipv6"}, INT]}, '"x"'),
        ("(1) it fits none of its alternatives; (2) it is not string (min length 2)",
         {"anyOf": [{"anyOf": [{**STR, "pattern": "^y"}, {**STR, "format": "ipv4"}]}, {**STR, "minLength": 2}]}, '"x"'),
        ("(1) it fits more than one of its alternatives; (2) it is not string (min length 2)",
         {"anyOf": [{"oneOf": [{**STR, "maxLength": 2}, {**STR, "pattern": "x"}]}, {**STR, "minLength": 2}]}, '"x"'),
        ("(1) it: Required field 'b' is missing; (2) it: Value is one of those that are not allowed",
         {"anyOf": [{"dependentRequired": {"a": ["b"]}}, {"not": {"required": ["a"]}}]}, '{"a":1}'),
        ("(1) it: Array items are not unique; (2) it: Array does not contain what it must",
         {"anyOf": [{"uniqueItems": True}, {"contains": STR}]}, "[1,1]"),
        ("(1) it: Array contains too many of what it must contain; (2) it: Array has an item too many at position 1",
         {"anyOf": [{"contains": INT, "maxContains": 1}, {"prefixItems": [INT], "items": False}]}, "[1,1]"),
    ],
)  # fmt: skip
def test_hints_of_alternatives_are_true_of_a_value_of_the_right_type(
    expected: str, schema: JsonValue, sent: str
) -> None:
    assert [("The value fits none of the alternatives", f"Missing in each: {expected}")] == [
        (violation.message, violation.hint) for violation in said(schema, sent)
    ]


# --- the whole ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("hint", "sent"),
    [
        ("The arguments are inside 'input': send its content itself as the arguments, without 'input'.",
         '{"input":{"a":1}}'),
        ("If 'dry_run' only wraps the arguments, send its content itself as the arguments.", '{"dry_run":{"a":1}}'),
        ("You sent the tool's schema: send values, each under its name.",
         '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'),
        ("'calls' seems to hold several calls: make one call of this tool for each, with only its arguments.",
         '{"calls":[{"arguments":{"a":1}}]}'),
    ],
)  # fmt: skip
def test_a_wrapper_around_the_arguments_is_pointed_out(hint: str, sent: str) -> None:
    assert {hint} == {violation.hint for violation in said(closed(a=INT), sent)}


@pytest.mark.parametrize(
    ("hint", "schema", "sent"),
    [
        ("You sent '/maxItems': rename it to 'max_items'.",
         closed(max_items=INT), '{"maxItems":1}'),
        ("You sent '/tag': rename it to 'tags'.", closed(tags=STR), '{"tag":"x"}'),
        ("You sent '/maxItems': "
         "if you meant 'max_items', rename it and correct its value; if not, leave it out.",
         closed(max_items=INT), '{"maxItems":[]}'),
        ("You sent '/message_text': "
         "if you meant 'message', rename it; if not, leave it out.", closed(message=STR), '{"message_text":"x"}'),
        ("", closed(tags=STR), '{"exclude_tags":"x"}'),
        ("", closed(message=STR), '{"message_id":"x"}'),
        ("", closed(label=STR), '{"-label":"x"}'),
        ("It was sent at '/a/b': move it to '/b'.", needs(a={"type": "object"}, b=INT), '{"a":{"b":1}}'),
        ("You sent '/a/b': if it holds 'b', move it here and correct its value.", needs(a={"type": "object"}, b=INT),
         '{"a":{"b":"one"}}'),
        ("It was sent at '/kind': move it to '/s/kind'.", needs(s=SHAPES), '{"s":{},"kind":"circle"}'),
        ("", needs(s=SHAPES), '{"s":{},"kind":{"x":1}}'),
        ("You sent '/s/Kind': "
         "if you meant 'kind', rename it and correct its value; if not, leave it out.",
         needs(s=SHAPES), '{"s":{"Kind":5}}'),
    ],
)  # fmt: skip
def test_advice_for_a_missing_key_is_acceptable_or_a_question(hint: str, schema: JsonValue, sent: str) -> None:
    assert [hint] == [found.hint for found in said(schema, sent) if found.code is codes.REQUIRED_MISSING]


def test_advises_one_call_for_each_if_a_call_can_hold_one() -> None:
    (flat,) = said(needs(a=INT), '{"a":[1,2]}')
    (deep,) = said(needs(a={"type": "object", "properties": {"b": INT}}), '{"a":{"b":[1,2]}}')
    assert ("One value goes into one call: make one call for each.", "Send one value, not a list.") == (
        flat.hint,
        deep.hint,
    )


def test_a_list_of_what_is_not_expected_is_not_advised_to_be_sent_item_by_item() -> None:
    for sent in ('{"a":["x"]}', '{"a":[null]}', '{"a":["1","2"]}', '{"a":[[1]]}'):
        assert ["Send one of what is expected, not a list."] == [found.hint for found in said(needs(a=INT), sent)]
    listed = needs(a={"enum": ["mW", "kW"]})
    assert ["Send one of what is expected, not a list."] == [found.hint for found in said(listed, '{"a":["MW"]}')]
    assert ["Send one value, not a list."] == [found.hint for found in said(listed, '{"a":["kW"]}')]


def test_a_wrapper_that_holds_more_than_the_arguments_is_not_advised_to_be_taken_off() -> None:
    found = said(closed(a=INT), '{"options":{"a":1,"dryRun":true}}')
    assert not any("wraps" in violation.hint for violation in found)


@pytest.mark.parametrize("key", ["exclude_tags", "dry_run", "action", "notBefore", "old_name"])
def test_a_key_without_which_the_call_may_mean_something_else_is_not_simply_left_out(key: str) -> None:
    (found,) = said({**closed(a=INT), "required": []}, f'{{"{key}":"x"}}')
    leave = "leave it out only if the call means the same without it."
    assert f"If you did not mean 'a', {leave}" == found.hint


def test_everything_wrong_is_said_at_once() -> None:
    found = said(closed(a=INT, b=STR, c=ENCODING), '{"a":"x","c":"utf8","d":1}')
    assert {("VAL-002", ("a",)), ("VAL-001", ("b",)), ("VAL-008", ("c",)), ("VAL-005", ("d",))} == {
        (violation.code.name, violation.path) for violation in found
    }


def test_an_ambiguous_place_says_both_meanings() -> None:
    check = compile_check(needs(a={"anyOf": [INT, {"type": "boolean"}]}))
    made = repair(check, {"a": "1"}, RepairPolicy(select_rules("standard")))
    assert one(
        codes.AMBIGUOUS, ("a",), "The value has more than one possible meaning", "",
        "It could mean 1 (string_to_integer) or true (string_to_boolean): send the one you mean in its proper type.",
    ) == list_violations(check, made.value, made.ambiguous)  # fmt: skip


def test_explains_text_that_is_no_json_with_its_place() -> None:
    assert one(
        codes.INVALID_JSON, (), "Invalid JSON: trailing comma at line 1 column 8", "one JSON object",
        "Leave out the comma before the closing bracket.",
    ) == (explain_invalid_json(JsonProblem("trailing comma", 1, 8)),)  # fmt: skip
    assert "Send each key once." == explain_invalid_json(JsonProblem('duplicate key "a"', 1, 12)).hint
    assert "Send one complete JSON object." == explain_invalid_json(JsonProblem("expected `:`", 1, 6)).hint
    cut_off = explain_invalid_json(JsonProblem("EOF while parsing a string", 2, 40, truncated=True))
    assert "looks truncated" in cut_off.hint


@pytest.mark.parametrize("text", [b'{"a": "\\ud83d"}', b'{"a": "\\ude00 x"}'])
def test_half_a_character_is_not_called_truncated(text: bytes) -> None:
    problem = parse(text)
    assert isinstance(problem, JsonProblem)
    assert (
        "A \\u escape is half a character: write the character itself, or both halves."
        == explain_invalid_json(problem).hint
    )


def test_unknown_keys_are_found_where_the_schema_would_let_them_pass() -> None:
    check = compile_check(
        obj(a=obj(b=INT), free={"type": "object"}, map={"type": "object", "additionalProperties": INT})
    )
    value = {"a": {"b": 1, "c": 2}, "free": {"x": 1}, "map": {"y": 1}, "A": 1}
    assert [
        Violation(codes.UNKNOWN_FIELD, ("A",), "Unknown field 'A'", "one of the fields 'a', 'free', 'map'",
                  "You sent 'a' as well: send only that.", Severity.WARNING, 1),
        Violation(codes.UNKNOWN_FIELD, ("a", "c"), "Unknown field 'c'", "one of the fields 'b'",
                  "Leave it out.", Severity.WARNING, 2),
    ] == list(find_unknown_fields(check, value, Severity.WARNING))  # fmt: skip


def test_keys_that_the_chosen_branch_declares_are_known() -> None:
    check = compile_check(SHAPES)
    assert [("side",)] == [v.path for v in find_unknown_fields(check, {"kind": "circle", "side": 1}, Severity.ERROR)]
    assert [] == list(find_unknown_fields(check, {"kind": "circle", "r": 1}, Severity.ERROR))


def test_says_that_no_value_fits_and_gives_no_advice() -> None:
    schema = obj(a={"type": "array", "enum": ["x", "y"]})
    for sent in ('{"a":["x"]}', '{"a":"x"}', '{"a":5}'):
        assert {True} == {"takes no value at all here" in each.hint for each in said(schema, sent)}


def test_only_a_default_and_examples_that_the_property_takes_are_named_and_once() -> None:
    for part, hint in (
        ({"enum": ["a", "b"], "default": "c"}, "Send one of these, exactly as written."),
        ({"type": "integer", "default": []}, "Send a whole number without quotes or units."),
        ({"type": "integer", "examples": ["one", 2]}, "For example 2. Send a whole number without quotes or units."),
        (
            {"type": "integer", "minimum": 5, "examples": [2, 7.0, 9, 11]},
            "For example 7.0, 9. Send a whole number without quotes or units.",
        ),
        ({"type": "integer", "minimum": 5, "default": 0}, "Send a whole number without quotes or units."),
    ):
        (only,) = said(needs(a=part), '{"a":"x"}')
        assert hint == only.hint
    (only,) = said(needs(a={**STR, "description": "The name", "default": "x"}), "{}")
    assert "`a`: The name. Its default is 'x'." == only.hint


def test_no_other_quantity_is_suggested() -> None:
    (only,) = said(needs(a={"enum": ["30 minutes", "45 minutes"]}), '{"a":"5 minutes"}')
    assert "Send one of these, exactly as written." == only.hint
    (only,) = said(needs(a={"enum": ["30 minutes", "45 minutes"]}), '{"a":"45 minuts"}')
    assert "Did you mean '45 minutes'?" == only.hint


def test_a_deprecated_key_is_a_warning() -> None:
    check = compile_check(obj(a={"deprecated": True, "description": "Use b"}, b=INT))
    assert [
        Violation(codes.DEPRECATED_FIELD, ("a",), "Field 'a' is deprecated", hint="Use b.", severity=Severity.WARNING)
    ] == list(list_notices(check, {"a": 1, "b": 1}))


# --- severity, secrets, bounds --------------------------------------------------------------------------------------
def test_x_severity_is_the_operators_word_on_one_keyword_or_all() -> None:
    schema = needs(a={**INT, "maximum": 5, "multipleOf": 2, "x-severity": {"maximum": "info"}})
    assert {("must be at most 5", "info"), ("must be a multiple of 2", "error")} == {
        (violation.message.split(": ")[1], violation.severity.value) for violation in said(schema, '{"a":9}')
    }
    (only,) = said(needs(a={**INT, "x-severity": "warning"}), '{"a":"x"}')
    assert Severity.WARNING is only.severity


@pytest.mark.parametrize(
    "schema",
    [
        needs(password={"enum": ["a"]}), needs(password={**STR, "pattern": "^x"}), needs(password=INT),
        needs(a={"enum": ["a"], "writeOnly": True}), needs(a={"enum": ["a"], "x-sensitive": True}),
        needs(a={"enum": ["a"], "format": "password"}), needs(auth=needs(token={"enum": ["a"]})),
        needs(api_key={"anyOf": [{"const": "a"}, {"const": "b"}]}),
    ],
)  # fmt: skip
def test_no_message_holds_a_secret(schema: JsonValue) -> None:
    (name,) = schema["properties"]
    inner = next(iter(schema["properties"][name].get("properties", ())), None)
    value = {name: {inner: "hunter2"} if inner else "hunter2"}
    check = compile_check(schema)
    found = list_violations(check, value, repair(check, value, RepairPolicy(select_rules("lenient"))).ambiguous)
    assert found
    assert not [v for v in found if "hunter2" in v.message + v.hint + v.expected]


def test_no_message_is_long_whatever_was_sent() -> None:
    long = "x" * 10_000
    schema = {
        **closed(**{long: STR}),
        "properties": {long: STR, "e": {"enum": [long, long + "y"]}, "p": {"pattern": long}},
    }
    found = said(schema, f'{{"{long}z":1,"e":"{long}z","p":"y"}}') + said(EITHER, f'{{"{long}":1}}')
    found += (explain_invalid_json(parse(f'{{"{long}":1,"{long}":2}}'.encode())),)
    assert found
    assert all(len(v.message) < 400 and len(v.hint) < 600 and len(v.expected) < 1000 for v in found)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": INT}, ["x"] * 5000),
        (closed(a=INT), {f"k{number}": 1 for number in range(5000)}),
        (needs(**{f"k{number}": INT for number in range(300)}), {}),
        ({"items": EITHER}, [{"c": 1}] * 3000),
    ],
)
def test_at_most_a_hundred_violations_are_made(schema: JsonValue, value: JsonValue) -> None:
    check = compile_check(schema)
    found = list_violations(check, value, ())
    assert MAX_VIOLATIONS == len(found)
    assert found == list_violations(check, value, ())


def test_warnings_beyond_the_hundredth_cannot_hide_an_error() -> None:
    check = compile_check({"items": {"type": "integer", "x-severity": "warning"}, "maxItems": 3})
    assert {Severity.ERROR} == {violation.severity for violation in list_violations(check, ["x"] * 200, ())}
    assert {Severity.WARNING, Severity.ERROR} == {v.severity for v in list_violations(check, ["x"] * 4, ())}


@pytest.mark.parametrize(
    ("expected", "schema", "value"),
    [
        ("'all' or object", {"anyOf": [{"const": "all"}, obj(status=STR)]}, "status = failed"),
        ("integer or one of 'none', 'any'", {"anyOf": [INT, {"enum": ["none", "any"]}]}, "somebody"),
        ("'*' or array of integer", {"oneOf": [{"const": "*"}, {"type": "array", "items": INT}]}, "everything"),
        ("'admin' or boolean", {"oneOf": [{"enum": ["admin"]}, {"type": "boolean"}]}, "root"),
        ("'auto' or object or array of integer",
         {"anyOf": [{"const": "auto"}, obj(a=INT), {"type": "array", "items": INT}]}, "x"),
    ],
)  # fmt: skip
def test_names_every_branch_of_a_union_in_place_of_the_nearest(
    expected: str, schema: JsonValue, value: JsonValue
) -> None:
    (only,) = list_violations(compile_check(obj(filter=schema)), {"filter": value}, ())
    assert (codes.ENUM_MISMATCH, expected) == (only.code, only.expected)
    assert "Send a listed value exactly as written, or another type that is expected." == only.hint


def test_keeps_null_next_to_the_limits_of_the_other_branch() -> None:
    check = compile_check(obj(size={"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}))
    (only,) = list_violations(check, {"size": 0}, ())
    assert "integer (at least 1) or null" == only.expected


@pytest.mark.parametrize(
    ("hint", "items"),
    [
        ("Add it, and do not guess its value: an empty list [] is allowed.", {}),
        ("", {"minItems": 1}),
        ("", {"contains": STR}),
    ],
)
def test_says_that_a_required_list_may_be_empty(hint: str, items: dict[str, JsonValue]) -> None:
    (only,) = list_violations(compile_check(needs(exclude={"type": "array", **items})), {}, ())
    assert hint == only.hint


@pytest.mark.parametrize(
    ("hint", "value", "items"),
    [
        ('Send a JSON array, not text: ["bug","urgent"], if the commas part its items.', "bug, urgent", STR),
        ("Send a JSON array, not text.", "bug, urgent", INT),
        ("Send a JSON array, not text.", "bug, urgent", {"enum": ["bug"]}),
        ("Send a JSON array, not text.", "bug", STR),
        ("Send a JSON array, not text.", "a," * 100, STR),
        ("Send a JSON array, not text.", "/srv/data/a, /srv/data/b", STR),
    ],
)
def test_writes_a_text_with_commas_as_the_list_that_it_may_mean(hint: str, value: str, items: JsonValue) -> None:
    (only,) = list_violations(compile_check(obj(tags={"type": "array", "items": items})), {"tags": value}, ())
    assert hint == only.hint
    (hidden,) = list_violations(compile_check(obj(password={"type": "array", "items": STR})), {"password": "a,b"}, ())
    assert "Send a JSON array, not text." == hidden.hint


def test_advises_one_call_for_each_of_several_objects_and_no_doubled_backslash() -> None:
    several = explain_invalid_json(JsonProblem("trailing characters", 1, 8)).hint
    assert "Send one JSON object with nothing after it. For several objects make one call for each." == several
    escape = explain_invalid_json(JsonProblem("invalid escape", 1, 8)).hint
    assert escape.endswith("Remove it, or double it if the text holds a backslash.")


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        ("It was sent at '/place/title': move it to '/title'.", {"place": {"title": "x"}}),
        ("You sent '/place/title': if it holds 'title', move it here and correct its value.", {"place": {"title": 5}}),
        ("You sent '/x/title', '/y/title': if one of them holds 'title', move that one.",
         {"y": {"title": "b"}, "x": {"title": "a"}}),
        ("You sent '/y/title', '/x/title': if one of them holds 'title', move that one.",
         {"x": {"title": "a"}, "y": {"title": 5}}),
    ],
)  # fmt: skip
def test_names_the_place_of_a_missing_key_that_is_nested_too_deep(hint: str, value: JsonValue) -> None:
    schema: JsonValue = {**obj(title=STR, place=obj(city=STR)), "required": ["title"]}
    (only,) = list_violations(compile_check(schema), value, ())
    assert hint == only.hint


@pytest.mark.parametrize("kind_of", ["integer", "number"])
@pytest.mark.parametrize("sent", ["20", "20.0", "0", "-3", "1e2", "0.5", "two", ""])
@pytest.mark.parametrize(("low", "high"), [("1.0", "9.0"), ("1", "9.5"), ("1e0", "9E0"), ("1", "9")])
@pytest.mark.parametrize("names", [("minimum", "maximum"), ("exclusiveMinimum", "exclusiveMaximum")])
def test_names_the_bound_of_a_number_in_quotes_however_it_is_spelled(
    kind_of: str, sent: str, low: str, high: str, names: tuple[str, str]
) -> None:
    schema = parse(f'{{"properties":{{"n":{{"type":"{kind_of}","{names[0]}":{low},"{names[1]}":{high}}}}}}}'.encode())
    (found,) = said(schema, f'{{"n":"{sent}"}}')
    # `string_to_integer` reads "20.0" as an integer, and "1e2" and "0.5" as none.
    is_out = sent in ("20", "20.0", "0", "-3") or (kind_of == "number" and sent in ("1e2", "0.5"))
    assert is_out == ("out of range" in found.hint)

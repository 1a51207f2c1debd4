"""Changes that are never made to a call, case by case with the reason (docs/repair.md): at every level unless the case
says otherwise.

Each case is a call that must be refused, or go upstream as the very bytes that came. Others repair some of these and
send wrong values to tools without anyone noticing (research: prefix parsing, rounding, truthiness, null into 0).
"""

from __future__ import annotations

from typing import Final

import pytest

from proxy.core.model.values import JsonValue
from tests.core.repairing import LEVELS, obj, outcome
from tests.tables import each_row

INT: Final[JsonValue] = {"type": "integer"}
NUM: Final[JsonValue] = {"type": "number"}
BOOL: Final[JsonValue] = {"type": "boolean"}
STR: Final[JsonValue] = {"type": "string"}
LIST: Final[JsonValue] = {"type": "array", "items": {"type": "string"}}
MODE: Final[JsonValue] = {"enum": ["read", "write"]}


def needs(**properties: JsonValue) -> JsonValue:
    """An object schema that requires all of these properties and allows no other."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


# reason -> calls that are refused at every level
REFUSED: Final[dict[str, list[tuple[JsonValue, str]]]] = {
    "a prefix of a text is not its meaning": [
        (needs(a=INT), '{"a":"10 minutes"}'),
        (needs(a=INT), '{"a":"42px"}'),
        (needs(a=INT), '{"a":"2026-01-15"}'),
        (needs(a=NUM), '{"a":"12.5kg"}'),
        (needs(a=BOOL), '{"a":"tru"}'),
        (needs(a=BOOL), '{"a":"falsehood"}'),
    ],
    "separators mean one thing here and another there": [
        (needs(a=INT), '{"a":"1,000"}'),
        (needs(a=NUM), '{"a":"35,6"}'),
        (needs(a=INT), '{"a":"1_000"}'),
        (needs(a=INT), '{"a":"1 000"}'),
        (needs(a=INT), '{"a":"1.000.000"}'),
    ],
    "a sign of a unit is not dropped": [
        (needs(a=NUM), '{"a":"50%"}'),
        (needs(a=NUM), '{"a":"$5"}'),
        (needs(a=NUM), '{"a":"5k"}'),
        (needs(a=NUM), '{"a":"20°C"}'),
    ],
    "only JSON's own number grammar counts": [
        (needs(a=INT), '{"a":"0x10"}'),
        (needs(a=INT), '{"a":"0b1"}'),
        (needs(a=INT), '{"a":"1e"}'),
        (needs(a=NUM), '{"a":"."}'),
        (needs(a=INT), '{"a":".5"}'),
        (needs(a=NUM), '{"a":"5."}'),
        (needs(a=INT), '{"a":"four"}'),
        (needs(a=NUM), '{"a":"1/2"}'),
        (needs(a=NUM), '{"a":"6*30.48"}'),
        (needs(a=INT), '{"a":"--5"}'),
    ],
    "digits of other scripts are not JSON digits, whatever int() says": [
        (needs(a=INT), '{"a":"٤٢"}'),
        (needs(a=INT), '{"a":"４２"}'),
        (needs(a=NUM), '{"a":"１.5"}'),
        (needs(a=INT), '{"a":"²"}'),
    ],
    "spaces of other scripts are not trimmed off a number": [
        (needs(a=INT), '{"a":"\\u00a042"}'),
        (needs(a=INT), '{"a":"\\u200342"}'),
    ],
    "what is not a finite number is none": [
        (needs(a=NUM), '{"a":"NaN"}'),
        (needs(a=NUM), '{"a":"Infinity"}'),
        (needs(a=NUM), '{"a":"-inf"}'),
        (needs(a=NUM), '{"a":"1e400"}'),
        (needs(a=NUM), '{"a":1e400}'),
        (needs(a=NUM), '{"a":NaN}'),
    ],
    "nothing is rounded": [
        (needs(a=INT), '{"a":42.5}'),
        (needs(a=INT), '{"a":"42.5"}'),
        (needs(a=INT), '{"a":0.9999999999999999999}'),
        (needs(a=INT), '{"a":"9007199254740993.5"}'),
    ],
    "nothing is clamped to a bound": [
        (needs(a={"type": "integer", "maximum": 10}), '{"a":11}'),
        (needs(a={"type": "integer", "maximum": 10}), '{"a":"11"}'),
        (needs(a={"type": "string", "maxLength": 2}), '{"a":"abc"}'),
        (needs(a={"type": "array", "maxItems": 1}), '{"a":[1,2]}'),
    ],
    "dates are not guessed": [
        (needs(a={"type": "string", "format": "date"}), '{"a":"15.01.2026"}'),
        (needs(a={"type": "string", "format": "date"}), '{"a":"tomorrow"}'),
        (needs(a={"type": "string", "format": "date-time"}), '{"a":"2026-01-15"}'),
        (needs(a=INT), '{"a":"2026-01-15T00:00:00Z"}'),
    ],
    "null is not a value": [
        (needs(a=INT), '{"a":null}'),
        (needs(a=STR), '{"a":null}'),
        (needs(a=BOOL), '{"a":null}'),
        (needs(a=LIST), '{"a":null}'),
        (needs(a=LIST), '{"a":[null]}'),
        (needs(a=MODE), '{"a":null}'),
    ],
    "a required key without a default is never filled": [
        (needs(a=INT), "{}"),
        (needs(a={"const": "x"}), "{}"),
        (needs(a=MODE), '{"a":""}'),
        (needs(a=INT), ""),
        (needs(a=INT), "null"),
    ],
    "truthiness is not a boolean": [
        (needs(a=BOOL), '{"a":"y"}'),
        (needs(a=BOOL), '{"a":"enabled"}'),
        (needs(a=BOOL), '{"a":2}'),
        (needs(a=BOOL), '{"a":-1}'),
        (needs(a=BOOL), '{"a":0.0}'),
        (needs(a=BOOL), '{"a":""}'),
        (needs(a=BOOL), '{"a":[]}'),
        (needs(a=BOOL), '{"a":{}}'),
    ],
    "a boolean is neither a number nor a text": [
        (needs(a=INT), '{"a":true}'),
        (needs(a=NUM), '{"a":false}'),
        (needs(a=STR), '{"a":true}'),
        (needs(a={"enum": [1, 0]}), '{"a":true}'),
        (needs(a={"const": 1}), '{"a":true}'),
        (needs(a={"enum": [True]}), '{"a":1.0}'),
        (needs(a={"type": "array", "items": {"enum": [0, 1]}}), '{"a":[false]}'),
    ],
    "a list is not a text": [
        (needs(a=STR), '{"a":[]}'),
        (needs(a=STR), '{"a":[1]}'),
        (needs(tags=STR), '{"tags":["a","b"]}'),
        (needs(a=STR), '{"a":["a",1]}'),
    ],
    "a member is not guessed by likeness, part or place": [
        (needs(a=MODE), '{"a":"reading"}'),
        (needs(a=MODE), '{"a":"rea"}'),
        (needs(a=MODE), '{"a":"raed"}'),
        (needs(a=MODE), '{"a":"r"}'),
        (needs(a=MODE), '{"a":"delete"}'),
        (needs(a=MODE), '{"a":0}'),
        (needs(a={"enum": ["Read", "READ"]}), '{"a":"read"}'),
    ],
    "an unknown key is never dropped in silence": [
        (needs(a=INT), '{"a":1,"b":2}'),
        (needs(a=INT), '{"a":1,"A":1}'),
        (needs(a=INT), '{"a":1,"b":null}'),
        (needs(a=INT), '{"a":1,"b":""}'),
    ],
    "a key is not guessed by likeness": [
        (needs(path=STR), '{"paht":"x"}'),
        (needs(path=STR), '{"file":"x"}'),
        (needs(diameter=NUM), '{"radius":1}'),
        (needs(items=INT), '{"max_items":1}'),
        (needs(max_items=INT, maxItems=INT), '{"MaxItems":1}'),
    ],
    "a truncated call is never closed": [
        (needs(a=INT), '{"a":1'),
        (needs(a=STR), '{"a":"rm -rf /tmp'),
        (needs(a=STR), '{"a":"x"'),
        (needs(a=LIST), '{"a":["x"'),
        (needs(a=LIST), '{"a":["x",'),
        (needs(a=LIST), '{"a":"[\\"x\\""}'),
        (needs(a=LIST), '{"a":"[\'x\'"}'),
        (needs(a=STR), '```json\n{"a":"x"'),
    ],
    "text that may hold several values is never wrapped whole": [
        (needs(a=LIST), '{"a":"[x, y"}'),
        (needs(a=LIST), '{"a":"x; y"}'),
        (needs(a=LIST), '{"a":"x\\ny"}'),
        (needs(a=LIST), '{"a":"{x}"}'),
        (needs(a=LIST), '{"a":"(x)"}'),
        (needs(a=LIST), '{"a":""}'),
        (needs(a=LIST), '{"a":"null"}'),
        (needs(a=LIST), "{\"a\":\"['x' 'y']\"}"),
    ],
    "one of two bodies is not chosen": [
        (needs(a=INT), '{"a":1}{"a":2}'),
        (needs(a=INT), '{"a":1} or {"a":2}'),
        (needs(a=INT), '[{"a":1},{"a":2}]'),
        (needs(a=INT), '{"a":1,"a":2}'),
        (needs(a=INT), '{"a":1,"a":1}'),
    ],
    "arguments that are not an object become none": [
        (needs(a=INT), "[]"),
        (needs(a=INT), '"a"'),
        (needs(a=INT), "1"),
        (needs(a=INT), "true"),
    ],
    "a type is not changed to get around a bound": [
        (needs(a={"type": ["integer", "string"], "maximum": 10}), '{"a":11}'),
        (needs(a={"type": ["number", "string"], "multipleOf": 2}), '{"a":3}'),
        (needs(a={"not": {"const": 1}}), '{"a":1}'),
        (needs(a={"type": ["integer", "array"], "maximum": 10, "items": INT}), '{"a":11}'),
        (needs(a={"type": ["integer", "boolean"], "minimum": 2}), '{"a":1}'),
        (needs(a={"type": ["object", "array"], "minProperties": 1}), '{"a":{}}'),
        (needs(a={"type": ["array", "string"], "maxItems": 1}), '{"a":["x","y"]}'),
        (needs(a={"type": ["array", "string"], "minItems": 2}), '{"a":["x"]}'),
        (needs(a={"type": ["object", "string"], "minProperties": 2}), '{"a":{"b":1}}'),
        (needs(a={"type": ["integer", "string"]}), '{"a":1.5}'),
    ],
    "two meanings are none": [
        (needs(a={"anyOf": [INT, BOOL]}), '{"a":"1"}'),
        (needs(a={"type": ["boolean", "integer"]}), '{"a":"0"}'),
    ],
}

# reason -> valid calls whose very bytes go upstream at every level
UNTOUCHED: Final[dict[str, list[tuple[JsonValue, str]]]] = {
    "text is legal, so it is text": [
        (needs(a=STR), f'{{"a":"{text}"}}')
        for text in (
            "007", "01234", "5", "-1.0", "1e3", "true", "False", "null", "None", "", "yes", "[1]", "a,b", "2026-01-15",
            "10 minutes", "1,000", "50%", "0x10", "1_000", "٤٢", " padded ",
        )
    ] + [(needs(a=STR), '{"a":"{\\"b\\": 1}"}'), (needs(a=STR), "{\"a\":\"['x']\"}")],
    "a union that takes text keeps text": [
        (needs(a={"anyOf": [INT, STR]}), '{"a":"007"}'),
        (needs(a={"type": ["integer", "string"]}), '{"a":"7"}'),
        (needs(a={"anyOf": [LIST, STR]}), '{"a":"[\\"x\\"]"}'),
        (needs(a={"anyOf": [STR, {"type": "null"}]}), '{"a":"null"}'),
        (needs(a={"anyOf": [BOOL, STR]}), '{"a":"true"}'),
        (needs(a={"anyOf": [STR, INT]}), '{"a":7}'),
        (needs(a={}), '{"a":"7"}'),
    ],
    "null is kept where it is legal": [
        (obj(a={"type": ["integer", "null"]}), '{"a":null}'),
        (obj(a={"anyOf": [STR, {"type": "null"}]}), '{"a":null}'),
        (obj(a={"enum": ["x", None]}), '{"a":null}'),
    ],
    "spelling, order and spaces are the client's": [
        (needs(a=NUM), ' { "a" :\t1.10 }\n'),
        (needs(a=NUM), '{"a":1e3}'),
        (needs(a=INT), '{"a":9007199254740993}'),
        (needs(b=STR, a=STR), '{"b":"\\u00e9","a":"é"}'),
        (needs(a={"type": ["number", "integer"]}), '{"a":3.0}'),
        (needs(a={"anyOf": [INT, STR]}), '{"a":3.0}'),
        (needs(a=INT), '{"a":-0}'),
    ],
    "keys that are legal stay as they are": [
        (obj(start_date=STR), '{"startDate":"x"}'),
        (obj(a=INT), '{"a":1,"toolCallId":"x"}'),
        (obj(arguments=obj(a=INT), a=INT), '{"arguments":{"a":1}}'),
        (obj(a={"type": "integer", "default": 5}), "{}"),
    ],
}  # fmt: skip


def _cases(table: dict[str, list[tuple[JsonValue, str]]]) -> list[tuple[object, ...]]:
    return [(level, reason, *case) for reason, cases in table.items() for case in cases for level in LEVELS]


@each_row(("level", "reason", "schema", "sent"), _cases(REFUSED))
def test_it_is_refused(level: str, reason: str, schema: JsonValue, sent: str) -> None:
    assert "VAL-0" in outcome(schema, sent, level), reason


@each_row(("level", "reason", "schema", "sent"), _cases(UNTOUCHED))
def test_changes_nothing(level: str, reason: str, schema: JsonValue, sent: str) -> None:
    assert sent == outcome(schema, sent, level), reason


# Python's own ideas of numbers and equality, each in a place where it could slip in
@pytest.mark.parametrize(
    ("expected", "schema", "sent"),
    [
        ("VAL-008 /a", needs(a={"enum": [1]}), '{"a":true}'),
        ("VAL-008 /a", needs(a={"const": False}), '{"a":0}'),
        ('{"a":[1,true]}', needs(a={"type": "array", "uniqueItems": True}), '{"a":[1,true]}'),
        ("VAL-006 /a", needs(a={"type": "array", "uniqueItems": True}), '{"a":[1,1.0]}'),
        ('{"a":1}', needs(a={"enum": [1.0]}), '{"a":1}'),
        ("VAL-003 /a", needs(a={"type": "integer", "maximum": 9007199254740992}), '{"a":9007199254740993}'),
        ('{"a":9007199254740993}', needs(a=INT), '{"a":"9007199254740993"}'),
        ('{"a":123456789012345678901234567890}', needs(a=INT), '{"a":"123456789012345678901234567890"}'),
        ('{"a":0.30}', needs(a={"type": "number", "multipleOf": 0.1}), '{"a":0.30}'),
        ('{"a":1.10}', needs(a=NUM), '{"a":"1.10"}'),
    ],
)
def test_python_does_not_decide_what_a_number_is(expected: str, schema: JsonValue, sent: str) -> None:
    assert expected == outcome(schema, sent)


def test_a_number_that_only_one_level_reads_is_refused_below_it() -> None:
    assert ["VAL-002 /a", "VAL-002 /a", "VAL-002 /a", '{"a":true}'] == [
        outcome(needs(a=BOOL), '{"a":"yes"}', level) for level in LEVELS
    ]

"""Each repair rule by itself: the values that it changes, and those that it keeps. A rule without cases fails here."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.check.validation import compile_check
from proxy.core.contract.toolname import trim
from proxy.core.json.jsontext import JSON_TYPES, LosslessFloat
from proxy.core.model.values import JsonValue
from proxy.core.rules.facts import list_mistaken_switches, may_change
from proxy.core.rules.proposals import Site
from proxy.core.rules.rules import (
    LEVELS,
    REMOVED,
    RULES,
    TEXT_RULES,
    list_unknown_switches,
    select_rules,
    select_value_rules,
)
from tests.core.repairing import obj, outcome, repairs
from tests.tables import each_row

INT: Final[JsonValue] = {"type": "integer"}
NUM: Final[JsonValue] = {"type": "number"}
BOOL: Final[JsonValue] = {"type": "boolean"}
STR: Final[JsonValue] = {"type": "string"}
UNITS: Final[JsonValue] = {"enum": ["celsius", "fahrenheit", "kelvin scale"]}


DATE: Final[JsonValue] = {"type": "string", "format": "date"}
TIME: Final[JsonValue] = {"type": "string", "format": "date-time"}
EMAIL: Final[JsonValue] = {"type": "string", "format": "email"}
SKU: Final[JsonValue] = {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{2}$"}


def arr(items: JsonValue) -> JsonValue:
    return {"type": "array", "items": items}


def closed(**properties: JsonValue) -> JsonValue:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def needs(key: str, **properties: JsonValue) -> JsonValue:
    return {"type": "object", "properties": properties, "required": [key]}


PLACED: Final = closed(location=closed(city=STR, country=STR))
NESTED: Final[JsonValue] = {**needs("request", request=closed(name=STR, age=INT)), "additionalProperties": False}

# rule -> (schema of the arguments, sent, what goes upstream); the rule is the only one that is on
APPLIES: Final[dict[str, list[tuple[JsonValue, str, str]]]] = {
    "string_to_integer": [
        (obj(a=INT), '{"a":"42"}', '{"a":42}'),
        (obj(a=INT), '{"a":" 42\\t"}', '{"a":42}'),
        (obj(a=INT), '{"a":"-5"}', '{"a":-5}'),
        (obj(a=INT), '{"a":"-0"}', '{"a":0}'),
        (obj(a=INT), '{"a":"42.0"}', '{"a":42}'),
        (obj(a=INT), '{"a":"1234567890123456789012"}', '{"a":1234567890123456789012}'),
        (obj(a={"type": ["integer", "null"]}), '{"a":"0"}', '{"a":0}'),
        (obj(a={"enum": [1, 2]}), '{"a":"2"}', '{"a":2}'),
    ],
    "string_to_number": [
        (obj(a=NUM), '{"a":"35.6"}', '{"a":35.6}'),
        (obj(a=NUM), '{"a":"1.10"}', '{"a":1.10}'),
        (obj(a=NUM), '{"a":"-0"}', '{"a":-0}'),
        (obj(a=NUM), '{"a":"2.500"}', '{"a":2.500}'),
        (obj(a=NUM), '{"a":"1E-3"}', '{"a":1E-3}'),
        (obj(a=NUM), '{"a":"0.1234567890123456789"}', '{"a":0.1234567890123456789}'),
    ],
    "leading_point": [
        (obj(a=NUM), '{"a":".5"}', '{"a":0.5}'),
        (obj(a=NUM), '{"a":"-.25e1"}', '{"a":-0.25e1}'),
    ],
    "string_to_boolean": [
        (obj(a=BOOL), f'{{"a":"{text}"}}', f'{{"a":{value}}}')
        for value, texts in {"true": "1 TRUE true True", "false": "0 FALSE false False"}.items()
        for text in texts.split()
    ]
    + [(obj(a=BOOL), '{"a":" true "}', '{"a":true}')],
    "boolean_letter": [(obj(a=BOOL), '{"a":"t"}', '{"a":true}'), (obj(a=BOOL), '{"a":"F"}', '{"a":false}')],
    "quoted_text": [
        (obj(a=INT), '{"a":"\\"5\\""}', '{"a":5}'),
        (obj(a=NUM), '{"a":"\'2.50\'"}', '{"a":2.50}'),
        (obj(a=UNITS), '{"a":"\'celsius\'"}', '{"a":"celsius"}'),
        (obj(a=BOOL), '{"a":"`true`"}', '{"a":true}'),
    ],
    "year_first_date": [
        (obj(a=DATE), '{"a":"2026/01/15"}', '{"a":"2026-01-15"}'),
        (obj(a=DATE), '{"a":"2026-1-5"}', '{"a":"2026-01-05"}'),
        (obj(a=DATE), '{"a":"20260115"}', '{"a":"2026-01-15"}'),
        (obj(a=TIME), '{"a":"2026-01-15 10:00:00Z"}', '{"a":"2026-01-15T10:00:00Z"}'),
        (obj(a=TIME), '{"a":"2026-01-15 10:00:00 +02:00"}', '{"a":"2026-01-15T10:00:00+02:00"}'),
    ],
    "grouped_number": [
        (obj(a=INT), '{"a":"1,000,000"}', '{"a":1000000}'),
        (obj(a=NUM), '{"a":"-1,234,567.50"}', '{"a":-1234567.50}'),
    ],
    "enum_point": [(obj(a=UNITS), '{"a":"Celsius."}', '{"a":"celsius"}')],
    "value_wrapped": [
        (obj(a=UNITS), '{"a":{"value":"celsius"}}', '{"a":"celsius"}'),
        (obj(a=INT), '{"a":{"value":5}}', '{"a":5}'),
    ],
    "split_pinned": [
        (obj(to=arr(EMAIL)), '{"to":"a@x.org, b@y.org"}', '{"to":["a@x.org","b@y.org"]}'),
        (obj(to=arr(EMAIL)), '{"to":"a@x.org;b@y.org"}', '{"to":["a@x.org","b@y.org"]}'),
        (obj(a=arr(DATE)), '{"a":"2026-01-01, 2026-01-31"}', '{"a":["2026-01-01","2026-01-31"]}'),
    ],
    "dotted_keys": [
        (PLACED, '{"location.city":"x","location.country":"y"}', '{"location":{"city":"x","country":"y"}}'),
        (PLACED, '{"location[city]":"x"}', '{"location":{"city":"x"}}'),
    ],
    "call_envelope": [
        (needs("a", a=INT), sent, '{"a":1}')
        for sent in (
            '{"name":"get_tool","arguments":{"a":1}}',
            '{"function":"get_tool","parameters":{"a":1}}',
            '{"tool_name":"functions.get_tool","tool_input":{"a":1}}',
            '{"id":"call_1","type":"function","function":{"name":"get_tool","arguments":"{\\"a\\":1}"}}',
            '{"tool_calls":[{"type":"function","function":{"name":"get_tool","arguments":{"a":1}}}]}',
            '{"type":"tool_use","id":"x","name":"get_tool","input":{"a":1}}',
            '{"action":"get_tool","action_input":{"a":1}}',
            '[{"name":"get_tool","arguments":{"a":1}}]',
        )
    ],
    "nest_arguments": [(NESTED, '{"name":"x","age":3}', '{"request":{"name":"x","age":3}}')],
    "integral_float": [
        (obj(a=INT), '{"a":3.0}', '{"a":3}'),
        (obj(a=INT), '{"a":-100.00}', '{"a":-100}'),
        (obj(a=INT, b=NUM), '{ "b" : 1.0 , "a":\t3.0}', '{ "b" : 1.0 , "a":\t3}'),
        (arr(INT), "[1,2.0]", "[1,2]"),
        ({"type": "object", "additionalProperties": INT}, '{"x":3.0}', '{"x":3}'),
        ({"allOf": [obj(a=NUM), obj(a=INT)]}, '{"a":3.0}', '{"a":3}'),
    ],
    "number_to_string": [
        (obj(a=STR), '{"a":123}', '{"a":"123"}'),
        (obj(a=STR), '{"a":1.10}', '{"a":"1.10"}'),
        (obj(a=STR), '{"a":12345678901234567890}', '{"a":"12345678901234567890"}'),
    ],
    "boolean_word": [
        (obj(a={"enum": ["True", "False", "dontcare"]}), '{"a":true}', '{"a":"True"}'),
        (obj(a={"enum": ["yes", "false"]}), '{"a":false}', '{"a":"false"}'),
    ],
    "parse_json_string": [
        (obj(a=arr(INT)), '{"a":"[1,2]"}', '{"a":[1,2]}'),
        (obj(a=obj(b=INT)), '{"a":" {\\"b\\":1} "}', '{"a":{"b":1}}'),
        (obj(a=arr(INT)), '{"a":"\\"[1]\\""}', '{"a":[1]}'),
        (obj(a=INT), '"{\\"a\\":1}"', '{"a":1}'),
    ],
    "json_item": [(obj(a=arr(obj(b=INT))), '{"a":"{\\"b\\":1}"}', '{"a":[{"b":1}]}')],
    "null_text": [
        (obj(a={"type": ["integer", "null"]}), '{"a":"null"}', '{"a":null}'),
        (obj(a={"type": ["integer", "null"]}), '{"a":"None"}', '{"a":null}'),
        (obj(a={"enum": ["x", None]}), '{"a":"null"}', '{"a":null}'),
    ],
    "enum_case": [
        (obj(a=UNITS), '{"a":"Celsius"}', '{"a":"celsius"}'),
        (obj(a=UNITS), '{"a":" FAHRENHEIT "}', '{"a":"fahrenheit"}'),
        (obj(a={"const": "Paris"}), '{"a":"paris"}', '{"a":"Paris"}'),
        (obj(a={"enum": ["STREAMABLE_HTTP", "SSE"]}), '{"a":"streamableHttp"}', '{"a":"STREAMABLE_HTTP"}'),
        (obj(a=UNITS), '{"a":"Kelvin-Scale"}', '{"a":"kelvin scale"}'),
    ],
    "split_members": [(obj(a=arr({"enum": ["red", "green"]})), '{"a":"red, green"}', '{"a":["red","green"]}')],
    "drop_null_optional": [
        (obj(a=INT, b=INT), '{"a":null,"b":1}', '{"b":1}'),
        (obj(a={"type": "integer", "default": 5}), '{"a":null}', "{}"),
        ({"type": "object", "additionalProperties": STR}, '{"x":null}', "{}"),
    ],
    "key_quotes": [
        (needs("command", command=STR), '{"\\"command\\"":"ls"}', '{"command":"ls"}'),
        (closed(a=INT), "{\"'a'\":1}", '{"a":1}'),
        (needs("a", a=INT), '{"`a`":1,"b":2}', '{"a":1,"b":2}'),
    ],
    "key_case": [
        (closed(start_date=STR), '{"startDate":"x"}', '{"start_date":"x"}'),
        (closed(timeout_ms=INT), '{"timeoutMs":1}', '{"timeout_ms":1}'),
        (needs("startDate", startDate=STR), '{"start-date":"x","b":1}', '{"startDate":"x","b":1}'),
        (obj(a=arr(closed(maxItems=INT))), '{"a":[{"Max Items":1}]}', '{"a":[{"maxItems":1}]}'),
    ],
    "empty_arguments": [(obj(a=INT), "", "{}"), (obj(a=INT), "null", "{}")],
    "code_fence": [
        (obj(a=INT), '```json\n{"a":1}\n```', '{"a":1}'),
        (obj(a=INT), ' ```\n{"a":1}```', '{"a":1}'),
    ],
    "control_characters": [(obj(a=STR), '{"a":"x\ny\tz"}', '{"a":"x\\u000ay\\u0009z"}')],
    "repeated_body": [(obj(a=INT), '{"a":1}{"a":1}', '{"a":1}'), (obj(a=INT), '{"a":1}\n{"a":1}', '{"a":1}')],
    "yes_no": [
        (obj(a=BOOL), f'{{"a":"{text}"}}', f'{{"a":{value}}}')
        for text, value in {"yes": "true", "No": "false", "ON": "true", " off ": "false"}.items()
    ],
    "zero_one": [(obj(a=BOOL), '{"a":1}', '{"a":true}'), (obj(a=BOOL), '{"a":0}', '{"a":false}')],
    "enum_fold": [
        (obj(a={"enum": ["PDF", "docx"]}), '{"a":"pdf"}', '{"a":"PDF"}'),
        (obj(a={"enum": ["1h", "4h", "1d"]}), '{"a":"1H"}', '{"a":"1h"}'),
    ],
    "python_literal": [
        (obj(a=obj(x=BOOL)), "{\"a\":\"{'x': True, 'y': None, 'z': 1.50}\"}", '{"a":{"x":true,"y":null,"z":1.50}}'),
        (obj(a=arr(STR)), "{\"a\":\"['a', 'b']\"}", '{"a":["a","b"]}'),
        (obj(a=arr(obj(b=BOOL))), '{"a":"[{\'b\': True}]"}', '{"a":[{"b":true}]}'),
    ],
    "split_commas": [
        (obj(a=arr(STR)), '{"a":"x,y,z"}', '{"a":["x","y","z"]}'),
        (obj(a=arr(STR)), '{"a":"x, y, z"}', '{"a":["x","y","z"]}'),
        (obj(a=arr(STR)), "{\"a\":\"'x','y'\"}", '{"a":["x","y"]}'),
    ],
    "join_chunks": [(obj(text=STR), '{"text":["one\\n","two"]}', '{"text":"one\\ntwo"}')],
    "item_wrapped": [
        (obj(a=arr(obj(b=INT))), '{"a":{"item":{"b":1}}}', '{"a":[{"b":1}]}'),
        (obj(a=arr(INT)), '{"a":{"item":[1,2]}}', '{"a":[1,2]}'),
    ],
    "self_wrapped": [
        (obj(tags=arr(STR)), '{"tags":{"tags":["x"]}}', '{"tags":["x"]}'),
        (obj(edits=arr(INT)), '{"edits":"{\\"edits\\":[1]}"}', '{"edits":[1]}'),
    ],
    "key_markup": [
        (needs("ops", ops=arr(STR)), '{"parameter name=\\"ops\\"":["x"]}', '{"ops":["x"]}'),
        # GLM's parser in vLLM (vllm-project/vllm#54971)
        (needs("path", path=STR), '{"path</arg_key>":"x"}', '{"path":"x"}'),
        (needs("path", path=STR), '{"<arg_key>path":"x"}', '{"path":"x"}'),
        (needs("path", path=STR), '{"<arg_key>path</arg_key>":"x"}', '{"path":"x"}'),
    ],
    "curly_quotes": [(obj(a=STR), '{“a”: “say \\"hi\\"”}', '{"a":"say \\"hi\\""}')],
    "first_of_one": [(obj(a=STR), '{"a":["x"]}', '{"a":"x"}'), (obj(a=INT), '{"a":[5]}', '{"a":5}')],
    "unwrap_arguments": [
        (needs("a", a=INT), '{"arguments":{"a":1}}', '{"a":1}'),
        (needs("a", a=INT), '{"params":{"kwargs":{"a":1}}}', '{"a":1}'),
        (needs("a", a=INT), '{"get_tool":{"a":1}}', '{"a":1}'),
    ],
    "object_to_json_string": [
        (obj(arguments=STR), '{"arguments":{"b":[1.10]}}', '{"arguments":"{\\"b\\":[1.10]}"}'),
        (obj(a={**STR, "contentMediaType": "application/json"}), '{"a":{"b":1}}', '{"a":"{\\"b\\":1}"}'),
    ],
    "drop_unknown": [(closed(a=INT), '{"a":1,"toolCallId":"x"}', '{"a":1}')],
    "fill_default": [
        (
            {
                "type": "object",
                "properties": {"a": INT, "mode": {"default": "x"}},
                "dependentRequired": {"a": ["mode"]},
            },
            '{"a":1}',
            '{"a":1,"mode":"x"}',
        )
    ],
    "fill_required": [
        (needs("mode", mode={"default": "x"}), "{}", '{"mode":"x"}'),
        (
            {**needs("x", x={**INT, "default": 0}, y={**INT, "default": 0}, z=INT), "required": ["x", "y"]},
            '{"z":1}',
            '{"z":1,"x":0,"y":0}',
        ),
    ],
    "windows_paths": [(obj(a=STR), '{"a":"C:\\Users\\me"}', '{"a":"C:\\\\Users\\\\me"}')],
    "call_markup": [
        (obj(a=INT), '<tool_call>\n{"a":1}\n</tool_call>', '{"a":1}'),
        (obj(a=INT), '<|python_tag|>{"a":1}<|eot_id|>', '{"a":1}'),
        (obj(a=arr(INT)), '{"a":[1]}</parameter>\n</invoke>', '{"a":[1]}'),
    ],
    "trailing_text": [
        (obj(a=INT), '{"a":1}}', '{"a":1}'),
        (obj(a=INT), '{"a":1}\n```', '{"a":1}'),
    ],
    "bare_keys": [(obj(a=INT, b=STR), '{a: 1, b: "x"}', '{"a":1,"b":"x"}')],
    "needless_escapes": [(obj(a=STR), '{"a":"it\\\'s \\$5"}', '{"a":"it\'s $5"}')],
    "escaped_text": [
        (obj(a=STR), '{\\"a\\":\\"x\\"}', '{"a":"x"}'),
        (obj(a=STR), "{&quot;a&quot;: &quot;x &amp; y&quot;}", '{"a": "x & y"}'),
    ],
    "trailing_commas": [(obj(a=arr(INT)), '{"a":[1,2,],}', '{"a":[1,2]}')],
    "comments": [(obj(a=INT), '{"a":1 // one\n}', '{"a":1}'), (obj(a=INT), '/* x */{"a":1}', '{"a":1}')],
    "single_quotes": [(obj(a=STR), "{'a':'it\\'s \"x\"'}", '{"a":"it\'s \\"x\\""}')],
    "python_literals": [
        (obj(a=BOOL), '{"a":True,"b":None,"c":False}', '{"a":true,"b":null,"c":false}'),
    ],
    "unescaped_quotes": [(obj(a=STR), '{"a":"say "hi" now"}', '{"a":"say \\"hi\\" now"}')],
    "number_pinned": [
        (obj(zip={**STR, "minLength": 5, "maxLength": 5}), '{"zip":12345}', '{"zip":"12345"}'),
        (obj(a={**STR, "pattern": "^[0-9]{3}$"}), '{"a":123}', '{"a":"123"}'),
        (obj(a={"enum": ["1", "2"]}), '{"a":1}', '{"a":"1"}'),
        (obj(a={"enum": ["1", "2"]}), '{"a":1.0}', '{"a":"1"}'),
    ],
    "wrap_object": [(obj(a=arr(obj(b=INT))), '{"a":{"b":1}}', '{"a":[{"b":1}]}')],
    "wrap_pinned": [
        (obj(teams=arr({"enum": ["Rovers United", "City"]})), '{"teams":"City"}', '{"teams":["City"]}'),
        (obj(to=arr(EMAIL)), '{"to":"a@x.org"}', '{"to":["a@x.org"]}'),
        (obj(a=arr({"enum": [1, 2]})), '{"a":2}', '{"a":[2]}'),
    ],
    "wrap_scalar": [(obj(a=arr(INT)), '{"a":7}', '{"a":[7]}'), (obj(a=arr(BOOL)), '{"a":true}', '{"a":[true]}')],
    "wrap_text": [(obj(a=arr(STR)), '{"a":"x, y"}', '{"a":["x, y"]}')],
    "aliases": [(closed(lat=NUM), '{"latitude":1.5}', '{"lat":1.5}')],
}

# rule -> (schema, sent) that it must not change although it is on
LEAVES: Final[dict[str, list[tuple[JsonValue, str]]]] = {
    "string_to_integer": [
        (obj(a=INT), f'{{"a":"{text}"}}')
        for text in ("42.5", "10 minutes", "1,000", "0x10", "1_000", "٤٢", "", "-", "1e5000", "1" * 4301, "--1", "NaN",
                     "1.000", "12.000", "0755", "00123", "007", "1e21", "+42", "05", "1e3", "42.00")
    ] + [(obj(a={"anyOf": [INT, arr(INT)]}), '{"a":"5"}')],
    "string_to_number": [
        (obj(a=NUM), f'{{"a":"{text}"}}') for text in ("50%", "1,5", "1e400", "Infinity", ".", "5.", "1 2", "$5",
        "007.5", "07.50", "+1.5")
    ],
    "leading_point": [(obj(a=NUM), f'{{"a":"{text}"}}') for text in (".", "..5", ".5.5", ".5 %", ".e5")],
    "string_to_boolean": [(obj(a=BOOL), f'{{"a":"{text}"}}') for text in ("yes", "tru", "TrUe", "t", "f", "T", "F",
    "on",
    "2", "")],
    "boolean_letter": [(obj(a=BOOL), f'{{"a":"{text}"}}') for text in ("n", "y", "tr", "T.", "true")],
    "quoted_text": [
        (obj(a=INT), "{\"a\":\"5'\"}"),
        (obj(a=INT), '{"a":"\\"5\\" or \\"6\\""}'),
        (obj(a=UNITS), '{"a":"\\"Celcius\\""}'),
    ],
    "year_first_date": [
        (obj(a=DATE), f'{{"a":"{text}"}}')
        for text in ("01/02/2026", "2026/13/01", "2026.01.15", "26-01-15", "2026-01", "20261345", "2026/01-15")
    ] + [(obj(a=TIME), f'{{"a":"{text}"}}') for text in ("2026-01-15", "2026-01-15 10:00:00", "2026/01/15 10:00:00Z")],
    "grouped_number": [
        (obj(a=INT), f'{{"a":"{text}"}}') for text in ("1,000", "1,00,000", "1.000.000", "1,000,00", "0,000,000",
        "1,000,000.5")
    ],
    "enum_point": [(obj(a=UNITS), '{"a":"Celsius or."}'), (obj(a={"enum": ["no", "yes"]}), '{"a":"No."}')],
    "value_wrapped": [
        (obj(a=UNITS), '{"a":{"value":"celsius","sure":false}}'),
        (obj(a=INT), '{"a":{"max":5}}'),
        (obj(a=STR), '{"a":{"value":"x"}}'),
    ],
    "split_pinned": [
        (obj(a=arr(EMAIL)), f'{{"a":"{text}"}}')
        for text in ("a@x.org, bob", "a@x.org b@y.org", "a@x.org, b@y.org; c@z.org", "a@x.org,, b@y.org")
    ] + [
        (obj(a=arr({"type": "string", "pattern": "^[A-Z]+$"})), '{"a":"AB,CD"}'),
        (obj(a=arr({"type": "string", "format": "uri"})), '{"a":"http://a, http://b"}'),
    ],
    "dotted_keys": [
        (PLACED, '{"location.town":"x"}'),
        (PLACED, '{"location.city":"x","location":{"country":"y"}}'),
        (PLACED, '{"location.city":"x","place.country":"y"}'),
        (PLACED, '{"location.city":"x","location[city]":"y"}'),
    ],
    "call_envelope": [
        (needs("a", a=INT), '{"name":"put_tool","arguments":{"a":1}}'),
        (needs("a", a=INT), '{"name":"get_tool","arguments":{"a":1},"dry_run":true}'),
        (needs("a", a=INT), '[{"name":"get_tool","arguments":{"a":1}},{"name":"get_tool","arguments":{"a":2}}]'),
        (needs("a", a=INT), '{"type":"example","name":"get_tool","arguments":{"a":1}}'),
    ],
    "nest_arguments": [
        ({**needs("user", user=closed(name=STR)), "additionalProperties": False}, '{"name":"x"}'),
        (NESTED, '{"name":"x","team":"y"}'),
        ({**needs("request", request=closed(name=STR), team=STR), "additionalProperties": False}, '{"name":"x"}'),
    ],
    "integral_float": [(obj(a=INT), '{"a":3.5}'), (obj(a=INT), '{"a":"3.0"}')],
    "number_to_string": [
        (obj(a=STR), f'{{"a":{text}}}') for text in ("true", "[1]", "null", "1.5e10", "1234.0", "1e3")
    ],
    "boolean_word": [
        (obj(a={"enum": ["True", "true"]}), '{"a":true}'),
        (obj(a={"enum": ["yes", "no"]}), '{"a":true}'),
        (obj(a={"enum": ["True"]}), '{"a":1}'),
    ],
    "json_item": [
        (obj(a=arr(obj(b=INT))), '{"a":"{\\"c\\":1}"}'),
        (obj(a=arr(INT)), '{"a":"{\\"b\\":1}"}'),
        (obj(a=arr(arr(obj(b=INT)))), '{"a":["{\\"b\\":1}"]}'),
    ],
    "split_members": [
        (obj(a=arr({"enum": ["red", "green"]})), '{"a":"red, blue"}'),
        (obj(a=arr({"enum": ["a", "b", "a,b"]})), '{"a":"a,b"}'),
        (obj(a=arr(STR)), '{"a":"red,green"}'),
    ],
    "key_quotes": [
        (closed(a=INT), '{"a":1,"\\"a\\"":2}'),
        (closed(a=INT), '{"\\"a\\"":1,"\'a\'":2}'),
        (closed(a=INT), '{"\\"b\\"":1}'),
    ],
    "parse_json_string": [
        (obj(a=arr(INT)), '{"a":"[1,2"}'),
        (obj(a=arr(INT)), '{"a":"{}"}'),
        (obj(a=INT), '{"a":"5"}'),
        (obj(a=arr(INT)), '{"a":"[1,]"}'),
        (obj(a=arr(INT)), '{"a":"\\"\\\\\\"\\\\\\\\\\\\\\"[1]\\\\\\\\\\\\\\"\\\\\\"\\""}'),
    ],
    "null_text": [
        (obj(a=INT), '{"a":"null"}'), (obj(a={"type": ["integer", "null"]}), '{"a":"nil"}'),
        (obj(a={"type": ["integer", "null"]}), '{"a":""}'),
    ],
    "enum_case": [
        (obj(a=UNITS), '{"a":"Celcius"}'),
        (obj(a={"enum": ["A b", "a B"]}), '{"a":"a b"}'),
        (obj(a=UNITS), '{"a":""}'),
        (obj(a={"enum": ["1m", "5m", "1h"]}), '{"a":"1M"}'),
        (obj(a={"enum": ["mW", "W"]}), '{"a":"MW"}'),
        (obj(a={"enum": ["Mb", "Gb"]}), '{"a":"MB"}'),
        (obj(a={"enum": ["mg", "g"]}), '{"a":"Mg"}'),
    ] + [
        (obj(a={"enum": list(members)}), f'{{"a":"{text}"}}')
        for text, *members in (
            ("CM", "C", "Cm", "C7"), ("AM7", "Am", "Am7"), ("-D",
            "-d", "-m"),
            ("R", "r", "w"), ("hh:mm", "HH:mm"), ("\\\\D", "\\d", "\\w"), ("10 MB/s", "10 Mb/s"), ("Maße", "Masse"),
            ("yyyy-mm-dd", "yyyy-MM-dd"), ("%M", "%m"), ("CO", "Co", "Ni"), ("1M", "1m", "1h"), ("gitlab", "GitHub",
            "gitlab.com", "GITLAB"),
        )
    ],
    "drop_null_optional": [(needs("a", a=INT), '{"a":null}'), (obj(a=INT), '{"a":0.5}')],
    "key_case": [
        (closed(start_date=STR), '{"startDate":"x","start_date":"y"}'),
        (closed(start_date=STR), '{"startDate":"x","start-date":"y"}'),
        (closed(start_date=STR), '{"startDates":"x"}'),
        (closed(mA=NUM), '{"MA":5}'),
        (closed(power_mW=NUM), '{"power_MW":5}'),
        (closed(power_mW=NUM), '{"powerMW":5}'),
        (closed(label=STR), '{"-label":"bug"}'),
        (closed(label=STR), '{"label-":"bug"}'),
        (needs("_from", _from=STR, _class=STR), '{"from":"x","class":"y","Class":"z"}'),
    ],
    "empty_arguments": [(needs("a", a=INT), ""), (needs("a", a=INT), "null")],
    "code_fence": [(obj(a=INT), '```json\n{"a":1}'), (obj(a=INT), 'x ```{"a":1}```'), (obj(a=INT),
    "```json\n{'a':1}\n```")],
    "control_characters": [(obj(a=STR), '{"a":"x\n}'), (obj(a=STR), '{"a":"x\ny",}')],
    "repeated_body": [(obj(a=INT), '{"a":1}{"a":2}'), (obj(a=INT), '{"a":1}{"a":1}{"a":1}'), (obj(a=INT), "11")],
    "yes_no": [(obj(a=BOOL), '{"a":"yeah"}'), (obj(a=BOOL), '{"a":"y"}')],
    "zero_one": [(obj(a=BOOL), '{"a":2}'), (obj(a=BOOL), '{"a":1.0}'), (obj(a=BOOL), '{"a":"1"}')],
    "enum_fold": [
        (obj(a={"enum": list(members)}), f'{{"a":"{text}"}}')
        for text, *members in (
            ("kelvin", "kelvin scale"), ("-1", "1", "2"), ("5-10", "510"), ("A-", "A", "B"),
            ("AA-", "AA"), ("1-0", "10"), ("re-sign", "resign", "leave"), ("A B", "AB", "O"),
        )
    ],
    "python_literal": [
        (obj(a=obj(b=INT)), f'{{"a":"{text}"}}') for text in ("{'a'}", "dict(b=1)", "{'b': 1", "{b: 1}", "['b']", "x")
    ] + [
        (obj(a=arr(STR)), f'{{"a":"{text}"}}')
        for text in ("('a',)", "['a' 'b']", "['a'", "[a]", "[1+1]", "['a'] * 3", "[b'a']", "[0x1]", "x")
    ],
    "split_commas": [(obj(a=arr(STR)), '{"a":"x"}'), (obj(a=arr(STR)), '{"a":"x,,y"}'), (obj(a=arr(STR)),
    '{"a":"[x,y"}')]
    + [(obj(a=arr(STR)), f'{{"a":"{text}"}}') for text in ("San Francisco, CA", "x, y", "1,000", "'x',y", "Berlin,DE",
    "Smith,John", "data:image/png;base64,iVB", "rgb(1,2,3)", "52.52,13.40,5.5", "cn=a,ou=b,dc=c", "a.txt,b.txt,c.txt",
    "1,2,3", "x,y, z")],
    "join_chunks": [
        (obj(a=STR), '{"a":["x",1]}'),
        (obj(a=STR), '{"a":[]}'),
        (obj(location=STR), '{"location":["Berlin","Paris"]}'),
        (obj(path=STR), '{"path":["/srv/a","/srv/b"]}'),
        (obj(text=STR), '{"text":["one\\n","two","three"]}'),
        (obj(texts=arr(STR)), '{"texts":[["one\\n","two"]]}'),
        (obj(texts=arr(STR)), '{"texts":[["one\\n","two"],"three"]}'),
    ],
    "first_of_one": [(obj(a=STR), '{"a":["x","y"]}'), (obj(a=STR), '{"a":[]}'), (obj(a=INT), '{"a":["x"]}')],
    "unwrap_arguments": [
        (needs("a", a=INT), '{"arguments":{"b":1}}'),
        (needs("a", a=INT), '{"arguments":{"a":1},"more":1}'),
        (needs("a", a=INT), '{"arguments":[{"a":1}]}'),
        (needs("a", a=INT), '{"input":{"a":1}}'),
        (needs("a", a=INT), '{"_":{"a":1}}'),
    ],
    "item_wrapped": [
        (obj(a=arr(INT)), '{"a":{"items":1}}'),
        (obj(a=arr(INT)), '{"a":{"item":1,"b":2}}'),
        (obj(a=INT), '{"a":{"item":1}}'),
    ],
    "self_wrapped": [
        (obj(city=STR), '{"city":{"city":"x"}}'),
        (obj(tags=arr(STR)), '{"tags":{"labels":["x"]}}'),
        (obj(tags=arr(STR)), '{"tags":{"tags":["x"],"not":["y"]}}'),
        (obj(tags=arr(STR)), '{"tags":{"tags":"x"}}'),
        (obj(tags=arr(obj(tags=arr(STR)))), '{"tags":{"tags":[1]}}'),
    ],
    "key_markup": [(needs("ops", ops=arr(STR)), '{"parameter name=\\"op\\"":["x"]}')],
    "curly_quotes": [(obj(a=STR), '{“a”: “x}'), (obj(a=STR), '{“a”: “say “hi” now”}')],
    "object_to_json_string": [
        (obj(args=STR), '{"args":[1]}'),
        (obj(a=STR), '{"a":{"l":true}}'),
        (obj(a={**STR, "description": "Filter as JSON"}), '{"a":{"b":1}}'),
        (obj(args={"type": "string", "maxLength": 3}), '{"args":{"b":1}}'),
    ],
    "drop_unknown": [
        (closed(a=INT), '{"a":1,"verbose":true}'),
        (closed(a=INT), '{"a":1,"action":"cancel"}'),
        (closed(a=INT), '{"a":1,"tool":"get_tool"}'),
    ],
    "fill_default": [
        ({**needs("mode", mode={"default": "x"}, b={}), "minProperties": 1}, '{"b":1}'),
        ({**obj(a={"default": 1}, b={"default": 1}), "minProperties": 1}, "{}"),
    ],
    "fill_required": [
        (needs("mode", mode={}), "{}"),
        (needs("mode", mode={**INT, "default": "x"}), "{}"),
        (needs("mode", mode={"default": "x"}), '{"mod":"y"}'),
        (needs("mode", mode={"default": "x"}, options={}), '{"options":{"mode":"y"}}'),
        ({**needs("mode", mode={"default": "x"}, a=INT), "required": ["mode", "a"]}, "{}"),
        ({"oneOf": [needs("a", a={"default": 1}), {**needs("b", b=INT), "minProperties": 2}]}, '{"b":"1"}'),
    ],
    "windows_paths": [
        (obj(a=STR), '{"a":"x\\Users"}'), (obj(a=STR), '{"a":"C:\\\\x\\q"}'),
        (obj(a=STR), '{"a":"C:\\data\\nC:\\logs"}'),
    ],
    "call_markup": [
        (obj(a=INT), '<example>{"a":1}</example>'),
        (obj(a=INT), '<tool_response>{"a":1}</tool_response>'),
        (obj(a=INT), '<tool_call>not {"a":1}</tool_call>'),
        (obj(a=INT), '<tool_call>{"a":1}</tool_call><tool_call>{"a":2}</tool_call>'),
        (obj(a=INT), '<tool_call>{"a":1'),
    ],
    "trailing_text": [
        (obj(a=INT), f'{{"a":1}}{rest}')
        for rest in (' {"b":2}', "}}", " -- wait, do not run this", " EUR", " or 200", "\nActually 200.", "<no/>",
        " I hope so")
    ] + [(obj(a=INT), '{"a":1')],
    "bare_keys": [(obj(a=INT), "{a 1}"), (obj(a=STR), "{a: x}"), (obj(a=INT), '{a: 1, "a": 2}'), (obj(a=INT),
    "{a-b: 1}")],
    "needless_escapes": [(obj(a=STR), f'{{"a":"{text}"}}') for text in ("\\d", "\\$HOME", "a\\$", "\\x41")],
    "escaped_text": [
        (obj(a=STR), '{\\"a\\":"x"}'), (obj(a=STR), '{\\"a\\":\\"x\\"'), (obj(a=STR), '{&quot;a&quot;:"x"}'),
    ],
    "trailing_commas": [(obj(a=arr(INT)), '{"a":[1,,2]}'), (obj(a=arr(INT)), '{"a":[1,2,'), (obj(a=arr(INT)),
    '{"a":[,]}')],
    "comments": [(obj(a=INT), '{"a":1 # one\n}'), (obj(a=INT), '{"a":1 /* one }'), (obj(a=STR), '{"a":"x //"')],
    "single_quotes": [(obj(a=STR), "{'a':'x}"), (obj(a=STR), "{'a':'it's'}"), (obj(a=STR), "{a:'x'}")],
    "python_literals": [
        (obj(a=BOOL), '{"a":TRUE}'), (obj(a=BOOL), '{"a":Truee}'), (obj(a=BOOL), '{"a":nan}'),
        (obj(a=INT), '{"a":+3}'),
    ],
    "unescaped_quotes": [
        (obj(a=STR), '{"a":"x"y"}'),
        (obj(a=STR), '{"a":"x" "b":"y"}'),
        (obj(a=STR), '{"a":"say "hi}'),
    ],
    "number_pinned": [
        (obj(a=STR), '{"a":123}'),
        (obj(a={**STR, "pattern": "^[0-9]+$"}), '{"a":123}'),
        (obj(a={**STR, "pattern": "^[0-9]{3,5}$"}), '{"a":123}'),
        (obj(a={**STR, "pattern": "[0-9]{3}"}), '{"a":123}'),
        (obj(a={**STR, "minLength": 5, "maxLength": 5}), '{"a":2139}'),
        (obj(a={"enum": ["01", "02"]}), '{"a":1}'),
    ],
    "wrap_object": [
        (obj(a=arr(obj(b=INT))), '{"a":{"name":"x"}}'),
        (obj(a=arr({"type": "object"})), '{"a":{"ann":{},"bob":{}}}'),
        (obj(a=arr(arr(obj(b=INT)))), '{"a":[{"b":1}]}'),
    ],
    "wrap_pinned": [
        (obj(a=arr(STR)), f'{{"a":"{text}"}}') for text in ("x", "rwx", "MWF", "all", "src/main", "*.py")
    ] + [
        (obj(a=arr({"type": "string", "pattern": "^[a-z]+$"})), '{"a":"x"}'),
        (obj(a=arr(EMAIL)), '{"a":"ann"}'),
        (obj(a=arr({"enum": ["red"]})), '{"a":"none"}'),
        (obj(a=arr(arr({"enum": ["red"]}))), '{"a":["red"]}'),
    ],
    "wrap_scalar": [(obj(a=arr(INT)), '{"a":"7"}'), (obj(a=arr(INT)), '{"a":null}'), (obj(a=arr(STR)), '{"a":7}')],
    "wrap_text": [(obj(a=arr(INT)), '{"a":"x"}'), (obj(a=arr({"enum": ["red"]})), '{"a":"blue"}')],
    "aliases": [
        (closed(lat=NUM), '{"latitude":1.5,"lat":1}'),
        (closed(lat=NUM), '{"Latitude":1.5}'),
        (obj(at=closed(lat=NUM)), '{"at":{"latitude":1.5}}'),
    ],
}  # fmt: skip


# Rules whose result an earlier one may reach as well: the earlier one is recorded
SAYS_THE_SAME: Final = {"python_literal": "parse_json_string", "number_to_string": "number_pinned"}


def _cases(table: dict[str, list[tuple[JsonValue, ...]]]) -> list[tuple[object, ...]]:
    return [(rule, *case) for rule, cases in table.items() for case in cases]


def test_every_rule_has_cases_that_it_repairs_and_cases_that_it_leaves() -> None:
    named = {name for name, rule in RULES.items() if rule.kind not in ("name", "output")}
    assert named == APPLIES.keys()
    assert named == LEAVES.keys()


@each_row(("rule", "schema", "sent", "expected"), _cases(APPLIES))
def test_a_single_rule_repairs_its_cases_without_the_others(
    rule: str, schema: JsonValue, sent: str, expected: str
) -> None:
    assert expected == outcome(schema, sent, "off", {rule: True})
    untouched_without = rule == "integral_float"  # JSON Schema calls 3.0 an integer
    assert (outcome(schema, sent, "off") == sent) is untouched_without


@each_row(("rule", "schema", "sent"), _cases(LEAVES))
def test_a_rule_leaves_what_it_does_not_name_to_the_refusal(rule: str, schema: JsonValue, sent: str) -> None:
    assert "VAL-0" in outcome(schema, sent, "off", {rule: True})


@each_row(("rule", "schema", "sent", "expected"), _cases(APPLIES))
def test_a_rule_works_at_its_level_among_the_others_and_is_recorded(
    rule: str, schema: JsonValue, sent: str, expected: str
) -> None:
    level = RULES[rule].level
    at = ("standard", {rule: True}) if level in ("listed", "named") else (level, None)
    assert expected == outcome(schema, sent, *at)
    made = {repair.split()[0] for repair in repairs(schema, sent, *at)}
    assert made & {rule, SAYS_THE_SAME.get(rule, rule)}


def test_the_levels_grow_and_the_opt_in_rules_are_those_of_the_last() -> None:
    on = [select_rules(level) for level in LEVELS]
    assert frozenset() == on[0]
    assert {"string_to_integer", "string_to_number", "string_to_boolean"} == on[1]
    assert (
        on[1]
        < on[2]
        < on[3]
        == RULES.keys() - {"fill_required", *(name for name, rule in RULES.items() if rule.level == "named")}
    )


def test_fill_required_applies_only_to_listed_tools_unless_it_is_named() -> None:
    listed = [select_rules(level, listed=True) - select_rules(level) for level in LEVELS]
    assert [frozenset(), frozenset(), {"fill_required"}, {"fill_required"}] == listed
    assert {"fill_required"} == select_rules("lenient", {"fill_required": True}) - select_rules("lenient")
    assert select_rules("lenient") == select_rules("lenient", {"fill_required": False}, listed=True)


def test_a_switch_goes_before_the_level() -> None:
    assert select_rules("standard") - {"wrap_pinned"} | {"yes_no"} == select_rules(
        "standard", {"wrap_pinned": False, "yes_no": True}
    )
    for level, switches in (("all", {}), ("off", {"no_such_rule": True})):
        with pytest.raises(KeyError):
            select_rules(level, switches)


def test_every_rule_tells_what_it_changes_and_on_what_condition() -> None:
    assert all(rule.change and rule.condition and name == rule.name for name, rule in RULES.items())
    assert {name for name, rule in RULES.items() if rule.kind == "value"} == {
        rule.name for rule in select_value_rules(frozenset(RULES))
    }
    assert {name for name, rule in RULES.items() if rule.kind == "text"} == set(TEXT_RULES)
    assert REMOVED.keys().isdisjoint(RULES)


def test_a_text_that_the_items_take_whole_and_in_parts_has_two_meanings() -> None:
    both = obj(a=arr({"enum": ["a", "b", "a,b"]}))
    assert "VAL-0" in outcome(both, '{"a":"a,b"}')
    assert "VAL-0" in outcome(both, '{"a":"a,b"}', "lenient")


TELLING: Final = ["", "true", "yes", "1", "4.0", "null", "[1]", "{'a': 1}", "a,b", "A"]
VALUES: Final = st.recursive(
    st.sampled_from([None, True, 0, 1, 7, 2.5, LosslessFloat(b"3.0"), LosslessFloat(b"2.5"), *TELLING]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
        | st.fixed_dictionaries({"description": inner, "type": inner})
    ),
    max_leaves=4,
)
SITES: Final = st.builds(
    Site,
    st.frozensets(st.sampled_from(JSON_TYPES)),  # none: by a schema that takes nothing
    st.booleans(),
    st.none() | st.just(("a", "true", 1)),
    st.booleans(),
    st.just(TEXT_RULES) | st.just(frozenset[str]()),
)


@given(VALUES, SITES)
def test_a_rule_that_is_not_asked_would_have_proposed_nothing(value: JsonValue, site: Site) -> None:
    for rule in select_value_rules(frozenset(RULES)):
        if rule.read is not None and not may_change(rule, type(value), site):
            assert rule.read(value, site) is None, rule.name


def test_the_rule_of_names_is_applied_by_the_dispatcher() -> None:
    assert ["tool_name_trim", "tool_name_fold"] == [name for name, rule in RULES.items() if rule.kind == "name"]
    assert "get_weather" == trim("functions.get_weather", {"get_weather"})
    assert trim("function.get_weather", {"get_weather"}) is None


def test_finds_mistaken_switches_at_any_place_in_a_schema() -> None:
    schema = obj(a={"x-repair": "offf"}, b=arr({"x-repair": ["enum_case", "enumcase"]}), c={"x-repair": ["key_case"]})
    found = [(node.path, names) for node, _, names in list_mistaken_switches(compile_check(schema).schemas)]
    assert [(("properties", "a"), ("offf",)), (("properties", "b", "items"), ("enumcase",))] == sorted(found)


@pytest.mark.parametrize(
    ("expected", "written"),
    [
        ((), True), ((), "off"), ((), "on"), ((), False), ((), []), ((), ["key_case", "enum_case"]),
        (("key_cases",), ["key_cases"]), (("3",), [3]), (("none",), "none"), (("7",), 7),
    ],
)  # fmt: skip
def test_an_x_repair_that_names_no_rule_is_a_mistake_of_the_schema(
    expected: tuple[str, ...], written: JsonValue
) -> None:
    assert expected == list_unknown_switches(written)

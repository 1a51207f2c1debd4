"""Repairs that once sent a tool something else than the model meant: each is refused now, or repaired whole.

Every case was met in collected calls of real models or found by an attacker; the names of its tools are theirs.
"""

from __future__ import annotations

from typing import Final

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import NullOptional, RepairPolicy, ToolPolicy
from proxy.core.decide import decide
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsontext import dumps
from proxy.core.model.values import Forward, JsonValue, Reject, ToolResult
from proxy.core.rules.rules import select_rules
from tests.core.repairing import LEVELS, call, judged, obj, outcome, policy, refused, repairs, told
from tests.tables import each_row

INT: Final[JsonValue] = {"type": "integer"}
NUM: Final[JsonValue] = {"type": "number"}
STR: Final[JsonValue] = {"type": "string"}


def arr(items: JsonValue) -> JsonValue:
    return {"type": "array", "items": items}


def needs(*names: str, **properties: JsonValue) -> JsonValue:
    return {"type": "object", "properties": properties, "required": list(names)}


def of_tool(
    name: str,
    schema: JsonValue,
    sent: str,
    level: str = "standard",
    by_hand: tuple[str, ...] = (),
    *,
    patch: bool = False,
) -> str:
    """Returns what becomes of a call of a tool of this name; `by_hand` are rules the operator switched on."""
    rules = RepairPolicy(select_rules(level, dict.fromkeys(by_hand, True)), by_hand=frozenset(by_hand))
    under = ToolPolicy(name, compile_check(schema), "f", repair=rules, changes=patch)
    return told(decide(call(sent, under.repair.rules), under))


# --- refused at every level -----------------------------------------------------------------------------------------
@each_row("level", LEVELS)
@each_row(
    ("meaning", "schema", "sent"),
    [
        ("one row is not a column", needs("values", values=arr(arr(STR))), '{"values":["Name","Age"]}'),
        ("a point is not a list of points", needs("points", points=arr(arr(NUM))), '{"points":[5,5]}'),
        ("one command is not three", needs("c", c=arr(arr(STR))), '{"c":["git","push","--force"]}'),
        ("a row in JSON text is a row too", needs("values", values=arr(arr(STR))),
         '{"values":"[\\"Name\\",\\"Age\\"]"}'),
        ("a nested call is not a transaction", needs("t", t=arr(obj(amount=NUM))), '{"t":{"name":"get_transactions"}}'),
        ("two people are not one", needs("users", users=arr({"type": "object"})), '{"users":{"ann":{},"bob":{}}}'),
        ("a quoted word is not the word", needs("tags", tags=arr(STR)), '{"tags":"\\"urgent\\""}'),
        ("two addresses", needs("to", to=arr(STR)), '{"to":"alice@x.com bob@x.com"}'),
        ("a list with bars", needs("tags", tags=arr(STR)), '{"tags":"bug|enhancement"}'),
        ("a list with tabs", needs("s", s=arr(STR)), '{"s":"AAPL\\tMSFT"}'),
        ("a list with ideographic commas", needs("c", c=arr(STR)), '{"c":"北京、上海、广州"}'),
        ("a list with fullwidth commas", needs("c", c=arr(STR)), '{"c":"北京，上海"}'),
        ("a list with Arabic commas", needs("c", c=arr(STR)), '{"c":"القاهرة، دبي"}'),
        ("a list in words", needs("to", to=arr(STR)), '{"to":"ann und bob"}'),
        ("two cities are not one name", needs("location", location=STR), '{"location":["Berlin","Paris"]}'),
        ("two dates", needs("date", date=STR), '{"date":["2023-05-05","2023-05-04"]}'),
        ("two paths are not one path", needs("path", path=STR), '{"path":["/srv/a","/srv/b"]}'),
        ("an object is not a name", needs("at", at=STR), '{"at":{"location":"Seattle"}}'),
        ("a city with its state is one place or two", needs("c", c=arr(STR)), '{"c":"San Francisco, CA"}'),
        ("the schema is not a value", needs("at", at=STR), '{"at":{"type":"string","description":"The city"}}'),
        ("a declared key is not a wrapper", needs("type", type=STR, traits=arr(STR)),
         '{"type":{"type":"string","description":"\'ENFJ\'","traits":["warm"]}}'),
        ("a month is not a minute", needs("i", i={"enum": ["1m", "5m", "1h", "1d"]}), '{"i":"1M"}'),
        ("a megawatt is not a milliwatt", needs("u", u={"enum": ["mW", "W", "kW"]}), '{"u":"MW"}'),
        ("a megabyte is not a megabit", needs("u", u={"enum": ["Mb", "Gb"]}), '{"u":"MB"}'),
        ("a megaampere is not a milliampere", {**needs(mA=NUM), "additionalProperties": False}, '{"MA":5}'),
        ("one thousand is not one", needs("a", a=INT), '{"a":"1.000"}'),
        ("twelve thousand is not twelve", needs("a", a=INT), '{"a":"12.000"}'),
        ("an octal mode is not a decimal number", needs("mode", mode=INT), '{"mode":"0755"}'),
        ("a code has leading zeros", needs("account", account=INT), '{"account":"00123"}'),
        ("without its filter a query means all", needs("table", table=STR, where={"type": "string", "minLength": 1}),
         '{"table":"users","where":""}'),
    ],
)  # fmt: skip
def test_rejects_a_call_with_a_second_meaning(level: str, meaning: str, schema: JsonValue, sent: str) -> None:
    assert "VAL-0" in outcome(schema, sent, level), meaning


def test_one_repair_next_to_the_refused_ones_still_works() -> None:
    assert '{"a":5}' == outcome(obj(a=INT), '{"a":"5"}')
    assert '{"a":2.500}' == outcome(obj(a=NUM), '{"a":"2.500"}')
    assert '{"edits":[{"old":"a","new":"b"}]}' == outcome(
        obj(edits=arr(obj(old=STR, new=STR))), '{"edits":{"old":"a","new":"b"}}'
    )
    assert '{"unit":"gram"}' == outcome(obj(unit={"enum": ["gram", "pound"]}), '{"unit":"Gram"}')


# --- "clear this field" -----------------------------------------------------------------------------------------------
ISSUE: Final[JsonValue] = needs("issueId", issueId=STR, assignedTo=STR, points={**INT, "default": 1})
NULL: Final = '{"issueId":"A-1","assignedTo":null}'
NULL_BEFORE_A_DEFAULT: Final = '{"issueId":"A-1","points":null}'


@each_row(
    "tool", ["update_issue", "issues.get", "reget_issue", "scrape", "look_up", "getaway", "create_issue", "frobnicate"]
)
@each_row("sent", [NULL, NULL_BEFORE_A_DEFAULT])
def test_keeps_a_null_that_nothing_states_to_be_nothing(tool: str, sent: str) -> None:
    assert "VAL-002" in of_tool(tool, ISSUE, sent)
    assert "VAL-002" in of_tool(tool, ISSUE, sent, "lenient")


@each_row("tool", ["get_issue", "searchIssues", "GetUsers", "list_orders", "query", "count-issues", "show.issue"])
@each_row("sent", [NULL, NULL_BEFORE_A_DEFAULT])
def test_leaves_a_null_out_on_a_tool_that_begins_with_a_reading_verb(tool: str, sent: str) -> None:
    assert '{"issueId":"A-1"}' == of_tool(tool, ISSUE, sent)


@each_row(
    ("expected", "stated"),
    [
        ("left out", "reads"),
        ("left out, not before a default", "adds"),
        ("refused", "changes"),
        ("refused", "changes, reads"),
        ("refused", ""),
    ],
)
def test_leaves_a_null_out_if_the_tool_is_stated_to_read_or_to_add(expected: str, stated: str) -> None:
    under = ToolPolicy(
        "issue",
        compile_check(ISSUE),
        "f",
        repair=RepairPolicy(select_rules("standard")),
        reads="reads" in stated,
        adds="adds" in stated,
        changes="changes" in stated,
    )
    made = [
        "left out" if "VAL" not in told(decide(call(sent), under)) else "refused"
        for sent in (NULL, NULL_BEFORE_A_DEFAULT)
    ]
    assert {
        "left out": ["left out", "left out"],
        "left out, not before a default": ["left out", "refused"],
        "refused": ["refused", "refused"],
    }[expected] == made


@each_row(
    ("tool", "null_optional", "is_left_out"),
    [
        ("get_issue", NullOptional.READING, True),
        ("get_issue", NullOptional.STATED, False),
        ("get_issue", NullOptional.REFUSE, False),
        ("get_issue", NullOptional.DROP, True),
        ("update_issue", NullOptional.DROP, True),
    ],
)
def test_the_config_says_on_whose_word_a_null_is_left_out(
    tool: str, null_optional: NullOptional, *, is_left_out: bool
) -> None:
    rules = RepairPolicy(select_rules("standard"), null_optional=null_optional)
    decision = decide(call(NULL), ToolPolicy(tool, compile_check(ISSUE), "f", repair=rules))
    assert isinstance(decision, Forward) is is_left_out


@each_row("sent", ['{"issueId":"A-1","points":""}', '{"issueId":"A-1","points":"None"}'])
def test_an_empty_text_and_a_word_are_never_nothing(sent: str) -> None:
    assert "VAL-002" in of_tool("get_issue", ISSUE, sent, "lenient")


def test_a_method_that_changes_something_overrules_a_reading_verb() -> None:
    assert "VAL-002 /assignedTo" == of_tool("get_issue", ISSUE, NULL, patch=True)


def test_the_operator_has_the_last_word_for_a_tool_and_a_property() -> None:
    sent = '{"issueId":"A-1","assignedTo":null}'
    assert '{"issueId":"A-1"}' == of_tool("update_issue", ISSUE, sent, by_hand=("drop_null_optional",))
    dropping = needs("issueId", issueId=STR, assignedTo={**STR, "x-null": "drop"})
    assert '{"issueId":"A-1"}' == of_tool("update_issue", dropping, sent)
    refusing = needs("issueId", issueId=STR, assignedTo={**STR, "x-null": "refuse"})
    assert "VAL-002 /assignedTo" == of_tool("list_issues", refusing, sent)


# --- half a repair ----------------------------------------------------------------------------------------------------
FLIGHT: Final[JsonValue] = needs("from_city", "to", from_city=STR, to=STR, seat_class={**STR, "default": "Value"})


def test_renames_all_keys_that_the_same_rule_explains() -> None:
    sent = '{"fromCity":"NY","to":"LA","seatClass":"Business"}'
    assert '{"from_city":"NY","to":"LA","seat_class":"Business"}' == outcome(FLIGHT, sent)
    assert ["key_case /fromCity", "key_case /seatClass"] == repairs(FLIGHT, sent)


def test_renames_them_at_every_depth_and_repairs_there() -> None:
    schema = needs("from_city", from_city=STR, stops=arr(obj(min_nights=INT)))
    sent = '{"fromCity":"NY","stops":[{"minNights":"2"}]}'
    assert '{"from_city":"NY","stops":[{"min_nights":2}]}' == outcome(schema, sent)


def test_refuses_the_call_if_one_of_them_cannot_be_renamed() -> None:
    assert "VAL-001" in outcome(FLIGHT, '{"fromCity":"NY","to":"LA","seatClass":"A","Seat-Class":"B"}')
    assert "VAL-001" in outcome(FLIGHT, '{"fromCity":"NY","to":"LA","seatClass":"A","seat_class":"B"}')
    nested = needs("from_city", from_city=STR, n=obj(min_nights=INT))
    assert "VAL-001" in outcome(nested, '{"fromCity":"NY","n":{"minNights":"x"}}')


# --- a valid call -----------------------------------------------------------------------------------------------------
def test_of_a_valid_call_only_the_bytes_of_an_integral_float_change() -> None:
    schema = obj(n=INT, m=NUM, list=arr(INT), o=obj(n=INT))
    sent = '{ "m" : 1.0,\t"n":4.0 , "list":[ 1.0,2 , 3.00], "\\u0061" : "\\u00e9" ,"o" : {"n":5.0} }'
    made = '{ "m" : 1.0,\t"n":4 , "list":[ 1,2 , 3], "\\u0061" : "\\u00e9" ,"o" : {"n":5} }'
    assert made == outcome(schema, sent)
    decision = judged(sent, policy(schema, "standard", {"integral_float": False}))
    assert sent == told(decision)
    assert isinstance(decision, Forward)
    assert () == decision.checked.repairs


@pytest.mark.parametrize("number", ["1e300", "1e2", "1E+20", "1.0e3", "123456789012345678901234567890"])
def test_a_valid_number_with_an_exponent_stays_unchanged(number: str) -> None:
    assert f'{{"n":{number}}}' == outcome(obj(n=INT), f'{{"n":{number}}}', "lenient")


def test_an_exponent_in_text_is_no_integer() -> None:
    assert "VAL-002 /n/0" == outcome(obj(n=arr(INT)), '{"n":["1e4000"]}').split(", ")[0]
    assert "VAL-002 /n/0" == outcome(obj(n=arr(INT)), '{"n":["1e2"]}').split(", ")[0]


def test_a_repaired_body_keeps_the_limit_of_bodies() -> None:
    digits: JsonValue = {"type": "string", "pattern": "^[0-9]$"}
    under = ToolPolicy("t", compile_check(arr(digits)), "f", repair=RepairPolicy(select_rules("standard")), max_body=10)
    assert '["1","2"]' == told(judged("[1,2]", under))
    assert "VAL-003" == told(judged("[1,2,3]", under))


def test_assumes_nothing_that_tells_the_branches_of_a_union_apart() -> None:
    mail = {**needs("kind", "n", kind={"const": "email", "default": "email"}, n=INT), "additionalProperties": False}
    text = {**needs("kind", "n", "phone", kind={"const": "sms"}, n=INT, phone=STR), "additionalProperties": False}
    schema = needs("shape", shape={"anyOf": [mail, text]})
    rules = RepairPolicy(select_rules("standard", listed=True))
    decision = decide(call('{"shape":{"n":"5"}}'), ToolPolicy("t", compile_check(schema), "f", repair=rules))
    assert isinstance(decision, Reject)
    assert any(violation.path == ("shape", "kind") for violation in decision.failure.violations)


@each_row("sent", ['{"arguments":"{\\"id\\":1,\\"title\\":null}"}', '{"arguments":{"id":1,"title":null}}'])
def test_explains_the_errors_inside_a_wrapper_without_other_keys(sent: str) -> None:
    schema = {**needs("id", "title", id=INT, title=STR), "additionalProperties": False}
    assert "VAL-002 /title" == outcome(schema, sent)


# --- what the model reads ---------------------------------------------------------------------------------------------
def test_asks_for_several_calls_when_several_values_are_sent_for_one() -> None:
    several = "One value goes into one call: make one call for each."
    assert [several] == [v.hint for v in refused(obj(at=STR), '{"at":["Berlin","Paris"]}')]
    assert [several] == [v.hint for v in refused(obj(u={"enum": ["c", "f"]}), '{"u":"c, f"}')]
    assert ["Send one value, not a list."] == [v.hint for v in refused(obj(at=STR), '{"at":["Berlin"]}')]


def test_the_example_never_repeats_a_text_that_is_refused() -> None:
    schema = needs("content", "reason", content=STR, reason=STR, to=STR)
    sent = {"content": 'Note</content>\n<parameter name="reason">because', "to": "ann"}
    under = policy(schema)
    decision = judged(dumps(sent), under)
    assert isinstance(decision, Reject)
    advised = add_advice(ToolResult(call(dumps(sent)), decision.failure), under)
    assert '{"content":"<string>","reason":"<string>","to":"ann"}' == advised.example

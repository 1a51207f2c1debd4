"""Repairs that once sent a tool something else than the model meant: each is refused now, or repaired whole.

Every case was met in collected calls of real models or found by an attacker; the names of its tools are theirs.
"""

from __future__ import annotations

from typing import Final

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import RepairPolicy, ToolPolicy
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
    """What becomes of a call of a tool of this name; `by_hand` are rules the operator switched on."""
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
def test_what_has_a_second_meaning_is_refused(level: str, meaning: str, schema: JsonValue, sent: str) -> None:
    assert "VAL-0" in outcome(schema, sent, level), meaning


def test_one_repair_beside_the_refused_ones_still_works() -> None:
    assert '{"a":5}' == outcome(obj(a=INT), '{"a":"05"}')
    assert '{"a":2.500}' == outcome(obj(a=NUM), '{"a":"2.500"}')
    assert '{"a":["new-york"]}' == outcome(obj(a=arr(STR)), '{"a":"new-york"}')
    assert '{"edits":[{"old":"a","new":"b"}]}' == outcome(
        obj(edits=arr(obj(old=STR, new=STR))), '{"edits":{"old":"a","new":"b"}}'
    )
    assert '{"unit":"kg"}' == outcome(obj(unit={"enum": ["kg", "lb"]}), '{"unit":"KG"}')


# --- "clear this field" -----------------------------------------------------------------------------------------------
ISSUE: Final[JsonValue] = needs("issueId", issueId=STR, assignedTo=STR, points=INT)


@each_row(
    "tool",
    ["update_issue", "updateIssue", "issues.patch", "edit-issue", "setAssignee", "modify_issue", "assign_issue",
     "clear_field", "unset_field", "delete_issue", "remove_issue", "purge_issues"],
)  # fmt: skip
@each_row("sent", ['{"issueId":"A-1","assignedTo":null}', '{"issueId":"A-1","points":""}',
                                  '{"issueId":"A-1","points":"None"}'])  # fmt: skip
def test_a_tool_that_changes_something_is_not_told_that_a_field_was_not_sent(tool: str, sent: str) -> None:
    assert "VAL-002" in of_tool(tool, ISSUE, sent)
    assert "VAL-002" in of_tool(tool, ISSUE, sent, "lenient")
    assert '{"issueId":"A-1"}' == of_tool("list_issues", ISSUE, sent)


def test_there_a_default_may_mean_a_value_to_be_set() -> None:
    schema = needs("id", id=STR, points={"type": "integer", "default": "none"})
    assert "VAL-002 /points" == of_tool("update_issue", schema, '{"id":"A-1","points":"none"}')
    assert '{"id":"A-1"}' == of_tool("list_issues", schema, '{"id":"A-1","points":"none"}')


def test_the_method_patch_and_an_action_say_so_as_well() -> None:
    sent = '{"issueId":"A-1","assignedTo":null}'
    assert "VAL-002 /assignedTo" == of_tool("issue", ISSUE, sent, patch=True)
    memory = needs("action", action={"enum": ["read", "update"]}, review={"type": "string", "format": "date"})
    assert "VAL-002 /review" == of_tool("get_memory", memory, '{"action":"update","review":null}')
    assert '{"action":"read"}' == of_tool("get_memory", memory, '{"action":"read","review":null}')


@each_row(
    "tool",
    ["revoke_tokens", "cancel_orders", "terminate_instances", "save_contact", "change_assignee", "put_item", "run_job",
     "find_and_delete", "get_or_create", "fetch_then_burn", "list_item_for_sale", "check_and_cancel", "frobnicate",
     "memory", "get_rid_of_items", "read_and_launch"],
)  # fmt: skip
@each_row("sent", ['{"issueId":"A-1","assignedTo":null}', '{"issueId":"A-1","points":""}',
                                  '{"issueId":"A-1","points":"None"}'])  # fmt: skip
def test_nothing_is_read_as_not_sent_but_where_reading_is_all_the_tool_does(tool: str, sent: str) -> None:
    assert "VAL-002" in of_tool(tool, ISSUE, sent)
    assert "VAL-002" in of_tool(tool, ISSUE, sent, "lenient")


@pytest.mark.parametrize("tool", ["get_issue", "searchIssues", "brave_web_search", "GetUsers", "scrape", "list_orders"])
def test_a_tool_whose_name_says_that_it_reads_is_not_sent_nothing(tool: str) -> None:
    assert '{"issueId":"A-1"}' == of_tool(tool, ISSUE, '{"issueId":"A-1","assignedTo":null}')
    assert '{"issueId":"A-1"}' == of_tool(tool, ISSUE, '{"issueId":"A-1","points":""}')


def test_a_tool_that_creates_something_loses_null_where_no_default_takes_its_place() -> None:
    schema = needs("title", title=STR, days=INT, zone={**STR, "default": "UTC"})
    assert '{"title":"x"}' == of_tool("create_plan", schema, '{"title":"x","days":null}')
    assert '{"title":"x"}' == of_tool("create_plan", schema, '{"title":"x","days":"None"}')
    assert "VAL-002 /zone" == of_tool("create_plan", schema, '{"title":"x","zone":null}')
    assert "VAL-002 /days" == of_tool("create_plan", schema, '{"title":"x","days":""}')
    assert "VAL-002 /days" == of_tool("create_or_replace_plan", schema, '{"title":"x","days":null}')


def test_nothing_becomes_null_on_other_tools_but_a_word_at_a_required_key() -> None:
    team = {"anyOf": [INT, {"type": "null"}], "default": None}
    assert "VAL-0" in of_tool("delete_users", obj(team=team), '{"team":""}')
    assert "VAL-0" in of_tool("delete_users", obj(team=team), '{"team":"None"}')
    assert "VAL-0" in of_tool("delete_users", needs("team", team=team), '{"team":""}')
    assert '{"team":null}' == of_tool("delete_users", needs("team", team=team), '{"team":"None"}')
    assert '{"team":null}' == of_tool("list_users", obj(team=team), '{"team":""}')


def test_the_operator_has_the_last_word_for_a_tool_and_a_property() -> None:
    sent = '{"issueId":"A-1","assignedTo":null}'
    assert '{"issueId":"A-1"}' == of_tool("update_issue", ISSUE, sent, by_hand=("drop_null_optional",))
    dropping = needs("issueId", issueId=STR, assignedTo={**STR, "x-null": "drop"})
    assert '{"issueId":"A-1"}' == of_tool("update_issue", dropping, sent)
    refusing = needs("issueId", issueId=STR, assignedTo={**STR, "x-null": "refuse"})
    assert "VAL-002 /assignedTo" == of_tool("list_issues", refusing, sent)


# --- half a repair ----------------------------------------------------------------------------------------------------
FLIGHT: Final[JsonValue] = needs("_from", "to", _from=STR, to=STR, _class={**STR, "default": "Value"})


def test_keys_that_the_same_rule_explains_are_renamed_together() -> None:
    sent = '{"from":"NY","to":"LA","class":"Business"}'
    assert '{"_from":"NY","to":"LA","_class":"Business"}' == outcome(FLIGHT, sent)
    assert ["key_case /from", "key_case /class"] == repairs(FLIGHT, sent)


def test_they_are_renamed_at_every_depth_and_repaired_there() -> None:
    schema = needs("_from", _from=STR, stops=arr(obj(_nights=INT)))
    sent = '{"from":"NY","stops":[{"nights":"2"}]}'
    assert '{"_from":"NY","stops":[{"_nights":2}]}' == outcome(schema, sent)


def test_where_one_of_them_cannot_be_renamed_the_call_is_refused() -> None:
    assert "VAL-001" in outcome(FLIGHT, '{"from":"NY","to":"LA","class":"A","Class":"B"}')
    assert "VAL-001" in outcome(FLIGHT, '{"from":"NY","to":"LA","class":"A","_class":"B"}')
    assert "VAL-001" in outcome(needs("_from", _from=STR, n=obj(_a=INT)), '{"from":"NY","n":{"a":"x"}}')


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
def test_a_valid_number_with_an_exponent_stays_as_it_came(number: str) -> None:
    assert f'{{"n":{number}}}' == outcome(obj(n=INT), f'{{"n":{number}}}', "lenient")


def test_an_exponent_does_not_become_a_long_row_of_digits() -> None:
    assert "VAL-002 /n/0" == outcome(obj(n=arr(INT)), '{"n":["1e4000"]}').split(", ")[0]
    assert '{"n":[100000000000000000000]}' == outcome(obj(n=arr(INT)), '{"n":["1e20"]}')


def test_a_repaired_body_keeps_the_limit_of_bodies() -> None:
    under = ToolPolicy(
        "t", compile_check(obj(n=arr(INT))), "f", repair=RepairPolicy(select_rules("standard")), max_body=60
    )
    assert '{"n":[100,100]}' == told(judged('{"n":["1e2","1e2"]}', under))
    assert "VAL-003" == told(judged('{"n":["1e20","1e20","1e20","1e20"]}', under))


# --- what the model reads ---------------------------------------------------------------------------------------------
def test_several_values_where_one_is_asked_are_several_calls() -> None:
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

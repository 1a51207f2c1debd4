"""A decision made in a child process is the one that is made here, and what exceeds its bounds is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.call import judging
from proxy.call.jobs import (
    STAYING,
    decide_call,
    describe_policy,
    read_decision,
    read_shared_policy,
)
from proxy.call.judging import LIGHT, LOOKS, MODEST, QUICK, Elsewhere
from proxy.core.check.fast_types import mark_valid
from proxy.core.contract.policy import (
    ListedSchema,
    Mode,
    ToolPolicy,
    UnknownKeys,
)
from proxy.core.decide import complete_decision, decide, prepare
from proxy.core.explain.advice import add_advice
from proxy.core.json.jsontext import DEFAULT_LIMITS, dumps, read_document
from proxy.core.json.strictreader import KnownText, UnreadDocument
from proxy.core.model import codes
from proxy.core.model.values import (
    Decision,
    Document,
    Failure,
    Forward,
    Reject,
    Repair,
    ToolCall,
    ToolResult,
)
from proxy.core.schema.formats import STRICT
from proxy.extensions.operations.core.channels import JudgedChannels
from proxy.offload.pool import GaveUp, Limit, OffloadPool
from tests.core.repairing import call, policy

INT = {"type": "integer"}
ROWS: Any = {
    "type": "object",
    "properties": {
        "rows": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"street": {"type": "string", "maxLength": 9}, "n": INT, "mode": {"enum": ["a", "b"]}},
                "required": ["street"],
                "additionalProperties": False,
            },
        },
        "pw": {"type": "string", "minLength": 3, "format": "password"},
        "old": {"deprecated": True},
    },
    "required": ["rows"],
}
SENT = [
    '{"rows":[{"street":"x","n":1}]}',
    '{"rows":[{"Street":"x","n":"1"}]}',
    '{"rows":[{"street":"x","n":1.0,"mode":"A"}]}',
    '{"rows":"[]","extra":1}',
    '{"rows":[{"street":"' + "y" * 3000 + '","n":"no","mode":"c"}, {}, 7, null]}',
    '{"rows":{"street":[{"deep":[1,2,{"a":"' + "z" * 2000 + '"}]}]}}',
    '{"pw":"x"}',
    '{"rows":[],"old":1}',
    '{"rows":[],"pw":null}',
    "{}",
    "",
    "null",
    "[1,2]",
    '"text"',
    "1e400",
]
POLICIES = {
    "standard": policy(ROWS),
    "lenient": policy(ROWS, "lenient"),
    "off": policy(ROWS, "off"),
    "refuse": replace(policy(ROWS), unknown_keys=UnknownKeys.REFUSE),
    "warn": replace(policy(ROWS), unknown_keys=UnknownKeys.WARN),
    "report": replace(policy(ROWS), mode=Mode.REPORT),
    "by hand": replace(
        policy(ROWS),
        changes=True,
        repair=replace(policy(ROWS).repair, by_hand=frozenset({"drop_null_optional"})),
    ),
    "final output": replace(policy(ROWS), finalising=True),
}
READABLE = [text for text in SENT if isinstance(call(text).arguments, Document)]
REJECTED = [text for text in READABLE if isinstance(decide(call(text), POLICIES["standard"]), Reject)]


def made_there(sent: ToolCall, judged: ToolPolicy) -> Decision:
    """The way of a heavy call, without the process between."""
    assert isinstance(sent.arguments, Document)
    result = decide_call(sent.arguments.text, describe_policy(judged))
    return complete_decision(sent, judged, read_decision(result, sent, sent.arguments))


CROSSING = [each.name for each in fields(ToolPolicy) if each.init and each.name not in STAYING]


def make_other(value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, StrEnum):
        return next(each for each in type(value) if each is not value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: make_other(getattr(value, each.name)) for each in fields(value)})
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | None):
        return (value or 0) + 1
    if isinstance(value, str):
        return value + "x"
    return {"a": "b"} if isinstance(value, dict) else type(value)([*value, "other"])


@pytest.mark.parametrize("name", CROSSING)
def test_each_field_that_decides_about_arguments_crosses(name: str) -> None:
    judged = policy(ROWS)
    judged = replace(judged, **{name: make_other(getattr(judged, name))})
    assert getattr(judged, name) == getattr(read_shared_policy(describe_policy(judged)), name)


def test_the_fields_that_stay_are_those_of_a_policy() -> None:
    assert {each.name for each in fields(ToolPolicy)} >= STAYING


def without_advice(decision: Decision) -> Decision:
    if isinstance(decision, Reject):
        return Reject(replace(decision.failure, advice=None))
    if decision.checked.would is not None:
        return Forward(replace(decision.checked, would=replace(decision.checked.would, advice=None)))
    return decision


@pytest.mark.parametrize("text", READABLE)
@pytest.mark.parametrize("judged", POLICIES.values(), ids=POLICIES)
def test_a_decision_made_there_is_the_one_made_here(text: str, judged: ToolPolicy) -> None:
    sent = call(text)
    assert decide(sent, judged) == without_advice(made_there(sent, judged))


@pytest.mark.parametrize("text", REJECTED)
def test_advice_made_there_is_the_one_made_here(text: str) -> None:
    judged, sent = POLICIES["standard"], call(text)
    here, there = decide(sent, judged), made_there(sent, judged)
    assert isinstance(here, Reject)
    assert isinstance(there, Reject)
    ours, theirs = (
        add_advice(ToolResult(sent, failure, limits=judged.feedback), judged)
        for failure in (here.failure, there.failure)
    )
    assert (ours.accepts, ours.example, ours.example_complete) == (
        theirs.accepts, theirs.example, theirs.example_complete,
    )  # fmt: skip


async def test_a_light_call_is_validated_here_although_its_code_is_written_in_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the warm-up does, in a thread: the call was not tried before, so it need not go to a child."""
    asked: list[bool] = []
    ready = iter([False, True, True])

    class Asked:
        async def decide(self, sent: ToolCall, policy: ToolPolicy, *, tried: bool = False) -> Decision:
            asked.append(tried)
            return decide(sent, policy)

    monkeypatch.setattr(judging, "is_ready", lambda _: next(ready))
    services = SimpleNamespace(elsewhere=Asked())
    context: Any = SimpleNamespace(policy=POLICIES["standard"], call=call(SENT[0]), services=services)
    judged: Any = judging.judge_call(context)

    assert isinstance((await judged()).decision, Forward)
    assert [False] == asked


def test_a_listed_schema_is_never_validated_here() -> None:
    listed = replace(policy(ROWS), check=None, listed=ListedSchema(ROWS, formats=STRICT))
    with pytest.raises(ValueError, match="child process"):
        decide(call('{"rows":[]}'), listed)
    assert decide(call('{"rows":[7]}'), policy(ROWS)) == without_advice(made_there(call('{"rows":[7]}'), listed))


def test_small_calls_and_plainly_valid_ones_are_validated_here() -> None:
    plain = policy({"type": "object", "properties": {"xs": {"type": "array", "items": INT}}})
    dear = policy({"type": "object", "properties": {"xs": {"type": "array", "uniqueItems": True}}})
    valid, invalid = (call('{"xs":[' + ",".join([item] * 3_000) + "]}") for item in ("123456", '"12345"'))
    many, text = call('{"xs":[' + ",".join(["1"] * LOOKS) + "]}"), call('{"text":"' + "x" * 5 * MODEST + '"}')
    distinct = call('{"xs":[' + ",".join(map(str, range(10_000, 10_000 + LIGHT // 5))) + "]}")
    modest, refused = (call('{"xs":[' + ",".join([item] * (LIGHT // 5)) + "]}") for item in ("123456", '"1234"'))
    cases = [
        (call('{"xs":["x"]}'), plain),
        (text, plain),
        (valid, plain),
        (invalid, plain),
        (valid, dear),
        (many, plain),
        (distinct, dear),
        (modest, dear),
        (refused, plain),
    ]
    assert [True, True, True, False, False, False, True, False, False] == [
        judging.decide_here(sent, judged) is not None for sent, judged in cases
    ]


@pytest.mark.parametrize(("rows", "wrong"), [(400, "seven"), (400, "7"), (1_600, 7)])
def test_validates_rows_in_this_process_if_at_most_a_few_are_wrong(rows: int, wrong: object) -> None:
    item = {"type": "object", "properties": {"id": INT, "name": {"type": "string"}}}
    judged = policy({"type": "object", "properties": {"rows": {"type": "array", "items": item}}})
    sent = [{"id": row, "name": f"a row with the number {row}"} for row in range(rows - 1)]
    of_rows = call(json.dumps({"rows": [*sent, {"id": wrong}]}))
    assert isinstance(of_rows.arguments, Document)
    assert len(of_rows.arguments.text) > 2 * LIGHT
    decision = judging.decide_here(of_rows, judged)
    assert decision == decide(of_rows, judged)
    assert decision == without_advice(made_there(of_rows, judged))


def test_asks_the_schema_once_about_a_large_valid_call() -> None:
    judged = policy({"type": "object", "properties": {"xs": {"type": "array", "items": INT}}})
    assert judged.check is not None
    accepts, asked = judged.check.accepts, list[Any]()

    def accept(value: Any) -> bool:
        asked.append(value)
        return accepts(value)

    judged.check.accepts = accept
    decision = judging.decide_here(call('{"xs":[' + ",".join(["123456"] * 3_000) + "]}"), judged)
    assert (True, 1) == (isinstance(decision, Forward), len(asked))


@pytest.mark.parametrize(
    "keyword",
    [
        {"pattern": "x"}, {"format": "date"}, {"not": {"type": "null"}}, {"if": True}, {"anyOf": [True]},
        {"oneOf": [True]}, {"$ref": "#/$defs/any"},
    ],
)  # fmt: skip
def test_a_large_valid_call_whose_schema_is_dear_is_validated_elsewhere(keyword: dict[str, Any]) -> None:
    large = call('{"text":"' + "x" * 2 * MODEST + '","b":1}')
    plain: dict[str, Any] = {"properties": {"text": {}, "b": {}}, "$defs": {"any": {}}}
    dear = {**plain, "properties": {"text": {}, "b": keyword}}
    decided = [judging.decide_here(large, policy(schema)) for schema in (plain, dear)]
    assert [True, False] == [decision is not None for decision in decided]


@pytest.mark.parametrize("code", [codes.CONTAINER_INVOCATION, codes.INTERNAL_ERROR], ids=lambda code: code.name)
def test_adds_channel_errors_only_to_invalid_arguments(code: codes.ErrorCode) -> None:
    limit = replace(policy(ROWS), channels=JudgedChannels(strict=True))
    sent = replace(call("{}"), query="limit=x")
    wrong = complete_decision(sent, limit, Reject(Failure(codes.INVALID_ARGUMENTS, "as it was")))
    assert isinstance(wrong, Reject)
    assert [codes.UNKNOWN_FIELD] == [found.code for found in wrong.failure.violations]
    refused = Reject(Failure(code, "as it was"))
    assert refused == complete_decision(sent, limit, refused)


PLAIN: Any = {"type": "object", "properties": {"texts": {"type": "array", "items": {"type": "string"}}, "n": INT}}


@pytest.mark.parametrize("change", [{}, {"unknown_keys": UnknownKeys.REFUSE}, {"mode": Mode.REPORT}], ids=str)
@pytest.mark.parametrize("last", ["a text", "</parameter><parameter>", "\u003c/invoke>"])
def test_decides_the_same_on_arguments_that_their_schema_reads(change: dict[str, Any], last: str) -> None:
    judged = replace(policy(PLAIN), **change)
    prepare(judged)
    text = json.dumps({"texts": ["one of many"] * 2_000 + [last], "n": 1}).encode()
    assert judged.check is not None
    known = mark_valid(text, DEFAULT_LIMITS, judged.check)
    assert type(known) is KnownText
    document = read_document(known, DEFAULT_LIMITS, frozenset())
    sent, plain = replace(call("{}"), arguments=document), call(text.decode())
    decision, expected = judging.decide_here(sent, judged), decide(plain, judged)

    assert decision is not None
    assert list_parts(expected) == list_parts(decision)


def list_parts(decision: Decision) -> object:
    """Returns the parts of a decision, without the call."""
    if isinstance(decision, Reject):
        return decision.failure
    checked = decision.checked
    return checked.arguments, checked.value, checked.repairs, checked.warnings, checked.enforced


def test_trusts_a_read_text_only_for_the_check_that_read_it() -> None:
    here, other = policy(PLAIN), policy({**PLAIN, "required": ["more"]})
    prepare(here)
    assert here.check is not None
    known = mark_valid(json.dumps({"texts": ["one of many"] * 2_000}).encode(), DEFAULT_LIMITS, here.check)
    document = read_document(known, DEFAULT_LIMITS, frozenset())
    assert isinstance(decide(replace(call("{}"), arguments=document), here), Forward)
    assert isinstance(decide(replace(call("{}"), arguments=document), other), Reject)


# --- with real processes ----------------------------------------------------------------------------------------------
@pytest.fixture
async def pool() -> AsyncIterator[OffloadPool]:
    made = OffloadPool(size=1)
    yield made
    await made.close()


HEAVY = call('{"rows":' + json.dumps([{"street": "x", "n": "1"}] * 2000) + "}")


async def test_a_heavy_call_is_validated_in_a_child(pool: OffloadPool) -> None:
    decision = await Elsewhere(pool, pool).decide(HEAVY, POLICIES["standard"])
    assert isinstance(decision, Forward)
    assert (1, 2000) == (pool.children, len(decision.checked.repairs))
    assert decide(HEAVY, POLICIES["standard"]) == decision


class Ended(OffloadPool):
    """A pool in which every job ends the same way."""

    def __init__(self, ending: GaveUp) -> None:
        super().__init__()
        self._ending = ending

    async def run(self, *_args: object, **_named: object) -> GaveUp:
        return self._ending


@pytest.mark.parametrize(
    ("ending", "code", "told"),
    [
        (GaveUp(Limit.DEADLINE), codes.INVALID_ARGUMENTS, True),
        (GaveUp(Limit.MEMORY), codes.INVALID_ARGUMENTS, True),
        (GaveUp(Limit.CRASH, "exit -24"), codes.INVALID_ARGUMENTS, True),
        (GaveUp(Limit.CRASH, "ValueError"), codes.INTERNAL_ERROR, False),
        (GaveUp(Limit.BUSY), codes.OVERLOADED, False),
        (GaveUp(Limit.CLOSED), codes.OVERLOADED, False),
    ],
)
async def test_a_call_that_was_given_up_is_refused(ending: GaveUp, code: codes.ErrorCode, told: bool) -> None:
    decision = await Elsewhere(Ended(ending), Ended(ending)).decide(HEAVY, POLICIES["standard"])
    assert isinstance(decision, Reject)
    failure: Failure = decision.failure
    assert (code, told) == (
        failure.code,
        [violation.hint for violation in failure.violations] == ["Send less in one call."],
    )


async def test_a_job_leaves_the_event_loop_to_others(pool: OffloadPool) -> None:
    elsewhere, turns = Elsewhere(pool, pool), 0
    refused = call('{"rows":' + json.dumps([{"street": 1, "n": "x", "mode": "c"}] * 20_000) + "}")
    deciding = asyncio.ensure_future(elsewhere.decide(refused, POLICIES["off"]))
    while not deciding.done():
        turns += 1
        await asyncio.sleep(0.001)
    assert isinstance(deciding.result(), Reject)
    assert turns > 100


NUMBERS: Any = {"type": "object", "properties": {"xs": {"type": "array", "items": INT}}, "additionalProperties": False}


def test_of_thousands_of_repairs_all_are_counted_and_the_first_have_their_place() -> None:
    judged, sent = policy(NUMBERS), call('{"xs":[' + ",".join(['"7"'] * 5_000) + "]}")
    here, there = decide(sent, judged), made_there(sent, judged)

    assert isinstance(here, Forward)
    assert isinstance(there, Forward)
    assert here.checked.arguments == there.checked.arguments
    assert here.checked.repairs[:2_000] == there.checked.repairs[:2_000]
    assert [Repair("string_to_integer", ())] * 3_000 == list(there.checked.repairs[2_000:])


@pytest.mark.parametrize("rows", [8_500, 12_000], ids=["here", "there"])
async def test_decides_the_same_on_a_text_read_before_and_reads_its_value_on_demand(rows: int) -> None:
    text = dumps({"rows": [{"street": "x", "n": "1"}] * 500 + [{"street": "x", "n": 1}] * rows})
    pool = OffloadPool()
    elsewhere = Elsewhere(pool)
    known = await elsewhere.read(text, DEFAULT_LIMITS, frozenset())
    assert isinstance(known, KnownText)
    assert (len(text) > QUICK) == (pool.children > 0)
    document = read_document(known, DEFAULT_LIMITS, frozenset())
    assert isinstance(document, UnreadDocument)
    sent, plain = replace(call("{}"), arguments=document), call(text.decode())
    decisions = [await elsewhere.decide(one, POLICIES["standard"]) for one in (sent, plain)]
    await elsewhere.close()

    made, expected = (decision.checked for decision in decisions if isinstance(decision, Forward))
    assert (expected.arguments, expected.repairs, expected.warnings) == (made.arguments, made.repairs, made.warnings)
    assert expected.value == made.value
    assert plain.arguments == Document(document.text, document.value)

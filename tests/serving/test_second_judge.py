"""The second judge beside a running proxy: a child process, a bound, and what a disagreement does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model import codes
from proxy.core.model.values import CheckedCall, Failure
from proxy.core.schema.formats import STRICT
from proxy.core.second_judge.question import JOB, Opinion, SecondVerdict, make_question, unpack_opinion
from proxy.offload.pool import Done, GaveUp, Limit, OffloadPool, Shared
from proxy.second_opinion import AGREED, CANNOT_TELL, DISAGREED, FIRST, GAVE_UP, MAX_SAMPLED, MEMORY, SecondOpinion
from tests.core.repairing import call
from tests.core.test_engine_hostile import FORKS, chain
from tests.serving.proxied import WEATHER, proxied
from tests.serving.wire import JSON_TYPE, answer, replies, tool

OK = answer("200 OK", b'{"t": 20.50}', JSON_TYPE)
Told = list[tuple[str, str, str]]


def judge(told: Told, *, asks_first: bool = True, chance: float = 0.0, seconds: float = 30.0) -> SecondOpinion:
    def report(route: str, policy: ToolPolicy, outcome: str, opinion: Opinion) -> None:
        told.append((route, outcome, opinion.place or opinion.reason))

    pool = OffloadPool(size=1, memory=MEMORY)
    return SecondOpinion(pool, asks_first=asks_first, chance=lambda: chance, report=report, seconds=seconds)


def checked(sent: str) -> CheckedCall:
    made = call(sent)
    return CheckedCall(made, sent.encode(), None)


def policy(schema: Any) -> ToolPolicy:
    return ToolPolicy("tool", compile_check(schema), "f", schema_id="abc")


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
)
async def test_a_call_that_both_accept_goes_and_one_that_only_we_accept_does_not(draft: str) -> None:
    told: Told = []
    second = judge(told)
    under = policy({"$schema": draft, "properties": {"n": {"maximum": 3}}})
    try:
        assert None is await second.confirm("r", checked('{"n": 3}'), under)
        refused = await second.confirm("r", checked('{"n": 4}'), under)  # as if our own check were wrong
    finally:
        await second.close()
    assert Failure(codes.NOT_CONFIRMED, codes.NOT_CONFIRMED.meaning) == refused
    assert [("r", AGREED, ""), ("r", DISAGREED, "/properties/n/maximum")] == told


async def test_what_it_cannot_tell_is_no_objection() -> None:
    told: Told = []
    second = judge(told)
    under = policy({"patternProperties": {"^a": {}}, "unevaluatedProperties": False})
    try:
        assert None is await second.confirm("r", checked('{"a": 1}'), under)
    finally:
        await second.close()
    assert [("r", CANNOT_TELL, "unevaluatedProperties beside patternProperties")] == told


async def test_a_judge_that_takes_too_long_is_killed_and_the_call_is_not_sent() -> None:
    told: Told = []
    second = judge(told, seconds=1.0)
    schema = chain(lambda following: {"allOf": [following, following], "uniqueItems": True}, 24)
    try:
        refused = await second.confirm("r", checked('"x"'), policy(schema))
    finally:
        await second.close()
    assert (codes.NOT_CONFIRMED, [("r", GAVE_UP, "deadline")]) == (refused.code if refused else None, told)


@pytest.mark.large
@pytest.mark.parametrize("name", FORKS)
async def test_hostile_schemas_end_within_the_bound(name: str) -> None:
    schema, value, valid = FORKS[name]
    check = compile_check(schema)
    pool = OffloadPool(size=1, memory=MEMORY)
    try:
        result = await pool.run(
            JOB, json.dumps(value).encode(), Shared(make_question(check.schemas, formats=STRICT)), seconds=2.0
        )
    finally:
        await pool.close()
    if isinstance(result, Done):
        opinion = unpack_opinion(result.result)
        assert opinion.verdict in (SecondVerdict.CANNOT_TELL, SecondVerdict.VALID if valid else SecondVerdict.INVALID)
    else:
        assert result in (GaveUp(Limit.DEADLINE), GaveUp(Limit.MEMORY))


async def test_one_call_in_a_hundred_is_sampled_at_first_and_none_waits() -> None:
    told: Told = []
    asked, not_asked = judge(told, asks_first=False, chance=0.009), judge(told, asks_first=False, chance=0.01)
    under = policy({"type": "object"})
    try:
        not_asked.sample("r", checked("{}"), under)
        for _ in range(MAX_SAMPLED + 3):
            asked.sample("r", checked("{}"), under)
        assert [] == told
        await asked.wait_settled()
        assert [("r", AGREED, "")] * MAX_SAMPLED == told
    finally:
        await asked.close()
        await not_asked.close()


async def test_one_call_in_a_thousand_is_sampled_after_a_tools_first_thousand_with_a_schema() -> None:
    told: Told = []
    seldom, often = judge(told, asks_first=False, chance=0.001), judge(told, asks_first=False, chance=0.0009)
    under = policy({"type": "object"})
    other = replace(under, tool="other")
    try:
        for _ in range(FIRST):
            seldom.sample("r", checked("{}"), under)
        await seldom.wait_settled()
        first = len(told)
        seldom.sample("later", checked("{}"), under)
        often.sample("later", checked("{}"), under)
        seldom.sample("another tool", checked("{}"), other)
        seldom.sample("another schema", checked("{}"), policy({"type": "object"}))
        await seldom.wait_settled()
        await often.wait_settled()
    finally:
        await seldom.close()
        await often.close()
    assert (MAX_SAMPLED, ["another schema", "another tool", "later"]) == (
        first,
        sorted(route for route, *_ in told[first:]),
    )


async def test_always_judges_a_call_before_it_goes_and_counts_it() -> None:
    async with tool(replies(OK)) as upstream, proxied(WEATHER, upstream.url, second_judge="always") as proxy:
        seen = await proxy.post("/weather", b'{"lat": 48.85}')
        metrics = (await proxy.ask_admin("/metrics")).body.decode()
    assert (200, 1) == (seen.status, len(upstream.seen))
    counted = [line for line in metrics.splitlines() if line.startswith("toolproxy_second_opinions_total{")]
    assert ['toolproxy_second_opinions_total{outcome="agreed",route="/weather",tool="weather"} 1.0'] == counted


async def test_always_refuses_what_is_not_confirmed_with_a_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.server.setup.services.MEMORY", 1)  # no child can start within a byte
    async with tool(replies(OK)) as upstream, proxied(WEATHER, upstream.url, second_judge="always") as proxy:
        seen = await proxy.post("/weather", b'{"lat": 48.85}')
        events = [json.loads(line) for line in proxy.log.getvalue().splitlines()]
    assert (503, "NOT_CONFIRMED", 0) == (seen.status, json.loads(seen.body)["error"]["code"], len(upstream.seen))
    gave_up = [event for event in events if event["message"] == "Second judge gave up"]
    assert [("/weather", "weather")] == [(event["route"], event["tool"]) for event in gave_up]
    assert "48.85" not in json.dumps(gave_up)


async def test_off_asks_nobody() -> None:
    async with tool(replies(OK)) as upstream, proxied(WEATHER, upstream.url, second_judge="off") as proxy:
        assert 200 == (await proxy.post("/weather", b'{"lat": 48.85}')).status
        assert proxy.serving.handler.snapshot.services.second_judge is None
    await asyncio.sleep(0)

"""The second judge beside a running proxy: a child process, a bound, and what a disagreement does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.core.check.validation import compile_check
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model import codes
from proxy.core.model.values import CheckedCall, Failure
from proxy.core.schema.formats import STRICT
from proxy.extensions.second_judge.core.question import JOB, Opinion, SecondVerdict, make_question, unpack_opinion
from proxy.extensions.second_judge.second_judges import (
    AGREED,
    CANNOT_TELL,
    DISAGREED,
    GAVE_UP,
    MAX_SAMPLED,
    MEMORY,
    SecondJudge,
)
from proxy.offload.pool import Done, GaveUp, Limit, OffloadPool, Shared
from tests.core.repairing import call
from tests.core.test_engine_hostile import FORKS, chain
from tests.serving.proxied import WEATHER, Proxied, proxied
from tests.serving.wire import JSON_TYPE, answer, replies, tool

OK = answer("200 OK", b'{"t": 20.50}', JSON_TYPE)
Told = list[tuple[str, str, str]]


def judge(told: Told, *, seconds: float = 30.0) -> SecondJudge:
    def report(route: str, policy: ToolPolicy, outcome: str, opinion: Opinion) -> None:
        told.append((route, outcome, opinion.place or opinion.reason))

    return SecondJudge(OffloadPool(size=1, memory=MEMORY), report, seconds=seconds)


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


async def test_a_verdict_that_it_cannot_tell_is_no_objection() -> None:
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


async def test_only_so_many_sampled_calls_wait_for_an_answer_and_no_call_waits() -> None:
    told: Told = []
    second = judge(told)
    try:
        for _ in range(MAX_SAMPLED + 3):
            second.sample("r", checked("{}"), policy({"type": "object"}))
        assert [] == told
        await second.wait_settled()
    finally:
        await second.close()
    assert [("r", AGREED, "")] * MAX_SAMPLED == told


@pytest.mark.parametrize("written", [{}, {"second_judge": "sampled"}])
async def test_sampled_asks_about_a_call_that_chance_takes_and_counts_it(
    written: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.call.judging.SAMPLE_OF_FIRST", 1)
    async with tool(replies(OK)) as upstream, proxied(WEATHER, upstream.url, **written) as proxy:
        assert 200 == (await proxy.post("/weather", b'{"lat": 48.85}')).status
        async with asyncio.timeout(60):
            while not (counted := await _read_counts(proxy)):
                await asyncio.sleep(0.01)
    assert ['toolproxy_second_opinions_total{outcome="agreed",route="/weather",tool="weather"} 1.0'] == counted


async def _read_counts(proxy: Proxied) -> list[str]:
    metrics = (await proxy.ask_admin("/metrics")).body.decode()
    return [line for line in metrics.splitlines() if line.startswith("toolproxy_second_opinions_total{")]


async def test_always_judges_a_call_before_it_goes_and_counts_it() -> None:
    async with tool(replies(OK)) as upstream, proxied(WEATHER, upstream.url, second_judge="always") as proxy:
        seen = await proxy.post("/weather", b'{"lat": 48.85}')
        counted = await _read_counts(proxy)
    assert (200, 1) == (seen.status, len(upstream.seen))
    assert ['toolproxy_second_opinions_total{outcome="agreed",route="/weather",tool="weather"} 1.0'] == counted


async def test_always_rejects_an_unconfirmed_call_with_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.extensions.second_judge.second_judges.MEMORY", 1)  # no child can start within a byte
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
        services = proxy.serving.handler.snapshot.services
    assert (None, None) == (services.sampled, services.confirm)

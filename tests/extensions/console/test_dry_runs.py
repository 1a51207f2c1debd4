"""POST /-/validate: what a call would lead to. Nothing is sent, counted or remembered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serving.proxied import RELAY, WEATHER, proxied, told
from tests.serving.test_calls import DISPATCH, TOOLS
from tests.serving.test_operator import OK, REPORT, ask
from tests.serving.wire import replies, tool


async def test_a_dry_run_says_what_would_be_sent_and_sends_nothing() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await ask(proxy, "/-/validate", {"route": "/weather", "body": {"lat": "48.850"}})

    verdict = told(seen)
    schema_id = verdict.pop("schema_id")
    assert {
        "decision": "forward", "route": "/weather", "upstream": "tools", "tool": "weather", "mode": "enforce",
        "repairs": [{"rule": "string_to_number", "path": "/lat"}], "errors": [], "warnings": [],
        "arguments": {"lat": 48.85},
    } == verdict  # fmt: skip
    assert (True, 0, True) == (b'"arguments":{"lat":48.850}' in seen.body, len(server.seen), bool(schema_id))


async def test_a_dry_run_of_a_bad_call_says_what_the_model_would_read() -> None:
    async with proxied(WEATHER) as proxy:
        verdict = told(await ask(proxy, "/-/validate", {"route": "/weather", "body": {"lat": []}}))
        again = told(await ask(proxy, "/-/validate", {"route": "/weather", "body": {"lat": []}}))
        attempts = told(await proxy.ask_admin("/-/attempts"))["attempts"]

    assert ("refuse", "INVALID_ARGUMENTS", 400) == tuple(verdict[key] for key in ("decision", "code", "status"))
    assert [("/lat", "VAL-002")] == [(error["path"], error["code"]) for error in verdict["errors"]]
    assert verdict["content"] == verdict["answer"]["content"]
    assert (verdict, []) == (again, attempts)


async def test_a_dry_run_takes_a_tool_a_dispatch_body_or_a_text_that_is_no_json() -> None:
    questions = [
        {"route": "/tools/{tool}", "tool": "weather", "body": {"lat": 1}},
        {"route": "/dispatch", "body": {"name": "weather", "arguments": {"lat": 1}}},
        {"route": "/tools/weather", "text": '{"lat": '},
    ]
    async with proxied(DISPATCH, tools=TOOLS) as proxy:
        verdicts = [told(await ask(proxy, "/-/validate", question)) for question in questions]

    assert ["forward", "forward", "refuse"] == [verdict["decision"] for verdict in verdicts]
    assert ["weather"] * 3 == [verdict["tool"] for verdict in verdicts]


async def test_a_dry_run_of_a_report_only_route_says_what_enforcing_would_do() -> None:
    async with proxied(REPORT) as proxy:
        verdict = told(await ask(proxy, "/-/validate", {"route": "/weather", "body": {"lat": []}}))

    assert ("refuse", "report") == (verdict["decision"], verdict["mode"])


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ({}, "say `route`"),
        ({"route": "/weather"}, "say `body`"),
        ({"route": "/weather", "body": 1, "text": "1"}, "say `body`"),
        ({"route": "/relay", "body": 1}, "no such route validates calls; these do: /weather"),
        ([], "the body is a JSON mapping, or empty"),
    ],
)
async def test_a_question_that_cannot_be_answered_says_what_to_ask(question: Any, why: str) -> None:
    async with proxied(WEATHER + RELAY) as proxy:
        seen = await ask(proxy, "/-/validate", question)

    assert (400, True) == (seen.status, told(seen)["error"].startswith(why))

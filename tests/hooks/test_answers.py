"""Hooks after the call: they see a copy of the tool's answer, may replace it, and get nothing broken past the check."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import pytest

from tests.hooks.samples import TOLD
from tests.hooks.test_hooks import GOOD, MENDED, hook
from tests.serving.proxied import code, proxied, told
from tests.serving.wire import JSON_TYPE, answer, replies, tool

OK = answer("200 OK", b'{"sun": true}', JSON_TYPE)
ROUTES = """
  - path: /weather
    upstream: tools
    tool: weather
    schema: {type: object, properties: {lat: {type: number}}, required: [lat]}
    %s
"""
PROMISE = "response_schema: {type: object, properties: {sun: {type: boolean}}, required: [sun]}"


@pytest.fixture(autouse=True)
def nothing_was_written_down_yet() -> Iterator[None]:
    TOLD.clear()
    yield
    TOLD.clear()


async def ask(reply: bytes, *hooks: str, route: str = "", body: bytes = GOOD):  # type: ignore[no-untyped-def]
    """Returns the client's answer, and the proxy with these hooks."""
    async with (
        tool(replies(reply)) as server,
        proxied(ROUTES % route, server.url, hooks=f"[{', '.join(hooks)}]") as proxy,
    ):
        seen = await proxy.post("/weather", body)
    return seen, proxy


def answers() -> list[object]:
    return [value for _, point, value in TOLD if point == "after_answer"]


async def test_a_hook_sees_the_answer_and_the_arguments_that_were_sent_and_changes_nothing() -> None:
    seen, _ = await ask(OK, hook("Witness"), body=MENDED)
    assert [(b'{"lat":1}', 200, {"sun": True}, True)] == answers()
    assert (200, b'{"sun": true}') == (seen.status, seen.body)


async def test_a_hook_sees_an_answer_without_its_coding_and_the_client_gets_it_with_it() -> None:
    coded = gzip.compress(b'{"sun": false}')
    seen, _ = await ask(answer("200 OK", coded, JSON_TYPE, "Content-Encoding: gzip"), hook("Witness"))
    assert ([(GOOD, 200, {"sun": False}, True)], coded) == (answers(), seen.body)


async def test_a_hook_sees_only_the_head_of_a_long_answer_and_the_client_gets_all() -> None:
    long = b'"' + b"x" * (1024 * 1024) + b'"'
    seen, _ = await ask(answer("200 OK", long, JSON_TYPE), hook("Witness"))
    assert ([(GOOD, 200, None, False)], long) == (answers(), seen.body)


async def test_a_refused_call_and_a_tools_error_have_no_answer_to_show() -> None:
    await ask(OK, hook("Witness"), body=b'{"lat": "north"}')
    await ask(answer("500 Internal Server Error", b"{}", JSON_TYPE), hook("Witness"))
    assert [] == answers()


async def test_a_hook_replaces_the_answer_and_the_next_hook_sees_that() -> None:
    seen, proxy = await ask(OK, hook("Replaces", {"value": {"sun": False}}), hook("Witness"))
    assert (200, b'{"sun":false}') == (seen.status, seen.body)
    assert [(GOOD, 200, {"sun": False}, True)] == answers()
    assert ["tests.hooks.samples:Replaces"] == [line["hook"] for line in proxy.lines()]


@pytest.mark.parametrize("enforce", ["response_mode: report", "response_mode: enforce"])
async def test_a_replaced_answer_is_held_against_the_schema_of_the_tools_answers(enforce: str) -> None:
    good, _ = await ask(OK, hook("Replaces", {"value": {"sun": False}}), route=f"{PROMISE}\n    {enforce}")
    bad, _ = await ask(OK, hook("Replaces", {"value": {"moon": 1}}), route=f"{PROMISE}\n    {enforce}")
    assert (200, b'{"sun":false}') == (good.status, good.body)
    assert (502, "UPSTREAM_UNFIT_ANSWER") == code(bad)
    assert "moon" not in bad.body.decode()


async def test_an_answer_before_the_call_is_held_against_it_too() -> None:
    seen, _ = await ask(OK, hook("Says", {"answer": {"moon": 1}}), route=PROMISE)
    assert (502, "UPSTREAM_UNFIT_ANSWER") == code(seen)


@pytest.mark.parametrize(
    ("failing", "reason"),
    [(("FailsAt", {"point": "after_answer"}), "exception"), (("Replaces", {"nonsense": True}), "wrong_answer"),
     (("Replaces", {"value": 1, "status": 99}), "wrong_answer")],
)  # fmt: skip
async def test_a_filter_that_fails_lets_nothing_through_unless_it_may(
    failing: tuple[str, dict[str, object]], reason: str
) -> None:
    closed, proxy = await ask(OK, hook(*failing))
    assert (503, "HOOK_FAILED") == code(closed)
    assert ("yes", False) == (told(closed)["error"]["details"]["executed"], told(closed)["error"]["retryable"])
    assert "sun" not in closed.body.decode()
    failures = [line for line in map(json.loads, proxy.log.getvalue().splitlines()) if "point" in line]
    assert [("after_answer", reason)] == [(line["point"], line["reason"]) for line in failures]
    opened, _ = await ask(OK, hook(*failing, on_failure="ignore"))
    assert (200, b'{"sun": true}') == (opened.status, opened.body)


async def test_a_cache_is_filled_by_answers_and_saves_the_next_call() -> None:
    async with (
        tool(replies(OK)) as server,
        proxied(ROUTES % PROMISE, server.url, hooks=f"[{hook('Cache')}]") as proxy,
    ):
        seen = [await proxy.post("/weather", GOOD) for _ in range(3)]
    assert ([b'{"sun": true}', b'{"sun":true}', b'{"sun":true}'], 1) == ([one.body for one in seen], len(server.seen))

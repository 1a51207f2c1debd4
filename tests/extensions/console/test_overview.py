"""The overview shows an outage, and every number of a tool's row is that of the window and counts calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.extensions.console.attention import count_needs
from proxy.extensions.console.page_counts import EVERY, CountBars
from proxy.extensions.console.pool_pages import _merge_overviews
from tests.extensions.console.test_kept_calls import OK, REMINDERS, get, remind
from tests.serving.proxied import WEATHER, Proxied, proxied
from tests.serving.wire import JSON_TYPE, answer, replies, tool

NOBODY = "http://127.0.0.1:9"
CLIMATE = WEATHER.replace("/weather", "/climate").replace("tool: weather", "tool: climate")
ERROR = answer("422 Unprocessable Entity", b'{"error": "no"}', JSON_TYPE)


async def call(proxy: Proxied, body: dict[str, Any], conversation: str = "c", path: str = "/weather") -> None:
    await proxy.post(path, json.dumps(body).encode(), f"X-Conversation-Id: {conversation}")


async def read_needs(proxy: Proxied) -> list[tuple[str, str]]:
    overview = await get(proxy, "/-/overview")
    return [(need["what"], need["text"]) for need in overview["needs"]]


async def test_names_a_tool_whose_upstream_does_not_answer() -> None:
    async with proxied(WEATHER, NOBODY) as proxy:
        for number in range(8):
            await call(proxy, {"lat": number}, f"c{number}")
        overview = await get(proxy, "/-/overview")
    (row,), (need,) = overview["tools"], overview["needs"]
    assert ({"upstream_error": 8}, {"connection_refused": 8}) == (row["outcomes"], row["failures"])
    assert "tool `weather`: 8 of 8 calls failed (connection_refused)" == need["text"]
    assert "#/calls?since=15m&route=%2Fweather&tool=weather&outcome=upstream_error" == need["page"]


async def test_names_an_upstream_once_for_all_of_its_tools() -> None:
    async with proxied(WEATHER + CLIMATE, NOBODY) as proxy:
        for number in range(3):
            await call(proxy, {"lat": number})
            await call(proxy, {"lat": number}, path="/climate")
        needs = await read_needs(proxy)
    assert [("upstream", "upstream `tools`: 6 of 6 calls failed (connection_refused), at 2 tools")] == needs


async def test_names_a_tool_that_answers_with_errors() -> None:
    async with tool(replies(ERROR)) as server, proxied(WEATHER, server.url) as proxy:
        for number in range(5):
            await call(proxy, {"lat": number}, f"c{number}")
        needs = await read_needs(proxy)
    assert [("tool_errors", "tool `weather`: 5 of 5 calls ended in an error of the tool")] == needs


@pytest.mark.parametrize(("failed", "calls", "named"), [(2, 2, False), (3, 30, True), (3, 31, False)])
def test_names_no_tool_for_a_few_failures(failed: int, calls: int, named: bool) -> None:
    row = {"route": "/a", "tool": "t", "calls": calls, "outcomes": {"upstream_error": failed}, "upstream": "tools",
           "failures": {}}  # fmt: skip
    shown = {"tools": [row], "window": "15m", "by_address": {"calls": 0, "of": 0}}
    assert named is bool(list(count_needs(shown)))


async def test_names_an_outage_over_the_numbers_of_all_workers() -> None:
    answers = []
    for calls in (2, 4):
        async with proxied(WEATHER, NOBODY) as proxy:
            for number in range(calls):
                await call(proxy, {"lat": number})
            answers.append(await get(proxy, "/-/overview"))
    whole: Any = _merge_overviews(answers)
    assert ["tool `weather`: 6 of 6 calls failed (connection_refused)"] == [need["text"] for need in whole["needs"]]


async def test_counts_retries_by_calls() -> None:
    async with tool(replies(OK)) as server, proxied(REMINDERS, server.url) as proxy:
        await remind(proxy, "a", repeat=5)  # three errors, then a right call
        await remind(proxy, "a", text="tea", at="2026-12-01T09:00:00Z")
        await remind(proxy, "b", text="tea", at="soon")  # one error, then another
        await remind(proxy, "b", text="tea", at="later")
        (row,) = (await get(proxy, "/-/overview"))["tools"]
    assert (4, 2, 1) == (row["calls"], row["retried"], row["right"])


async def test_shows_numbers_of_the_window_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with tool(replies(OK)) as server, proxied(REMINDERS, server.url) as proxy:
        for number in range(6):
            await remind(proxy, "a", text="tea", at=f"{number}")
        assert proxy.serving.console is not None
        counted: Any = proxy.serving.console.counts
        now = proxy.serving.console.wall()
        for bars in (counted.bars, counted.mistake_bars):
            bars.look()
            monkeypatch.setattr(bars, "_wall", lambda: now + 120)
        await remind(proxy, "b", text="tea", at="2026-12-01T09:00:00Z", repeat="hourly")
        for window, place, calls in (("1m", "/repeat", 1), ("5m", "/at", 6)):
            (row,) = (await get(proxy, f"/-/overview?window={window}"))["tools"]
            assert (place, calls) == (row["worst"]["path"], row["worst"]["calls"])
            assert row["worst"]["calls"] <= row["calls"]
        (row,) = (await get(proxy, "/-/overview?window=1m"))["tools"]
        assert (1, 0) == (row["calls"], row["retried"])


def test_drops_the_oldest_intervals_before_numbers_fill_memory() -> None:
    counts: dict[tuple[Any, ...], float] = {}
    times = iter(range(0, 10_000, int(EVERY)))
    bars = CountBars(lambda: counts, lambda: next(times), most=10)
    for number in range(8):
        counts |= {("tool", number, place): 1.0 for place in range(3)}
        bars.look()
    assert 3 == len(list(bars._bars))


# --- what to change ---------------------------------------------------------------------------------------------------
STRICT = """
  - path: /weather
    upstream: tools
    tool: weather_report
    schema:
      type: object
      properties: {lat: {type: number}, units: {enum: [metric, imperial]}, days: {type: integer}}
      required: [lat]
      additionalProperties: false
"""


async def propose(rule: str, wrong: dict[str, Any], lines: str = "") -> tuple[dict[str, Any], str]:
    """The proposed change after seven wrong calls of ten, and the sentence about the tool."""
    async with tool(replies(OK)) as server, proxied(STRICT + lines, server.url) as proxy:
        for number in range(10):
            await call(proxy, wrong if number < 7 else {"lat": 1}, f"c{number}")
        (row,) = (await get(proxy, "/-/overview"))["tools"]
        page = await get(proxy, "/-/tools/%2Fweather/weather_report")
    (change,) = [each for each in page["changes"] if each["rule"] == rule]
    return change, row["summary"]


@pytest.mark.parametrize(
    ("rule", "wrong", "line", "summary"),
    [
        (
            "key_invented",
            {"latitude": 48.85},
            "aliases: {latitude: lat}",
            "70 % of calls name `latitude` for `lat`: add an alias",
        ),
        (
            "null_refused",
            {"lat": 1, "units": None},
            "null_optional: drop",
            "70 % of calls send null for `units`: set `null_optional: drop`",
        ),
    ],
)
async def test_proposes_a_line_for_the_config_that_lets_the_calls_pass(
    rule: str, wrong: dict[str, Any], line: str, summary: str
) -> None:
    change, said = await propose(rule, wrong)
    assert (line, summary, summary) == (change["config"], change["summary"], said)
    assert 7 == change["passes"]
    pasted = f"{STRICT}    {change['config']}\n"
    async with tool(replies(OK)) as server, proxied(pasted, server.url) as proxy:
        await call(proxy, wrong)
        (row,) = (await get(proxy, "/-/overview"))["tools"]
    assert {"repaired": 1} == row["outcomes"]


async def test_keeps_the_aliases_that_the_tool_has() -> None:
    change, _ = await propose("key_invented", {"latitude": 48.85}, "    aliases: {unit: units}\n")
    assert "aliases: {unit: units, latitude: lat}" == change["config"]


async def test_proposes_nothing_that_the_operator_has_decided() -> None:
    async with tool(replies(OK)) as server, proxied(STRICT + "    null_optional: refuse\n", server.url) as proxy:
        for number in range(7):
            await call(proxy, {"lat": 1, "units": None}, f"c{number}")
        page = await get(proxy, "/-/tools/%2Fweather/weather_report")
    assert [] == [each for each in page["changes"] if each["rule"] == "null_refused"]

"""Requests of several open pages at the same time share one answer: answers that may be some seconds old, and
entries."""

from __future__ import annotations

import json
from dataclasses import replace

from proxy.call_record import CallRecord
from proxy.extensions.console.kept_calls import MOST_TEXTS, CallFilter, select_calls, write_entry
from proxy.extensions.console.pages import LONGEST_ANSWER, MOST_ANSWERS, SharedAnswers
from proxy.server.admin.page import Page, PageRequest
from proxy.telemetry.ring import RecentCalls
from tests.serving.proxied import WEATHER, proxied, told

OVERVIEW = PageRequest("GET", "/-/overview", "", "window=15m", {})


class Counting:
    """A page that counts how often it is made, and shows the number. `now` is the clock."""

    def __init__(self, status: int = 200, more: bytes = b"") -> None:
        self.now = 0.0
        self.made = 0
        self._status = status
        self._more = more
        self.shared = SharedAnswers(lambda: self.now)

    async def ask(self, question: PageRequest = OVERVIEW, cache_control: str = "max-age=2") -> str:
        async def make(_: PageRequest) -> Page:
            self.made += 1
            return Page(b"%d" % self.made + self._more, self._status)

        answer = await self.shared.find_or_make(question, cache_control, make)
        assert isinstance(answer, Page)
        return answer.body.removesuffix(self._more).decode() + "".join(f" {name} {age}" for name, age in answer.headers)


async def test_an_answer_is_given_to_all_readers_that_take_its_age_and_made_again_for_others() -> None:
    page = Counting()
    first = await page.ask()
    page.now = 1.5
    shared = await page.ask()
    without = await page.ask(cache_control="no-cache")
    exact = await page.ask(cache_control="max-age=0")
    page.now = 2.0
    assert ["1", "1 Age 1", "2", "3", "4"] == [first, shared, without, exact, await page.ask()]


async def test_no_answer_is_given_to_another_role_path_or_query() -> None:
    page = Counting()
    asked = [
        OVERVIEW,
        replace(OVERVIEW, role="reader"),
        replace(OVERVIEW, query="window=1m"),
        replace(OVERVIEW, path="/-/upstreams"),
    ]
    assert ["1", "2", "3", "4"] == [await page.ask(one) for one in asked]
    assert ["1 Age 0", "2 Age 0", "3 Age 0", "4 Age 0"] == [await page.ask(one) for one in asked]


async def test_a_change_by_an_operator_is_seen_at_once() -> None:
    page = Counting()
    await page.ask()
    await page.ask(replace(OVERVIEW, method="POST", path="/-/attempts/reset"), "")
    assert "3" == await page.ask()


async def test_answers_that_are_refused_or_long_are_not_kept_and_no_more_than_a_few_are() -> None:
    for page in (Counting(404), Counting(more=b" " * LONGEST_ANSWER)):
        assert ["1", "2"] == [await page.ask(), await page.ask()]
    page = Counting()
    for number in range(MOST_ANSWERS + 1):
        await page.ask(replace(OVERVIEW, query=f"window={number}"))
    oldest = await page.ask(replace(OVERVIEW, query="window=0"))
    latest = await page.ask(replace(OVERVIEW, query=f"window={MOST_ANSWERS}"))
    assert (str(MOST_ANSWERS + 2), f"{MOST_ANSWERS + 1} Age 0") == (oldest, latest)


async def test_two_readers_of_a_running_proxy_share_the_overview() -> None:
    async with proxied(WEATHER) as proxy:
        first = await proxy.ask_admin("/-/overview", "Cache-Control: max-age=600")
        await proxy.post("/weather", b'{"lat": []}')
        shared = await proxy.ask_admin("/-/overview", "Cache-Control: max-age=600")
        new = await proxy.ask_admin("/-/overview")
    assert first.body == shared.body
    assert ({}, {"refused": 1}) == (told(shared)["totals"], told(new)["totals"])


def test_the_entry_of_a_call_is_written_once_for_all_readers_and_the_oldest_texts_go() -> None:
    recent = RecentCalls(lambda: 0.0, "boot", 2 * MOST_TEXTS)
    for number in range(MOST_TEXTS + 1):
        recent.finished(CallRecord(f"r{number}", "/a", outcome="delivered"))
    calls = list(select_calls(recent, CallFilter()))
    newest = write_entry(recent, calls[0])
    assert newest is write_entry(recent, next(select_calls(recent, CallFilter())))
    assert f"boot.{MOST_TEXTS + 1}" == json.loads(newest)["id"]
    for kept in calls[1:]:
        write_entry(recent, kept)
    assert newest is not write_entry(recent, calls[0])
    assert newest == write_entry(recent, calls[0])

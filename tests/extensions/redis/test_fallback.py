"""Attempts and call counts when the shared store goes away and comes back. The test plays the store, which answers,
refuses or keeps silent as the test says."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from proxy.core.model.values import Episode, FailedAttempt, FailureRecorded
from proxy.extensions.redis.fallback import FallbackStore, StoreCopy
from proxy.extensions.redis.remote import MissedChanges, SeenEpisode, SlotCount, Unreachable
from proxy.interfaces import Rate, RateExceeded
from proxy.state import StoreChange
from tests.state.test_rates import TestClock

R = TypeVar("R")


class Played:
    """A remote store in this process. `gone` refuses everything; `asked` counts the operations that arrived."""

    def __init__(self, clock: TestClock) -> None:
        self.store = StoreCopy(clock, 1000)
        self.gone = ""
        self.silent = False
        self.asked: list[str] = []
        self.held: list[Callable[[], None]] = []

    def _answer(self, name: str, work: Callable[[], R]) -> Future[R]:
        future: Future[R] = asyncio.get_running_loop().create_future()
        self.asked.append(name)
        if self.gone:
            future.set_exception(Unreachable(self.gone, sent=False))
            return future
        value = work()  # takes effect in the order of asking, whenever it is answered

        def answer() -> None:
            if not future.done():
                future.set_result(value)

        if self.silent:
            self.held.append(answer)
        else:
            answer()
        return future

    def look(self, key: str) -> Future[SeenEpisode | None]:
        def work() -> SeenEpisode | None:
            episode = at_once(self.store.look(key))
            return None if episode is None else SeenEpisode(episode, 60)

        return self._answer("look", work)

    def fail(self, key: str, attempt: FailedAttempt, ttl: float) -> Future[FailureRecorded]:
        return self._answer("fail", lambda: at_once(self.store.fail(key, attempt, ttl)))

    def clear(self, key: str, forget: bool) -> Future[Episode | None]:
        def work() -> Episode | None:
            was = at_once(self.store.clear(key, forget))
            assert not isinstance(was, Future)
            return was

        return self._answer("clear", work)

    def reserve(self, key: str, limit: int, ttl: float) -> Future[int | None]:
        return self._answer("reserve", lambda: at_once(self.store.reserve(key, limit, ttl)))

    def release(self, key: str) -> Future[int]:
        def work() -> int:
            at_once(self.store.release(key))
            return self.used(key)

        return self._answer("release", work)

    def count_taken(self, key: str) -> Future[SlotCount]:
        return self._answer("taken", lambda: SlotCount(at_once(self.store.count_taken(key)), 60.0))

    def take_rates(self, rates: Sequence[Rate]) -> Future[RateExceeded | None]:
        return self._answer("take_rates", lambda: at_once(self.store.take_rates(rates)))

    def merge(self, key: str, missed: MissedChanges) -> Future[None]:
        def work() -> None:
            if missed.cleared:
                at_once(self.store.clear(key))
            for attempt in missed.attempts:
                at_once(self.store.fail(key, attempt, missed.ttl))

        return self._answer("merge", work)

    def merge_used(self, key: str, change: int, ttl: float) -> Future[None]:
        return self._answer("merge_used", lambda: self.store.learn_used(key, self.used(key) + change, ttl))

    def probe(self, key: str) -> Future[None]:  # noqa: ARG002
        return self._answer("probe", lambda: None)

    async def list_episodes(self, most: int) -> Sequence[tuple[str, Episode]]:  # noqa: ARG002
        if self.gone:
            raise Unreachable(self.gone, sent=False)
        return await self.store.list_episodes()

    async def close(self) -> None:
        """Nothing to end."""

    def used(self, key: str) -> int:
        """Returns how many slots are taken."""
        taken = at_once(self.store.reserve(key, 10**9, 60)) or 0
        at_once(self.store.release(key))
        return taken - 1


def at_once(work: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        value: R = done.value
        return value
    raise AssertionError("it waited")


async def until(holds: Callable[[], bool]) -> None:
    """Lets everything else go on until something holds."""
    async with asyncio.timeout(300):
        while not holds():
            await asyncio.sleep(0)


class Pauses:
    """Sleeps until the test continues it; remembers the requested seconds."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._go = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        if seconds:
            await self._go.wait()
            self._go.clear()

    def go(self) -> None:
        """Ends the present sleep."""
        self._go.set()


class Case:
    """A store, its parts and the changes that it reported."""

    def __init__(self) -> None:
        self.clock = TestClock()
        self.remote = Played(self.clock)
        self.pauses = Pauses()
        self.changes: list[StoreChange] = []
        self.store = FallbackStore(self.remote, self.clock, 1000, self.changes.append, self.pauses)

    async def comes_back(self) -> None:
        """The remote store answers again, and is found to."""
        self.remote.gone = ""
        self.pauses.go()
        await until(lambda: self.store.up)
        await asyncio.sleep(0)

    def another(self) -> FallbackStore:
        """A second process with the same remote store."""
        return FallbackStore(self.remote, self.clock, 1000, lambda _change: None, self.pauses)


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    made = Case()
    await made.store.open()
    made.clock.seconds += 60  # has been up for a while
    yield made
    await made.store.close()


def attempt(name: str) -> FailedAttempt:
    return FailedAttempt(name, (f"line {name}",), f"id-{name}")


def episode(*names: str) -> Episode:
    kept = tuple(replace(attempt(name), number=number) for number, name in enumerate(names, 1))
    return Episode(len(names), kept, tuple((name, 1) for name in names), len(names))


def over(*names: str) -> Episode:
    """Returns what stays of an episode when a call was delivered."""
    return Episode(0, (), episode(*names).digests)


# --- away -------------------------------------------------------------------------------------------------------------
async def test_counting_continues_at_the_store_s_last_count(case: Case) -> None:
    await case.store.fail("k", attempt("a"), 60)
    case.remote.gone = "ConnectionError"
    recorded = await case.store.fail("k", attempt("b"), 60)
    assert episode("a", "b") == recorded.episode == await case.store.look("k")


async def test_an_episode_learnt_by_looking_continues_as_well(case: Case) -> None:
    other = case.another()
    await other.fail("k", attempt("a"), 60)
    await case.store.look("k")
    case.remote.gone = "ConnectionError"
    assert episode("a", "b") == (await case.store.fail("k", attempt("b"), 60)).episode


async def test_slots_taken_anywhere_stay_taken_while_the_store_is_away(case: Case) -> None:
    other = case.another()
    assert [1, 2] == [await other.reserve("cap", 3, 60), await case.store.reserve("cap", 3, 60)]
    case.remote.gone = "ConnectionError"
    assert [3, None] == [await case.store.reserve("cap", 3, 60) for _ in range(2)]


async def test_a_count_stays_known_and_a_new_one_is_remembered(case: Case) -> None:
    await case.store.reserve("old", 9, 60)
    case.remote.gone = "ConnectionError"
    await case.store.reserve("new", 9, 60)
    assert [1, 1, 0] == [await case.store.count_taken(key) for key in ("old", "new", "never")]


async def test_a_store_that_is_away_is_not_asked_again_by_calls(case: Case) -> None:
    case.remote.gone = "ConnectionError"
    await case.store.fail("k", attempt("a"), 60)
    await asyncio.sleep(0)
    asked = len(case.remote.asked)
    for number in range(10):
        await case.store.fail("k", attempt(str(number)), 60)
        await case.store.reserve("cap", 99, 60)
        assert await case.store.clear("other") is None
    assert asked == len(case.remote.asked)


async def test_reports_a_loss_and_a_return_once_each(case: Case) -> None:
    case.remote.gone = "ConnectionError: refused"
    for number in range(3):
        await case.store.fail("k", attempt(str(number)), 60)
    case.clock.seconds += 7
    await case.comes_back()
    assert [
        StoreChange(False, "ConnectionError: refused"),
        StoreChange(True, "", 7.0, merged=1),
    ] == case.changes


async def test_a_store_that_is_away_at_the_start_does_not_hold_it_up() -> None:
    case = Case()
    case.remote.gone = "AuthenticationError"
    await case.store.open()
    assert [StoreChange(False, "AuthenticationError")] == case.changes
    assert 1 == (await case.store.fail("k", attempt("a"), 60)).episode.count
    await case.store.close()


async def test_the_pauses_between_tries_grow(case: Case) -> None:
    case.remote.gone = "ConnectionError"
    await case.store.look("k")
    async with asyncio.timeout(300):
        while len(case.pauses.asked) < 8:
            case.pauses.go()
            await asyncio.sleep(0)
    assert [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0] == case.pauses.asked[:8]


async def test_a_store_that_keeps_going_away_is_tried_ever_more_rarely(case: Case) -> None:
    for _ in range(3):
        case.remote.gone = "TimeoutError"
        await case.store.look("k")
        await case.comes_back()
    assert [0.0, 0.25, 0.5] == case.pauses.asked


async def test_the_operator_sees_what_this_process_knows(case: Case) -> None:
    await case.store.fail("k", attempt("a"), 60)
    case.remote.gone = "ConnectionError"
    assert [("k", episode("a"))] == await case.store.list_episodes()


# --- back again -------------------------------------------------------------------------------------------------------
async def test_adds_the_local_counts_when_the_store_comes_back(case: Case) -> None:
    other = case.another()
    await case.store.fail("k", attempt("a"), 60)
    case.remote.gone = "ConnectionError"
    await case.store.fail("k", attempt("b"), 60)
    await case.store.reserve("cap", 3, 60)
    case.remote.gone = ""
    await other.fail("k", attempt("c"), 60)
    await other.reserve("cap", 3, 60)
    await case.comes_back()
    assert episode("a", "c", "b") == await other.look("k")
    assert 3 == await other.reserve("cap", 3, 60)


async def test_an_episode_that_ended_while_the_store_was_away_is_over(case: Case) -> None:
    await case.store.fail("k", attempt("a"), 60)
    case.remote.gone = "ConnectionError"
    assert episode("a") == await case.store.clear("k")
    await case.comes_back()
    assert over("a") == await case.store.look("k")


async def test_keeps_only_the_episode_that_began_after_the_end(case: Case) -> None:
    await case.store.fail("k", attempt("a"), 60)
    case.remote.gone = "ConnectionError"
    await case.store.clear("k")
    await case.store.fail("k", attempt("b"), 60)
    await case.comes_back()
    assert replace(episode("b"), digests=(("a", 1), ("b", 1))) == await case.store.look("k")


async def test_a_slot_given_back_while_the_store_was_away_is_free(case: Case) -> None:
    await case.store.reserve("cap", 1, 60)
    case.remote.gone = "ConnectionError"
    await case.store.release("cap")
    await case.comes_back()
    assert 1 == await case.store.reserve("cap", 1, 60)


async def test_does_not_add_counts_that_expired_while_the_store_was_away(case: Case) -> None:
    case.remote.gone = "ConnectionError"
    await case.store.fail("k", attempt("a"), 60)
    case.clock.seconds += 60
    await case.comes_back()
    assert (None, 0) == (await case.store.look("k"), case.changes[-1].merged)


async def test_thousands_of_entries_are_merged_before_the_store_is_used_again(case: Case) -> None:
    case.remote.gone = "ConnectionError"
    for number in range(900):
        await case.store.fail(f"k{number}", attempt("a"), 60)
    await case.comes_back()
    assert 900 == case.changes[-1].merged == len(await case.remote.store.list_episodes())


async def test_a_store_that_goes_away_while_it_is_merged_into_loses_nothing(case: Case) -> None:
    case.remote.gone = "ConnectionError"
    for number in range(300):
        await case.store.fail(f"k{number}", attempt("a"), 60)
    case.remote.gone = ""
    merge, left = case.remote.merge, iter(range(200))

    def breaks(key: str, missed: MissedChanges) -> Future[None]:
        if next(left, None) is None:
            case.remote.gone = "ConnectionError"
        return merge(key, missed)

    case.remote.merge = breaks  # type: ignore[method-assign]
    case.pauses.go()
    await until(lambda: case.remote.gone != "")
    case.remote.merge = merge  # type: ignore[method-assign]
    await case.comes_back()
    assert 300 == len(await case.remote.store.list_episodes())
    assert {1} == {one.count for _, one in await case.remote.store.list_episodes()}


# --- what costs a call nothing ----------------------------------------------------------------------------------------
async def test_ending_what_was_not_known_waits_for_nothing_and_tells_later(case: Case) -> None:
    other = case.another()
    await other.fail("k", attempt("a"), 60)
    case.remote.silent = True
    ending = await case.store.clear("k")
    assert isinstance(ending, Future)
    assert not ending.done()
    case.remote.held.pop()()
    assert episode("a") == await ending


async def test_a_look_if_known_waits_for_nothing_and_what_another_process_counted_is_known_soon_after(
    case: Case,
) -> None:
    other = case.another()
    await other.fail("k", attempt("a"), 60)
    assert await case.store.look("k", if_known=True) is None
    await asyncio.sleep(0)
    assert episode("a") == await case.store.look("k", if_known=True)
    assert (episode("a"), over("a")) == (await case.store.clear("k"), await other.look("k"))


async def test_an_answered_look_ends_the_episode_even_before_its_answer_is_read(
    case: Case,
) -> None:
    other = case.another()
    await other.fail("k", attempt("a"), 60)
    await case.store.look("k", if_known=True)
    assert episode("a") == await case.store.clear("k")


async def test_requests_nothing_at_the_end_if_the_look_ahead_found_nothing(case: Case) -> None:
    assert await case.store.look("k", if_known=True) is None
    assert await case.store.clear("k") is None
    assert ["probe", "look"] == case.remote.asked


async def test_a_look_that_takes_longer_than_the_tool_still_ends_what_it_finds(case: Case) -> None:
    other = case.another()
    await other.fail("k", attempt("a"), 60)
    case.remote.silent = True
    await case.store.look("k", if_known=True)
    ending = await case.store.clear("k")
    case.remote.silent = False
    case.remote.held.pop()()
    assert isinstance(ending, Future)
    assert episode("a") == await ending
    assert (over("a"), None) == (await other.look("k"), await case.store.look("k", if_known=True))


async def test_a_look_ahead_that_loses_the_store_ends_the_episode_later(case: Case) -> None:
    other = case.another()
    await other.fail("k", attempt("a"), 60)
    case.remote.gone = "ConnectionError"
    await case.store.look("k", if_known=True)
    ending = await case.store.clear("k")
    assert isinstance(ending, Future)
    assert await ending is None
    await case.comes_back()
    assert over("a") == await other.look("k")


async def test_does_not_look_ahead_for_a_known_episode(case: Case) -> None:
    await case.store.fail("k", attempt("a"), 60)
    case.remote.silent = True
    looking = asyncio.create_task(case.store.look("k", if_known=True))
    await asyncio.sleep(0)
    assert not looking.done()
    case.remote.held.pop()()
    assert episode("a") == await looking


async def test_ending_what_was_not_known_is_done_later_when_the_store_is_gone(case: Case) -> None:
    other = case.another()
    await other.fail("k", attempt("a"), 60)
    case.remote.gone = "ConnectionError"
    ending = await case.store.clear("k")
    assert isinstance(ending, Future)
    assert await ending is None
    await case.comes_back()
    assert over("a") == await case.store.look("k")


async def test_a_count_known_to_be_high_enough_is_not_asked_for_again(case: Case) -> None:
    other = case.another()
    await other.reserve("expanded", 9, 60)
    assert [1, 1, 1] == [await case.store.count_taken("expanded", enough=1) for _ in range(3)]
    assert 1 == case.remote.asked.count("taken")


async def test_a_call_that_is_given_up_while_it_waits_for_a_slot_does_not_keep_it(case: Case) -> None:
    case.remote.silent = True
    waiting = asyncio.create_task(case.store.reserve("cap", 1, 60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    case.remote.silent = False
    case.remote.held.pop()()
    await until(lambda: "release" in case.remote.asked)
    assert 1 == await case.store.reserve("cap", 1, 60)

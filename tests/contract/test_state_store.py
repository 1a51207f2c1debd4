"""The store contract of every state backend. A new backend is one line in `STORES`; the tests of an extension that adds
one import these, with their own `kind` and `backend_settings`.

Time is the test's own: `clock.advance` moves the clock of this process and, for a backend with a server, the lives of
all keys in it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from proxy.core.contract import attempts as contract
from proxy.core.model.codes import INVALID_ARGUMENTS, VIOLATION_CODES
from proxy.core.model.values import Episode, FailedAttempt, Failure, FailureRecorded, Violation
from proxy.interfaces import ConnectedStore, Rate, StateStore
from proxy.state import STORES, StoreChange, make_store
from proxy.state.memory import MemoryStore


class FakeClock:
    """Time that moves only when a test moves it. `also` moves it elsewhere."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.also: Callable[[float], None] = lambda _seconds: None

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
        self.also(seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=[each.backend for each in STORES])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def backend_settings() -> Any:
    """Returns the settings of a backend in this process; the tests of an extension override it with theirs."""
    return None


@pytest.fixture
async def store(kind: str, clock: FakeClock, backend_settings: Any) -> AsyncIterator[StateStore]:
    """The store; its fallback may not have answered any test."""
    went: list[StoreChange] = []
    made = make_store(kind, clock, 1000, backend_settings, went.append)
    if isinstance(made, ConnectedStore):
        await made.open()
    yield made
    await made.close()
    assert [] == went


def attempt(digest: str, number: int = 0, call: str = "", seen: int | None = None) -> FailedAttempt:
    """A failed call as it is to be recorded, or with the `number` of its attempt as it is kept."""
    return FailedAttempt(digest, (f"line of {digest}",), call, seen, number)


def first(digest: str) -> Episode:
    """The episode of one failed call."""
    return Episode(1, (attempt(digest, 1),), ((digest, 1),), 1)


async def ended(store: StateStore, key: str) -> Episode | None:
    """Returns what an ended episode was, whenever the store tells."""
    was = await store.clear(key)
    return await was if isinstance(was, asyncio.Future) else was


# --- episodes -------------------------------------------------------------------------------------------------------
async def test_a_key_without_failures_has_no_episode(store: StateStore) -> None:
    assert await store.look("k") is None


async def test_a_failure_starts_an_episode_and_a_second_one_continues_it(store: StateStore) -> None:
    one = await store.fail("k", attempt("a"), 60)
    two = await store.fail("k", attempt("b"), 60)
    both = Episode(2, (attempt("a", 1), attempt("b", 2)), (("a", 1), ("b", 1)), 2)
    assert (FailureRecorded(first("a"), False, 1), FailureRecorded(both, False, 2)) == (one, two)
    assert both == await store.look("k")


async def test_the_same_arguments_again_are_another_attempt(store: StateStore) -> None:
    told = [await store.fail("k", attempt("a"), 60) for _ in range(3)]
    assert [(1, False), (2, True), (3, True)] == [(one.number, one.repeated) for one in told]
    assert (("a", 3),) == told[2].episode.digests


async def test_a_clients_resend_is_the_attempt_it_repeats(store: StateStore) -> None:
    one, resent, again = [await store.fail("k", attempt("a", call=call), 60) for call in ("id-1", "id-1", "id-2")]
    assert one == resent
    assert (2, True) == (again.number, again.repeated)


async def test_failures_that_had_not_seen_the_first_are_part_of_its_attempt(store: StateStore) -> None:
    turn = [await store.fail("k", attempt(digest, seen=0), 60) for digest in ("a", "b", "a")]
    later = await store.fail("k", attempt("a", seen=1), 60)
    assert [1, 1, 1, 2] == [one.number for one in (*turn, later)]
    assert [False, False, False, True] == [one.repeated for one in (*turn, later)]
    assert (2, 4, (("b", 1), ("a", 2))) == (later.episode.count, later.episode.failed, later.episode.digests)


async def test_keys_do_not_know_each_other(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    assert await store.look("other") is None


async def test_clearing_ends_an_episode_and_gives_it_back(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    assert first("a") == await store.clear("k", forget=True)
    assert (None, None) == (await store.look("k"), await ended(store, "k"))


async def test_refused_arguments_keep_their_count_when_an_episode_ends(store: StateStore, clock: FakeClock) -> None:
    for number in (1, 2, 3):
        recorded = await store.fail("k", attempt("a"), 60)
        assert (number, number > 1, 1) == (recorded.number, recorded.repeated, recorded.episode.count)
        assert recorded.episode == await store.clear("k")
        assert Episode(0, (), (("a", number),)) == await store.look("k")
    clock.advance(60)
    assert await store.look("k") is None


async def test_an_ended_episode_does_not_live_longer_for_being_ended(store: StateStore, clock: FakeClock) -> None:
    await store.fail("k", attempt("a"), 60)
    clock.advance(59)
    await store.clear("k")
    clock.advance(1)
    assert await store.look("k") is None


async def test_an_episode_ends_a_time_to_live_after_its_last_failure(store: StateStore, clock: FakeClock) -> None:
    await store.fail("k", attempt("a"), 60)
    clock.advance(59)
    await store.fail("k", attempt("b"), 60)
    clock.advance(59)
    assert await store.look("k") is not None
    clock.advance(1)
    assert (None, []) == (await store.look("k"), list(await store.list_episodes()))
    assert (await store.fail("k", attempt("c"), 60)).episode.count == 1


async def test_the_operator_sees_all_running_episodes(store: StateStore, clock: FakeClock) -> None:
    await store.fail("gone", attempt("a"), 10)
    clock.advance(10)
    await store.fail("k", attempt("a"), 60)
    await store.fail("l", attempt("b"), 60)
    assert [("k", first("a")), ("l", first("b"))] == sorted(await store.list_episodes())


async def test_no_more_keys_are_kept_in_memory_than_allowed_and_the_least_used_leaves(clock: FakeClock) -> None:
    store = make_store("memory", clock, 3)
    for key in ("a", "b", "c"):
        await store.fail(key, attempt(key), 60)
    await store.look("a")
    await store.fail("d", attempt("d"), 60)
    assert ["a", "c", "d"] == sorted(key for key, _ in await store.list_episodes())


async def test_a_history_takes_less_than_ten_kilobytes_whatever_is_sent(store: StateStore) -> None:
    for number in range(100):
        broken = [
            Violation(code, ("𝓀" * 500 + str(number), *range(60)), "𝓂" * 500, "𝓮" * 500, value=None)
            for code in VIOLATION_CODES.values()
        ]
        failure = Failure(INVALID_ARGUMENTS, "", tuple(broken))
        await store.fail("k", contract.make_failed_attempt(failure, f"{number:032x}", f"id {number}"), 60)
    episode = await store.look("k")
    assert episode is not None
    assert episode.count == 100
    assert 5_000 < size_of(episode) < 10_000


def size_of(episode: Episode) -> int:
    """Bytes of an episode and all it holds, each object once."""
    seen: dict[int, int] = {}

    def add(value: Any) -> None:
        if id(value) not in seen:
            seen[id(value)] = sys.getsizeof(value)
            inner = value if isinstance(value, tuple) else [getattr(value, name) for name in slots(value)]
            for item in inner:
                add(item)

    add(episode)
    return sum(seen.values())


def slots(value: object) -> tuple[str, ...]:
    return tuple(getattr(type(value), "__slots__", ()))


async def test_a_store_in_this_process_knows_the_keys_under_which_something_is_remembered(clock: FakeClock) -> None:
    store = MemoryStore(clock, max_keys=10)
    known = [store.is_known("k")]
    await store.fail("k", attempt("one"), 60)
    known += [store.is_known("k"), store.is_known("other")]
    await store.clear("k")
    known.append(store.is_known("k"))  # how often the arguments failed is remembered on
    await store.clear("k", forget=True)
    known.append(store.is_known("k"))
    await store.reserve("cap", 3, 60)
    known += [store.is_known("cap"), store.is_known("k")]
    assert [False, True, False, True, False, True, False] == known


@pytest.mark.parametrize("seed", range(4))
async def test_of_a_key_that_is_not_known_an_awaited_look_finds_nothing(
    store: StateStore, clock: FakeClock, seed: int
) -> None:
    """Whatever happened before; a shared store says of no key that it is not known."""
    chance, keys, known = Random(seed), ("a", "b", "c"), []
    changes: dict[str, Callable[[str], Awaitable[object]]] = {
        "fail": lambda key: store.fail(key, attempt(chance.choice("xyz")), chance.choice((5, 20))),
        "clear": lambda key: ended(store, key),
        "forget": lambda key: _settled(store.clear(key, forget=True)),
        "reserve": lambda key: store.reserve(key, 3, chance.choice((5, 20))),
        "release": store.release,
    }
    for _ in range(80):
        await changes[chance.choice(tuple(changes))](chance.choice(keys))
        if chance.random() < 0.3:
            clock.advance(chance.choice((1, 8)))
        for key in keys:
            known.append(store.is_known(key))
            found = [await store.look(key), await store.look(key, if_known=True), await store.count_taken(key)]
            assert known[-1] or [None, None, 0] == [*found]
    assert {True} == set(known) or (isinstance(store, MemoryStore) and {True, False} == set(known))


async def _settled(clearing: Awaitable[object]) -> object:
    was = await clearing
    return await was if isinstance(was, asyncio.Future) else was


def test_the_interface_has_ten_methods() -> None:
    methods = {name for name in vars(StateStore) if not name.startswith("_")}
    assert {
        "is_known",
        "look",
        "fail",
        "clear",
        "list_episodes",
        "reserve",
        "release",
        "count_taken",
        "take_rates",
        "close",
    } == methods


async def test_a_call_that_one_rate_refuses_is_counted_under_none(store: StateStore) -> None:
    often, seldom = Rate("{k}/often", 3_600_000_000, 2), Rate("{k}/seldom", 86_400_000_000, 1)
    assert await store.take_rates([often, seldom]) is None
    refused = await store.take_rates([often, seldom])

    assert refused is not None
    assert (1, 86_400) == (refused.index, round(refused.wait / 1_000_000, -1))
    assert await store.take_rates([often]) is None
    refused = await store.take_rates([often])
    assert refused is not None
    assert 0 == refused.index


# --- many at once -----------------------------------------------------------------------------------------------------
@pytest.mark.large
async def test_thousands_of_parallel_failures_on_one_key_are_counted_exactly(store: StateStore) -> None:
    recorded = await asyncio.gather(*(store.fail("k", attempt(str(number % 10)), 60) for number in range(5000)))
    episode = await store.look("k")
    assert episode is not None
    assert (5000, 4990) == (episode.count, sum(one.repeated for one in recorded))
    assert {str(number): 500 for number in range(10)} == dict(episode.digests)


def test_failures_from_many_threads_are_counted_exactly(clock: FakeClock) -> None:
    store = make_store("memory", clock)

    async def fail_often(thread: int) -> None:
        for number in range(250):
            await store.fail("k", attempt(f"{thread}/{number}"), 60)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda thread: asyncio.run(fail_often(thread)), range(8)))
    episode = asyncio.run(store.look("k"))
    assert episode is not None
    assert (2000, 2000) == (episode.count, episode.failed)


async def test_parallel_calls_never_take_more_slots_than_there_are(store: StateStore) -> None:
    taken = await asyncio.gather(*(store.reserve("cap", 7, 60) for _ in range(2000)))
    assert [1, 2, 3, 4, 5, 6, 7] == sorted(slot for slot in taken if slot is not None)


# --- call caps --------------------------------------------------------------------------------------------------------
async def test_slots_are_given_until_there_are_none(store: StateStore) -> None:
    assert [1, 2, None, None] == [await store.reserve("cap", 2, 60) for _ in range(4)]


async def test_looking_at_the_slots_takes_none(store: StateStore) -> None:
    assert 0 == await store.count_taken("cap")
    for number in (1, 2):
        assert (number, number) == (await store.reserve("cap", 2, 60), await store.count_taken("cap"))
    await store.release("cap")
    assert 1 == await store.count_taken("cap")


async def test_a_slot_given_back_can_be_taken_again(store: StateStore) -> None:
    await store.reserve("cap", 1, 60)
    await store.release("cap")
    assert [1, None] == [await store.reserve("cap", 1, 60) for _ in range(2)]


async def test_giving_back_what_nobody_took_gives_no_credit(store: StateStore) -> None:
    await store.release("cap")
    assert [1, None] == [await store.reserve("cap", 1, 60) for _ in range(2)]


async def test_a_count_is_forgotten_a_time_to_live_after_its_last_call(store: StateStore, clock: FakeClock) -> None:
    await store.reserve("cap", 1, 60)
    clock.advance(60)
    assert await store.reserve("cap", 1, 60) == 1


async def test_episodes_and_counts_of_the_same_key_do_not_mix(store: StateStore) -> None:
    await store.reserve("k", 5, 60)
    assert await store.look("k") is None


# --- what waits for nothing -------------------------------------------------------------------------------------------
async def test_a_count_known_to_be_high_enough_is_given_until_its_time_is_over(
    store: StateStore, clock: FakeClock
) -> None:
    assert 0 == await store.count_taken("expanded", enough=1)
    await store.reserve("expanded", 10**9, 60)
    clock.advance(59)
    assert 1 == await store.count_taken("expanded", enough=1)
    clock.advance(1)
    assert 0 == await store.count_taken("expanded", enough=1)


async def test_a_process_knows_of_the_failures_it_counted_until_they_are_over(store: StateStore) -> None:
    assert await store.look("k", if_known=True) is None
    await store.fail("k", attempt("a"), 60)
    assert first("a") == await store.look("k", if_known=True)
    await store.clear("k")
    assert await store.look("k", if_known=True) is None


async def test_a_process_forgets_a_failure_when_its_time_is_over(store: StateStore, clock: FakeClock) -> None:
    await store.fail("k", attempt("a"), 60)
    clock.advance(60)
    assert await store.look("k", if_known=True) is None


async def test_a_process_does_not_count_an_ended_episode_among_what_it_knows(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    assert first("a") == await store.look("k", if_known=True)
    await store.clear("k")
    assert (None, Episode(0, (), (("a", 1),))) == (await store.look("k", if_known=True), await store.look("k"))


async def test_of_a_forgotten_episode_there_is_nothing_to_know_or_to_end(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    await store.clear("k", forget=True)
    assert (None, None) == (await store.look("k", if_known=True), await ended(store, "k"))


async def test_ending_what_nobody_knows_of_ends_nothing(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    assert await ended(store, "other") is None
    assert await store.look("k") is not None


async def test_a_store_can_be_closed(store: StateStore) -> None:
    slot = await store.reserve("k", 5, 60)
    assert slot is not None
    await store.close()
    await store.close()  # a second time does no harm

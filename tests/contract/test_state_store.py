"""The store contract: what every state backend does. A new backend is one line in `STORES`.

Time is the test's own: `clock.advance` moves the clock of this process and, for a backend with a server, the lives of
all keys in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from proxy.core import contract
from proxy.core.codes import INVALID_ARGUMENTS, VIOLATION_CODES
from proxy.core.model import Episode, FailedAttempt, Failure, Violation
from proxy.interfaces import StateStore
from proxy.state import STORES, RedisSettings, make_store
from proxy.state.fallback import StoreChange
from tests.state.server import Server, pass_time, server


class FakeClock:
    """Time that moves only when told to. `also` moves it elsewhere."""

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


@pytest.fixture(params=sorted(STORES))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    """Starts a server when the first test asks for one."""
    running: list[Server] = []
    with contextlib.ExitStack() as stack:

        def start() -> Server:
            if not running:
                running.append(stack.enter_context(server(tmp_path_factory.mktemp("redis"))))
            return running[0]

        yield start


@pytest.fixture
def settings(kind: str, clock: FakeClock, started: Callable[[], Server]) -> Iterator[RedisSettings | None]:
    """Of the backend that needs some, with an empty server."""
    if kind == "memory":
        yield None
        return
    running = started()
    with running.client() as client:
        client.flushall()
        client.script_flush()
        clock.also = lambda seconds: pass_time(client, seconds)
        yield replace(running.settings, most_waiting=10_000)


@pytest.fixture
async def store(kind: str, clock: FakeClock, settings: RedisSettings | None) -> AsyncIterator[StateStore]:
    """The store; no test may have been answered by what stands in for it."""
    went: list[StoreChange] = []
    made = make_store(kind, clock, 1000, settings, went.append)
    await made.open()
    yield made
    await made.close()
    assert [] == went


def attempt(digest: str) -> FailedAttempt:
    return FailedAttempt(digest, (f"line of {digest}",))


# --- episodes -------------------------------------------------------------------------------------------------------
async def test_a_key_without_failures_has_no_episode(store: StateStore) -> None:
    assert await store.look("k") is None


async def test_a_failure_starts_an_episode_and_a_second_one_goes_on_with_it(store: StateStore) -> None:
    first = await store.fail("k", attempt("a"), 60)
    second = await store.fail("k", attempt("b"), 60)
    assert Episode(1, (attempt("a"),), ("a",)) == first.episode
    assert Episode(2, (attempt("a"), attempt("b")), ("a", "b")) == second.episode == await store.look("k")


async def test_the_same_arguments_count_once(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    again = await store.fail("k", attempt("a"), 60)
    assert (True, Episode(1, (attempt("a"),), ("a",), 1)) == (again.repeated, again.episode)


async def test_keys_do_not_know_each_other(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    assert await store.look("other") is None


async def test_clearing_ends_an_episode_and_gives_it_back(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    assert Episode(1, (attempt("a"),), ("a",)) == await store.clear("k")
    assert (None, None) == (await store.look("k"), await store.clear("k"))


async def test_an_episode_ends_a_time_to_live_after_its_last_failure(store: StateStore, clock: FakeClock) -> None:
    await store.fail("k", attempt("a"), 60)
    clock.advance(59)
    await store.fail("k", attempt("b"), 60)
    clock.advance(59)
    assert await store.look("k") is not None
    clock.advance(1)
    assert (None, []) == (await store.look("k"), list(await store.episodes()))
    assert (await store.fail("k", attempt("c"), 60)).episode.count == 1


async def test_the_operator_sees_all_running_episodes(store: StateStore, clock: FakeClock) -> None:
    await store.fail("gone", attempt("a"), 10)
    clock.advance(10)
    await store.fail("k", attempt("a"), 60)
    await store.fail("l", attempt("b"), 60)
    assert [("k", Episode(1, (attempt("a"),), ("a",))), ("l", Episode(1, (attempt("b"),), ("b",)))] == sorted(
        await store.episodes()
    )


async def test_no_more_keys_are_kept_in_memory_than_allowed_and_the_least_used_leaves(clock: FakeClock) -> None:
    store = make_store("memory", clock, 3)
    for key in ("a", "b", "c"):
        await store.fail(key, attempt(key), 60)
    await store.look("a")
    await store.fail("d", attempt("d"), 60)
    assert ["a", "c", "d"] == sorted(key for key, _ in await store.episodes())


async def test_a_history_takes_less_than_ten_kilobytes_whatever_is_sent(store: StateStore) -> None:
    for number in range(100):
        broken = [
            Violation(code, ("𝓀" * 500 + str(number), *range(60)), "𝓂" * 500, "𝓮" * 500, value=None)
            for code in VIOLATION_CODES.values()
        ]
        failure = Failure(INVALID_ARGUMENTS, "", tuple(broken))
        await store.fail("k", contract.remember(failure, contract.digest(b"%d" % number, "f")), 60)
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


# --- many at once -----------------------------------------------------------------------------------------------------
async def test_thousands_of_parallel_failures_on_one_key_are_counted_exactly(store: StateStore) -> None:
    recorded = await asyncio.gather(*(store.fail("k", attempt(str(number % 10)), 60) for number in range(5000)))
    episode = await store.look("k")
    assert episode is not None
    assert (10, 4990, 4990) == (episode.count, episode.repeats, sum(one.repeated for one in recorded))


def test_failures_from_many_threads_are_counted_exactly(clock: FakeClock) -> None:
    store = make_store("memory", clock)

    async def fail_often(thread: int) -> None:
        for number in range(250):
            await store.fail("k", attempt(f"{thread}/{number}"), 60)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda thread: asyncio.run(fail_often(thread)), range(8)))
    episode = asyncio.run(store.look("k"))
    assert episode is not None
    assert (2000, 0) == (episode.count, episode.repeats)


async def test_parallel_calls_never_take_more_slots_than_there_are(store: StateStore) -> None:
    taken = await asyncio.gather(*(store.reserve("cap", 7, 60) for _ in range(2000)))
    assert [1, 2, 3, 4, 5, 6, 7] == sorted(slot for slot in taken if slot is not None)


# --- call caps --------------------------------------------------------------------------------------------------------
async def test_slots_are_given_until_there_are_none(store: StateStore) -> None:
    assert [1, 2, None, None] == [await store.reserve("cap", 2, 60) for _ in range(4)]


async def test_looking_at_the_slots_takes_none(store: StateStore) -> None:
    assert 0 == await store.taken("cap")
    for number in (1, 2):
        assert (number, number) == (await store.reserve("cap", 2, 60), await store.taken("cap"))
    await store.release("cap")
    assert 1 == await store.taken("cap")


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
    await store.mark("k", 60)
    assert await store.look("k") is None


# --- marks ------------------------------------------------------------------------------------------------------------
async def test_a_mark_is_remembered_for_its_time(store: StateStore, clock: FakeClock) -> None:
    assert not await store.marked("expanded")
    await store.mark("expanded", 60)
    clock.advance(59)
    assert await store.marked("expanded")
    clock.advance(1)
    assert not await store.marked("expanded")


async def test_looking_at_a_mark_does_not_prolong_it(store: StateStore, clock: FakeClock) -> None:
    await store.mark("expanded", 60)
    clock.advance(59)
    assert await store.marked("expanded")
    clock.advance(1)
    assert not await store.marked("expanded")


# --- what costs nothing -----------------------------------------------------------------------------------------------
async def test_a_process_knows_of_the_failures_it_counted_until_they_are_over(store: StateStore) -> None:
    assert not store.knows("k")
    await store.fail("k", attempt("a"), 60)
    assert store.knows("k")
    await store.clear("k")
    assert not store.knows("k")


async def test_a_process_forgets_a_failure_when_its_time_is_over(store: StateStore, clock: FakeClock) -> None:
    await store.fail("k", attempt("a"), 60)
    clock.advance(60)
    assert not store.knows("k")


async def test_a_store_in_which_an_episode_runs_is_not_idle(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    assert store.is_idle() is False


async def test_in_an_idle_store_there_is_nothing_to_know_to_look_for_or_to_end(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    await store.clear("k")
    assert store.is_idle() is not store.shared
    if not store.shared:
        assert (False, None, None) == (store.knows("k"), store.look_ahead("k"), store.clear_soon("k"))


async def test_ending_what_nobody_knows_of_ends_nothing(store: StateStore) -> None:
    await store.fail("k", attempt("a"), 60)
    ended = store.clear_soon("other", store.look_ahead("other"))
    assert (ended is None or await ended is None) is True
    assert await store.look("k") is not None


async def test_a_store_can_be_closed(store: StateStore) -> None:
    await store.mark("k", 60)
    await store.close()


def test_an_unknown_kind_of_store_is_refused_by_name(clock: FakeClock) -> None:
    with pytest.raises(ValueError, match="unknown kind 'memroy'; known: memory, redis"):
        make_store("memroy", clock)

"""The Lua scripts against the pure rules: the same answers, whatever happens in whatever order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from proxy.core import contract
from proxy.core.model import Episode, FailedAttempt, FailureRecorded
from proxy.state.redis import operations, scripts
from proxy.state.redis.operations import Keys, Operation
from proxy.state.remote import Missed
from tests.state.server import server

R = TypeVar("R")
KEYS = Keys("t")
KEY = KEYS.episode("c/tool")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with server(tmp_path_factory.mktemp("redis")) as running, running.client() as made:
        yield made


def done(client: Redis, operation: Operation[R]) -> R:
    """What the store would give for an operation."""
    return operation.read(client.eval(operation.script.text, 1, operation.key, *operation.arguments))


def attempt(number: int, line: str = "") -> FailedAttempt:
    return FailedAttempt(f"digest {number}", (line or f"line {number}",))


# Few digests, so that they come again while they are kept and after they have been dropped.
ATTEMPTS = st.builds(attempt, st.integers(0, 30), st.text(max_size=20))
STEPS = st.lists(st.one_of(ATTEMPTS, st.just("clear"), st.just("look")), max_size=60)
REPEATABLE = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@REPEATABLE
@given(steps=STEPS)
def test_the_script_counts_failures_as_the_pure_rule_does(client: Redis, steps: list[FailedAttempt | str]) -> None:
    client.delete(KEY)
    episode: Episode | None = None
    for step in steps:
        if step == "clear":
            assert episode == done(client, operations.clear(KEY))
            episode = None
        elif isinstance(step, FailedAttempt):
            expected = contract.add(episode, step)
            assert expected == done(client, operations.fail(KEY, step, 60))
            episode = expected.episode
        seen = done(client, operations.look(KEY))
        assert episode == (None if seen is None else seen.episode)


@REPEATABLE
@given(before=st.lists(ATTEMPTS, max_size=20), missed=st.lists(ATTEMPTS, max_size=10), cleared=st.booleans())
def test_merging_is_counting_each_missed_digest_that_is_not_there(
    client: Redis, before: list[FailedAttempt], missed: list[FailedAttempt], cleared: bool
) -> None:
    client.delete(KEY)
    for one in before:
        done(client, operations.fail(KEY, one, 60))
    seen = done(client, operations.look(KEY))
    expected = None if cleared or seen is None else seen.episode
    for one in missed:
        recorded: FailureRecorded = contract.add(expected, one)
        expected = expected if recorded.repeated else recorded.episode
    done(client, operations.merge(KEY, Missed(cleared, tuple(missed), 0, 60)))
    merged = done(client, operations.look(KEY))
    assert expected == (None if merged is None else merged.episode)


def test_merging_twice_adds_nothing(client: Redis) -> None:
    client.delete(KEY)
    missed = Missed(False, (attempt(1), attempt(2)), 0, 60)
    for _ in range(2):
        done(client, operations.merge(KEY, missed))
    seen = done(client, operations.look(KEY))
    assert seen is not None
    assert Episode(2, (attempt(1), attempt(2)), ("digest 1", "digest 2")) == seen.episode


@pytest.mark.parametrize(("used", "change", "left"), [(0, 2, 2), (1, 2, 3), (3, -1, 2), (1, -1, 0), (0, -1, 0)])
def test_a_missed_change_of_a_call_count_is_added(client: Redis, used: int, change: int, left: int) -> None:
    key = KEYS.count("c/cap")
    client.delete(key)
    for _ in range(used):
        done(client, operations.reserve(key, 9, 60))
    done(client, operations.merge_used(key, change, 60 if change > 0 else 0))
    assert left == int(client.get(key) or 0)
    assert (left > 0) == (client.pttl(key) > 0)


def test_every_key_that_is_written_has_a_time_to_live_of_at_least_a_millisecond(client: Redis) -> None:
    client.flushall()
    names = Keys("every")
    done(client, operations.fail(names.episode("a"), attempt(1), 60))
    done(client, operations.merge(names.episode("b"), Missed(True, (attempt(1),), 3, 60)))
    done(client, operations.reserve(names.count("c"), 3, 60))
    done(client, operations.release(names.count("c")))
    done(client, operations.reserve(names.count("c"), 3, 0.0001))
    done(client, operations.merge_used(names.count("d"), 3, 60))
    done(client, operations.mark(names.mark("e"), 60))
    done(client, operations.probe(names.probe("f")))
    lives = {name: client.pttl(name) for name in client.scan_iter()}
    assert {b"every:e:{a}", b"every:e:{b}", b"every:c:{d}", b"every:m:{e}", b"every:p:{f}"} <= set(lives)
    assert [] == [name for name, left in lives.items() if left == -1]  # -2: gone since


def test_a_script_is_known_by_its_sha(client: Redis) -> None:
    everything = [value for value in vars(scripts).values() if isinstance(value, scripts.Script)]
    assert len(everything) >= 9
    assert [one.sha for one in everything] == [client.script_load(one.text) for one in everything]


def test_all_keys_of_a_conversation_are_in_one_slot_of_a_cluster() -> None:
    names = [KEYS.episode("4f2a/add"), KEYS.count("4f2a/cap/add"), KEYS.mark("4f2a/x"), KEYS.probe("4f2a/add")]
    assert {b"{4f2a}"} == {name[name.index(b"{") : name.index(b"}") + 1] for name in names}
    assert len(set(names)) == 4


@given(key=st.text(st.characters(exclude_characters="{}"), max_size=40))
def test_an_attempt_key_can_be_read_out_of_its_name(key: str) -> None:
    assert key == KEYS.key_of(KEYS.episode(key))


@given(lines=st.lists(st.text(st.characters(codec=None), max_size=30), max_size=3))
def test_an_attempt_is_packed_into_ascii_and_unpacked_unchanged(lines: list[str]) -> None:
    one = FailedAttempt("d", tuple(lines))
    packed = operations.packed(one).encode("ascii")
    assert Episode(1, (one,), ("d",)) == operations.episode_of([b"n", b"1", b"d1", b"d", b"a1", packed])

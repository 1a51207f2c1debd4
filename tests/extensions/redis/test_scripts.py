"""The Lua scripts against the pure rules: the same answers, whatever happens in whatever order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from proxy.core.contract import attempts as contract
from proxy.core.model.values import Episode, FailedAttempt
from proxy.extensions.redis import operations, scripts
from proxy.extensions.redis.operations import Keys, Operation
from proxy.extensions.redis.remote import MissedChanges
from tests.extensions.redis.server import server
from tests.generated import examples

R = TypeVar("R")
KEYS = Keys("t")
KEY = KEYS.episode("c/tool")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with server(tmp_path_factory.mktemp("redis")) as running, running.client() as made:
        yield made


def done(client: Redis, operation: Operation[R]) -> R:
    """Returns what the store would give for an operation."""
    return operation.read(client.eval(operation.script.text, 1, operation.key, *operation.arguments))


def attempt(number: int, line: str = "") -> FailedAttempt:
    return FailedAttempt(f"digest-{number}", (line or f"line {number}",))


# Few digests, calls and numbers, so that they come again while they are kept and after they have been dropped.
ATTEMPTS = st.builds(
    lambda number, line, call, seen: replace(attempt(number, line), call=call, seen=seen),
    st.integers(0, 30),
    st.text(max_size=20),
    st.sampled_from(["", "", "c1", "c2"]),
    st.none() | st.integers(0, 6),
)
STEPS = st.lists(st.one_of(ATTEMPTS, st.sampled_from(["clear", "look", "forget"])), max_size=60)
REPEATABLE = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])


@REPEATABLE
@given(steps=STEPS)
def test_the_script_counts_failures_as_the_pure_rule_does(client: Redis, steps: list[FailedAttempt | str]) -> None:
    client.delete(KEY)
    episode: Episode | None = None
    for step in steps:
        if step in ("clear", "forget"):
            assert episode == done(client, operations.clear(KEY, step == "forget"))
            episode = None if episode is None or step == "forget" else contract.clear_episode(episode)
        elif isinstance(step, FailedAttempt):
            expected = contract.add(episode, step)
            counted = done(client, operations.fail(KEY, step, 60))
            assert (expected, expected.resent) == (counted, counted.resent)
            episode = expected.episode
        seen = done(client, operations.look(KEY))
        assert episode == (None if seen is None else seen.episode)


@REPEATABLE
@given(before=st.lists(ATTEMPTS, max_size=20), missed=st.lists(ATTEMPTS, max_size=10), cleared=st.booleans())
def test_merging_is_counting_each_missed_failure(
    client: Redis, before: list[FailedAttempt], missed: list[FailedAttempt], cleared: bool
) -> None:
    client.delete(KEY)
    for one in before:
        done(client, operations.fail(KEY, one, 60))
    seen = done(client, operations.look(KEY))
    expected = None if seen is None else contract.clear_episode(seen.episode) if cleared else seen.episode
    for one in missed:
        expected = contract.add(expected, one).episode
    done(client, operations.merge(KEY, MissedChanges(cleared, tuple(missed), 60)))
    merged = done(client, operations.look(KEY))
    assert expected == (None if merged is None else merged.episode)


def test_merging_twice_adds_nothing(client: Redis) -> None:
    client.delete(KEY)
    missed = MissedChanges(False, tuple(replace(attempt(number), call=f"id-{number}") for number in (1, 2)), 60)
    for _ in range(2):
        done(client, operations.merge(KEY, missed))
    seen = done(client, operations.look(KEY))
    assert seen is not None
    assert (2, 2, (("digest-1", 1), ("digest-2", 1))) == (
        seen.episode.count,
        seen.episode.failed,
        seen.episode.digests,
    )


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
    done(client, operations.merge(names.episode("b"), MissedChanges(True, (attempt(1),), 60)))
    done(client, operations.reserve(names.count("c"), 3, 60))
    done(client, operations.release(names.count("c")))
    done(client, operations.reserve(names.count("c"), 3, 0.0001))
    done(client, operations.merge_used(names.count("d"), 3, 60))
    done(client, operations.probe(names.probe("f")))
    lives = {name: client.pttl(name) for name in client.scan_iter()}
    assert {b"every:a:{a}", b"every:a:{b}", b"every:c:{d}", b"every:p:{f}"} <= set(lives)
    assert [] == [name for name, left in lives.items() if left == -1]  # -2: gone since


def test_a_script_is_known_by_its_sha(client: Redis) -> None:
    everything = [value for value in vars(scripts).values() if isinstance(value, scripts.Script)]
    assert len(everything) >= 8
    assert [one.sha for one in everything] == [client.script_load(one.text) for one in everything]


def test_all_keys_of_a_conversation_are_in_one_slot_of_a_cluster() -> None:
    names = [KEYS.episode("4f2a/add"), KEYS.count("4f2a/cap/add"), KEYS.probe("4f2a/add")]
    assert {b"{4f2a}"} == {name[name.index(b"{") : name.index(b"}") + 1] for name in names}
    assert len(set(names)) == 3


@given(key=st.text(st.characters(exclude_characters="{}"), max_size=40))
def test_an_attempt_key_can_be_read_out_of_its_name(key: str) -> None:
    assert key == KEYS.key_of(KEYS.episode(key))


@given(lines=st.lists(st.text(st.characters(codec=None), max_size=30), max_size=3))
def test_lines_of_a_failure_are_ascii_in_the_store_and_read_back_unchanged(lines: list[str]) -> None:
    operation = operations.fail(KEY, FailedAttempt("d", tuple(lines), "c"), 60)
    kept = " ".join(map(str, (1, "d", "c", operation.arguments[-1]))).encode("ascii")
    fields = [b"n", b"1", b"f", b"1", b"d", b"d:1", b"a1", kept]
    assert Episode(1, (FailedAttempt("d", tuple(lines), "c", None, 1),), (("d", 1),), 1) == operations.read_episode(
        fields
    )

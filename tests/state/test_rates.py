"""How soon the next call may come: the rule, the bounded table in memory, and the Lua script on a real server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from proxy.interfaces import Rate, RateExceeded
from proxy.state.rates import RateTable, take
from proxy.state.redis import operations, scripts
from proxy.state.redis.operations import Keys
from tests.generated import examples
from tests.state.server import server
from tests.state.test_fallback import TestClock

SECOND = 1_000_000
KEYS = Keys("t")


def calls_in(seconds: float, rate: Rate, every: float) -> int:
    """How many of the calls that come `every` so many seconds are let through within so many seconds."""
    clock, passed = TestClock(), 0
    table, until = RateTable(clock, 10), clock.seconds + seconds
    while clock.seconds < until:
        passed += table.take([rate]) is None
        clock.seconds += every
    return passed


def test_a_burst_passes_at_once_and_what_follows_passes_evenly() -> None:
    clock = TestClock()
    table, rate = RateTable(clock, 10), Rate("k", 10 * SECOND, 3)

    assert [None, None, None, RateExceeded(0, 10 * SECOND)] == [table.take([rate]) for _ in range(4)]
    clock.seconds += 9.5
    assert RateExceeded(0, SECOND // 2) == table.take([rate])
    clock.seconds += 0.5
    assert [None, RateExceeded(0, 10 * SECOND)] == [table.take([rate]) for _ in range(2)]


@pytest.mark.parametrize(("burst", "passed"), [(1, 60), (10, 69), (60, 119)])
def test_a_flood_gets_the_rate_and_one_burst(burst: int, passed: int) -> None:
    assert passed == calls_in(60, Rate("k", SECOND, burst), every=0.125)


def test_a_call_that_one_rate_refuses_is_counted_under_none() -> None:
    clock = TestClock()
    table, often, seldom = RateTable(clock, 10), Rate("often", SECOND, 5), Rate("seldom", 60 * SECOND, 1)
    assert table.take([often, seldom]) is None
    before = dict(table.arrivals)

    assert RateExceeded(1, 60 * SECOND) == table.take([often, seldom])
    assert before == dict(table.arrivals)


def test_the_rate_that_has_to_be_waited_for_the_longest_is_named() -> None:
    table, rates = RateTable(TestClock(), 10), [Rate("a", SECOND, 1), Rate("b", 9 * SECOND, 1), Rate("c", SECOND, 1)]
    assert table.take(rates) is None

    assert RateExceeded(1, 9 * SECOND) == table.take(rates)


def test_a_clock_that_jumps_back_locks_nobody_out() -> None:
    clock = TestClock()
    table, rate = RateTable(clock, 10), Rate("k", SECOND, 3)
    assert table.take([rate]) is None
    clock.seconds -= 900

    assert [None, None, None, RateExceeded(0, SECOND)] == [table.take([rate]) for _ in range(4)]


def test_a_million_keys_take_the_room_of_the_bound_and_the_busy_one_stays() -> None:
    table, busy = RateTable(TestClock(), 1000), Rate("busy", 3600 * SECOND, 1)
    table.take([busy])
    for number in range(1_000_000):
        table.take([Rate(str(number), SECOND, 1)])
        if number % 500 == 0:
            assert table.take([busy]) is not None

    assert 1000 == len(table.arrivals)


# --- on a real server -------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with server(tmp_path_factory.mktemp("redis")) as running, running.client() as made:
        yield made


RATES = st.lists(
    st.builds(Rate, st.just(""), st.integers(1, 30 * SECOND), st.integers(1, 4)), min_size=1, max_size=3
).map(lambda rates: [Rate(f"{{s}}/{number}", rate.interval, rate.burst) for number, rate in enumerate(rates)])
STEPS = st.lists(st.integers(-5 * SECOND, 40 * SECOND) | st.just(0), min_size=1, max_size=30)
# The life of a key is told by the server's own clock, which is not the `now` of the test: a short one could end before
# the test has read the key.
KEEP_FOR_EVER = """
local found = take(tonumber(ARGV[1]), {unpack(ARGV, 2)})
for _, key in ipairs(KEYS) do redis.call('PERSIST', key) end
return found
"""
NOW = 1_790_000_000 * SECOND + 123_457


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rates=RATES, steps=STEPS)
def test_the_script_takes_as_the_rule_does(client: Redis, rates: list[Rate], steps: list[int]) -> None:
    keys = [KEYS.rate(rate.key) for rate in rates]
    client.delete(*keys)
    arrivals: Sequence[int | None] = [None] * len(rates)
    now = NOW
    for step in steps:
        now += step
        expected = take(arrivals, rates, now)
        operation = operations.take_rates(keys, rates)
        script = f"{scripts.TAKE_RULE}\n{KEEP_FOR_EVER}"
        reply: Any = client.eval(script, len(keys), *keys, now, *operation.arguments)
        if isinstance(expected, RateExceeded):
            assert expected == operation.read(reply)
            continue
        assert operation.read(reply) is None
        arrivals = expected
        for key, arrival in zip(keys, expected, strict=True):
            assert str(arrival).encode() == client.get(key)


def test_a_key_lives_no_longer_than_its_calls_matter(client: Redis) -> None:
    rate = Rate("life", 20 * SECOND, 3)
    operation = operations.take_rates([KEYS.rate(rate.key)], [rate])
    client.eval(operation.script.text, 1, operation.key, *operation.arguments)

    assert 19_000 < client.pttl(operation.key) <= 20_000

"""The wait until the next call may come: the rule, and the bounded table in memory."""

from __future__ import annotations

import pytest

from proxy.interfaces import Rate, RateExceeded
from proxy.state.memory import RateTable

SECOND = 1_000_000


class TestClock:
    """Time that moves only when a test moves it."""

    __test__ = False

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


def calls_in(seconds: float, rate: Rate, every: float) -> int:
    """Returns how many of the calls that come `every` so many seconds are let through within so many seconds."""
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


@pytest.mark.large
def test_a_million_keys_take_the_room_of_the_bound_and_the_busy_one_stays() -> None:
    table, busy = RateTable(TestClock(), 1000), Rate("busy", 3600 * SECOND, 1)
    table.take([busy])
    for number in range(1_000_000):
        table.take([Rate(str(number), SECOND, 1)])
        if number % 500 == 0:
            assert table.take([busy]) is not None

    assert 1000 == len(table.arrivals)

"""The circuit breaker: closed, open, half-open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.model import codes
from proxy.core.model.values import Executed, UpstreamFault, UpstreamReply
from proxy.core.tool_errors.circuit_breaker import (
    Breaker,
    BreakerPolicy,
    Closed,
    ConcurrencyPolicy,
    HalfOpen,
    Open,
    admit,
    find_wait,
    has_failed,
    settle,
)

POLICY = BreakerPolicy(failures=3, open_for=5.0)


def after(breaker: Breaker, results: list[bool | None], now: float = 0.0, policy: BreakerPolicy = POLICY) -> Breaker:
    for failed in results:
        breaker = settle(breaker, breaker.epoch, failed, now, policy)
    return breaker


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    assert Open(1, 5.0) == after(Closed(), [True, True, True])
    assert Closed(in_a_row=2) == after(Closed(), [True, True, False, True, True])


def test_an_outcome_that_says_nothing_of_the_upstream_does_not_count() -> None:
    assert Closed(in_a_row=2) == after(Closed(), [True, None, None, True])


def test_a_success_on_a_quiet_breaker_makes_nothing_new() -> None:
    quiet = Closed()

    assert quiet is settle(quiet, 0, False, 1.0, POLICY)
    assert quiet is admit(quiet, 1.0, POLICY)


def test_while_open_nothing_goes_through_and_callers_hear_how_long() -> None:
    assert [5, 1, 1, None] == [find_wait(Open(1, 5.0), now, POLICY) for now in (0.0, 4.0, 4.99, 5.0)]
    assert admit(Open(1, 5.0), 4.9, POLICY) is None


def test_then_one_probe_goes_through_and_the_rest_wait_for_it() -> None:
    probing = admit(Open(1, 5.0), 5.0, POLICY)

    assert HalfOpen(2) == probing
    assert (1, None) == (find_wait(HalfOpen(2), 5.0, POLICY), admit(HalfOpen(2), 5.0, POLICY))


def test_a_good_probe_closes_it_and_a_failed_one_opens_it_again() -> None:
    assert Closed(3) == settle(HalfOpen(2), 2, False, 6.0, POLICY)
    assert Open(3, 11.0) == settle(HalfOpen(2), 2, True, 6.0, POLICY)


def test_a_probe_that_was_given_up_makes_room_for_another() -> None:
    left = settle(HalfOpen(2), 2, None, 6.0, POLICY)

    assert HalfOpen(2, under_way=0) == left
    assert HalfOpen(2, under_way=1) == admit(left, 6.0, POLICY)


def test_closes_only_after_as_many_good_probes_as_configured() -> None:
    policy = BreakerPolicy(probes=2)
    one = admit(Open(1, 0.0), 0.0, policy)
    assert one is not None
    two = admit(one, 0.0, policy)
    assert two == HalfOpen(2, under_way=2)
    assert admit(two, 0.0, policy) is None

    assert HalfOpen(2, under_way=1, succeeded=1) == settle(two, 2, False, 0.0, policy)
    assert Closed(3) == after(two, [False, False], policy=policy)


def test_a_call_of_an_earlier_epoch_says_nothing_about_this_one() -> None:
    assert HalfOpen(2) == settle(HalfOpen(2), 0, True, 6.0, POLICY)
    assert Open(1, 5.0) == settle(Open(1, 5.0), 0, False, 1.0, POLICY)
    assert Closed(3) == settle(Closed(3), 0, True, 6.0, POLICY)


# --- the share --------------------------------------------------------------------------------------------------------
SHARE = BreakerPolicy(failures=1000, ratio=0.5, window=10.0, calls=4, open_for=5.0)


def test_a_share_of_failures_opens_it_once_there_are_enough_calls() -> None:
    assert isinstance(after(Closed(), [True, False, True], policy=SHARE), Closed)
    assert Open(1, 5.0) == after(Closed(), [True, False, False, True], policy=SHARE)
    assert isinstance(after(Closed(), [True, False, False, False, True], policy=SHARE), Closed)


def test_forgets_calls_that_are_older_than_the_window() -> None:
    old = after(Closed(), [True, True, True], now=0.0, policy=SHARE)

    assert isinstance(settle(old, 0, True, 4.0, SHARE), Open)
    assert isinstance(settle(old, 0, True, 9.0, SHARE), Open), "the half before counts as well"
    assert Closed(in_a_row=4, begun=11.0, calls=1, failures=1) == settle(old, 0, True, 11.0, SHARE)


@given(st.lists(st.tuples(st.floats(0, 20), st.sampled_from([True, False, None])), max_size=100))
def test_is_never_open_longer_than_configured_and_never_stuck(steps: list[tuple[float, bool | None]]) -> None:
    breaker: Breaker = Closed()
    now = 0.0
    for passed, failed in steps:
        now += passed
        admitted = admit(breaker, now, SHARE)
        if admitted is None:
            assert isinstance(breaker, Open), "one call after the other never waits for a probe"
            assert breaker.until - now <= SHARE.open_for
        else:
            breaker = settle(admitted, admitted.epoch, failed, now, SHARE)
    assert find_wait(breaker, now + SHARE.open_for, SHARE) is None


# --- what counts ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "failed"),
    [(200, False), (302, False), (400, False), (404, False), (429, False), (500, True), (501, False), (502, True),
     (503, True), (504, True), (505, False), (599, True)],
)  # fmt: skip
def test_a_refusal_is_the_answer_of_a_service_that_is_well(status: int, failed: bool) -> None:
    assert failed is has_failed(UpstreamReply(status, (), b""))


@pytest.mark.parametrize(
    ("code", "failed"),
    [
        (codes.UPSTREAM_UNAVAILABLE, True),
        (codes.UPSTREAM_TIMEOUT, True),
        (codes.UPSTREAM_BAD_ANSWER, True),
        (codes.OVERLOADED, None),
        (codes.BAD_REQUEST, None),
        (codes.RESTARTING, None),
    ],
    ids=str,
)
def test_a_fault_of_ours_does_not_speak_against_the_upstream(code: codes.ErrorCode, failed: bool | None) -> None:
    assert failed is has_failed(UpstreamFault(code, "t", Executed.NO, "m"))


def test_as_many_may_wait_as_may_run_by_default() -> None:
    assert (7, 0) == (ConcurrencyPolicy(7).most_waiting, ConcurrencyPolicy(7, queue=0).most_waiting)

"""One budget for a call: its stages together spend no more than that, and none more than its share."""

from __future__ import annotations

import pytest

from proxy.core.decide import decide
from proxy.core.model.values import Forward, Reject
from proxy.core.model.work import CALL, REPAIRING, TooMuchWorkError, borrow_work, find_budget, share_work
from proxy.core.schema.matching import SearchGivenUp, make_matcher, share_search_budget
from tests.core.repairing import call, policy

POLICY = policy(
    {"type": "object", "properties": {"xs": {"type": "array", "items": {"enum": ["Alpha", "Beta", "Gamma"]}}}}
)
DAMAGED = '{"xs":[' + ",".join(['" alpha "'] * 30) + "]}"


def test_a_stage_spends_its_share_and_no_more() -> None:
    with borrow_work(10) as work:
        work.spend(10)
        with pytest.raises(TooMuchWorkError):
            work.spend(1)


def test_stages_share_the_budget_of_their_call() -> None:
    lent = []
    with share_work(100):
        for spent in (30, 60, 60, 60):
            with borrow_work(60) as work:
                lent.append(work.left)
                work.left -= spent
    assert [60, 60, 10, 0] == lent


def test_a_stage_that_stops_has_used_up_no_more_than_it_was_lent() -> None:
    with share_work(100):
        with pytest.raises(TooMuchWorkError), borrow_work(40) as work:
            work.spend(1_000)
        with borrow_work(100) as rest:
            assert 60 == rest.left


def test_the_budget_ends_with_its_call() -> None:
    with share_work(1):
        pass
    with borrow_work(REPAIRING) as work:
        assert REPAIRING == work.left


def test_a_call_without_work_left_is_refused_and_never_sent() -> None:
    sent = call(DAMAGED)
    with share_work(CALL):
        assert isinstance(decide(sent, POLICY), Forward)
    with share_work(0):
        assert isinstance(decide(sent, POLICY), Reject)


def test_patterns_that_backtrack_spend_from_it_too() -> None:
    hard = make_matcher(r"^(?:(?!-)[a-z]+)+$")
    with share_work(CALL), share_search_budget():
        assert hard.search("abc")
    with share_work(19), share_search_budget(), pytest.raises(SearchGivenUp):
        hard.search("abc")


def test_the_budget_of_a_call_grows_with_its_values_up_to_a_bound() -> None:
    assert [100_040, 100_000 + 40 * 101, 2_000_000] == [
        find_budget(None), find_budget([1] * 100), find_budget(["x" * 100] * 90_000)
    ]  # fmt: skip

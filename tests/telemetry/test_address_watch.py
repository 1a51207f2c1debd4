"""When most calls carry no conversation id, the operator is told once."""

from __future__ import annotations

from proxy.core.model.values import Rung
from proxy.interfaces import CallRecord
from proxy.telemetry.watches import AddressWatch


class Watched:
    """A watch whose time moves when told to, and what it said."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.said: list[tuple[int, int]] = []
        self.watch = AddressWatch(lambda: self.seconds, lambda calls, by_address: self.said.append((calls, by_address)))

    def calls(self, by_address: int, named: int) -> None:
        for rung in (*[Rung.ADDRESS] * by_address, *[Rung.HEADER] * named, None):
            self.watch.finished(CallRecord("id", "route", conversation_rung=rung))

    def ten_minutes_later(self) -> list[tuple[int, int]]:
        self.seconds += 600
        self.calls(0, 1)
        return self.said


def test_more_than_half_by_address_is_told() -> None:
    watched = Watched()
    watched.calls(11, 10)
    assert [(21, 11)] == watched.ten_minutes_later()


def test_it_is_told_once() -> None:
    watched = Watched()
    for _ in range(3):
        watched.calls(30, 0)
        watched.ten_minutes_later()
    assert [(30, 30)] == watched.said


def test_half_of_the_calls_and_a_few_calls_are_no_reason() -> None:
    watched = Watched()
    watched.calls(10, 10)
    assert [] == watched.ten_minutes_later()
    watched.calls(18, 0)
    assert [] == watched.ten_minutes_later()


def test_each_window_begins_anew() -> None:
    watched = Watched()
    watched.calls(19, 0)
    watched.ten_minutes_later()
    watched.calls(19, 0)
    assert [(20, 19)] == watched.ten_minutes_later()

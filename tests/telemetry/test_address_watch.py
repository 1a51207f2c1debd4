"""When most calls carry no conversation id, the proxy warns the operator once."""

from __future__ import annotations

from proxy.call_record import CallRecord
from proxy.core.model.values import Rung
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.watches import AddressWatch
from tests.serving.proxied import WEATHER, proxied
from tests.steady import until


class Watched:
    """A watch over the counts of real metrics, and what it said."""

    def __init__(self, window: float = 600.0) -> None:
        self.said: list[tuple[int, int]] = []
        self.metrics = Metrics((), "")
        self.watch = AddressWatch(
            lambda: self.metrics.settle().sources,
            lambda calls, by_address: self.said.append((calls, by_address)),
            window,
        )

    def calls(self, by_address: int, named: int) -> None:
        for rung in (*[Rung.ADDRESS] * by_address, *[Rung.HEADER] * named):
            self.metrics.finished(CallRecord("id", "route", call_id="c", conversation_rung=rung))
        self.metrics.finished(CallRecord("id", "route"))


def test_warns_when_more_than_half_came_by_address() -> None:
    watched = Watched()
    watched.calls(11, 10)
    assert watched.watch.look()
    assert [(21, 11)] == watched.said


def test_half_of_the_calls_and_a_few_calls_are_no_reason() -> None:
    watched = Watched()
    watched.calls(10, 10)
    assert not watched.watch.look()
    watched.calls(19, 0)
    assert not watched.watch.look()
    assert [] == watched.said


def test_each_window_starts_from_zero() -> None:
    watched = Watched()
    watched.calls(19, 0)
    assert not watched.watch.look()
    watched.calls(20, 1)
    assert watched.watch.look()
    assert [(21, 20)] == watched.said


async def test_a_running_watch_tells_once() -> None:
    watched = Watched(window=0.001)
    watched.watch.begin()
    try:
        watched.calls(30, 0)
        await until(lambda: watched.said)
        watched.calls(30, 0)
        assert not watched.watch.running
    finally:
        watched.watch.end()
    assert [(30, 30)] == watched.said


async def test_a_plain_config_has_the_observers_of_every_proxy_and_no_other() -> None:
    async with proxied(WEATHER) as proxy:
        serving = proxy.serving
        assert serving.console is not None
        assert (
            serving.metrics,
            serving.log,
            serving.nulls,
            serving.console.observer,
        ) == serving.handler.observers

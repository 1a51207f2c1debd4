"""The event loop's lag is measured on a real loop, and shown."""

from __future__ import annotations

import asyncio
import time

from proxy.telemetry.watches import LoopLag
from tests.serving.proxied import WEATHER, proxied
from tests.steady import until


async def test_a_loop_that_is_held_up_comes_late_to_its_timer() -> None:
    lags: list[float] = []
    measuring = LoopLag(lags.append, every=0.01)
    measuring.begin()
    await until(lambda: lags)
    time.sleep(0.06)  # noqa: ASYNC251 - what is measured
    before = len(lags)
    await until(lambda: len(lags) != before)
    measuring.end()
    after = len(lags)
    await asyncio.sleep(0.03)

    assert lags[before] >= 0.04
    assert min(lags) >= 0
    assert after == len(lags)


async def test_a_running_proxy_shows_how_late_it_comes() -> None:
    async with proxied(WEATHER) as proxy:
        proxy.serving.metrics.lag.observe(0.3)
        text = (await proxy.ask_admin("/metrics")).body.decode()

    assert 'toolproxy_event_loop_lag_seconds_bucket{le="0.25"} 0.0' in text
    assert 'toolproxy_event_loop_lag_seconds_bucket{le="0.5"} 1.0' in text

"""The Lua script of rates on a real server, against the rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from proxy.extensions.redis import operations, scripts
from proxy.extensions.redis.operations import Keys
from proxy.interfaces import Rate, RateExceeded
from proxy.state.memory import take
from tests.extensions.redis.server import server
from tests.generated import examples

SECOND = 1_000_000
KEYS = Keys("t")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with server(tmp_path_factory.mktemp("redis")) as running, running.client() as made:
        yield made


RATES = st.lists(
    st.builds(Rate, st.just(""), st.integers(1, 30 * SECOND), st.integers(1, 4)), min_size=1, max_size=3
).map(lambda rates: [Rate(f"{{s}}/{number}", rate.interval, rate.burst) for number, rate in enumerate(rates)])
STEPS = st.lists(st.integers(-5 * SECOND, 40 * SECOND) | st.just(0), min_size=1, max_size=30)
# The life of a key runs by the server's own clock, which is not the `now` of the test. A short one could end before the
# test has read the key.
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

"""The store contract over Redis: every test of `tests/contract/test_state_store.py`, with a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from proxy.extensions.redis.redis_section import RedisSettings
from tests.contract.test_state_store import *  # noqa: F403 - all its tests
from tests.contract.test_state_store import FakeClock
from tests.extensions.redis.server import Server, pass_time, server


@pytest.fixture(name="kind")
def backend_under_test() -> str:
    return "redis"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture(name="backend_settings")
def settings_of_empty_server(clock: FakeClock, running: Server) -> Iterator[RedisSettings]:
    with running.client() as client:
        client.flushall()
        client.script_flush()
        clock.also = lambda seconds: pass_time(client, seconds)
        yield replace(running.settings, most_waiting=10_000)

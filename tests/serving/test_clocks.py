"""Clocks that jump, and ten thousand conversations that end at the same moment."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.interfaces import FailedAttempt
from proxy.server import start_serving
from tests.serving.proxied import Proxied, code
from tests.serving.test_bounds import MOST, watched
from tests.serving.wire import JSON_TYPE, Tool, answer, replies, tool

ROUTE = """
  - path: /weather
    upstream: tools
    tool: weather
    schema: {type: object, properties: {lat: {type: number}}, required: [lat]}
    attempts: {max: 3, block: hard}
    caps: {default: 2}
"""
DAY = 86_400.0
YEAR = 365 * DAY


class Clocks:
    """Both clocks, moved by hand and apart."""

    def __init__(self) -> None:
        self.monotonic, self.epoch = 1000.0, 1.8e9

    def now(self) -> float:
        return self.monotonic

    def wall(self) -> float:
        return self.epoch


@asynccontextmanager
async def clocked(folder: Path) -> AsyncIterator[tuple[Proxied, Tool, Clocks]]:
    """The app on the test's own clocks."""
    clocks, log = Clocks(), io.StringIO()
    async with tool(replies(answer("200 OK", b"{}", JSON_TYPE))) as server:
        config = folder / "config.yaml"
        config.write_text(
            "version: 1\nlisten: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\n"
            f"upstreams: {{tools: {{url: '{server.url}'}}}}\nroutes:\n{ROUTE}"
        )
        serving = await start_serving(load(config, {}), log_to=log, clock=clocks)
        try:
            yield Proxied(serving, log), server, clocks
        finally:
            await serving.stop(grace=0.5)


@pytest.mark.parametrize("jump", [YEAR, -YEAR, -1.8e9, 1e11], ids=["a year on", "a year back", "to 1970", "to 5138"])
async def test_a_wall_clock_that_jumps_ends_no_attempts_and_no_call(tmp_path: Path, jump: float) -> None:
    async with clocked(tmp_path) as (proxy, server, clocks):
        first = await proxy.post("/weather", b'{"lat": "a"}', "X-Conversation-Id: c")
        clocks.epoch += jump
        second = await proxy.post("/weather", b'{"lat": "b"}', "X-Conversation-Id: c")
        good = await proxy.post("/weather", b'{"lat": 1}', "X-Conversation-Id: d")
        pages = [await proxy.ask_admin(path) for path in ("/livez", "/metrics", "/-/calls", "/-/overview")]

    assert ["1/3", "2/3"] == [seen.header("tool-attempt") for seen in (first, second)]
    assert (200, [200] * 4, 1) == (good.status, [page.status for page in pages], len(server.seen))
    assert 3 == len(proxy.lines())


async def test_a_machine_that_slept_for_a_day_starts_over(tmp_path: Path) -> None:
    async with clocked(tmp_path) as (proxy, _, clocks):
        for number in range(3):
            await proxy.post("/weather", b'{"lat": "%d n"}' % number, "X-Conversation-Id: c")
        blocked = await proxy.post("/weather", b'{"lat": 1}', "X-Conversation-Id: c")
        clocks.monotonic += DAY
        clocks.epoch += DAY
        free = await proxy.post("/weather", b'{"lat": 1}', "X-Conversation-Id: c")

    assert ((400, "ATTEMPTS_EXHAUSTED"), 200) == (code(blocked), free.status)


@pytest.mark.large
async def test_ten_thousand_conversations_that_end_at_once_keep_nobody_waiting(tmp_path: Path) -> None:
    async with clocked(tmp_path) as (proxy, _, clocks):
        store = proxy.serving._base.store
        for number in range(10_000):
            await store.fail(f"conversation {number}/weather", FailedAttempt("a", ("line a",)), 60.0)
            await store.reserve(f"conversation {number}/weather cap", 2, 60.0)
        before = len(await store.list_episodes())
        clocks.monotonic += 61
        async with watched() as holds:
            calls = [b'{"lat": "n"}', b'{"lat": 1}'] * 10
            seen = [await proxy.post("/weather", body, f"X-Conversation-Id: {at}") for at, body in enumerate(calls)]
            pages = [await proxy.ask_admin(path) for path in ("/-/conversations", "/-/overview", "/metrics")]
        after = len(await store.list_episodes())

    assert holds.longest < MOST
    assert [400, 200] * 10 == [one.status for one in seen]
    assert ([200] * 3, 10_000, 10) == ([page.status for page in pages], before, after)

"""Four real proxy processes on one Redis: what is counted is counted once, and no call is lost with the store."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.redis.replicas import Replica, replicas
from tests.extensions.redis.server import Server, server
from tests.serving.wire import JSON_TYPE, Seen, Tool, answer, replies, tool
from tests.steady import until

pytestmark = pytest.mark.large

OK = answer("200 OK", b"{}", JSON_TYPE)
# The duration of a tool's work, in seconds: longer than a round trip to the store on the busiest machine.
WORK = 0.2
REPLICAS = 4


@dataclass
class Fleet:
    """The processes, the tool behind them and the store beside them."""

    proxies: list[Replica]
    upstream: Tool
    redis: Server

    async def together(self, path: str, bodies: list[bytes], conversation: str) -> list[Seen]:
        """Sends all at once, to one process after the other."""
        turns = zip(itertools.cycle(self.proxies), bodies, strict=False)
        return await asyncio.gather(*(proxy.post(path, body, conversation) for proxy, body in turns))


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with started_fleet(tmp_path, REPLICAS) as made:
        yield made


@pytest.fixture
async def single(tmp_path: Path) -> AsyncIterator[Fleet]:
    """One process."""
    async with started_fleet(tmp_path, 1) as made:
        yield made


@asynccontextmanager
async def started_fleet(folder: Path, count: int) -> AsyncIterator[Fleet]:
    """So many processes. They wait a minute for their store: on a busy machine it answers late, and is not lost."""
    with server(folder) as redis:
        state = f"{{backend: redis, url: '{redis.url}', timeouts: {{connect: 60s, operation: 60s}}}}"
        async with tool(replies(OK)) as upstream, replicas(folder, count, upstream.url, state) as proxies:
            yield Fleet(proxies, upstream, redis)


def told(seen: Seen) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(seen.body)["error"]
    return error


def wrong(number: int) -> bytes:
    """Arguments that no repair makes right, each time others."""
    return json.dumps({"lat": f"north {number}"}).encode()


async def settled(proxy: Replica, up: float) -> None:
    """Waits until a process has found out about its store."""
    async with asyncio.timeout(300):
        while (await proxy.metrics())["toolproxy_state_backend_up"] != up:
            await asyncio.sleep(0.05)


async def test_attempts_are_counted_exactly_however_many_processes_count(fleet: Fleet) -> None:
    for number, proxy in zip(range(12), itertools.cycle(fleet.proxies), strict=False):
        assert number + 1 == told(await proxy.post("/weather", wrong(number), "c1"))["attempt"]
    seen = await fleet.together("/weather", [wrong(number) for number in range(12, 16)], "c1")
    # Parallel calls are one attempt; one that a busy machine let arrive after an answer is the next.
    counted = {told(one)["attempt"] for one in seen}
    assert set(range(13, 13 + len(counted))) == counted
    assert max(counted) + 1 == told(await fleet.proxies[0].post("/weather", wrong(16), "c1"))["attempt"]


async def test_a_call_cap_holds_for_all_processes_together(fleet: Fleet) -> None:
    seen = await fleet.together("/capped", [b'{"lat": 1}'] * 40, "c2")
    assert {200: 7, 400: 33} == {status: sum(one.status == status for one in seen) for status in (200, 400)}
    assert {"CALL_CAP_EXCEEDED"} == {told(one)["code"] for one in seen if one.status == 400}
    assert 7 == len(fleet.upstream.seen)


async def test_a_hard_block_holds_in_every_process(fleet: Fleet) -> None:
    for number in range(3):  # one after the other: parallel calls are one attempt
        await fleet.proxies[number % REPLICAS].post("/hard", wrong(number), "c3")
    seen = await fleet.together("/hard", [b'{"lat": 1}'] * REPLICAS, "c3")
    assert ["ATTEMPTS_EXHAUSTED"] * REPLICAS == [told(one)["code"] for one in seen]
    assert [] == fleet.upstream.seen


async def test_a_call_corrected_in_another_process_ends_the_attempts_and_counts_as_corrected(
    fleet: Fleet,
) -> None:
    async def works(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await asyncio.sleep(WORK)
        writer.write(OK)

    fleet.upstream.script = works
    first, second, third, _ = fleet.proxies
    await first.post("/weather", wrong(1), "c4")
    await first.post("/weather", wrong(2), "c4")
    assert 200 == (await second.post("/weather", b'{"lat": 1}', "c4")).status
    assert 1 == told(await third.post("/weather", wrong(3), "c4"))["attempt"]
    samples = await second.metrics()
    assert 1 == samples['toolproxy_corrected_total{attempts="2",route="/weather",tool="weather"}']
    # Lines reach the log a little later than the answer its client.
    await until(lambda: second.said("Tool call delivered"))
    assert [2] == [line["corrected_after"] for line in second.said("Tool call delivered")]


async def test_no_call_is_lost_when_the_store_is_killed_and_counting_resumes_when_it_is_back(fleet: Fleet) -> None:
    answers: list[tuple[bool, Seen]] = []
    running = True

    async def caller(number: int, proxy: Replica) -> None:
        for turn in itertools.count():
            if not running:
                return
            clean = turn % 3 > 0
            body = b'{"lat": 1}' if clean else wrong(turn)
            answers.append((clean, await proxy.post("/weather", body, f"load {number} {turn // 9}")))

    async def more(count: int) -> None:
        enough = len(answers) + count
        await until(lambda: len(answers) >= enough)

    async with asyncio.TaskGroup() as callers:
        for number in range(8):
            callers.create_task(caller(number, fleet.proxies[number % REPLICAS]))
        await more(100)
        fleet.redis.kill()
        for proxy in fleet.proxies:
            await settled(proxy, 0)
        await more(100)
        fleet.redis.start()
        for proxy in fleet.proxies:
            await settled(proxy, 1)
        running = False

    assert {(True, 200), (False, 400)} == {(clean, seen.status) for clean, seen in answers}
    assert {"INVALID_ARGUMENTS"} == {told(seen)["code"] for clean, seen in answers if not clean}
    for proxy in fleet.proxies:
        await until(partial(proxy.said, "State store is back"))
        lost, back = proxy.said("State store lost, counting locally"), proxy.said("State store is back")
        assert (1, 1) == (len(lost), len(back))
        assert back[0]["merged"] > 0
    for number, proxy in zip(range(8), itertools.cycle(fleet.proxies), strict=False):
        assert number + 1 == told(await proxy.post("/weather", wrong(number), "afterwards"))["attempt"]


async def test_a_store_that_stops_answering_holds_up_no_clean_call(single: Fleet) -> None:
    (proxy,) = single.proxies
    await proxy.post("/weather", b'{"lat": 1}', "warm")
    assert single.redis.process is not None
    single.redis.process.send_signal(signal.SIGSTOP)
    try:
        refusing = asyncio.create_task(proxy.post("/weather", wrong(1), "c6"))
        clean = await proxy.post("/weather", b'{"lat": 1}', "c7")
        waits = not refusing.done()  # for the store, which counts the refusal
    finally:
        single.redis.process.send_signal(signal.SIGCONT)
    refused = await refusing
    assert (200, True, 400) == (clean.status, waits, refused.status)
    await settled(proxy, 1)

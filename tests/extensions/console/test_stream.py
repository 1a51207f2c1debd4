"""`/-/calls` as a stream of events, `calls --follow`, and both above several workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from proxy.call_record import CallRecord
from proxy.extensions.console.cli import read_events
from proxy.extensions.console.event_stream import follow_calls
from proxy.extensions.console.kept_calls import CallFilter
from proxy.server.admin.page import READERS, ChangeLog, ConsoleData, Readers
from proxy.telemetry.ring import RecentCalls
from tests.serving.process import process
from tests.serving.proxied import WEATHER, proxied
from tests.serving.wire import exchange, post
from tests.steady import until

PATIENCE = 120.0


def data(kept: int = 1000) -> ConsoleData:
    return ConsoleData(RecentCalls(lambda: 0.0, "boot", kept), ChangeLog(lambda: 0.0), lambda: 0.0)


def call(seen: ConsoleData, number: int) -> None:
    seen.recent.finished(CallRecord(f"r{number}", "/a", outcome="delivered"))


async def events(seen: ConsoleData, start: int | None, number: int) -> list[dict[str, Any]]:
    """The first events of a stream, with their data."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        stream = follow_calls(seen, CallFilter(), start, Readers())
        async for piece in stream:
            told = read_events(iter(piece.splitlines(keepends=True)))
            found += [{**event, "data": json.loads(event["data"])} for event in told]
            if len(found) >= number:
                break
        await stream.aclose()
    return found


async def test_acceptance_15_a_reader_resumes_without_gap_or_double() -> None:
    seen = data()
    for number in range(5):
        call(seen, number)
    first = await events(seen, 0, 5)
    for number in range(5, 8):
        call(seen, number)
    place = int(first[2]["id"].partition(".")[2])
    second = await events(seen, place, 5)
    assert [f"r{number}" for number in range(3)] == [event["data"]["correlation_id"] for event in first[:3]]
    assert [f"r{number}" for number in range(3, 8)] == [event["data"]["correlation_id"] for event in second]


async def test_acceptance_15_a_slow_reader_learns_how_many_calls_it_missed() -> None:
    seen = data(kept=10)
    for number in range(25):
        call(seen, number)
    lost, *calls = await events(seen, 5, 11)
    assert ("lost", {"missed": 10}) == (lost["event"], lost["data"])
    assert [f"r{number}" for number in range(15, 25)] == [event["data"]["correlation_id"] for event in calls]


async def test_a_place_of_an_earlier_run_counts_as_lost() -> None:
    (lost,) = await events(data(), None, 1)
    assert ("lost", {"missed": None}) == (lost["event"], lost["data"])


async def test_a_reader_that_has_gone_gives_its_seat_back_and_no_more_than_eight_have_one() -> None:
    async with proxied(WEATHER) as proxy:
        readers = proxy.serving.readers
        streams = [await _stream(proxy.admin) for _ in range(READERS)]
        refused = await proxy.ask_admin("/-/calls", "Accept: text/event-stream")
        for _, writer in streams:
            writer.close()
        async with asyncio.timeout(PATIENCE):
            while readers.count:
                await proxy.post("/weather", b'{"lat": 1}')
                await asyncio.sleep(0.05)
    assert 503 == refused.status


async def _stream(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /-/calls HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        await reader.readuntil(b": toolcall-proxy\n\n")
    return reader, writer


async def test_a_drain_sends_an_event_and_the_end_says_bye() -> None:
    async with proxied(WEATHER) as proxy:
        reader, writer = await _stream(proxy.admin)
        proxy.serving.begin_drain(0.0)
        async with asyncio.timeout(PATIENCE):
            drain = await reader.readuntil(b"event: drain\n")
            proxy.serving.readers.ending = True
            bye = await reader.readuntil(b"event: bye\n")
        writer.close()
    assert (1, 0, 1) == (drain.count(b"event:"), drain.count(b"bye"), bye.count(b"event:"))


WORKERS = """
version: 1
workers: 2
listen: 127.0.0.1:0
admin: {listen: 127.0.0.1:0}
routes:
  - path: /weather
    upstream: none
    tool: weather
    mode: report
    schema: {type: object, properties: {lat: {type: number}}, required: [lat]}
"""


async def ask(port: int, path: str) -> Any:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    return json.loads((await exchange(port, request.encode())).body)


@pytest.mark.large
async def test_acceptance_14_above_workers_each_call_comes_once_and_a_killed_worker_is_reported(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(WORKERS)
    async with process(config) as running:
        reader, writer = await _stream(running.admin)
        for number in range(12):
            await exchange(running.port, post("/weather", b'{"lat": 1}', f"X-Request-ID: r-{number}"))
        seen: list[str] = []
        async with asyncio.timeout(PATIENCE):
            while len(seen) < 12:
                line = await reader.readline()
                if line.startswith(b"data:"):
                    seen.append(json.loads(line[5:])["correlation_id"])
            listed = await ask(running.admin, "/-/calls")
            overview = await ask(running.admin, "/-/overview")
            children = Path(f"/proc/{running.popen.pid}/task/{running.popen.pid}/children").read_text().split()
            workers = [child for child in children if b"--worker" in Path(f"/proc/{child}/cmdline").read_bytes()]
            os.kill(int(workers[0]), signal.SIGKILL)
            await reader.readuntil(b"event: lost\n")
            lost = json.loads((await reader.readline())[5:])
        writer.close()

    assert [f"r-{number}" for number in range(12)] == sorted(seen, key=lambda name: int(name[2:]))
    assert 12 == len(set(seen)) == len(listed["calls"])
    assert (2, {"delivered": 12}) == (overview["workers"], overview["totals"])
    assert "worker" in lost


async def test_the_command_line_shows_and_follows_calls(tmp_path: Path) -> None:
    async with proxied(WEATHER) as proxy:
        await proxy.post("/weather", b'{"lat": []}', "X-Conversation-Id: c1")
        following = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "proxy", "calls", "--follow", "--admin", f"127.0.0.1:{proxy.admin}",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert following.stdout is not None
        async with asyncio.timeout(PATIENCE):
            first = (await following.stdout.readline()).decode()
            await until(lambda: proxy.serving.readers.count)
            await proxy.post("/weather", b'{"lat": "1"}')
            second = (await following.stdout.readline()).decode()
        following.terminate()
        await following.wait()

    assert "weather refused 1/3  /lat VAL-002 wants number, got list of 0" in first
    assert " conv " in first
    assert "weather upstream_error" in second or "weather repaired" in second
    assert textwrap.dedent(first) == first

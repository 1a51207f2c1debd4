"""A log that nobody reads, and a disk without room, as a real process meets them. Calls and probes continue, lost lines
are counted, and the log says so as soon as it can be written again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.process import Process, process
from tests.serving.proxied import UNSAMPLED
from tests.serving.wire import JSON_TYPE, answer, exchange, post, replies, tool

pytestmark = pytest.mark.large

# Each line holds an id of 128 letters twice, so it is longer than 600 bytes. These calls are more than the pipe (64
# KiB) and the queue (2 MiB) hold.
CALLS = 4_800
LONG_ID = "i" * 128
CONFIG = """
version: 1
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
drain: 0
{unsampled}
upstreams: {{tools: {{url: "{url}"}}}}
routes:
  - path: /weather
    upstream: tools
    tool: weather
    schema: {{type: object, properties: {{lat: {{type: number}}}}, required: [lat]}}
"""


class Reader:
    """Reads a pipe to its end in a separate thread. `lines` are those that it has read so far, parsed."""

    def __init__(self, end: int) -> None:
        self.lines: list[dict[str, Any]] = []
        self._end = end
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with os.fdopen(self._end, "rb") as pipe:
            for line in pipe:
                self.lines.append(json.loads(line))

    async def read(self, message: str) -> dict[str, Any]:
        """The first line with this message, as soon as it comes."""
        async with asyncio.timeout(300):
            while not (found := [line for line in self.lines if line["message"] == message]):
                await asyncio.sleep(0.01)
        return found[0]

    async def ended(self) -> None:
        """Returns when nobody can write any more."""
        await asyncio.to_thread(self._thread.join, 120)


@contextlib.asynccontextmanager
async def serving(folder: Path, log_to: int | None = None) -> AsyncIterator[Process]:
    """The proxy as a process in front of a tool that answers at once."""
    config = folder / "config.yaml"
    async with tool(replies(answer("200 OK", b"{}", JSON_TYPE))) as server:
        unsampled = "".join(f"{key}: {value}" for key, value in UNSAMPLED.items())
        config.write_text(CONFIG.format(url=server.url, unsampled=unsampled))
        async with process(config, log_to=log_to) as running:
            yield running


async def answered(running: Process, calls: int) -> int:
    """Returns how many of so many calls on eight connections were answered with 200."""

    async def one(count: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        found = 0
        for _ in range(count):
            writer.write(post("/weather", b'{"lat": 1}', f"X-Request-ID: {LONG_ID}", f"X-Tool-Call-Id: {LONG_ID}"))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(2)
            found += head.startswith(b"HTTP/1.1 200 ")
        writer.close()
        return found

    async with asyncio.timeout(300):
        return sum(await asyncio.gather(*[one(calls // 8) for _ in range(8)]))


async def dropped(running: Process) -> dict[str, float]:
    """Lines that were lost, by each reason for which some were."""
    page = (await exchange(running.admin, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).body.decode()
    found = [line.split('"') for line in page.splitlines() if line.startswith("toolproxy_log_lines_dropped_total{")]
    return {reason: lines for _, reason, value in found if (lines := float(value.removeprefix("} ")))}


async def test_a_pipe_that_nobody_reads_blocks_neither_calls_nor_probes(tmp_path: Path) -> None:
    end, log_to = os.pipe()
    async with serving(tmp_path, log_to) as running:
        os.close(log_to)
        served = await answered(running, CALLS)
        probe = await exchange(running.admin, b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        lost = await dropped(running)
        reader = Reader(end)
        said = await reader.read("Log lines dropped")
        after = await answered(running, 8)
        running.signal(signal.SIGTERM)
        code = await running.ended()
        await reader.ended()

    assert (CALLS, 200, 8, 0) == (served, probe.status, after, code)
    assert {"queue_full"} == set(lost)
    assert ("warning", lost["queue_full"]) == (said["level"], said["queue_full"])
    assert CALLS - lost["queue_full"] + after == len([line for line in reader.lines if "outcome" in line])
    assert "drained" == reader.lines[-1]["message"]


async def test_a_process_ends_in_time_though_nobody_reads_its_log(tmp_path: Path) -> None:
    end, log_to = os.pipe()
    try:
        async with serving(tmp_path, log_to) as running:
            os.close(log_to)
            await answered(running, 400)
            running.signal(signal.SIGTERM)

            assert 0 == await running.ended()
    finally:
        os.close(end)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here: it is Linux' disk without room")
async def test_lines_that_a_full_disk_does_not_take_are_counted(tmp_path: Path) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    async with serving(tmp_path, full) as running:
        os.close(full)
        served = await answered(running, 80)
        async with asyncio.timeout(300):
            while (lost := await dropped(running)) != {"write_failed": 80.0}:
                await asyncio.sleep(0.01)

    assert 80 == served
    assert {"write_failed": 80.0} == lost


async def test_the_last_lines_of_a_process_are_written(tmp_path: Path) -> None:
    end, log_to = os.pipe()
    reader = Reader(end)
    async with serving(tmp_path, log_to) as running:
        os.close(log_to)
        await answered(running, 80)
        running.signal(signal.SIGTERM)
        await running.ended()
        await reader.ended()

    messages = [line["message"] for line in reader.lines]
    assert [*["Tool call delivered"] * 80, "draining", "drained"] == messages


def read_lines(log: Path) -> list[dict[str, Any]]:
    """The whole lines of a log."""
    return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]


def delivered(log: Path) -> list[dict[str, Any]]:
    """The lines of finished calls."""
    return [line for line in read_lines(log) if "outcome" in line]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux bounds the files of another process")
async def test_a_disk_that_has_room_again_gets_whole_lines_and_the_number_of_those_it_missed(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    async with serving(tmp_path) as running:
        pid = running.popen.pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
        await answered(running, 80)
        async with asyncio.timeout(300):
            while sum((lost := await dropped(running)).values()) + len(delivered(log)) < 80:
                await asyncio.sleep(0.01)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await answered(running, 8)
        running.signal(signal.SIGTERM)
        await running.ended()

    (said,) = [line for line in read_lines(log) if line["message"] == "Log lines dropped"]
    assert (["write_failed"], lost["write_failed"]) == (list(lost), said["write_failed"])
    assert 88 - said["write_failed"] == len(delivered(log))

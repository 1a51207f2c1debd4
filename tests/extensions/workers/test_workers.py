"""Several processes behind one port: one proxy to whoever calls it, asks it or ends it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from proxy.call_record import CallRecord
from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.extensions.workers.pages import merge_attempts
from proxy.extensions.workers.supervisor import merge_pages
from proxy.telemetry.metrics import Metrics, Served
from proxy.telemetry.metrics_page import write_page
from tests.serving.process import Process, process
from tests.serving.proxied import WEATHER, told
from tests.serving.test_signals import load as calls
from tests.serving.test_signals import slowly
from tests.serving.wire import Seen, exchange, post, tool
from tests.steady import until

FREE = "  - {path: /weather, upstream: tools, tool: free, validation: off}\n"


def config(url: str, routes: str = FREE, more: str = "") -> str:
    return f"""
version: 1
workers: 2
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
drain: 2s
{more}
upstreams: {{tools: {{url: "{url}"}}}}
routes:
{routes}
"""


async def ask(running: Process, path: str, method: str = "GET", body: bytes = b"") -> Seen:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return await exchange(running.admin, head.encode() + body)


async def counted(running: Process) -> float:
    """Returns how many calls the metrics tell of."""
    text = (await ask(running, "/metrics")).body.decode()
    return sum(map(float, re.findall(r"^toolproxy_requests_total\{.*\} (\S+)$", text, re.MULTILINE)))


async def workers(running: Process) -> set[str]:
    """The process ids of the workers."""
    path = Path(f"/proc/{running.popen.pid}/task/{running.popen.pid}/children")
    return set((await asyncio.to_thread(path.read_text)).split())


async def test_calls_are_spread_and_counted_together_and_sigterm_loses_none(tmp_path: Path) -> None:
    path, seen = tmp_path / "config.yaml", Counter[object]()
    async with tool(slowly) as server:
        path.write_text(config(server.url))
        async with process(path) as running:
            clients = [asyncio.create_task(calls(running.port, seen, number)) for number in range(16)]
            await until(lambda: seen["served"] >= 100)
            ready = [(await ask(running, name)).status for name in ("/livez", "/readyz", "/startupz")]
            told_of = await counted(running)
            shown = told(await ask(running, "/-/config"))
            running.signal(signal.SIGTERM)
            status = await running.ended()
            await asyncio.gather(*clients)
        reached = len(server.seen)

    assert ([200] * 3, 0, seen["served"]) == (ready, status, reached)
    assert 50 < told_of <= reached
    assert [shown["digest"]] * 2 == shown["workers"]
    assert {"served"} <= set(seen) <= {"served", (503, "RESTARTING")}


@pytest.mark.large
async def test_a_worker_that_dies_is_started_again_and_what_it_counted_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    async with tool(slowly) as server:
        path.write_text(config(server.url))
        async with process(path) as running:
            for _ in range(10):
                await exchange(running.port, post("/weather", b"{}"))
            before, pids = await counted(running), await workers(running)
            os.kill(int(min(pids)), signal.SIGKILL)
            async with asyncio.timeout(300):
                while len((await workers(running)) - pids) < 1:  # another is in for the dead one
                    await asyncio.sleep(0.05)
                while (await ask(running, "/readyz")).status != 200:
                    await asyncio.sleep(0.1)
            after, now = await counted(running), await workers(running)
            await exchange(running.port, post("/weather", b"{}"))
            later = await counted(running)
            running.signal(signal.SIGINT)
            status = await running.ended()

    assert (2, 1, 0) == (len(now), len(pids & now), status)
    assert (10.0, 10.0, 11.0) == (before, after, later)


@pytest.mark.large
async def test_actions_reach_every_worker(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    async with tool(slowly) as server:
        path.write_text(config(server.url, more="reload: off"))
        async with process(path) as running:
            path.write_text(config(server.url, FREE.replace("/weather", "/other"), more="reload: off"))
            reloaded = told(await ask(running, "/-/reload", "POST"))
            answers = {(await exchange(running.port, post("/other", b"{}"))).status for _ in range(12)}
            level = told(await ask(running, "/-/log-level", "POST", b'{"level": "error"}'))
            drained = told(await ask(running, "/-/drain", "POST", b'{"seconds": 0.1}'))
            async with asyncio.timeout(300):
                while not (done := told(await ask(running, "/-/drain")))["drained"]:
                    await asyncio.sleep(0.05)
            ready = (await ask(running, "/readyz")).status

    assert ("success", {200}, {"level": "error"}) == (reloaded["result"], answers, level)
    assert (True, True, 503) == (drained["draining"], done["drained"], ready)


@pytest.mark.large
async def test_workers_end_with_the_process_above_them(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config("http://127.0.0.1:9"))
    async with process(path) as running:
        pids = await workers(running)
        running.signal(signal.SIGKILL)
        await running.ended()
        await until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids))

    assert 2 == len(pids)


@pytest.mark.parametrize("more", ["", "defaults: {mode: report, caps: {default: 3}}"])
def test_several_workers_that_would_each_count_for_themselves_are_a_mistake(tmp_path: Path, more: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config("http://127.0.0.1:9", WEATHER, more))
    with pytest.raises(ConfigError, match=r"3:1  workers  2 workers do not share `state: \{backend: memory\}`"):
        load(path, {})


def test_several_workers_cannot_share_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(config("http://127.0.0.1:9").replace("listen: 127.0.0.1:0\nadmin", "listen: unix:/x.sock\nadmin"))
    with pytest.raises(ConfigError, match="several workers cannot share a unix socket"):
        load(path, {})


def test_metrics_of_workers_are_summed_and_states_are_those_of_the_worst() -> None:
    def page(calls: int, good: int) -> bytes:
        return (
            f"# TYPE a_total counter\na_total{{x=\"1\"}} {calls}\n"
            f"# TYPE toolproxy_config_last_reload_successful gauge\ntoolproxy_config_last_reload_successful {good}\n"
            f"# TYPE toolproxy_inflight_requests gauge\ntoolproxy_inflight_requests {calls}\n"
        ).encode()  # fmt: skip

    text = merge_pages([page(2, 1), page(3, 0)], [page(10, 0)])[1].decode()

    assert {
        'a_total{x="1"} 15.0', "toolproxy_config_last_reload_successful 0.0", "toolproxy_inflight_requests 5.0",
    } == {line for line in text.splitlines() if not line.startswith("#")}  # fmt: skip


def test_an_episode_of_several_workers_is_shown_as_the_one_that_saw_it_last_knows_it() -> None:
    old, new, plain = ({"last": "2026-11-23T01"}, {"last": "2026-11-23T02"}, dict[str, str]())
    rows = [
        [{"key": "a", "waiting": False, **old}, {"key": "b", "waiting": True, **plain}],
        [{"key": "a", "waiting": False, **new}, {"key": "b", "waiting": True, **old}, {"key": "c", "waiting": False}],
    ]
    assert {
        "attempts": [
            {"key": "b", "waiting": True, **old},
            {"key": "a", "waiting": False, **new},
            {"key": "c", "waiting": False},
        ]
    } == merge_attempts([{"attempts": each} for each in rows])


def test_the_pages_of_workers_are_one_page_of_the_same_metrics() -> None:
    metrics = Metrics([Served("/weather", "weather", schema_id="s")], "digest")
    metrics.finished(CallRecord("r", "/weather", "POST", "weather", "c", outcome="delivered", status=200))
    metrics.lag.observe(0.3)
    page = write_page(metrics)[1]
    whole = merge_pages([page, page])[1].decode().splitlines()

    assert {
        'toolproxy_requests_total{outcome="delivered",route="/weather",tool="weather"} 2.0',
        'toolproxy_event_loop_lag_seconds_bucket{le="0.5"} 2.0',
        'toolproxy_tool_info{kind="call",mode="enforce",route="/weather",schema_id="s",tool="weather"} 1.0',
        "toolproxy_state_backend_up 1.0",
    } <= set(whole)

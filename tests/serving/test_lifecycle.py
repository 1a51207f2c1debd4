"""Start, drain and stop: no call is lost that could be answered, and each other hears why."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from proxy.config.load import load
from proxy.config.model import Address
from proxy.core.model.values import CheckedCall, UpstreamReply
from proxy.interfaces import UpstreamRequest
from proxy.server import start_serving
from proxy.server.setup.upstreams import Pools
from proxy.telemetry.logs import Log
from tests.serving.proxied import WEATHER, code, proxied, told
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, read_message, replies, tool
from tests.steady import run_others

OK = answer("200 OK", b"{}", JSON_TYPE)


async def test_a_draining_proxy_is_not_ready_but_still_takes_calls_and_ends_each_connection() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        draining = asyncio.create_task(proxy.serving.drain(0.3))
        await asyncio.sleep(0)
        ready = await proxy.ask_admin("/readyz")
        alive = await proxy.ask_admin("/livez")
        good = await proxy.post("/weather", b'{"lat": 1}')
        bad = await proxy.post("/weather", b'{"lat": []}')
        await draining

    assert (503, 200) == (ready.status, alive.status)
    assert [(200, "close"), (400, "close")] == [(seen.status, seen.header("connection")) for seen in (good, bad)]


async def test_a_call_under_way_is_finished_before_the_end() -> None:
    go_on = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await go_on.wait()
        writer.write(OK)

    async with tool(slow) as server, proxied(WEATHER, server.url) as proxy:
        calling = asyncio.create_task(proxy.post("/weather", b'{"lat": 1}'))
        await server.arrived.wait()
        stopping = asyncio.create_task(proxy.serving.stop(grace=300))
        await run_others()
        with pytest.raises(ConnectionRefusedError):
            await exchange(proxy.port, post("/weather", b'{"lat": 1}'))
        go_on.set()
        seen = await calling
        await stopping

    assert (200, "close") == (seen.status, seen.header("connection"))


async def test_a_call_that_outlasts_the_last_deadline_gets_restarting() -> None:
    async def never(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await reader.read()
        raise ConnectionResetError

    async with tool(never) as server, proxied(WEATHER, server.url) as proxy:
        calling = asyncio.create_task(proxy.post("/weather", b'{"lat": 1}'))
        await server.arrived.wait()
        await proxy.serving.stop(grace=0.05)
        seen = await calling
        await server.gone.wait()

    assert ((503, "RESTARTING"), "close") == (code(seen), seen.header("connection"))
    assert "Tool 'weather' failed (RESTARTING)" in told(seen)["content"]
    assert "unknown" == told(seen)["error"]["details"]["executed"]
    assert "It is not known whether the tool ran" in told(seen)["content"]
    (line,) = [line for line in proxy.lines() if "outcome" in line]
    assert 50 <= line["upstream.duration_ms"]
    assert 1 > abs(line["duration_ms"] - line["overhead_ms"] - line["upstream.duration_ms"])


async def test_the_wait_for_an_answer_to_a_relayed_request_is_not_the_proxys_own() -> None:
    async def never(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await reader.read()
        raise ConnectionResetError

    route = "  - {path: /weather, upstream: tools, passthrough: true}"
    async with tool(never) as server, proxied(route, server.url) as proxy:
        calling = asyncio.create_task(proxy.post("/weather", b"{}"))
        await server.arrived.wait()
        await proxy.serving.stop(grace=0.05)
        await calling

    (line,) = [line for line in proxy.lines() if "outcome" in line]
    assert 50 <= line["upstream.duration_ms"]


async def test_an_idle_connection_does_not_hold_up_the_end() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", b'{"lat": 1}'))
        await read_message(reader)
        async with asyncio.timeout(300):
            await proxy.serving.stop(grace=1)
            assert b"" == await reader.read()
        writer.close()


async def test_a_port_that_is_taken_is_an_error_and_nothing_stays_open(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"version: 1\nlisten: 127.0.0.1:0\nadmin: off\nroutes:{WEATHER.replace('upstream: tools', 'upstream: none')}"
    )
    async with proxied(WEATHER) as proxy:
        said = f"`listen` 127.0.0.1:{proxy.port}: another process listens there  (end it, or choose another address)"
        with pytest.raises(OSError, match=re.escape(said)):
            await start_serving(load(config, {}), listen=Address("127.0.0.1", proxy.port))


async def test_an_address_with_or_free_moves_to_a_free_port_if_it_is_taken(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"version: 1\nlisten: 127.0.0.1:0\nadmin: off\nroutes:{WEATHER.replace('upstream: tools', 'upstream: none')}"
    )
    async with proxied(WEATHER) as proxy:
        second = await start_serving(load(config, {}), listen=Address("127.0.0.1", proxy.port, or_free=True))
        port = urlsplit(second.url).port
        seen = await exchange(port or 0, post("/weather", b'{"lat": []}'))
        await second.stop()

    assert (True, 400) == (port != proxy.port, seen.status)


async def test_calls_after_the_drain_get_restarting_and_the_process_lives_on() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.serving.drain(0.05)
        late = await proxy.post("/weather", b'{"lat": 1}')
        await proxy.serving.drain()
        shown = await proxy.ask_admin("/-/drain")

    assert ((503, "RESTARTING"), "close", 0) == (code(late), late.header("connection"), len(server.seen))
    assert {"draining": True, "drained": True, "inflight": 0} == told(shown)


async def test_a_drain_is_over_when_the_calls_under_way_are() -> None:
    go_on = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await go_on.wait()
        writer.write(OK)

    async with tool(slow) as server, proxied(WEATHER, server.url) as proxy:
        calling = asyncio.create_task(proxy.post("/weather", b'{"lat": 1}'))
        await server.arrived.wait()
        draining = asyncio.create_task(proxy.serving.drain(0.01))
        await run_others()
        during = told(await proxy.ask_admin("/-/drain"))
        go_on.set()
        seen = await calling
        await draining

    assert {"draining": True, "drained": False, "inflight": 1} == during
    assert (200, True) == (seen.status, proxy.serving.drained)


async def test_a_drain_waits_for_calls_under_way_no_longer_than_the_config_says() -> None:
    go_on = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await go_on.wait()
        writer.write(OK)

    keys = {"drain": "{serve: 10ms, finish: 50ms}"}
    async with tool(slow) as server, proxied(WEATHER, server.url, **keys) as proxy:
        calling = asyncio.create_task(proxy.post("/weather", b'{"lat": 1}'))
        await server.arrived.wait()
        await proxy.serving.drain()
        shown = told(await proxy.ask_admin("/-/drain"))
        go_on.set()
        seen = await calling

    assert {"draining": True, "drained": True, "inflight": 1} == shown
    assert 200 == seen.status


async def test_a_connection_that_waited_when_the_port_closed_is_served() -> None:
    """The kernel completes handshakes by itself: whoever was let in gets an answer."""
    async with proxied(WEATHER) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as waiting:
            waiting.sendall(post("/weather", b'{"lat": []}'))
            await proxy.serving.stop(grace=2)
            waiting.settimeout(60)
            answered = waiting.recv(100)

    assert b"HTTP/1.1 400" == answered[:12]


# --- the command ------------------------------------------------------------------------------------------------------
CONFIG = f"""
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
drain: 200ms
routes:
{WEATHER.replace("upstream: tools", "upstream: none")}
"""


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "proxy", "serve", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_says_where_it_listens_serves_and_ends_cleanly_on_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    with start(str(config), "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = [await asyncio.to_thread(process.stdout.readline) for _ in range(2)]
        while not (loop := await asyncio.to_thread(process.stdout.readline)).startswith("event loop:"):
            assert loop
        seen = await exchange(int(said[0].rsplit(":", 1)[1]), post("/weather", b'{"lat": "1"}'))
        process.send_signal(number)
        status = await asyncio.to_thread(process.wait, 300)
        log = process.stderr.read()

    assert ["listening on http://127.0.0.1", "admin on http://127.0.0.1"] == [line.rsplit(":", 1)[0] for line in said]
    assert "event loop: uvloop\n" == loop
    assert ((200, b'{"lat":1}'), 0) == ((seen.status, seen.body), status)
    assert ("Traceback" not in log, '"outcome":"repaired"' in log) == (True, True)


async def test_a_second_ctrl_c_ends_the_calls_that_the_first_waits_for(tmp_path: Path) -> None:
    async def never(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        await reader.read()
        raise ConnectionResetError

    config = tmp_path / "config.yaml"
    async with tool(never) as server:
        config.write_text(
            f"version: 1\nlisten: 127.0.0.1:0\nadmin: off\nupstreams: {{tools: {{url: '{server.url}'}}}}\n"
            f"routes:\n{WEATHER}"
        )
        with start(str(config)) as process:
            assert process.stdout is not None
            port = int((await asyncio.to_thread(process.stdout.readline)).rsplit(":", 1)[1])
            calling = asyncio.create_task(exchange(port, post("/weather", b'{"lat": 1}')))
            await server.arrived.wait()
            process.send_signal(signal.SIGINT)
            while not (said := await asyncio.to_thread(process.stdout.readline)).startswith("waiting"):
                assert said
            process.send_signal(signal.SIGINT)
            seen = await calling
            status = await asyncio.to_thread(process.wait, 300)

    assert "waiting up to 5 s for 1 call; press Ctrl-C again to stop now\n" == said
    assert ((503, "RESTARTING"), 0) == (code(seen), status)


def test_a_config_with_mistakes_serves_nothing_and_names_them_all(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("version: 1\nroute: []\nroutes:\n  - {path: /a, upstream: nowhere, tool: a, validation: off}\n")
    with start("--config", str(config)) as process:
        out, err = process.communicate(timeout=120)

    assert (2, "") == (process.returncode, out)
    assert f"{config}:2:1" in err
    assert "'route'" in err
    assert "'nowhere'" in err


def test_an_address_that_is_none_is_a_usage_error() -> None:
    with start("x.yaml", "--listen", "8080") as process:
        _, err = process.communicate(timeout=120)

    assert 2 == process.returncode
    assert "'8080' is not HOST:PORT" in err


# --- upstreams that a config no longer has ----------------------------------------------------------------------------
class SlowlyClosed:
    """Implements `Upstream`: it closes once `go` is set."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.closed = False

    async def send(self, checked: CheckedCall, request: UpstreamRequest) -> UpstreamReply:
        raise AssertionError(checked, request)

    async def relay(self, request: UpstreamRequest, body: AsyncIterator[bytes] | None) -> UpstreamReply:
        raise AssertionError(body, request)

    async def close(self) -> None:
        self.begun.set()
        await self.go.wait()
        self.closed = True


def pools() -> Pools:
    return Pools(lambda: 0.0, lambda *_: None, Log(io.StringIO(), "json", "info", lambda: 0.0))


async def test_a_closing_that_has_begun_is_waited_for_at_the_end_of_the_process() -> None:
    upstream, retiring = SlowlyClosed(), pools()
    retiring.retire([upstream], frozenset())
    await upstream.begun.wait()
    ending = asyncio.create_task(retiring.close())
    await run_others()
    upstream.go.set()
    await ending
    assert upstream.closed


async def test_the_end_of_the_process_closes_an_upstream_with_a_running_last_call() -> None:
    upstream, retiring = SlowlyClosed(), pools()
    last: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    retiring.retire([upstream], frozenset([last]))
    await run_others()
    assert not upstream.begun.is_set()
    upstream.go.set()
    await retiring.close()
    assert upstream.closed

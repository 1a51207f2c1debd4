"""A real process under load: no signal loses a call, and `drain` does what a preStop hook needs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.serving.process import Process, process
from tests.serving.proxied import WEATHER, code, told
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, read_message, tool

TOKEN = "an-operators-token"
# The silence, in seconds, that an ending proxy bears from an open connection. If a client sends later, because its
# machine is busy, it may meet a closed connection.
BORNE = 2.0
# Runs `python -m proxy`, which waits for a byte of its standard input before it imports the module named first.
HOLDING = """
import runpy, sys
held, sys.argv = sys.argv[1], ["proxy", *sys.argv[2:]]
class Holding:
    @staticmethod
    def find_spec(name, *_):
        if name == held:
            print("there", flush=True)
            sys.stdin.buffer.raw.read(1)
sys.meta_path.insert(0, Holding)
runpy.run_module("proxy", run_name="__main__", alter_sys=True)
"""


def config(url: str, more: str = "drain: 2s", admin: str = "{listen: 127.0.0.1:0}") -> str:
    return f"""
version: 1
listen: 127.0.0.1:0
admin: {admin}
{more}
upstreams: {{tools: {{url: "{url}"}}}}
routes:
{WEATHER}
"""


async def slowly(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
    await asyncio.sleep(0.02)
    writer.write(answer("200 OK", seen.body, JSON_TYPE))
    await writer.drain()


async def load(port: int, seen: Counter[object], number: int) -> None:
    """Calls without a pause, over kept connections as long as they last, until nobody listens any more."""
    call = post("/weather", b'{"lat": %d}' % number)
    now = asyncio.get_running_loop().time
    while True:
        last, silence = now(), 0.0
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # it was in the queue of a listener that closed: nothing was sent yet
            continue
        try:
            closing = False
            while not closing:
                last, silence = now(), now() - last
                writer.write(call)
                answered = await read_message(reader)
                closing = answered.header("connection") == "close"
                seen["served" if answered.status == 200 else code(answered)] += 1
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            seen["lost", type(error).__name__] += silence < BORNE
        finally:
            writer.close()


@pytest.mark.large
async def test_sigterm_under_load_loses_no_call(tmp_path: Path) -> None:
    path, seen = tmp_path / "config.yaml", Counter[object]()
    async with tool(slowly) as server:
        path.write_text(config(server.url, "drain: {serve: 2s, finish: 5m}"))
        async with process(path) as running:
            clients = [asyncio.create_task(load(running.port, seen, number)) for number in range(16)]
            async with asyncio.timeout(300):
                while seen["served"] < 50 or len(server.seen) - seen["served"] < 8:
                    await asyncio.sleep(0)
            running.signal(signal.SIGTERM)
            at_signal, under_way = len(server.seen), len(server.seen) - seen["served"]
            status = await running.ended()
            await asyncio.gather(*clients)
        reached = len(server.seen)

    assert (0, True) == (status, under_way >= 8)
    assert (seen["served"], True) == (reached, reached > at_signal)  # served on while the proxy drained
    assert {"served"} <= set(+seen) <= {"served", (503, "RESTARTING")}


@pytest.mark.parametrize("calls", [0, 1])
async def test_sigterm_ends_an_idle_proxy_long_before_the_default_drain(tmp_path: Path, calls: int) -> None:
    path = tmp_path / "config.yaml"
    async with tool(slowly) as server:
        path.write_text(config(server.url, ""))
        async with process(path) as running:
            for number in range(calls):
                assert 200 == (await exchange(running.port, post("/weather", b'{"lat": %d}' % number))).status
            running.signal(signal.SIGTERM)
            status = await running.ended(within=20)  # the default drain takes 25 s
    messages = [json.loads(line)["message"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert (0, True) == (status, "drained" in messages)


@pytest.mark.large
async def test_sigterm_without_drain_serves_while_calls_arrive(tmp_path: Path) -> None:
    path, seen = tmp_path / "config.yaml", Counter[object]()
    async with tool(slowly) as server:
        path.write_text(config(server.url, ""))
        async with process(path) as running:
            clients = [asyncio.create_task(load(running.port, seen, number)) for number in range(4)]
            async with asyncio.timeout(300):
                while seen["served"] < 20:
                    await asyncio.sleep(0)
            running.signal(signal.SIGTERM)
            at_signal = seen["served"]
            async with asyncio.timeout(300):
                while seen["served"] < at_signal + 20:
                    await asyncio.sleep(0)
            for client in clients:
                client.cancel()
            status = await running.ended(within=20)
    assert (0, {"served"}) == (status, set(+seen))


async def test_drain_waits_until_it_is_done_and_leaves_the_process_alive_for_its_sigterm(tmp_path: Path) -> None:
    path, seen = tmp_path / "config.yaml", Counter[object]()
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    admin = f'{{listen: 127.0.0.1:0, token: "${{file:{token}}}"}}'
    async with tool(slowly) as server:
        path.write_text(config(server.url, "drain: 1h", admin))
        async with process(path) as running:
            clients = [asyncio.create_task(load(running.port, seen, number)) for number in range(4)]
            stranger = await drain(running)
            told_so = await drain(running, "--seconds", "0.3", "--token-file", str(token))
            by_config = await drain(running, "--config", str(path))
            alive = (await exchange(running.admin, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")).status
            running.signal(signal.SIGTERM)
            status = await running.ended()
            await asyncio.gather(*clients)

    assert (1, "operator's token" in stranger.stderr) == (stranger.returncode, True)
    assert (0, "drained\n", 200, 0) == (told_so.returncode, told_so.stdout, alive, status)
    assert (0, "drained\n") == (by_config.returncode, by_config.stdout)
    assert {"served"} <= set(+seen) <= {"served", (503, "RESTARTING")}


async def drain(running: Process, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "proxy", "drain", "--admin", f"127.0.0.1:{running.admin}", *words]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, timeout=120)


async def await_import(process: asyncio.subprocess.Process, module: str) -> None:
    """Waits until a Python started with `-X importtime` has imported a module."""
    assert process.stderr is not None
    async for line in process.stderr:
        if line.decode().rpartition("|")[2].strip() == module:
            return
    raise AssertionError(f"{module} was not imported")


async def test_drain_waits_for_a_proxy_that_is_starting() -> None:
    """The port is opened after `drain` was refused there once."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "proxy",
        "drain",
        "--admin",
        f"127.0.0.1:{port}",
        "--wait",
        "60",
    ]
    hook = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    await await_import(hook, "http.client")  # it is about to ask

    async def answer_drained(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("200 OK", b'{"drained": true}', JSON_TYPE))
        await writer.drain()
        writer.close()

    await asyncio.sleep(0.3)
    async with await asyncio.start_server(answer_drained, "127.0.0.1", port):
        printed, _ = await hook.communicate()
    assert (0, b"drained\n") == (hook.returncode, printed)


@pytest.mark.parametrize("imported", ["proxy.cli.options", "proxy.config.load", "proxy.server.lifecycle"])
async def test_the_first_process_of_a_container_that_is_ended_while_it_starts_ends(
    imported: str, tmp_path: Path
) -> None:
    """Linux hands a signal without a handler to no first process of a PID namespace: today's reason is that the
    handler is before the imports. The signal is sent while a module is about to be imported."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip(
            "no PID namespace can be made here: run the tests as root, with unshare (apt-get install util-linux)"
        )
    path = tmp_path / "config.yaml"
    path.write_text(config("http://127.0.0.1:9", "drain: 1h"))
    started = [sys.executable, "-c", HOLDING, imported, "serve", str(path)]
    pipe = subprocess.PIPE
    outer = await asyncio.create_subprocess_exec(
        "unshare", "--fork", "--pid", "--kill-child", *started, stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert outer.stdout is not None
    assert b"there\n" == await outer.stdout.readline()
    (first,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    await asyncio.wait_for(outer.communicate(b"\n"), 300)
    assert 128 + signal.SIGTERM == outer.returncode


def test_drain_says_when_nobody_is_there() -> None:
    command = [sys.executable, "-m", "proxy", "drain", "--admin", "127.0.0.1:9", "--wait", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (1, True) == (done.returncode, "Connection refused" in done.stderr)


async def test_sighup_takes_over_a_changed_config(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    async with tool(slowly) as server:
        path.write_text(config(server.url, "reload: off"))
        async with process(path) as running:
            asked = b"GET /-/config HTTP/1.1\r\nHost: localhost\r\n\r\n"
            before = told(await exchange(running.admin, asked))["digest"]
            path.write_text(config(server.url, "reload: off\ndefaults: {repair: off}"))
            await asyncio.sleep(0.3)
            unasked = told(await exchange(running.admin, asked))["digest"]
            running.signal(signal.SIGHUP)
            async with asyncio.timeout(300):
                while told(await exchange(running.admin, asked))["digest"] == before:
                    await asyncio.sleep(0.05)
            refused = await exchange(running.port, post("/weather", b'{"lat": "1"}'))
            running.signal(signal.SIGINT)
            await running.ended()

    assert (before, 400) == (unasked, refused.status)
    messages = [json.loads(line)["message"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert "config taken over" in messages

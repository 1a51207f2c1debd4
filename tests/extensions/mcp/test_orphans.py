"""`kill -9` of the client or of the proxy, at rest and in a call: no process of any server is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.extensions.mcp.test_stdio_upstream import SERVER, gone
from tests.steady import until

pytestmark = pytest.mark.large

ROOT = Path(__file__).parents[3]
# A client that starts the proxy, as a client's config says; it prints the process ids, and waits.
CLIENT = """
import json, subprocess, sys, time
proxy = subprocess.Popen(
    [sys.executable, "-m", "proxy", "stdio", "--config", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
def ask(method, number, **params):
    message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if number is None else {"id": number})}
    proxy.stdin.write(json.dumps(message).encode() + b"\\n")
    proxy.stdin.flush()
    return None if number is None or sys.argv[2] == number else json.loads(proxy.stdout.readline())
ask("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "c", "version": "1"})
ask("notifications/initialized", None)
pids = [ask("tools/call", n, name=n, arguments={})["result"]["content"][0]["text"] for n in ("a_pid", "b_pid")]
if sys.argv[2] == "a_hang":
    ask("tools/call", "a_hang", name="a_hang", arguments={})
    time.sleep(0.2)
print(json.dumps([proxy.pid, *map(int, pids)]), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("phase", ["at rest", "a_hang"])
@pytest.mark.parametrize("victim", ["client", "proxy"])
async def test_no_process_is_left(victim: str, phase: str, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    command = json.dumps([sys.executable, str(SERVER)])
    config.write_text(
        f"version: 1\nadmin: off\nupstreams: {{a: {{command: {command}}}, b: {{command: {command}}}}}\n"
        "routes: [{path: /mcp, protocol: mcp, servers: {a: a, b: b}}]\n"
    )
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, str(config), phase,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    assert client.stdout is not None
    pids: list[int] = json.loads(await asyncio.wait_for(client.stdout.readline(), 300))
    os.kill(client.pid if victim == "client" else pids[0], signal.SIGKILL)
    for pid in pids[1:] if victim == "proxy" else pids:
        await gone(pid)
    if victim == "proxy":
        client.kill()
    await client.wait()


# A server that writes its process id to a file and says nothing: from its start on, or once it was asked to initialize.
# It reads on, up to the end of its input, when there is a second file.
SILENT = """
import os, sys, time
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
if sys.argv[2] == "initialize":
    sys.stdin.readline()
os.rename(sys.argv[1] + ".new", sys.argv[1])
while not os.path.exists(sys.argv[1] + ".go"):
    time.sleep(0.05)
sys.stdin.read()
"""
# A client that starts the proxy, asks it to initialize, and waits.
WAITING = """
import json, subprocess, sys
proxy = subprocess.Popen(
    [sys.executable, "-m", "proxy", "stdio", "--config", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
proxy.stdin.write(json.dumps(message).encode() + b"\\n")
proxy.stdin.flush()
print(proxy.pid, flush=True)
proxy.stdout.readline()
"""


@pytest.mark.parametrize(("victim", "phase"), [("client", "initialize"), ("proxy", "start-up")])
async def test_no_process_is_left_of_a_server_that_has_not_answered_yet(
    victim: str, phase: str, tmp_path: Path
) -> None:
    config, named = tmp_path / "config.yaml", tmp_path / "pid"
    command = json.dumps([sys.executable, "-c", SILENT, str(named), phase])
    config.write_text(
        f"version: 1\nadmin: off\nupstreams: {{a: {{command: {command}}}}}\n"
        "routes: [{path: /mcp, protocol: mcp, upstream: a}]\n"
    )
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WAITING, str(config),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    assert client.stdout is not None
    proxy = int(await asyncio.wait_for(client.stdout.readline(), 300))
    await until(named.exists)
    server = int(named.read_text())
    os.kill(client.pid if victim == "client" else proxy, signal.SIGKILL)
    if victim == "proxy":  # nobody ends the server then, but it finds its input at its end once it reads
        (tmp_path / "pid.go").touch()
    async with asyncio.timeout(300):
        await gone(server)
        if victim == "client":
            await gone(proxy)
    if victim == "proxy":
        with contextlib.suppress(ProcessLookupError):
            client.kill()
    await client.wait()

"""python -m tests.attacks.soak [--seconds N]: every attack next to healthy calls, in turn, for that long.

The proxy is its own process. A healthy call on another route and a probe run all the time, next to calls of a server
that only answers. If that one is late too, the machine is the cause. The end prints the longest waits, the late ones
and the memory of the proxy's process. Exit code 1: a healthy call was answered wrongly, or late if the other server was
not, or memory grew too much. The limit is one and a half times the memory after the first rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.extensions.mcp.server import ADD, McpServer, call
from tests.serving.process import Process, process
from tests.serving.proxied import FREE
from tests.serving.test_bounds import ATTACKS, DEAR, TOOLS
from tests.serving.wire import JSON_TYPE, Script, Seen, answer, exchange, post, tool

# Seconds that a healthy call may wait beside the largest allowed body. If the other server needs a fifth of it, the
# machine is too busy to say whose fault a late answer is.
LATE: Final = 0.25
_BUSY: Final = LATE / 5
_ECHO: Final = """
import asyncio
async def echo(reader, writer):
    while data := await reader.read(100):
        writer.write(data)
async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
_LIVE: Final = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
# Rounds after which every pool, cache and child is there.
_WARM: Final = 3


@dataclass
class Measured:
    """The measurements of a soak. `late` holds the waits that were long while the other server answered at once,
    `memory` the MiB after each round, `wrong` the wrong answers."""

    waits: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    attacks: int = 0

    @property
    def is_clean(self) -> bool:
        """Returns whether every promise was kept."""
        grown = len(self.memory) > _WARM and self.memory[-1] > 1.5 * self.memory[_WARM - 1]
        return not self.wrong and not grown and not self.late


async def soak(seconds: float) -> Measured:
    """Runs all attacks in turn until the time is over."""
    measured, ends = Measured(), time.monotonic() + seconds
    routes = FREE + "".join(_route(name) for name in TOOLS)
    routes += "  - {path: /mcp, upstream: tools, protocol: mcp}\n"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.yaml"
        async with tool(_script()) as server:
            head = "version: 1\nlisten: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\n"
            config.write_text(f'{head}upstreams: {{tools: {{url: "{server.url}"}}}}\nroutes:\n{routes}')
            async with process(config) as proxy:
                asking = asyncio.ensure_future(_healthy(proxy, measured, ends))
                while time.monotonic() < ends:
                    async for _ in _round(proxy):
                        measured.attacks += 1
                        server.seen.clear()
                        if time.monotonic() >= ends:
                            break
                    measured.memory.append(resident(proxy.popen.pid))
                await asking
    return measured


def _route(name: str) -> str:
    schema = json.dumps({"type": "object", **TOOLS[name]})
    return f"  - {{path: /x/{name}, upstream: tools, tool: {name}, schema: {schema}}}\n"


def _script() -> Script:
    dear = [{**listed, "name": f"dear_{number}"} for number, listed in enumerate(DEAR.values())]
    mcp, plain = McpServer([*dear, ADD]), answer("200 OK", b"{}", JSON_TYPE)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        if " /mcp " in seen.start:
            await mcp(reader, writer, seen)
        else:
            writer.write(plain)
            await writer.drain()

    return script


async def _round(proxy: Process) -> AsyncIterator[None]:
    for name, body in ATTACKS.values():
        with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            await exchange(proxy.port, post(f"/x/{name}", body.encode()))
        yield
    for number in range(20):
        message = json.dumps(call(f"dear_{number % len(DEAR)}", {"a": "x" * 100})).encode()
        with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            await exchange(proxy.port, post("/mcp", message, f"Authorization: Bearer {time.monotonic_ns()}{number}"))
        yield


async def _healthy(proxy: Process, measured: Measured, ends: float) -> None:
    echo = await asyncio.create_subprocess_exec(sys.executable, "-c", _ECHO, stdout=asyncio.subprocess.PIPE)
    try:
        if echo.stdout is None:
            raise ValueError("the other server says its port")
        port = int(await echo.stdout.readline())
        while time.monotonic() < ends:
            for asked, request in ((proxy.port, post("/free", b'{"healthy": true}')), (proxy.admin, _LIVE)):
                before = await _echo_wait(port)
                wait = await _wait(asked, request, measured)
                if wait > LATE and max(before, await _echo_wait(port)) < _BUSY:
                    measured.late.append(wait)
            await asyncio.sleep(0.01)
    finally:
        echo.kill()
        await echo.wait()


async def _wait(port: int, request: bytes, measured: Measured) -> float:
    """Returns how long a healthy request took; what should not have been is noted."""
    started = time.monotonic()
    try:
        seen = await exchange(port, request)
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError) as error:
        measured.wrong.append(type(error).__name__)
        return 0.0
    measured.waits.append(time.monotonic() - started)
    if seen.status != 200:
        measured.wrong.append(seen.start)
    return measured.waits[-1]


async def _echo_wait(port: int) -> float:
    """Returns how long the other server took."""
    started = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"x")
    await reader.read(1)
    writer.close()
    return time.monotonic() - started


def resident(pid: int) -> float:
    """The memory that a process holds, in MiB; 0 where nobody says."""
    statm = Path(f"/proc/{pid}/statm")
    return int(statm.read_text(encoding="ascii").split()[1]) / 256 if statm.exists() else 0.0


def main() -> int:
    """Soaks, and says what was seen; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.soak", description="Attacks beside healthy calls.")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default 600)")
    args = parser.parse_args()
    measured = asyncio.run(soak(args.seconds))
    waits = sorted(measured.waits)
    long = sum(wait > LATE for wait in waits)
    sys.stdout.write(
        f"{measured.attacks} attacks beside {len(waits)} healthy requests: longest wait {waits[-1] * 1000:.0f} ms, "
        f"p99 {waits[len(waits) * 99 // 100] * 1000:.0f} ms, {long} over {LATE * 1000:.0f} ms, {len(measured.late)} of "
        f"them while the machine was not busy, {len(measured.wrong)} wrong; "
        f"memory of the proxy after each round, MiB: {' '.join(f'{size:.0f}' for size in measured.memory)}\n"
    )
    return 0 if measured.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())

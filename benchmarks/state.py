"""The cost of a shared state store for a clean call: the real proxy with state in memory and in Redis, in turn.

Each round measures both, one right after the other, with the same calls. So the figures are pairs, and a machine that
is slow for a moment is slow for both. Prints medians over the rounds, and the median of the paired differences. `noise`
is memory against memory: what two runs of the very same thing differ by.

    python benchmarks/state.py                # needs redis-server or valkey-server in the PATH
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

CONFIG = """
version: 1
listen: 127.0.0.1:0
admin: off
telemetry: {{log: {{level: error}}}}
upstreams: {{tools: {{url: "http://127.0.0.1:{tool}"}}}}
state: {state}
routes:
  - path: /weather
    upstream: tools
    tool: weather
    schema: {{type: object, properties: {{lat: {{type: number}}, lon: {{type: number}}}}, required: [lat, lon]}}
  - path: /capped
    upstream: tools
    tool: capped
    schema: {{type: object, properties: {{lat: {{type: number}}, lon: {{type: number}}}}, required: [lat, lon]}}
    caps: {{default: 1000000}}
"""
CLEAN = b'{"lat": 48.85, "lon": 2.35}'
REFUSED = b'{"lat": "north %d", "lon": 2.35}'
# kind -> path, body: a clean call, one that takes a slot of a cap, and one that is refused and counted
KINDS = {"clean": ("/weather", CLEAN), "capped": ("/capped", CLEAN), "refused": ("/weather", REFUSED)}


@dataclass(frozen=True)
class Figure:
    """One run: median and 99th percentile of a call, in milliseconds, and calls per second."""

    p50: float
    p99: float
    rate: float


# --- what is measured -------------------------------------------------------------------------------------------------
@contextlib.asynccontextmanager
async def tool(work: float) -> AsyncIterator[int]:
    """A tool that takes `work` seconds; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                if work:
                    await asyncio.sleep(work)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Starts a server; yields its URL."""
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        raise SystemExit("no redis-server (or valkey-server) here: apt-get install redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = folder / "redis.sock"  # there when the server is ready
    words = [binary, "--port", str(port), "--unixsocket", str(path), "--save", "", "--logfile", str(folder / "log")]
    process = subprocess.Popen(words)
    try:
        while not path.exists():
            time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextlib.asynccontextmanager
async def proxy(folder: Path, name: str, tool_port: int, state: str) -> AsyncIterator[int]:
    """A proxy process; gives its port."""
    config = folder / f"{name}.yaml"
    config.write_text(CONFIG.format(tool=tool_port, state=state))
    words = (sys.executable, "-m", "proxy", "serve", str(config))
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield int((await process.stdout.readline()).decode().rsplit(":", 1)[1])
    finally:
        process.kill()
        await process.wait()


# --- the measurement --------------------------------------------------------------------------------------------------
async def measure(port: int, kind: str, calls: int, concurrency: int) -> Figure:
    """Makes so many calls over so many connections, each connection one call after the other."""
    path, body = KINDS[kind]
    times: list[float] = []

    async def caller(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn in range(calls // concurrency):
            sent = body % turn if kind == "refused" else body
            head = f"POST {path} HTTP/1.1\r\nHost: b\r\nX-Conversation-Id: {number}-{turn // 3}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
            began = time.perf_counter()
            writer.write(head.encode() + sent)
            answer = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]))
            times.append(time.perf_counter() - began)
            assert (b" 400 " if kind == "refused" else b" 200 ") in answer[:16], answer
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(concurrency)))
    took = time.perf_counter() - began
    times.sort()
    return Figure(times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3, len(times) / took)


async def compare(options: argparse.Namespace, folder: Path, redis_url: str) -> None:
    """Measures every kind at every concurrency and prints a table."""
    states = {"memory": "{backend: memory}", "again": "{backend: memory}"}
    states["redis"] = f"{{backend: redis, url: '{redis_url}'}}"
    async with contextlib.AsyncExitStack() as stack:
        tool_port = await stack.enter_async_context(tool(options.work / 1000))
        ports = {
            name: await stack.enter_async_context(proxy(folder, name, tool_port, state))
            for name, state in states.items()
        }
        for port in ports.values():
            await measure(port, "clean", 500, 4)
        print(f"{'call':9}{'at once':>8}{'':4}{'p50 ms':>20}{'p99 ms':>28}{'difference of p99, ms':>26}")
        print(f"{'':21}{'memory':>10}{'redis':>10}{'memory':>14}{'redis':>10}{'redis':>18}{'noise':>10}")
        for kind in options.kinds:
            for concurrency in options.concurrency:
                found: dict[str, list[Figure]] = {name: [] for name in ports}
                for turn in range(options.rounds):
                    order = list(ports) if turn % 2 else list(ports)[::-1]
                    for name in order:
                        found[name].append(await measure(ports[name], kind, options.calls, concurrency))
                report(kind, concurrency, found)


def report(kind: str, concurrency: int, found: dict[str, list[Figure]]) -> None:
    """One line of the table."""

    def middle(name: str, key: str) -> float:
        values: list[float] = [getattr(one, key) for one in found[name]]
        return statistics.median(values)

    def apart(name: str) -> float:
        return statistics.median(one.p99 - other.p99 for one, other in zip(found[name], found["memory"], strict=True))

    spread = [abs(one.p99 - other.p99) for one, other in zip(found["again"], found["memory"], strict=True)]
    cells = f"{middle('memory', 'p50'):10.3f}{middle('redis', 'p50'):10.3f}"
    cells += f"{middle('memory', 'p99'):14.3f}{middle('redis', 'p99'):10.3f}"
    print(
        f"{kind:9}{concurrency:8}{'':4}{cells}{apart('redis'):+18.3f}{'±':>4}{statistics.median(spread):.3f}",
        flush=True,
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1500, help="calls per kind, concurrency, state and round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", type=float, default=5.0, help="what the tool takes, in milliseconds")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--kinds", choices=list(KINDS), nargs="+", default=list(KINDS))
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, tool {options.work} ms, {options.rounds} rounds of {options.calls} calls")
    with tempfile.TemporaryDirectory() as folder, redis(Path(folder)) as url:
        asyncio.run(compare(options, Path(folder), url))


if __name__ == "__main__":
    main()

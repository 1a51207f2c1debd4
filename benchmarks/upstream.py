"""The cost of one call to an upstream: our connection, the same behind guard and resends, aiohttp's client and (if
installed) httpx.

    python benchmarks/upstream.py [--calls N] [--rounds N] [--body BYTES]

A bare upstream answers on loopback from its own process, on another core if there is one. All clients take
turns in every round, so that a disturbance hits all of them; the figures are medians. CPU per call and the ratios
are what to trust: calls per second also measure the upstream and the machine. `floor` is only asyncio: the same
bytes written and read, without HTTP.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

import aiohttp

from proxy.call_record import CallRecord
from proxy.core.contract.policy import ToolPolicy
from proxy.core.model.values import CheckedCall, Conversation, Document, Rung, ToolCall, UpstreamReply
from proxy.core.tool_errors.circuit_breaker import GuardPolicy
from proxy.interfaces import Services, UpstreamRequest
from proxy.server.setup.services import SystemClock, SystemPacing
from proxy.state.memory import MemoryStore
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import Http1Upstream
from proxy.upstream.sending import UpstreamGuard, send_with_backoff

HEADERS = (
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("user-agent", "agent/1.0"),
    ("x-request-id", "0192f3c1-1111-7000-8000-000000000001"),
    ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("via", "1.1 toolcall-proxy"),
    ("x-forwarded-for", "127.0.0.1"),
    ("x-forwarded-proto", "http"),
)
ANSWER_HEADERS = b"Server: bare\r\nDate: Mon, 05 Jan 2026 00:00:00 GMT\r\nContent-Type: application/json\r\n"
CONCURRENCY = (1, 32)

Call = Callable[[], Awaitable[int]]


# --- the upstream -----------------------------------------------------------------------------------------------------
class Bare(asyncio.Protocol):
    """Answers every request with the same bytes; reads as much HTTP as the benchmark's own requests need."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the way back."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers each request that is complete."""
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self._held) < end + 4 + length:
                return
            body, self._held = self._held[end + 4 : end + 4 + length], self._held[end + 4 + length :]
            self._transport.write(self.reply(body))  # type: ignore[attr-defined]

    def reply(self, body: bytes) -> bytes:  # noqa: ARG002 - for those that look at it
        """Returns the response to a request."""
        return self._answer


def serve(pipe: Pipe, size: int, core: int | None) -> None:
    """Runs the bare upstream until it is ended; says its port."""
    pin(core)
    body = b'{"ok": "' + b"x" * max(size - 10, 0) + b'"}'
    answer = b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (ANSWER_HEADERS, len(body), body)

    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Bare(answer), "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    run_on("uvloop" if has("uvloop") else "asyncio", run())


# --- the clients ------------------------------------------------------------------------------------------------------
@contextlib.asynccontextmanager
async def ours(url: str, body: bytes) -> AsyncIterator[Call]:
    """Our own connection."""
    upstream = Http1Upstream(UpstreamSettings("bare", url))
    request = UpstreamRequest("bare", "POST", "/tools/weather", HEADERS, body, 30.0)
    checked = CheckedCall(ToolCall("weather", Document(b"{}", {}), "1", Conversation("c", Rung.HEADER)), body, {})

    async def call() -> int:
        reply = await upstream.send(checked, request)
        assert isinstance(reply, UpstreamReply), reply
        assert isinstance(reply.body, bytes)
        return len(reply.body)

    yield call
    await upstream.close()


@contextlib.asynccontextmanager
async def ours_resending(url: str, body: bytes) -> AsyncIterator[Call]:
    """The same as every checked call takes it: behind the guard, with the rules of resends."""
    guarded = UpstreamGuard(Http1Upstream(UpstreamSettings("bare", url)), "bare", GuardPolicy(), time.monotonic)
    clock = SystemClock()
    services = Services(MemoryStore(clock, max_keys=1), clock, {"bare": guarded}, SystemPacing())
    request = UpstreamRequest("bare", "POST", "/tools/weather", HEADERS, body, 30.0)
    checked = CheckedCall(ToolCall("weather", Document(b"{}", {}), "1", Conversation("c", Rung.HEADER)), body, {})
    policy = ToolPolicy("weather", None, "")

    async def call() -> int:
        reply = await send_with_backoff(checked, request, policy, services, CallRecord("r", ""))
        assert isinstance(reply, UpstreamReply), reply
        assert isinstance(reply.body, bytes)
        return len(reply.body)

    yield call
    await guarded.close()


@contextlib.asynccontextmanager
async def aiohttp_client(url: str, body: bytes) -> AsyncIterator[Call]:
    """aiohttp's client as a proxy has to set it up: no cookies, no decoding, no added headers."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=256, keepalive_timeout=4.0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        timeout=aiohttp.ClientTimeout(total=None, connect=2.0),
    ) as session:

        async def call() -> int:
            async with session.post(f"{url}/tools/weather", data=body, headers=HEADERS, allow_redirects=False) as reply:
                return len(await reply.read())

        yield call


@contextlib.asynccontextmanager
async def httpx_client(url: str, body: bytes) -> AsyncIterator[Call]:
    """httpx with its default limits."""
    import httpx  # type: ignore[import-not-found, unused-ignore]

    async with httpx.AsyncClient(timeout=30.0) as client:

        async def call() -> int:
            response = await client.post(f"{url}/tools/weather", content=body, headers=dict(HEADERS))
            return len(response.content)

        yield call


@contextlib.asynccontextmanager
async def floor(url: str, body: bytes) -> AsyncIterator[Call]:
    """Only asyncio: fixed bytes out, bytes in until the known length is there."""
    port = int(url.rpartition(":")[2])
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS)
    request = f"POST /tools/weather HTTP/1.1\r\nhost: x\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body
    idle: list[Echo] = []

    async def call() -> int:
        if idle:
            echo = idle.pop()
        else:
            _, echo = await asyncio.get_running_loop().create_connection(Echo, "127.0.0.1", port)
        length = await echo.ask(request)
        idle.append(echo)
        return length

    yield call
    for echo in idle:
        echo.transport.abort()


class Echo(asyncio.Protocol):
    """One exchange at a time of a known shape."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the way out."""
        self.transport = transport  # type: ignore[assignment]

    def ask(self, request: bytes) -> asyncio.Future[int]:
        """Writes; the future gives the length of the answer's body."""
        self._waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._came = b""
        self.transport.write(request)
        return self._waiter

    def data_received(self, data: bytes) -> None:
        """Ends the exchange when the body is there."""
        self._came = self._came + data if self._came else data
        end = self._came.find(b"\r\n\r\n")
        length = int(self._came[self._came.find(b"Content-Length: ") + 16 : end])
        if len(self._came) >= end + 4 + length:
            self._waiter.set_result(length)


CLIENTS: dict[str, Callable[[str, bytes], contextlib.AbstractAsyncContextManager[Call]]] = {
    "aiohttp": aiohttp_client,
    "http1": ours,
    "resending": ours_resending,
    "httpx": httpx_client,
    "floor": floor,
}


# --- the measurement --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Figure:
    """One client in one round: CPU in microseconds per call, calls per second, median and 99th percentile in ms."""

    cpu: float
    rate: float
    p50: float
    p99: float


async def measure(call: Call, calls: int, concurrency: int) -> Figure:
    """Makes so many calls, so many at a time."""
    times: list[float] = []

    async def worker(count: int) -> None:
        for _ in range(count):
            began = time.perf_counter()
            await call()
            times.append(time.perf_counter() - began)

    await asyncio.gather(*(worker(5) for _ in range(concurrency)))
    times.clear()
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(worker(calls // concurrency) for _ in range(concurrency)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    times.sort()
    done = len(times)
    return Figure(cpu / done * 1e6, done / wall, times[done // 2] * 1e3, times[done * 99 // 100] * 1e3)


async def rounds(options: argparse.Namespace, url: str, names: list[str]) -> dict[tuple[str, int], list[Figure]]:
    """All clients in turn, round by round."""
    body = b'{"lat": 48.85, "lon": 2.35, "note": "' + b"y" * max(options.body - 40, 0) + b'"}'
    found: dict[tuple[str, int], list[Figure]] = {}
    for _ in range(options.rounds):
        for name in names:
            for concurrency in CONCURRENCY:
                calls = options.calls // (20 if name == "httpx" else 1)  # it takes twenty times as long
                async with CLIENTS[name](url, body) as call:
                    found.setdefault((name, concurrency), []).append(await measure(call, calls, concurrency))
    return found


def report(loop: str, found: dict[tuple[str, int], list[Figure]]) -> None:
    """Prints medians, and the CPU per call as a ratio to aiohttp's client in the same round."""
    for concurrency in CONCURRENCY:
        print(f"\n{loop}, {concurrency} at a time")
        print(f"{'client':10}{'CPU us':>9}{'x aiohttp':>11}{'calls/s':>10}{'p50 ms':>9}{'p99 ms':>9}")
        base = found["aiohttp", concurrency]
        for name in CLIENTS:
            figures = found.get((name, concurrency))
            if figures is None:
                continue
            ratio = statistics.median(one.cpu / other.cpu for one, other in zip(figures, base, strict=True))
            cpu, rate, p50, p99 = (
                statistics.median(getattr(one, key) for one in figures) for key in ("cpu", "rate", "p50", "p99")
            )
            print(f"{name:10}{cpu:9.1f}{ratio:11.2f}{rate:10.0f}{p50:9.3f}{p99:9.3f}")


def has(module: str) -> bool:
    """Returns whether a peer is installed."""
    return importlib.util.find_spec(module) is not None


def pin(core: int | None) -> None:
    """Keeps this process on one core, where the system can."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def run_on(loop: str, main: Awaitable[object]) -> object:
    """Runs to the end on asyncio's loop or on uvloop's."""
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)  # type: ignore[arg-type]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=6000, help="calls per client, concurrency and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--body", type=int, default=173, help="bytes of the request's and of the answer's body")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    apart = len(cores) > 1
    near, far = multiprocessing.get_context("spawn").Pipe()
    upstream = multiprocessing.get_context("spawn").Process(
        target=serve, args=(far, options.body, cores[0] if apart else None), daemon=True
    )
    upstream.start()
    url = f"http://127.0.0.1:{near.recv()}"
    pin(cores[-1] if apart else None)
    names = [name for name in CLIENTS if name != "httpx" or has("httpx")]
    print(f"Python {sys.version.split()[0]}, body {options.body} B, {options.rounds} rounds of {options.calls} calls")
    print(f"left out, not installed: {', '.join(sorted(set(CLIENTS) - set(names))) or 'none'}")
    try:
        for loop in ("asyncio", *(("uvloop",) if has("uvloop") else ())):
            report(loop, run_on(loop, rounds(options, url, names)))  # type: ignore[arg-type]
    finally:
        upstream.terminate()
        upstream.join()


if __name__ == "__main__":
    main()

"""The load of the proxy benchmark: so many connections, each sending its next call when the last is answered.

`wrk` makes it if it is installed; otherwise this file does, as a separate process:

    python -m benchmarks.load PORT BODY CONNECTIONS SECONDS SEED

Both print one JSON line: calls answered, answers per status class, seconds, p50 and p99 in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.calls import request, write_number
from benchmarks.machine import pinned

ROOT: Final = Path(__file__).parent.parent

# wrk sends what `request` gives; `done` prints what this file wants to know.
_WRK: Final = """
local parts, count = {%s}, 0
request = function() count = count + 1; return table.concat(parts, string.format("%%07d%%09d", %d, count)) end
done = function(summary, latency, requests)
  local form = '{"calls": %%d, "failed": %%d, "refused": %%d, "seconds": %%.6f, "p50": %%.4f, "p99": %%.4f}\\n'
  io.write(string.format(form,
    summary.requests, summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    summary.errors.status, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
"""


@dataclass(frozen=True)
class Load:
    """The result of a load: `calls` answered, `failed` without an answer, `refused` with a status of 400 or more; times
    in milliseconds."""

    calls: int
    failed: int
    refused: int
    seconds: float
    p50: float
    p99: float


def run(port: int, body: str, connections: int, seconds: float, core: int | None, folder: Path, seed: int) -> Load:
    """Loads a port for so long; `body` names one of BODIES."""
    wrk = shutil.which("wrk")
    if wrk is None:
        words = [sys.executable, "-m", "benchmarks.load", *map(str, (port, body, connections, seconds, seed))]
    else:
        script = folder / f"{port}-{body}.lua"
        script.write_text(_WRK % (", ".join(map(_lua, request(port, body))), seed))
        words = [wrk, "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(script)]
        words.append(f"http://127.0.0.1:{port}/")
    done = subprocess.run(words, capture_output=True, check=True, cwd=ROOT, preexec_fn=pinned(core), text=True)
    return Load(**json.loads(done.stdout.splitlines()[-1]))


def _lua(data: bytes) -> str:
    """Bytes as a string of Lua."""
    return (
        '"' + "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03d}" for byte in data) + '"'
    )


# --- the load of our own ----------------------------------------------------------------------------------------------
class Caller(asyncio.Protocol):
    """One connection. Reads as much HTTP as the answers of proxies hold: a length, or chunks."""

    def __init__(self, parts: list[bytes], number: int, tally: Tally) -> None:
        self._parts = parts
        self._number = number
        self._tally = tally
        self._count = 0
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the first call."""
        self._transport: Any = transport
        self._call()

    def _call(self) -> None:
        self._count += 1
        self._began = time.perf_counter()
        self._transport.write(write_number(self._number, self._count).join(self._parts))

    def data_received(self, data: bytes) -> None:
        """Takes the answer; when it is whole, the next call goes out."""
        self._held = self._held + data if self._held else data
        end = self._held.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._held[:end].lower()
        if b"\r\ntransfer-encoding: chunked" in head:
            whole = self._held.endswith(b"0\r\n\r\n")
        else:
            length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            whole = len(self._held) >= end + 4 + int(length or b"0")
        if whole:
            self._tally.answered(int(head[9:12]), time.perf_counter() - self._began)
            self._held = b""
            self._call()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The proxy has closed."""
        self._tally.failed += 0 if self._tally.over else 1


class Tally:
    """Counts answers once it is `on`."""

    def __init__(self) -> None:
        self.on = self.over = False
        self.failed = 0
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []

    def answered(self, status: int, seconds: float) -> None:
        """One more answer."""
        if self.on:
            self.statuses[status] += 1
            self.times.append(seconds)


async def _load(port: int, body: str, connections: int, seconds: float, seed: int) -> Load:
    tally, loop = Tally(), asyncio.get_running_loop()
    parts = request(port, body)
    for number in range(connections):
        await loop.create_connection(partial(Caller, parts, seed * 1000 + number, tally), "127.0.0.1", port)
    tally.on, began = True, time.perf_counter()
    await asyncio.sleep(seconds)
    tally.on, tally.over = False, True
    took, times = time.perf_counter() - began, sorted(tally.times)
    refused = sum(count for status, count in tally.statuses.items() if status >= 400)
    p50, p99 = (times[len(times) * part // 100] * 1e3 if times else 0.0 for part in (50, 99))
    return Load(len(times), tally.failed, refused, took, p50, p99)


def main() -> None:
    """Loads one port and prints what came of it."""
    port, body, connections, seconds, seed = sys.argv[1:6]
    factory = None
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        pass
    with asyncio.Runner(loop_factory=factory) as runner:
        print(json.dumps(vars(runner.run(_load(int(port), body, int(connections), float(seconds), int(seed))))))


if __name__ == "__main__":
    main()

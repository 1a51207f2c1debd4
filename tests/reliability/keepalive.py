"""A soak of keep-alive: many calls over few connections, each answer held against its call; memory at start and end.

Not part of the test suite. `python -m tests.reliability.keepalive [CALLS] [CONNECTIONS]`, by default 100,000 over 16;
exits with 1 where an answer was wrong, a connection was lost, or memory or file descriptors grew.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from pathlib import Path

from tests.serving.proxied import WEATHER, Proxied, proxied
from tests.serving.wire import Script, Seen, Tool, post, read_message, tool

# The growth allowed between the first tenth of the calls and the last: the kernel counts pages, not objects.
MAX_GROWTH = 8 * 1024 * 1024


def echoing() -> Script:
    """An upstream that answers with the body of the call."""

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(seen.body)}\r\n\r\n"
        writer.write(head.encode() + seen.body)
        await writer.drain()

    return script


async def one_connection(proxy: Proxied, server: Tool, calls: int) -> int:
    """Makes calls over one connection; gives how many were answered wrongly. Every tenth is one to refuse."""
    wrong = 0
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    for number in range(calls):
        bad = number % 10 == 9
        body = b'{"lat": "north"}' if bad else b'{"lat": %d}' % number
        writer.write(post("/weather", body, f"X-Conversation-Id: c{number}"))
        seen = await read_message(reader)
        if number % 100 == 0:  # what this script remembers must not count as what the proxy does
            server.seen.clear()
            proxy.log.seek(0)
            proxy.log.truncate()
        wrong += seen.status != 400 if bad else (seen.status, seen.body) != (200, body)
    writer.close()
    return wrong


def resident() -> int:
    """Bytes of memory in use."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def descriptors() -> int:
    """Open file descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def soak(calls: int, connections: int) -> int:
    """Runs a tenth, measures, runs the rest, measures again; the exit code."""
    async with tool(echoing()) as server, proxied(WEATHER, server.url, state="{max_keys: 1000}") as proxy:
        started, wrong = time.monotonic(), 0
        marks = []
        for share in (calls // 10, calls - calls // 10):
            each = share // connections
            wrong += sum(await asyncio.gather(*(one_connection(proxy, server, each) for _ in range(connections))))
            await asyncio.sleep(0.2)
            marks.append((resident(), descriptors()))
        seconds = time.monotonic() - started
    (memory, files), (memory_after, files_after) = marks
    print(f"{calls} calls over {connections} connections in {seconds:.0f} s: {wrong} wrong")  # noqa: T201
    print(f"memory {memory >> 20} -> {memory_after >> 20} MiB, descriptors {files} -> {files_after}")  # noqa: T201
    return int(wrong > 0 or memory_after - memory > MAX_GROWTH or files_after > files)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(asyncio.run(soak(*(given + [100_000, 16][len(given) :]))))

"""Memory while a large body goes through a passthrough route: once up, once down.

    python -m benchmarks.flat [--megabytes N]

The proxy is its own process; its memory is looked at every few milliseconds while the bytes go through. It prints how
far the memory rises above its former level, and how fast the bytes went.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.peers.cast import Command
from benchmarks.peers.running import NotServingError, running

_PIECE: Final = bytes(256 * 1024)
_LOOK: Final = 0.01  # seconds between two looks at the memory


async def _upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes what is uploaded and throws it away, or sends as many bytes as the query asks for."""
    head = await reader.readuntil(b"\r\n\r\n")
    if head.startswith(b"GET"):
        size = int(head.partition(b"?")[2].partition(b" ")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // len(_PIECE)):
            writer.write(_PIECE)
            await writer.drain()
    else:
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        left, tail = int(length or b"-1"), b""
        while left and not tail.endswith(b"0\r\n\r\n") and (data := await reader.read(len(_PIECE))):
            left, tail = left - len(data) if left > 0 else left, (tail + data)[-5:]
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    writer.close()


async def _transfer(port: int, method: str, size: int) -> None:
    """One request of a client: so many bytes up (PUT) or down (GET)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = size if method == "PUT" else 0
    writer.write(f"{method} /files?{size} HTTP/1.1\r\nHost: files\r\nContent-Length: {length}\r\n\r\n".encode())
    for _ in range(length // len(_PIECE)):
        writer.write(_PIECE)
        await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    left = 0 if method == "PUT" else size
    while left and (data := await reader.read(min(left, len(_PIECE)))):
        left -= len(data)
    assert not left, f"{left} bytes are missing"
    writer.close()


async def _peak(pid: int, transfer: asyncio.Task[None]) -> float:
    """The most memory of a process while a transfer lasts, in MB."""
    most = 0.0
    while not transfer.done():
        most = max(most, machine.memory(pid))
        await asyncio.sleep(_LOOK)
    await transfer
    return most


async def _measure(size: int) -> None:
    server = await asyncio.start_server(_upstream, "127.0.0.1", 0)
    upstream, port = server.sockets[0].getsockname()[1], machine.free_port()
    config = {
        "version": 1,
        "listen": f"127.0.0.1:{port}",
        "upstreams": {"files": {"url": f"http://127.0.0.1:{upstream}"}},
        "routes": [{"path": "/files", "methods": ["GET", "PUT"], "upstream": "files", "passthrough": True}],
    }
    with tempfile.TemporaryDirectory(prefix="toolcall-bench-") as name:
        path, log = Path(name) / "config.yaml", Path(name) / "log"
        path.write_text(json.dumps(config))
        with running(Command([sys.executable, "-m", "proxy", "serve", str(path)]), None, log) as process:
            await _until_open(port, process, log)
            for method, words in (("PUT", "up"), ("GET", "down")):
                await _transfer(port, method, len(_PIECE))  # what is made once is made now
                before, began = machine.memory(process.pid), time.perf_counter()
                most = await _peak(process.pid, asyncio.create_task(_transfer(port, method, size)))
                rate = size / 1e6 / (time.perf_counter() - began)
                print(f"{words:5} {size / 1e6:.0f} MB: {before:.1f} MB before, at most {most:.1f} MB, {rate:.0f} MB/s")
    server.close()


async def _until_open(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until the proxy listens. Raises NotServingError where it does not."""
    for _ in range(2000):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return
        if process.poll() is not None:
            break
    raise NotServingError(f"the proxy does not serve: see {log}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100)
    pieces = parser.parse_args().megabytes * 1_000_000 // len(_PIECE)
    asyncio.run(_measure(pieces * len(_PIECE)))


if __name__ == "__main__":
    main()

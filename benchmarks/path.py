"""The walks of a clean and of a refused call through a running proxy: which files each enters, and how often it goes
from one to another.

    python -m benchmarks.path           the walks and their figures
    python -m benchmarks.path --files   one line per file, with the calls into it

The proxy runs in this process, before a tool that answers at once. Some calls warm it, then one more is watched with
`sys.setprofile`. Each call of a Python function in `proxy/` is one step, and a step into another file than the one
before is a hop. Resuming a coroutine is no call. Each call comes from its own conversation. Generated code, libraries
and the client are not counted. The config asks for no extension (`console: off`). Figures are in CONTRIBUTING.md.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from inspect import CO_COROUTINE
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any, Final
from urllib.parse import urlsplit

import proxy
from benchmarks.calls import BODIES, CONVERSATION, HEADERS, SCHEMA
from proxy.config.load import load
from proxy.core.json.jsontext import dumps
from proxy.server import start_serving

PACKAGE: Final = str(Path(proxy.__file__).parent) + "/"
WARMING: Final = 50
KINDS: Final = ("clean", "refused")
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass(frozen=True, slots=True)
class Walk:
    """The files of `proxy/` in which a function was called, in the order of the calls."""

    steps: tuple[str, ...]

    @property
    def hops(self) -> int:
        """Returns how often the walk goes from one file to another."""
        return sum(one != two for one, two in zip(self.steps, self.steps[1:], strict=False))

    @property
    def files(self) -> Counter[str]:
        """Calls by file, in the order of the first one."""
        return Counter(self.steps)

    @property
    def folders(self) -> Counter[str]:
        """Calls by folder."""
        return Counter(str(PurePosixPath(step).parent) for step in self.steps)

    def summary(self) -> str:
        """The figures in one line."""
        return f"{len(self.files)} files in {len(self.folders)} folders, {self.hops} hops, {len(self.steps)} calls"


async def walk(kind: str) -> Walk:
    """Watches one warmed call, `clean` or `refused`, from its first byte to its log line."""
    async with _tool() as tool, _proxy(tool) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(WARMING):
            await _call(reader, writer, kind, number)
        steps: list[str] = []
        begun: list[FrameType] = []  # frames of coroutines, whose resumptions are no calls

        def watch(frame: FrameType, event: str, argument: Any) -> None:
            del argument
            if event == "call" and frame.f_code.co_filename.startswith(PACKAGE) and frame not in begun:
                if frame.f_code.co_flags & CO_COROUTINE:
                    begun.append(frame)
                steps.append(frame.f_code.co_filename.removeprefix(PACKAGE))

        sys.setprofile(watch)
        try:
            await _call(reader, writer, kind, WARMING)
        finally:
            sys.setprofile(None)
        writer.close()
    return Walk(tuple(steps))


async def _call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str, number: int) -> None:
    """Sends one call and reads its answer. Each refused call comes from a separate conversation."""
    body = BODIES[kind]
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS).replace(CONVERSATION, str(number))
    writer.write(f"POST /forecast HTTP/1.1\r\nHost: bench\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    status = await reader.readline()
    length = 0
    while (line := await reader.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    await reader.readexactly(length)
    if (b" 200 " in status) != (kind == "clean"):
        raise RuntimeError(f"the {kind} call was answered: {status.decode().strip()}")
    await asyncio.sleep(0.01)  # what is written down of it, is written down by then


@asynccontextmanager
async def _tool() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (head := await reader.readuntil(b"\r\n\r\n")) != b"":
            lengths = [
                line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
            ]
            await reader.readexactly(int(lengths[0]))
            writer.write(_ANSWER)

    async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(until_closed, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@asynccontextmanager
async def _proxy(tool: int) -> AsyncIterator[int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(
            f"version: 1\nlisten: 127.0.0.1:0\nadmin: {{listen: '127.0.0.1:0', console: off}}\n"
            f"upstreams: {{tools: {{url: 'http://127.0.0.1:{tool}'}}}}\n"
            f"routes: [{{path: /forecast, upstream: tools, tool: forecast, schema: {dumps(SCHEMA).decode()}}}]\n"
        )
        with (Path(folder) / "log").open("w") as log:  # a file, as in production: its lines are made in a thread
            serving = await start_serving(load(path, {}), log_to=log)
            try:
                yield urlsplit(serving.url).port or 0
            finally:
                await serving.stop(grace=0.5)


def main() -> None:
    """Prints the walk."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.path", description="The walks of two calls.")
    parser.add_argument("--files", action="store_true", help="one line per file, with the calls into it")
    options = parser.parse_args()
    for kind in KINDS:
        found = asyncio.run(walk(kind))
        if options.files:
            print("\n".join(f"{calls:4} {file}" for file, calls in found.files.items()))
        else:
            legs = [step for step, before in zip(found.steps, ("", *found.steps), strict=False) if step != before]
            print("\n".join(legs))
        print(f"{kind}: {found.summary()}\n")


if __name__ == "__main__":
    main()

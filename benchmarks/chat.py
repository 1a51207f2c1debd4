"""The cost of the proxy for a model's answer: direct, relayed unread, and read for calls, in turn.

Each round sends the same questions everywhere, one right after the other over one kept connection. So the figures are
pairs, and a machine that is slow for a moment is slow for all. The model is a bare asyncio server. It writes each event
separately, the next one a millisecond later, so that the event before does not delay it. `first` is the time until the
first byte of the answer's body, `whole` until its last, both the median of a turn. `added` is the median of the paired
differences to direct. `CPU` is the processor time of the proxy's own process per event of a stream, or per answer.

    python -m benchmarks.chat
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import machine

ROOT: Final = Path(__file__).parent.parent
EVENTS: Final = 100
PAUSE: Final = 0.001
DIRECT: Final = "direct"
CONFIG: Final = """\
version: 1
listen: 127.0.0.1:{port}
admin: off
telemetry: {{log: {{level: error}}}}
upstreams: {{server: {{url: "http://127.0.0.1:{model}"}}}}
routes:
  - {{path: /read, upstream: server, upstream_path: /v1, model: {{}}}}
  - {{path: /again, upstream: server, upstream_path: /v1, model: {{retries: 1}}}}
  - path: /relay/chat/completions
    upstream: server
    upstream_path: /v1/chat/completions
    methods: [POST]
    passthrough: true
"""
# The players by path: the proxy reads the answer, may ask again, or relays it unread.
PLAYERS: Final = {DIRECT: "/v1", "relayed unread": "/relay", "read": "/read", "read, retries: 1": "/again"}
_SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
_TOOLS: Final = [{"type": "function", "function": {"name": "get_weather", "parameters": _SCHEMA}}]
_ASKED: Final = {"model": "bench", "messages": [{"role": "user", "content": "Weather in Oslo?"}], "tools": _TOOLS}
_CALL: Final = {"name": "get_weather", "arguments": '{"city": "Oslo", "days": 3}'}
# Kind of answer -> the question.
KINDS: Final = {"text, streamed": "text", "call, streamed": "call", "call, in one piece": "whole"}


@dataclass
class Found:
    """Per turn: the medians of the times in milliseconds, and the proxy's CPU in microseconds per event or answer."""

    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


# --- the model --------------------------------------------------------------------------------------------------------
def list_events(kind: str) -> list[bytes]:
    """The events of a streamed answer of Chat Completions, as chunks of HTTP."""
    words: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if kind == "text":
        words += [{"content": f"word {number} "} for number in range(EVENTS - 3)]
    else:
        text = _CALL["arguments"]
        begun: dict[str, Any] = {"index": 0, "id": "call_1", "type": "function", "function": {**_CALL, "arguments": ""}}
        words += [{"content": f"word {number} "} for number in range(EVENTS - 4 - len(text))]
        words += [{"tool_calls": [begun]}]
        words += [{"tool_calls": [{"index": 0, "function": {"arguments": letter}}]} for letter in text]
    return write_chunks(words, "stop" if kind == "text" else "tool_calls")


def write_chunks(deltas: list[dict[str, Any]], finish: str) -> list[bytes]:
    """The events of a streamed answer of Chat Completions, as chunks of HTTP."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    made = [json.dumps({"id": "c1", "object": "chat.completion.chunk", "choices": [each]}) for each in choices]
    events = [f"data: {each}\n\n".encode() for each in [*made, "[DONE]"]]
    return [b"%x\r\n%b\r\n" % (len(event), event) for event in events]


def write_whole() -> bytes:
    """An answer in one piece, with its head."""
    call = {"id": "call_1", "type": "function", "function": _CALL}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = json.dumps(
        {"id": "c1", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    ).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def serve_answers(answer: Callable[[str, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Writes an answer of the kind that each request names, for ever; prints the port first."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
                await answer(json.loads(await reader.readexactly(length))["user"], writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    sys.stdout.write(f"serving on :{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


async def serve_model() -> None:
    """Answers with a short stream, or in one piece."""
    streams = {kind: list_events(kind) for kind in ("text", "call")}
    whole = write_whole()

    async def answer(kind: str, writer: asyncio.StreamWriter) -> None:
        if kind == "whole":
            writer.write(whole)
            return
        writer.write(HEAD)
        for event in streams[kind]:
            writer.write(event)
            await asyncio.sleep(PAUSE)
        writer.write(b"0\r\n\r\n")

    await serve_answers(answer)


# --- the client -------------------------------------------------------------------------------------------------------
class Connection:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, path: str, kind: str) -> tuple[float, float, bytes]:
        """Milliseconds to the first byte of the body and to the last, and all bytes."""
        began = time.perf_counter()
        self._send(path, kind)
        held, first = b"", 0.0
        while not _is_whole(held):
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the connection was closed")
            held += data
            if not first and held.partition(b"\r\n\r\n")[2]:
                first = time.perf_counter()
        end = time.perf_counter()
        if not held.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{path} answered {held[:200]!r}")
        return (first - began) * 1e3, (end - began) * 1e3, held

    def read_all(self, path: str, kind: str) -> int:
        """The size of a long streamed answer, of which nothing is kept."""
        self._send(path, kind)
        size, end = 0, b""
        while not end.endswith(b"\r\n0\r\n\r\n"):
            data = self._socket.recv(1024 * 1024)
            if not data:
                raise ConnectionError("the connection was closed")
            size, end = size + len(data), (end + data)[-7:]
        return size

    def _send(self, path: str, kind: str) -> None:
        body = json.dumps({**_ASKED, "user": kind, "stream": kind != "whole"}).encode()
        head = f"POST {path}/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        self._socket.sendall(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def close(self) -> None:
        """Ends it."""
        self._socket.close()


def _is_whole(held: bytes) -> bool:
    head, end, body = held.partition(b"\r\n\r\n")
    if not end:
        return False
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        return body.endswith(b"\r\n0\r\n\r\n")
    return len(body) >= int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])


# --- the rounds -------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def running(words: list[str], core: int | None) -> Iterator[tuple[int, int]]:
    """A program that prints a port at the end of its first line: that port, and its pid."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        preexec_fn=machine.pinned(core),  # noqa: PLW1509 - there are no threads here
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().rpartition(b":")[2]), process.pid
    finally:
        process.terminate()
        process.wait()


def turn(port: int, pid: int, path: str, kind: str, answers: int, found: Found) -> None:
    """So many answers, one after the other."""
    connection = Connection(port)
    used = machine.cpu_seconds(pid)
    times = [connection.ask(path, KINDS[kind])[:2] for _ in range(answers)]
    used = machine.cpu_seconds(pid) - used
    connection.close()
    found.first.append(statistics.median(first for first, _ in times))
    found.whole.append(statistics.median(whole for _, whole in times))
    found.cpu.append(used / answers / (1 if KINDS[kind] == "whole" else EVENTS) * 1e6)


def measure(rounds: int, answers: int) -> dict[tuple[str, str], Found]:
    """Everything, by who and kind of answer. The first round warms up and is thrown away."""
    near, far = machine.cores() or (None, None)
    found: dict[tuple[str, str], Found] = {}
    with tempfile.TemporaryDirectory() as folder, running(["benchmarks.chat", "--serve"], near) as (model, model_pid):
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG.format(port=machine.free_port(), model=model))
        with running(["proxy", "serve", str(config)], far) as (port, pid):
            for number in range(rounds + 1):
                for kind in KINDS:
                    for who, path in [*PLAYERS.items()][:: 1 if number % 2 else -1]:
                        into = found.setdefault((kind, who), Found()) if number else Found()
                        place = (model, model_pid) if who == DIRECT else (port, pid)
                        turn(*place, path, kind, answers, into)
    return found


def show(found: dict[tuple[str, str], Found]) -> None:
    """Prints medians of the rounds, and the medians of their differences and ratios to direct."""
    print(f"{'':38}{'first ms':>9}{'added':>8}{'x direct':>9}{'whole ms':>10}{'added':>8}{'x direct':>9}{'CPU us':>9}")
    for (kind, who), each in found.items():
        direct = found[kind, DIRECT]
        row = f"{kind + ': ' + who:38}"
        for width, mine, base in ((9, each.first, direct.first), (10, each.whole, direct.whole)):
            pairs = [*zip(mine, base, strict=True)]
            added, ratio = (statistics.median(one) for one in ([a - b for a, b in pairs], [a / b for a, b in pairs]))
            row += f"{statistics.median(mine):{width}.2f}{added:8.2f}{ratio:9.2f}"
        print(row + (f"{statistics.median(each.cpu):9.0f}" if who != DIRECT else ""))
    worst = statistics.median(
        mine - base
        for mine, base in zip(found["text, streamed", "read"].first, found["text, streamed", DIRECT].first, strict=True)
    )
    print(f"goal: the first byte of a clean stream at most 2 ms after direct: {worst:.2f}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--answers", type=int, default=20, help="answers in a turn")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve_model())
    else:
        show(measure(options.rounds, options.answers))


if __name__ == "__main__":
    main()

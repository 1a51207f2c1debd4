"""The recorded conversations of tests/data/mcp-wire, read back into requests and their answers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2] / "data" / "mcp-wire"
NAMES: Final = sorted(path.stem for path in FOLDER.glob("*.txt"))

_RUN: Final = re.compile(rb"\n===== conn (\d+) (client->server|server->client|closed)[^\n]*=====\n")


@dataclass(frozen=True)
class Recorded:
    """One message as it was on the wire. `raw` is all of it, `body` without its framing; `whole` False if the
    recording ends before it does."""

    start: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    raw: bytes
    whole: bool = True

    def header(self, name: str) -> str | None:
        """The first value of a header (lower case), or None."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True)
class Exchange:
    """A request and what was answered."""

    request: Recorded
    answer: Recorded


def exchanges(name: str) -> list[Exchange]:
    """Every answered request of a conversation, in the order in which the requests came."""
    text = (FOLDER / f"{name}.txt").read_bytes()
    parts = _RUN.split(text)[1:]
    runs = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    asked: dict[bytes, bytes] = defaultdict(bytes)
    told: dict[bytes, bytes] = defaultdict(bytes)
    order: list[tuple[bytes, int]] = []
    for connection, kind, data in runs:
        if kind == b"client->server":
            asked[connection] += data
            order += [(connection, number) for number in range(data.count(b" HTTP/1.1\r\n"))]
        elif kind == b"server->client":
            told[connection] += data
    requests = {connection: list(_messages(data)) for connection, data in asked.items()}
    answers = {connection: list(_messages(data)) for connection, data in told.items()}
    met: dict[bytes, int] = defaultdict(int)
    found = []
    for connection, _ in order:
        index = met[connection]
        met[connection] += 1
        if index < len(answers.get(connection, ())):
            found.append(Exchange(requests[connection][index], answers[connection][index]))
    return found


def _messages(data: bytes) -> Iterator[Recorded]:
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        assert end, data[:200]
        start, *lines = head.decode("latin-1").split("\r\n")
        headers = tuple((name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines))
        found = Recorded(start, headers, b"", b"")
        if found.header("transfer-encoding") == "chunked":
            body, rest, whole = _chunks(rest)
        else:
            size = int(found.header("content-length") or 0)
            body, rest, whole = rest[:size], rest[size:], True
        yield Recorded(start, headers, body, data[: len(data) - len(rest)], whole)
        data = rest


def _chunks(data: bytes) -> tuple[bytes, bytes, bool]:
    """The body, what follows it, and whether it came to its end."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return body, data.removeprefix(b"\r\n"), True
        body, data = body + data[:length], data[length + 2 :]
    return body, b"", False

"""A recording socket: is between two parties, passes every byte on, and remembers it. It reads nothing while it passes
on, so a party can be as slow, and close as early, as it likes. The record is read afterwards, as HTTP/1.1.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httptools

# Fields that belong to one connection (RFC 9110 section 7.6.1), or say who passed the message on (section 7.6.3).
HOPPING = frozenset(
    ["connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length", "via"]
)


@dataclass(frozen=True)
class Said:
    """One message. `start` is the method or the status; `fields` without those of the connection, sorted. `target` is
    a request's path and query as they were sent."""

    start: str
    fields: tuple[tuple[str, str], ...]
    body: bytes
    complete: bool
    target: str = field(default="", compare=False)


@dataclass(frozen=True)
class Exchange:
    """A request and its answer; None where there was none."""

    request: Said
    answer: Said | None


@dataclass
class _Reader:
    """The callbacks of httptools; one object for each direction of a connection."""

    said: list[Said] = field(default_factory=list)
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    open: bool = False
    target: str = ""

    def on_message_begin(self) -> None:
        self.fields, self.body, self.open, self.target = [], b"", True, ""

    def on_url(self, url: bytes) -> None:
        self.target += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.decode().lower(), value.decode("latin-1").strip()))

    def on_body(self, data: bytes) -> None:
        self.body += data

    def message(self, start: str, complete: bool) -> None:
        kept = tuple(sorted(entry for entry in self.fields if entry[0] not in HOPPING))
        self.said.append(Said(start, kept, self.body, complete, self.target))
        self.open = False


def _messages(data: bytes, is_request: bool) -> list[Said]:
    reader = _Reader()
    make: Any = httptools.HttpRequestParser if is_request else httptools.HttpResponseParser

    def start() -> str:
        return parser.get_method().decode() if is_request else str(parser.get_status_code())

    reader.on_message_complete = lambda: reader.message(start(), complete=True)  # type: ignore[attr-defined]
    parser = make(reader)
    with contextlib.suppress(httptools.HttpParserError):
        parser.feed_data(data)
    if reader.open and reader.fields:
        reader.message(start(), complete=False)
    return reader.said


@dataclass
class _Record:
    """One connection: the sent and the received bytes, and how many of its exchanges were returned already."""

    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    told: int = 0

    def exchanges(self) -> list[Exchange]:
        requests, answers = _messages(bytes(self.sent), True), _messages(bytes(self.received), False)
        answered = [*answers, *[None] * len(requests)]
        news = [Exchange(request, answered[index]) for index, request in enumerate(requests)][self.told :]
        self.told = len(requests)
        return news


class Tap:
    """Listens on its own port and passes on to another."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self._records: list[_Record] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def exchanges(self) -> list[Exchange]:
        """Everything since the last time, in the order of the connections."""
        return [exchange for record in list(self._records) for exchange in record.exchanges()]

    def close(self) -> None:
        """Ends every connection."""
        self._listening.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                record = _Record()
                self._records.append(record)
                self._sockets += [client, server]
                for source, sink, kept in ((client, server, record.sent), (server, client, record.received)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=_pump, args=(source, sink, kept), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
    try:
        while data := source.recv(65536):
            kept += data
            sink.sendall(data)
    except OSError:
        pass
    for each, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            each.shutdown(how)


@contextlib.contextmanager
def taps(targets: dict[str, int]) -> Iterator[dict[str, Tap]]:
    """A tap in front of each target, by the same names."""
    made = {name: Tap(port) for name, port in targets.items()}
    try:
        yield made
    finally:
        for tap in made.values():
            tap.close()

"""Answers that are nearly HTTP: no client gets another's, a part of one as the whole, or a defect of ours.

Each answer carries the number of its request; clients ask side by side, on connections that are used again.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from random import Random
from typing import Final

from tests.attacks import Found
from tests.serving.proxied import proxied
from tests.serving.wire import Script, Seen, post, tool

ROUTES: Final = """
  - {path: /judged, upstream: tools, tool: t, schema: {type: object}}
  - {path: /wrapped, upstream: tools, tool: t, schema: {type: object}, wrap_success: on, idempotent: on}
  - {path: /errors, upstream: tools, tool: t, schema: {type: object}, upstream_errors: passthrough}
  - {path: /relayed, upstream: tools, passthrough: true, methods: [POST]}
"""
PATHS: Final = ("/judged", "/wrapped", "/errors", "/relayed")
# Clients at a time, and the seconds within which each has to be answered: the upstream has one for its answer.
CLIENTS: Final = 8
SECONDS: Final = 5.0
_ID: Final = re.compile(rb'"id": ?(-?\d+)[,}]')
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: (\d+)\r\n")

BODIES: Final = (
    b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"success": true', b'{"success":false,"error":"\\u0000"}',
    b'{"success": false, "error": {"code": {}, "message": 5, "retryable": "x", "category": [], "details": []}}',
    b'{"success":false,"error":{"code":"A","category":"RATE_LIMIT","details":{"retry_after":"99999999999999999999"}}}',
    b'{"success":false,"error":{"code":"' + b"A" * 70 + b'"}}', b'{"errors":' + b"[" * 3000,
)  # fmt: skip
STATUSES: Final = (
    "200", "400", "404", "422", "429", "500", "503", "504", "204", "304", "301", "101", "100", "000", "99", "600",
    "999", "2000", "-1",
)  # fmt: skip
FIELDS: Final = (
    "Connection: close", "Keep-Alive: timeout=0", "Keep-Alive: timeout=999999999", "Retry-After: 99999999999999999999",
    "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT", "Retry-After: -5", "Retry-After: 1e400", "Content-Encoding: gzip",
    "Content-Encoding: br", "X: " + "y" * 40_000, "Set-Cookie: a=b", "X\x01: y", ": y", "Upgrade: websocket",
    "Tool-Error: x", "X-Request-ID: evil", "WWW-Authenticate: x\xff", "Trailer: x", "Date: x", "X : y", " folded",
)  # fmt: skip


class _Answer:
    """One answer: its bytes, what comes of the connection after, and whether a client may take it for whole."""

    def __init__(self, random: Random, case: int) -> None:
        self.random, self.odd = random, False
        body = json.dumps({"id": case, "pad": "x" * random.choice((0, 10, 3000))}).encode()
        if random.random() < 0.1:
            body = random.choice(BODIES)
        fields = [self.pick("Content-Type: application/json", "Content-Type: text/event-stream", "Content-Type:\x00")]
        framing = random.choice(("length", "length", "chunks", "chunks", "end", "both", "twice"))
        self.odd |= framing in ("both", "twice")
        size = str(len(body))
        if framing in ("length", "both", "twice"):
            named = self.pick(
                size, f"{len(body) + 5}", f"+{size}", f"{size}, {size}", f"0x{len(body):x}", "9" * 20, "-1", ""
            )
            fields += [f"Content-Length: {named}"] * (2 if framing == "twice" else 1)
        if framing in ("chunks", "both"):
            coding = self.pick("chunked", "Chunked", "gzip, chunked", "identity", "chunked, chunked", "xchunked")
            fields.append(f"Transfer-Encoding: {coding}")
            body = self.chunks(body)
        if random.random() < 0.3:
            fields.append(random.choice(FIELDS))
            self.odd = True
        start = self.pick("HTTP/1.1 ", "HTTP/1.0 ", "HTTP/2 ", "http/1.1 ", "", "\r\nHTTP/1.1 ", "RTSP/1.0 ")
        start += self.pick(*STATUSES) + self.pick(" OK", "", " \xff", " a\x00b", " " + "z" * 40_000)
        head = "".join(line + self.pick("\r\n", "\n", "\r") for line in (start, *fields))
        interim = "" if random.random() < 0.93 else "HTTP/1.1 103 X\r\n\r\n" * random.choice((1, 3, 17, 200))
        whole = (interim + head).encode("latin-1") + b"\r\n" + body
        after = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n" + b'{"id": -1}'
        self.cut = random.randrange(len(whole)) if random.random() < 0.07 else None
        # Bytes after an answer that ends with its connection are part of it.
        follows = b"" if framing == "end" else random.choice((b"", b"", b"", b"", after, b"x"))
        self.data = whole + follows if self.cut is None else whole[: self.cut]
        self.ends = framing == "end" or self.cut is not None or random.random() < 0.1
        self.broken = self.cut is not None and framing in ("length", "chunks") and not self.odd

    def pick(self, sane: str, *odd: str) -> str:
        """The first nearly always; else something odd."""
        if self.random.random() < 0.93:
            return sane
        self.odd = True
        return self.random.choice(odd)

    def chunks(self, body: bytes) -> bytes:
        """The body in chunks, some of them wrong."""
        made = b""
        for part in (body[at : at + 700] for at in range(0, len(body), 700)):
            size = f"{len(part):x}"
            sized = self.pick(
                size, f"0{size}", f"{size};a=b", f" {size}", f"0x{size}", "-1", "f" * 17, f"{len(part) + 3:x}"
            )
            made += f"{sized}{self.pick(chr(13) + chr(10), chr(10))}".encode() + part
            made += self.pick("\r\n", "\n", "", "x\r\n").encode()
        return made + self.pick("0\r\n\r\n", "0\r\n", "", "0\r\nX: y\r\n\r\n", "0\n\n").encode()


def attack(seed: int, tries: int) -> Found:
    """Has `tries` answers handed on by every kind of route."""
    return asyncio.run(_attack(seed, tries))


async def _attack(seed: int, tries: int) -> Found:
    found = Found(tries)
    timeouts = "timeouts: {response: 1s, idle: 1s}"
    async with tool(_script(seed)) as server:
        upstreams = f'{{tools: {{url: "{server.url}", {timeouts}}}}}'
        async with proxied(ROUTES, upstreams=upstreams) as proxy:
            for first in range(0, tries, CLIENTS):
                cases = range(first, min(first + CLIENTS, tries))
                answers = await asyncio.gather(*(_ask(proxy.port, seed, case) for case in cases))
                for case, got in zip(cases, answers, strict=True):
                    found.through += _look(seed, case, got, found)
            if "INTERNAL_ERROR" in proxy.log.getvalue():
                found.add("a defect in the log", seed)
    return found


def _script(seed: int) -> Script:
    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
        answer = _answer(seed, json.loads(seen.body)["case"])
        writer.write(answer.data)
        await writer.drain()
        if answer.ends:
            writer.close()
            raise ConnectionResetError

    return script


def _answer(seed: int, case: int) -> _Answer:
    return _Answer(Random(f"{seed} {case}"), case)


async def _ask(port: int, seed: int, case: int) -> bytes | None:
    """All that a client gets; None where it waited too long."""
    path = Random(f"{case} {seed}").choice(PATHS)
    got = b""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post(path, b'{"case": %d}' % case, "Connection: close"))
    try:
        async with asyncio.timeout(SECONDS):
            with suppress(ConnectionError):
                while data := await reader.read(65536):
                    got += data
    except TimeoutError:
        return None
    finally:
        writer.close()
    return got


def _look(seed: int, case: int, got: bytes | None, found: Found) -> int:
    """Looks at what one client got; gives whether it was its upstream's answer."""
    answer = _answer(seed, case)
    if got is None:
        found.add("a client waits", answer.data)
        return 0
    if b"INTERNAL_ERROR" in got:
        found.add("a defect", answer.data)
    numbers = {int(number) for number in _ID.findall(got)}
    if numbers - ({case, -1} if answer.odd else {case}):  # the end of an odd answer is a matter of opinion
        found.add("another's answer", answer.data)
    head, _, body = got.partition(b"\r\n\r\n")
    length = _LENGTH.search(head + b"\r\n")
    whole = length is not None and len(body) == int(length[1])
    if whole and answer.broken and head[9:12] == b"200":
        found.add("a part of an answer is handed on as the whole", answer.data)
    return int(case in numbers)

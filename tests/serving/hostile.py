"""Raw requests against the running proxy in front of an upstream that records what reaches it.

`replay(cases)` writes each case on its own socket and returns the results; `table(results)` is the table of
docs/evidence/reliability.md. A case may end in two ways: rejected by the proxy (in JSON, with a request id, counted),
or forwarded. If it is forwarded, the upstream sees as many requests as `plainhttp` reads in the bytes, framed in the
same way. Anything else is a finding. On a terminal: `python -m tests.serving.hostile`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote_to_bytes

from tests.serving import plainhttp
from tests.serving.plainhttp import Request
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import Seen, read_message

CASES = Path(__file__).parents[1] / "data" / "http-cases" / "requests.jsonl.gz"

# The ways in which the bytes of a case come in: at once, in two, one by one.
FEEDS = ("whole", "halves", "bytes")

_METHODS = "methods: [GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS], upstream: tools, passthrough: true"
# Every path of up to eight segments.
ROUTES = "\n".join(
    f"  - {{path: '/{'/'.join(f'{{p{number}}}' for number in range(depth))}', {_METHODS}}}" for depth in range(9)
)
ROUTES += "\n  - {path: /canary/of/health, upstream: tools, tool: canary, validation: off, timeout: 20s}\n"
# Short, because many cases are cut off: the proxy has to wait for the rest before it can refuse them.
PATIENCE = {"whole": "600ms", "halves": "600ms", "bytes": "5s"}
# For bodies, and for the upstream as well, which has to share this machine with whatever else runs on it.
TIMEOUT = "1s"
WORKERS = 16

_MARK = "x-recorded"
_ANSWER = f"HTTP/1.1 200 OK\r\n{_MARK}: yes\r\nContent-Length: 2\r\n\r\nok".encode()
_BODILESS = f"HTTP/1.1 200 OK\r\n{_MARK}: yes\r\nContent-Length: 2\r\n\r\n".encode()
# The header fields that a proxy may change on the way (RFC 9110 section 7.6): not compared.
_HOPS = frozenset(
    [
        "host",
        "via",
        "forwarded",
        "x-request-id",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "proxy-authenticate",
        "proxy-authorization",
        "expect",
    ]
)


@dataclass(frozen=True)
class Case:
    """One case of the collection. `expect` is its own project's verdict."""

    name: str
    expect: str
    raw: bytes


@dataclass(frozen=True)
class Result:
    """The outcome of a case. `findings` is empty if the outcome is correct."""

    case: Case
    feed: str
    forwarded: int
    refused: tuple[int, ...]
    findings: tuple[str, ...]


def cases() -> list[Case]:
    """The collection."""
    rows = map(json.loads, gzip.decompress(CASES.read_bytes()).splitlines())
    return [Case(row["name"], row["expect"], base64.b64decode(row["raw_base64"])) for row in rows]


def hosted(wanted: Iterable[Case]) -> list[Case]:
    """The cases without a Host header, with one added: the proxy would reject them for its absence."""
    made = []
    for case in wanted:
        line, end, rest = case.raw.partition(b"\r\n")
        if end and line and b"\nhost" not in case.raw.lower():
            made.append(Case(f"{case.name} with a Host", case.expect, line + b"\r\nHost: added.test\r\n" + rest))
    return made


# --- the upstream -----------------------------------------------------------------------------------------------------
@dataclass
class Recorder:
    """An upstream that keeps every request, and answers each that it can read in the one strict way."""

    port: int = 0
    arrived: list[Request] = field(default_factory=list)
    unreadable: list[bytes] = field(default_factory=list)
    refusals: int = 0  # of the proxy before it, as the metrics counted them after the last case

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. A part of a request, left when the connection ends, counts as unreadable."""
        held = b""
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                found, held = plainhttp.requests(held + data)
                for request in found:
                    self.arrived.append(request)
                    writer.write(_BODILESS if request.method == "HEAD" else _ANSWER)
                await writer.drain()
        if held and not cut_short(held):
            self.unreadable.append(held)
        writer.close()


def cut_short(held: bytes) -> bool:
    """Returns whether bytes are one request whose body broke off, as it broke off on its way to the proxy. No upstream
    takes such a part for the whole."""
    ends = (b"\r\n", b"0\r\n\r\n", b"\r\n0\r\n\r\n")
    return any(len(found) == 1 and not left for found, left in map(plainhttp.requests, (held + end for end in ends)))


@contextlib.asynccontextmanager
async def recorder() -> AsyncIterator[Recorder]:
    """A recording upstream on a free loopback port."""
    upstream = Recorder()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        await server.wait_closed()


# --- one case ---------------------------------------------------------------------------------------------------------
def pieces(raw: bytes, feed: str) -> list[bytes]:
    """The bytes as they are written."""
    if feed == "whole":
        return [raw]
    if feed == "halves":
        middle = raw.find(b"\r\n") + 1 or len(raw) // 2  # between CR and LF, if there are some
        return [raw[:middle], raw[middle:]]
    return [raw[at : at + 1] for at in range(len(raw))]


async def converse(port: int, raw: bytes, feed: str) -> list[Seen]:
    """Writes a case and gives every answer until the proxy has nothing more to say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers: list[Seen] = []
    sending = asyncio.create_task(_send(writer, pieces(raw, feed)))
    expected, left = plainhttp.requests(raw)
    heads = [request.method == "HEAD" for request in expected]
    try:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            while len(answers) < len(expected) + bool(left):
                async with asyncio.timeout(300):
                    seen = await read_message(reader, bodiless=len(answers) < len(heads) and heads[len(answers)])
                if seen.status == 100:
                    continue
                answers.append(seen)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()
    return answers


async def _send(writer: asyncio.StreamWriter, parts: Sequence[bytes]) -> None:
    with contextlib.suppress(ConnectionError):
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)


async def run(case: Case, feed: str, proxy: Proxied, upstream: Recorder) -> Result:
    """Replays one case and judges what came of it."""
    upstream.arrived.clear()
    upstream.unreadable.clear()
    answers = await converse(proxy.port, case.raw, feed)
    await proxy.serving.handler.idle()
    ours = [seen for seen in answers if seen.header(_MARK) is None]
    findings = [*wrongly_framed(case, upstream), *badly_refused(ours)]
    if len(answers) - len(ours) != len(upstream.arrived):
        findings.append(f"{len(upstream.arrived)} requests arrived, {len(answers) - len(ours)} answers came back")
    if not answers and case.raw.strip(b"\r\n"):
        findings.append("no answer at all")
    before, upstream.refusals = upstream.refusals, await refusals(proxy)
    counted = upstream.refusals - before
    if counted != len(ours):
        findings.append(f"{len(ours)} refusals, {counted} counted")
    arrived = len(upstream.arrived)
    health = await proxy.post("/canary/of/health", b'{"a": 1}')
    if health.status != 200:
        findings.append(f"afterwards a good call got {health.status}")
    return Result(case, feed, arrived, tuple(seen.status for seen in ours), tuple(findings))


def wrongly_framed(case: Case, upstream: Recorder) -> Iterable[str]:
    """Yields what reached the upstream and should not have, in number or in form."""
    if upstream.unreadable:
        yield f"unreadable bytes reached the upstream: {upstream.unreadable[0][:80]!r}"
    sent = iter(plainhttp.requests(case.raw)[0])
    for request in upstream.arrived:  # in their order; those between may have been refused
        if not any(equal(candidate, request) for candidate in sent):
            yield f"no such request was sent: {request}"


def equal(sent: Request, arrived: Request) -> bool:
    """Returns whether a request arrived as it was sent, but for what belongs to one hop."""
    path = re.sub(r"^[A-Za-z]+://[^/?]*", "", sent.target)
    named = {name.strip().lower() for value in sent.values("connection") for name in value.split(",")}
    dropped = _HOPS | named
    kept, came = (
        [
            pair
            for pair in request.headers
            if not (pair[0] in dropped or pair[0].startswith("x-forwarded-") or "_" in pair[0])
        ]
        for request in (sent, arrived)
    )
    # A parameter of the route's path is escaped again, so `"` arrives as `%22`: the same path (RFC 3986 section 6.2).
    paths = unquote_to_bytes(path) == unquote_to_bytes(arrived.target)
    return paths and (sent.method, sent.body, kept) == (arrived.method, arrived.body, came)


def badly_refused(refusals: Iterable[Seen]) -> Iterable[str]:
    """Yields what is wrong with answers of the proxy's own."""
    for seen in refusals:
        if not seen.header("x-request-id"):
            yield f"{seen.status} without X-Request-ID"
        if seen.header("content-type") != "application/json":
            yield f"{seen.status} as {seen.header('content-type')}"
        elif seen.body and "code" not in json.loads(seen.body)["error"]:
            yield f"{seen.status} without a code"
        if seen.status >= 500:
            yield f"{seen.status}: {seen.body[:200]!r}"


async def refusals(proxy: Proxied) -> int:
    """Returns how many refused requests the metrics count."""
    text = (await proxy.ask_admin("/metrics")).body.decode()
    return int(sum(float(value) for value in re.findall(r"^toolproxy_errors_total\{.*\} (\S+)$", text, re.M)))


# --- all of them ------------------------------------------------------------------------------------------------------
async def replay(wanted: Sequence[Case], feeds: Sequence[str] = FEEDS) -> list[Result]:
    """Replays every case in every way, several at a time, each against its own proxy."""
    results: list[Result] = []

    async def work(feed: str, waiting: list[Case]) -> None:
        keys = patient(PATIENCE[feed])
        async with recorder() as upstream, proxied(ROUTES, f"http://127.0.0.1:{upstream.port}", **keys) as proxy:
            while waiting:
                results.append(await run(waiting.pop(), feed, proxy, upstream))

    for feed in feeds:
        waiting = list(wanted)
        await asyncio.gather(*(work(feed, waiting) for _ in range(WORKERS)))
    return results


def patient(seconds: str) -> dict[str, str]:
    """Top-level keys that make the proxy wait so long for the rest of a head."""
    return {
        "listen": f"{{host: 127.0.0.1, port: 0, timeouts: {{head: {seconds}}}}}",
        "defaults": f"{{timeout: {TIMEOUT}}}",
    }


def is_whole(case: Case) -> bool:
    """Returns whether nobody has to wait for more: the case is read to its end."""
    return not plainhttp.requests(case.raw)[1]


def table(results: Iterable[Result]) -> str:
    """Cases, refused, forwarded equal, anything else: one row for each way of sending, in Markdown."""
    lines = ["| sent | cases | refused | forwarded equal | anything else |", "|---|---|---|---|---|"]
    counted: dict[str, Counter[str]] = {}
    for result in results:
        kind = "else" if result.findings else "forwarded" if result.forwarded else "refused"
        counted.setdefault(result.feed, Counter())[kind] += 1
    words = {"whole": "at once", "halves": "in two packets", "bytes": "byte by byte"}
    for feed, count in sorted(counted.items(), key=lambda pair: FEEDS.index(pair[0])):
        shown = (words[feed], count.total(), count["refused"], count["forwarded"], count["else"])
        lines.append("| " + " | ".join(map(str, shown)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Replays the collection and prints the table, and every finding."""
    wanted = cases()
    results = asyncio.run(replay([*wanted, *hosted(wanted)]))
    print(table(results))  # noqa: T201 - a command line prints
    for result in results:
        for finding in result.findings:
            print(f"{result.case.name} ({result.feed}): {finding}")  # noqa: T201


if __name__ == "__main__":
    main()

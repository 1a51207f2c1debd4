"""Requests that the proxy does not accept, over a socket: rejected in JSON, with the reason, and no part of them
forwarded."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from proxy.server.http.request_head import MAX_FIELD, MAX_FIELDS
from tests.serving.proxied import WEATHER, code, proxied, told
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, read_message, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
ROUTES = WEATHER + "  - {path: /, methods: [GET, POST, OPTIONS, PUT], upstream: tools, passthrough: true}\n"
HOST = b"Host: h"
CHUNKED = b"Transfer-Encoding: chunked"


def head(*fields: bytes, line: bytes = b"POST / HTTP/1.1") -> bytes:
    """A head of these lines."""
    return b"".join(part + b"\r\n" for part in (line, *fields, b""))


# Each row: what is sent, and a word of the answer. First what the parser lets pass, then what it refuses itself.
REFUSED = [
    (head(b"Host: a b"), "not a host and port"),
    (head(b"Host: a@b"), "not a host and port"),
    (head(b"Host: a/b"), "not a host and port"),
    (head(b"Host: other", line=b"GET http://h/ HTTP/1.1"), "another host"),
    (head(HOST, line=b"GET ftp://h/ HTTP/1.1"), "neither a path"),
    (head(HOST, line=b"GET http://u@h/ HTTP/1.1"), "neither a path"),
    (head(b"Host: h:99999", line=b"GET http://h:99999/ HTTP/1.1"), "neither a path"),
    (head(b"Host: h:65536", line=b"GET http://h:65536?b HTTP/1.1"), "neither a path"),
    (head(b"Host: [::1]:65536", line=b"GET http://[::1]:65536/ HTTP/1.1"), "neither a path"),
    (head(b"Host: h:123456", line=b"GET http://h:123456/ HTTP/1.1"), "neither a path"),
    (head(HOST, line=b"GET /#a HTTP/1.1"), "`#`"),
    (head(HOST, line=b"CONNECT h:443 HTTP/1.1"), "CONNECT"),
    (head(HOST, line=b"GET / HTTP/2.0"), "Only HTTP/1.1"),
    (head(HOST, line=b"GET / HTTP/0.9"), "Only HTTP/1.1"),
    (head(CHUNKED, line=b"POST / HTTP/1.0") + b"0\r\n\r\n", "HTTP/1.0 knows no"),
    (head(HOST, b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", "single `chunked`"),
    (head(HOST, b"Transfer-Encoding: identity, chunked") + b"0\r\n\r\n", "single `chunked`"),
    (head(HOST, b"Content_Length: 3"), "hyphen"),
    (head(HOST, b"transfer_encoding: chunked"), "hyphen"),
    (head(HOST, b"Connection: upgrade", b"Upgrade: websocket", b"Content-Length: 1") + b"x", "WebSocket has no body"),
    (head(), "Host"),
    (head(HOST, HOST), "Host"),
    (head(HOST, b"Content-Length: 1", b"Content-Length: 1") + b"x", "Content-Length"),
    (head(HOST, b"Content-Length: 1, 1") + b"x", "Content-Length"),
    (head(HOST, b"Content-Length: -1"), "Content-Length"),
    (head(HOST, b"Content-Length: 1", CHUNKED) + b"0\r\n\r\n", "Content-Length"),
    (head(HOST, CHUNKED, CHUNKED) + b"0\r\n\r\n", "Transfer-Encoding"),
    (head(HOST, b"Transfer-Encoding: identity"), "Transfer-Encoding"),
    (head(HOST, b"X : 1"), "well-formed"),
    (head(HOST, b"X: 1", b" 2"), "well-formed"),
    (head(HOST, b"X: 1\n2"), "well-formed"),
    (head(HOST, b"X: 1\r2"), "well-formed"),
    (head(HOST, b"X: 1\x002"), "well-formed"),
    (head(HOST, b"X"), "well-formed"),
    (head(HOST, b"Sec-WebSocket-Key1: 1"), "not allowed"),
    (head(HOST, b"Content-Type: a/b", b"content-type: a/b"), "Content-Type"),
    (head(HOST, line=b"GET / HTTP/1.2"), "well-formed"),
    (head(HOST, line=b"GET h:443 HTTP/1.1"), "neither a path"),
    (head(HOST, line=b"GET * HTTP/1.1"), "neither a path"),
    (head(HOST, line=b"get / HTTP/1.1"), "method"),
    (head(HOST, line=b"FETCH / HTTP/1.1"), "method"),
    (b"\x16\x03\x01\x02\x00\r\n\r\n", "method"),
]


async def test_rejects_and_counts_a_request_with_two_readings_and_says_why() -> None:
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url) as proxy:
        seen = [await exchange(proxy.port, raw) for raw, _ in REFUSED]
        counted = len(proxy.lines())

    assert [(400, "BAD_REQUEST")] * len(REFUSED) == [code(one) for one in seen]
    said = [told(one)["error"]["message"] for one in seen]
    assert [] == [(raw, text) for (raw, word), text in zip(REFUSED, said, strict=True) if word not in text]
    assert (len(REFUSED), []) == (counted, server.seen)


async def test_no_byte_of_a_malformed_request_is_quoted_back_or_logged() -> None:
    async with proxied(ROUTES) as proxy:
        seen = [
            await exchange(proxy.port, head(HOST, b"Authorization: Bearer s3cret\x00")),
            await exchange(proxy.port, head(HOST, line=b"GET s3cret HTTP/1.1")),
            await exchange(proxy.port, head(HOST, b"s3cret")),
        ]

    assert [400, 400, 400] == [one.status for one in seen]
    assert not any(b"s3cret" in one.body for one in seen)
    assert "s3cret" not in proxy.log.getvalue()


TAKEN = [
    head(HOST, b"content-LENGTH:\t03 ") + b"abc",
    head(HOST, b"Transfer-Encoding: Chunked") + b"3\r\nabc\r\n0\r\n\r\n",
    head(line=b"GET / HTTP/1.0"),
    head(b"Host: [::1]:80", b"X: caf\xc3\xa9"),
    head(b"Host: h:80", line=b"GET http://H:80/?b HTTP/1.1"),
    head(b"Host: h:65535", line=b"GET http://h:65535/ HTTP/1.1"),
    head(HOST, b"Upgrade: h2c", b"Content-Length: 1") + b"x",
    b"\r\n" + head(HOST, line=b"GET / HTTP/1.1"),
    head(HOST, *[b"X: y"] * (MAX_FIELDS - 1)),
    head(HOST, b"X: " + b"y" * (MAX_FIELD - 1)),
]


async def test_forwards_a_sound_request() -> None:
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url) as proxy:
        statuses = [(await exchange(proxy.port, raw)).status for raw in TAKEN]

    assert ([200] * len(TAKEN), len(TAKEN)) == (statuses, len(server.seen))


async def test_a_sound_request_makes_no_other_one_sound() -> None:
    """The memory of heads without a fault matches only identical heads."""
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url) as proxy:
        for raw in [*TAKEN, *TAKEN, head(HOST, line=b"GET / HTTP/1.1"), head(HOST, line=b"POST / HTTP/1.1")]:
            await exchange(proxy.port, raw)
        before = len(server.seen)
        seen = [await exchange(proxy.port, raw) for raw, _ in REFUSED]

    assert [400] * len(REFUSED) == [one.status for one in seen]
    assert before == len(server.seen)


@pytest.mark.parametrize(
    "raw",
    [
        head(HOST, *[b"X: y"] * MAX_FIELDS),
        head(HOST, b"X: " + b"y" * (MAX_FIELD + 1)),
        head(HOST, line=b"GET /" + b"a" * MAX_FIELD + b" HTTP/1.1"),
    ],
    ids=["fields", "one field", "the target"],
)
async def test_a_head_has_bounds(raw: bytes) -> None:
    async with proxied(ROUTES) as proxy:
        assert (431, "HEADERS_TOO_LARGE") == code(await exchange(proxy.port, raw))


async def test_extensions_and_trailers_of_a_chunked_body_stay_behind() -> None:
    body = b'A;a;b=c;d="e"\r\n0123456789\r\n00\r\nDigest: x\r\nX-Sum: 1\r\n\r\n'
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url) as proxy:
        await exchange(proxy.port, head(HOST, CHUNKED) + body)

    assert (b"0123456789", None) == (server.seen[0].body, server.seen[0].header("x-sum"))


@pytest.mark.parametrize("chunk", [b"zz\r\n", b"-3\r\nabc\r\n", b"3\r\nabcd\r\n", b"3\nabc\r\n", b"0x3\r\nabc\r\n"])
async def test_a_body_that_breaks_its_chunks_is_refused_at_once_and_reaches_nobody(chunk: bytes) -> None:
    request = head(HOST, CHUNKED, JSON_TYPE.encode(), line=b"POST /weather HTTP/1.1")
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url) as proxy:
        async with asyncio.timeout(300):  # a route waits 30 s for a body
            seen = await exchange(proxy.port, request + b"1\r\n{\r\n", chunk)

    assert ((400, "BAD_REQUEST"), "close", []) == (code(seen), seen.header("connection"), server.seen)


async def test_closes_after_another_upgrade_so_that_the_next_request_is_not_lost_in_silence() -> None:
    upgrade = head(HOST, b"Connection: Upgrade", b"Upgrade: h2c", line=b"GET / HTTP/1.1")
    async with tool(replies(OK)) as server, proxied(ROUTES, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(upgrade + head(HOST, line=b"GET / HTTP/1.1"))
        first, end = await read_message(reader), await reader.read()
        writer.close()

    assert (200, "close", b"", 1) == (first.status, first.header("connection"), end, len(server.seen))


# --- clients that send no more ----------------------------------------------------------------------------------------
async def slowly(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    await asyncio.sleep(0.1)
    writer.write(OK)


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
@pytest.mark.parametrize("body", [b'{"lat": 1}', b'{"lat": []}'])
async def test_a_client_that_half_closes_behind_its_request_gets_its_answer(body: bytes, version: bytes) -> None:
    async with tool(slowly) as server, proxied(WEATHER, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", body).replace(b"HTTP/1.1", version))
        writer.write_eof()
        async with asyncio.timeout(300):
            came = await reader.read()
        writer.close()

    came = came.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert version + (b" 200 OK" if b"1" in body else b" 400 Bad Request") == came.partition(b"\r\n")[0]


async def test_a_client_that_half_closes_behind_several_requests_gets_every_answer() -> None:
    async with tool(slowly) as server, proxied(WEATHER, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", b'{"lat": 1}') * 3)
        writer.write_eof()
        async with asyncio.timeout(300):
            came = await reader.read()
        writer.close()

    assert (3, 3) == (came.count(b"HTTP/1.1 200 OK"), len(server.seen))


async def test_logs_a_client_that_has_left_and_cancels_its_call() -> None:
    async def never(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        raise ConnectionResetError

    async with tool(never) as server, proxied(WEATHER, server.url) as proxy:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(post("/weather", b'{"lat": 1}'))
        await server.arrived.wait()
        writer.close()
        async with asyncio.timeout(300):
            await server.gone.wait()
            await proxy.serving.handler.idle()

    assert ["client_gone"] == [line["outcome"] for line in proxy.lines()]

"""HTTP as a proxy has to speak it, over raw sockets: what crosses and what does not, what is refused and how."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import zlib

import pytest

from tests.serving.proxied import FREE, RELAY, WEATHER, code, proxied, told
from tests.serving.wire import JSON_TYPE, Seen, answer, exchange, post, read_message, replies, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


# --- headers ----------------------------------------------------------------------------------------------------------
async def test_hop_by_hop_fields_of_a_request_end_here_those_named_by_connection_too() -> None:
    sent = (
        "Connection: keep-alive, X-Mine, x-hop",
        "X-Mine: 1",
        "X-HOP: 2",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "TE: trailers, deflate",
        "X_Forwarded_For: 6.6.6.6",
        "Trailer: X-Sum",
        "Upgrade: h2c",
        "Proxy-Authorization: Basic c2VjcmV0",
        "Authorization: Bearer t",
        "X-End: 3",
    )
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', *sent)

    expected = {
        "host",
        "content-type",
        "content-length",
        "authorization",
        "x-end",
        "via",
        "x-request-id",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
    }
    assert expected == server.seen[0].names()


@pytest.mark.parametrize("line", ["Content_Length: 5", "transfer_encoding: chunked"])
async def test_framing_spelt_with_an_underscore_is_refused_since_some_servers_read_it(line: str) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}', line)

    assert ((400, "BAD_REQUEST"), []) == (code(seen), server.seen)


async def test_sends_the_host_of_the_upstream_and_ours_as_forwarded() -> None:
    lies = ("X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: https", "Forwarded: for=6.6.6.6")
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', *lies)

    names = ("host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded")
    expected = (f"127.0.0.1:{server.port}", "127.0.0.1", "http", "tools.test", None)
    assert expected == tuple(server.seen[0].header(name) for name in names)


async def test_hop_by_hop_fields_of_an_answer_end_here_too() -> None:
    reply = answer("200 OK", b"{}", "Connection: x-mine", "X-Mine: 1", "Keep-Alive: timeout=5", "X-End: 2", "X-End: 3")
    async with tool(replies(reply)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}')

    assert {"x-mine", "keep-alive", "connection"}.isdisjoint(seen.names())
    assert ["2", "3"] == [value for name, value in seen.headers if name == "x-end"]


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 2\r\n\r\n{}", b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"]
)
async def test_header_bytes_that_are_not_utf_8_go_back_unchanged(framing: bytes) -> None:
    event_stream = b"Content-Type: text/event-stream\r\n" if b"chunked" in framing else b""
    reply = b"HTTP/1.1 200 OK\r\nX-Said: caf\xe9!\r\n" + event_stream + framing
    head_came = asyncio.Event()

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        if b"chunked" not in framing:
            writer.write(reply)
            return
        head, end, body = reply.partition(b"\r\n\r\n")
        writer.write(head + end)
        await head_came.wait()  # an answer that came at once would go on in one piece
        writer.write(body)

    async with tool(script) as server, proxied(RELAY, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"GET /relay HTTP/1.1\r\nHost: h\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        head_came.set()
        writer.close()

    assert (True, b"chunked" in framing) == (b"\r\nX-Said: caf\xe9!\r\n" in head, b"chunked" in head)


async def test_header_names_reach_the_upstream_as_the_client_spelled_them_in_their_order() -> None:
    arrived = list[bytes]()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    server = await asyncio.start_server(script, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with proxied(WEATHER, url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', "X-oDd: 1", "accept: a/b", "x-lower: 2", "X-oDd: 3", "ACCEPT: c/d")
    server.close()

    lines = arrived[0].decode().split("\r\n")
    own = [line for line in lines if line.lower().startswith(("x-odd", "accept", "x-lower", "content-type"))]
    assert [
        "Content-Type: application/json", "X-oDd: 1", "ACCEPT: a/b", "x-lower: 2", "X-oDd: 3", "ACCEPT: c/d",
    ] == own  # fmt: skip


async def test_a_request_that_comes_round_again_is_stopped() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', "Via: 1.1 front")
        via = server.seen[0].header("via") or ""
        looped = await proxy.post("/weather", b'{"lat": 1}', f"Via: {via}, 1.1 other")

    assert re.fullmatch(r"1\.1 front, 1\.1 toolcall-proxy-[0-9a-f]{8}", via)
    assert (502, "UPSTREAM_UNAVAILABLE") == code(looped)
    assert ("toolcall-proxy; error=proxy_loop_detected", 1) == (looped.header("proxy-status"), len(server.seen))


@pytest.mark.parametrize("given", ["abc-123", "A_b.c-9" * 18, "x" * 128])
async def test_a_well_formed_request_id_is_kept_and_passed_on(given: str) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}', f"X-Request-ID: {given}")

    assert (given, given) == (seen.header("x-request-id"), server.seen[0].header("x-request-id"))


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", "a;b"])
async def test_any_other_request_id_is_replaced(given: str) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}', f"X-Request-ID: {given}")

    made = seen.header("x-request-id") or ""
    assert UUID7.fullmatch(made)
    assert made == server.seen[0].header("x-request-id")


async def test_every_answer_bears_a_request_id_whatever_went_wrong() -> None:
    async with proxied(WEATHER + RELAY) as proxy:
        seen = [
            await proxy.get("/nowhere"),
            await proxy.get("/weather"),
            await proxy.post("/weather", b"{}", content_type="text/plain"),
            await proxy.post("/weather", b"{"),
            await proxy.post("/weather", b'{"lat": 1}'),
            await proxy.get("/relay"),
            await exchange(proxy.port, b"\x16\x03\x01\x02\x00\r\n\r\n"),
        ]

    assert [404, 405, 415, 400, 502, 502, 400] == [one.status for one in seen]
    assert all(UUID7.fullmatch(one.header("x-request-id") or "") for one in seen)
    assert all(one.header("content-type") == "application/json" for one in seen)


async def test_names_the_allowed_methods_for_another_method() -> None:
    async with proxied(WEATHER) as proxy:
        seen = await proxy.get("/weather")

    assert ((405, "METHOD_NOT_ALLOWED"), "POST") == (code(seen), seen.header("allow"))


async def test_an_absolute_target_is_the_path_in_it() -> None:
    request = post("/weather", b'{"lat": 1}').replace(b"POST /weather", b"POST http://tools.test/weather?q=1")
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await exchange(proxy.port, request)

    assert (200, "POST /weather?q=1 HTTP/1.1") == (seen.status, server.seen[0].start)


@pytest.mark.parametrize(("port", "status"), [("65535", 200), ("65536", 400), ("", 200)])
async def test_the_port_of_an_absolute_target_is_one_that_there_is(port: str, status: int) -> None:
    authority = f"tools.test:{port}"
    request = post("/weather", b'{"lat": 1}').replace(b"POST /weather", f"POST http://{authority}/weather".encode())
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await exchange(proxy.port, re.sub(rb"(?i)\r\nhost: [^\r]*", f"\r\nHost: {authority}".encode(), request))

    assert status == seen.status


async def test_a_url_in_the_query_stays_there() -> None:
    request = post("/weather", b'{"lat": 1}').replace(b"POST /weather", b"POST /weather?from=http://a.test/b")
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await exchange(proxy.port, request)

    assert (200, "POST /weather?from=http://a.test/b HTTP/1.1") == (seen.status, server.seen[0].start)


@pytest.mark.parametrize(
    "header", ["X-HTTP-Method-Override: DELETE", "X-Method-Override: PUT", "X_HTTP_Method: PUT", "x-http-method: get"]
)
async def test_a_call_that_asks_to_be_taken_for_another_method_is_refused(header: str) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER + RELAY, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}', header)
        relayed = await proxy.post("/relay", b"{}", header)

    assert ((400, "BAD_REQUEST"), header.partition(":")[0].lower()) == (
        code(seen),
        told(seen)["error"]["message"].split("'")[1],
    )
    assert (200, 1) == (relayed.status, len(server.seen))  # nothing is judged on the second one


async def test_no_header_makes_another_request_of_one_that_was_validated() -> None:
    sent = ("X-Original-URL: /admin", "X-Rewrite-URL: /admin", "X-Original-Method: GET", "X-Envoy-Original-Path: /a")
    names = {line.partition(":")[0].lower() for line in sent}
    async with tool(replies(OK)) as server, proxied(WEATHER + RELAY, server.url) as proxy:
        await proxy.post("/weather", b'{"lat": 1}', *sent)
        await proxy.post("/relay", b"{}", *sent)

    assert [set(), set()] == [seen.names() & names for seen in server.seen]


# --- content type and coding ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=UTF-8",
        'application/json;charset="utf-8"',
        "application/vnd.api+json",
    ],
)
async def test_json_by_any_of_its_names_is_taken(content_type: str) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}', content_type=content_type)

    assert (200, content_type) == (seen.status, server.seen[0].header("content-type"))


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "text/json",
        "application/jsonp",
        "application/json; charset=latin-1",
        "application/json; charset = utf-7",
        "application/json; charset*=utf-8''utf-7",
        "application/json; charset=utf-8; charset=utf-7",
        "application/x-www-form-urlencoded",
        "application/x-www-form-urlencoded, a+json",
        "text/plain, application/json",
        "+json",
        "a/+json",
    ],
)
async def test_anything_else_is_415_and_never_forwarded(content_type: str | None) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}', content_type=content_type)

    assert ((415, "UNSUPPORTED_MEDIA_TYPE"), []) == (code(seen), server.seen)


@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZip", gzip.compress)]
)
async def test_a_compressed_body_is_validated_and_sent_decoded(coding: str, pack: object) -> None:
    body = b'{ "lat": 1.50 }'
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        good = await proxy.post("/weather", pack(body), f"Content-Encoding: {coding}")  # type: ignore[operator]
        bad = await proxy.post("/weather", pack(b'{"lat": []}'), f"Content-Encoding: {coding}")  # type: ignore[operator]

    assert (200, 400) == (good.status, bad.status)
    assert [(body, None)] == [(seen.body, seen.header("content-encoding")) for seen in server.seen]


async def test_a_small_body_that_unpacks_to_a_huge_one_is_413() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    async with proxied(WEATHER) as proxy:
        seen = await proxy.post("/weather", bomb, "Content-Encoding: gzip")

    assert (413, "BODY_TOO_LARGE") == code(seen)


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "foo"])
async def test_an_unknown_coding_is_415(coding: str) -> None:
    async with proxied(WEATHER) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}', f"Content-Encoding: {coding}")

    assert (415, "UNSUPPORTED_MEDIA_TYPE") == code(seen)


async def test_two_codings_on_two_lines_are_as_unknown_as_on_one() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}', "Content-Encoding: identity", "Content-Encoding: gzip")

    assert ((415, "UNSUPPORTED_MEDIA_TYPE"), []) == (code(seen), server.seen)


async def test_a_broken_coding_is_400() -> None:
    async with proxied(WEATHER) as proxy:
        plain = await proxy.post("/weather", b'{"lat": 1}', "Content-Encoding: gzip")
        short = await proxy.post("/weather", gzip.compress(b'{"lat": 1}')[:-4], "Content-Encoding: gzip")
        tail = await proxy.post("/weather", gzip.compress(b'{"lat": 1}') + b"x", "Content-Encoding: gzip")

    assert [(400, "BAD_REQUEST")] * 3 == [code(plain), code(short), code(tail)]


# --- size, Expect -----------------------------------------------------------------------------------------------------
SMALL = FREE.replace("validation: off", "validation: off, limits: {body: 64B}")


async def test_a_body_announced_too_large_is_refused_before_it_is_read() -> None:
    head = b"POST /free HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 10000000000\r\n\r\n"
    async with proxied(SMALL) as proxy:
        seen = await exchange(proxy.port, head)

    assert (413, "BODY_TOO_LARGE") == code(seen)
    assert "64 bytes" in told(seen)["error"]["message"]


async def test_a_chunked_body_is_counted_while_it_comes() -> None:
    head = b"POST /free HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"28\r\n" + b" " * 40 + b"\r\n"
    async with tool(replies(OK)) as server, proxied(SMALL, server.url) as proxy:
        over = await exchange(proxy.port, head, chunk, chunk)
        fits = await exchange(proxy.port, head, chunk, b"2\r\n{}\r\n0\r\n\r\n")

    assert (413, "BODY_TOO_LARGE") == code(over)
    assert (200, b" " * 40 + b"{}", None) == (
        fits.status,
        server.seen[0].body,
        server.seen[0].header("transfer-encoding"),
    )


async def test_continue_is_said_only_to_what_will_be_taken() -> None:
    def expecting(path: str, length: int, content_type: str = "application/json") -> bytes:
        fields = ("Host: t", f"Content-Type: {content_type}", f"Content-Length: {length}", "Expect: 100-continue")
        return "\r\n".join([f"POST {path} HTTP/1.1", *fields, "", ""]).encode()

    async with tool(replies(OK)) as server, proxied(SMALL, server.url) as proxy:
        refused = [
            await exchange(proxy.port, expecting("/free", 65)),
            await exchange(proxy.port, expecting("/free", 2, "text/plain")),
            await exchange(proxy.port, expecting("/nowhere", 2)),
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(expecting("/free", 2))
        interim = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"{}")
        final = await read_message(reader)
        writer.close()

    assert [413, 415, 404] == [seen.status for seen in refused]
    assert (b"HTTP/1.1 100 Continue\r\n\r\n", 200, b"{}") == (interim, final.status, server.seen[0].body)
    assert "expect" not in server.seen[0].names()


async def test_another_expectation_is_417() -> None:
    async with proxied(WEATHER) as proxy:
        seen = await proxy.post("/weather", b"{}", "Expect: 200-maybe")

    assert (417, "EXPECTATION_FAILED") == code(seen)


async def test_a_body_that_does_not_come_is_408() -> None:
    head = b"POST /weather HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
    async with proxied(WEATHER + "    timeout: 100ms\n") as proxy:
        seen = await exchange(proxy.port, head)

    assert (408, "BAD_REQUEST") == code(seen)


# --- what is not HTTP -------------------------------------------------------------------------------------------------
JSON_HEAD = b"Host: t\r\nContent-Type: application/json\r\n"
MALFORMED = {
    "length and chunks": b"POST /weather HTTP/1.1\r\n"
    + JSON_HEAD
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"POST /weather HTTP/1.1\r\n" + JSON_HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a signed length": b"POST /weather HTTP/1.1\r\n" + JSON_HEAD + b"Content-Length: +2\r\n\r\n{}",
    "an unknown transfer coding": b"POST /weather HTTP/1.1\r\n" + JSON_HEAD + b"Transfer-Encoding: xchunked\r\n\r\n",
    "two hosts": b"GET /weather HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a space before the colon": b"GET /weather HTTP/1.1\r\nHost : a\r\n\r\n",
    "a folded field": b"GET /weather HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n",
    "two content types": b"POST /weather HTTP/1.1\r\n"
    + JSON_HEAD
    + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
    "no version": b"GET /weather\r\nHost: a\r\n\r\n",
    "another version": b"GET /weather HTTP/2.0\r\nHost: a\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /weather HTTP/1.0\r\n" + JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no host": b"GET /weather HTTP/1.1\r\n\r\n",
    "a NUL in a field": b"GET /weather HTTP/1.1\r\nHost: a\r\nX: 1\x002\r\n\r\n",
    "TLS": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n",
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_request_is_answered_in_json_counted_and_closed(raw: bytes) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(raw)
        seen = await read_message(reader)
        end = await reader.read()
        writer.close()
        metrics = (await proxy.ask_admin("/metrics")).body.decode()

    assert ((400, "BAD_REQUEST"), b"", []) == (code(seen), end, server.seen)
    assert UUID7.fullmatch(seen.header("x-request-id") or "")
    assert 'toolproxy_errors_total{code="BAD_REQUEST",route="_other",tool="_other"} 1.0' in metrics
    assert [("refused", "BAD_REQUEST")] == [(line["outcome"], line["error.code"]) for line in proxy.lines()]


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /weather HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
        b"GET /weather HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET /" + b"w" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=["one field", "many fields", "the target"],
)
async def test_a_head_that_is_too_large_is_431(raw: bytes) -> None:
    async with proxied(WEATHER) as proxy:
        seen = await exchange(proxy.port, raw)

    assert (431, "HEADERS_TOO_LARGE") == code(seen)


@pytest.mark.parametrize("pause", [0, 0.1], ids=["in one piece", "in two"])
async def test_bad_chunks_are_refused_and_never_forwarded(pause: float, caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /weather HTTP/1.1\r\n" + JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(head + b'5\r\n{"lat\r\n')
        await asyncio.sleep(pause)
        writer.write(b'ZZ\r\n": 1}\r\n0\r\n\r\n')
        seen = await read_message(reader)
        end = await reader.read()
        writer.close()

    assert ((400, "BAD_REQUEST"), [], b"", []) == (code(seen), server.seen, end, caplog.records)


@pytest.mark.parametrize("framing", [b"Transfer-Encoding: chunked", b"Content-Length: 20"])
async def test_an_upload_that_breaks_on_a_passthrough_route_is_the_clients_fault(
    framing: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"PUT /relay HTTP/1.1\r\nHost: t\r\n" + framing + b"\r\n\r\n"
    async with tool(replies(OK)) as server, proxied(RELAY, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(head + b"5\r\nabcde\r\n")
        await asyncio.sleep(0.1)
        writer.write(b"ZZ\r\n--------------\r\n")
        seen = await read_message(reader)
        writer.close()

    expected = (400, None) if framing.startswith(b"T") else (200, b"5\r\nabcde\r\nZZ\r\n------")
    assert expected == (seen.status, server.seen[0].body if server.seen else None)
    assert caplog.records == []


async def test_a_second_request_hidden_in_a_body_stays_a_body() -> None:
    hidden = b'{"lat": 1, "note": "\\r\\n\\r\\nPOST /weather HTTP/1.1"}'
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        await proxy.post("/weather", hidden)

    assert [hidden] == [seen.body for seen in server.seen]


async def test_requests_on_one_connection_are_answered_in_turn() -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(
            post("/weather", b'{"lat": 1}') + post("/weather", b'{"lat": "x"}') + post("/weather", b'{"lat": 3}')
        )
        statuses = [(await read_message(reader)).status for _ in range(3)]
        writer.close()

    assert [200, 400, 200] == statuses
    assert [{"lat": 1}, {"lat": 3}] == [json.loads(seen.body) for seen in server.seen]

"""Requests of the proxy's own, against servers on real sockets that do not mean well."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.core.model.values import UpstreamFault, UpstreamReply
from proxy.interfaces import UpstreamRequest
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import make_client_context
from proxy.upstream.outgoing_client import MAX_ANSWER, MAX_POSTED, OutgoingClient, post_json
from tests.serving.keys import authority, certificate
from tests.serving.wire import JSON_TYPE, Script, Seen, Tool, answer, replies, tls_tool, tool

GOOD = answer("200 OK", b"good", "X-Name: caf\xe9")
LIMIT = 1000


def asking(target: str = "/asked?a=%2F", timeout: float = 5.0, **headers: str) -> UpstreamRequest:
    fields = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return UpstreamRequest("model", "POST", target, fields, b'{"a": 1}', timeout)


def client(url: str, **settings: object) -> OutgoingClient:
    return OutgoingClient(UpstreamSettings("model", url, **settings))  # type: ignore[arg-type]


async def fetched(script: Script, seconds: float = 5.0, **settings: object) -> UpstreamReply | UpstreamFault:
    async with tool(script) as server:
        return await client(server.url, **settings).fetch(asking(timeout=seconds), LIMIT)


def token(reply: UpstreamReply | UpstreamFault) -> str:
    assert isinstance(reply, UpstreamFault)
    return reply.token


# --- what goes out, and what comes back -------------------------------------------------------------------------------
async def test_a_request_goes_out_with_the_headers_it_was_given_and_no_others() -> None:
    async with tool(replies(GOOD)) as server:
        reply = await client(f"{server.url}/v1").fetch(asking(content_type="application/json", x_key="k"), LIMIT)
    assert isinstance(reply, UpstreamReply)
    assert (200, b"good", "caf\xe9") == (reply.status, reply.body, dict(reply.headers)["X-Name"])
    own = (("host", f"127.0.0.1:{server.port}"), ("content-type", "application/json"), ("x-key", "k"))
    sent = Seen("POST /v1/asked?a=%2F HTTP/1.1", (*own, ("content-length", "8"), ("connection", "close")), b'{"a": 1}')
    assert [sent] == server.seen


async def test_no_redirect_is_followed_and_no_cookie_kept() -> None:
    away = answer("302 Found", b"", "Location: /elsewhere", "Set-Cookie: a=b; Path=/")
    async with tool(replies(away)) as server:
        asker = client(server.url)
        statuses = [getattr(await asker.fetch(asking(), LIMIT), "status", None) for _ in range(2)]
    assert [302, 302] == statuses
    assert ["POST /asked?a=%2F HTTP/1.1"] * 2 == [seen.start for seen in server.seen]
    assert [None, None] == [seen.header("cookie") for seen in server.seen]


async def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert 200 == getattr(await fetched(replies(GOOD)), "status", None)


async def test_a_coded_body_stays_coded_for_the_caller_to_decode_within_a_bound() -> None:
    reply = await fetched(replies(answer("200 OK", b"\x1f\x8bnot even gzip", "Content-Encoding: gzip")))
    assert isinstance(reply, UpstreamReply)
    assert b"\x1f\x8bnot even gzip" == reply.body


async def test_a_stream_is_left_when_the_caller_has_enough() -> None:
    async def endless(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await writer.drain()
        await asyncio.sleep(60)

    async with tool(endless) as server:
        reply = await client(server.url).fetch(
            asking(), LIMIT, lambda kind, body: body.endswith(b"\n\n") and "ev" in kind
        )
    assert isinstance(reply, UpstreamReply)
    assert b"data: 1\n\n" == reply.body


# --- bounds -----------------------------------------------------------------------------------------------------------
async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _seen: Seen) -> None:
    await reader.read()  # until the client leaves


def writes(data: bytes, *, then: str) -> Script:
    """Writes and then is silent, closes, resets, or writes for ever."""

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
        writer.write(data)
        await writer.drain()
        if then == "close":
            raise ConnectionResetError
        while then == "on":
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.002)
        await asyncio.sleep(60)

    return script


HEAD = b"HTTP/1.1 200 OK\r\n"
FAULTS: dict[str, tuple[Script, str]] = {
    "silent": (silent, "http_response_timeout"),
    "a head that never ends": (writes(HEAD + b"X: ", then="on"), "http_response_timeout"),
    "interim answers without end": (
        writes(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000, then="silence"),
        "http_response_timeout",
    ),
    "a pause in the body": (writes(HEAD + b"Content-Length: 9\r\n\r\nx", then="silence"), "http_response_timeout"),
    "a body that never ends": (writes(HEAD + b"\r\n", then="on"), "http_response_body_size"),
    "too long": (replies(answer("200 OK", b"x" * (LIMIT + 1))), "http_response_body_size"),
    "closed unanswered": (writes(b"", then="close"), "connection_terminated"),
    "broken off": (writes(HEAD + b"Content-Length: 9\r\n\r\nx", then="close"), "http_response_incomplete"),
    "no HTTP": (writes(b"\x00\x01\x02\r\n\r\n", then="silence"), "http_protocol_error"),
    "a huge field": (replies(answer("200 OK", b"", f"X: {'y' * 40_000}")), "http_protocol_error"),
    "fields without end": (replies(answer("200 OK", b"", *["X: y"] * 500)), "http_protocol_error"),
    "chunks that are none": (
        writes(HEAD + b"Transfer-Encoding: chunked\r\n\r\nnone\r\n", then="silence"),
        "http_protocol_error",
    ),
}  # fmt: skip


@pytest.mark.large
@pytest.mark.parametrize("name", FAULTS)
async def test_a_partial_answer_is_a_fault_in_time(name: str) -> None:
    script, expected = FAULTS[name]
    assert expected == token(await fetched(script, seconds=0.3, idle_timeout=0.3))


async def test_an_answer_of_exactly_the_limit_is_taken() -> None:
    reply = await fetched(replies(answer("200 OK", b"x" * LIMIT)))
    assert isinstance(reply, UpstreamReply)
    assert b"x" * LIMIT == reply.body


async def test_distinguishes_a_closed_port_from_an_unknown_name() -> None:
    found = [token(await client(url).fetch(asking(), LIMIT)) for url in ("http://127.0.0.1:9", "http://nobody.invalid")]
    assert ["connection_refused", "dns_error"] == found


async def test_a_header_that_would_be_two_is_not_sent() -> None:
    async with tool(replies(GOOD)) as server:
        fault = await client(server.url).fetch(asking(x_key="k\r\nx-other: 1"), LIMIT)
    assert ("http_request_error", []) == (token(fault), server.seen)


async def test_gives_up_waiting_for_a_connection_when_all_are_busy() -> None:
    async with tool(silent) as server:
        asker = client(server.url, connections=1, connect_timeout=0.05)
        first = asyncio.create_task(asker.fetch(asking(), LIMIT))
        await server.arrived.wait()
        assert "connection_limit_reached" == token(await asker.fetch(asking(), LIMIT))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await server.gone.wait()
        assert 1 == server.connections


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://user:pass@host"])
def test_a_url_that_is_none_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="an upstream's URL is") as caught:
        client(url)
    assert url not in str(caught.value)


# --- unix sockets and TLS ---------------------------------------------------------------------------------------------
async def test_a_unix_socket_is_spoken_to(tmp_path: Path) -> None:
    upstream = Tool(replies(GOOD))
    server = await asyncio.start_unix_server(upstream.serve, tmp_path / "s")
    async with server:
        reply = await client("http://model.test/v1", socket=str(tmp_path / "s")).fetch(asking(), LIMIT)
        upstream.end()
    assert isinstance(reply, UpstreamReply)
    assert ("POST /v1/asked?a=%2F HTTP/1.1", "model.test") == (
        upstream.seen[0].start,
        upstream.seen[0].header("host"),
    )


def test_tls_over_a_unix_socket_is_refused_and_never_spoken_without_tls() -> None:
    with pytest.raises(ValueError, match="TLS over a unix socket is for calls only"):
        client("https://model.test", socket="/tmp/s")  # noqa: S108 - nothing is opened


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = authority(tmp_path_factory.mktemp("keys"))
    certificate(folder, "server", "DNS:model.test")
    certificate(folder, "client", "DNS:proxy.test")
    return folder


@contextlib.asynccontextmanager
async def certified_tool(keys: Path) -> AsyncIterator[Tool]:
    """A server that wants a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(keys / "ca.pem"))
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    async with tls_tool(context, replies(GOOD)) as server:
        yield server


async def test_tls_is_as_the_settings_say(keys: Path) -> None:
    ours = make_client_context(keys / "ca.pem", keys / "client.pem", keys / "client.key")
    cases = {
        "all is right": (ours, "model.test"),
        "the certificate names another host": (ours, None),
        "an authority nobody here knows": (None, "model.test"),
        "no certificate of ours": (make_client_context(keys / "ca.pem"), "model.test"),
    }
    found = {}
    async with certified_tool(keys) as server:
        for name, (context, server_name) in cases.items():
            asker = client(f"https://127.0.0.1:{server.port}", tls=context, server_name=server_name)
            reply = await asker.fetch(asking(), LIMIT)
            found[name] = reply.token if isinstance(reply, UpstreamFault) else reply.status
    refused = found.pop("no certificate of ours")
    assert {
        "all is right": 200,
        "the certificate names another host": "tls_certificate_error",
        "an authority nobody here knows": "tls_certificate_error",
    } == found
    # An alert of TLS 1.3 may come after a reset, which says nothing.
    assert refused in ("tls_alert_received", "connection_terminated")
    assert 1 == len(server.seen)


# --- webhooks ---------------------------------------------------------------------------------------------------------
async def test_a_value_is_posted_as_json() -> None:
    async with tool(replies(answer("204 No Content", b""))) as server:
        reply = await post_json(client(server.url), "/hook", {"a": [1, None]}, headers=(("authorization", "Bearer k"),))
    assert isinstance(reply, UpstreamReply)
    assert 204 == reply.status
    (seen,) = server.seen
    assert ("POST /hook HTTP/1.1", {"a": [1, None]}, "application/json", "Bearer k") == (
        seen.start, json.loads(seen.body), seen.header("content-type"), seen.header("authorization"),
    )  # fmt: skip


async def dripping(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _seen: Seen) -> None:
    """A body that never ends and never pauses long."""
    writer.write(b"HTTP/1.1 200 OK\r\n" + JSON_TYPE.encode() + b"\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_a_webhook_is_bounded_in_time_and_size() -> None:
    found = []
    for script, value, within in (
        (dripping, {}, 0.2),
        (replies(answer("200 OK", b"x" * (MAX_ANSWER + 1))), {}, 300),
        (replies(GOOD), "x" * MAX_POSTED, 300),
    ):
        async with tool(script) as server:
            fault = await post_json(client(server.url), "/hook", value, seconds=within)
            found.append((token(fault), len(server.seen)))
    assert [("http_response_timeout", 1), ("http_response_body_size", 1), ("http_request_error", 0)] == found

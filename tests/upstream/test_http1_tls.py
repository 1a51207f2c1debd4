"""TLS towards an upstream, with a CA made for the tests by the openssl command line."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from proxy.core.model.codes import UPSTREAM_UNAVAILABLE
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    Document,
    Executed,
    Rung,
    ToolCall,
    UpstreamFault,
    UpstreamReply,
)
from proxy.interfaces import UpstreamRequest
from proxy.upstream import UpstreamSettings
from proxy.upstream.http1 import Http1Upstream, make_client_context
from tests.serving.keys import authority, certificate
from tests.serving.wire import answer, replies, tls_tool

CHECKED = CheckedCall(
    ToolCall("weather", Document(b"{}", {}), "call-1", Conversation("c", Rung.HEADER)), b"{}", {}
)  # fmt: skip
GOOD = answer("200 OK", b"good")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = authority(tmp_path_factory.mktemp("keys"))
    certificate(folder, "server", "DNS:localhost,DNS:tools.test,IP:127.0.0.1")
    certificate(folder, "elsewhere", "DNS:elsewhere.test")
    certificate(folder, "client", "DNS:proxy.test")
    return folder


def server_context(keys: Path, name: str = "server", *, wants_ours: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys / f"{name}.pem", keys / f"{name}.key")
    if wants_ours:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(keys / "ca.pem")
    return context


async def calls(
    url: str, context: ssl.SSLContext | None, count: int = 1, server_name: str | None = None
) -> list[UpstreamReply | UpstreamFault]:
    upstream = Http1Upstream(UpstreamSettings("weather", url, tls=context, server_name=server_name))
    request = UpstreamRequest("weather", "POST", "/api", (), b"{}", 5.0)
    try:
        return [await upstream.send(CHECKED, request) for _ in range(count)]
    finally:
        await upstream.close()


def told(fault: UpstreamReply | UpstreamFault) -> tuple[object, ...]:
    assert isinstance(fault, UpstreamFault)
    return fault.code, fault.token, fault.executed


async def test_a_ca_of_ones_own_is_trusted_and_the_connection_used_again(keys: Path) -> None:
    async with tls_tool(server_context(keys), replies(GOOD)) as server:
        got = await calls(f"https://localhost:{server.port}", make_client_context(keys / "ca.pem"), 5)

    assert [UpstreamReply(200, (("Content-Length", "4"),), b"good")] * 5 == got
    assert 1 == server.connections
    assert f"localhost:{server.port}" == server.seen[0].header("host")


async def test_a_ca_that_is_not_ours_is_refused_before_anything_is_sent(keys: Path) -> None:
    async with tls_tool(server_context(keys), replies(GOOD)) as server:
        (got,) = await calls(f"https://localhost:{server.port}", None)

    assert (UPSTREAM_UNAVAILABLE, "tls_certificate_error", Executed.NO) == told(got)
    assert [] == server.seen


async def test_a_certificate_for_another_host_is_refused_before_anything_is_sent(keys: Path) -> None:
    async with tls_tool(server_context(keys, "elsewhere"), replies(GOOD)) as server:
        (got,) = await calls(f"https://localhost:{server.port}", make_client_context(keys / "ca.pem"))

    assert (UPSTREAM_UNAVAILABLE, "tls_certificate_error", Executed.NO) == told(got)
    assert [] == server.seen


async def test_the_name_the_certificate_carries_can_be_given(keys: Path) -> None:
    async with tls_tool(server_context(keys, "elsewhere"), replies(GOOD)) as server:
        context = make_client_context(keys / "ca.pem")
        (got,) = await calls(f"https://127.0.0.1:{server.port}", context, server_name="elsewhere.test")
        (wrong,) = await calls(f"https://127.0.0.1:{server.port}", context, server_name="tools.test")

    assert isinstance(got, UpstreamReply)
    assert f"127.0.0.1:{server.port}" == server.seen[0].header("host")
    assert "tls_certificate_error" == told(wrong)[1]


async def test_our_certificate_is_shown_to_a_server_that_wants_one(keys: Path) -> None:
    context = make_client_context(keys / "ca.pem", keys / "client.pem", keys / "client.key")
    async with tls_tool(server_context(keys, wants_ours=True), replies(GOOD)) as server:
        got = await calls(f"https://localhost:{server.port}", context, 3)

    assert [UpstreamReply(200, (("Content-Length", "4"),), b"good")] * 3 == got
    assert 1 == server.connections


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_without_our_certificate_such_a_server_never_sees_a_request(keys: Path, version: ssl.TLSVersion) -> None:
    context = server_context(keys, wants_ours=True)
    context.maximum_version = version
    async with tls_tool(context, replies(GOOD)) as server:
        (got,) = await calls(f"https://localhost:{server.port}", make_client_context(keys / "ca.pem"))

    code, token, executed = told(got)
    assert [] == server.seen
    # TLS 1.2 fails within the handshake. TLS 1.3 tells us after our side of it, by an alert or, if we are unlucky, by
    # a reset that comes first and says nothing.
    assert (token, executed) in (
        ("tls_protocol_error", Executed.NO),
        ("tls_alert_received", Executed.NO),
        ("connection_terminated", Executed.UNKNOWN),
    )
    assert UPSTREAM_UNAVAILABLE == code or executed is Executed.UNKNOWN


async def test_an_answer_ended_by_a_connection_that_tls_did_not_end_is_not_whole(keys: Path) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhalf of the ans")
        await writer.drain()
        await asyncio.sleep(0.02)
        writer.transport.abort()  # no close_notify: somebody on the way may have cut it (RFC 9112 section 9.8)

    server = await asyncio.start_server(cut, "127.0.0.1", 0, ssl=server_context(keys))
    port = server.sockets[0].getsockname()[1]
    (got,) = await calls(f"https://localhost:{port}", make_client_context(keys / "ca.pem"))
    server.close()
    await server.wait_closed()

    assert "http_response_incomplete" == told(got)[1]


async def test_an_answer_that_tls_ended_is_whole(keys: Path) -> None:
    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nthe answer")
        writer.close()

    server = await asyncio.start_server(whole, "127.0.0.1", 0, ssl=server_context(keys))
    port = server.sockets[0].getsockname()[1]
    (got,) = await calls(f"https://localhost:{port}", make_client_context(keys / "ca.pem"))
    server.close()
    await server.wait_closed()

    assert UpstreamReply(200, (), b"the answer") == got


async def test_a_large_answer_streams_through_tls(keys: Path) -> None:
    body = bytes(range(256)) * 16_000
    async with tls_tool(server_context(keys), replies(answer("200 OK", body))) as server:
        upstream = Http1Upstream(
            UpstreamSettings("weather", f"https://localhost:{server.port}", tls=make_client_context(keys / "ca.pem"))
        )
        reply = await upstream.relay(UpstreamRequest("weather", "GET", "/", (), b"", 5.0), None)
        assert isinstance(reply, UpstreamReply)
        assert not isinstance(reply.body, bytes)
        found = b"".join([piece async for piece in reply.body])
        await upstream.close()

    assert body == found


def test_files_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        make_client_context(tmp_path / "missing.pem")
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ssl.SSLError):
        make_client_context(certificate=tmp_path / "empty.pem")

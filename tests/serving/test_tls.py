"""TLS and unix sockets, in both directions, from the config to the wire."""

from __future__ import annotations

import asyncio
import contextlib
import io
import socket
import ssl
import stat
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from proxy.config.model import ServerTls
from proxy.server import start_serving
from proxy.server.listener import make_server_context, renew
from proxy.server.setup.upstreams import make_settings
from proxy.upstream.http1 import Http1Upstream
from tests.contract.test_upstream import CHECKED, request
from tests.serving.keys import authority, certificate, openssl
from tests.serving.process import process
from tests.serving.proxied import RELAY, WEATHER, code, proxied
from tests.serving.wire import JSON_TYPE, Seen, Tool, answer, exchange, post, read_message, replies, tls_tool, tool

OK = answer("200 OK", b"{}", JSON_TYPE)
CALL = post("/weather", b'{"lat": 1}')


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = authority(tmp_path_factory.mktemp("keys"))
    certificate(folder, "server", "DNS:localhost,DNS:tools.test,IP:127.0.0.1")
    certificate(folder, "renewed", "DNS:localhost,IP:127.0.0.1")
    certificate(folder, "client", "DNS:agent.test")
    return folder


def trusting(keys: Path, *, client: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    if client:
        context.load_cert_chain(keys / f"{client}.pem", keys / f"{client}.key")
    return context


async def call(port: int, context: ssl.SSLContext, server_name: str = "localhost") -> tuple[Seen, ssl.SSLObject]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=server_name)
    try:
        writer.write(CALL)
        return await read_message(reader), writer.get_extra_info("ssl_object")
    finally:
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()


def listening(keys: Path, more: str = "") -> str:
    return f"{{host: 127.0.0.1, port: 0, tls: {{cert: {keys}/server.pem, key: {keys}/server.key{more}}}}}"


# --- what comes in ----------------------------------------------------------------------------------------------------
async def test_serves_calls_over_tls_and_tells_the_upstream_the_scheme(keys: Path) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url, listen=listening(keys)) as proxy:
        seen, tls = await call(proxy.port, trusting(keys))
        old = trusting(keys)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        _, oldest = await call(proxy.port, old)

    assert proxy.serving.url.startswith("https://127.0.0.1:")
    assert (200, "https") == (seen.status, server.seen[0].header("x-forwarded-proto"))
    assert ("TLSv1.3", "TLSv1.2") == (tls.version(), oldest.version())


async def test_plain_http_on_a_tls_port_gets_no_answer_and_does_no_harm(keys: Path) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url, listen=listening(keys)) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(CALL)
        with contextlib.suppress(ConnectionError):
            assert not (await reader.read()).startswith(b"HTTP/")
        writer.close()
        seen, _ = await call(proxy.port, trusting(keys))

    assert (200, 1) == (seen.status, len(server.seen))


async def test_a_handshake_that_does_not_come_to_its_end_has_its_time(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.server.listener.NEW_TLS_HANDSHAKE", 0.2)
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url, listen=listening(keys)) as proxy:
        slow = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(50)]
        for _, writer in slow:
            writer.write(b"\x16\x03\x01")  # a client's first words, cut off
        seen, _ = await call(proxy.port, trusting(keys))
        async with asyncio.timeout(300):
            ends = [await reader.read() for reader, _ in slow]
        for _, writer in slow:
            writer.close()

    assert (200, [b""] * 50) == (seen.status, ends)


async def test_no_client_can_renegotiate_keys_on_an_open_connection(keys: Path) -> None:
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url, listen=listening(keys)) as proxy:
        words = f"s_client -connect 127.0.0.1:{proxy.port} -tls1_2 -CAfile {keys}/ca.pem"
        client = await asyncio.create_subprocess_exec("openssl", *words.split(), stdin=PIPE, stdout=PIPE, stderr=STDOUT)
        assert client.stdin is not None
        assert client.stdout is not None
        async with asyncio.timeout(300):
            said = await client.stdout.readuntil(b"Extended master secret")  # the handshake is over
            client.stdin.write(b"R\n")  # asks for another one
            said += await client.stdout.read()
        await client.wait()
        seen, _ = await call(proxy.port, trusting(keys))

    assert b"RENEGOTIATING" in said
    assert b"no renegotiation" in said
    assert 200 == seen.status


@pytest.mark.parametrize("name", ["other.test", "a" * 63 + ".test", "x." * 100 + "test"])
async def test_any_name_of_a_client_is_shown_the_one_certificate(keys: Path, name: str) -> None:
    context = trusting(keys)
    context.check_hostname = False
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url, listen=listening(keys)) as proxy:
        seen, tls = await call(proxy.port, context, name)

    subject = dict(pair for part in tls.getpeercert()["subject"] for pair in part)  # type: ignore[index, misc]
    assert (200, "server") == (seen.status, subject["commonName"])


async def test_client_ca_admits_only_clients_with_a_certificate_of_the_authority(keys: Path) -> None:
    listen = listening(keys, f", client_ca: {keys}/ca.pem")
    async with tool(replies(OK)) as server, proxied(WEATHER, server.url, listen=listen) as proxy:
        seen, _ = await call(proxy.port, trusting(keys, client="client"))
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await call(proxy.port, trusting(keys))

    assert (200, 1) == (seen.status, len(server.seen))


def test_a_renewed_certificate_is_shown_without_a_new_port(keys: Path, tmp_path: Path) -> None:
    for suffix in ("pem", "key"):
        (tmp_path / f"live.{suffix}").write_bytes((keys / f"server.{suffix}").read_bytes())
    tls = ServerTls(str(tmp_path / "live.pem"), str(tmp_path / "live.key"))
    context = make_server_context(tls)
    before = shown(context, keys)
    for suffix in ("pem", "key"):
        (tmp_path / f"live.{suffix}").write_bytes((keys / f"renewed.{suffix}").read_bytes())
    renew(context, tls)

    assert ("server", "renewed") == (before, shown(context, keys))


async def test_a_reload_shows_the_renewed_certificate(keys: Path, tmp_path: Path) -> None:
    def put(name: str) -> None:
        for suffix in ("pem", "key"):
            (tmp_path / f"live.{suffix}").write_bytes((keys / f"{name}.{suffix}").read_bytes())

    put("server")
    listen = f"{{host: 127.0.0.1, port: 0, tls: {{cert: {tmp_path}/live.pem, key: {tmp_path}/live.key}}}}"
    async with tool(replies(OK)) as server:
        (tmp_path / "c.yaml").write_text(
            f"version: 1\nlisten: {listen}\nadmin: off\nupstreams: {upstreams(server.url)}\nroutes:{WEATHER}"
        )
        serving = await start_serving(load(tmp_path / "c.yaml", {}), log_to=io.StringIO())
        port = urlsplit(serving.url).port or 0
        _, before = await call(port, trusting(keys))
        put("renewed")
        reloaded = await serving.reloader.reload()
        _, after = await call(port, trusting(keys))
        await serving.stop(grace=0.5)

    assert ("server", "success", "renewed", ()) == (
        common_name(before.getpeercert()),
        reloaded.result,
        common_name(after.getpeercert()),
        reloaded.restart_needed,
    )


def shown(context: ssl.SSLContext, keys: Path) -> str:
    """The common name that a server context shows, by a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting(keys).wrap_bio(to_client, to_server, server_hostname="localhost")
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return common_name(client.getpeercert())


def common_name(certificate: Any) -> str:
    """The name in a peer's certificate."""
    return str(dict(part[0] for part in certificate["subject"])["commonName"])


async def test_a_unix_socket_has_the_permissions_of_the_config_and_knows_no_address(tmp_path: Path) -> None:
    path = tmp_path / "in.sock"
    listen = f"{{unix: {path}, mode: '0600'}}"
    keys = {"forwarded": "{trusted: [unix]}"}
    async with tool(replies(OK)) as server:
        for more in ({}, keys):
            async with proxied(WEATHER, server.url, listen=listen, **more):
                mode = stat.S_IMODE(path.stat().st_mode)
                reader, writer = await asyncio.open_unix_connection(path)
                writer.write(CALL.replace(b"\r\n\r\n", b"\r\nX-Forwarded-For: 203.0.113.7\r\n\r\n"))
                seen = await read_message(reader)
                writer.close()
            assert (0o600, 200) == (mode, seen.status)

    assert [None, "203.0.113.7"] == [seen.header("x-forwarded-for") for seen in server.seen]


async def test_the_name_that_a_client_gives_its_own_unix_socket_is_no_address_of_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as named:
        named.bind(str(tmp_path / "203.0.113.9, me\r\nX-Evil: 1"))
        async with tool(replies(OK)) as server, proxied(WEATHER, server.url, listen=f"unix:{tmp_path / 'in.sock'}"):
            named.connect(str(tmp_path / "in.sock"))
            reader, writer = await asyncio.open_unix_connection(sock=named)
            writer.write(CALL)
            seen = await read_message(reader)
            writer.close()

    assert (200, None) == (seen.status, server.seen[0].header("x-forwarded-for"))


async def test_trusted_hops_are_believed_and_others_are_not() -> None:
    said = ("X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https")
    async with tool(replies(OK)) as server:
        for trusted in ("[10.0.0.0/8]", "[127.0.0.0/8]"):
            async with proxied(WEATHER, server.url, forwarded=f"{{trusted: {trusted}}}") as proxy:
                await proxy.post("/weather", b'{"lat": 1}', *said)

    assert [("127.0.0.1", "http"), ("203.0.113.7, 127.0.0.1", "https")] == [
        (seen.header("x-forwarded-for"), seen.header("x-forwarded-proto")) for seen in server.seen
    ]


# --- what goes out ----------------------------------------------------------------------------------------------------
@contextlib.asynccontextmanager
async def certified_tool(keys: Path, *, wants_ours: bool = False) -> AsyncIterator[Tool]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    if wants_ours:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(keys / "ca.pem")
    async with tls_tool(context, replies(OK)) as server:
        yield server


def upstreams(url: str, tls: str = "") -> str:
    return f"{{tools: {{url: '{url}'{tls and f', tls: {{{tls}}}'}}}}}"


@pytest.mark.parametrize(
    ("host", "tls", "status"),
    [
        ("localhost", "ca: {keys}/ca.pem", 200),
        ("127.0.0.1", "ca: {keys}/ca.pem, server_name: tools.test", 200),
        ("127.0.0.1", "ca: {keys}/ca.pem, server_name: other.test", None),
        ("localhost", "", None),
        ("localhost", "verify: off", 200),
    ],
)
async def test_an_upstreams_certificate_is_checked_as_the_config_says(
    keys: Path, tmp_path: Path, host: str, tls: str, status: int | None
) -> None:
    async with certified_tool(keys) as server:
        url = f"https://{host}:{server.port}"
        path = tmp_path / "c.yaml"
        path.write_text(
            f"version: 1\nupstreams: {upstreams(url, tls.format(keys=keys))}\n"
            "routes: [{path: /weather, upstream: tools, passthrough: true}]\n"
        )
        upstream = Http1Upstream(make_settings(load(path, {}).config.upstreams["tools"]))
        reply = await upstream.send(CHECKED, request())
        await upstream.close()

    assert status == getattr(reply, "status", None), reply
    assert status is not None or "tls_certificate_error" == getattr(reply, "token", "")


async def test_the_command_trusts_the_authorities_of_the_system_for_its_upstreams(keys: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    async with certified_tool(keys) as server:
        path.write_text(
            "version: 1\nlisten: 127.0.0.1:0\nadmin: off\n"
            f"upstreams: {upstreams(f'https://localhost:{server.port}')}\n"
            "routes: [{path: /weather, upstream: tools, passthrough: true}]\n"
        )
        async with process(path, SSL_CERT_FILE=str(keys / "ca.pem")) as running:
            trusted = await exchange(running.port, CALL)
        async with process(path) as running:
            unknown = await exchange(running.port, CALL)

    assert (200, 502) == (trusted.status, unknown.status)


async def test_the_proxy_shows_an_upstream_its_certificate(keys: Path) -> None:
    async with certified_tool(keys, wants_ours=True) as server:
        url = f"https://localhost:{server.port}"
        ours = f"ca: {keys}/ca.pem, cert: {keys}/client.pem, key: {keys}/client.key"
        async with proxied(WEATHER, upstreams=upstreams(url, ours)) as proxy:
            good = await proxy.post("/weather", b'{"lat": 1}')
        async with proxied(WEATHER, upstreams=upstreams(url, f"ca: {keys}/ca.pem")) as proxy:
            bad = await proxy.post("/weather", b'{"lat": 1}')

    assert (200, 502, 1) == (good.status, bad.status, len(server.seen))


async def test_an_untrusted_upstream_gets_no_call(keys: Path) -> None:
    async with certified_tool(keys) as server, proxied(WEATHER, f"https://localhost:{server.port}") as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}', "Authorization: Bearer secret")

    assert ((502, "UPSTREAM_UNAVAILABLE"), []) == (code(seen), server.seen)
    assert "toolcall-proxy; error=tls_certificate_error" == seen.header("proxy-status")


@pytest.mark.parametrize(("suffix", "path"), [("", "/weather"), (":/api", "/api/weather")])
async def test_an_upstream_may_listen_on_a_unix_socket(tmp_path: Path, suffix: str, path: str) -> None:
    upstream = Tool(replies(OK))
    server = await asyncio.start_unix_server(upstream.serve, tmp_path / "tool.sock")
    async with proxied(WEATHER, f"unix:{tmp_path}/tool.sock{suffix}") as proxy:
        seen = await proxy.post("/weather", b'{"lat": 1}')
    upstream.end()
    server.close()

    assert (200, f"POST {path} HTTP/1.1", "localhost") == (
        seen.status,
        upstream.seen[0].start,
        upstream.seen[0].header("host"),
    )


async def test_the_longest_answer_kept_in_memory_is_the_configs() -> None:
    body = b"x" * 5000
    async with tool(replies(answer("200 OK", body))) as server:
        settings = f"{{tools: {{url: '{server.url}', buffer: 4KiB}}}}"
        async with proxied(WEATHER + RELAY, upstreams=settings) as proxy:
            seen = await proxy.post("/weather", b'{"lat": 1}')

    assert (200, body) == (seen.status, seen.body)


# --- mistakes ---------------------------------------------------------------------------------------------------------
def mistakes(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "c.yaml"
    path.write_text(f"version: 1\n{text}\nroutes: [{{path: /a, upstream: none, tool: x, validation: off}}]\n")
    with pytest.raises(ConfigError) as raised:
        load(path, {"TOKEN": "short"})
    return [str(mistake).split("c.yaml:", 1)[1] for mistake in raised.value.mistakes]


def test_a_certificate_that_cannot_be_used_is_a_mistake_of_the_config(keys: Path, tmp_path: Path) -> None:
    openssl(keys, "pkey -aes128 -passout pass:x -in server.key -out locked.key")
    (keys / "empty.pem").write_text("")
    found = {
        "missing": mistakes(tmp_path, "listen: {port: 0, tls: {cert: nowhere.pem}}"),
        "another key": mistakes(tmp_path, f"listen: {{port: 0, tls: {{cert: {keys}/server.pem, key: {keys}/ca.key}}}}"),
        "encrypted": mistakes(
            tmp_path, f"listen: {{port: 0, tls: {{cert: {keys}/server.pem, key: {keys}/locked.key}}}}"
        ),
        "no authority": mistakes(tmp_path, f"upstreams: {{u: {{url: 'https://h', tls: {{ca: {keys}/empty.pem}}}}}}"),
        "half a pair": mistakes(tmp_path, f"upstreams: {{u: {{url: 'https://h', tls: {{key: {keys}/server.key}}}}}}"),
        "no https": mistakes(tmp_path, "upstreams: {u: {url: 'http://h', tls: {verify: off}}}"),
    }

    assert [1] * 6 == [len(each) for each in found.values()], found
    assert "cannot read nowhere.pem: No such file" in found["missing"][0]
    assert "the certificate and its key cannot be used" in found["another key"][0] + found["encrypted"][0]
    assert "the authorities cannot be used" in found["no authority"][0]
    assert "a key without its certificate" in found["half a pair"][0]
    assert "`tls` has no effect on this url" in found["no https"][0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("listen: {unix: /run/x, mode: 0660}", "`mode` expects permissions in quotes"),
        ("listen: {port: 0, mode: '0660'}", "`mode` has no effect without a unix socket"),
        ("forwarded: {trusted: [10.0.0.1/8]}", "this is not a network: 10.0.0.1/8 has host bits set"),
        ("forwarded: {trusted: [lan]}", "this is not a network"),
        ("defaults: {auth: {bearer: [plain-token-0123456789]}}", "the token 'token-1' would be in the file"),
        ("defaults: {auth: {bearer: {ci: '${TOKEN}'}}}", "the token 'ci' is empty, too short or has other characters"),
        (f"defaults: {{auth: {{bearer: ['sha256:{'a' * 64}', 'sha256:{'A' * 64}']}}}}", "are the same"),
        ("defaults: {auth: {forward: on}}", "'bearer' is missing"),
        ("defaults: {cors: {origins: [app.test]}}", "an origin such as https://app.example.com, or *"),
        ("defaults: {cors: on}", "`cors` expects off, upstream, or a mapping"),
    ],
)
def test_rejects_meaningless_keys_of_connections(tmp_path: Path, text: str, told: str) -> None:
    (found,) = mistakes(tmp_path, text)

    assert told in found


def test_keeps_only_the_hash_of_a_token_from_a_secret_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file-0123456789\n")
    path = tmp_path / "c.yaml"
    path.write_text(
        "version: 1\ndefaults: {auth: {bearer: {agent: '${file:token}', ci: '${CI_TOKEN}'}}}\n"
        "routes: [{path: /a, upstream: none, tool: x, validation: off}]\n"
    )
    config = load(path, {"CI_TOKEN": "from-the-env-0123456789"}).config
    auth = config.routes[0].policy.auth

    assert auth is not None
    assert (["agent", "ci"], [32, 32]) == ([name for name, _ in auth.tokens], [len(key) for _, key in auth.tokens])
    assert "0123456789" not in repr(config) + repr(config.written)

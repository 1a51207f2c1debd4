"""Rules about the client's certificate, which TLS has verified (`listen.tls.client_ca`)."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from tests.extensions.access.issuer import OK
from tests.serving.keys import authority, certificate
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, post, read_message, replies, tool


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = authority(tmp_path_factory.mktemp("keys"))
    certificate(folder, "server", "DNS:localhost,IP:127.0.0.1")
    certificate(folder, "batch", "URI:spiffe://example/ns/jobs/batch")
    certificate(folder, "agent", "DNS:agent.svc")
    return folder


async def call(port: int, keys: Path, client: str) -> Seen:
    context = ssl.create_default_context(cafile=str(keys / "ca.pem"))
    context.load_cert_chain(keys / f"{client}.pem", keys / f"{client}.key")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    try:
        writer.write(post("/weather", b"{}"))
        return await read_message(reader)
    finally:
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    ("names", "statuses"),
    [
        ("'URI:spiffe://example/ns/jobs/*'", [200, 403]),
        ("['DNS:*.svc', 'CN:nobody']", [403, 200]),
        ("'CN:batch'", [200, 403]),
        ("'DNS:batch'", [403, 403]),
        ("'spiffe://*'", [403, 403]),
    ],
)
async def test_a_rule_holds_for_the_certificates_that_it_names(keys: Path, names: str, statuses: list[int]) -> None:
    tls = f"{{cert: {keys}/server.pem, key: {keys}/server.key, client_ca: {keys}/ca.pem}}"
    rule = f"allow: [{{when: {{certificate: {names}}}}}]"
    route = f"  - {{path: /weather, upstream: tools, tool: weather, schema: {{type: object}}, {rule}}}"
    listen = f"{{host: 127.0.0.1, port: 0, tls: {tls}}}"
    async with tool(replies(OK)) as server, proxied(route, server.url, listen=listen) as proxy:
        assert statuses == [(await call(proxy.port, keys, client)).status for client in ("batch", "agent")]

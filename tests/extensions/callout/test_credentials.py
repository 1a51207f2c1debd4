"""Credentials of the proxy: a token or a client certificate from a file, which no log, metric or dump shows."""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.server import start_serving
from tests.extensions.callout.service import OK, ROUTES, says
from tests.serving.keys import authority, certificate
from tests.serving.proxied import Proxied, code
from tests.serving.wire import Tool, replies, tls_tool, tool

GOOD = b'{"amount": 1}'


@contextlib.asynccontextmanager
async def serving(folder: Path, server: Tool, policy: str) -> AsyncIterator[Proxied]:
    """A proxy whose upstream `policy` is written so, and that looks at its files all the time."""
    (folder / "c.yaml").write_text(f"""
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
reload: {{interval: 50ms}}
upstreams:
  tools: {{url: "{server.url}"}}
  policy: {policy}
callout: [{{name: policy, upstream: policy}}]
routes:
{ROUTES % ""}
""")
    log = io.StringIO()
    started = await start_serving(load(folder / "c.yaml", {}), log_to=log, environ={}, watch=True)
    try:
        yield Proxied(started, log)
    finally:
        await started.stop(grace=0.5)


async def test_a_token_comes_from_a_file_follows_it_and_is_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first-s3cret\n")
    header = '"Bearer ${file:%s}"' % (tmp_path / "token")
    async with tool(replies(OK)) as server, tool(says({"action": "allow"})) as service:
        policy = f'{{url: "{service.url}", headers: {{set: {{Authorization: {header}}}}}}}'
        async with serving(tmp_path, server, policy) as proxy:
            assert 200 == (await proxy.post("/pay", GOOD)).status
            (tmp_path / "token").write_text("second-s3cret\n")
            async with asyncio.timeout(60):
                while service.seen[-1].header("authorization") != "Bearer second-s3cret":
                    assert 200 == (await proxy.post("/pay", GOOD)).status
                    await asyncio.sleep(0.02)
            shown = [(await proxy.ask_admin(page)).body.decode() for page in ("/metrics", "/-/config")]
    assert "Bearer first-s3cret" == service.seen[0].header("authorization")
    assert "s3cret" not in "".join([*shown, proxy.log.getvalue()])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = authority(tmp_path_factory.mktemp("keys"))
    certificate(folder, "server", "DNS:policy.test")
    certificate(folder, "client", "DNS:proxy.test")
    return folder


@pytest.mark.parametrize(("own", "status"), [(True, 200), (False, 503)])
async def test_a_client_certificate_comes_from_files(keys: Path, tmp_path: Path, own: bool, status: int) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(keys / "ca.pem"))
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    mine = f", cert: {keys}/client.pem, key: {keys}/client.key" if own else ""
    async with tool(replies(OK)) as server, tls_tool(context, says({"action": "allow"})) as service:
        tls = f"{{ca: {keys}/ca.pem, server_name: policy.test{mine}}}"
        policy = f'{{url: "https://127.0.0.1:{service.port}", tls: {tls}}}'
        async with serving(tmp_path, server, policy) as proxy:
            seen = await proxy.post("/pay", GOOD)
    assert status == seen.status
    assert int(own) == len(server.seen)


async def test_a_service_without_the_right_certificate_is_not_asked(keys: Path, tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys / "server.pem", keys / "server.key")
    async with tool(replies(OK)) as server, tls_tool(context, says({"action": "allow"})) as service:
        policy = f'{{url: "https://127.0.0.1:{service.port}", tls: {{ca: {keys}/ca.pem, server_name: other.test}}}}'
        async with serving(tmp_path, server, policy) as proxy:
            assert (503, "HOOK_FAILED") == code(await proxy.post("/pay", GOOD))
    assert ([], []) == (service.seen, server.seen)


async def test_a_reload_adds_changes_and_removes_call_outs(tmp_path: Path) -> None:
    async with (
        tool(replies(OK)) as server,
        tool(says({"action": "refuse", "message": "No."})) as service,
        serving(tmp_path, server, f'{{url: "{service.url}"}}') as proxy,
    ):
        assert 403 == (await proxy.post("/pay", GOOD)).status
        text = (tmp_path / "c.yaml").read_text()
        kept = [line for line in text.splitlines() if not line.startswith(("callout", "  policy"))]
        (tmp_path / "c.yaml").write_text("\n".join(kept))
        async with asyncio.timeout(60):
            while (await proxy.post("/pay", GOOD)).status != 200:
                await asyncio.sleep(0.02)
        (tmp_path / "c.yaml").write_text(text)
        async with asyncio.timeout(60):
            while (await proxy.post("/pay", GOOD)).status != 403:
                await asyncio.sleep(0.02)

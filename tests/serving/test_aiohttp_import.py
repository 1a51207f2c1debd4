"""aiohttp is imported without the system's certificates, and its client still trusts what the system trusts."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
from pathlib import Path

from tests.serving.keys import authority, certificate
from tests.serving.wire import JSON_TYPE, answer, replies, tls_tool

COUNT = """
import json, ssl
read, usual = [], ssl.SSLContext.load_default_certs
def load(context, *args):
    read.append(1)
    usual(context, *args)
ssl.SSLContext.load_default_certs = load
import proxy.server
before = len(read)
import aiohttp, asyncio
async def ask():
    async with aiohttp.ClientSession() as session, session.get(URL) as reply:
        return await reply.text()
async def refuse():
    try:
        return await ask()
    except aiohttp.ClientConnectorCertificateError:
        return "not trusted"
print(json.dumps([before, asyncio.run(refuse()), len(read), ssl.create_default_context.__module__]))
"""


async def import_and_ask(url: str, trusted: str) -> object:
    """What a fresh process read of the system's certificates before and after it asked `url`, and its answer."""
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", COUNT.replace("URL", repr(url))], capture_output=True, check=True,
        env={**os.environ, "SSL_CERT_FILE": trusted},
    )  # fmt: skip
    return json.loads(ended.stdout)


async def test_certificates_are_read_at_the_first_connection_and_decide_whom_the_client_trusts(tmp_path: Path) -> None:
    authority(tmp_path)
    certificate(tmp_path, "server", "DNS:localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    async with tls_tool(context, replies(answer("200 OK", b"good", JSON_TYPE))) as server:
        url = f"https://localhost:{server.port}/"
        trusted = await import_and_ask(url, str(tmp_path / "ca.pem"))
        other = await import_and_ask(url, os.devnull)

    assert [0, "good", 1, "ssl"] == trusted
    assert [0, "not trusted", 1, "ssl"] == other

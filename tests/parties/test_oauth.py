"""OAuth through the proxy: the SDKs' own clients, and the authorization server of the SDK's examples.

The guarded server names its own address as the resource, as a remote one does. With `resource: rewrite`, clients are
sent to the same authorization server and get their token for the address of the proxy.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parties.environment import HERE, NODE, asked, needs, proxy, python, running
from tests.ports import hold_port

pytestmark = pytest.mark.large

EXAMPLE = NODE / "node_modules/@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js"
CLIENTS = {
    "python": [python("py2"), str(HERE / "clients" / "oauth.py")],
    "typescript": ["node", str(HERE / "clients" / "oauth.mjs"), str(NODE)],
}


@contextlib.contextmanager
def guarded() -> Iterator[int]:
    """The example server with its authorization server: the port of the first."""
    words = ["node", "--require", str(HERE / "servers" / "oauth.cjs"), str(EXAMPLE), "--oauth"]
    environment = {**os.environ, "MCP_PORT": str(hold_port()), "MCP_AUTH_PORT": str(hold_port())}
    with running(words, env=environment, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the guarded server ended before it served"
        yield int(json.loads(line)["guarded"])


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    needs("py2", "node")
    with guarded() as port:
        yield port


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_its_token_for_a_remote_server_behind_the_proxy(client: str, server: int, tmp_path: Path) -> None:
    direct = asked(CLIENTS[client], f"http://localhost:{server}/mcp")
    config = tmp_path / "config.yaml"
    config.write_text(
        f"version: 1\nadmin: off\nupstreams: {{remote: {{url: 'http://localhost:{server}'}}}}\n"
        "routes: [{path: /tools, upstream: remote, upstream_path: /mcp, protocol: mcp, mcp: {resource: rewrite}}]\n"
    )
    with proxy(config) as port:
        assert direct == asked(CLIENTS[client], f"http://localhost:{port}/tools")
    assert "greet" in direct

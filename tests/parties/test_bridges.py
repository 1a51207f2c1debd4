"""The Go SDK, and programs that turn one transport into another: mcp-remote and supergateway, in front of the proxy and
behind it.

A clean session has to be the one that the client has without the proxy. Of the mistakes none may arrive wrong.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.parties.environment import CLIENTS, GO_SDK, HERE, PARTIES, SCHEMA, asked, needs, proxy, running, servers
from tests.parties.mistakes import OBJECTS, verdict
from tests.parties.test_clients import CALLS, MISTAKES

pytestmark = pytest.mark.large

GUARD: Final = [sys.executable, "-m", "proxy", "stdio", "--"]
GO_SERVER: Final = [*GO_SDK, "stdio", str(SCHEMA)]
MODULES: Final = PARTIES / "bridges" / "node_modules"
ROUTE: Final = "protocol: mcp, attempts: {address: 'off'}"


@contextlib.contextmanager
def fronted(url: str, folder: Path) -> Iterator[str]:
    """The URL of a route in front of a server."""
    config = folder / "config.yaml"
    config.write_text(
        f"version: 1\nadmin: off\nupstreams: {{server: {{url: '{url}'}}}}\n"
        f"routes: [{{path: /mcp, upstream: server, {ROUTE}}}]\n"
    )
    with proxy(config) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@contextlib.contextmanager
def gateway(command: list[str]) -> Iterator[str]:
    """The URL of supergateway in front of a command."""
    loopback = str(HERE / "servers" / "loopback.cjs")
    words = ["node", "--require", loopback, str(MODULES / "supergateway/dist/index.js"), "--stdio", shlex.join(command)]
    with running([*words, "--outputTransport", "streamableHttp", "--stateful"], stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        (port,) = json.loads(process.stdout.readline()).values()
        yield f"http://127.0.0.1:{port}/mcp"


def remote(url: str, folder: Path) -> list[str]:
    """mcp-remote as the command for an URL."""
    words = ["node", str(MODULES / "mcp-remote/dist/proxy.js"), url, "--allow-http", "--transport", "http-only"]
    return ["env", f"MCP_REMOTE_CONFIG_DIR={folder / 'remote'}", *words]


def hold(client: list[str], direct: object, through: object) -> None:
    """Holds a client's session through the proxy against the one without, and then sends mistakes."""
    clean = asked(client, {"direct": direct, "through": through}, {"direct": CALLS, "through": CALLS})
    assert {"tools", "calls"} <= clean["direct"].keys(), clean["direct"]
    assert clean["direct"] == clean["through"]
    told = asked(client, {"through": through}, {"through": MISTAKES})["through"]
    assert {mistake.name: "" for mistake in OBJECTS} == {
        mistake.name: verdict(mistake, answer) for mistake, answer in zip(OBJECTS, told["calls"], strict=True)
    }


@pytest.mark.parametrize("revision", ["2025-06-18", ""])
def test_a_client_and_a_server_of_the_go_sdk_over_http(revision: str, tmp_path: Path) -> None:
    needs("gosdk")
    with servers("go") as ports:
        direct = f"http://127.0.0.1:{ports['go']}"
        with fronted(direct, tmp_path) as through:
            hold([*GO_SDK, "client", revision], f"{direct}/mcp", through)


def test_a_client_and_a_server_of_the_go_sdk_over_stdio() -> None:
    needs("gosdk")
    hold([*GO_SDK, "client", ""], GO_SERVER, [*GUARD, *GO_SERVER])


@pytest.mark.parametrize("client", ["mcp1", "mcp2-modern", "ts2"])
def test_other_clients_at_a_server_of_the_go_sdk(client: str, tmp_path: Path) -> None:
    needs("gosdk", "py1", "py2", "node")
    with servers("go") as ports:
        direct = f"http://127.0.0.1:{ports['go']}"
        with fronted(direct, tmp_path) as through:
            hold(CLIENTS[client], f"{direct}/mcp", through)


def test_supergateway_behind_the_proxy(tmp_path: Path) -> None:
    needs("gosdk", "bridges", "py1")
    with gateway(GO_SERVER) as direct, fronted(direct.removesuffix("/mcp"), tmp_path) as through:
        hold(CLIENTS["mcp1"], direct, through)


def test_supergateway_in_front_of_the_proxy() -> None:
    needs("gosdk", "bridges", "py1")
    with gateway(GO_SERVER) as direct, gateway([*GUARD, *GO_SERVER]) as through:
        hold(CLIENTS["mcp1"], direct, through)


def test_mcp_remote_in_front_of_the_proxy(tmp_path: Path) -> None:
    needs("gosdk", "bridges", "py1")
    with servers("go") as ports:
        direct = f"http://127.0.0.1:{ports['go']}"
        with fronted(direct, tmp_path) as through:
            hold(CLIENTS["mcp1"], remote(f"{direct}/mcp", tmp_path / "a"), remote(through, tmp_path / "b"))


def test_mcp_remote_behind_the_proxy(tmp_path: Path) -> None:
    needs("gosdk", "bridges", "py1")
    with servers("go") as ports:
        direct = remote(f"http://127.0.0.1:{ports['go']}/mcp", tmp_path)
        hold(CLIENTS["mcp1"], direct, [*GUARD, *direct])

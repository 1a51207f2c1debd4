"""Real clients and servers over stdio: every client starts `toolcall-proxy stdio`, which starts every server.

A session has to be the one that the client has with the server itself, mistakes aside; those are judged as over HTTP.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.parties.environment import CLIENTS, EVERYTHING, HERE, NODE, asked, needs, proxy, python
from tests.parties.mistakes import BOOK, OBJECTS, verdict
from tests.parties.test_clients import CALLS, MISTAKES
from tests.parties.test_clients import EVERYTHING as EVERYTHING_CALLS

pytestmark = pytest.mark.large

# Servers as a client's config would name them: a command that speaks stdio.
COMMANDS: Final[dict[str, list[str]]] = {
    "high": [python("py2"), str(HERE / "servers" / "python.py"), "high"],
    "low": [python("py2"), str(HERE / "servers" / "python.py"), "low"],
    "fastmcp": [python("py2"), str(HERE / "servers" / "python.py"), "fastmcp"],
    "ts1": ["node", str(HERE / "servers" / "typescript.mjs"), str(NODE), "ts1"],
    "ts2": ["node", str(HERE / "servers" / "typescript.mjs"), str(NODE), "ts2"],
    "everything": ["node", str(EVERYTHING), "stdio"],
}
GUARD: Final = [sys.executable, "-m", "proxy", "stdio", "--"]


def sessions(client: str, commands: dict[str, Any], calls: dict[str, Any]) -> dict[str, Any]:
    """Returns the answers of each server to a client. The last progress of `everything` races its answer in one client,
    so it is left out."""
    told: dict[str, Any] = asked(CLIENTS[client], commands, calls)
    if "everything" in told:
        told["everything"]["heard"] = told["everything"]["heard"][:3]
    return told


@pytest.mark.parametrize("client", CLIENTS)
def test_a_clean_session_is_the_same_through_a_proxy_that_the_client_starts(client: str) -> None:
    needs("py1", "py2", "node")
    calls = {name: EVERYTHING_CALLS if name == "everything" else CALLS for name in COMMANDS}
    guarded = {name: [*GUARD, *command] for name, command in COMMANDS.items()}
    direct, through = sessions(client, COMMANDS, calls), sessions(client, guarded, calls)
    for name in COMMANDS:
        assert direct[name] == through[name], name


@pytest.mark.parametrize("client", ["mcp1", "mcp2-modern", "ts1"])
def test_no_mistake_arrives_wrong_or_is_lost_over_stdio(client: str) -> None:
    needs("py1", "py2", "node")
    shops = {name: [*GUARD, *command] for name, command in COMMANDS.items() if name != "everything"}
    for server, told in sessions(client, shops, dict.fromkeys(shops, MISTAKES)).items():
        assert {mistake.name: "" for mistake in OBJECTS} == {
            mistake.name: verdict(mistake, answer) for mistake, answer in zip(OBJECTS, told["calls"], strict=True)
        }, server


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_of_http_reach_servers_that_speak_stdio(client: str, tmp_path: Path) -> None:
    needs("py1", "py2", "node")
    upstreams = "".join(f"  {name}: {{command: {command}}}\n" for name, command in COMMANDS.items())
    routes = "".join(f"  - {{path: /{name}, upstream: {name}, protocol: mcp}}\n" for name in COMMANDS)
    config = tmp_path / "config.yaml"
    config.write_text(f"version: 1\nadmin: off\nupstreams:\n{upstreams}routes:\n{routes}")
    calls = {name: EVERYTHING_CALLS if name == "everything" else CALLS for name in COMMANDS}
    direct = sessions(client, COMMANDS, calls)
    with proxy(config) as port:
        assert direct == sessions(client, {name: f"http://127.0.0.1:{port}/{name}" for name in COMMANDS}, calls)
    assert BOOK == json.loads(direct["low"]["calls"][0]["text"])

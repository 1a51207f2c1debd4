"""Real servers of both transports and both eras behind one endpoint, and every real client in front of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.parties.environment import ADMIN, CLIENTS, asked, needs, proxy, servers
from tests.parties.mistakes import BOOK, OBJECTS, verdict
from tests.parties.test_clients import MISTAKES
from tests.parties.test_stdio import COMMANDS

pytestmark = pytest.mark.large


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """All servers of the cast at one URL: Python and TypeScript by HTTP, the same and `everything` by stdio, and
    one that does not start."""
    needs("py1", "py2", "node")
    with servers("py2", "node") as direct:
        upstreams = {f"web-{name}": f"{{url: 'http://127.0.0.1:{port}'}}" for name, port in direct.items()}
        upstreams |= {name: f"{{command: {json.dumps(command)}}}" for name, command in COMMANDS.items()}
        upstreams["down"] = "{command: [no-such-program]}"
        written = "".join(f"  {name}: {entry}\n" for name, entry in upstreams.items())
        named = ", ".join(f"{name}: {name}" for name in upstreams)
        config = tmp_path_factory.mktemp("joined") / "config.yaml"
        route = f"  - {{path: /mcp, protocol: mcp, servers: {{{named}}}, mcp: {{wait: 30s, servers_wait: 24s}}}}\n"
        config.write_text(f"version: 1\n{ADMIN}upstreams:\n{written}routes:\n{route}")
        with proxy(config) as port:
            yield f"http://127.0.0.1:{port}/mcp"


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_calls_every_server_at_one_address(client: str, endpoint: str) -> None:
    names = ["high", "low", "fastmcp", "ts1", "ts2"]
    names += [f"web-{name}" for name in names]
    calls = [[f"{name}_book", BOOK] for name in names] + [["everything_echo", {"message": "hello"}]]
    told: dict[str, Any] = asked(CLIENTS[client], {"all": endpoint}, {"all": calls})["all"]
    assert {f"{name}_book" for name in names} | {"everything_echo"} <= set(told["tools"])
    assert [] == [name for name in told["tools"] if name.startswith("down")]
    assert [False] * len(calls) == [answer.get("error") for answer in told["calls"]], told["calls"]
    assert [BOOK["title"]] * len(names) == [json.loads(answer["text"])["title"] for answer in told["calls"][:-1]]


@pytest.mark.parametrize("client", ["mcp1", "mcp2-modern", "ts2"])
def test_validates_mistakes_by_the_schema_of_their_server(client: str, endpoint: str) -> None:
    for server in ("low", "web-ts1"):
        calls = [[f"{server}_{name}", arguments] for name, arguments in MISTAKES]
        told = asked(CLIENTS[client], {"all": endpoint}, {"all": calls})["all"]
        assert {mistake.name: "" for mistake in OBJECTS} == {
            mistake.name: verdict(mistake, answer) for mistake, answer in zip(OBJECTS, told["calls"], strict=True)
        }, server


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same server twice at one URL, so that all its prompts have two namesakes and its resources one URI each."""
    needs("py1", "node")
    command = json.dumps(COMMANDS["everything"])
    config = tmp_path_factory.mktemp("twins") / "config.yaml"
    config.write_text(
        f"version: 1\n{ADMIN}upstreams: {{one: {{command: {command}}}, two: {{command: {command}}}}}\n"
        "routes:\n  - {path: /mcp, protocol: mcp, servers: {one: one, two: two}, mcp: {wait: 30s, servers_wait: 24s}}\n"
    )
    with proxy(config) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def test_prompts_and_resources_of_joined_servers_reach_a_client_as_without_a_proxy(twins: str) -> None:
    nothing: dict[str, list[Any]] = {"direct": [], "joined": []}
    told = asked(CLIENTS["mcp1"], {"direct": COMMANDS["everything"], "joined": twins}, nothing)
    direct, joined = told["direct"]["beside"], told["joined"]["beside"]
    assert len(direct["prompts"]) > 1
    assert sorted(f"{server}_{name}" for server in ("one", "two") for name in direct["prompts"]) == sorted(
        joined["prompts"]
    )
    assert 2 * list(direct["said"].values()) == list(joined["said"].values())
    assert {"one_simple-prompt", "two_simple-prompt"} == set(joined["said"])
    assert (direct["resources"], direct["first"]) == (joined["resources"], joined["first"])
    assert direct["templates"] == joined["templates"]

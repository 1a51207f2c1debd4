"""Aliases of a listed tool: what the listed schema does not declare is no target, and is logged once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from tests.extensions.mcp.conversation import refusal, talk, text
from tests.extensions.mcp.server import ADD, McpServer, call


async def test_an_alias_of_a_declared_property_takes_its_place() -> None:
    async with talk(McpServer([ADD]), "tools: {add: {aliases: {first: a}}}") as client:
        assert {"a": 1, "b": 2} == json.loads(text(await client.ask(call("add", {"first": 1, "b": 2}))))


@pytest.mark.parametrize(("alias", "target"), [("first", "nothing"), ("a", "b")])
async def test_an_alias_without_use_is_logged_once_and_ignored(alias: str, target: str) -> None:
    async with talk(McpServer([ADD]), f"tools: {{add: {{aliases: {{{alias}: {target}}}}}}}") as client:
        for _ in range(2):
            assert (True, "INVALID_ARGUMENTS") == refusal(await client.ask(call("add", {"first": 1, "b": 2})))
            assert {"a": 1, "b": 2} == json.loads(text(await client.ask(call("add", {"a": 1, "b": 2}))))
        logged = [json.loads(line) for line in client.proxy.log.getvalue().splitlines()]
    ignored = [line for line in logged if line["message"] == "aliases ignored"]
    assert [("add", [alias])] == [(line["tool"], line["aliases"]) for line in ignored]


def test_refuses_aliases_on_a_route_of_many_tools(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    route = "{path: /m, upstream: m, protocol: mcp, aliases: {first: a}}"
    path.write_text(f"version: 1\nupstreams: {{m: {{url: 'http://127.0.0.1:9'}}}}\nroutes: [{route}]\n")
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    (mistake,) = caught.value.mistakes
    assert ("`aliases` on a route of many tools", True) == (
        mistake.message,
        "mcp: {tools: {NAME: {aliases: ...}}}" in mistake.hint,
    )

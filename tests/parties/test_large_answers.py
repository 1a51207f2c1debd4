"""Real clients read cut, masked and refused results of real servers, and reject none for its `outputSchema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.parties.environment import CLIENTS, HERE, asked, needs, proxy, python

pytestmark = pytest.mark.large

CLIENT_NAMES: Final = ("mcp2-modern", "mcp2-legacy", "fastmcp")
RULES: Final = {
    "cut": "{max_bytes: 16KiB, on_large: cut, mask: [/result/*/email]}",
    "refuse": "{max_bytes: 16KiB}",
    "enforce": "{max_bytes: 1MiB, schema: enforce}",
}
CALLS: Final = [["orders", {}], ["orders", {"limit": 2}], ["log", {}]]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a proxy with a route for each server and each of `RULES`."""
    needs("py2")
    config = tmp_path_factory.mktemp("large") / "config.yaml"
    words = {name: [python("py2"), str(HERE / "servers" / "large.py"), name] for name in ("high", "fastmcp")}
    upstreams = "".join(f"  {name}: {{command: {json.dumps(command)}}}\n" for name, command in words.items())
    routes = "".join(
        f"  - {{path: /{name}-{kind}, upstream: {name}, protocol: mcp, answer: {rules}}}\n"
        for name in words
        for kind, rules in RULES.items()
    )
    config.write_text(f"version: 1\nadmin: off\nupstreams:\n{upstreams}routes:\n{routes}")
    with proxy(config) as found:
        yield found


def ask(port: int, client: str, name: str) -> list[dict[str, Any]]:
    """Returns what a client reads of each call on a route."""
    told: list[dict[str, Any]] = asked(CLIENTS[client], {name: f"http://127.0.0.1:{port}/{name}"}, {name: CALLS})[name][
        "calls"
    ]
    return told


@pytest.mark.parametrize("server", ["high", "fastmcp"])
@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_reads_a_cut_result_with_its_masks(port: int, client: str, server: str) -> None:
    large, small, log = ask(port, client, f"{server}-cut")

    assert [False, False, False] == [each.get("error") for each in (large, small, log)], (large, small, log)
    assert ["[Cut: " in each["text"] for each in (large, small, log)] == [True, False, True]
    assert "zoe" not in large["text"] + small["text"]
    assert "***" in small["text"]
    assert len(large["text"]) < 16 * 1024


@pytest.mark.parametrize("server", ["high", "fastmcp"])
@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_reads_why_a_result_is_refused(port: int, client: str, server: str) -> None:
    large, small, log = ask(port, client, f"{server}-refuse")

    words = [each.get("text", each.get("raised", "")) for each in (large, log)]
    assert all("longer than 16,384 bytes" in text for text in words), words
    assert ("Its arguments: limit." in words[0], "Its arguments: lines." in words[1]) == (True, True)
    assert "zoe1@example.org" in small["text"]


@pytest.mark.parametrize("server", ["high", "fastmcp"])
def test_hands_on_what_matches_the_listed_schema(port: int, server: str) -> None:
    assert [False, False, False] == [each.get("error") for each in ask(port, "mcp2-modern", f"{server}-enforce")]

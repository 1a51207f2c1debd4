"""A route with several servers: what it lists, what it judges, who may call what, and what the operator sees."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.config.mistakes import ConfigError
from tests.extensions.mcp.conversation import BOTH, refusal, text
from tests.extensions.mcp.server import call
from tests.extensions.mcp.test_stdio_upstream import SERVER, asked
from tests.serving.proxied import Proxied, proxied
from tests.serving.wire import Seen, exchange, post

LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
INITIALIZE = asked(
    "initialize", 0, protocolVersion="2025-06-18", capabilities={"sampling": {}}, clientInfo={"name": "c"}
)


class Client:
    """A client of the old revisions with its session."""

    def __init__(self, proxy: Proxied, *headers: str) -> None:
        self.proxy = proxy
        self.headers = headers

    async def send(self, message: object) -> Seen:
        return await exchange(self.proxy.port, post("/mcp", json.dumps(message).encode(), BOTH, *self.headers))

    async def begin(self) -> None:
        seen = await self.send(INITIALIZE)
        self.headers = (*self.headers, f"Mcp-Session-Id: {seen.header('mcp-session-id')}")

    async def ask(self, message: object) -> Any:
        return json.loads((await self.send(message)).body)

    async def names(self) -> set[str]:
        return {tool["name"] for tool in (await self.ask(LIST))["result"]["tools"]}


@contextlib.asynccontextmanager
async def joined(more: str = "") -> AsyncIterator[Proxied]:
    """A proxy in front of servers `a` and `b`, and of `gone`, which does not start."""
    route = (
        f"  - {{path: /mcp, protocol: mcp, servers: {{a: a, b: {{upstream: b, prefix: 'b.'}}, gone: gone}}{more}}}\n"
    )
    commands = {"a": [sys.executable, str(SERVER)], "b": [sys.executable, str(SERVER)], "gone": ["no-such-program"]}
    upstreams = ", ".join(f"{name}: {{command: {json.dumps(words)}}}" for name, words in commands.items())
    async with proxied(route, upstreams=f"{{{upstreams}}}") as proxy:
        yield proxy


async def test_validates_a_call_by_the_schema_of_its_server() -> None:
    async with joined() as proxy:
        client = Client(proxy)
        await client.begin()
        assert {"a_echo", "b.echo"} <= await client.names()
        assert '{"a": 5}' == text(await client.ask(call("b.echo", {"a": "5"})))
        assert (True, "INVALID_ARGUMENTS") == refusal(await client.ask(call("a_echo", {"a": "five"})))
        assert (True, "UNKNOWN_TOOL") == refusal(await client.ask(call("echo", {"a": 5})))


async def test_a_call_to_an_unreachable_server_fails_and_suggests_no_other_server() -> None:
    async with joined() as proxy:
        client = Client(proxy)
        await client.begin()
        await client.names()
        gone = await client.ask(call("gone_echo", {"a": 5}))
        near, far = await client.ask(call("b.ecco", {"a": 5})), await client.ask(call("b.nothing_alike", {}))
        nobodys = await client.ask(call("c_echo", {"a": 5}))

    assert (True, "UPSTREAM_UNAVAILABLE") == refusal(gone)
    assert "(server 'gone' is out of reach: upstream 'gone': cannot start 'no-such-program'" in text(gone)
    assert "a_echo" not in text(gone)
    assert "Did you mean 'b.echo'?" in text(near)
    assert "Known tools: 'b.ask', 'b.cancelled'" in text(far)
    assert "'a_" not in text(far)
    assert "'a_echo'" in text(nobodys)


async def test_a_route_is_a_chosen_set_of_tools_of_several_servers() -> None:
    chosen = (
        ", mcp: {allow: [a_echo, b.pid], tools: {a_echo: {as: repeat}, b.pid: {as: process, description: Its id.}}}"
    )
    async with joined(chosen) as proxy:
        client = Client(proxy)
        await client.begin()
        assert {"repeat", "process"} == await client.names()
        assert '{"a": 5}' == text(await client.ask(call("repeat", {"a": "5"})))
        assert text(await client.ask(call("process", {}))).isdecimal()
        assert (True, "UNKNOWN_TOOL") == refusal(await client.ask(call("a_pid", {})))


async def test_the_operator_sees_which_server_is_out_of_reach() -> None:
    async with joined() as proxy:
        client = Client(proxy)
        await client.begin()
        assert not any(name.startswith("gone") for name in await client.names())
        page = await proxy.ask_admin("/-/routes")
        (route,) = json.loads(page.body)["routes"]
        assert {"a": "", "b": ""} == {name: why for name, why in route["servers"].items() if name != "gone"}
        assert "cannot start 'no-such-program'" in route["servers"]["gone"]
        logged = [line for line in map(json.loads, proxy.log.getvalue().splitlines()) if line.get("server") == "gone"]
        assert ["Tool server out of reach"] == [line["message"] for line in logged]


async def test_a_call_to_an_unreachable_server_says_that_the_tool_did_not_run() -> None:
    async with joined() as proxy:
        client = Client(proxy)
        await client.begin()
        await client.names()
        gone = await client.ask(call("gone_echo", {"a": 5}))
        assert (True, "UPSTREAM_UNAVAILABLE") == refusal(gone)
        said = text(gone)
        assert "(server 'gone' is out of reach: " in said
        assert "cannot start 'no-such-program'" in said
        assert "The tool did not run." in said
        assert not any(name in said for name in ("a_echo", "b.echo", "Did you mean", "Known tools"))
        assert "Did you mean 'b.echo'?" in text(await client.ask(call("b.ecko", {"a": 5})))
        other = text(await client.ask(call("b.weather_of_tomorrow", {"a": 5})))
        assert "Known tools: " in other
        assert "'b.echo'" in other
        assert "a_" not in other


def _hashed(name: str) -> str:
    return hashlib.sha256(f"{name}-token-0123456789".encode()).hexdigest()


TOKENS = (
    ", auth: {bearer: {" + ", ".join(f"{name}: 'sha256:{_hashed(name)}'" for name in ("reader", "writer")) + "}}"
    ", mcp: {deny: ['*_die'], tokens: {reader: {allow: ['a_*'], deny: ['a_env']}}}"
)


async def test_each_token_has_its_own_tools() -> None:
    async with joined(TOKENS) as proxy:
        reader = Client(proxy, "Authorization: Bearer reader-token-0123456789")
        writer = Client(proxy, "Authorization: Bearer writer-token-0123456789")
        await reader.begin()
        await writer.begin()
        mine, others = await reader.names(), await writer.names()
        assert {"a_echo"} == mine & {"a_echo", "a_env", "a_die", "b.echo"}
        assert {"a_echo", "a_env", "b.echo"} == others & {"a_echo", "a_env", "a_die", "b.echo"}
        assert (True, "UNKNOWN_TOOL") == refusal(await reader.ask(call("b.echo", {"a": 5})))
        assert '{"a": 5}' == text(await writer.ask(call("b.echo", {"a": 5})))


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ("servers: {a: a}, upstream: a", "`upstream` has no effect beside `servers`"),
        ("servers: {a: nowhere}", "unknown upstream 'nowhere'"),
        ("servers: {a: a, a_b: a}", "the prefix 'a_' begins 'a_b_'"),
        ("upstream: a, mcp: {prefix: clash}", "`prefix` has no effect without `servers`"),
        ("servers: {a: a}, mcp: {tokens: {x: {}}}", "unknown token 'x'"),
    ],
)
def test_contradictions_are_named(route: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        f"version: 1\nupstreams: {{a: {{url: 'http://127.0.0.1:9'}}}}\nroutes: [{{path: /mcp, protocol: mcp, {route}}}]"
    )
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    assert any(message in str(mistake) for mistake in caught.value.mistakes)

"""Servers that join and leave a route while it serves: open sessions go on, and hear that their lists have changed."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.config.load import load
from proxy.extensions.mcp.upstream.joined.merged_lists import ListedNames
from proxy.server import start_serving
from tests.extensions.mcp.conversation import BOTH, refusal, text
from tests.extensions.mcp.server import call
from tests.extensions.mcp.test_joined import Client
from tests.extensions.mcp.test_stdio_upstream import SERVER
from tests.serving.proxied import Proxied, told
from tests.serving.wire import post
from tests.steady import until

COMMAND = json.dumps([sys.executable, str(SERVER)])


def config(servers: str, mcp: str = "") -> str:
    return f"""
version: 1
listen: 127.0.0.1:0
admin: {{listen: 127.0.0.1:0}}
upstreams: {{a: {{command: {COMMAND}}}, b: {{command: {COMMAND}}}, c: {{command: {COMMAND}}}}}
routes:
  - {{path: /mcp, protocol: mcp, servers: {{{servers}}}, mcp: {{{mcp}}}}}
"""


class Changing:
    """A proxy whose config changes while it serves."""

    def __init__(self, proxy: Proxied, path: Path) -> None:
        self.proxy = proxy
        self._path = path

    async def change(self, servers: str, mcp: str = "") -> None:
        """Takes over a config with these servers."""
        self._path.write_text(config(servers, mcp))
        asked = told(await self.proxy.ask_admin("/-/reload", method="POST"))
        assert "success" == asked["result"], asked

    async def client(self) -> Client:
        """A client with its own session."""
        client = Client(self.proxy)
        await client.begin()
        return client


@contextlib.asynccontextmanager
async def serving(folder: Path, servers: str, mcp: str = "") -> AsyncIterator[Changing]:
    path = folder / "config.yaml"
    path.write_text(config(servers, mcp))
    started = await start_serving(load(path, {}), log_to=io.StringIO(), environ={})
    try:
        yield Changing(Proxied(started, io.StringIO()), path)
    finally:
        await started.stop(grace=0.5)


class Stream:
    """A stream of messages: of a session, or the answer to one message."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, client: Client, message: object = None) -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.proxy.port)
        if message is None:
            lines = ["GET /mcp HTTP/1.1", "Host: tools.test", "Accept: text/event-stream", *client.headers, "", ""]
            writer.write("\r\n".join(lines).encode())
        else:
            writer.write(post("/mcp", json.dumps(message).encode(), BOTH, *client.headers))
        assert b" 200 " in await reader.readline()
        return cls(reader, writer)

    async def next(self) -> Any:
        """The next message."""
        while not (line := await self._reader.readline()).startswith(b"data:"):
            assert line, "the stream has ended"
        return json.loads(line[5:])

    def close(self) -> None:
        self._writer.close()


async def pid(client: Client, server: str) -> str:
    return text(await client.ask(call(f"{server}_pid", {})))


async def test_a_server_that_joins_is_announced_and_called_in_the_same_session(tmp_path: Path) -> None:
    async with serving(tmp_path, "a: a") as changing:
        client = await changing.client()
        before = await pid(client, "a")
        stream = await Stream.of(client)
        await changing.change("a: a, b: b")
        announced = await stream.next()
        names = await client.names()
        answers = [text(await client.ask(call(name, {"a": "5"}))) for name in ("a_echo", "b_echo")]
        after = await pid(client, "a")
        stream.close()

    assert "notifications/tools/list_changed" == announced["method"]
    assert {"a_echo", "b_echo"} <= names
    assert ['{"a": 5}'] * 2 == answers
    assert before == after


async def test_a_server_that_leaves_is_announced_and_its_tools_are_unknown(tmp_path: Path) -> None:
    async with serving(tmp_path, "a: a, b: b") as changing:
        client = await changing.client()
        before, gone = await pid(client, "a"), int(await pid(client, "b"))
        stream = await Stream.of(client)
        await changing.change("a: a")
        announced = await stream.next()
        names = await client.names()
        unknown = await client.ask(call("b_echo", {"a": 1}))
        after = await pid(client, "a")
        await until(lambda: not Path(f"/proc/{gone}").exists())
        stream.close()

    assert "notifications/tools/list_changed" == announced["method"]
    assert {"a"} == {name.partition("_")[0] for name in names}
    assert (True, "UNKNOWN_TOOL") == refusal(unknown)
    assert before == after


async def test_clients_without_sessions_see_the_servers_of_the_moment(tmp_path: Path) -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    headers = ("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list")
    async with serving(tmp_path, "a: a") as changing:
        client = Client(changing.proxy, *headers)
        seen = [{name.partition("_")[0] for name in await names(client, message)}]
        for servers in ("a: a, b: b", "b: b"):
            await changing.change(servers)
            seen.append({name.partition("_")[0] for name in await names(client, message)})

    assert [{"a"}, {"a", "b"}, {"b"}] == seen


async def names(client: Client, message: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in (await client.ask(message))["result"]["tools"]]


async def test_a_call_under_way_at_a_server_that_leaves_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path, "a: a, b: b") as changing:
        client = await changing.client()
        child = int(await pid(client, "b"))
        stream = await Stream.of(client, call("b_ask", {}))
        question = await stream.next()
        await changing.change("a: a")
        await client.send({"jsonrpc": "2.0", "id": question["id"], "result": {"said": "yes"}})
        answer = await stream.next()
        await until(lambda: not Path(f"/proc/{child}").exists())
        stream.close()

    assert '{"said": "yes"}' == text(answer)


async def test_a_server_at_another_upstream_gets_a_new_session(tmp_path: Path) -> None:
    async with serving(tmp_path, "a: a, b: b") as changing:
        client = await changing.client()
        kept, moved = await pid(client, "a"), await pid(client, "b")
        await changing.change("a: a, b: c")
        after = await pid(client, "a"), await pid(client, "b")

    assert kept == after[0]
    assert moved != after[1]


async def test_sessions_end_if_a_name_would_come_to_mean_another_tool(tmp_path: Path) -> None:
    async with serving(tmp_path, "a: {upstream: a, prefix: x_}, b: {upstream: b, prefix: y_}") as changing:
        client = await changing.client()
        assert {"x_echo", "y_echo"} <= await client.names()
        await changing.change("a: {upstream: a, prefix: y_}, b: {upstream: b, prefix: x_}")
        seen = await client.send(call("x_echo", {"a": 1}))

    assert 404 == seen.status


@pytest.mark.parametrize(
    ("before", "after", "keeps"),
    [
        ({"a": "a_"}, {"a": "a_", "b": "b_"}, True),
        ({"a": "a_", "b": "b_"}, {"b": "b_"}, True),
        ({"a": "a_"}, {"a": "z_"}, True),
        ({"a": "a_"}, {"a": "a_b_"}, False),
        ({"a": "a_b_"}, {"a": "a_"}, False),
        ({"a": "a_"}, {"b": "a_"}, False),
        ({"a": "a_"}, {"a": "a_", "b": "bare_"}, False),
    ],
)
def test_sessions_continue_only_if_names_keep_their_meaning(
    before: dict[str, str], after: dict[str, str], keeps: bool
) -> None:
    listed = ListedNames(before, always=False)
    listed.note(next(iter(before)), ["bare_name"])
    assert keeps is listed.keeps_meaning(after)


def test_the_bare_name_of_a_server_that_left_means_nothing() -> None:
    listed = ListedNames({"a": "a_", "b": "b_"}, always=False)
    listed.note("a", ["read"])
    listed.change_prefixes({"b": "b_"}, always=False)
    assert None is listed.find("read")
    listed.note("b", ["read"])
    assert (None, "b_read", ("b", "read")) == (listed.find("read"), listed.show("b", "read"), listed.find("b_read"))

"""`toolcall-proxy stdio` and `serve --mcp -- COMMAND` as clients that start commands see them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.mcp.test_stdio_upstream import asked, call, gone

ROOT = Path(__file__).parents[3]
SERVER = [sys.executable, str(ROOT / "tests" / "extensions" / "mcp" / "stdio_server.py")]
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Client:
    """A client that started a command and talks to it in lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, *messages: object) -> None:
        assert self.process.stdin is not None
        for message in messages:
            text = message if isinstance(message, str) else json.dumps(message)
            self.process.stdin.write(text.encode() + b"\n")
        await self.process.stdin.drain()

    async def read(self) -> Any:
        """The next message; whatever else stood on stdout would fail here."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "the proxy closed its end"
        return json.loads(line)

    async def ask(self, message: dict[str, object]) -> Any:
        await self.send(message)
        return await self.read()

    async def begin(self) -> None:
        opened = await self.ask(asked("initialize", 0, protocolVersion="2025-06-18"))
        assert 0 == opened["id"]
        await self.send(INITIALIZED)


@contextlib.asynccontextmanager
async def started(*arguments: str, **more: Any) -> AsyncIterator[Client]:
    """A proxy as a client starts it; it is ended as clients do: its stdin is closed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy", *arguments, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT, **more
    )
    try:
        yield Client(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 300)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def text_of(client: Client, tool: str, **params: object) -> str:
    answer = await client.ask(call(tool, 1, **params))
    text: str = answer["result"]["content"][0]["text"]
    return text


async def test_a_damaged_call_arrives_right_and_a_wrong_one_is_explained() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        assert '{"a": 5}' == await text_of(client, "echo", arguments={"a": "5"})
        refused = await client.ask(call("echo", 2, arguments={"a": "five"}))
        assert refused["result"]["isError"] is True
        assert "expected integer, got string" in refused["result"]["content"][0]["text"]


async def test_a_server_that_prints_and_logs_leaves_stdout_to_the_protocol() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        assert "quiet again" == await text_of(client, "noise")


async def test_what_is_no_message_is_answered_as_json_rpc_says() -> None:
    async with started("stdio", "--", *SERVER) as client:
        assert -32700 == (await client.ask("{" * 3))["error"]["code"]  # type: ignore[arg-type]
        assert -32600 == (await client.ask([asked("ping")]))["error"]["code"]  # type: ignore[arg-type]


async def test_no_request_stays_without_an_answer_when_the_server_dies() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        died = await client.ask(call("die", 7))
        assert 7 == died["id"]
        assert "its process ended during the call" in died["result"]["content"][0]["text"]


async def test_a_server_that_died_is_started_anew_with_the_next_call() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        first = await text_of(client, "pid")
        await client.ask(call("die", 7))
        second = await text_of(client, "pid")
        assert first != second
        assert second == await text_of(client, "pid")


async def test_a_command_that_does_not_exist_is_named_in_the_answer() -> None:
    async with started("stdio", "--", "no-such-program") as client:
        answer = await client.ask(asked("initialize", 0, protocolVersion="2025-06-18"))
        assert 0 == answer["id"]
        assert "cannot start 'no-such-program'" in json.dumps(answer)


@pytest.mark.large
@pytest.mark.parametrize("ending", ["close", "kill", "terminate"])
async def test_nothing_is_left_when_the_proxy_ends_however_it_ends(ending: str) -> None:
    async with started("stdio", "--", *SERVER, "linger") as client:
        await client.begin()
        pid = int(await text_of(client, "pid"))
        (grandchild,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split())
        await client.send(call("hang", 2))  # a call is under way
        if ending == "kill":
            client.process.kill()
        elif ending == "terminate":
            client.process.terminate()
        else:
            assert client.process.stdin is not None
            client.process.stdin.close()
        await gone(pid)
        await gone(grandchild)


async def test_a_client_of_the_new_revision_gets_what_headers_would_have_carried() -> None:
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    async with started("stdio", "--", *SERVER, "modern") as client:
        discovered = await client.ask(asked("server/discover", 1, **meta))
        assert ["2026-07-28"] == discovered["result"]["supportedVersions"]
        assert 10 == len((await client.ask(asked("tools/list", 2, **meta)))["result"]["tools"])
        assert '{"a": 5}' == await text_of(client, "echo", arguments={"a": "5"}, **meta)


async def test_a_route_of_a_config_is_served_and_the_others_are_named(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"version: 1\nupstreams: {{one: {{command: {json.dumps(SERVER)}}}, two: {{command: {json.dumps(SERVER)}}}}}\n"
        "routes: [{path: /one, upstream: one, protocol: mcp}, {path: /two, upstream: two, protocol: mcp}]\n"
    )
    async with started("stdio", "--config", str(config), "--route", "/two") as client:
        await client.begin()
        assert '{"a": 1}' == await text_of(client, "echo", arguments={"a": "1"})
    async with started("stdio", "--config", str(config)) as client:
        assert client.process.stderr is not None
        told = await client.process.stderr.read()
        assert b"stdio: the config has 2 MCP routes  (say one of them with --route: /one, /two)\n" == told
        assert 2 == await client.process.wait()


async def test_serve_starts_the_command_behind_the_dashes() -> None:
    async with started("serve", "--listen", "127.0.0.1:0", "--mcp", "--", *SERVER) as client:
        assert client.process.stdout is not None
        line = (await client.process.stdout.readline()).decode()
        url = line.removeprefix("listening on ").strip() + "/mcp"
        async with started("stdio", "--url", url) as inner:
            await inner.begin()
            assert '{"a": 5}' == await text_of(inner, "echo", arguments={"a": "5"})
        os.kill(client.process.pid, signal.SIGINT)
        assert 0 == await client.process.wait()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["stdio"], "which server?"),
        (["stdio", "--url", "http://x/mcp", "--", "x"], "which server?"),
        (["stdio", "--route", "/x", "--url", "http://x/mcp"], "--route goes with --config alone"),
        (["serve", "--mcp"], "which server?"),
        (["serve", "--mcp", "http://127.0.0.1:9/mcp", "--", "x"], "which server?"),
        (["serve", "--openapi", "x.json", "--", "x"], "a command behind -- goes with --mcp alone"),
    ],
)
async def test_arguments_that_name_no_server_or_two_say_what_is_missing(arguments: list[str], told: str) -> None:
    async with started(*arguments) as client:
        assert client.process.stderr is not None
        assert told in (await client.process.stderr.read()).decode()
        assert 2 == await client.process.wait()

"""`toolcall-proxy stdio` and `serve --mcp -- COMMAND` as clients that start commands see them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.extensions.mcp.adapters.mcpmessage import Message
from proxy.extensions.mcp.server.stdio import read_line
from proxy.extensions.mcp.server.stdio_session import Line, StdioSession
from tests.extensions.mcp.server import McpServer, as_events, as_json, chunk, http
from tests.extensions.mcp.stdio_server import NAMES
from tests.extensions.mcp.test_stdio_upstream import asked, call, gone
from tests.serving.wire import Seen, tool

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
        sys.executable,
        "-m",
        "proxy",
        *arguments,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        limit=1 << 24,
        **{"cwd": ROOT, **more},
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


@pytest.mark.large
async def test_a_server_that_prints_and_logs_leaves_stdout_to_the_protocol() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        assert "quiet again" == await text_of(client, "noise")


@pytest.mark.large
@pytest.mark.parametrize("source", ["calls.jsonl", "/dev/null"])
async def test_reads_messages_from_a_file_even_if_it_has_none(tmp_path: Path, source: str) -> None:
    messages = [asked("initialize", 0, protocolVersion="2025-06-18"), INITIALIZED, asked("tools/list", 1)]
    (tmp_path / "calls.jsonl").write_text("".join(f"{json.dumps(message)}\n" for message in messages))
    with (tmp_path / source).open("rb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy", "stdio", "--", *SERVER), stdin=file, stdout=-1, stderr=-3
        )
        async with asyncio.timeout(30):
            answers, _ = await process.communicate()
    assert ([0, 1] if source == "calls.jsonl" else []) == [json.loads(each)["id"] for each in answers.splitlines()]
    assert 0 == process.returncode


async def test_answers_what_it_has_read_when_its_input_ends(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "stdio", "--", *SERVER, f"late={tmp_path / 'ready'}"), stdin=-1, stdout=-1
    )
    messages = [asked("initialize", 0, protocolVersion="2025-06-18"), INITIALIZED, call("echo", 1)]
    lines = "".join(f"{json.dumps(each)}\n" for each in messages)
    answering = asyncio.create_task(process.communicate(lines.encode()))
    await asyncio.wait({answering}, timeout=3.0)  # longer than clients leave a process that they end
    assert not answering.done()
    (tmp_path / "ready").touch()
    answers, _ = await answering
    assert [0, 1] == [json.loads(line)["id"] for line in answers.splitlines()]
    assert 0 == process.returncode


async def test_ends_if_nobody_reads_its_answers(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    command = (sys.executable, "-m", "proxy", "stdio", "--", *SERVER, f"late={tmp_path / 'never'}")
    process = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=writer)
    os.close(writer)
    os.close(reader)
    await process.communicate(json.dumps(asked("initialize", 0)).encode() + b"\n")
    assert process.returncode is not None


async def test_answers_an_invalid_message_as_json_rpc_says() -> None:
    async with started("stdio", "--", *SERVER) as client:
        assert -32700 == (await client.ask("{" * 3))["error"]["code"]  # type: ignore[arg-type]
        assert -32600 == (await client.ask([asked("ping")]))["error"]["code"]  # type: ignore[arg-type]


@pytest.mark.large
async def test_no_request_stays_without_an_answer_when_the_server_dies() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        died = await client.ask(call("die", 7))
        assert 7 == died["id"]
        assert "its process ended during the call (exit code 3): Error: no key" in died["result"]["content"][0]["text"]


@pytest.mark.large
async def test_restarts_a_server_that_died_with_the_next_call() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        first = await text_of(client, "pid")
        await client.ask(call("die", 7))
        second = await text_of(client, "pid")
        assert first != second
        assert second == await text_of(client, "pid")


@pytest.mark.large
async def test_a_command_that_does_not_exist_is_named_in_the_answer() -> None:
    async with started("stdio", "--", "no-such-program") as client:
        answer = await client.ask(asked("initialize", 0, protocolVersion="2025-06-18"))
        assert 0 == answer["id"]
        assert "cannot start 'no-such-program'" in json.dumps(answer)


# --- as faithful as no proxy ------------------------------------------------------------------------------------------
META = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}


async def seen_by(client: Client) -> list[Any]:
    """The messages that the server has read, without those of the proxy itself."""
    lines = json.loads(await text_of(client, "seen"))
    return [message for message in map(json.loads, lines) if message.get("method") != "tools/list"]


@pytest.mark.large
async def test_calls_that_are_sent_at_once_reach_the_server_in_their_order() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        sizes = {number: 100_000 if number % 4 == 0 else 1 for number in range(20)}
        calls = [
            call("echo", number, arguments={"a": number if number % 3 else str(number), "b": "x" * size})
            for number, size in sizes.items()
        ]
        await client.send(*calls)
        assert set(sizes) == {(await client.read())["id"] for _ in sizes}
        read = [message["id"] for message in await seen_by(client) if message.get("method") == "tools/call"]
        assert list(sizes) == read[: len(sizes)]


@pytest.mark.large
async def test_a_call_that_is_cancelled_at_once_is_never_answered_and_what_follows_is() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        for number in range(5):
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": f"c{number}"}}
            await client.send(call("hang", f"c{number}"), cancelled)
        assert {"jsonrpc": "2.0", "id": "p", "result": {}} == await client.ask(asked("ping", "p"))
        seen = await seen_by(client)
        hung = [message["id"] for message in seen if message.get("params", {}).get("name") == "hang"]
        assert hung == json.loads(await text_of(client, "cancelled"))


async def test_a_call_under_way_that_is_cancelled_is_cancelled_at_the_server_under_its_own_id() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        assert "null" == await text_of(client, "echo")
        await client.send(call("hang", "mine"))
        assert {"jsonrpc": "2.0", "id": "p", "result": {}} == await client.ask(asked("ping", "p"))
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine", "reason": "Esc"}}
        await client.send(note)
        assert '["mine"]' == await text_of(client, "cancelled")
        assert note in await seen_by(client)


@pytest.mark.large
async def test_a_cancellation_reaches_a_server_without_sessions_too() -> None:
    async with started("stdio", "--", *SERVER, "modern") as client:
        await client.ask(asked("server/discover", 1, **META))
        await client.send(call("hang", "mine", **META))
        assert '{"a": 1}' == await text_of(client, "echo", arguments={"a": 1}, **META)
        await client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine"}})
        assert '["mine"]' == await text_of(client, "cancelled", **META)


@pytest.mark.large
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('"\\ud83d"', "lone leading surrogate"),
        ('"a", "a": 2', "duplicate key"),
        ("NaN", "Invalid JSON: expected value"),
        ("[" * 130 + "]" * 130, "levels"),
    ],
)
async def test_a_call_that_is_no_strict_json_is_explained_under_its_own_id(text: str, told: str) -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        head = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"a":'
        answer = await client.ask(head + text + "}}}")  # type: ignore[arg-type]
        assert (7, True) == (answer["id"], answer["result"]["isError"])
        assert told in answer["result"]["content"][0]["text"]


@pytest.mark.large
@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\\ud83d"}}',
        '{"jsonrpc":"2.0","id":"\\ud83d","method":"ping"}',
        '{"jsonrpc":"2.0","id":[1],"method":"ping"}',
        '{"jsonrpc":"2.0","id":5,"result":"\\ud83d"}',
    ],
)
async def test_a_line_without_a_usable_id_holds_up_nothing(line: str) -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        await client.send(line)
        assert {"jsonrpc": "2.0", "id": "p", "result": {}} == await client.ask(asked("ping", "p"))


@pytest.mark.large
async def test_a_call_that_is_too_large_is_refused_under_its_own_id() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        told = await client.ask(call("echo", 9, arguments={"b": "x" * 5_000_000}))
        text = "The call was not answered: The body is larger than the 4194304 bytes this route takes."
        assert (9, text) == (told["id"], told["result"]["content"][0]["text"])


@pytest.mark.large
async def test_an_unreadable_answer_to_the_server_reaches_it_as_an_error() -> None:
    async with started("stdio", "--", *SERVER) as client:
        await client.begin()
        question = await client.ask(call("ask", 3))
        assert ("question-1", "sampling/createMessage") == (question["id"], question["method"])
        answer = await client.ask('{"jsonrpc": "2.0", "id": "question-1", "result": "\\ud83d"}')  # type: ignore[arg-type]
        told = json.loads(answer["result"]["content"][0]["text"])
        assert (3, -32700) == (answer["id"], told["code"])
        assert "the client's answer was refused" in told["message"]


@pytest.mark.large
async def test_a_call_waits_for_a_list_whose_server_asks_for_roots() -> None:
    async with started("stdio", "--", *SERVER, "roots") as client:
        await client.begin()
        question = await client.ask(call("echo", 3, arguments={"a": "5"}))
        assert ("roots-1", "roots/list") == (question["id"], question["method"])
        await client.send({"jsonrpc": "2.0", "id": "roots-1", "result": {"roots": []}})
        assert (3, '{"a": 5}') == ((answer := await client.read())["id"], answer["result"]["content"][0]["text"])


@pytest.mark.large
@pytest.mark.parametrize("era", ["sessions", "modern"])
async def test_log_messages_of_a_tool_arrive_before_its_answer(era: str) -> None:
    meta = META if era == "modern" else {}
    async with started("stdio", "--", *SERVER, era) as client:
        if era == "sessions":
            await client.begin()
        for _ in range(3):
            await client.send(call("log", 1, arguments={"lines": 5}, **meta))
            logs = [await client.read() for _ in range(5)]
            assert list(range(5)) == [log["params"]["data"] for log in logs]
            assert 1 == (await client.read())["id"]


@pytest.mark.large
async def test_a_command_gets_the_environment_and_the_folder_that_the_client_has_chosen(tmp_path: Path) -> None:
    chosen = {**os.environ, "API_KEY": "k ${x} é", "PYTHONPATH": str(ROOT)}
    async with started("stdio", "--", *SERVER, cwd=tmp_path, env=chosen) as client:
        await client.begin()
        given = json.loads(await text_of(client, "env"))
    assert chosen == {key: given.get(key) for key in chosen}


@pytest.mark.large
async def test_a_time_limit_of_the_client_applies_only_to_tools() -> None:
    """The server needs more than 10 ms to start."""
    async with started("stdio", "--timeout", "10ms", "--", *SERVER) as client:
        await client.begin()
        late = await client.ask(call("hang", 7))
        assert (7, True) == (late["id"], late["result"]["isError"])
        assert "UPSTREAM_TIMEOUT" in late["result"]["content"][0]["text"]


# --- a server at a URL ------------------------------------------------------------------------------------------------
RESULT = {"content": [{"type": "text", "text": "resumed"}]}


def opened(message: dict[str, Any]) -> bytes:
    """Returns what a server of revision 2025-11-25 answers besides calls."""
    result: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
    return as_json({"jsonrpc": "2.0", "id": message["id"], "result": result}, "Mcp-Session-Id: s1")


@contextlib.asynccontextmanager
async def polled(resumed: Callable[[Seen], bytes]) -> AsyncIterator[tuple[Client, list[Seen]]]:
    """A client of a server that ends the stream of a call after its first event; `resumed` answers who reads on."""
    asked_on: list[Seen] = []

    def otherwise(message: dict[str, Any], seen: Seen) -> bytes:
        if seen.header("last-event-id"):
            asked_on.append(seen)
            return resumed(seen)
        if seen.start.startswith("GET "):
            return http("405 Method Not Allowed", b"")
        return opened(message) if message.get("method") == "initialize" else http("202 Accepted", b"")

    lines = ("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
    head = "HTTP/1.1 200 OK\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n"
    first = head.encode() + chunk(b"id: e7\nretry: 10\ndata: \n\n") + chunk(b"")
    async with (
        tool(McpServer(called=lambda _message, _seen: first, otherwise=otherwise)) as server,
        started("stdio", "--url", f"http://127.0.0.1:{server.port}/mcp") as client,
    ):
        await client.begin()
        yield client, asked_on


@pytest.mark.large
async def test_a_stream_that_ends_early_is_read_on_with_from_its_last_event() -> None:
    answer = {"jsonrpc": "2.0", "id": 5, "result": RESULT}
    tries = [as_events(), as_events(answer)]  # a poll may find nothing yet
    async with polled(lambda _: tries.pop(0)) as (client, asked_on):
        assert answer == await client.ask(call("add", 5, arguments={"a": 1, "b": 2}))
        assert ["e7", "e7"] == [seen.header("last-event-id") for seen in asked_on]


@pytest.mark.large
@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("405 Method Not Allowed", "its stream ended early and cannot be resumed (HTTP 405)"),
        ("503 Service Unavailable", "its stream ended early, and 3 attempts to resume it failed"),
    ],
)
async def test_a_stream_that_cannot_be_read_on_with_says_that_the_tool_may_have_run(status: str, told: str) -> None:
    async with polled(lambda _: http(status, b"")) as (client, _):
        answer = await client.ask(call("add", 5, arguments={"a": 1, "b": 2}))
        assert (5, True) == (answer["id"], answer["result"]["isError"])
        text = f"The call was not answered: the server gave no answer: {told}."
        unsure = "It is not known whether the tool ran: make sure before you repeat what must not happen twice."
        assert f"{text}\n\n{unsure}" == answer["result"]["content"][0]["text"]


@pytest.mark.large
async def test_a_client_that_falls_back_to_a_server_without_session_ids_speaks_the_old_revision() -> None:
    told: list[str | None] = []

    def otherwise(message: dict[str, Any], seen: Seen) -> bytes:
        match message.get("method"):
            case "server/discover":
                return http("404 Not Found", b"")
            case "initialize":
                return as_json({"jsonrpc": "2.0", "id": message["id"], "result": {"protocolVersion": "2025-11-25"}})
            case "ping":
                told.append(seen.header("mcp-protocol-version"))
                return as_json({"jsonrpc": "2.0", "id": message["id"], "result": {}})
            case _:
                pass
        return http("405 Method Not Allowed" if seen.start.startswith("GET ") else "202 Accepted", b"")

    async with (
        tool(McpServer(otherwise=otherwise)) as server,
        started("stdio", "--url", f"http://127.0.0.1:{server.port}/mcp") as client,
    ):
        assert -32000 == (await client.ask(asked("server/discover", 1, **META)))["error"]["code"]
        await client.begin()
        assert {} == (await client.ask(asked("ping", 2)))["result"]
    assert ["2025-11-25"] == told


async def test_the_session_knows_the_protocol_version_before_the_client_does() -> None:
    told: list[str | None] = []

    def otherwise(message: dict[str, Any], seen: Seen) -> bytes:
        if message.get("method") == "ping":
            told.append(seen.header("mcp-protocol-version"))
        result = {"protocolVersion": "2025-06-18"} if message.get("method") == "initialize" else {}
        return as_json({"jsonrpc": "2.0", "id": message.get("id"), "result": result})

    async with tool(McpServer(otherwise=otherwise)) as server, aiohttp.ClientSession() as connections:

        async def write(text: bytes) -> None:
            if json.loads(text)["id"] == 0:  # the client reads the answer and continues at once
                await session.carry(line(asked("ping", 1)))

        session = StdioSession(connections, f"http://127.0.0.1:{server.port}/mcp", write, {})
        await session.carry(line(asked("initialize", 0, protocolVersion="2025-06-18")))
        await session.end()
    assert ["2025-06-18"] == told


def line(message: dict[str, object]) -> Line:
    """A line of a client."""
    text = json.dumps(message).encode()
    found = read_line(text)
    assert isinstance(found, Message)
    return Line(text, found)


@pytest.mark.large
@pytest.mark.parametrize(
    ("challenge", "metadata"),
    [
        ('Bearer resource_metadata="https://auth.example/m"', "https://auth.example/m"),
        ("Bearer", "http://127.0.0.1:{port}/.well-known/oauth-protected-resource/mcp"),
    ],
)
async def test_a_server_that_wants_a_token_says_where_and_what_to_do(challenge: str, metadata: str) -> None:
    def refuse(_: Seen) -> bytes:
        return http("401 Unauthorized", b"", f"WWW-Authenticate: {challenge}")

    async with (
        tool(McpServer(refuse=refuse)) as server,
        started("stdio", "--url", f"http://127.0.0.1:{server.port}/mcp") as client,
    ):
        refused = await client.ask(asked("initialize", 0, protocolVersion="2025-06-18"))
    told, place = refused["error"]["message"], metadata.format(port=server.port)
    assert f"the server asks for a token (HTTP 401). It says how to get one at {place}." in told
    assert '--header "Authorization: Bearer TOKEN"' in told


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


@pytest.mark.large
async def test_a_client_of_the_new_revision_gets_what_headers_would_have_carried() -> None:
    meta = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    async with started("stdio", "--", *SERVER, "modern") as client:
        discovered = await client.ask(asked("server/discover", 1, **meta))
        assert ["2026-07-28"] == discovered["result"]["supportedVersions"]
        assert len(NAMES) == len((await client.ask(asked("tools/list", 2, **meta)))["result"]["tools"])
        assert '{"a": 5}' == await text_of(client, "echo", arguments={"a": "5"}, **meta)


@pytest.mark.large
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
        (["stdio", "--route", "/x", "--url", "http://x/mcp"], "--route goes only with --config"),
        (["stdio", "--timeout", "5m", "--config", "x.yaml"], "--timeout goes with --url and a command"),
        (["stdio", "--timeout", "soon", "--", "x"], "'soon' is no time such as 30s, 10m or 2h, nor off"),
        (["serve", "--timeout", "5m", "x.yaml"], "--timeout goes only with --mcp"),
        (["serve", "--mcp"], "which server?"),
        (["serve", "--mcp", "http://127.0.0.1:9/mcp", "--", "x"], "which server?"),
        (["serve", "--openapi", "x.json", "--", "x"], "a command behind -- goes only with --mcp"),
    ],
)
async def test_arguments_that_name_no_server_or_two_say_what_is_missing(arguments: list[str], told: str) -> None:
    async with started(*arguments) as client:
        assert client.process.stderr is not None
        assert told in (await client.process.stderr.read()).decode()
        assert 2 == await client.process.wait()

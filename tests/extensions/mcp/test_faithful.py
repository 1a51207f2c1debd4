"""A session over stdio with the proxy and without it, line by line: what the client reads, and what the server reads.

Everything is the same but for calls that are repaired or refused, and for text of the server that is no message.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.extensions.mcp.test_stdio_upstream import asked, call

ROOT = Path(__file__).parents[3]
SERVER = [sys.executable, str(ROOT / "tests" / "extensions" / "mcp" / "stdio_server.py")]
GUARD = [sys.executable, "-m", "proxy", "stdio", "--"]
META: Final = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
# How long one line may take, in seconds.
_LONG: Final = 120.0


def tell(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def echo(request_id: object, value: object, **params: object) -> dict[str, object]:
    return call("echo", request_id, arguments={"b": value}, **params)


OPENING: Final[dict[str, list[object]]] = {
    "sessions": [
        asked("initialize", "i", protocolVersion="2025-11-25", capabilities={"sampling": {}}, clientInfo={"name": "c"}),
        tell("notifications/initialized"),
    ],
    "modern": [asked("server/discover", "i", **META)],
}
VALUES: Final[tuple[object, ...]] = (
    "é\u2028 \U0001f600", 9007199254740993, 1e300, [], {}, None, True, -0.0, "x" * 70_000, {"a": {"b": [1, "2"]}},
)  # fmt: skip
# The input of a client of either era: messages, or lines as they are.
SCRIPT: Final[tuple[object, ...]] = (
    asked("tools/list", 1),
    asked("ping", 2),
    *(echo(request_id, "x") for request_id in (0, -1, "", "é", 2**53 - 1, 3, "p1", "a\nb")),
    *(echo(10 + number, value) for number, value in enumerate(VALUES)),
    '{ "id" :30 ,"params":{ "name":"echo","arguments":{ "b":1.50e1, "a" :5 } },"method":"tools/call", "jsonrpc":"2.0"}',
    '{"jsonrpc":"2.0","id":31,"method":"tools\\/call","params":{"name":"echo","arguments":{"b":"\\u00e9\\ud83d\\ude00"}}}',
    call("echo", 32),
    echo(33, 1, _meta={"a/b": {"c": 1}}),
    *(call("progress", 40 + number, _meta={"progressToken": token}) for number, token in enumerate((0, "a b", "p1"))),
    call("log", 43, arguments={"lines": 5}),
    call("log", 44, arguments={"lines": 1_500}),
    call("change", 45),
    call("noise", 46),
    call("half", 47),
    call("cancelled", 48),
    asked("nope/x", 49),
    asked("tasks/list", 50),
    asked("resources/list", 51),
    asked("logging/setLevel", 52, level="debug"),
    tell("notifications/roots/list_changed"),
    tell("notifications/x", a=1),
    tell("notifications/cancelled", requestId="nobody"),
    *(echo(f"later-{number}", number) for number in range(11)),
)
ASKING: Final = (call("ask", "q1"), call("ask", "q2"))


class Peer:
    """A server or a proxy, and all that it has written."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.read: list[bytes] = []

    async def send(self, message: object) -> None:
        assert self.process.stdin is not None
        text = message if isinstance(message, str) else json.dumps(message)
        self.process.stdin.write(text.encode() + b"\n")
        await self.process.stdin.drain()

    async def read_line(self) -> Any:
        """The next message; other lines are passed over."""
        assert self.process.stdout is not None
        while line := await asyncio.wait_for(self.process.stdout.readline(), _LONG):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                self.read.append(line)
                return value
        raise AssertionError("its output has ended")

    async def ask(self, message: object) -> Any:
        """Sends a message, and reads until its answer if it expects one. A question on the way is answered."""
        await self.send(message)
        value: Any = json.loads(message) if isinstance(message, str) else message
        if "id" not in value:
            return None
        while "method" in (found := await self.read_line()) or found["id"] != value["id"]:
            if "method" in found and "id" in found:
                await self.send({"jsonrpc": "2.0", "id": found["id"], "result": {"role": "assistant"}})
        return found


async def open_peer(words: list[str], *arguments: str) -> Peer:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, *arguments, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, cwd=ROOT, limit=1 << 24
    )
    return Peer(process)


async def play(words: list[str], era: str) -> tuple[list[bytes], list[str]]:
    """The lines that a client reads in the session, and those that the server has read."""
    peer = await open_peer(words, era)
    meta = META if era == "modern" else {}
    for message in OPENING[era]:
        await peer.ask(message)
    for message in (*SCRIPT, *(ASKING if era == "sessions" else ())):
        is_request = isinstance(message, dict) and "id" in message
        await peer.ask(_add_meta(message, meta) if is_request and meta else message)
    seen = (await peer.ask({**call("seen", "end"), "params": {"name": "seen", **meta}}))["result"]["content"][0]["text"]
    peer.read.pop()
    peer.process.stdin.close()  # type: ignore[union-attr]
    await peer.process.wait()
    return peer.read, [line for line in json.loads(seen) if not _is_own(line)]


def _is_own(line: str) -> bool:
    """Returns whether the proxy itself asks for the list, because it has changed."""
    message = json.loads(line)
    return bool(message.get("method") == "tools/list" and message["id"] != 1)


def _add_meta(message: Any, meta: dict[str, Any]) -> dict[str, Any]:
    """A request with what its revision wants in `_meta`."""
    params = message["params"]
    return {**message, "params": {**params, "_meta": {**params.get("_meta", {}), **meta["_meta"]}}}


@pytest.mark.large
@pytest.mark.parametrize("era", ["sessions", "modern"])
async def test_a_session_is_the_same_line_by_line(era: str) -> None:
    lines, seen = await play(SERVER, era)
    ours, seen_by_server = await play([*GUARD, *SERVER], era)
    assert len(SCRIPT) >= 50
    for line, other in zip(lines, ours, strict=True):
        assert line == other
    assert seen == seen_by_server


@pytest.mark.large
async def test_calls_that_are_sent_at_once_are_read_in_their_order_and_all_answered() -> None:
    """Every third call is damaged and every fourth is long."""
    sent = [
        call(
            "echo",
            number,
            arguments={"a": number if number % 3 else str(number), "b": "x" * (30_000 * (number % 4 == 0))},
        )
        for number in range(20)
    ]
    told: list[dict[object, str]] = []
    for words in (SERVER, [*GUARD, *SERVER]):
        peer = await open_peer(words)
        for message in OPENING["sessions"]:
            await peer.ask(message)
        for message in sent:
            await peer.send(message)
        answers = [await peer.read_line() for _ in sent]
        told.append({answer["id"]: answer["result"]["content"][0]["text"] for answer in answers})
        seen = json.loads((await peer.ask(call("seen", "end")))["result"]["content"][0]["text"])
        read = [message["id"] for message in map(json.loads, seen) if message["method"] == "tools/call"]
        assert list(range(20)) == read[:20]
        peer.process.stdin.close()  # type: ignore[union-attr]
        await peer.process.wait()
    raw, ours = told
    expected = {number: json.dumps({"a": number, "b": json.loads(text)["b"]}) for number, text in raw.items()}
    assert expected == ours


async def test_an_id_that_programs_read_in_two_ways_comes_back_as_it_was() -> None:
    peer = await open_peer([*GUARD, *SERVER])
    for message in OPENING["sessions"]:
        await peer.ask(message)
    for written in ("9007199254740993", "1.50", "1e2"):
        line = '{"jsonrpc":"2.0","id":%s,"method":"ping"}'.replace("%s", written)
        await peer.send(line)
        await peer.read_line()
        assert f'"id": {written}, '.encode() in peer.read[-1]
    peer.process.stdin.close()  # type: ignore[union-attr]
    await peer.process.wait()

"""Several MCP servers as one upstream: real processes of both eras, and clients of both eras."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.core.json.contentcoding import EventSplitter
from proxy.core.model.values import Headers, UpstreamFault, UpstreamReply
from proxy.extensions.mcp.upstream.joined import JoinedServer, JoinedSettings, JoinedUpstream
from proxy.extensions.mcp.upstream.joined.event_rewriting import ServerEvent, split_events
from proxy.extensions.mcp.upstream.joined.merged_lists import (
    ListedNames,
    ListedPage,
    MergedLists,
    ResourceOwners,
    merge_capabilities,
)
from proxy.extensions.mcp.upstream.stdio import StdioSettings, StdioUpstream
from proxy.interfaces import UpstreamRequest
from proxy.upstream import UpstreamGuard
from tests.extensions.mcp.stdio_server import NAMES
from tests.extensions.mcp.test_stdio_upstream import asked, call, settings
from tests.steady import until

MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class Joined:
    """A joined upstream, its servers, and what was reported of them."""

    upstream: JoinedUpstream
    servers: dict[str, StdioUpstream]
    reports: list[tuple[str, str]] = field(default_factory=list)

    async def send(self, method: str, body: object = None, headers: Headers = ()) -> UpstreamReply:
        text = b"" if body is None else json.dumps(body).encode()
        accept: Headers = (("accept", "application/json, text/event-stream"),)
        request = UpstreamRequest("joined", method, "/mcp", (*accept, *headers), text, 60.0)
        reply = await self.upstream.relay(request, None)
        assert isinstance(reply, UpstreamReply), reply
        return reply

    async def ask(self, message: object, headers: Headers = ()) -> Any:
        return (await messages(await self.send("POST", message, headers)))[-1]

    async def ask_modern(self, message: dict[str, Any]) -> Any:
        params = {**message["params"], "_meta": MODERN_META}
        headers: list[tuple[str, str]] = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", message["method"])]
        if "name" in params:
            headers.append(("mcp-name", params["name"]))
        return await self.ask({**message, "params": params}, tuple(headers))

    async def begin(self, **capabilities: object) -> Headers:
        params = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {"name": "c"}}
        reply = await self.send("POST", asked("initialize", 0, **params))
        return (("mcp-session-id", dict(reply.headers)["mcp-session-id"]), ("mcp-protocol-version", "2025-06-18"))

    async def listen(self, session: Headers) -> AsyncIterator[Any]:
        """The messages of the session's stream."""
        stream = await self.send("GET", None, session)
        assert not isinstance(stream.body, bytes)
        return _read_messages(stream.body)

    async def find_listed(self, session: Headers) -> set[str]:
        """The servers whose tools are listed."""
        listed = await self.ask(asked("tools/list"), session)
        return {tool["name"].partition("_")[0] for tool in listed["result"]["tools"]}

    async def close(self) -> None:
        await self.upstream.close()
        for server in self.servers.values():
            await server.close()


async def _read_messages(body: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    reader = EventSplitter()
    async for piece in body:
        for event in split_events(reader, piece):
            yield json.loads(event.data)


async def messages(reply: UpstreamReply) -> list[Any]:
    if isinstance(reply.body, bytes):
        return [json.loads(reply.body)]
    reader = EventSplitter()
    return [json.loads(event.data) async for piece in reply.body for event in split_events(reader, piece) if event.data]


def text_of(answer: Any) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


async def make(*names: str, always: bool = True, late: str = "", wait: float = 30.0) -> Joined:
    """Servers with these names. `new` speaks only the new revisions, `gone` does not start, `slow` is late as the
    argument `late` says, and `book` has prompts and resources."""
    commands = {
        "new": settings("modern"),
        "gone": StdioSettings("gone", ("no-such-program",)),
        "slow": settings(late),
        "book": settings("book"),
    }
    servers = {name: StdioUpstream(commands.get(name, settings())) for name in names}
    now = asyncio.get_running_loop().time
    reports: list[tuple[str, str]] = []
    made = JoinedSettings(
        "joined",
        tuple(JoinedServer(name, name, prefix=f"{name}_") for name in names),
        always=always,
        wait=wait,
        again=0.05,
        report=lambda server, reason: reports.append((server, reason)),
    )
    from proxy.core.tool_errors.circuit_breaker import GuardPolicy

    guards = {name: UpstreamGuard(server, name, GuardPolicy(), now) for name, server in servers.items()}
    return Joined(JoinedUpstream(made, guards), servers, reports)


@pytest.fixture
async def joined(request: pytest.FixtureRequest) -> AsyncIterator[Joined]:
    names, options = getattr(request, "param", (("old", "new"), {}))
    made = await make(*names, **options)
    yield made
    await made.close()


def of(*names: str, **options: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("joined", [(names, options)], indirect=True)


async def test_tools_of_both_eras_are_listed_and_called_in_a_session(joined: Joined) -> None:
    session = await joined.begin()
    listed = [tool["name"] for tool in (await joined.ask(asked("tools/list"), session))["result"]["tools"]]
    assert {"old_echo", "new_echo"} <= set(listed)
    assert 2 * len(NAMES) == len(listed)
    for name in ("old_echo", "new_echo"):
        answer = await joined.ask(call(name, "id-1", arguments={"a": 1}), session)
        assert ("id-1", '{"a": 1}') == (answer["id"], text_of(answer))


async def test_tools_of_both_eras_are_listed_and_called_without_a_session(joined: Joined) -> None:
    found = await joined.ask_modern(asked("server/discover"))
    assert (["2026-07-28"], "complete") == (found["result"]["supportedVersions"], found["result"]["resultType"])
    listed = (await joined.ask_modern(asked("tools/list")))["result"]
    assert ("complete", "private", 2 * len(NAMES)) == (listed["resultType"], listed["cacheScope"], len(listed["tools"]))
    for name in ("old_echo", "new_echo"):
        answer = await joined.ask_modern(call(name, 7, arguments={"a": 1}))
        assert (7, "complete", '{"a": 1}') == (answer["id"], answer["result"]["resultType"], text_of(answer))


async def test_a_name_of_no_server_is_an_unknown_tool(joined: Joined) -> None:
    session = await joined.begin()
    answer = await joined.ask(call("other_echo"), session)
    assert {"code": -32602, "message": "Unknown tool: other_echo"} == answer["error"]
    assert -32601 == (await joined.ask(asked("no/such"), session))["error"]["code"]
    assert {} == (await joined.ask(asked("ping"), session))["result"]


@of("old", "gone")
async def test_a_server_that_is_down_is_left_out_and_reported_once(joined: Joined) -> None:
    session = await joined.begin()
    for _ in range(2):
        listed = (await joined.ask(asked("tools/list"), session))["result"]["tools"]
        assert all(tool["name"].startswith("old_") for tool in listed)
    assert ["gone"] == list(joined.upstream.down)
    assert ["gone"] == [server for server, _ in joined.reports]
    request = UpstreamRequest("joined", "POST", "/", session, json.dumps(call("gone_echo")).encode(), 60.0)
    fault = await joined.upstream.relay(request, None)
    assert isinstance(fault, UpstreamFault)
    assert "server 'gone' is out of reach" in fault.message


@of("a", "b")
async def test_restarts_a_server_that_died_with_the_next_call(joined: Joined) -> None:
    session = await joined.begin()
    first = int(text_of(await joined.ask(call("a_pid"), session)))
    other = text_of(await joined.ask(call("b_pid"), session))
    os.kill(first, signal.SIGKILL)
    await until(lambda: not joined.servers["a"].sessions.children)
    assert first != int(text_of(await joined.ask(call("a_pid"), session)))
    assert other == text_of(await joined.ask(call("b_pid"), session))


@of("a", "b")
async def test_a_question_of_a_server_reaches_the_client_and_its_answer_that_server(joined: Joined) -> None:
    session = await joined.begin(sampling={})
    reply = await joined.send("POST", call("b_ask", 5), session)
    assert not isinstance(reply.body, bytes)
    reader, found = EventSplitter(), list[Any]()
    async for piece in reply.body:
        for event in split_events(reader, piece):
            message = json.loads(event.data)
            found.append(message)
            if "method" in message:
                told = {"jsonrpc": "2.0", "id": message["id"], "result": {"said": "yes"}}
                assert 202 == (await joined.send("POST", told, session)).status
    assert ['b:"question-1"', 5] == [message["id"] for message in found]
    assert '{"said": "yes"}' == text_of(found[-1])


@of("a", "b")
async def test_progress_and_cancellations_find_their_server(joined: Joined) -> None:
    session = await joined.begin()
    params = {"_meta": {"progressToken": "t"}}
    heard = await messages(await joined.send("POST", call("a_progress", 3, **params), session))
    assert [1, 2, 3] == [message["params"]["progress"] for message in heard[:-1]]
    hanging = asyncio.create_task(joined.ask(call("b_hang", 9), session))
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}
    while "[]" == text_of(await joined.ask(call("b_cancelled", 10), session)):
        await joined.send("POST", cancel, session)
    assert "[]" == text_of(await joined.ask(call("a_cancelled", 11), session))
    hanging.cancel()


@of("a", "b")
async def test_the_stream_of_a_session_holds_what_each_server_announces(joined: Joined) -> None:
    session = await joined.begin()
    stream = await joined.send("GET", None, session)
    assert not isinstance(stream.body, bytes)
    reader, changes = EventSplitter(), 0
    calls = asyncio.create_task(_changing(joined, session))
    async for piece in stream.body:
        changes += sum(b"tools/list_changed" in event.data for event in split_events(reader, piece))
        if changes == 2:
            break
    await calls
    await stream.body.aclose()  # type: ignore[attr-defined]


async def _changing(joined: Joined, session: Headers) -> None:
    for name in ("a_change", "b_change"):
        await messages(await joined.send("POST", call(name), (*session,)))


async def test_an_ended_session_is_unknown_and_its_processes_are_gone(joined: Joined) -> None:
    session = await joined.begin()
    assert 200 == (await joined.send("DELETE", None, session)).status
    assert 404 == (await joined.send("POST", asked("ping"), session)).status
    assert 400 == (await joined.send("POST", asked("ping"))).status
    await until(lambda: not joined.servers["old"].sessions.children)


@of("a", "b", always=False)
async def test_only_names_that_two_servers_have_get_a_prefix(joined: Joined) -> None:
    session = await joined.begin()
    listed = [tool["name"] for tool in (await joined.ask(asked("tools/list"), session))["result"]["tools"]]
    assert {"a_echo", "b_echo"} <= set(listed)
    assert "echo" not in listed


# --- pure parts -------------------------------------------------------------------------------------------------------
def test_a_bare_name_never_changes_its_server() -> None:
    names = ListedNames({"a": "a_", "b": "b_"}, always=False)
    names.note("a", ["read"])
    assert ("read", ("a", "read")) == (names.show("a", "read"), names.find("read"))
    names.note("b", ["read", "write"])
    assert ("a_read", "b_read", "write") == (
        names.show("a", "read"), names.show("b", "read"), names.show("b", "write"),
    )  # fmt: skip
    assert (None, ("b", "read")) == (names.find("read"), names.find("b_read"))


def test_a_bare_name_that_looks_like_one_with_a_prefix_gets_its_own() -> None:
    names = ListedNames({"a": "a_", "b": "b_"}, always=False)
    names.note("a", ["b_read"])
    names.note("b", ["read"])
    assert ("a_b_read", ("b", "read")) == (names.show("a", "b_read"), names.find("b_read"))


def test_of_two_resources_with_one_uri_the_first_counts_and_templates_find_their_server() -> None:
    lists, owners = MergedLists({}), ResourceOwners()

    def page(*entries: dict[str, Any]) -> tuple[ListedPage, ...]:
        return (ListedPage(entries, None, None, repr(entries).encode()),)

    listed = {"a": page({"uri": "x://1", "n": 1}), "b": page({"uri": "x://1", "n": 2}, {"uri": "x://2"})}
    assert [{"uri": "x://1", "n": 1}, {"uri": "x://2"}] == json.loads(lists.merge("resources/list", listed))
    owners.note("resources/list", listed)
    owners.note("resources/templates/list", {"b": page({"uriTemplate": "file:///{path}"})})
    assert ["a", "b", "b", None] == list(map(owners.find, ["x://1", "x://2", "file:///a/b", "y://"]))


def test_merges_the_capabilities_of_all_servers() -> None:
    one = {"tools": {}, "resources": {"subscribe": False}}
    other = {"resources": {"subscribe": True, "listChanged": True}, "logging": {}}
    assert {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "logging": {},
    } == merge_capabilities([one, other, None])


@pytest.mark.parametrize("cut", range(1, 40))
def test_events_are_the_same_wherever_their_pieces_meet(cut: int) -> None:
    text = b": hello\r\n\r\nevent: message\r\nid: 7\r\ndata: {}\r\n\r\ndata: a\ndata: b\n\n"
    reader = EventSplitter()
    found = [event for piece in (text[:cut], text[cut:]) for event in split_events(reader, piece)]
    assert [
        ServerEvent(None, (b": hello",), b""),
        ServerEvent(b"7", (b"event: message",), b"{}"),
        ServerEvent(None, (), b"a\nb"),
    ] == found


async def test_a_slow_server_holds_neither_the_session_nor_a_list_and_hears_the_level_later(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    joined = await make("old", "slow", late=f"late={ready}", wait=0.3)
    session = await joined.begin()
    while {"old"} != await joined.find_listed(session):
        pass  # a busy machine
    stream = await joined.listen(session)
    await joined.ask(asked("logging/setLevel", level="debug"), session)
    ready.touch()
    while {"old", "slow"} != await joined.find_listed(session):
        assert "notifications/tools/list_changed" == (await anext(stream))["method"]
    seen = json.loads(text_of(await joined.ask(call("slow_seen", 9), session)))
    assert [{"level": "debug"}] == [
        message["params"] for message in map(json.loads, seen) if message["method"] == "logging/setLevel"
    ]
    await joined.close()


async def test_announces_a_list_that_comes_late_and_has_it_the_next_time(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    joined = await make("old", "slow", late=f"late-list={ready}", wait=0.3)
    session = await joined.begin()
    stream = await joined.listen(session)
    assert "slow" not in await joined.find_listed(session)
    ready.touch()
    while {"old", "slow"} != await joined.find_listed(session):
        assert "notifications/tools/list_changed" == (await anext(stream))["method"]
    await joined.close()


@of("old")
async def test_a_server_that_asks_a_client_of_the_new_revisions_is_answered_at_once(joined: Joined) -> None:
    told = json.loads(text_of(await joined.ask_modern(call("old_ask", 3))))
    assert {"code": -32601, "message": "the client has not declared the capability 'sampling'"} == told

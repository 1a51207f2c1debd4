"""Streams of commands: their events have ids, and a client whose connection broke reads the rest (`Last-Event-ID`)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.core.model.values import Headers, UpstreamReply
from proxy.extensions.mcp.upstream.stdio import StdioUpstream
from proxy.interfaces import UpstreamRequest
from tests.extensions.mcp.conversation import BOTH
from tests.extensions.mcp.test_stdio_upstream import SERVER, asked, call, post, result, settings
from tests.extensions.mcp.test_streams import Client
from tests.serving.proxied import proxied
from tests.serving.wire import exchange
from tests.serving.wire import post as write_post
from tests.steady import pass_time, run_others, until

ANSWER = {"jsonrpc": "2.0", "id": "question-1", "result": "yes"}
ROUTES = {
    "command": "  - {path: /mcp, protocol: mcp, upstream: tools}",
    "servers": "  - {path: /mcp, protocol: mcp, servers: {a: tools}, mcp: {prefix: clash}}",
}
Event = dict[str, str]


@pytest.fixture
async def upstream(request: pytest.FixtureRequest) -> AsyncIterator[StdioUpstream]:
    made = StdioUpstream(getattr(request, "param", None) or settings())
    yield made
    await made.close()


async def begin(upstream: StdioUpstream, revision: str = "2025-11-25") -> Headers:
    """Begins a session of a client that can be asked; gives the headers of its further requests."""
    about = asked("initialize", 0, protocolVersion=revision, capabilities={"sampling": {}})
    reply = await post(upstream, about)
    assert isinstance(reply, UpstreamReply)
    return (("mcp-session-id", dict(reply.headers)["mcp-session-id"]), ("mcp-protocol-version", revision))


async def get(upstream: StdioUpstream, headers: Headers, last_id: str = "") -> UpstreamReply:
    more: Headers = (("last-event-id", last_id),) if last_id else ()
    listening: Headers = (("accept", "text/event-stream"), *headers, *more)
    reply = await upstream.relay(UpstreamRequest("tools", "GET", "/mcp", listening, b"", 30), None)
    assert isinstance(reply, UpstreamReply)
    return reply


def read(event: bytes) -> Event:
    """The fields of an event."""
    lines = event.decode().strip("\n").split("\n")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def events(reply: object) -> list[Event]:
    """The events of an answer, to its end."""
    assert isinstance(reply, UpstreamReply)
    assert not isinstance(reply.body, bytes), reply
    return [read(event) async for event in reply.body]


async def take(reply: object, count: int) -> list[Event]:
    """The next events of a stream, which stays open."""
    assert isinstance(reply, UpstreamReply)
    assert not isinstance(reply.body, bytes), reply
    return [read(await anext(reply.body)) for _ in range(count)]


async def leave(reply: object) -> None:
    await reply.body.aclose()  # type: ignore[attr-defined]


def answer_in(event: Event) -> Any:
    return json.loads(event["data"])["result"]["content"][0]["text"]


@pytest.mark.parametrize(("revision", "primed"), [("2025-03-26", 0), ("2025-06-18", 0), ("2025-11-25", 1)])
async def test_events_of_a_session_have_ids(upstream: StdioUpstream, revision: str, primed: int) -> None:
    headers = await begin(upstream, revision)
    for stream in (1, 2):
        seen = await events(await post(upstream, call("log", arguments={"lines": 2}), headers))
        assert [f"{stream}-{number}" for number in range(primed + 3)] == [event["id"] for event in seen]
        assert [{"id": f"{stream}-0", "retry": "1000", "data": ""}][:primed] == seen[:primed]
        assert "logged" == answer_in(seen[-1])


@pytest.mark.parametrize("upstream", [settings(), settings(shared=True)], indirect=True)
async def test_a_call_runs_on_for_a_client_that_returns(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    broken = await post(upstream, call("ask"), headers)
    _, question = await take(broken, 2)
    await leave(broken)
    await post(upstream, ANSWER, headers)
    (answer,) = await events(await get(upstream, headers, question["id"]))
    assert "yes" == answer_in(answer)
    assert "[]" == await result(await post(upstream, call("cancelled"), headers))


async def test_an_answer_that_was_lost_is_sent_again(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    first, *rest = await events(await post(upstream, call("log", arguments={"lines": 2}), headers))
    assert rest == await events(await get(upstream, headers, first["id"]))
    assert [] == await events(await get(upstream, headers, rest[-1]["id"]))


async def test_a_stream_that_is_resumed_ends_the_connection_before(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    before = await post(upstream, call("ask"), headers)
    primed, question = await take(before, 2)
    waiting = asyncio.ensure_future(take(before, 1))
    await run_others()
    resumed = await get(upstream, headers, primed["id"])
    assert [question] == await take(resumed, 1)
    with pytest.raises(StopAsyncIteration):
        await waiting
    await post(upstream, ANSWER, headers)
    (answer,) = await events(resumed)
    assert "yes" == answer_in(answer)


async def test_a_stream_that_nobody_reads_is_given_up(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    broken = await post(upstream, call("ask", "given up"), headers)
    await take(broken, 2)
    await leave(broken)
    session = upstream.sessions.find(headers[0][1])
    assert session is not None
    pass_time(1_799)
    await run_others()
    assert ['"given up"'] == list(session.client.open)
    pass_time(2)
    await until(lambda: not session.client.open)


async def test_keeps_only_the_newest_streams_for_clients_that_left(
    upstream: StdioUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.extensions.mcp.upstream.stdio.resumable_stream._MOST_LEFT", 1)
    headers = await begin(upstream)
    left: list[str] = []
    for _ in range(2):
        broken = await post(upstream, call("log", arguments={"lines": 1}), headers)
        _, seen = await take(broken, 2)
        await leave(broken)
        left.append(seen["id"])
    assert 400 == (await get(upstream, headers, left[0])).status
    assert ["logged"] == [answer_in(event) for event in await events(await get(upstream, headers, left[1]))]


@pytest.mark.parametrize("last_id", ["9-0", "1-9", "1", "a/1-0", "0-0"])
async def test_rejects_the_id_of_an_event_that_is_not_known(upstream: StdioUpstream, last_id: str) -> None:
    headers = await begin(upstream)
    await events(await post(upstream, call("log", arguments={"lines": 1}), headers))
    refused = await get(upstream, headers, last_id)
    assert (400, True) == (refused.status, b"Last-Event-ID" in bytes(refused.body))  # type: ignore[arg-type]


async def test_keeps_only_the_newest_events(upstream: StdioUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.extensions.mcp.upstream.stdio.resumable_stream._MOST_BYTES", 1_000)
    headers = await begin(upstream)
    *_, seen = [await events(await post(upstream, call("log", arguments={"lines": 20}), headers)) for _ in range(3)]
    assert 400 == (await get(upstream, headers, "1-0")).status
    assert 400 == (await get(upstream, headers, "3-0")).status
    assert seen[-3:] == await events(await get(upstream, headers, seen[-4]["id"]))
    session = upstream.sessions.find(headers[0][1])
    assert session is not None
    assert session.events.find("2-0") is None
    await events(await post(upstream, call("log", arguments={"lines": 1}), headers))
    assert 3 == len(session.events._feeds)  # of the session, of the call before, of this call


async def test_messages_of_a_session_wait_for_its_next_stream(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    stream = await get(upstream, headers)
    for _ in range(3):
        await post(upstream, call("change"), headers)
    (first,) = await take(stream, 1)
    await leave(stream)
    assert ["0-0", "0-1", "0-2"] == [
        first["id"],
        *(event["id"] for event in await take(await get(upstream, headers), 2)),
    ]
    again = await get(upstream, headers, first["id"])
    assert ["0-1", "0-2"] == [event["id"] for event in await take(again, 2)]
    await leave(again)


@pytest.mark.parametrize("kind", ROUTES)
async def test_a_client_of_the_proxy_resumes_its_call(kind: str) -> None:
    command = json.dumps([sys.executable, str(SERVER)])
    async with proxied(ROUTES[kind], upstreams=f"{{tools: {{command: {command}}}}}") as proxy:

        async def send(message: object, *headers: str) -> Any:
            return await exchange(proxy.port, write_post("/mcp", json.dumps(message).encode(), BOTH, *headers))

        about = asked("initialize", 0, protocolVersion="2025-11-25", capabilities={"sampling": {}})
        session = f"Mcp-Session-Id: {(await send(about)).header('mcp-session-id')}"
        more = (session, "MCP-Protocol-Version: 2025-11-25")
        await send({"jsonrpc": "2.0", "method": "notifications/initialized"}, *more)
        broken = await Client.asks(proxy.port, write_post("/mcp", json.dumps(call("ask")).encode(), BOTH, *more))
        await broken.head()
        await broken.piece()
        question = read(await broken.piece())
        broken.leaves()
        await until(lambda: "client_gone" in [line["outcome"] for line in proxy.lines()])
        await send({**ANSWER, "id": json.loads(question["data"])["id"]}, *more)
        fields = ("Accept: text/event-stream", *more, f"Last-Event-ID: {question['id']}")
        seen = await exchange(
            proxy.port, "\r\n".join(("GET /mcp HTTP/1.1", "Host: tools.test", *fields, "", "")).encode()
        )
        assert "yes" == answer_in(read(seen.body))

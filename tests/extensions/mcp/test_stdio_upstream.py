"""An MCP server over stdio as an upstream: real processes, Streamable HTTP as its clients speak it."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.model.codes import OVERLOADED, UPSTREAM_BAD_ANSWER, UPSTREAM_TIMEOUT, UPSTREAM_UNAVAILABLE
from proxy.core.model.values import (
    CheckedCall,
    Conversation,
    Document,
    Executed,
    Headers,
    Rung,
    ToolCall,
    UpstreamFault,
    UpstreamReply,
)
from proxy.extensions.mcp.upstream.stdio import StdioSettings, StdioUpstream
from proxy.extensions.mcp.upstream.stdio.child_client import ChildClient
from proxy.extensions.mcp.upstream.stdio.reaper import Reaper
from proxy.interfaces import StartedExchange, UpstreamRequest
from proxy.upstream import ReplyBroken
from tests.extensions.mcp.server import modern, modern_headers
from tests.serving.proxied import proxied
from tests.serving.wire import Seen, exchange
from tests.serving.wire import post as post_bytes
from tests.steady import until

SERVER = Path(__file__).parent / "stdio_server.py"


def settings(*arguments: str, **changes: Any) -> StdioSettings:
    environment = {"PATH": os.environ["PATH"]}
    return StdioSettings("tools", (sys.executable, str(SERVER), *arguments), **{"environment": environment, **changes})


@pytest.fixture
async def upstream(request: pytest.FixtureRequest) -> AsyncIterator[StdioUpstream]:
    made = StdioUpstream(getattr(request, "param", None) or settings())
    yield made
    await made.close()


def with_settings(*arguments: str, **changes: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("upstream", [settings(*arguments, **changes)], indirect=True)


async def post(
    upstream: StdioUpstream, message: object, headers: Headers = (), seconds: float = 30.0
) -> UpstreamReply | UpstreamFault:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    accept: Headers = (("accept", "application/json, text/event-stream"),)
    return await upstream.relay(UpstreamRequest("tools", "POST", "/mcp", (*accept, *headers), body, seconds), None)


def asked(method: str, request_id: object = 1, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def call(tool: str, request_id: object = 1, **params: object) -> dict[str, object]:
    return asked("tools/call", request_id, name=tool, **params)


async def begin(upstream: StdioUpstream) -> Headers:
    """Begins a session; gives the headers of its further requests."""
    reply = await post(upstream, asked("initialize", 0, protocolVersion="2025-06-18"))
    assert isinstance(reply, UpstreamReply)
    session = dict(reply.headers)["mcp-session-id"]
    headers: Headers = (("mcp-session-id", session), ("mcp-protocol-version", "2025-06-18"))
    told = await post(upstream, {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
    assert UpstreamReply(202, (), b"") == told
    return headers


async def messages(reply: UpstreamReply | UpstreamFault) -> list[Any]:
    """Returns what an answer says, of either kind."""
    assert isinstance(reply, UpstreamReply), reply
    if isinstance(reply.body, bytes):
        return [json.loads(reply.body)]
    return [json.loads(piece.split(b"data: ")[1]) async for piece in reply.body]


async def result(reply: UpstreamReply | UpstreamFault) -> str:
    """The text of a tool's result."""
    (message,) = await messages(reply)
    text: str = message["result"]["content"][0]["text"]
    return text


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def gone(pid: int) -> None:
    """Waits until a process has ended."""
    await until(lambda: not is_alive(pid))


# --- sessions ---------------------------------------------------------------------------------------------------------
async def test_each_session_has_its_own_process(upstream: StdioUpstream) -> None:
    one, other = await begin(upstream), await begin(upstream)
    assert await result(await post(upstream, call("pid"), one)) != await result(
        await post(upstream, call("pid"), other)
    )
    assert 2 == upstream.sessions.children


@pytest.mark.parametrize("is_modern", [False, True])
async def test_the_first_client_gets_the_process_that_was_started_early(is_modern: bool) -> None:
    upstream = StdioUpstream(settings(*(["modern"] * is_modern)))
    channel = await upstream.sessions.start_early()
    assert 1 == upstream.sessions.children
    headers = () if is_modern else await begin(upstream)
    message = modern(call("pid")) if is_modern else call("pid")
    assert str(channel.pid) == await result(await post(upstream, message, headers))
    assert (1, None) == (upstream.sessions.children, channel.exit)
    await upstream.close()


@with_settings(shared=True)
async def test_sessions_may_share_one_process(upstream: StdioUpstream) -> None:
    one, other = await begin(upstream), await begin(upstream)
    assert await result(await post(upstream, call("pid"), one)) == await result(
        await post(upstream, call("pid"), other)
    )
    assert 1 == upstream.sessions.children


async def test_the_arguments_of_a_call_arrive_byte_for_byte(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    body = b'{"jsonrpc": "2.0",\r\n "id": "a\\u0062", "params": {"name": "echo", "arguments": {"b": 1.50e1}},'
    body += b'\n "method": "tools/call"}'
    (answer,) = await messages(await post(upstream, body, headers))
    assert "ab" == answer["id"]
    assert '{"b": 15.0}' == answer["result"]["content"][0]["text"]


async def test_a_deleted_session_ends_its_process_and_is_unknown_from_then_on(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    pid = int(await result(await post(upstream, call("pid"), headers)))
    ended = await upstream.relay(UpstreamRequest("tools", "DELETE", "/mcp", headers, b"", 30), None)
    assert UpstreamReply(200, (), b"") == ended
    assert not is_alive(pid)
    reply = await post(upstream, call("pid"), headers)
    assert isinstance(reply, UpstreamReply)
    assert 404 == reply.status
    assert [
        {"jsonrpc": "2.0", "error": {"code": -32001, "message": "Session not found"}, "id": None}
    ] == await messages(reply)


async def test_a_request_outside_of_a_session_is_refused_as_servers_do(upstream: StdioUpstream) -> None:
    reply = await post(upstream, call("pid"))
    assert isinstance(reply, UpstreamReply)
    assert 400 == reply.status
    assert 0 == upstream.sessions.children


async def test_a_batch_is_refused(upstream: StdioUpstream) -> None:
    reply = await post(upstream, [asked("ping")], await begin(upstream))
    assert isinstance(reply, UpstreamReply)
    assert 400 == reply.status


@with_settings(idle=0.05)
async def test_a_session_that_is_not_used_is_ended(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    pid = int(await result(await post(upstream, call("pid"), headers)))
    await gone(pid)
    await until(lambda: not upstream.sessions.children)
    reply = await post(upstream, asked("ping"), headers)
    assert isinstance(reply, UpstreamReply)
    assert 404 == reply.status


@with_settings(max_children=1)
async def test_one_process_more_than_may_run_is_overloaded_and_says_when_to_come_back(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    listening: Headers = (("accept", "text/event-stream"), *headers)
    await upstream.relay(UpstreamRequest("tools", "GET", "/mcp", listening, b"", 30), None)  # it is in use
    fault = await post(upstream, asked("initialize"))
    message = "upstream 'tools': 1 processes run, which is as many as may (`max_children`)"
    assert UpstreamFault(OVERLOADED, "connection_limit_reached", Executed.NO, message, 5) == fault
    assert "null" == await result(await post(upstream, call("echo"), headers))


@with_settings(max_children=2)
async def test_ends_the_session_that_was_idle_for_the_longest_time_to_begin_another(upstream: StdioUpstream) -> None:
    first, second = await begin(upstream), await begin(upstream)
    await post(upstream, asked("ping"), first)
    third = await begin(upstream)
    assert 2 == upstream.sessions.children
    replies = [await post(upstream, asked("ping"), one) for one in (first, second, third)]
    assert [200, 404, 200] == [reply.status for reply in replies if isinstance(reply, UpstreamReply)]


# --- answers ----------------------------------------------------------------------------------------------------------
async def test_many_calls_at_once_get_each_its_own_answer(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    replies = await asyncio.gather(
        *(post(upstream, call("echo", number, arguments={"a": number}), headers) for number in range(50))
    )
    answers = [(await messages(reply))[0] for reply in replies]
    assert [(number, f'{{"a": {number}}}') for number in range(50)] == [
        (answer["id"], answer["result"]["content"][0]["text"]) for answer in answers
    ]


@with_settings(shared=True)
async def test_clients_of_one_process_may_use_the_same_ids(upstream: StdioUpstream) -> None:
    one, other = await begin(upstream), await begin(upstream)
    first, second = await asyncio.gather(
        post(upstream, call("echo", 7, arguments={"a": 1}), one),
        post(upstream, call("echo", 7, arguments={"a": 2}), other),
    )
    assert ('{"a": 1}', '{"a": 2}') == (await result(first), await result(second))


async def test_progress_arrives_before_the_answer_under_the_clients_own_token(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    reply = await post(upstream, call("progress", 5, _meta={"progressToken": "mine"}), headers)
    *steps, answer = await messages(reply)
    assert [("mine", 1), ("mine", 2), ("mine", 3)] == [
        (step["params"]["progressToken"], step["params"]["progress"]) for step in steps
    ]
    assert 5 == answer["id"]


async def test_a_client_that_reads_no_events_gets_only_the_answer(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    body = json.dumps(call("progress", 5, _meta={"progressToken": 1})).encode()
    request = UpstreamRequest("tools", "POST", "/mcp", (("accept", "application/json"), *headers), body, 30)
    assert "done" == await result(await upstream.relay(request, None))


async def test_ignores_text_that_is_no_message_and_logs_stderr() -> None:
    heard: list[tuple[int, str]] = []
    upstream = StdioUpstream(settings(stderr=lambda pid, line: heard.append((pid, line))))
    headers = await begin(upstream)
    pid = int(await result(await post(upstream, call("pid"), headers)))
    assert "quiet again" == await result(await post(upstream, call("noise"), headers))
    await upstream.close()
    assert [(pid, "something for the log")] == heard


async def test_finds_an_answer_that_is_no_strict_json_by_its_id_and_keeps_its_bytes(
    upstream: StdioUpstream,
) -> None:
    headers = await begin(upstream)
    reply = await post(upstream, call("half", 9), headers)
    assert isinstance(reply, UpstreamReply)
    text = b'{"jsonrpc": "2.0", "id": 9, "result": {"content": [{"type": "text", "text": "\\ud83d"}]}}'
    assert text == reply.body


# --- the server's own requests ----------------------------------------------------------------------------------------
async def test_a_question_of_the_server_reaches_the_call_that_is_open_and_its_answer_the_server(
    upstream: StdioUpstream,
) -> None:
    headers = await begin(upstream)
    reply = await post(upstream, call("ask", 3), headers)
    assert isinstance(reply, UpstreamReply)
    assert not isinstance(reply.body, bytes)
    events = aiter(reply.body)
    question = json.loads((await anext(events)).split(b"data: ")[1])
    assert {
        "jsonrpc": "2.0",
        "id": "question-1",
        "method": "sampling/createMessage",
        "params": {"messages": []},
    } == question
    answer = {"jsonrpc": "2.0", "id": "question-1", "result": {"role": "assistant"}}
    assert UpstreamReply(202, (), b"") == await post(upstream, answer, headers)
    (last,) = [json.loads(event.split(b"data: ")[1]) async for event in events]
    assert (3, '{"role": "assistant"}') == (last["id"], last["result"]["content"][0]["text"])


async def test_a_question_that_the_client_has_not_declared_to_answer_is_answered_at_once(
    upstream: StdioUpstream,
) -> None:
    opened = await post(upstream, asked("initialize", 0, capabilities={"roots": {}}))
    assert isinstance(opened, UpstreamReply)
    headers: Headers = (("mcp-session-id", dict(opened.headers)["mcp-session-id"]),)
    told = json.loads(await result(await post(upstream, call("ask", 3), headers)))
    assert {"code": -32601, "message": "the client has not declared the capability 'sampling'"} == told


async def test_messages_during_the_only_request_arrive_on_its_stream_before_its_answer(
    upstream: StdioUpstream,
) -> None:
    headers = await begin(upstream)
    listening: Headers = (("accept", "text/event-stream"), *headers)
    await upstream.relay(UpstreamRequest("tools", "GET", "/mcp", listening, b"", 30), None)
    *logs, answer = await messages(await post(upstream, call("log", 4, arguments={"lines": 3}), headers))
    assert ([0, 1, 2], 4) == ([log["params"]["data"] for log in logs], answer["id"])


@with_settings("modern", single_client=True)
async def test_a_single_client_without_sessions_hears_all_that_is_said(upstream: StdioUpstream) -> None:
    *logs, answer = await messages(await post(upstream, modern(call("log", 4, arguments={"lines": 2_000}))))
    assert (list(range(2_000)), 4) == ([log["params"]["data"] for log in logs], answer["id"])


@with_settings(single_client=True)
async def test_a_process_that_says_more_than_its_client_reads_can_be_ended(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    pid = int(await result(await post(upstream, call("pid"), headers)))
    reply = await post(upstream, call("log", 4, arguments={"lines": 5_000}), headers)
    assert isinstance(reply, UpstreamReply)
    assert not isinstance(reply.body, bytes)
    await upstream.close()
    await gone(pid)


@with_settings("roots")
async def test_a_question_during_a_request_of_the_proxy_itself_goes_to_the_clients_stream(
    upstream: StdioUpstream,
) -> None:
    headers = await begin(upstream)
    listening: Headers = (("accept", "text/event-stream"), *headers)
    stream = await upstream.relay(UpstreamRequest("tools", "GET", "/mcp", listening, b"", 30), None)
    assert isinstance(stream, UpstreamReply)
    assert not isinstance(stream.body, bytes)
    both: Headers = (("accept", "application/json, text/event-stream"), *headers)
    body = json.dumps(asked("tools/list", "own")).encode()
    listing = asyncio.ensure_future(
        upstream.relay(UpstreamRequest("tools", "POST", "/mcp", both, body, 30, answer_only=True), None)
    )
    question = json.loads((await anext(aiter(stream.body))).split(b"data: ")[1])
    assert ("roots-1", "roots/list") == (question["id"], question["method"])
    await post(upstream, {"jsonrpc": "2.0", "id": "roots-1", "result": {"roots": []}}, headers)
    assert "own" == (await messages(await listing))[0]["id"]


@with_settings(shared=True)
async def test_a_client_cannot_answer_a_question_that_another_one_was_asked(upstream: StdioUpstream) -> None:
    one, other = await begin(upstream), await begin(upstream)
    reply = await post(upstream, call("ask", 3), one)
    assert isinstance(reply, UpstreamReply)
    forged = {"jsonrpc": "2.0", "id": "question-1", "result": "forged"}
    assert UpstreamReply(202, (), b"") == await post(upstream, forged, other)
    assert UpstreamReply(202, (), b"") == await post(upstream, {**forged, "result": "real"}, one)
    assert "real" == (await messages(reply))[-1]["result"]["content"][0]["text"]


async def test_unrequested_messages_arrive_on_a_get_stream_that_opens_later(
    upstream: StdioUpstream,
) -> None:
    headers = await begin(upstream)
    plain: Headers = (("accept", "application/json"), *headers)
    body = json.dumps(call("change")).encode()
    assert "changed" == await result(
        await upstream.relay(UpstreamRequest("tools", "POST", "/mcp", plain, body, 30), None)
    )
    listening: Headers = (("accept", "text/event-stream"), *headers)
    stream = await upstream.relay(UpstreamRequest("tools", "GET", "/mcp", listening, b"", 30), None)
    assert isinstance(stream, UpstreamReply)
    assert not isinstance(stream.body, bytes)
    events = aiter(stream.body)
    told = [json.loads((await anext(events)).split(b"data: ")[1])["method"] for _ in range(2)]
    assert ["notifications/tools/list_changed", "notifications/message"] == told


@with_settings(shared=True)
async def test_a_message_that_may_be_meant_for_one_client_reaches_no_other(upstream: StdioUpstream) -> None:
    one, other = await begin(upstream), await begin(upstream)
    listening: Headers = (("accept", "text/event-stream"), *other)
    stream = await upstream.relay(UpstreamRequest("tools", "GET", "/mcp", listening, b"", 30), None)
    assert isinstance(stream, UpstreamReply)
    assert not isinstance(stream.body, bytes)
    for _ in range(2):
        await messages(await post(upstream, call("change"), one))
    events = aiter(stream.body)
    told = [json.loads((await anext(events)).split(b"data: ")[1])["method"] for _ in range(2)]
    assert ["notifications/tools/list_changed"] * 2 == told


@pytest.mark.parametrize("upstream", [settings(), settings(shared=True)], indirect=True)
async def test_an_answer_of_any_depth_reaches_its_client(upstream: StdioUpstream) -> None:
    reply = await post(upstream, call("deep", "mine", arguments={"levels": 50_000}), await begin(upstream))
    assert isinstance(reply, UpstreamReply)
    assert isinstance(reply.body, bytes)
    assert reply.body.endswith(b']}}, "id": "mine"}')
    assert 50_000 == reply.body.count(b"[") - 1


@pytest.mark.parametrize("upstream", [settings(), settings(shared=True)], indirect=True)
async def test_passes_a_long_answer_whole_and_in_pieces(upstream: StdioUpstream) -> None:
    long = '"' * 700_000 + "\\" + "x" * 700_000
    reply = await post(upstream, call("echo", "mine", arguments={"b": [long, {}]}), await begin(upstream))
    assert isinstance(reply, UpstreamReply)
    assert not isinstance(reply.body, bytes)
    pieces = [piece async for piece in reply.body]
    answer = json.loads(b"".join(pieces))
    assert ("mine", {"b": [long, {}]}) == (answer["id"], json.loads(answer["result"]["content"][0]["text"]))
    assert len(pieces) > 1


@with_settings("modern")
async def test_forgets_the_client_of_a_long_answer_without_a_session(upstream: StdioUpstream) -> None:
    before = _count_clients()
    for _ in range(3):
        reply = await post(upstream, modern(call("echo", arguments={"b": "x" * 700_000})))
        assert isinstance(reply, UpstreamReply)
        assert not isinstance(reply.body, bytes)
        assert 700_000 < sum([len(piece) async for piece in reply.body])
    assert before == _count_clients()


def _count_clients() -> int:
    gc.collect()
    return sum(isinstance(each, ChildClient) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("unknown", "why"), [(None, "it has no id"), ("other", "its id belongs to no request")], ids=["no id", "unknown id"]
)
async def test_reports_an_answer_of_no_request_and_ends_the_oldest(
    unknown: object, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.extensions.mcp.upstream.stdio.channel._AFTER_STRAY", 0.0)
    lost: list[str] = []
    upstream = StdioUpstream(settings(lost=lambda _, reason: lost.append(reason)))
    nameless = call("nameless", 7, arguments={"id": unknown})
    (answer,) = await messages(await post(upstream, nameless, await begin(upstream)))
    assert (7, -32603) == (answer["id"], answer["error"]["code"])
    assert [why] == lost
    await upstream.close()


async def test_passes_the_right_answer_after_one_with_an_unknown_id(upstream: StdioUpstream) -> None:
    right = call("nameless", 7, arguments={"id": "other", "right": True})
    assert "right" == await result(await post(upstream, right, await begin(upstream)))


async def test_ignores_a_second_answer_to_a_request() -> None:
    lost: list[str] = []
    upstream = StdioUpstream(settings(lost=lambda _, reason: lost.append(reason)))
    headers = await begin(upstream)
    assert "null" == await result(await post(upstream, call("echo", "first"), headers))
    hanging = asyncio.ensure_future(post(upstream, call("nameless", "second", arguments={"id": "first"}), headers))
    assert "null" == await result(await post(upstream, call("echo", "third"), headers))
    assert (False, []) == (hanging.done(), lost)
    hanging.cancel()
    await upstream.close()


# --- cancelling and time ----------------------------------------------------------------------------------------------
async def test_gives_up_a_late_answer_and_cancels_it_at_the_server(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    fault = await post(upstream, call("hang"), headers, seconds=0.2)
    assert isinstance(fault, UpstreamFault)
    assert (UPSTREAM_TIMEOUT, Executed.UNKNOWN) == (fault.code, fault.executed)
    assert "[1]" == await result(await post(upstream, call("cancelled"), headers))


@pytest.mark.parametrize(
    ("upstream", "expected"), [(settings(), '["mine"]'), (settings(shared=True), '["p2"]')], indirect=["upstream"]
)
async def test_a_process_of_one_session_reads_its_clients_ids_and_a_shared_one_ids_of_the_proxy(
    upstream: StdioUpstream, expected: str
) -> None:
    headers = await begin(upstream)
    hanging = asyncio.ensure_future(post(upstream, call("hang", "mine"), headers))
    await asyncio.sleep(0)
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "mine"}}
    assert UpstreamReply(202, (), b"") == await post(upstream, notice, headers)
    assert expected == await result(await post(upstream, call("cancelled"), headers))
    hanging.cancel()


@pytest.mark.parametrize("own", [1, "p1"], ids=["a number", "as the proxy's own ids"])
async def test_an_id_of_a_request_that_was_given_up_goes_to_no_other_before_its_answer(
    own: int | str, upstream: StdioUpstream
) -> None:
    headers = await begin(upstream)
    given_up = call("progress", own, arguments={"seconds": 0.2})
    assert isinstance(await post(upstream, given_up, headers, seconds=0.1), UpstreamFault)
    *_, answer = await messages(await post(upstream, call("echo", own, arguments={"a": 1}), headers))
    assert (own, '{"a": 1}') == (answer["id"], answer["result"]["content"][0]["text"])


async def test_a_message_to_a_process_of_one_session_goes_there_unchanged(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    body = b'{ "id":7, "params":{"name":"echo", "_meta":{"progressToken":"a"} },"method":"tools/call","jsonrpc":"2.0"}'
    await post(upstream, body, headers)
    assert body.decode() + "\n" == json.loads(await result(await post(upstream, call("seen"), headers)))[-2]


async def test_a_request_that_was_cancelled_ends_without_an_answer(
    upstream: StdioUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.extensions.mcp.upstream.stdio.channel._AFTER_CANCELLING", 0.0)
    headers = await begin(upstream)
    hanging = asyncio.ensure_future(post(upstream, call("hang", 5), headers))
    await asyncio.sleep(0)
    await post(upstream, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}, headers)
    ended = await hanging
    assert isinstance(ended, UpstreamReply)
    assert (200, b"") == (ended.status, ended.body)


async def test_progress_extends_the_time_limit_even_if_nobody_reads_it(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    steps = call("progress", 5, arguments={"seconds": 0.8}, _meta={"progressToken": 1})
    plain: Headers = (("accept", "application/json"), *headers)
    request = UpstreamRequest("tools", "POST", "/mcp", plain, json.dumps(steps).encode(), 2.0)
    assert "done" == await result(await upstream.relay(request, None))


async def test_a_call_without_a_limit_of_time_waits_for_its_answer(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    assert "null" == await result(await post(upstream, call("echo"), headers, seconds=math.inf))


async def test_calls_passed_on_when_the_server_has_the_request(upstream: StdioUpstream) -> None:
    headers, passed = await begin(upstream), asyncio.Event()
    body = json.dumps(call("hang")).encode()
    request = UpstreamRequest("tools", "POST", "/mcp", headers, body, 30.0, passed_on=passed.set)
    hanging = asyncio.ensure_future(upstream.relay(request, None))
    await passed.wait()
    assert not hanging.done()
    hanging.cancel()


# --- ends -------------------------------------------------------------------------------------------------------------
async def test_a_process_that_dies_in_a_call_is_an_upstream_error_that_says_so_and_its_session_is_over(
    upstream: StdioUpstream,
) -> None:
    headers = await begin(upstream)
    fault = await post(upstream, call("die"), headers)
    message = "upstream 'tools': its process ended during the call (exit code 3): Error: no key"
    assert UpstreamFault(UPSTREAM_BAD_ANSWER, "connection_terminated", Executed.UNKNOWN, message) == fault
    reply = await post(upstream, call("pid"), headers)
    assert isinstance(reply, UpstreamReply)
    assert 404 == reply.status


async def test_a_process_that_is_killed_breaks_the_stream_that_has_begun(upstream: StdioUpstream) -> None:
    headers = await begin(upstream)
    pid = int(await result(await post(upstream, call("pid"), headers)))
    reply = await post(upstream, call("ask"), headers)
    assert isinstance(reply, UpstreamReply)
    assert not isinstance(reply.body, bytes)
    events = aiter(reply.body)
    await anext(events)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ReplyBroken, match="its process ended during the call \\(signal 9\\)"):
        await anext(events)


@with_settings("linger")
async def test_a_process_that_does_not_want_to_end_is_ended_with_all_that_it_has_started(
    upstream: StdioUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.extensions.mcp.upstream.stdio.child._PATIENCE", 0.2)  # waited twice
    headers = await begin(upstream)
    pid = int(await result(await post(upstream, call("pid"), headers)))
    (grandchild,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split())
    await upstream.close()
    await gone(pid)
    await gone(grandchild)


async def test_a_command_that_is_not_there_is_an_upstream_error_that_names_it() -> None:
    upstream = StdioUpstream(StdioSettings("tools", ("no-such-program", "--flag")))
    message = "upstream 'tools': cannot start 'no-such-program': No such file or directory"
    assert UpstreamFault(UPSTREAM_UNAVAILABLE, "destination_unavailable", Executed.NO, message) == await post(
        upstream, asked("initialize")
    )
    await upstream.close()


@pytest.mark.large
def test_the_reaping_process_needs_no_package() -> None:
    reaper = [sys.executable, "-S", "-E", sys.modules[Reaper.__module__].__file__ or ""]
    done = subprocess.run(reaper, input=b"", capture_output=True, check=False, timeout=300)
    assert (0, b"") == (done.returncode, done.stderr)


async def test_processes_of_a_killed_proxy_end_whatever_they_do() -> None:
    """SIGKILL runs no clean-up: the reaping process ends the groups that are left."""
    script = (
        "import asyncio, json, sys\n"
        "from tests.extensions.mcp.test_stdio_upstream import begin, call, post, result, settings\n"
        "from proxy.extensions.mcp.upstream.stdio import StdioUpstream\n"
        "async def main():\n"
        "    upstream = StdioUpstream(settings('linger'))\n"
        "    headers = await begin(upstream)\n"
        "    print(await result(await post(upstream, call('pid'), headers)), flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    proxy = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert proxy.stdout is not None
    pid = int(await proxy.stdout.readline())
    (grandchild,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split())
    proxy.send_signal(signal.SIGKILL)
    await proxy.wait()
    await gone(pid)
    await gone(grandchild)


async def test_a_process_gets_the_environment_it_was_given_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_PROXY", "x")
    upstream = StdioUpstream(settings(environment={"ONE": "1"}))
    headers = await begin(upstream)
    environment = json.loads(await result(await post(upstream, call("env"), headers)))
    await upstream.close()
    assert {"ONE": "1"} == {key: value for key, value in environment.items() if key != "LC_CTYPE"}


# --- revisions without sessions ---------------------------------------------------------------------------------------
@with_settings("modern")
async def test_requests_without_sessions_share_one_process(upstream: StdioUpstream) -> None:
    discovered = await messages(await post(upstream, modern(asked("server/discover", 1))))
    assert ["2026-07-28"] == discovered[0]["result"]["supportedVersions"]
    one, other = await asyncio.gather(post(upstream, modern(call("pid"))), post(upstream, modern(call("pid"))))
    assert await result(one) == await result(other)
    assert 1 == upstream.sessions.children


async def test_an_old_server_is_known_by_its_404_and_the_process_serves_the_session_that_follows(
    upstream: StdioUpstream,
) -> None:
    reply = await post(upstream, modern(asked("server/discover", 1)))
    assert isinstance(reply, UpstreamReply)
    assert 404 == reply.status
    assert 1 == upstream.sessions.children
    await begin(upstream)
    assert 1 == upstream.sessions.children


@with_settings("modern", restarts=2, restart_window=3600.0)
async def test_a_process_that_keeps_dying_is_not_started_for_ever(upstream: StdioUpstream) -> None:
    for _ in range(2):
        assert isinstance(await post(upstream, modern(call("die"))), UpstreamFault)
    fault = await post(upstream, modern(call("echo")))
    assert isinstance(fault, UpstreamFault)
    assert (UPSTREAM_UNAVAILABLE, Executed.NO) == (fault.code, fault.executed)
    assert "upstream 'tools': its process ended 2 times within 3600 s" == fault.message
    assert fault.retry_after is not None
    assert 3590 <= fault.retry_after <= 3601


async def test_a_header_without_its_field_in_the_message_starts_no_shared_process(upstream: StdioUpstream) -> None:
    header: Headers = (("mcp-protocol-version", "2026-07-28"),)
    refused = await post(upstream, asked("tools/list"), header)
    assert isinstance(refused, UpstreamReply)
    assert 400 == refused.status
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert UpstreamReply(202, (), b"") == await post(upstream, notice, header)
    assert 0 == upstream.sessions.children


@with_settings("one-era", shared=True)
async def test_uses_one_process_per_era_if_a_process_serves_only_one(upstream: StdioUpstream) -> None:
    session = await begin(upstream)
    old = await result(await post(upstream, call("pid"), session))
    new = await result(await post(upstream, modern(call("pid"))))
    assert old != new
    assert 2 == upstream.sessions.children
    assert old == await result(await post(upstream, call("pid"), await begin(upstream)))
    assert new == await result(await post(upstream, modern(call("pid"))))


@with_settings("one-era", shared=True)
async def test_a_session_gets_a_process_next_to_that_of_requests_without_sessions(upstream: StdioUpstream) -> None:
    new = await result(await post(upstream, modern(call("pid"))))
    old = await result(await post(upstream, call("pid"), await begin(upstream)))
    assert old != new
    assert new == await result(await post(upstream, modern(call("pid"))))


@with_settings("one-era", shared=True)
async def test_replaces_a_process_once_if_the_server_knows_no_other_era(upstream: StdioUpstream) -> None:
    await begin(upstream)
    upstream.sessions.leave_stateless(await upstream.sessions.stateless())
    refused = await post(upstream, modern(asked("server/discover")), (("accept", "application/json"),))
    assert isinstance(refused, UpstreamReply)
    assert 2 == upstream.sessions.children


@with_settings("one-era")
async def test_a_process_that_serves_requests_without_sessions_is_given_to_no_session(upstream: StdioUpstream) -> None:
    pid = await result(await post(upstream, modern(call("pid"))))
    failed = await post(upstream, modern(asked("server/discover", wrong=True)))
    assert isinstance(failed, UpstreamReply)
    assert pid != await result(await post(upstream, call("pid"), await begin(upstream)))
    assert pid == await result(await post(upstream, modern(call("pid"))))


@with_settings("one-era")
async def test_a_retired_process_ends_once_it_has_answered(upstream: StdioUpstream) -> None:
    channel = await upstream.sessions.stateless()
    slow = asyncio.ensure_future(post(upstream, modern(call("progress", arguments={"seconds": 0.1}))))
    await until(lambda: channel.sent_requests == 1)
    assert upstream.sessions.leave_stateless(channel)
    assert "done" == await result(await slow)
    await gone(channel.pid)


ROUTE = "  - {path: /mcp, upstream: tools, protocol: mcp}"
BOTH = "Accept: application/json, text/event-stream"


@pytest.mark.parametrize("era", ["sessions", "modern"])
async def test_sends_a_call_of_a_known_tool_at_once(era: str) -> None:
    command = json.dumps([sys.executable, str(SERVER), *(["modern"] if era == "modern" else [])])
    calls = [call("echo", f"id-{number}", arguments={"a": number}) for number in range(4)]
    calls[2] = call("progress", "id-2", _meta={"progressToken": 7})

    async def send(message: dict[str, Any], *headers: str) -> Seen:
        if era == "modern":
            message = modern(message)
            headers = modern_headers(message)
        return await exchange(proxy.port, post_bytes("/mcp", json.dumps(message).encode(), BOTH, *headers))

    async with proxied(ROUTE, upstreams=f"{{tools: {{command: {command}}}}}") as proxy:
        session: list[str] = []
        if era == "sessions":
            opened = await send(asked("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo={}))
            session = [f"Mcp-Session-Id: {opened.header('mcp-session-id')}"]
        answers = [await send(message, *session) for message in calls]
        fast = proxy.serving.handler.counted_fast
        lines = [line for line in proxy.lines() if "gen_ai.tool.name" in line]

    assert ["id-0", "id-1", "id-3"] == [json.loads(answers[at].body)["id"] for at in (0, 1, 3)]
    assert b'"progressToken":7' in answers[2].body.replace(b" ", b"")
    assert b'"id-2"' in answers[2].body
    assert [200] * 4 == [answer.status for answer in answers]
    assert 2 == fast  # the first has to learn the tool, and the stream needs a task
    assert ["delivered"] * 4 == [line["outcome"] for line in lines]


@pytest.mark.parametrize("era", ["sessions", "modern"])
async def test_cancels_a_call_that_was_sent_at_once_at_its_time_limit(era: str) -> None:
    more = ["modern"] if era == "modern" else []
    upstream = StdioUpstream(settings(*more))
    try:
        session = await begin(upstream) if era == "sessions" else ()
        await result(await post(upstream, _of(era, call("pid")), session))
        hanging = start(upstream, _of(era, call("hang", "h")), session, 0.05)
        assert hanging is not None
        await hanging.ready
        fault = hanging.take()
        left = start(upstream, _of(era, call("hang", "left")), session, 30.0)
        assert left is not None
        left.abort()
        seen = json.loads(await result(await post(upstream, _of(era, call("cancelled", "c")), session)))
    finally:
        await upstream.close()

    assert isinstance(fault, UpstreamFault)
    assert (UPSTREAM_TIMEOUT, Executed.UNKNOWN) == (fault.code, fault.executed)
    assert 2 == len(seen)


def _of(era: str, message: dict[str, object]) -> dict[str, Any]:
    return modern(message) if era == "modern" else message


def start(upstream: StdioUpstream, message: dict[str, Any], headers: Headers, seconds: float) -> StartedExchange | None:
    body = json.dumps(message).encode()
    sent = ToolCall("hang", Document(b"{}", {}), "1", Conversation("", Rung.ADDRESS))
    request = UpstreamRequest("tools", "POST", "/mcp", headers, body, seconds)
    return upstream.start(CheckedCall(sent, b"{}", {}), request)
